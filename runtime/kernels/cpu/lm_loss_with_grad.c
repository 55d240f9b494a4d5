#include "runtime/kernels/cpu/kernels.h"
#include "runtime/kernels/cpu/lm_loss.h"

enum { ROWS_AT_ONCE = 8 };

/* The tokens are cut into pieces. For each: its logits; each row's loss and, in its place, its
 * gradient; dh's rows, whole, and one more product summed into dw. */
typedef struct LmLossWithGrad {
    int64_t tokens, width, vocab, ignore;
    double softcap;
    const int32_t *targets;
    int64_t rows;         /* of a piece; the last one may have fewer */
    int64_t ld;           /* from one row of logits to the next */
    int64_t token, count; /* this phase's piece: its first token, and how many */
    PlanTensor logits;    /* in the workspace */
    PlanTiles dh_tiles, dw_tiles;
    bool first, last, sums; /* sums: dw is summed in the workspace */
} LmLossWithGrad;

static LmLossWithGrad lm_loss_with_grad(const RtCall *call, uint32_t phase)
{
    const PlanParam *p = call->param;
    LmLossWithGrad x = {
        .tokens = p[PLAN_lm_loss_with_grad_tokens].i,
        .width = p[PLAN_lm_loss_with_grad_width].i,
        .vocab = p[PLAN_lm_loss_with_grad_vocab].i,
        .ignore = p[PLAN_lm_loss_with_grad_ignore].i,
        .softcap = p[PLAN_lm_loss_with_grad_softcap].f,
        .targets = call->at[PLAN_T_lm_loss_with_grad_targets],
        .sums = plan_lm_loss_with_grad_sums(p, call->tensor),
    };
    x.rows = plan_lm_loss_with_grad_rows(x.tokens, x.vocab,
                                         call->tensor[PLAN_T_lm_loss_with_grad_h].dtype);
    x.ld = plan_round_up(x.vocab, 16);
    x.token = plan_min(phase / 3 * x.rows, x.tokens);
    x.count = plan_min(x.rows, x.tokens - x.token);
    x.logits = (PlanTensor){
        .numel = x.count * x.ld,
        .run = x.ld,
        .pitch = x.ld,
        .dtype = rt_is_f64(call, PLAN_T_lm_loss_with_grad_h) ? DTYPE_F64 : DTYPE_F32,
    };
    x.first = x.token == 0;
    x.last = x.token + x.count == x.tokens;
    x.dh_tiles = plan_gemm_tiles(x.rows, x.width, x.vocab);
    x.dw_tiles = plan_gemm_tiles(x.vocab, x.width, x.rows);
    return x;
}

static int64_t dw_chunks(const RtCall *call, const LmLossWithGrad *x)
{
    return call->at[PLAN_T_lm_loss_with_grad_dw] ? x->dw_tiles.rows * x->dw_tiles.cols : 0;
}

static int64_t dh_chunks(const RtCall *call, const LmLossWithGrad *x)
{
    if (!call->at[PLAN_T_lm_loss_with_grad_dh])
        return 0;
    return plan_ceil_div(x->count, x->dh_tiles.tile_m) * x->dh_tiles.cols;
}

#include "runtime/kernels/cpu/real_f32.h"
#include "runtime/kernels/cpu/lm_loss_with_grad.inc.h"
#include "runtime/kernels/cpu/real_f64.h"
#include "runtime/kernels/cpu/lm_loss_with_grad.inc.h"

/* Three phases per piece: logits, rows, products. At the end the sum of the losses. */
uint32_t rt_lm_loss_with_grad_phases(const RtCall *call)
{
    LmLossWithGrad x = lm_loss_with_grad(call, 0);
    return (uint32_t)(3 * plan_ceil_div(x.tokens, x.rows) + 1);
}

uint64_t rt_lm_loss_with_grad_chunks(const RtCall *call, uint32_t phase)
{
    LmLossWithGrad x = lm_loss_with_grad(call, phase);
    if (!x.count)
        return 1;
    if (phase % 3 == 0)
        return (uint64_t)(plan_ceil_div(x.count, LM_LOSS_TILE_M) *
                          plan_ceil_div(x.vocab, LM_LOSS_TILE_N));
    if (phase % 3 == 1)
        return (uint64_t)plan_ceil_div(x.count, ROWS_AT_ONCE);
    return (uint64_t)(dw_chunks(call, &x) + dh_chunks(call, &x));
}

void rt_lm_loss_with_grad_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    LmLossWithGrad x = lm_loss_with_grad(call, phase);
    if (rt_is_f64(call, PLAN_T_lm_loss_with_grad_h))
        lm_loss_with_grad_run_f64(call, &x, phase, (int64_t)chunk, scratch);
    else
        lm_loss_with_grad_run_f32(call, &x, phase, (int64_t)chunk, scratch);
}
