#include "runtime/cuda/exec.h"

#include "base/diag.h"
#include "runtime/check.h"
#include "runtime/cuda/launch_fused.h"
#include "runtime/cuda/nccl.h"
#include "runtime/cuda/streams.h"
#include "runtime/exec.h"

enum { TABLE_ALIGNMENT = 256, POISON = 0xff };

/* -- calls -- */

static void *device_address(const RtCuda *cuda, uint64_t offset)
{
    return offset == PLAN_ABSENT ? NULL : (void *)(uintptr_t)(cuda->arena.at + offset);
}

static void resolve_call(const RtCuda *cuda, const PlanInstr *instr, void **at, RtCall *call)
{
    const PlanTensor *tensors = cuda->plan->tensors + instr->first_tensor;
    for (uint32_t i = 0; i < instr->n_tensors; i++)
        at[i] = device_address(cuda, tensors[i].offset);
    RtGroup *group =
        rt_instr_group(cuda->plan, cuda->ranks ? cuda->ranks->groups : NULL, instr);
    *call = (RtCall){
        .instr = instr,
        .tensor = tensors,
        .param = cuda->plan->params + instr->first_param,
        .at = at,
        .workspace = device_address(cuda, instr->workspace),
        .group = group,
        .member = group ? group->self : 0,
    };
}

static Status check_fused(RtCuda *cuda, const RtCall *call)
{
    const PlanInstr *instr = call->instr;
    if (instr->kernel != PLAN_KERNEL_fused)
        return STATUS_OK;
    const char *fault = rt_cuda_fused_fault(&cuda->program->cuda_kernels[instr->code], instr);
    if (!fault)
        return STATUS_OK;
    diag(cuda->s, no_span, plan_record, "instruction",
         (unsigned long long)rt_cuda_number(cuda, call), fault);
    return STATUS_ENV;
}

/* -- groups -- */

typedef struct Piece { /* of the arena */
    uint64_t begin, end;
    bool written;
} Piece;

enum { MOST_PIECES = 16 };

static uint32_t pieces_of(const RtCall *call, const RtCudaGroupKernel *group, Piece *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < call->instr->n_tensors && i < MOST_PIECES - 1; i++) {
        const PlanTensor *t = &call->tensor[i];
        if (t->offset == PLAN_ABSENT)
            continue;
        out[n++] = (Piece){t->offset, t->offset + rt_tensor_bytes(t), group->writes >> i & 1};
    }
    if (group->workspace && call->instr->workspace_bytes)
        out[n++] = (Piece){call->instr->workspace,
                           call->instr->workspace + call->instr->workspace_bytes, true};
    return n;
}

static bool touch(const RtCall *a, const RtCall *b, const RtCudaGroupKernel *group)
{
    Piece of_a[MOST_PIECES], of_b[MOST_PIECES];
    uint32_t n_a = pieces_of(a, group, of_a), n_b = pieces_of(b, group, of_b);
    for (uint32_t i = 0; i < n_a; i++)
        for (uint32_t j = 0; j < n_b; j++)
            if ((of_a[i].written || of_b[j].written) && of_a[i].begin < of_b[j].end &&
                of_b[j].begin < of_a[i].end)
                return true;
    return false;
}

/* How many calls from `first` on may run at once. */
static uint32_t group_size(const RtCudaExec *exec, uint32_t first)
{
    const PlanInstr *instr = &exec->instrs[first];
    const RtCudaGroupKernel *group = rt_cuda_kernels[instr->kernel].group;
    uint32_t n = 1;
    if (!group)
        return 1;
    for (; first + n < exec->n_instrs; n++) {
        const PlanInstr *next = &exec->instrs[first + n];
        if (next->kernel != instr->kernel || next->phase != instr->phase ||
            next->n_tensors >= MOST_PIECES)
            return n;
        for (uint32_t i = 0; i < n; i++)
            if (touch(&exec->calls[first + i], &exec->calls[first + n], group))
                return n;
    }
    return n;
}

static void find_groups(RtCudaExec *exec, bool alone)
{
    for (uint32_t i = 0; i < exec->n_instrs;) {
        RtCudaLaunch *launch = &exec->launches[exec->n_launches++];
        *launch = (RtCudaLaunch){.first = i, .n = alone ? 1 : group_size(exec, i)};
        if (launch->n > 1) {
            launch->table = exec->table_bytes;
            uint64_t bytes = rt_cuda_kernels[exec->instrs[i].kernel].group->table_bytes(
                &exec->calls[i], launch->n);
            exec->table_bytes += (bytes + TABLE_ALIGNMENT - 1) / TABLE_ALIGNMENT * TABLE_ALIGNMENT;
        }
        i += launch->n;
    }
}

/* -- preparing -- */

Status rt_cuda_exec_prepare(RtCuda *cuda, const PlanInstr *instrs, uint64_t n_instrs, bool alone,
                            RtCudaExec *out_exec)
{
    Arena *arena = cuda->s->arena;
    uint64_t n_at = 0;
    for (uint64_t i = 0; i < n_instrs; i++)
        n_at += instrs[i].n_tensors;
    *out_exec = (RtCudaExec){.instrs = instrs, .n_instrs = n_instrs};
    out_exec->calls = ARENA_ARRAY(arena, RtCall, n_instrs);
    out_exec->launches = ARENA_ARRAY(arena, RtCudaLaunch, n_instrs);
    void **at = ARENA_ARRAY(arena, void *, n_at);
    for (uint64_t i = 0; i < n_instrs; i++) {
        resolve_call(cuda, &instrs[i], at, &out_exec->calls[i]);
        at += instrs[i].n_tensors;
        TRY(check_fused(cuda, &out_exec->calls[i]));
    }
    find_groups(out_exec, alone);
    return rt_cuda_streams_plan(cuda, out_exec);
}

Status rt_cuda_exec_place(RtCuda *cuda, RtCudaExec *exec, CUdeviceptr at)
{
    for (uint64_t i = 0; i < exec->n_instrs; i++)
        exec->calls[i].random =
            (const int64_t *)(uintptr_t)(cuda->control + offsetof(RtCudaControl, random));
    exec->table = (void *)(uintptr_t)at;
    if (!exec->table_bytes)
        return STATUS_OK;
    unsigned char *host = ARENA_ARRAY(cuda->s->arena, unsigned char, exec->table_bytes);
    for (uint32_t i = 0; i < exec->n_launches; i++) {
        const RtCudaLaunch *group = &exec->launches[i];
        const RtCall *calls = &exec->calls[group->first];
        if (group->n > 1)
            rt_cuda_kernels[calls->instr->kernel].group->table_fill(
                calls, group->n, host + group->table, (unsigned char *)exec->table + group->table);
    }
    TRY(rt_cuda_result(cuda,
                       cuda->driver.MemcpyHtoDAsync(at, host, exec->table_bytes, cuda->stream),
                       "writing tables"));
    return rt_cuda_result(cuda, cuda->driver.StreamSynchronize(cuda->stream), "writing tables");
}

void rt_cuda_exec_release(RtCuda *cuda, RtCudaExec *exec)
{
    if (exec->graph)
        cuda->driver.GraphExecDestroy(exec->graph);
    for (uint32_t i = 0; exec->events && i <= exec->n_launches; i++)
        if (exec->events[i])
            cuda->driver.EventDestroy(exec->events[i]);
    exec->graph = NULL;
    exec->events = NULL;
    rt_cuda_streams_release(cuda, exec);
}

/* -- running -- */

static Status launch(RtCuda *cuda, const RtCudaExec *exec, const RtCudaLaunch *at)
{
    const RtCall *calls = &exec->calls[at->first];
    const RtCudaKernel *kernel = &rt_cuda_kernels[calls->instr->kernel];
    if (cuda->ranks && !cuda->rehearsing) /* a full queue lets a launch wait for those before it */
        rt_guard_again(&cuda->ranks->guard);
    if (at->n > 1)
        return kernel->group->launch(cuda, calls, at->n, (unsigned char *)exec->table + at->table);
    return kernel->launch(cuda, calls);
}

Status rt_cuda_exec_rehearse(RtCuda *cuda, RtCudaExec *exec)
{
    cuda->rehearsing = true;
    Status status = STATUS_OK;
    for (uint32_t i = 0; i < exec->n_launches && status == STATUS_OK; i++)
        status = launch(cuda, exec, &exec->launches[i]);
    cuda->rehearsing = false;
    return status;
}

static Status check_call(RtCuda *cuda, const RtCall *call)
{
    const PlanInstr *instr = call->instr;
    uint32_t results = rt_check_results(instr->kernel);
    for (uint32_t t = 0; t < instr->n_tensors; t++)
        if ((results == UINT32_MAX || (t < 32 && results >> t & 1)) && call->at[t])
            TRY(rt_cuda_check_tensor(cuda, call, t));
    return STATUS_OK;
}

static Status poison_after(RtCuda *cuda, const RtCall *call)
{
    const PlanInstr *instr = call->instr;
    for (uint32_t d = 0; d < instr->n_deaths; d++) {
        const PlanRange *death = &cuda->plan->deaths[instr->first_death + d];
        TRY(rt_cuda_fill(cuda, device_address(cuda, death->offset), POISON, death->bytes));
    }
    return rt_cuda_fill(cuda, call->workspace, POISON, instr->workspace_bytes);
}

static Status check_launch(RtCuda *cuda, const RtCudaExec *exec, const RtCudaLaunch *at)
{
    for (uint32_t i = 0; i < at->n; i++)
        TRY(check_call(cuda, &exec->calls[at->first + i]));
    for (uint32_t i = 0; i < at->n; i++)
        TRY(poison_after(cuda, &exec->calls[at->first + i]));
    return STATUS_OK;
}

static Status mark(RtCuda *cuda, RtCudaExec *exec, uint32_t event)
{
    if (!exec->events[event])
        TRY(rt_cuda_result(cuda, cuda->driver.EventCreate(&exec->events[event], CU_EVENT_DEFAULT),
                           "making an event"));
    return rt_cuda_result(cuda, cuda->driver.EventRecord(exec->events[event], cuda->stream),
                          "recording an event");
}

/* Exchanges on their own stream. */
static Status run_beside(RtCuda *cuda, RtCudaExec *exec, uint64_t from, uint64_t to)
{
    uint32_t first = 0;
    while (first < exec->n_launches && exec->launches[first].first < from)
        first++;
    TRY(rt_cuda_streams_fork(cuda, exec));
    for (uint32_t i = first; i < exec->n_launches && exec->launches[i].first < to; i++) {
        TRY(rt_cuda_streams_enter(cuda, exec, i, first));
        Status status = launch(cuda, exec, &exec->launches[i]);
        Status left = rt_cuda_streams_leave(cuda, exec, i);
        TRY(status);
        TRY(left);
    }
    return rt_cuda_streams_join(cuda, exec);
}

Status rt_cuda_exec_run(RtCuda *cuda, RtCudaExec *exec, uint64_t from, uint64_t to,
                        RtCudaWatch watch)
{
    if (watch.timed && !exec->events)
        exec->events = ARENA_ARRAY(cuda->s->arena, CUevent, exec->n_launches + 1);
    if (watch.timed && from == 0)
        TRY(mark(cuda, exec, 0));
    if (!watch.timed && !watch.check)
        return run_beside(cuda, exec, from, to);
    for (uint32_t i = 0; i < exec->n_launches; i++) {
        const RtCudaLaunch *at = &exec->launches[i];
        if (at->first < from || at->first >= to)
            continue;
        TRY(launch(cuda, exec, at));
        if (watch.check)
            TRY(check_launch(cuda, exec, at));
        if (watch.timed)
            TRY(mark(cuda, exec, i + 1));
    }
    return STATUS_OK;
}

/* -- as a graph -- */

static Status enqueue_all(RtCuda *cuda, RtCudaExec *exec)
{
    TRY(rt_cuda_control_begin(cuda));
    TRY(rt_cuda_exec_run(cuda, exec, 0, exec->n_instrs, (RtCudaWatch){0}));
    return rt_cuda_control_end(cuda);
}

Status rt_cuda_exec_capture(RtCuda *cuda, RtCudaExec *exec)
{
    static const char what[] = "capturing the step as a graph";
    TRY(rt_cuda_result(
        cuda, cuda->driver.StreamBeginCapture(cuda->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
        what));
    CUgraph graph = NULL;
    /* the streams' priorities become the nodes' */
    unsigned long long flags =
        exec->fork ? CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY : 0;
    Status status = enqueue_all(cuda, exec);
    CUresult result = cuda->driver.StreamEndCapture(cuda->stream, &graph);
    size_t nodes = 0;
    if (status == STATUS_OK)
        status = rt_cuda_result(cuda, result, what);
    if (status == STATUS_OK)
        status = rt_cuda_result(cuda, cuda->driver.GraphGetNodes(graph, NULL, &nodes), what);
    if (status == STATUS_OK)
        status =
            rt_cuda_result(cuda, cuda->driver.GraphInstantiate(&exec->graph, graph, flags), what);
    if (graph)
        cuda->driver.GraphDestroy(graph);
    if (status == STATUS_OK)
        status = rt_cuda_result(cuda, cuda->driver.GraphUpload(exec->graph, cuda->stream), what);
    exec->graph_nodes = nodes;
    return status;
}
