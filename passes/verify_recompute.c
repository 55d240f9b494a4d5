/* verify-recompute: on the unrolled plan, every replay
 *   - names an op of the forward pass of its own instance, of the same kind, attributes (random
 * keys among them) and types;
 *   - reads, operand by operand, what its original reads: the same value, or that value's
 * replay;
 *   - has no effect (no state update, no cache, no discrete choice);
 *   - comes after every gradient that flows into its block, or part of a block, from outside.
 * It trusts nothing that recompute and autodiff noted down, only the plan. */
#include "passes/pass.h"

#include <string.h>

#include "base/diag.h"

typedef struct Verifier {
    PassContext *c;
    const IrGraph *g;
    uint32_t *position; /* by op */
    Status status;
} Verifier;

static const char *name_of(const IrGraph *g, IrOp op)
{
    return ir_value(g, ir_out(g, op, 0))->name;
}

static bool is_fwd(const IrOpRec *rec)
{
    return rec->graph && !strcmp(rec->graph, "fwd");
}

/* The op that a replay claims to repeat, or {0}. */
static IrOp original_of(const IrGraph *g, IrOp replay)
{
    const IrOpRec *rec = ir_op(g, replay);
    IrValue v = ir_value_find(g, rec->re);
    if (!v.i || ir_value(g, v)->def != IR_DEF_RESULT)
        return (IrOp){0};
    IrOp op = ir_value(g, v)->op;
    const IrOpRec *original = ir_op(g, op);
    bool fits = is_fwd(original) && !original->re && original->instance == rec->instance &&
                original->first_out == v.i;
    return fits ? op : (IrOp){0};
}

static bool attrs_equal(IrAttrType type, const IrAttr *a, const IrAttr *b);

/* Weights that are taken again: the same piece of the same state, or of a gather of the same
 * shards. */
static bool same_weight(const IrGraph *g, IrOp a, IrOp b)
{
    IrOpKind kind = ir_op_kind(g, a);
    if (kind != ir_op_kind(g, b) || (kind != IR_OP_flat_piece && kind != IR_OP_all_gather))
        return false;
    const IrOpInfo *info = ir_op_info(kind);
    for (uint32_t i = 0; i < info->n_attr; i++)
        if (!attrs_equal(info->attr[i].type, &g->attrs.at[ir_op(g, a)->first_attr + i],
                         &g->attrs.at[ir_op(g, b)->first_attr + i]))
            return false;
    IrValue x = ir_in(g, a, 0), y = ir_in(g, b, 0);
    if (kind == IR_OP_all_gather)
        return x.i == y.i && ir_value(g, x)->def == IR_DEF_STATE;
    const IrValueRec *rx = ir_value(g, x), *ry = ir_value(g, y);
    if (x.i == y.i && rx->def == IR_DEF_STATE)
        return true;
    return rx->def == IR_DEF_RESULT && ry->def == IR_DEF_RESULT && same_weight(g, rx->op, ry->op);
}

static bool same_input(const IrGraph *g, IrValue replayed, IrValue original)
{
    if (replayed.i == original.i)
        return true;
    const IrValueRec *r = ir_value(g, replayed), *o = ir_value(g, original);
    if (!original.i || r->def != IR_DEF_RESULT || o->def != IR_DEF_RESULT || r->result != o->result)
        return false;
    if (same_weight(g, r->op, o->op))
        return true;
    Sym re = ir_op(g, r->op)->re;
    return re && re == name_of(g, o->op);
}

static bool attrs_equal(IrAttrType type, const IrAttr *a, const IrAttr *b)
{
    switch (type) {
    case IR_ATTR_F64: /* bits: -0 and 0 are two factors */
        return !memcmp(&a->f, &b->f, sizeof a->f);
    case IR_ATTR_BOOL:
        return a->b == b->b;
    case IR_ATTR_SYM:
        return a->sym == b->sym;
    default:
        return a->i == b->i;
    }
}

static void check_attrs(Verifier *v, IrOp replay, IrOp original)
{
    const IrOpInfo *info = ir_op_info(ir_op_kind(v->g, replay));
    for (uint32_t i = 0; i < info->n_attr; i++) {
        const IrAttr *a = &v->g->attrs.at[ir_op(v->g, replay)->first_attr + i];
        const IrAttr *b = &v->g->attrs.at[ir_op(v->g, original)->first_attr + i];
        if (attrs_equal(info->attr[i].type, a, b))
            continue;
        diag(v->c->s, ir_op(v->g, replay)->span, replay_attr, name_of(v->g, replay),
             info->attr[i].name);
        v->status = STATUS_BUG;
    }
}

static void check_inputs(Verifier *v, IrOp replay, IrOp original)
{
    const IrGraph *g = v->g;
    uint32_t n = ir_op(g, replay)->n_in, m = ir_op(g, original)->n_in;
    for (uint32_t i = 0; i < n || i < m; i++) {
        IrValue a = ir_in(g, replay, i), b = ir_in(g, original, i);
        if (same_input(g, a, b))
            continue;
        diag(v->c->s, ir_op(g, replay)->span, replay_input, name_of(g, replay),
             a.i ? ir_value(g, a)->name : "_", b.i ? ir_value(g, b)->name : "_");
        v->status = STATUS_BUG;
    }
}

static void check_types(Verifier *v, IrOp replay, IrOp original)
{
    const IrGraph *g = v->g;
    for (uint32_t r = 0; r < ir_op(g, replay)->n_out; r++) {
        IrType a = ir_value_type(g, ir_out(g, replay, r)),
               b = ir_value_type(g, ir_out(g, original, r));
        if (a.i == b.i)
            continue;
        diag(v->c->s, ir_op(g, replay)->span, replay_type, name_of(g, replay),
             ir_type_text(g->m, a), ir_type_text(g->m, b));
        v->status = STATUS_BUG;
    }
}

static void check_replay(Verifier *v, IrOp op)
{
    const IrGraph *g = v->g;
    const IrOpRec *rec = ir_op(g, op);
    const IrOpInfo *info = ir_op_info((IrOpKind)rec->kind);
    IrOp original = original_of(g, op);
    if (info->traits & (IR_STATE_UPDATE | IR_CACHE | IR_DISCRETE)) {
        diag(v->c->s, rec->span, replay_effect, rec->n_out ? name_of(g, op) : "", info->name);
        v->status = STATUS_BUG;
        return;
    }
    if (!original.i) {
        diag(v->c->s, rec->span, replay_no_original, name_of(g, op), rec->re);
        v->status = STATUS_BUG;
        return;
    }
    if (ir_op(g, original)->kind != rec->kind) {
        diag(v->c->s, rec->span, replay_kind, name_of(g, op), info->name, rec->re,
             ir_op_info(ir_op_kind(g, original))->name);
        v->status = STATUS_BUG;
        return;
    }
    check_attrs(v, op, original);
    check_types(v, op, original);
    check_inputs(v, op, original);
    pass_stat(v->c, "replays checked", 1);
}

/* -- order -- */

static uint64_t key_of(IrScope scope, const IrOpRec *rec)
{
    return (uint64_t)scope.i << 32 | rec->instance;
}

static IrScope part_of(const IrGraph *g, const IrOpRec *rec)
{
    IrScope scope = rec->scope, block = ir_scope_block(g->m, scope);
    while (scope.i && scope.i != block.i && ir_scope_rec(g->m, scope)->kind != IR_SCOPE_PART)
        scope = ir_scope_rec(g->m, scope)->parent;
    return scope;
}

/* Gathered, or a piece of what was. */
static bool is_weight(const IrGraph *g, IrOp op)
{
    const IrValueRec *from = ir_value(g, ir_in(g, op, 0));
    IrOpKind kind = ir_op_kind(g, op);
    if (kind != IR_OP_flat_piece && kind != IR_OP_all_gather)
        return false;
    return from->def == IR_DEF_STATE || (from->def == IR_DEF_RESULT && is_weight(g, from->op));
}

static bool is_bwd(const IrOpRec *rec)
{
    return rec->graph && !strcmp(rec->graph, "bwd");
}

/* The op that makes a backward op's operand, if that is a backward op too: what @update reads and
 * makes, sums over ranks among it, waits for all replays anyway. */
static const IrOpRec *backward_source(const IrGraph *g, const IrOpRec *rec, IrValue in)
{
    const IrValueRec *value = ir_value(g, in);
    if (value->def != IR_DEF_RESULT || !is_bwd(rec) || !is_bwd(ir_op(g, value->op)))
        return NULL;
    if (is_weight(g, value->op))
        return NULL; /* no gradient */
    return ir_op(g, value->op);
}

/* Blocks that are replayed as one: a backward op reads across parts what has been replayed. In
 * the others each part is replayed for itself. */
static void find_whole_blocks(const Verifier *v, Map *whole)
{
    const IrGraph *g = v->g;
    for (uint32_t i = 0; i < g->order.n; i++) {
        const IrOpRec *rec = ir_op(g, g->order.at[i]);
        IrScope block = ir_scope_block(g->m, rec->scope);
        for (uint32_t n = 0; n < rec->n_in; n++) {
            const IrOpRec *from = backward_source(g, rec, ir_in(g, g->order.at[i], n));
            if (from && from->re && ir_scope_block(g->m, from->scope).i == block.i &&
                part_of(g, from).i != part_of(g, rec).i)
                map_put(whole, key_of(block, rec), 1);
        }
    }
}

static IrScope unit_of(const IrGraph *g, const Map *whole, const IrOpRec *rec)
{
    IrScope block = ir_scope_block(g->m, rec->scope);
    return map_get(whole, key_of(block, rec), NULL) ? block : part_of(g, rec);
}

/* Ops outside every part have the whole block as their unit, though its parts are units too. */
static bool is_outside(const Verifier *v, const Map *whole, const IrOpRec *from, IrScope unit)
{
    return unit_of(v->g, whole, from).i != unit.i &&
           ir_scope_block(v->g->m, from->scope).i != unit.i;
}

/* Gradients flow into a unit through what its gradient ops read of other units' gradient ops; an
 * accumulation ends there. */
static void check_order(Verifier *v)
{
    const IrGraph *g = v->g;
    Map whole, first_replay; /* by unit and instance */
    map_init(&whole, v->c->scratch);
    map_init(&first_replay, v->c->scratch);
    find_whole_blocks(v, &whole);
    for (uint32_t i = 0; i < g->order.n; i++) {
        const IrOpRec *rec = ir_op(g, g->order.at[i]);
        uint64_t key = key_of(unit_of(g, &whole, rec), rec);
        if (rec->re && !map_get(&first_replay, key, NULL))
            map_put(&first_replay, key, g->order.at[i].i);
    }
    for (uint32_t i = 0; i < g->order.n; i++) {
        const IrOpRec *rec = ir_op(g, g->order.at[i]);
        IrScope unit = unit_of(g, &whole, rec);
        uint64_t replay;
        if (rec->re || rec->kind == IR_OP_accumulate ||
            !map_get(&first_replay, key_of(unit, rec), &replay))
            continue;
        for (uint32_t n = 0; n < rec->n_in; n++) {
            IrValue in = ir_in(g, g->order.at[i], n);
            const IrOpRec *from = backward_source(g, rec, in);
            if (!from || from->re || !is_outside(v, &whole, from, unit) ||
                v->position[ir_value(g, in)->op.i] < v->position[replay])
                continue;
            IrOp early = {(uint32_t)replay};
            diag(v->c->s, ir_op(g, early)->span, replay_early, name_of(g, early),
                 ir_value(g, in)->name);
            v->status = STATUS_BUG;
            map_put(&first_replay, key_of(unit, rec), ir_value(g, in)->op.i); /* once per unit */
        }
    }
}

Status pass_verify_recompute(PassContext *c)
{
    const IrGraph *g = ir_graph_find(c->m, "step");
    Verifier v = {.c = c, .g = g, .position = ir_positions(g, c->scratch)};
    for (uint32_t i = 0; i < g->order.n; i++)
        if (ir_op(g, g->order.at[i])->re)
            check_replay(&v, g->order.at[i]);
    check_order(&v);
    return v.status;
}
