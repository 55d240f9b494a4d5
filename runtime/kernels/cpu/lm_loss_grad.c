#include "runtime/kernels/cpu/kernels.h"
#include "runtime/kernels/cpu/part.h"
#include "runtime/kernels/cpu/lm_loss.h"

/* The vocabulary is cut into pieces. For each: gradients of its logits for all tokens, then dw's
 * rows, whole, and one more product summed into dh. */
typedef struct LmLossGrad {
    int64_t tokens, width, vocab, ignore;
    double softcap;
    const int32_t *targets;
    /* of a part: its first word's number, and how many of its rows are words */
    int64_t word0, words;
    int64_t columns;     /* of a piece; the last one may have fewer */
    int64_t word, count; /* this phase's piece: its first column, and how many */
    PlanTiles dh_tiles, dw_tiles;
    bool first, last, sums; /* sums: dh is summed in the workspace */
} LmLossGrad;

static LmLossGrad lm_loss_grad(const RtCall *call, uint32_t phase)
{
    const PlanParam *p = call->param;
    LmLossGrad x = {
        .tokens = p[PLAN_lm_loss_grad_tokens].i,
        .width = p[PLAN_lm_loss_grad_width].i,
        .vocab = p[PLAN_lm_loss_grad_vocab].i,
        .ignore = p[PLAN_lm_loss_grad_ignore].i,
        .softcap = p[PLAN_lm_loss_grad_softcap].f,
        .targets = call->at[PLAN_T_lm_loss_grad_targets],
        .sums = plan_lm_loss_grad_sums(p, call->tensor),
    };
    x.words = x.vocab;
    if (call->instr->kernel == PLAN_KERNEL_lm_loss_part_grad) {
        x.word0 = rt_part_index(call) * x.vocab;
        x.words = rt_between(p[PLAN_lm_loss_part_grad_total].i - x.word0, 0, x.vocab);
    }
    x.columns =
        plan_lm_loss_grad_columns(x.tokens, x.vocab, call->tensor[PLAN_T_lm_loss_grad_h].dtype);
    x.word = phase / 2 * x.columns;
    x.count = plan_min(x.columns, x.vocab - x.word);
    x.first = x.word == 0;
    x.last = x.word + x.count == x.vocab;
    x.dh_tiles = plan_gemm_tiles(x.tokens, x.width, x.columns);
    x.dw_tiles = plan_gemm_tiles(x.columns, x.width, x.tokens);
    return x;
}

static int64_t dw_chunks(const RtCall *call, const LmLossGrad *x)
{
    if (!call->at[PLAN_T_lm_loss_grad_dw])
        return 0;
    return plan_ceil_div(x->count, x->dw_tiles.tile_m) * x->dw_tiles.cols;
}

static int64_t dh_chunks(const RtCall *call, const LmLossGrad *x)
{
    return call->at[PLAN_T_lm_loss_grad_dh] ? x->dh_tiles.rows * x->dh_tiles.cols : 0;
}

#include "runtime/kernels/cpu/real_f32.h"
#include "runtime/kernels/cpu/lm_loss_grad.inc.h"
#include "runtime/kernels/cpu/real_f64.h"
#include "runtime/kernels/cpu/lm_loss_grad.inc.h"

/* Two phases per piece: gradients of logits, and the products with them. */
uint32_t rt_lm_loss_grad_phases(const RtCall *call)
{
    LmLossGrad x = lm_loss_grad(call, 0);
    return (uint32_t)(2 * plan_ceil_div(x.vocab, x.columns));
}

uint64_t rt_lm_loss_grad_chunks(const RtCall *call, uint32_t phase)
{
    LmLossGrad x = lm_loss_grad(call, phase);
    if (phase % 2 == 0)
        return (uint64_t)(plan_ceil_div(x.tokens, LM_LOSS_TILE_M) *
                          plan_ceil_div(x.count, LM_LOSS_TILE_N));
    return (uint64_t)(dw_chunks(call, &x) + dh_chunks(call, &x));
}

void rt_lm_loss_grad_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    LmLossGrad x = lm_loss_grad(call, phase);
    bool f64 = rt_is_f64(call, PLAN_T_lm_loss_grad_h);
    if (phase % 2 == 0 && f64)
        lm_loss_grad_logits_f64(call, &x, chunk, scratch);
    else if (phase % 2 == 0)
        lm_loss_grad_logits_f32(call, &x, chunk, scratch);
    else if (f64)
        lm_loss_grad_products_f64(call, &x, (int64_t)chunk, scratch);
    else
        lm_loss_grad_products_f32(call, &x, (int64_t)chunk, scratch);
}
