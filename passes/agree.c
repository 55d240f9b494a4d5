/* agree: what the stages of a pipeline must have in common, in @update and @eval: the gradients of
 * parameters that several of them hold, the norm over all gradients, the loss that the last one
 * has made. All of it stands in front of the first update, in one order on all stages. */
#include "passes/norm.h"
#include "passes/units.h"

typedef struct Agree {
    PassContext *c;
    IrGraph *g; /* @update */
    IrBuilder b;
} Agree;

static bool is_optimizer(const IrGraph *g, IrOp op)
{
    return ir_op_kind(g, op) == IR_OP_adamw || ir_op_kind(g, op) == IR_OP_sgd;
}

static IrValue sum_over(Agree *a, IrValue v, Sym name, Sym comm, int64_t ranks)
{
    IrOpArgs args = {.kind = IR_OP_all_reduce, .in = &v, .n_in = 1, .name = name};
    args.out[0] = ir_value_type(a->b.g, v);
    flat_give_comm(&args, comm, ranks);
    return ir_out(a->b.g, ir_build(&a->b, &args), 0);
}

/* -- parameters that several stages hold -- */

/* The parameter itself, or the only piece of the flat state that it has become. */
static bool is_of(const IrModule *m, IrState state, Sym name)
{
    const IrStateRec *rec = ir_state_rec(m, state);
    return rec->n_pieces ? rec->n_pieces == 1 && m->pieces.at[rec->first_piece].name == name
                         : rec->name == name;
}

/* The gradient as the optimizer reads it; {0}: it is not trained. */
static IrValue gradient_of(const Agree *a, Sym name)
{
    const IrGraph *g = a->g;
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        if (is_optimizer(g, op) && is_of(g->m, ir_value(g, ir_in(g, op, 0))->state, name))
            return ir_in(g, op, 1);
    }
    return (IrValue){0};
}

/* Takes an operand out of a sum of parts. */
static void drop_part(IrGraph *g, IrValue part)
{
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOpRec *rec = ir_op(g, g->order.at[i]);
        uint32_t n = 0;
        for (uint32_t k = 0; k < rec->n_in; k++)
            if (g->operands.at[rec->first_in + k].i != part.i)
                g->operands.at[rec->first_in + n++] = g->operands.at[rec->first_in + k];
        rec->n_in = n;
    }
    g->epoch++;
}

/* Nothing else is left of a sum: a factor of 0 makes it one of nothing. */
static void keep_sum(IrGraph *g, IrOp op)
{
    if (ir_op_kind(g, op) == IR_OP_sum_scalars)
        ir_attr_at(g, op, "factor")->f = 0;
}

static void count_elsewhere(IrGraph *g, IrValue grad)
{
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        if (ir_op_kind(g, op) != IR_OP_norm_sq || ir_in(g, op, 0).i != grad.i)
            continue;
        IrValue part = ir_out(g, op, 0);
        bool alone = false;
        for (uint32_t k = 0; k < g->order.n; k++) {
            IrOp user = g->order.at[k];
            if (ir_op_kind(g, user) == IR_OP_sum_scalars && ir_op(g, user)->n_in == 1 &&
                ir_in(g, user, 0).i == part.i) {
                keep_sum(g, user);
                alone = true;
            }
        }
        if (alone)
            continue;
        drop_part(g, part);
        ir_op_remove(g, op);
    }
    ir_graph_compact(g);
}

static void sum_tied(Agree *a, const IrTie *tie)
{
    IrGraph *g = a->g;
    IrValue grad = gradient_of(a, tie->name);
    if (!grad.i)
        return;
    a->b.span = ir_value(g, grad)->span;
    if (ir_value(g, grad)->def == IR_DEF_STATE) {
        IrOpArgs args = {.kind = IR_OP_all_reduce_state, .in = &grad, .n_in = 1};
        flat_give_comm(&args, tie->comm, tie->ranks);
        ir_build(&a->b, &args);
    } else {
        Sym name = intern_printf(&a->c->s->interner, "%s.tied", ir_value(g, grad)->name);
        IrValue sum = sum_over(a, grad, name, tie->comm, tie->ranks);
        IrOp op = ir_value(g, sum)->op;
        ir_replace_uses(g, grad, sum);
        ir_set_in(g, op, 0, grad);
        grad = sum;
    }
    pass_stat(a->c, "gradients summed over stages", 1);
    if (!tie->first)
        count_elsewhere(g, grad);
}

/* -- norm and loss -- */

static IrValue sum_parts(Agree *a, const IrValue *parts, uint32_t n)
{
    IrOpArgs args = {.kind = IR_OP_sum_scalars, .in = parts, .n_in = n};
    args.name = sym(a->c->s, "norm_sq.stage");
    return ir_out(a->g, ir_build(&a->b, &args), 0);
}

/* A stage without gradients adds nothing, but takes part. */
static void sum_norm(Agree *a)
{
    IrGraph *g = a->g;
    IrOp op = g->order.at[pass_find_op(g, IR_OP_grad_norm)];
    IrOpRec rec = *ir_op(g, op);
    IrValue *parts = ARENA_ARRAY(a->c->scratch, IrValue, rec.n_in + 1);
    for (uint32_t k = 2; k < rec.n_in; k++)
        parts[k - 2] = ir_in(g, op, k);
    IrValue sum = rec.n_in > 2 ? sum_parts(a, parts, rec.n_in - 2) : norm_of_nothing(&a->b);
    IrValue in[] = {ir_in(g, op, 0), ir_in(g, op, 1),
                    sum_over(a, sum, sym(a->c->s, "norm_sq.all"), sym(a->c->s, "pp"),
                             a->c->m->mesh.pp)};
    IrOpArgs args = {.kind = IR_OP_grad_norm, .in = in, .n_in = 3, .attrs = {"max_norm"}};
    args.values[0].f = ir_attr_f64(g, op, "max_norm");
    ir_build(&a->b, &args);
    ir_op_remove(g, op);
    ir_graph_compact(g);
}

/* The sum over data ranks moves to the front, too: no exchange may follow the first update. */
static void sum_loss(Agree *a)
{
    IrGraph *g = a->g;
    IrOp mean = g->order.at[pass_find_op(g, IR_OP_loss_mean)];
    IrValue sum = ir_in(g, mean, 1);
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        if (ir_op_kind(g, op) != IR_OP_all_reduce_state || ir_in(g, op, 0).i != sum.i)
            continue;
        Sym comm = ir_attr_sym(g, op, "comm");
        int64_t ranks = ir_attr_i64(g, op, "ranks");
        ir_op_remove(g, op);
        IrOpArgs args = {.kind = IR_OP_all_reduce_state, .in = &sum, .n_in = 1};
        flat_give_comm(&args, comm, ranks);
        ir_build(&a->b, &args);
        break;
    }
    IrValue all = sum_over(a, sum, sym(a->c->s, "loss.all"), sym(a->c->s, "pp"), a->c->m->mesh.pp);
    ir_set_in(g, mean, 1, all);
    ir_graph_compact(g);
}

static void sum_eval(PassContext *c, IrGraph *eval)
{
    Agree a = {.c = c, .g = eval, .b = ir_builder(eval)};
    IrValue sum = ir_graph_state(eval, ir_state_find(c->m, sym(c->s, "eval_sum")));
    IrOpArgs args = {.kind = IR_OP_all_reduce_state, .in = &sum, .n_in = 1};
    flat_give_comm(&args, sym(c->s, "pp"), c->m->mesh.pp);
    ir_build(&a.b, &args);
}

Status pass_agree(PassContext *c)
{
    Agree a = {.c = c, .g = ir_graph_find(c->m, "update")};
    IrGraph *eval = ir_graph_find(c->m, "eval");
    if (c->m->mesh.pp < 2)
        return STATUS_OK;
    if (eval)
        sum_eval(c, eval);
    if (!a.g)
        return STATUS_OK;
    a.b = ir_builder(a.g);
    uint32_t first = pass_find_op(a.g, IR_OP_norm_sq), norm = pass_find_op(a.g, IR_OP_grad_norm);
    a.b.at = first < norm ? first : norm;
    for (uint32_t i = 0; i < c->m->ties.n; i++)
        sum_tied(&a, &c->m->ties.at[i]);
    a.b.at = pass_find_op(a.g, IR_OP_grad_norm);
    a.b.span = (Span){0};
    sum_norm(&a);
    a.b.at = pass_find_op(a.g, IR_OP_grad_norm);
    sum_loss(&a);
    return STATUS_OK;
}
