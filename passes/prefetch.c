/* prefetch: on a target whose exchanges run beside its kernels. Each unit's weights are gathered
 * while the unit before is at work: a gather goes to where the one before it stands, within its
 * graph's instance, as long as two whole units fit into a bound. What adds up a sum over ranks
 * waits until the next sum, and buffers of a sum under way stay (passes/lifetime.h). */
#include "passes/pass.h"

enum { GATHERED_MOST = 2000 /* MiB of two units */ };

static bool is_weight_gather(const IrGraph *g, IrOp op)
{
    return ir_op_kind(g, op) == IR_OP_all_gather &&
           ir_value(g, ir_in(g, op, 0))->def == IR_DEF_STATE;
}

static int64_t gathered_bytes(const IrGraph *g, IrOp op)
{
    return ir_type_bytes(g->m, ir_value_type(g, ir_out(g, op, 0)));
}

static bool same_part(const IrGraph *g, IrOp a, IrOp b)
{
    const IrOpRec *x = ir_op(g, a), *y = ir_op(g, b);
    return x->graph == y->graph && x->instance == y->instance;
}

/* -- places -- */

static IrRegion region_at(const IrGraph *g, uint32_t at)
{
    return at < g->order.n ? ir_op(g, g->order.at[at])->region : (IrRegion){0};
}

static bool is_kernel(const IrGraph *g, IrRegion region)
{
    return region.i && g->regions.at[region.i].kind == IR_REGION_KERNEL;
}

/* May another op stand in front of the one at `at`: are those around it of two kernels? */
static bool is_gap(const IrGraph *g, uint32_t at)
{
    IrRegion behind = region_at(g, at);
    return !at || !is_kernel(g, behind) || behind.i != region_at(g, at - 1).i;
}

/* The op takes the region of its new neighbours, where both have it: regions stay in one piece. */
static void settle(IrGraph *g, uint32_t at)
{
    IrRegion before = at ? region_at(g, at - 1) : (IrRegion){0}, behind = region_at(g, at + 1);
    bool within = before.i == behind.i && !is_kernel(g, before);
    ir_op(g, g->order.at[at])->region = within ? before : (IrRegion){0};
}

static void move_up(IrGraph *g, uint32_t from, uint32_t to)
{
    IrOp op = g->order.at[from];
    for (uint32_t i = from; i > to; i--)
        g->order.at[i] = g->order.at[i - 1];
    g->order.at[to] = op;
    settle(g, to);
}

static void move_down(IrGraph *g, uint32_t from, uint32_t to)
{
    IrOp op = g->order.at[from];
    for (uint32_t i = from; i < to; i++)
        g->order.at[i] = g->order.at[i + 1];
    g->order.at[to] = op;
    settle(g, to);
}

/* -- gathers -- */

/* Behind the gather before the one at `at`, or where its graph's instance begins. */
static uint32_t earlier(const IrGraph *g, uint32_t at, int64_t *out_before)
{
    IrOp op = g->order.at[at];
    *out_before = 0;
    for (uint32_t i = at; i > 0; i--) {
        IrOp before = g->order.at[i - 1];
        if (!same_part(g, op, before))
            return i;
        if (!is_weight_gather(g, before))
            continue;
        *out_before = gathered_bytes(g, before);
        return i;
    }
    return 0;
}

/* From the last on: each goes to where the one before it still stands. */
static void move_gathers(PassContext *c, IrGraph *g)
{
    for (uint32_t i = g->order.n; i-- > 0;) {
        if (!is_weight_gather(g, g->order.at[i]))
            continue;
        int64_t before, own = gathered_bytes(g, g->order.at[i]);
        uint32_t to = earlier(g, i, &before);
        if (to == i || !is_gap(g, to) || before + own > (int64_t)GATHERED_MOST << 20)
            continue;
        move_up(g, i, to);
        i = to;
        pass_stat(c, "gathers that begin earlier", 1);
    }
}

/* -- sums -- */

static bool is_sum_behind(const IrGraph *g, uint32_t at)
{
    IrOp op = g->order.at[at];
    if (!at || ir_op_kind(g, op) != IR_OP_accumulate)
        return false;
    const IrValueRec *x = ir_value(g, ir_in(g, op, 1));
    return x->def == IR_DEF_RESULT && x->op.i == g->order.at[at - 1].i &&
           ir_op_kind(g, x->op) == IR_OP_reduce_scatter;
}

/* In front of the next sum of the instance, or at its end. */
static void move_accumulates(PassContext *c, IrGraph *g)
{
    for (uint32_t i = 0; i < g->order.n; i++) {
        if (!is_sum_behind(g, i))
            continue;
        uint32_t to = i;
        while (to + 1 < g->order.n && same_part(g, g->order.at[i], g->order.at[to + 1]) &&
               ir_op_kind(g, g->order.at[to + 1]) != IR_OP_reduce_scatter)
            to++;
        if (to == i || !is_gap(g, to + 1))
            continue;
        move_down(g, i, to);
        pass_stat(c, "sums that are added up later", 1);
        i--;
    }
}

Status pass_prefetch(PassContext *c)
{
    if (c->options->target != PASS_TARGET_CUDA)
        return STATUS_OK;
    for (uint32_t i = 0; i < c->m->graphs.n; i++) {
        move_gathers(c, c->m->graphs.at[i]);
        move_accumulates(c, c->m->graphs.at[i]);
        c->m->graphs.at[i]->epoch++;
    }
    c->m->exchanges_beside = true;
    return STATUS_OK;
}
