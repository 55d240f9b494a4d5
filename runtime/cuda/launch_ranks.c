/* What ranks do around their exchanges; the exchanges themselves: collectives.c. */
#include "runtime/cuda/launch_view.h"

Status rt_cuda_launch_invert_count(RtCuda *cuda, const RtCall *call)
{
    CudaInvertCount x = {
        .inverse = rt_cuda_view(call, PLAN_T_invert_count_inverse),
        .count = call->at[PLAN_T_invert_count_count],
    };
    return rt_cuda_run(cuda, "invert_count", 1, 32, 0, &x);
}

Status rt_cuda_launch_sum_scalars(RtCuda *cuda, const RtCall *call)
{
    const PlanParam *p = call->param;
    int64_t n = p[PLAN_sum_scalars_n].i, done = 0;
    CudaSumScalars x = {.y = call->at[PLAN_T_sum_scalars_y],
                        .factor = p[PLAN_sum_scalars_factor].f};
    do {
        x.count = (int32_t)plan_min(CUDA_SUM_SCALARS, n - done);
        x.first = done == 0;
        x.last = done + x.count == n;
        for (int32_t i = 0; i < x.count; i++)
            x.part[i] = call->at[PLAN_T_sum_scalars_TENSORS + done + i];
        TRY(rt_cuda_run(cuda, "sum_scalars", 1, 32, 0, &x));
        done += x.count;
    } while (done < n);
    return STATUS_OK;
}

Status rt_cuda_launch_lm_loss_join(RtCuda *cuda, const RtCall *call)
{
    const PlanParam *p = call->param;
    CudaLossJoin x = {
        .loss = rt_cuda_view(call, PLAN_T_lm_loss_join_loss),
        .lse = rt_cuda_view(call, PLAN_T_lm_loss_join_lse),
        .parts = call->at[PLAN_T_lm_loss_join_parts],
        .targets = call->at[PLAN_T_lm_loss_join_targets],
        .tokens = p[PLAN_lm_loss_join_tokens].i,
        .ranks = p[PLAN_lm_loss_join_n].i,
        .ignore = p[PLAN_lm_loss_join_ignore].i,
    };
    if (call->tensor[PLAN_T_lm_loss_join_parts].dtype != DTYPE_F32 ||
        !rt_cuda_is_dense(call, PLAN_T_lm_loss_join_parts))
        return rt_cuda_refuse(cuda, call, "the ranks' parts of a loss must be f32");
    return rt_cuda_run(cuda, "lm_loss_join", 1, 1024, 0, &x);
}

/* -- flat_pack -- */

typedef struct Pack {
    RtCuda *cuda;
    CudaFlatPack x;
} Pack;

static Status flush(Pack *p)
{
    CudaFlatPack x = p->x;
    p->x.count = 0;
    p->x.eights = 0;
    if (!x.count)
        return STATUS_OK;
    return rt_cuda_run(p->cuda, "flat_pack",
                       rt_cuda_grid(x.eights, 256, p->cuda->multiprocessors * 16), 256, 0, &x);
}

static Status add_segment(Pack *p, CudaView x, int64_t begin, int64_t n)
{
    if (n <= 0)
        return STATUS_OK;
    p->x.segment[p->x.count++] = (CudaSegment){x, begin, n, p->x.eights};
    p->x.eights += plan_ceil_div(n, 8);
    return p->x.count == CUDA_FLAT_SEGMENTS ? flush(p) : STATUS_OK;
}

/* A part that was written where it belongs. */
static bool lies_there(const RtCall *call, int part, int64_t begin)
{
    const PlanTensor *y = &call->tensor[PLAN_T_flat_pack_y], *x = &call->tensor[part];
    return x->offset == y->offset + (uint64_t)begin * dtype_bytes((DType)y->dtype) &&
           x->dtype == y->dtype && rt_cuda_is_dense(call, part);
}

Status rt_cuda_launch_flat_pack(RtCuda *cuda, const RtCall *call)
{
    static const CudaView zeros = {.run = 1, .pitch = 1};
    int64_t n = call->param[PLAN_flat_pack_n].i, begin = 0;
    Pack p = {.cuda = cuda, .x = {.y = rt_cuda_view(call, PLAN_T_flat_pack_y)}};
    for (int64_t i = 0; i <= n; i++)
        if (call->at[i] && !rt_cuda_is_real(call->tensor[i].dtype))
            return rt_cuda_refuse(cuda, call, "a flat buffer takes bf16 or f32");
    for (int part = 1; part <= n; part++) {
        int64_t end = begin + call->tensor[part].numel;
        int64_t next = part == n ? call->tensor[PLAN_T_flat_pack_y].numel : plan_flat_next(end);
        bool given = call->at[part] != NULL;
        if (given && !lies_there(call, part, begin))
            TRY(add_segment(&p, rt_cuda_view(call, part), begin, end - begin));
        TRY(add_segment(&p, zeros, given ? end : begin, next - (given ? end : begin)));
        begin = next;
    }
    return flush(&p);
}
