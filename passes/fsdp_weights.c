#include "passes/fsdp.h"

#include "passes/step_states.h"

/* -- states -- */

static IrState add_flat(Fsdp *x, const FlatUnit *u, IrStateRec rec, const char *suffix, DType dtype,
                        bool cut)
{
    IrModule *m = x->c->m;
    rec.name = *suffix ? intern_printf(&x->c->s->interner, "%s.%s", u->name, suffix) : u->name;
    rec.type = flat_type(m, dtype, cut ? u->numel / x->ranks : u->numel);
    rec.first_piece = u->first_piece;
    rec.n_pieces = u->members.n;
    rec.cut = cut ? x->cut : NULL;
    rec.scope = u->scope;
    rec.span = u->span;
    return ir_state_add(m, rec);
}

/* What the unit's first trained member has beside its weights, all of them have. */
static void add_companions(Fsdp *x, FlatUnit *u)
{
    static const char *const suffixes[] = {"master", "exp_avg", "exp_avg_sq", "acc"};
    IrModule *m = x->c->m;
    for (uint32_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        Sym param = ir_state_rec(m, u->members.at[0].param)->name;
        IrState old =
            ir_state_find(m, intern_printf(&x->c->s->interner, "%s.%s", param, suffixes[i]));
        if (!old.i)
            continue;
        const IrStateRec rec = *ir_state_rec(m, old);
        DType dtype = ir_type_info(m, rec.type)->dtype;
        bool is_acc = rec.kind == IR_STATE_ACC;
        IrState flat = add_flat(x, u, (IrStateRec){.kind = rec.kind, .of = u->param}, suffixes[i],
                                dtype, !is_acc || x->grads);
        if (is_acc)
            u->acc = flat;
    }
}

void fsdp_make_states(Fsdp *x)
{
    IrModule *m = x->c->m;
    for (uint32_t i = 0; i < x->f.units.n; i++) {
        FlatUnit *u = &x->f.units.at[i];
        DType dtype = ir_type_info(m, ir_state_rec(m, u->members.at[0].param)->type)->dtype;
        IrStateRec rec = {.kind = IR_STATE_PARAM, .trainable = u->trained};
        u->param = add_flat(x, u, rec, "", dtype, x->weights);
        if (u->trained)
            add_companions(x, u);
    }
}

/* -- weights -- */

typedef struct Gathers { /* one graph */
    Fsdp *x;
    IrGraph *g;
    bool *used;         /* by state: does the graph read it? */
    IrValue *piece;     /* by state: what stands for it now; {0}: its unit is not gathered */
    uint32_t *last_use; /* by unit: how many units had been gathered when it was last read */
    IrValue *flat;      /* by unit: the buffer that was gathered last */
    uint32_t n_gathers;
} Gathers;

static void find_used(Gathers *w)
{
    for (uint32_t i = 0; i < w->g->order.n; i++)
        for (uint32_t k = 0; k < ir_op(w->g, w->g->order.at[i])->n_in; k++) {
            const IrValueRec *rec = ir_value(w->g, ir_in(w->g, w->g->order.at[i], k));
            if (rec->def == IR_DEF_STATE)
                w->used[rec->state.i] = true;
        }
}

/* The unit's weights, whole: gathered, or as they lie. */
static IrValue whole(Gathers *w, IrBuilder *b, const FlatUnit *u)
{
    IrModule *m = w->x->c->m;
    IrValue shard = ir_graph_state(w->g, u->param);
    if (!w->x->weights)
        return shard;
    IrType type = flat_type(m, ir_type_info(m, ir_value_type(w->g, shard))->dtype, u->numel);
    Sym name = intern_printf(&m->s->interner, "%s.whole", u->name);
    pass_stat(w->x->c, "gathers", 1);
    return fsdp_collective(b, IR_OP_all_gather, shard, name, type, w->x->cut, w->x->ranks);
}

/* What is whole when the forward pass ends need not be gathered for what the backward pass begins
 * with. */
static IrValue kept_whole(Gathers *w, const FlatUnit *u)
{
    Fsdp *x = w->x;
    IrValue from = x->kept ? x->kept[u - x->f.units.at] : (IrValue){0};
    IrGraph *fwd = ir_graph_find(x->c->m, "fwd");
    if (!from.i || w->g != ir_graph_find(x->c->m, "bwd") || w->n_gathers)
        return (IrValue){0};
    const IrValueRec rec = *ir_value(fwd, from);
    vec_push(x->c->s->arena, &fwd->results, from);
    pass_stat(x->c, "gathered once for both passes", 1);
    return ir_graph_param(w->g, rec.name, rec.type, rec.span);
}

/* Units that were read since the last gather, outside every region. */
static void keep_last(Gathers *w)
{
    Fsdp *x = w->x;
    if (!x->weights || w->g != ir_graph_find(x->c->m, "fwd"))
        return;
    x->kept = ARENA_ARRAY(x->c->scratch, IrValue, x->f.units.n);
    for (uint32_t i = 0; i < x->f.units.n; i++) {
        IrValue v = w->flat[i];
        if (v.i && w->last_use[i] == w->n_gathers &&
            !ir_op(w->g, ir_value(w->g, v)->op)->region.i &&
            !ir_scope_block(w->g->m, x->f.units.at[i].scope).i)
            x->kept[i] = v;
    }
}

/* In front of the op at `at`; returns how many ops that were. */
static uint32_t gather(Gathers *w, FlatUnit *u, uint32_t at)
{
    IrModule *m = w->x->c->m;
    uint32_t before = w->g->order.n;
    IrBuilder b = fsdp_builder(w->g, u, at);
    b.region = ir_op(w->g, w->g->order.at[at])->region;
    IrValue flat = kept_whole(w, u);
    bool kept = flat.i;
    if (!kept)
        flat = whole(w, &b, u);
    w->flat[u - w->x->f.units.at] = flat;
    for (uint32_t i = 0; i < u->members.n; i++) {
        const FlatMember *member = &u->members.at[i];
        const IrStateRec *rec = ir_state_rec(m, member->param);
        if (!w->used[member->param.i])
            continue;
        b.span = rec->span;
        w->piece[member->param.i] = fsdp_piece(&b, flat, member, rec->name, rec->type);
    }
    w->n_gathers += !kept;
    return w->g->order.n - before;
}

/* A unit that others have been gathered since is taken to be gone. */
static uint32_t read_unit(Gathers *w, IrState state, uint32_t at)
{
    enum { KEPT = 1 };
    uint32_t unit = w->x->f.unit_of[state.i] - 1, added = 0;
    bool stale = w->x->weights && w->n_gathers > w->last_use[unit] + KEPT;
    if (!w->piece[state.i].i || stale)
        added = gather(w, &w->x->f.units.at[unit], at);
    w->last_use[unit] = w->n_gathers;
    return added;
}

/* -- tables that are looked up where their rows live -- */

typedef struct Lookup {
    Fsdp *x;
    IrGraph *g;
    IrBuilder b;
    IrOp op;
    const FlatUnit *u;
} Lookup;

static int64_t numel(const IrGraph *g, IrValue v)
{
    return ir_type_numel(g->m, ir_value_type(g, v));
}

/* A table's shards must be whole rows; and moving all ranks' rows must cost less than moving the
 * table. */
static bool is_cheaper(const Fsdp *x, const IrGraph *g, IrOp op)
{
    const IrValueRec *rec = ir_value(g, ir_in(g, op, 0));
    if (!x->weights || ir_op_kind(g, op) != IR_OP_embed || rec->def != IR_DEF_STATE ||
        ir_op(g, op)->re || ir_op(g, op)->region.i || !fsdp_unit(x, rec->state))
        return false;
    const FlatUnit *u = fsdp_unit(x, rec->state);
    const IrTypeInfo *table = ir_type_info(g->m, rec->type);
    int64_t rows = ir_dim_size(&table->dim[0]), whole = ir_type_numel(g->m, rec->type);
    return u->members.n == 1 && u->numel == whole && rows % x->ranks == 0 &&
           2 * x->ranks * numel(g, ir_out(g, op, 0)) < whole;
}

static IrValue lookup_collective(Lookup *l, IrOpKind kind, IrValue in, const char *suffix,
                                 IrType out)
{
    Sym of = ir_value(l->g, ir_out(l->g, l->op, 0))->name;
    Sym name = suffix ? intern_printf(&l->x->c->s->interner, "%s.%s", of, suffix) : of;
    return fsdp_collective(&l->b, kind, in, name, out, l->x->cut, l->x->ranks);
}

/* All ranks' ids, looked up among this rank's rows; each rank gets the sum of what was found for
 * its own. */
static uint32_t look_up(Fsdp *x, IrGraph *g, uint32_t at)
{
    IrOp op = g->order.at[at];
    IrModule *m = g->m;
    uint32_t before = g->order.n;
    IrState state = ir_value(g, ir_in(g, op, 0))->state;
    Lookup l = {.x = x, .g = g, .op = op, .u = fsdp_unit(x, state)};
    const IrTypeInfo *table = ir_type_info(m, ir_state_rec(m, state)->type);
    IrTypeInfo part = {.dtype = table->dtype, .rank = 2};
    part.dim[0] = ir_dim_number(ir_dim_size(&table->dim[0]) / x->ranks);
    part.dim[1] = table->dim[1];
    IrAttr padding = *ir_attr_at(g, op, "padding");
    IrAttr total = {.i = ir_dim_size(&table->dim[0])};
    IrValue ids = ir_in(g, op, 1), old = ir_out(g, op, 0);
    l.b = fsdp_builder(g, l.u, at + 1);
    l.b.scope = ir_op(g, op)->scope;
    l.b.span = ir_op(g, op)->span;
    IrValue rows = fsdp_piece(&l.b, ir_graph_state(g, l.u->param), &l.u->members.at[0],
                              ir_state_rec(m, state)->name, ir_type(m, &part));
    IrType all =
        flat_type(m, ir_type_info(m, ir_value_type(g, ids))->dtype, x->ranks * numel(g, ids));
    IrOpArgs args = {.kind = IR_OP_embed_part, .n_in = 2};
    args.in = (IrValue[]){rows, lookup_collective(&l, IR_OP_all_gather, ids, "ids", all)};
    args.name = intern_printf(&m->s->interner, "%s.found", ir_value(g, old)->name);
    args.attrs[0] = "padding";
    args.values[0] = padding;
    args.attrs[1] = "comm";
    args.values[1].sym = x->cut;
    args.attrs[2] = "total";
    args.values[2] = total;
    IrValue found = ir_out(g, ir_build(&l.b, &args), 0);
    ir_op_remove(g, op);
    IrValue y = lookup_collective(&l, IR_OP_reduce_scatter, found, NULL, ir_value_type(g, old));
    ir_replace_uses(g, old, y);
    pass_stat(x->c, "tables looked up where their rows live", 1);
    return g->order.n - before;
}

void fsdp_gather_weights(Fsdp *x, IrGraph *g)
{
    uint32_t n = x->c->m->states.n;
    Gathers w = {.x = x, .g = g};
    w.used = ARENA_ARRAY(x->c->scratch, bool, n);
    w.piece = ARENA_ARRAY(x->c->scratch, IrValue, n);
    w.last_use = ARENA_ARRAY(x->c->scratch, uint32_t, x->f.units.n);
    w.flat = ARENA_ARRAY(x->c->scratch, IrValue, x->f.units.n);
    find_used(&w);
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        if (is_cheaper(x, g, op)) {
            i += look_up(x, g, i);
            continue;
        }
        for (uint32_t k = 0; k < ir_op(g, op)->n_in; k++) {
            const IrValueRec *rec = ir_value(g, ir_in(g, op, k));
            IrState state = rec->state;
            if (rec->def != IR_DEF_STATE || !fsdp_unit(x, state) ||
                ir_state_rec(g->m, state)->n_pieces)
                continue;
            i += read_unit(&w, state, i);
            ir_set_in(g, op, k, w.piece[state.i]);
        }
    }
    ir_graph_compact(g);
    keep_last(&w);
}
