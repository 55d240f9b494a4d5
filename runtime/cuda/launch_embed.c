#include "runtime/cuda/launch_view.h"

Status rt_cuda_launch_embed(RtCuda *cuda, const RtCall *call)
{
    const PlanParam *p = call->param;
    CudaEmbed x = {
        .y = rt_cuda_view(call, PLAN_T_embed_y),
        .table = rt_cuda_view(call, PLAN_T_embed_table),
        .ids = call->at[PLAN_T_embed_ids],
        .fault = rt_cuda_fault(cuda, call),
        .tokens = p[PLAN_embed_tokens].i,
        .width = p[PLAN_embed_width].i,
        .rows = p[PLAN_embed_rows].i,
    };
    x.total = x.rows;
    if (call->instr->kernel == PLAN_KERNEL_embed_part) {
        x.first = (int64_t)call->member * x.rows;
        x.total = p[PLAN_embed_part_total].i;
    }
    return rt_cuda_run(cuda, "embed", (uint32_t)x.tokens, 128, 0, &x);
}

/* A table of which this rank has a part: the first tensors and parameters are the whole op's. */
Status rt_cuda_launch_embed_part(RtCuda *cuda, const RtCall *call)
{
    _Static_assert((int)PLAN_embed_part_rows == (int)PLAN_embed_rows &&
                       (int)PLAN_T_embed_part_ids == (int)PLAN_T_embed_ids,
                   "one launch function");
    return rt_cuda_launch_embed(cuda, call);
}

Status rt_cuda_launch_embed_grad(RtCuda *cuda, const RtCall *call)
{
    const PlanParam *p = call->param;
    CudaEmbedGrad x = {
        .dtable = rt_cuda_view(call, PLAN_T_embed_grad_dtable),
        .dy = rt_cuda_view(call, PLAN_T_embed_grad_dy),
        .ids = call->at[PLAN_T_embed_grad_ids],
        .tokens = p[PLAN_embed_grad_tokens].i,
        .width = p[PLAN_embed_grad_width].i,
        .rows = p[PLAN_embed_grad_rows].i,
    };
    if (call->instr->kernel == PLAN_KERNEL_embed_part_grad)
        x.first = (int64_t)call->member * x.rows;
    x.padding = p[PLAN_embed_grad_padding].i - x.first;
    uint64_t of_tokens = plan_cuda_align(4 * (uint64_t)x.tokens),
             of_rows = plan_cuda_align(4 * (uint64_t)x.rows);
    unsigned char *at = call->workspace;
    x.order = (int32_t *)at;
    x.spare = (int32_t *)(at + of_tokens);
    x.begin = (int32_t *)(at + 2 * of_tokens);
    x.end = (int32_t *)(at + 2 * of_tokens + of_rows);
    TRY(rt_cuda_fill(cuda, x.begin, 0, 2 * of_rows));
    TRY(rt_cuda_run(cuda, "embed_sort", 1, 1024, 0, &x));
    return rt_cuda_run(cuda, "embed_grad_rows", (uint32_t)x.rows, 128, 0, &x);
}

Status rt_cuda_launch_embed_part_grad(RtCuda *cuda, const RtCall *call)
{
    _Static_assert((int)PLAN_embed_part_grad_padding == (int)PLAN_embed_grad_padding &&
                       (int)PLAN_T_embed_part_grad_dy == (int)PLAN_T_embed_grad_dy,
                   "one launch function");
    return rt_cuda_launch_embed_grad(cuda, call);
}
