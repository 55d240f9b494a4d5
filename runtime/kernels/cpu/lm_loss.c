#include "runtime/kernels/cpu/kernels.h"
#include "runtime/kernels/cpu/part.h"
#include "runtime/kernels/cpu/lm_loss.h"

enum { COMBINE_TOKENS = 1024 };

typedef struct LmLoss {
    int64_t tokens, width, vocab, spans, ignore;
    double softcap;
    const int32_t *targets;
    /* of a part: its first word's number, and how many of its rows are words */
    int64_t word0, words;
    int h, w;             /* which tensors these are */
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
        .words = p[PLAN_lm_loss_vocab].i,
        .h = PLAN_T_lm_loss_h,
        .w = PLAN_T_lm_loss_w,
    };
}

/* A part's parameters are the whole op's, and two more. */
static LmLoss lm_loss_part(const RtCall *call)
{
    LmLoss x = lm_loss(call);
    x.targets = call->at[PLAN_T_lm_loss_part_targets];
    x.word0 = rt_part_index(call) * x.vocab;
    x.words = rt_between(call->param[PLAN_lm_loss_part_total].i - x.word0, 0, x.vocab);
    x.h = PLAN_T_lm_loss_part_h;
    x.w = PLAN_T_lm_loss_part_w;
    return x;
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

/* Phase 0: as of the whole op; 1: per token over the spans. */
uint32_t rt_lm_loss_part_phases(const RtCall *call)
{
    (void)call;
    return 2;
}

uint64_t rt_lm_loss_part_chunks(const RtCall *call, uint32_t phase)
{
    LmLoss x = lm_loss_part(call);
    return (uint64_t)(phase ? plan_ceil_div(x.tokens, COMBINE_TOKENS)
                            : plan_ceil_div(x.tokens, LM_LOSS_TILE_M) * x.spans);
}

void rt_lm_loss_part_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    LmLoss x = lm_loss_part(call);
    bool f64 = rt_is_f64(call, PLAN_T_lm_loss_part_h);
    if (phase == 0 && f64)
        lm_loss_span_f64(call, &x, chunk, scratch);
    else if (phase == 0)
        lm_loss_span_f32(call, &x, chunk, scratch);
    else if (f64)
        lm_loss_part_f64(call, &x, chunk);
    else
        lm_loss_part_f32(call, &x, chunk);
}

void rt_lm_loss_join_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    (void)phase;
    (void)chunk;
    (void)scratch;
    if (rt_is_f64(call, PLAN_T_lm_loss_join_parts))
        lm_loss_join_f64(call);
    else
        lm_loss_join_f32(call);
}
