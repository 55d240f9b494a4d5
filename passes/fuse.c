/* fuse: groups pointwise and row-wise ops of one iteration space into kernel regions. A group grows
 * from its first op: the ops behind it, within a window and its block, join if they read what the
 * group makes or reads, share its space, and depend on nothing that in turn depends on the group.
 * Then the window is put in order: what does not depend on the group, the group, what does. A
 * result that sums over rows leaves the region: it is complete only at the region's end. Replays
 * never move ahead of a gradient. Nor do they share a region with gradients, except where pointwise
 * recompute has a replay read the kept values that the gradient reads too. Not in the block that
 * goes back first, though: all that is saved is live there, and such a region has more tensors than
 * its ops one by one. */
#include "passes/fuse.h"

#include "passes/fuse_space.h"

enum { WINDOW = 48, MAX_OPS = 24, MAX_TENSORS = 12 };

typedef struct Fuser {
    PassContext *c;
    IrGraph *g;
    PassViews views;
    IrUses uses;
    IrScope first_block; /* the first that the graph comes to */
    uint32_t round;
    /* stamped with the round */
    uint32_t *member, *after; /* by op: in the group; depends on the group */
    uint32_t *read;           /* by value: a whole operand of the group */
    uint32_t *member_state,
        *after_state; /* by value: a state read by the group; touched by an op in `after` */
    /* the group */
    IrOp ops[MAX_OPS];
    uint32_t n;
    PassSpace space;
    bool passed_gradient; /* an op that is no replay stands in the group or before here */
} Fuser;

static int64_t numel(const IrGraph *g, IrValue v)
{
    return ir_type_numel(g->m, ir_value_type(g, v));
}

/* Fused-class, and with code: slices that are views have none. */
static bool is_fusable(const Fuser *f, IrOp op)
{
    const IrGraph *g = f->g;
    return !ir_in_kernel(g, op) &&
           pass_op_class(f->c->options->target, ir_op_kind(g, op)) == PASS_CLASS_FUSED &&
           !f->views[ir_out(g, op, 0).i].base.i;
}

static PassSpace space_of(const Fuser *f, IrOp op)
{
    const IrGraph *g = f->g;
    PassSpace s = pass_space_of_op(g, op);
    for (uint32_t i = 0; i < ir_op(g, op)->n_in; i++) {
        IrValue v = ir_in(g, op, i);
        if (!v.i || !pass_view_strided(&f->views[v.i]))
            continue;
        PassSpace strided = {.numel = s.numel, .run = f->views[v.i].run};
        pass_space_join(&s, &strided, &s);
    }
    return s;
}

/* -- the group -- */

static bool is_member(const Fuser *f, IrValue v)
{
    const IrValueRec *rec = ir_value(f->g, v);
    return v.i && rec->def == IR_DEF_RESULT && f->member[rec->op.i] == f->round;
}

static bool is_after(const Fuser *f, IrValue v)
{
    const IrValueRec *rec = ir_value(f->g, v);
    return v.i && rec->def == IR_DEF_RESULT && f->after[rec->op.i] == f->round;
}

/* Read by an op outside of the group with `joining` added, or a result of the graph. */
static bool leaves(const Fuser *f, IrValue v, IrOp joining)
{
    if (f->uses.is_result[v.i])
        return true;
    for (uint32_t i = f->uses.first[v.i]; i < f->uses.first[v.i + 1]; i++) {
        IrOp user = f->uses.at[i];
        if (user.i != joining.i && f->member[user.i] != f->round)
            return true;
    }
    return false;
}

static uint32_t add_distinct(IrValue *set, uint32_t n, IrValue v)
{
    for (uint32_t i = 0; i < n; i++)
        if (set[i].i == v.i)
            return n;
    set[n] = v;
    return n + 1;
}

/* Tensors that the region would read or write with `joining` in it; stops counting behind the
 * limit. */
static uint32_t count_tensors(const Fuser *f, IrOp joining)
{
    const IrGraph *g = f->g;
    IrValue set[MAX_TENSORS + IR_MAX_INS + IR_MAX_OUTS];
    uint32_t n = 0;
    for (uint32_t k = 0; k <= f->n && n <= MAX_TENSORS; k++) {
        IrOp op = k < f->n ? f->ops[k] : joining;
        for (uint32_t i = 0; i < ir_op(g, op)->n_in; i++)
            if (ir_in(g, op, i).i && !is_member(f, ir_in(g, op, i)))
                n = add_distinct(set, n, ir_in(g, op, i));
        for (uint32_t r = 0; r < ir_op(g, op)->n_out; r++)
            if (leaves(f, ir_out(g, op, r), joining))
                n = add_distinct(set, n, ir_out(g, op, r));
    }
    return n;
}

/* Does the op read what the group makes, or a whole operand that it reads? */
static bool is_connected(const Fuser *f, IrOp op)
{
    for (uint32_t i = 0; i < ir_op(f->g, op)->n_in; i++) {
        IrValue v = ir_in(f->g, op, i);
        if (v.i && (is_member(f, v) || f->read[v.i] == f->round))
            return true;
    }
    return false;
}

/* A pointwise replay that reads no other replay. */
static bool is_of_kept(const IrGraph *g, IrOp op)
{
    for (uint32_t i = 0; i < ir_op(g, op)->n_in; i++)
        if (ir_value(g, ir_in(g, op, i))->def == IR_DEF_RESULT)
            return false;
    return ir_op_info(ir_op_kind(g, op))->traits & IR_POINTWISE;
}

static bool same_neighbourhood(const Fuser *f, IrOp op) /* the window has seen to the block */
{
    const IrGraph *g = f->g;
    const IrOpRec *first = ir_op(g, f->ops[0]), *rec = ir_op(g, op);
    if (rec->re)
        return first->re && !f->passed_gradient;
    if (!first->re)
        return true;
    return f->c->options->recompute_pointwise && is_of_kept(g, f->ops[0]) &&
           ir_scope_block(g->m, rec->scope).i != f->first_block.i;
}

static bool may_join(const Fuser *f, IrOp op, PassSpace *out_space)
{
    if (f->n == MAX_OPS || !is_fusable(f, op) || !same_neighbourhood(f, op))
        return false;
    PassSpace space = space_of(f, op);
    return pass_space_join(&f->space, &space, out_space) && is_connected(f, op) &&
           count_tensors(f, op) <= MAX_TENSORS;
}

static void join(Fuser *f, IrOp op, PassSpace space)
{
    const IrGraph *g = f->g;
    f->passed_gradient |= !ir_op(g, op)->re;
    f->ops[f->n++] = op;
    f->space = space;
    f->member[op.i] = f->round;
    for (uint32_t i = 0; i < ir_op(g, op)->n_in; i++) {
        IrValue v = ir_in(g, op, i);
        if (!v.i)
            continue;
        if (ir_value(g, v)->def == IR_DEF_STATE)
            f->member_state[v.i] = f->round;
        if (numel(g, v) == f->space.numel)
            f->read[v.i] = f->round;
    }
}

/* -- dependence on the group -- */

/* Must the op stay behind the group? Through values; through a state that one of the two writes;
 * and a replay never moves ahead of gradients. */
static bool depends(const Fuser *f, IrOp op)
{
    const IrGraph *g = f->g;
    if (ir_op(g, op)->re && f->passed_gradient)
        return true;
    bool writes = ir_op_info(ir_op_kind(g, op))->traits & IR_STATE_UPDATE;
    for (uint32_t i = 0; i < ir_op(g, op)->n_in; i++) {
        IrValue v = ir_in(g, op, i);
        if (v.i && (is_member(f, v) || is_after(f, v) || f->after_state[v.i] == f->round ||
                    (writes && f->member_state[v.i] == f->round)))
            return true;
    }
    return false;
}

/* As `depends`, for an op that would be in the group: what the group makes is at hand, unless it
 * sums over rows. */
static bool depends_from_within(const Fuser *f, IrOp op)
{
    const IrGraph *g = f->g;
    for (uint32_t i = 0; i < ir_op(g, op)->n_in; i++) {
        IrValue v = ir_in(g, op, i);
        if (!v.i)
            continue;
        const IrValueRec *rec = ir_value(g, v);
        if (is_after(f, v) || f->after_state[v.i] == f->round ||
            (is_member(f, v) && pass_result_sums(g, rec->op, rec->result)))
            return true;
    }
    return false;
}

static void put_after(Fuser *f, IrOp op)
{
    const IrGraph *g = f->g;
    f->after[op.i] = f->round;
    if (ir_op_info(ir_op_kind(g, op))->traits & IR_STATE_UPDATE)
        for (uint32_t i = 0; i < ir_op(g, op)->n_in; i++)
            if (ir_value(g, ir_in(g, op, i))->def == IR_DEF_STATE)
                f->after_state[ir_in(g, op, i).i] = f->round;
}

/* The run of ops that must move as one: a region formed before, or a single op. */
static uint32_t unit_length(const IrGraph *g, uint32_t at)
{
    IrRegion region = ir_op(g, g->order.at[at])->region;
    uint32_t n = 1;
    if (ir_in_kernel(g, g->order.at[at]))
        while (at + n < g->order.n && ir_op(g, g->order.at[at + n])->region.i == region.i)
            n++;
    return n;
}

static void scan_unit(Fuser *f, uint32_t at, uint32_t n)
{
    const IrGraph *g = f->g;
    bool after = false;
    for (uint32_t k = 0; k < n; k++) {
        after |= depends(f, g->order.at[at + k]);
        f->passed_gradient |= !ir_op(g, g->order.at[at + k])->re;
    }
    for (uint32_t k = 0; after && k < n; k++)
        put_after(f, g->order.at[at + k]);
}

static IrScope block_at(const IrGraph *g, uint32_t at)
{
    return ir_scope_block(g->m, ir_op(g, g->order.at[at])->scope);
}

/* Grows the group from the op at `start`; returns the position behind its last member. The window
 * ends with the block. */
static uint32_t grow(Fuser *f, uint32_t start)
{
    const IrGraph *g = f->g;
    uint32_t end = start + 1;
    f->round++;
    f->n = 0;
    f->passed_gradient = false;
    f->space = space_of(f, g->order.at[start]);
    join(f, g->order.at[start], f->space);
    IrScope block = block_at(g, start);
    for (uint32_t at = start + 1, n; at < g->order.n && at - start < WINDOW; at += n) {
        IrOp op = g->order.at[at];
        PassSpace space;
        if (block_at(g, at).i != block.i)
            break;
        n = unit_length(g, at);
        if (n == 1 && !depends_from_within(f, op) && may_join(f, op, &space)) {
            join(f, op, space);
            end = at + 1;
        } else {
            scan_unit(f, at, n);
        }
    }
    return end;
}

static void reorder(Fuser *f, uint32_t start, uint32_t end)
{
    IrGraph *g = f->g;
    IrOp moved[WINDOW];
    uint32_t n = 0;
    for (uint32_t pass = 0; pass < 3; pass++)
        for (uint32_t i = start; i < end; i++) {
            IrOp op = g->order.at[i];
            uint32_t place = f->member[op.i] == f->round ? 1 : f->after[op.i] == f->round ? 2 : 0;
            if (place == pass)
                moved[n++] = op;
        }
    memcpy(&g->order.at[start], moved, n * sizeof *moved);
}

static void make_region(Fuser *f)
{
    IrGraph *g = f->g;
    Session *s = g->m->s;
    IrRegionRec rec = {.kind = IR_REGION_KERNEL, .scope = ir_op(g, f->ops[0])->scope};
    rec.policy = intern_printf(&s->interner, "%s.k%u", g->name, g->regions.n);
    vec_push(s->arena, &g->regions, rec);
    for (uint32_t i = 0; i < f->n; i++)
        ir_op(g, f->ops[i])->region = (IrRegion){g->regions.n - 1};
    pass_stat(f->c, "regions", 1);
    pass_stat(f->c, "ops in them", f->n);
}

static Fuser fuser(PassContext *c, IrGraph *g, PassViews views)
{
    Fuser f = {.c = c, .g = g, .views = views, .uses = ir_uses(g, c->scratch)};
    for (uint32_t i = 0; i < g->order.n && !f.first_block.i; i++)
        f.first_block = ir_scope_block(g->m, ir_op(g, g->order.at[i])->scope);
    f.member = ARENA_ARRAY(c->scratch, uint32_t, g->ops.n);
    f.after = ARENA_ARRAY(c->scratch, uint32_t, g->ops.n);
    f.read = ARENA_ARRAY(c->scratch, uint32_t, g->values.n);
    f.member_state = ARENA_ARRAY(c->scratch, uint32_t, g->values.n);
    f.after_state = ARENA_ARRAY(c->scratch, uint32_t, g->values.n);
    return f;
}

void pass_fuse_rest(PassContext *c, IrGraph *g, PassViews views)
{
    Fuser f = fuser(c, g, views);
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        if (ir_in_kernel(g, op))
            continue;
        ir_op(g, op)->region = (IrRegion){0};
        if (!is_fusable(&f, op))
            continue;
        f.ops[0] = op;
        f.n = 1;
        make_region(&f);
    }
    for (uint32_t i = 1; i < g->regions.n; i++)
        if (g->regions.at[i].kind == IR_REGION_RECOMPUTE)
            g->regions.at[i].saves.n = 0;
    g->epoch++;
}

static void fuse_graph(PassContext *c, IrGraph *g, PassViews views)
{
    Fuser f = fuser(c, g, views);
    for (uint32_t i = 0; i < g->order.n;) {
        if (!is_fusable(&f, g->order.at[i])) {
            i++;
            continue;
        }
        uint32_t end = grow(&f, i);
        if (f.n == 1) {
            i++;
            continue;
        }
        reorder(&f, i, end);
        make_region(&f);
    }
    g->epoch++;
}

PassViews *pass_fuse_views(const IrModule *m, PassTarget target, Arena *arena)
{
    PassViews *views = ARENA_ARRAY(arena, PassViews, m->graphs.n);
    const IrGraph *fwd = ir_graph_find(m, "fwd"), *bwd = ir_graph_find(m, "bwd");
    if (fwd)
        views[fwd->index] = pass_views_local(fwd, NULL, NULL, bwd, target, arena);
    for (uint32_t i = 0; i < m->graphs.n; i++) {
        const IrGraph *g = m->graphs.at[i];
        const IrGraph *from = g == bwd ? fwd : NULL;
        if (g != fwd)
            views[g->index] =
                pass_views_local(g, from, from ? views[from->index] : NULL, NULL, target, arena);
    }
    return views;
}

Status pass_fuse(PassContext *c)
{
    PassViews *views = pass_fuse_views(c->m, c->options->target, c->scratch);
    for (uint32_t i = 0; i < c->m->graphs.n; i++) {
        fuse_graph(c, c->m->graphs.at[i], views[c->m->graphs.at[i]->index]);
        pass_fuse_rest(c, c->m->graphs.at[i], views[c->m->graphs.at[i]->index]);
    }
    return STATUS_OK;
}
