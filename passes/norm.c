#include "passes/norm.h"

#include "passes/step_states.h"
#include "passes/units.h"

int64_t norm_parts(const IrModule *m, IrType type)
{
    const IrTypeInfo *info = ir_type_info(m, type);
    for (uint32_t i = 0; i < info->rank; i++)
        for (uint32_t k = 0; k < info->dim[i].n; k++)
            if (info->dim[i].f[k].mesh == IR_MESH_TP && info->dim[i].f[k].parts > 1)
                return info->dim[i].f[k].parts;
    return 1;
}

IrValue norm_of_nothing(IrBuilder *b)
{
    IrModule *m = b->g->m;
    IrValue any = ir_graph_state(b->g, step_scalar(m, "eval_sum", DTYPE_F64)); /* no step's own */
    IrOpArgs args = {.kind = IR_OP_sum_scalars, .in = &any, .n_in = 1};
    args.name = sym(m->s, "norm_sq.none");
    args.attrs[0] = "factor";
    return ir_out(b->g, ir_build(b, &args), 0);
}

typedef struct Norm {
    PassContext *c;
    IrBuilder b;
    const NormItem *items;
    uint32_t n;
    Sym cut;
    IrValue *squares; /* by item */
} Norm;

/* The old norm's max_norm, and states; its ops are gone then. */
static IrOpArgs take_out(IrGraph *g, IrValue states[2])
{
    IrOpArgs args = {.kind = IR_OP_grad_norm, .attrs = {"max_norm"}};
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        if (ir_op_kind(g, op) == IR_OP_grad_norm) {
            states[0] = ir_in(g, op, 0);
            states[1] = ir_in(g, op, 1);
            args.values[0].f = ir_attr_f64(g, op, "max_norm");
        }
        bool nothing = ir_op_kind(g, op) == IR_OP_sum_scalars &&
                       ir_value(g, ir_in(g, op, 0))->def == IR_DEF_STATE;
        if (ir_op_kind(g, op) == IR_OP_grad_norm || ir_op_kind(g, op) == IR_OP_norm_sq || nothing)
            ir_op_remove(g, op);
    }
    ir_graph_compact(g);
    return args;
}

static void write_squares(Norm *x)
{
    for (uint32_t i = 0; i < x->n; i++) {
        const NormItem *item = &x->items[i];
        x->b.scope = item->scope;
        x->b.span = item->span;
        IrOpArgs args = {.kind = IR_OP_norm_sq, .in = &item->grad, .n_in = 1};
        args.name = intern_printf(&x->c->s->interner, "%s.norm_sq", item->name);
        if (item->end) {
            args.attrs[0] = "comm";
            args.values[0].sym = x->cut;
            args.attrs[1] = "begin";
            args.values[1].i = item->begin;
            args.attrs[2] = "end";
            args.values[2].i = item->end;
        }
        x->squares[i] = ir_out(x->b.g, ir_build(&x->b, &args), 0);
    }
    x->b.scope = (IrScope){1};
    x->b.span = (Span){0};
}

static IrValue sum(Norm *x, const IrValue *in, uint32_t n, double factor, const char *name)
{
    IrOpArgs args = {.kind = IR_OP_sum_scalars, .in = in, .n_in = n, .name = sym(x->c->s, name)};
    args.attrs[0] = "factor";
    args.values[0].f = factor;
    return ir_out(x->b.g, ir_build(&x->b, &args), 0);
}

static IrValue sum_over(Norm *x, IrValue v, Sym comm, int64_t ranks, const char *name)
{
    IrOpArgs args = {.kind = IR_OP_all_reduce, .in = &v, .n_in = 1, .name = sym(x->c->s, name)};
    args.out[0] = ir_value_type(x->b.g, v);
    flat_give_comm(&args, comm, ranks);
    return ir_out(x->b.g, ir_build(&x->b, &args), 0);
}

/* What tp divides, summed over its ranks: a part that several ranks have counts that many times
 * less. {0}: nothing. */
static IrValue sum_divided(Norm *x, IrValue *scratch)
{
    int64_t tp = x->c->m->mesh.tp, done = 1;
    IrValue *sums = ARENA_ARRAY(x->c->scratch, IrValue, x->n + 1);
    uint32_t n_sums = 0;
    for (;;) {
        int64_t parts = INT64_MAX;
        uint32_t n = 0;
        for (uint32_t i = 0; i < x->n; i++)
            if (x->items[i].parts > done && x->items[i].parts < parts)
                parts = x->items[i].parts;
        for (uint32_t i = 0; i < x->n; i++)
            if (x->items[i].parts == parts)
                scratch[n++] = x->squares[i];
        if (!n)
            break;
        sums[n_sums++] = sum(x, scratch, n, (double)parts / (double)tp, "norm_sq.divided");
        done = parts;
    }
    if (!n_sums)
        return (IrValue){0};
    IrValue all = n_sums > 1 ? sum(x, sums, n_sums, 1, "norm_sq.mine") : sums[0];
    return sum_over(x, all, sym(x->c->s, "tp"), tp, "norm_sq.tp");
}

void norm_write(PassContext *c, IrGraph *update, uint32_t at, const NormItem *items, uint32_t n,
                Sym cut, int64_t ranks)
{
    Norm x = {.c = c, .items = items, .n = n, .cut = cut};
    IrValue states[2] = {{0}}, *in = ARENA_ARRAY(c->scratch, IrValue, n + 3),
            *scratch = ARENA_ARRAY(c->scratch, IrValue, n);
    IrOpArgs args = take_out(update, states);
    x.b = ir_builder(update);
    x.b.at = at;
    x.squares = ARENA_ARRAY(c->scratch, IrValue, n);
    write_squares(&x);
    IrValue divided = sum_divided(&x, scratch);
    uint32_t n_in = 2;
    in[0] = states[0];
    in[1] = states[1];
    for (uint32_t i = 0; i < n; i++)
        if (items[i].parts == 1)
            in[n_in++] = x.squares[i];
    if (divided.i)
        in[n_in++] = divided;
    if (n_in == 2)
        in[n_in++] = norm_of_nothing(&x.b);
    if (cut) {
        IrValue share = sum(&x, in + 2, n_in - 2, 1, "norm_sq.share");
        in[2] = sum_over(&x, share, cut, ranks, "norm_sq.sum");
        n_in = 3;
    }
    args.in = in;
    args.n_in = n_in;
    ir_build(&x.b, &args);
}
