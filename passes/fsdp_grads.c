#include "passes/fsdp.h"

/* A member's gradient in @bwd is its result `NAME.grad`, or with several micro-batches what is
 * added to `$NAME.acc`. */
typedef struct Grads {
    Fsdp *x;
    IrGraph *bwd;
    bool accumulates;
    Map unit_of;      /* result's name, or accumulator's -> 1 + unit */
    IrValue **of;     /* by unit and member: its gradient */
    uint32_t *missing; /* by unit: members whose gradient has not come yet */
} Grads;

static void expect(Grads *w)
{
    Session *s = w->x->c->s;
    const FlatUnits *f = &w->x->f;
    w->of = ARENA_ARRAY(w->x->c->scratch, IrValue *, f->units.n);
    w->missing = ARENA_ARRAY(w->x->c->scratch, uint32_t, f->units.n);
    for (uint32_t i = 0; i < f->units.n; i++) {
        const FlatUnit *u = &f->units.at[i];
        w->of[i] = ARENA_ARRAY(w->x->c->scratch, IrValue, u->members.n);
        w->missing[i] = u->members.n;
        for (uint32_t k = 0; u->trained && k < u->members.n; k++) {
            Sym param = ir_state_rec(w->x->c->m, u->members.at[k].param)->name;
            Sym name = intern_printf(&s->interner, w->accumulates ? "%s.acc" : "%s.grad", param);
            map_put(&w->unit_of, map_key(name), (uint64_t)i << 32 | k);
        }
    }
}

static bool is_result(const IrGraph *g, IrValue v)
{
    for (uint32_t i = 0; i < g->results.n; i++)
        if (g->results.at[i].i == v.i)
            return true;
    return false;
}

static bool is_acc(const IrGraph *g, IrOp op)
{
    const IrValueRec *rec = ir_value(g, ir_in(g, op, 0));
    return ir_op_kind(g, op) == IR_OP_accumulate && rec->def == IR_DEF_STATE &&
           ir_state_rec(g->m, rec->state)->kind == IR_STATE_ACC;
}

static IrValue pack(Grads *w, IrBuilder *b, uint32_t unit)
{
    const FlatUnit *u = &w->x->f.units.at[unit];
    IrModule *m = w->x->c->m;
    DType dtype = ir_type_info(m, ir_value_type(b->g, w->of[unit][0]))->dtype;
    IrOpArgs args = {.kind = IR_OP_flat_pack, .in = w->of[unit], .n_in = u->members.n};
    args.name = intern_printf(&m->s->interner, "%s.grads", u->name);
    args.out[0] = flat_type(m, dtype, u->numel);
    return ir_out(b->g, ir_build(b, &args), 0);
}

/* Summed over all ranks, each with its part or with all of it. */
IrValue fsdp_sum_grad(Fsdp *x, IrBuilder *b, const FlatUnit *u, IrValue flat, DType dtype)
{
    IrModule *m = x->c->m;
    pass_stat(x->c, "reductions of gradients", 1);
    if (!x->moments)
        return fsdp_collective(b, IR_OP_all_reduce, flat, fsdp_grad_name(x, u),
                               flat_type(m, dtype, u->numel), flat_data_axes(x->c),
                               flat_data_ranks(x->c));
    /* the sum over groups rounds to `dtype`, the one before it does not */
    bool groups = m->mesh.dpr > 1;
    DType first = groups && dtype != DTYPE_F64 ? DTYPE_F32 : dtype;
    Sym name = fsdp_grad_name(x, u);
    IrValue v = fsdp_collective(b, IR_OP_reduce_scatter, flat,
                                groups ? intern_printf(&m->s->interner, "%s.share", name) : name,
                                flat_type(m, first, u->numel / x->ranks), x->cut, x->ranks);
    if (groups)
        v = fsdp_collective(b, IR_OP_all_reduce, v, name, flat_type(m, dtype, u->numel / x->ranks),
                            sym(x->c->s, "dpr"), m->mesh.dpr);
    return v;
}

/* ddp: every member's gradient under its old name. */
static void hand_out(Grads *w, IrBuilder *b, uint32_t unit, IrValue flat)
{
    const FlatUnit *u = &w->x->f.units.at[unit];
    IrGraph *g = b->g;
    for (uint32_t k = 0; k < u->members.n; k++) {
        IrValue old = w->of[unit][k];
        Sym name = ir_value(g, old)->name;
        Sym local = intern_printf(&w->x->c->s->interner, "%s.local", name);
        ir_value_rename(g, old, ir_value_fresh_name(g, local));
        IrValue v = fsdp_piece(b, flat, &u->members.at[k], name, ir_value_type(g, old));
        for (uint32_t i = 0; i < g->results.n; i++)
            if (g->results.at[i].i == old.i)
                g->results.at[i] = v;
    }
}

static void drop_results(Grads *w, uint32_t unit)
{
    IrGraph *g = w->bwd;
    const FlatUnit *u = &w->x->f.units.at[unit];
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->results.n; i++) {
        bool gone = false;
        for (uint32_t k = 0; k < u->members.n; k++)
            gone |= w->of[unit][k].i == g->results.at[i].i;
        if (!gone)
            g->results.at[n++] = g->results.at[i];
    }
    g->results.n = n;
}

/* The unit's last gradient is there: behind the op at `at`. Returns how many ops it took. */
static uint32_t finish(Grads *w, uint32_t unit, uint32_t at)
{
    Fsdp *x = w->x;
    FlatUnit *u = &x->f.units.at[unit];
    uint32_t before = w->bwd->order.n;
    IrBuilder b = fsdp_builder(w->bwd, u, at + 1);
    b.serves = IR_SERVES_WEIGHT;
    IrValue flat = pack(w, &b, unit);
    DType dtype = ir_type_info(x->c->m, ir_value_type(w->bwd, flat))->dtype;
    if (w->accumulates) {
        IrValue acc = ir_graph_state(w->bwd, u->acc);
        if (x->grads)
            flat = fsdp_sum_grad(x, &b, u, flat,
                                 ir_type_info(x->c->m, ir_value_type(w->bwd, acc))->dtype);
        ir_build(&b,
                 &(IrOpArgs){.kind = IR_OP_accumulate, .in = (IrValue[]){acc, flat}, .n_in = 2});
        return w->bwd->order.n - before;
    }
    flat = fsdp_sum_grad(x, &b, u, flat, dtype);
    if (x->moments) {
        drop_results(w, unit);
        vec_push(x->c->s->arena, &w->bwd->results, flat);
    } else {
        hand_out(w, &b, unit, flat);
    }
    return w->bwd->order.n - before;
}

static uint32_t take(Grads *w, IrValue grad, Sym key, uint32_t at)
{
    uint64_t found;
    if (!map_get(&w->unit_of, map_key(key), &found))
        return 0;
    uint32_t unit = (uint32_t)(found >> 32);
    w->of[unit][found & UINT32_MAX] = grad;
    return --w->missing[unit] ? 0 : finish(w, unit, at);
}

static void walk(Grads *w)
{
    IrGraph *g = w->bwd;
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        const IrOpRec rec = *ir_op(g, op);
        if (w->accumulates && is_acc(g, op)) {
            IrValue grad = ir_in(g, op, 1);
            Sym key = ir_value(g, ir_in(g, op, 0))->name;
            ir_op_remove(g, op);
            i += take(w, grad, key, i);
            continue;
        }
        for (uint32_t r = 0; !w->accumulates && r < rec.n_out; r++) {
            IrValue v = {rec.first_out + r};
            if (is_result(g, v))
                i += take(w, v, ir_value(g, v)->name, i);
        }
    }
    ir_graph_compact(g);
}

/* ddp with several micro-batches sums the accumulators, once, where @update begins. */
static void sum_accumulators(Grads *w)
{
    Fsdp *x = w->x;
    IrGraph *g = ir_graph_find(x->c->m, "update");
    uint32_t at = 0;
    for (uint32_t i = 0; i < x->f.units.n; i++) {
        FlatUnit *u = &x->f.units.at[i];
        if (!u->trained)
            continue;
        IrBuilder b = fsdp_builder(g, u, at);
        b.serves = IR_SERVES_WEIGHT;
        for (uint32_t k = 0; k < u->members.n; k++) {
            Sym name = ir_state_rec(x->c->m, u->members.at[k].param)->name;
            name = intern_printf(&x->c->s->interner, "%s.acc", name);
            w->of[i][k] = ir_graph_state(g, ir_state_find(x->c->m, name));
        }
        IrValue flat = pack(w, &b, i);
        uint32_t packed = b.at;
        DType dtype = ir_type_info(x->c->m, ir_value_type(g, flat))->dtype;
        flat = fsdp_sum_grad(x, &b, u, flat, dtype);
        for (uint32_t k = 0; k < u->members.n; k++) {
            IrValue acc = w->of[i][k];
            Sym name = intern_printf(&x->c->s->interner, "%s.sum", ir_value(g, acc)->name);
            IrValue v = fsdp_piece(&b, flat, &u->members.at[k], name, ir_value_type(g, acc));
            for (uint32_t n = packed; n < g->order.n; n++)
                for (uint32_t j = 0; j < ir_op(g, g->order.at[n])->n_in; j++)
                    if (ir_in(g, g->order.at[n], j).i == acc.i)
                        ir_set_in(g, g->order.at[n], j, v);
        }
        at = b.at;
    }
}

void fsdp_reduce_grads(Fsdp *x)
{
    Grads w = {.x = x, .bwd = ir_graph_find(x->c->m, "bwd")};
    w.accumulates = x->c->options->micro_batches > 1;
    map_init(&w.unit_of, x->c->scratch);
    expect(&w);
    if (w.accumulates && !x->moments)
        sum_accumulators(&w);
    else
        walk(&w);
}
