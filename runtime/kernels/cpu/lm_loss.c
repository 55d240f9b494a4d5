#include "runtime/kernels/cpu/kernels.h"
#include "runtime/kernels/cpu/lm_loss.h"

enum { COMBINE_TOKENS = 1024 };

typedef struct LmLoss {
    int64_t tokens, width, vocab, spans, ignore;
    double softcap;
    const int32_t *targets;
} LmLoss;

static LmLoss lm_loss(const RtCall *call)
{
    const PlanParam *p = call->param;
    return (LmLoss){
        .tokens = p[PLAN_lm_loss_tokens].i,
        .width = p[PLAN_lm_loss_width].i,
        .vocab = p[PLAN_lm_loss_vocab].i,
        .spans = plan_lm_loss_spans(p[PLAN_lm_loss_vocab].i),
        .ignore = p[PLAN_lm_loss_ignore].i,
        .softcap = p[PLAN_lm_loss_softcap].f,
        .targets = call->at[PLAN_T_lm_loss_targets],
    };
}

#include "runtime/kernels/cpu/real_f32.h"
#include "runtime/kernels/cpu/lm_loss.inc.h"
#include "runtime/kernels/cpu/real_f64.h"
#include "runtime/kernels/cpu/lm_loss.inc.h"

/* Phase 0: maximum and sum per token and span; 1: per token over the spans; 2: over the tokens. */
uint32_t rt_lm_loss_phases(const RtCall *call)
{
    (void)call;
    return 3;
}

uint64_t rt_lm_loss_chunks(const RtCall *call, uint32_t phase)
{
    LmLoss x = lm_loss(call);
    if (phase == 0)
        return (uint64_t)(plan_ceil_div(x.tokens, LM_LOSS_TILE_M) * x.spans);
    return phase == 1 ? (uint64_t)plan_ceil_div(x.tokens, COMBINE_TOKENS) : 1;
}

void rt_lm_loss_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    LmLoss x = lm_loss(call);
    bool f64 = rt_is_f64(call, PLAN_T_lm_loss_h);
    if (phase == 0 && f64)
        lm_loss_span_f64(call, &x, chunk, scratch);
    else if (phase == 0)
        lm_loss_span_f32(call, &x, chunk, scratch);
    else if (phase == 1 && f64)
        lm_loss_combine_f64(call, &x, chunk);
    else if (phase == 1)
        lm_loss_combine_f32(call, &x, chunk);
    else if (f64)
        lm_loss_sum_f64(call, &x);
    else
        lm_loss_sum_f32(call, &x);
}
