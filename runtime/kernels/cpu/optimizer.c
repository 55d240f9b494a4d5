#include "runtime/kernels/cpu/kernels.h"
#include "runtime/kernels/cpu/part.h"
#include "runtime/kernels/cpu/tile.h"

/* What an update reads and writes. Moments go on unrounded within a step, and are rounded when they
 * are stored. With a master copy that is what is updated, and the weight is its rounding. */

typedef struct Adamw {
    double beta1, beta2, eps;
    double coef, decay, step_size,
        root; /* decay: what the weight is multiplied by; root: sqrt(1 - beta2^t) */
} Adamw;

typedef struct Sgd {
    double momentum, decay, coef, lr;
    bool nesterov;
} Sgd;

/* A chunk of what an update goes over: elements of the gradient, and where the weight's are. */
typedef struct Range {
    int64_t first, n, shift;
} Range;

static Range range_of(const RtCall *call, int gradient, int weight, int comm, uint64_t chunk)
{
    const PlanParam *p = call->param;
    int64_t numel = call->tensor[gradient].numel;
    RtSpan span = rt_part_span(call, numel, p[comm + 1].i, p[comm + 2].i);
    Range range = {.first = rt_between(rt_chunk_begin(chunk, RT_CHUNK), span.first, span.end)};
    range.n = rt_chunk_end(chunk, RT_CHUNK, span.end) - range.first;
    range.shift = call->tensor[weight].numel > numel ? rt_part_index(call) * numel : 0;
    return range;
}

#include "runtime/kernels/cpu/real_f32.h"
#include "runtime/kernels/cpu/optimizer.inc.h"
#include "runtime/kernels/cpu/real_f64.h"
#include "runtime/kernels/cpu/optimizer.inc.h"

uint64_t rt_adamw_chunks(const RtCall *call, uint32_t phase)
{
    (void)phase;
    return (uint64_t)plan_ceil_div(call->tensor[PLAN_T_adamw_g].numel, RT_CHUNK);
}

void rt_adamw_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    (void)phase;
    (void)scratch;
    const PlanParam *p = call->param;
    double lr = rt_scalar(call, PLAN_T_adamw_lr),
           t = (double)*(const int64_t *)call->at[PLAN_T_adamw_step] + 1;
    Adamw x = {
        .beta1 = p[PLAN_adamw_beta1].f,
        .beta2 = p[PLAN_adamw_beta2].f,
        .eps = p[PLAN_adamw_eps].f,
        .coef = rt_scalar(call, PLAN_T_adamw_coef),
        .decay = 1 - lr * p[PLAN_adamw_decay].f,
    };
    x.step_size = lr / (1 - pow(x.beta1, t));
    x.root = sqrt(1 - pow(x.beta2, t));
    if (x.coef == 0)
        return;
    Range range = range_of(call, PLAN_T_adamw_g, PLAN_T_adamw_w, PLAN_adamw_comm, chunk);
    if (range.n <= 0)
        return;
    if (rt_is_f64(call, PLAN_T_adamw_w))
        adamw_f64(call, &x, range.first, range.n, range.shift);
    else
        adamw_f32(call, &x, range.first, range.n, range.shift);
}

uint64_t rt_sgd_chunks(const RtCall *call, uint32_t phase)
{
    (void)phase;
    return (uint64_t)plan_ceil_div(call->tensor[PLAN_T_sgd_g].numel, RT_CHUNK);
}

void rt_sgd_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    (void)phase;
    (void)scratch;
    const PlanParam *p = call->param;
    Sgd x = {
        .momentum = p[PLAN_sgd_momentum].f,
        .decay = p[PLAN_sgd_decay].f,
        .coef = rt_scalar(call, PLAN_T_sgd_coef),
        .lr = rt_scalar(call, PLAN_T_sgd_lr),
        .nesterov = p[PLAN_sgd_nesterov].i,
    };
    if (x.coef == 0)
        return;
    Range range = range_of(call, PLAN_T_sgd_g, PLAN_T_sgd_w, PLAN_sgd_comm, chunk);
    if (range.n <= 0)
        return;
    if (rt_is_f64(call, PLAN_T_sgd_w))
        sgd_f64(call, &x, range.first, range.n, range.shift);
    else
        sgd_f32(call, &x, range.first, range.n, range.shift);
}

void rt_advance_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    (void)phase;
    (void)chunk;
    (void)scratch;
    int64_t *step = call->at[PLAN_T_advance_step], *skipped = call->at[PLAN_T_advance_skipped];
    if (rt_scalar(call, PLAN_T_advance_coef) == 0) {
        ++*skipped;
        return;
    }
    ++*step;
    *skipped = 0;
}
