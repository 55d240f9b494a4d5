/* Collectives run on the caller's thread: a transport knows one thread. */
#include "runtime/comm.h"
#include "runtime/kernels/cpu/kernels.h"
#include "runtime/kernels/cpu/part.h"
#include "runtime/kernels/cpu/tile.h"

static void check(const RtCall *call, bool done)
{
    if (!done)
        rt_fault_raise(call->fault, "%s", call->group->world->lost);
}

void rt_all_gather_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    (void)phase;
    (void)chunk;
    (void)scratch;
    uint64_t bytes = (uint64_t)call->param[PLAN_all_gather_count].i *
                     dtype_bytes((DType)call->tensor[PLAN_T_all_gather_y].dtype);
    unsigned char *y = call->at[PLAN_T_all_gather_y];
    const void *x = call->at[PLAN_T_all_gather_x];
    check(call, rt_all_gather(call->group, y, x ? x : y + call->group->self * bytes, bytes));
}

void rt_reduce_scatter_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    (void)phase;
    (void)chunk;
    (void)scratch;
    RtReduction sum = {
        .from_dtype = call->tensor[PLAN_T_reduce_scatter_x].dtype,
        .to_dtype = call->tensor[PLAN_T_reduce_scatter_y].dtype,
        .op = PLAN_SUM,
        .to = call->at[PLAN_T_reduce_scatter_y],
        .from = call->at[PLAN_T_reduce_scatter_x],
        .count = call->param[PLAN_reduce_scatter_count].i,
        .workspace = call->workspace,
    };
    check(call, rt_reduce_scatter(call->group, &sum));
}

void rt_all_reduce_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    (void)phase;
    (void)chunk;
    (void)scratch;
    RtReduction sum = {
        .from_dtype = call->tensor[PLAN_T_all_reduce_x].dtype,
        .to_dtype = call->tensor[PLAN_T_all_reduce_y].dtype,
        .op = (PlanReduce)call->param[PLAN_all_reduce_op].i,
        .to = call->at[PLAN_T_all_reduce_y],
        .from = call->at[PLAN_T_all_reduce_x],
        .count = call->param[PLAN_all_reduce_count].i,
        .workspace = call->workspace,
    };
    check(call, rt_all_reduce(call->group, &sum));
}

/* -- take_part -- */

uint64_t rt_take_part_chunks(const RtCall *call, uint32_t phase)
{
    (void)phase;
    return (uint64_t)plan_ceil_div(call->param[PLAN_take_part_count].i, RT_CHUNK);
}

void rt_take_part_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    (void)phase;
    (void)scratch;
    const PlanTensor *y = &call->tensor[PLAN_T_take_part_y], *x = &call->tensor[PLAN_T_take_part_x];
    int64_t count = call->param[PLAN_take_part_count].i, before = rt_part_index(call) * count;
    int64_t first = rt_chunk_begin(chunk, RT_CHUNK), end = rt_chunk_end(chunk, RT_CHUNK, count);
    int64_t given = rt_between(x->numel - before, first, end);
    if (first < given)
        rt_view_copy(call->at[PLAN_T_take_part_y], y, first, call->at[PLAN_T_take_part_x], x,
                     before + first, given - first);
    if (given < end)
        rt_view_zero(call->at[PLAN_T_take_part_y], y, given, end - given);
}

void rt_send_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    (void)phase;
    (void)chunk;
    (void)scratch;
    uint64_t bytes = (uint64_t)call->param[PLAN_send_count].i *
                     dtype_bytes((DType)call->tensor[PLAN_T_send_x].dtype);
    check(call, rt_send(call->group, (uint32_t)call->param[PLAN_send_peer].i,
                        call->at[PLAN_T_send_x], bytes));
}

void rt_recv_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    (void)phase;
    (void)chunk;
    (void)scratch;
    uint64_t bytes = (uint64_t)call->param[PLAN_recv_count].i *
                     dtype_bytes((DType)call->tensor[PLAN_T_recv_y].dtype);
    check(call, rt_receive(call->group, (uint32_t)call->param[PLAN_recv_peer].i,
                           call->at[PLAN_T_recv_y], bytes));
}

/* -- flat_pack: a phase per part, with the zeros behind it -- */

static int64_t part_begin(const RtCall *call, uint32_t part)
{
    int64_t at = 0;
    if (part == (uint32_t)call->param[PLAN_flat_pack_n].i)
        return call->tensor[PLAN_T_flat_pack_y].numel;
    for (uint32_t i = 0; i < part; i++)
        at = plan_flat_next(at + call->tensor[1 + i].numel);
    return at;
}

uint32_t rt_flat_pack_phases(const RtCall *call)
{
    return (uint32_t)call->param[PLAN_flat_pack_n].i;
}

uint64_t rt_flat_pack_chunks(const RtCall *call, uint32_t phase)
{
    int64_t numel = part_begin(call, phase + 1) - part_begin(call, phase);
    return (uint64_t)plan_ceil_div(numel, RT_CHUNK);
}

static bool lies_there(const RtCall *call, uint32_t part, int64_t begin)
{
    const PlanTensor *y = &call->tensor[PLAN_T_flat_pack_y], *x = &call->tensor[1 + part];
    uint64_t at = y->offset + (uint64_t)begin * dtype_bytes((DType)y->dtype);
    return x->offset == at && x->dtype == y->dtype && (x->run == x->pitch || x->run >= x->numel);
}

void rt_flat_pack_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    (void)scratch;
    const PlanTensor *y = &call->tensor[PLAN_T_flat_pack_y], *x = &call->tensor[1 + phase];
    int64_t begin = part_begin(call, phase), whole = part_begin(call, phase + 1) - begin;
    int64_t first = rt_chunk_begin(chunk, RT_CHUNK), end = rt_chunk_end(chunk, RT_CHUNK, whole);
    int64_t given = call->at[1 + phase] ? plan_min(end, x->numel) : first;
    if (first < given && !lies_there(call, phase, begin))
        rt_view_copy(call->at[0], y, begin + first, call->at[1 + phase], x, first, given - first);
    if (given < first)
        given = first;
    if (given < end)
        rt_view_zero(call->at[0], y, begin + given, end - given);
}
