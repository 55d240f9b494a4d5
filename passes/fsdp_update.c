#include "passes/fsdp.h"
#include "passes/norm.h"

#include <string.h>

/* -- loss and counts -- */

static IrValue state_value(IrGraph *g, const char *name)
{
    return ir_graph_state(g, ir_state_find(g->m, sym(g->m->s, name)));
}

static void sum_state(const Fsdp *x, IrGraph *g, uint32_t at, IrValue state)
{
    IrBuilder b = ir_builder(g);
    b.at = at;
    b.scope = (IrScope){1};
    IrOpArgs args = {.kind = IR_OP_all_reduce_state, .in = &state, .n_in = 1};
    flat_give_comm(&args, flat_data_axes(x->c), flat_data_ranks(x->c));
    ir_build(&b, &args);
}

/* The targets of all ranks, once those of all micro-batches are counted: their inverse seeds
 * every backward pass. */
static void write_count(Fsdp *x)
{
    IrGraph *g = ir_graph_new(x->c->m, sym(x->c->s, "count"));
    IrValue count = state_value(g, "count");
    IrValue in[] = {state_value(g, "inverse"), count};
    sum_state(x, g, UINT32_MAX, count);
    IrBuilder b = ir_builder(g);
    b.scope = (IrScope){1};
    ir_build(&b, &(IrOpArgs){.kind = IR_OP_invert_count, .in = in, .n_in = 2});
}

static void sum_eval(Fsdp *x, IrGraph *g)
{
    uint32_t at = pass_find_op(g, IR_OP_accumulate);
    if (at == g->order.n)
        return; /* another stage of a pipeline has the loss */
    IrOp op = g->order.at[at];
    IrValue loss = ir_in(g, op, 1);
    IrBuilder b = ir_builder(g);
    b.at = at;
    b.scope = (IrScope){1};
    b.span = ir_value(g, loss)->span;
    IrValue v =
        fsdp_collective(&b, IR_OP_all_reduce, loss, sym(x->c->s, "loss.sum"),
                        ir_value_type(g, loss), flat_data_axes(x->c), flat_data_ranks(x->c));
    ir_set_in(g, op, 1, v);
}

void fsdp_sum_scalars(Fsdp *x)
{
    IrGraph *update = ir_graph_find(x->c->m, "update"), *eval = ir_graph_find(x->c->m, "eval");
    write_count(x);
    sum_state(x, update, pass_find_op(update, IR_OP_loss_mean), state_value(update, "loss_sum"));
    if (eval)
        sum_eval(x, eval);
}

/* -- norm -- */

/* The unit's gradient as @update has it: summed over the ranks, this rank's part. */
static IrValue unit_grad(Fsdp *x, IrGraph *g, const FlatUnit *u)
{
    const IrGraph *bwd = ir_graph_find(x->c->m, "bwd");
    if (u->acc.i && x->grads)
        return ir_graph_state(g, u->acc);
    if (u->acc.i) { /* whole, of all micro-batches */
        IrValue acc = ir_graph_state(g, u->acc);
        IrBuilder b = fsdp_builder(g, u, 0);
        b.serves = IR_SERVES_WEIGHT;
        return fsdp_sum_grad(x, &b, u, acc, ir_type_info(x->c->m, ir_value_type(g, acc))->dtype);
    }
    IrValue v = ir_value_find(bwd, fsdp_grad_name(x, u));
    return ir_graph_param(g, ir_value(bwd, v)->name, ir_value_type(bwd, v), u->span);
}

static void drop_params(IrGraph *g)
{
    for (uint32_t i = 0; i < g->params.n; i++)
        map_put(&g->names, map_key(ir_value(g, g->params.at[i])->name), 0);
    g->params.n = 0;
}

/* Gradients that are summed in @update are summed first. */
static uint32_t behind_sums(const IrGraph *g)
{
    uint32_t at = 0;
    while (at < g->order.n && ir_op_info(ir_op_kind(g, g->order.at[at]))->traits & IR_COLLECTIVE)
        at++;
    return at;
}

/* Runs of members that tp divides into equally many parts. */
static void norm_items(Fsdp *x, const FlatUnit *u, IrValue grad, NormItem *items, uint32_t *n)
{
    IrModule *m = x->c->m;
    for (uint32_t first = 0, i = 0; i < u->members.n; i++) {
        int64_t parts = norm_parts(m, ir_state_rec(m, u->members.at[first].param)->type);
        if (i + 1 < u->members.n &&
            norm_parts(m, ir_state_rec(m, u->members.at[i + 1].param)->type) == parts)
            continue;
        NormItem item = {
            .grad = grad, .name = u->name, .parts = parts, .scope = u->scope, .span = u->span};
        if (first || i + 1 < u->members.n) {
            item.begin = u->members.at[first].begin;
            item.end = i + 1 < u->members.n ? u->members.at[i + 1].begin : u->numel;
        }
        items[(*n)++] = item;
        first = i + 1;
    }
}

static void rewrite_norm(Fsdp *x, IrGraph *g, IrValue *grads)
{
    NormItem *items = ARENA_ARRAY(x->c->scratch, NormItem, x->f.n_states);
    uint32_t n = 0;
    for (uint32_t i = 0; i < x->f.units.n; i++)
        if (x->f.units.at[i].trained)
            norm_items(x, &x->f.units.at[i], grads[i], items, &n);
    norm_write(x->c, g, behind_sums(g), items, n, x->cut, x->ranks);
}

/* -- optimizer -- */

static IrValue companion(const Fsdp *x, IrGraph *g, const FlatUnit *u, const char *suffix)
{
    IrState state =
        ir_state_find(x->c->m, intern_printf(&x->c->s->interner, "%s.%s", u->name, suffix));
    return state.i ? ir_graph_state(g, state) : (IrValue){0};
}

/* One op as its members' were, over [begin, end) of the flat buffer; all of it where all members
 * are alike. */
static void write_update(Fsdp *x, IrBuilder *b, const FlatUnit *u, IrValue grad, uint32_t first,
                         uint32_t last)
{
    IrGraph *g = b->g;
    IrOp like = u->members.at[first].update;
    IrOpKind kind = ir_op_kind(g, like);
    const IrOpInfo *info = ir_op_info(kind);
    bool all = first == 0 && last + 1 == u->members.n;
    IrValue w = ir_graph_state(g, u->param), master = companion(x, g, u, "master");
    IrValue m = companion(x, g, u, "exp_avg"), v = companion(x, g, u, "exp_avg_sq");
    uint32_t scalars = ir_op(g, like)->n_in - 3;
    IrValue coef = ir_in(g, like, scalars), lr = ir_in(g, like, scalars + 1),
            step = ir_in(g, like, scalars + 2);
    IrOpArgs args = {.kind = kind};
    args.n_in = kind == IR_OP_sgd ? 7 : 8;
    args.in = kind == IR_OP_sgd ? (IrValue[]){w, grad, m, master, coef, lr, step}
                                : (IrValue[]){w, grad, m, v, master, coef, lr, step};
    for (uint32_t i = 0; i < info->n_attr; i++) {
        args.attrs[i] = info->attr[i].name;
        args.values[i] = *ir_attr_at(g, like, info->attr[i].name);
        if (!strcmp(info->attr[i].name, "comm"))
            args.values[i].sym = x->cut;
        else if (!strcmp(info->attr[i].name, "begin"))
            args.values[i].i = u->members.at[first].begin;
        else if (!strcmp(info->attr[i].name, "end"))
            args.values[i].i = all                       ? 0
                               : last + 1 < u->members.n ? u->members.at[last + 1].begin
                                                         : u->numel;
    }
    ir_build(b, &args);
}

/* Where every rank keeps all weights, each has updated its part of them. */
static void gather_updated(Fsdp *x, IrBuilder *b, const FlatUnit *u)
{
    IrValue w = ir_graph_state(b->g, u->param);
    IrOpArgs args = {.kind = IR_OP_all_gather_state, .in = &w, .n_in = 1};
    flat_give_comm(&args, x->cut, x->ranks);
    ir_build(b, &args);
    pass_stat(x->c, "gathers of updated weights", 1);
}

static void write_updates(Fsdp *x, IrBuilder *b, const FlatUnit *u, IrValue grad)
{
    IrGraph *g = b->g;
    b->scope = u->scope;
    b->span = u->span;
    for (uint32_t first = 0, i = 0; i < u->members.n; i++) {
        bool more =
            i + 1 < u->members.n && ir_attr_f64(g, u->members.at[i + 1].update, "decay") ==
                                        ir_attr_f64(g, u->members.at[first].update, "decay");
        if (more)
            continue;
        write_update(x, b, u, grad, first, i);
        first = i + 1;
    }
    if (!x->weights)
        gather_updated(x, b, u);
}

void fsdp_rewrite_update(Fsdp *x)
{
    IrGraph *g = ir_graph_find(x->c->m, "update");
    if (!x->moments)
        return;
    IrValue *grads = ARENA_ARRAY(x->c->scratch, IrValue, x->f.units.n);
    drop_params(g);
    for (uint32_t i = 0; i < x->f.units.n; i++)
        if (x->f.units.at[i].trained)
            grads[i] = unit_grad(x, g, &x->f.units.at[i]);
    rewrite_norm(x, g, grads);
    IrBuilder b = ir_builder(g);
    b.at = pass_find_op(g, IR_OP_loss_mean);
    uint32_t old = pass_find_op(g, IR_OP_grad_norm) + 1, n_old = b.at - old;
    for (uint32_t i = 0; i < x->f.units.n; i++)
        if (x->f.units.at[i].trained)
            write_updates(x, &b, &x->f.units.at[i], grads[i]);
    for (uint32_t i = old; i < old + n_old; i++)
        ir_op_remove(g, g->order.at[i]);
    ir_graph_compact(g);
}
