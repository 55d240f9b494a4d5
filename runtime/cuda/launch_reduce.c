#include "runtime/cuda/launch_view.h"

_Static_assert((int)CUDA_NORM_SPAN == (int)CUDA_NORM_BLOCKS && NORM_SQ_BLOCK == 4096,
               "the workspace is cut as the kernels cut it");

/* -- scalars -- */

Status rt_cuda_launch_count_targets(RtCuda *cuda, const RtCall *call)
{
    const PlanParam *p = call->param;
    CudaCountTargets x = {
        .targets = call->at[PLAN_T_count_targets_targets],
        .count = call->at[PLAN_T_count_targets_count],
        .inverse = rt_cuda_view(call, PLAN_T_count_targets_inverse),
        .n = p[PLAN_count_targets_n].i,
        .ignore = p[PLAN_count_targets_ignore].i,
        .first = p[PLAN_count_targets_first].i != 0,
    };
    return rt_cuda_run(cuda, "count_targets", 1, 1024, 0, &x);
}

Status rt_cuda_launch_loss_mean(RtCuda *cuda, const RtCall *call)
{
    CudaLossMean x = {
        .loss = rt_cuda_view(call, PLAN_T_loss_mean_loss),
        .sum = rt_cuda_view(call, PLAN_T_loss_mean_sum),
        .inverse = rt_cuda_view(call, PLAN_T_loss_mean_inverse),
    };
    return rt_cuda_run(cuda, "loss_mean", 1, 32, 0, &x);
}

Status rt_cuda_launch_grad_norm(RtCuda *cuda, const RtCall *call)
{
    const PlanParam *p = call->param;
    int64_t n = p[PLAN_grad_norm_n].i, done = 0;
    CudaGradNorm x = {
        .norm = rt_cuda_view(call, PLAN_T_grad_norm_norm),
        .coef = rt_cuda_view(call, PLAN_T_grad_norm_coef),
        .max_norm = p[PLAN_grad_norm_max_norm].f,
    };
    for (int64_t i = 0; i < n; i++)
        if (call->tensor[PLAN_T_grad_norm_TENSORS + i].dtype != DTYPE_F64)
            return rt_cuda_refuse(cuda, call, "the parts of a norm must be f64");
    if (x.norm.type != CUDA_F64)
        return rt_cuda_refuse(cuda, call, "the norm must be f64");
    do {
        x.count = (int32_t)plan_min(CUDA_NORM_PARTS, n - done);
        x.first = done == 0;
        x.last = done + x.count == n;
        for (int32_t i = 0; i < x.count; i++)
            x.part[i] = call->at[PLAN_T_grad_norm_TENSORS + done + i];
        TRY(rt_cuda_run(cuda, "grad_norm", 1, 512, 0, &x));
        done += x.count;
    } while (done < n);
    return STATUS_OK;
}

/* -- accumulate -- */

Status rt_cuda_launch_accumulate(RtCuda *cuda, const RtCall *call)
{
    CudaAccumulate x = {
        .state = rt_cuda_view(call, PLAN_T_accumulate_state),
        .x = rt_cuda_view(call, PLAN_T_accumulate_x),
        .n = call->tensor[PLAN_T_accumulate_state].numel,
        .first = call->param[PLAN_accumulate_first].i != 0,
    };
    bool wide = call->tensor[PLAN_T_accumulate_state].dtype == DTYPE_F64; /* the sum of losses */
    if ((!wide && !rt_cuda_is_real(call->tensor[PLAN_T_accumulate_state].dtype)) ||
        !rt_cuda_is_real(call->tensor[PLAN_T_accumulate_x].dtype))
        return rt_cuda_refuse(cuda, call, "an accumulator takes bf16 or f32");
    return rt_cuda_run(cuda, "accumulate", rt_cuda_grid(x.n, 256 * 8, cuda->multiprocessors * 16),
                       256, 0, &x);
}

/* -- norm_sq -- */

static RtCudaSpan norm_span(const RtCall *call)
{
    const PlanParam *p = call->param;
    return rt_cuda_span(call, p[PLAN_norm_sq_n].i, p[PLAN_norm_sq_begin].i, p[PLAN_norm_sq_end].i);
}

static CudaNormEntry norm_entry(const RtCall *call, void *sums)
{
    CudaView x = rt_cuda_view(call, PLAN_T_norm_sq_x);
    RtCudaSpan span = norm_span(call);
    return (CudaNormEntry){
        .x = rt_cuda_element(call, PLAN_T_norm_sq_x, span.first),
        .sums = sums,
        .y = call->at[PLAN_T_norm_sq_y],
        .n = span.end - span.first,
        .run = x.run,
        .pitch = x.pitch,
        .type = x.type,
    };
}

static Status check_norm(RtCuda *cuda, const RtCall *call)
{
    if (call->param[PLAN_norm_sq_end].i && !rt_cuda_is_dense(call, PLAN_T_norm_sq_x))
        return rt_cuda_refuse(cuda, call, "a part of a flat buffer must be dense");
    if (rt_cuda_is_real(call->tensor[PLAN_T_norm_sq_x].dtype) &&
        call->tensor[PLAN_T_norm_sq_y].dtype == DTYPE_F64)
        return STATUS_OK;
    return rt_cuda_refuse(cuda, call, "a norm takes bf16 or f32 and gives f64");
}

static Status run_norm(RtCuda *cuda, const CudaNorm *x, int64_t spans)
{
    if (spans)
        TRY(rt_cuda_run(cuda, "norm_sq", (uint32_t)spans, 128, 0, x));
    return rt_cuda_run(cuda, "norm_pairs", (uint32_t)x->n_entries, 256, 0, x);
}

Status rt_cuda_launch_norm_sq(RtCuda *cuda, const RtCall *call)
{
    TRY(check_norm(cuda, call));
    CudaNorm x = {.alone = norm_entry(call, call->workspace), .n_entries = 1};
    return run_norm(cuda, &x, plan_cuda_norm_spans(x.alone.n));
}

/* The table: entries, then the sums of all. */
static uint64_t norm_entries_bytes(uint32_t n)
{
    return plan_cuda_align(n * sizeof(CudaNormEntry));
}

static int64_t norm_spans(const RtCall *calls, uint32_t n)
{
    int64_t spans = 0;
    for (uint32_t i = 0; i < n; i++)
        spans += plan_cuda_norm_spans(norm_span(&calls[i]).end - norm_span(&calls[i]).first);
    return spans;
}

static uint64_t norm_table_bytes(const RtCall *calls, uint32_t n)
{
    return norm_entries_bytes(n) + 8 * (uint64_t)norm_spans(calls, n);
}

static void fill_norm(const RtCall *calls, uint32_t n, void *out_table, void *table)
{
    CudaNormEntry *entries = out_table;
    double *sums = (double *)((unsigned char *)table + norm_entries_bytes(n));
    int64_t first = 0;
    for (uint32_t i = 0; i < n; i++) {
        entries[i] = norm_entry(&calls[i], sums + first);
        entries[i].first = first;
        first += plan_cuda_norm_spans(entries[i].n);
    }
}

static Status launch_norm_group(RtCuda *cuda, const RtCall *calls, uint32_t n, void *table)
{
    for (uint32_t i = 0; i < n; i++)
        TRY(check_norm(cuda, &calls[i]));
    CudaNorm x = {.entries = table, .n_entries = n};
    return run_norm(cuda, &x, norm_spans(calls, n));
}

const RtCudaGroupKernel rt_cuda_group_norm_sq = {
    .table_bytes = norm_table_bytes,
    .table_fill = fill_norm,
    .launch = launch_norm_group,
    .writes = 1u << PLAN_T_norm_sq_y,
};
