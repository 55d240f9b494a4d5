#include "runtime/kernels/cpu/kernels.h"
#include "runtime/kernels/cpu/part.h"
#include "runtime/kernels/cpu/tile.h"

enum { BLOCKS_PER_CHUNK = 16 };

/* -- the step's scalars -- */

void rt_count_targets_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    (void)phase;
    (void)chunk;
    (void)scratch;
    const PlanParam *p = call->param;
    const int32_t *targets = call->at[PLAN_T_count_targets_targets];
    int64_t *count = call->at[PLAN_T_count_targets_count], valid = 0;
    for (int64_t i = 0; i < p[PLAN_count_targets_n].i; i++)
        valid += targets[i] != p[PLAN_count_targets_ignore].i;
    *count = p[PLAN_count_targets_first].i ? valid : *count + valid;
    rt_set_scalar(call, PLAN_T_count_targets_inverse, 1 / (double)(*count > 1 ? *count : 1));
}

void rt_loss_mean_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    (void)phase;
    (void)chunk;
    (void)scratch;
    double sum = rt_scalar(call, PLAN_T_loss_mean_sum),
           inverse = rt_scalar(call, PLAN_T_loss_mean_inverse);
    rt_set_scalar(call, PLAN_T_loss_mean_loss, sum * inverse);
}

void rt_grad_norm_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    (void)phase;
    (void)chunk;
    (void)scratch;
    const PlanParam *p = call->param;
    double sum = 0, limit = p[PLAN_grad_norm_max_norm].f;
    for (int64_t i = 0; i < p[PLAN_grad_norm_n].i; i++)
        sum += rt_scalar(call, (int)(PLAN_T_grad_norm_TENSORS + i));
    double norm = sqrt(sum), coef = 1;
    if (!isfinite(norm))
        coef = 0;
    else if (limit > 0)
        coef = fmin(1, limit / (norm + 1e-6));
    rt_set_scalar(call, PLAN_T_grad_norm_norm, norm);
    rt_set_scalar(call, PLAN_T_grad_norm_coef, coef);
}

void rt_invert_count_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    (void)phase;
    (void)chunk;
    (void)scratch;
    int64_t count = *(const int64_t *)call->at[PLAN_T_invert_count_count];
    rt_set_scalar(call, PLAN_T_invert_count_inverse, 1 / (double)(count > 1 ? count : 1));
}

void rt_sum_scalars_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    (void)phase;
    (void)chunk;
    (void)scratch;
    const PlanParam *p = call->param;
    double sum = 0;
    for (int64_t i = 0; i < p[PLAN_sum_scalars_n].i; i++)
        sum += rt_scalar(call, (int)(PLAN_T_sum_scalars_TENSORS + i));
    rt_set_scalar(call, PLAN_T_sum_scalars_y, p[PLAN_sum_scalars_factor].f * sum);
}

/* -- accumulate -- */

uint64_t rt_accumulate_chunks(const RtCall *call, uint32_t phase)
{
    (void)phase;
    return (uint64_t)plan_ceil_div(call->tensor[PLAN_T_accumulate_state].numel, RT_CHUNK);
}

/* -- norm_sq -- */

uint32_t rt_norm_sq_phases(const RtCall *call)
{
    (void)call;
    return 2;
}

uint64_t rt_norm_sq_chunks(const RtCall *call, uint32_t phase)
{
    return phase ? 1
                 : (uint64_t)plan_ceil_div(call->param[PLAN_norm_sq_n].i,
                                           NORM_SQ_BLOCK * BLOCKS_PER_CHUNK);
}

/* Neighbours are added, then neighbours of those, until one is left. */
static double sum_pairs(double *x, int64_t n)
{
    for (; n > 1; n = (n + 1) / 2)
        for (int64_t i = 0; i < n; i += 2)
            x[i / 2] = i + 1 < n ? x[i] + x[i + 1] : x[i];
    return n ? x[0] : 0;
}

#include "runtime/kernels/cpu/real_f32.h"
#include "runtime/kernels/cpu/reduce.inc.h"
#include "runtime/kernels/cpu/real_f64.h"
#include "runtime/kernels/cpu/reduce.inc.h"

void rt_accumulate_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    (void)phase;
    (void)scratch;
    const PlanTensor *state = &call->tensor[PLAN_T_accumulate_state];
    int64_t first = rt_chunk_begin(chunk, RT_CHUNK),
            n = rt_chunk_end(chunk, RT_CHUNK, state->numel) - first;
    if (call->param[PLAN_accumulate_first].i)
        rt_view_copy(call->at[PLAN_T_accumulate_state], state, first, call->at[PLAN_T_accumulate_x],
                     &call->tensor[PLAN_T_accumulate_x], first, n);
    else if (state->dtype == DTYPE_F64)
        accumulate_f64(call, first, n);
    else
        accumulate_f32(call, first, n);
}

void rt_norm_sq_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    (void)scratch;
    const PlanParam *p = call->param;
    RtSpan span =
        rt_part_span(call, p[PLAN_norm_sq_n].i, p[PLAN_norm_sq_begin].i, p[PLAN_norm_sq_end].i);
    int64_t n = span.end - span.first, blocks = plan_ceil_div(n, NORM_SQ_BLOCK);
    if (phase == 1) {
        rt_set_scalar(call, PLAN_T_norm_sq_y, sum_pairs(call->workspace, blocks));
        return;
    }
    double *sums = call->workspace;
    bool f64 = rt_is_f64(call, PLAN_T_norm_sq_x);
    int64_t end = rt_chunk_end(chunk, BLOCKS_PER_CHUNK, blocks);
    for (int64_t block = rt_chunk_begin(chunk, BLOCKS_PER_CHUNK); block < end; block++) {
        int64_t first = block * NORM_SQ_BLOCK, count = plan_min(NORM_SQ_BLOCK, n - first);
        sums[block] = f64 ? norm_sq_block_f64(call, span.first + first, count)
                          : (double)norm_sq_block_f32(call, span.first + first, count);
    }
}
