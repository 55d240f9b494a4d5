/* Exchanges between ranks. Pieces are copied by the copy engines or NCCL, and summed here, in the
 * order of the ranks, in f32 (f64, i64), rounded once: the same bits on every member, on any number
 * of ranks. All of it is in the order of one stream, so that every rank's exchanges come in one
 * order. */
#include "runtime/cuda/launch_view.h"
#include "runtime/cuda/nccl.h"

static const char exchanging[] = "exchanging between devices";

typedef struct Exchange { /* an instruction's */
    RtCuda *cuda;
    const RtCall *call;
    const RtGroup *group;
    RtNcclHandle comm;
    bool direct;      /* by the copy engines */
    uint32_t n, self; /* members; this one */
    uint64_t size;    /* of an element that is sent */
} Exchange;

static Status open_exchange(RtCuda *cuda, const RtCall *call, uint32_t comm, uint32_t dtype,
                            Exchange *out)
{
    const RtCudaRanks *ranks = cuda->ranks;
    int64_t at = call->param[comm].i;
    *out = (Exchange){.cuda = cuda,
                      .call = call,
                      .group = call->group,
                      .comm = ranks->comms[at],
                      .direct = ranks->peers.direct[at],
                      .n = call->group->n,
                      .self = call->group->self,
                      .size = dtype_bytes((DType)dtype)};
    /* what is under way, for a message when it does not end */
    return rt_cuda_result(cuda,
                          cuda->driver.MemsetD32Async(ranks->mark,
                                                      (unsigned)rt_cuda_number(cuda, call) + 1, 1,
                                                      cuda->stream),
                          exchanging);
}

/* Elements [at, at + count), in a piece for each member. */
typedef struct Cut {
    int64_t at, count, piece; /* piece: elements of each but the last */
} Cut;

static int64_t cut_begin(const Cut *cut, uint32_t r)
{
    return plan_min((int64_t)r * cut->piece, cut->count);
}

static int64_t cut_count(const Cut *cut, uint32_t r)
{
    return plan_min(cut_begin(cut, r) + cut->piece, cut->count) - cut_begin(cut, r);
}

/* at: where the peer receives it, as an address of this rank's arena. */
static Status send(const Exchange *x, const void *from, uint64_t bytes, uint32_t peer,
                   const void *at)
{
    const RtNccl *nccl = &x->cuda->ranks->nccl;
    if (!bytes)
        return STATUS_OK;
    if (x->direct)
        return rt_peers_copy(x->cuda, x->group, peer, at, from, bytes);
    return rt_nccl_result(x->cuda,
                          nccl->Send(from, bytes, RT_NCCL_BYTE, (int)peer, x->comm,
                                     x->cuda->stream),
                          exchanging);
}

static Status receive(const Exchange *x, void *to, uint64_t bytes, uint32_t peer)
{
    const RtNccl *nccl = &x->cuda->ranks->nccl;
    if (!bytes || x->direct)
        return STATUS_OK;
    return rt_nccl_result(x->cuda,
                          nccl->Recv(to, bytes, RT_NCCL_BYTE, (int)peer, x->comm, x->cuda->stream),
                          exchanging);
}

/* What is received may be written from here on. */
static Status begin_group(const Exchange *x)
{
    if (x->direct)
        return rt_peers_meet(x->cuda, x->group, RT_MEET_READY);
    return rt_nccl_result(x->cuda, x->cuda->ranks->nccl.GroupStart(), exchanging);
}

static Status end_group(const Exchange *x)
{
    if (x->direct)
        return rt_peers_meet(x->cuda, x->group, RT_MEET_DONE);
    return rt_nccl_result(x->cuda, x->cuda->ranks->nccl.GroupEnd(), exchanging);
}

/* -- gather -- */

static Status copy_here(const Exchange *x, void *to, const void *from, uint64_t bytes)
{
    return rt_cuda_result(x->cuda,
                          x->cuda->driver.MemcpyDtoDAsync((CUdeviceptr)(uintptr_t)to,
                                                          (CUdeviceptr)(uintptr_t)from, bytes,
                                                          x->cuda->stream),
                          exchanging);
}

/* from: this rank's piece, which belongs at y + self * bytes, or is there. */
static Status gather_directly(const Exchange *x, unsigned char *y, const void *from, uint64_t bytes)
{
    unsigned char *own = y + x->self * bytes;
    if (from != own)
        TRY(copy_here(x, own, from, bytes));
    TRY(begin_group(x));
    for (uint32_t i = 1; i < x->n; i++)
        TRY(send(x, from, bytes, (x->self + i) % x->n, own));
    return end_group(x);
}

Status rt_cuda_launch_all_gather(RtCuda *cuda, const RtCall *call)
{
    Exchange x;
    uint32_t dtype = call->tensor[PLAN_T_all_gather_y].dtype;
    if (cuda->rehearsing)
        return STATUS_OK;
    TRY(open_exchange(cuda, call, PLAN_all_gather_comm, dtype, &x));
    uint64_t bytes = (uint64_t)call->param[PLAN_all_gather_count].i * x.size;
    unsigned char *y = call->at[PLAN_T_all_gather_y], *own = y + x.self * bytes;
    const void *from = call->at[PLAN_T_all_gather_x];
    if (x.n == 1)
        return from ? copy_here(&x, own, from, bytes) : STATUS_OK;
    if (x.direct)
        return gather_directly(&x, y, from ? from : own, bytes);
    return rt_nccl_result(cuda,
                          cuda->ranks->nccl.AllGather(from ? from : own, y, bytes, RT_NCCL_BYTE,
                                                      x.comm, cuda->stream),
                          exchanging);
}

/* -- sums -- */

typedef struct Sum {
    Exchange x;
    const unsigned char *from;
    unsigned char *to, *workspace;
    uint32_t from_dtype, to_dtype;
    uint64_t to_size;
    bool is_max;
} Sum;

static void *part_of(const Sum *s, uint32_t rank, int64_t piece)
{
    return s->workspace + rank * plan_cuda_comm_stride(piece, s->from_dtype);
}

/* y[to ..] = the sum of n elements of each member: of this one those of x from `own` on, of the
 * others what they have sent. */
static Status sum_parts(const Sum *s, int64_t own, int64_t n, int64_t piece, int64_t to)
{
    const Exchange *x = &s->x;
    uint64_t stride = plan_cuda_comm_stride(piece, s->from_dtype);
    CudaSumParts sum = {
        .y = s->to + (uint64_t)to * s->to_size,
        .own = s->from + (uint64_t)own * x->size,
        .others = s->workspace,
        .n = n,
        .stride = (int64_t)(stride / x->size),
        .ranks = (int32_t)x->n,
        .self = (int32_t)x->self,
        .from_type = rt_cuda_type(s->from_dtype),
        .to_type = rt_cuda_type(s->to_dtype),
        .is_max = s->is_max,
    };
    if (!n)
        return STATUS_OK;
    return rt_cuda_run(x->cuda, "sum_parts",
                       rt_cuda_grid(n, 256 * 8, x->cuda->multiprocessors * 4), 256, 0, &sum);
}

Status rt_cuda_launch_reduce_scatter(RtCuda *cuda, const RtCall *call)
{
    const PlanTensor *t = call->tensor;
    Sum s = {.from = call->at[PLAN_T_reduce_scatter_x],
             .to = call->at[PLAN_T_reduce_scatter_y],
             .workspace = call->workspace,
             .from_dtype = t[PLAN_T_reduce_scatter_x].dtype,
             .to_dtype = t[PLAN_T_reduce_scatter_y].dtype};
    int64_t count = call->param[PLAN_reduce_scatter_count].i;
    s.to_size = dtype_bytes((DType)s.to_dtype);
    if (cuda->rehearsing)
        return STATUS_OK;
    TRY(open_exchange(cuda, call, PLAN_reduce_scatter_comm, s.from_dtype, &s.x));
    int64_t piece = plan_cuda_comm_piece(s.x.n, count, s.from_dtype);
    for (int64_t at = 0; at < count; at += piece) {
        int64_t n = plan_min(piece, count - at);
        uint64_t bytes = (uint64_t)n * s.x.size;
        TRY(begin_group(&s.x));
        for (uint32_t i = 1; i < s.x.n; i++) {
            uint32_t r = (s.x.self + i) % s.x.n;
            TRY(send(&s.x, s.from + (uint64_t)(r * count + at) * s.x.size, bytes, r,
                     part_of(&s, s.x.self, piece)));
            TRY(receive(&s.x, part_of(&s, r, piece), bytes, r));
        }
        TRY(end_group(&s.x));
        TRY(sum_parts(&s, s.x.self * count + at, n, piece, at));
    }
    return STATUS_OK;
}

/* Small: everybody sums everything. The order, and so the bits, are those of the other way. */
static Status reduce_whole(const Sum *s, int64_t count)
{
    uint64_t bytes = (uint64_t)count * s->x.size;
    TRY(begin_group(&s->x));
    for (uint32_t i = 1; i < s->x.n; i++) {
        uint32_t r = (s->x.self + i) % s->x.n;
        TRY(send(&s->x, s->from, bytes, r, part_of(s, s->x.self, count)));
        TRY(receive(&s->x, part_of(s, r, count), bytes, r));
    }
    TRY(end_group(&s->x));
    return sum_parts(s, 0, count, count, 0);
}

/* Every member sums a piece, and gets the others' sums. */
static Status reduce_cut(const Sum *s, const Cut *cut)
{
    const Exchange *x = &s->x;
    int64_t own = cut->at + cut_begin(cut, x->self), n = cut_count(cut, x->self);
    TRY(begin_group(x));
    for (uint32_t i = 1; i < x->n; i++) {
        uint32_t r = (x->self + i) % x->n;
        TRY(send(x, s->from + (uint64_t)(cut->at + cut_begin(cut, r)) * x->size,
                 (uint64_t)cut_count(cut, r) * x->size, r, part_of(s, x->self, cut->piece)));
        TRY(receive(x, part_of(s, r, cut->piece), (uint64_t)n * x->size, r));
    }
    TRY(end_group(x));
    TRY(sum_parts(s, own, n, cut->piece, own));
    TRY(begin_group(x));
    for (uint32_t i = 1; i < x->n; i++) {
        uint32_t r = (x->self + i) % x->n;
        unsigned char *sum = s->to + (uint64_t)own * s->to_size;
        TRY(send(x, sum, (uint64_t)n * s->to_size, r, sum));
        TRY(receive(x, s->to + (uint64_t)(cut->at + cut_begin(cut, r)) * s->to_size,
                    (uint64_t)cut_count(cut, r) * s->to_size, r));
    }
    return end_group(x);
}

Status rt_cuda_launch_all_reduce(RtCuda *cuda, const RtCall *call)
{
    const PlanTensor *t = call->tensor;
    Sum s = {.from = call->at[PLAN_T_all_reduce_x],
             .to = call->at[PLAN_T_all_reduce_y],
             .workspace = call->workspace,
             .from_dtype = t[PLAN_T_all_reduce_x].dtype,
             .to_dtype = t[PLAN_T_all_reduce_y].dtype,
             .is_max = call->param[PLAN_all_reduce_op].i == PLAN_MAX};
    int64_t count = call->param[PLAN_all_reduce_count].i;
    s.to_size = dtype_bytes((DType)s.to_dtype);
    if (cuda->rehearsing)
        return STATUS_OK;
    TRY(open_exchange(cuda, call, PLAN_all_reduce_comm, s.from_dtype, &s.x));
    if (count <= PLAN_CUDA_REDUCE_SMALL)
        return reduce_whole(&s, count);
    int64_t piece = plan_cuda_reduce_piece(s.x.n, count, s.from_dtype);
    for (int64_t at = 0; at < count; at += piece * s.x.n) {
        Cut cut = {at, plan_min(count - at, piece * s.x.n), piece};
        TRY(reduce_cut(&s, &cut));
    }
    return STATUS_OK;
}

/* -- messages between the stages of a pipeline -- */

Status rt_cuda_launch_send(RtCuda *cuda, const RtCall *call)
{
    Exchange x;
    if (cuda->rehearsing)
        return STATUS_OK;
    TRY(open_exchange(cuda, call, PLAN_send_comm, call->tensor[PLAN_T_send_x].dtype, &x));
    return send(&x, call->at[PLAN_T_send_x], (uint64_t)call->param[PLAN_send_count].i * x.size,
                (uint32_t)call->param[PLAN_send_peer].i, NULL);
}

Status rt_cuda_launch_recv(RtCuda *cuda, const RtCall *call)
{
    Exchange x;
    if (cuda->rehearsing)
        return STATUS_OK;
    TRY(open_exchange(cuda, call, PLAN_recv_comm, call->tensor[PLAN_T_recv_y].dtype, &x));
    return receive(&x, call->at[PLAN_T_recv_y], (uint64_t)call->param[PLAN_recv_count].i * x.size,
                   (uint32_t)call->param[PLAN_recv_peer].i);
}

/* -- what of something whole is this rank's: behind its end, zeros -- */

Status rt_cuda_launch_take_part(RtCuda *cuda, const RtCall *call)
{
    const PlanTensor *x = &call->tensor[PLAN_T_take_part_x];
    int64_t count = call->param[PLAN_take_part_count].i, before = (int64_t)call->member * count;
    int64_t given = rt_cuda_between(x->numel - before, 0, count);
    uint64_t size = dtype_bytes((DType)x->dtype);
    unsigned char *y = call->at[PLAN_T_take_part_y];
    if (!rt_cuda_is_dense(call, PLAN_T_take_part_x) || !rt_cuda_is_dense(call, PLAN_T_take_part_y))
        return rt_cuda_refuse(cuda, call, "a part is taken of what is dense");
    if (cuda->rehearsing)
        return STATUS_OK;
    if (given)
        TRY(rt_cuda_result(
            cuda,
            cuda->driver.MemcpyDtoDAsync(
                (CUdeviceptr)(uintptr_t)y,
                (CUdeviceptr)(uintptr_t)rt_cuda_element(call, PLAN_T_take_part_x, before),
                (uint64_t)given * size, cuda->stream),
            "taking a part"));
    return rt_cuda_fill(cuda, y + (uint64_t)given * size, 0, (uint64_t)(count - given) * size);
}
