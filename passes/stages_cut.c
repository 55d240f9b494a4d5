/* Cuts stand between blocks: given, or where the slowest piece is fastest by the cost model. */
#include "base/diag.h"
#include "passes/cost.h"
#include "passes/stages.h"

/* What stands in front of the blocks goes with the first, what follows with the last. */
static double *block_seconds(const Stages *s)
{
    double *seconds = ARENA_ARRAY(s->c->scratch, double, s->n_blocks);
    for (uint32_t i = 0; i < s->g->order.n; i++) {
        IrOp op = s->g->order.at[i];
        const StageOp *at = stage_op(s, op);
        PassCost cost = pass_cost_op(s->g, &s->uses, op);
        uint32_t block = at->block >= 0 ? (uint32_t)at->block : at->behind ? s->n_blocks - 1 : 0;
        PassWork work = {cost.products, cost.attention, cost.flops, cost.bytes};
        seconds[block] += pass_cost_seconds(s->c->options->target, &work);
    }
    return seconds;
}

typedef struct Best { /* of the first blocks in so many pieces */
    double most, squares;
    uint32_t from; /* the last piece's first block */
} Best;

static bool is_better(const Best *a, const Best *b)
{
    return a->most != b->most ? a->most < b->most : a->squares < b->squares;
}

static void balance(Stages *s)
{
    const double *seconds = block_seconds(s);
    uint32_t n = s->n_blocks, width = n + 1;
    double *sum = ARENA_ARRAY(s->c->scratch, double, width);
    for (uint32_t i = 0; i < n; i++)
        sum[i + 1] = sum[i] + seconds[i];
    Best *best = ARENA_ARRAY(s->c->scratch, Best, (size_t)(s->n_pieces + 1) * width);
    for (uint32_t p = 1; p <= s->n_pieces; p++)
        for (uint32_t end = p; end <= n; end++) {
            Best *at = &best[p * width + end];
            for (uint32_t from = p - 1; from < end && (p > 1 || from == 0); from++) {
                double piece = sum[end] - sum[from];
                Best before = best[(p - 1) * width + from], next;
                next.most = before.most > piece ? before.most : piece;
                next.squares = before.squares + piece * piece;
                next.from = from;
                if (from == p - 1 || is_better(&next, at))
                    *at = next;
            }
        }
    for (uint32_t p = s->n_pieces, end = n; p > 0; p--) {
        s->first_block[p - 1] = best[p * width + end].from;
        end = best[p * width + end].from;
    }
}

static Status take_given(Stages *s)
{
    const PassOptions *o = s->c->options;
    if (o->pp_cuts.n + 1 != s->n_pieces) {
        diag(s->c->s, o->pp_cuts_span, pp_cuts, o->pp_cuts.n, o->pp_cuts.n + 1, (long long)o->pp,
             s->n_chunks, s->n_pieces);
        return STATUS_USER;
    }
    for (uint32_t i = 0; i < o->pp_cuts.n; i++) {
        int64_t cut = o->pp_cuts.at[i];
        if (cut <= s->first_block[i] || cut >= s->n_blocks) {
            diag(s->c->s, o->pp_cuts_span, pp_cut, s->n_blocks - 1, (long long)cut);
            return STATUS_USER;
        }
        s->first_block[i + 1] = (uint32_t)cut;
    }
    return STATUS_OK;
}

Status stages_cut(Stages *s)
{
    const PassOptions *o = s->c->options;
    s->first_block = ARENA_ARRAY(s->c->scratch, uint32_t, s->n_pieces + 1);
    s->first_block[s->n_pieces] = s->n_blocks;
    if (s->n_pieces > s->n_blocks) {
        const char *chunks = s->n_chunks > 1 ? arena_printf(s->c->scratch, " with %u chunks each",
                                                            s->n_chunks)
                                             : "";
        diag(s->c->s, o->pp_span, pp_blocks, (long long)o->pp, chunks, s->n_blocks);
        return STATUS_USER;
    }
    if (o->pp_cuts.n)
        return take_given(s);
    balance(s);
    return STATUS_OK;
}
