/* optimizer: writes @begin (the count of targets, whose inverse seeds every backward pass) and
 * @update: the global norm and the clip coefficient, then one update op per trained parameter,
 * then the counters. */
#include "passes/norm.h"

#include <fnmatch.h>
#include <string.h>

#include "passes/step_states.h"

static IrValue scalar(IrGraph *g, const char *name, DType dtype)
{
    return ir_graph_state(g, step_scalar(g->m, name, dtype));
}

static DType loss_dtype(const PassContext *c)
{
    return c->options->compute == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
}

static IrBuilder builder(IrGraph *g)
{
    IrBuilder b = ir_builder(g);
    b.scope = (IrScope){1};
    return b;
}

static void write_begin(PassContext *c)
{
    const IrGraph *fwd = ir_graph_find(c->m, "fwd");
    IrValue targets = ir_value_find(fwd, sym(c->s, "targets"));
    IrGraph *g = ir_graph_new(c->m, sym(c->s, "begin"));
    IrBuilder b = builder(g);
    IrValue in[3] = {{0}, scalar(g, "count", DTYPE_I64), scalar(g, "inverse", loss_dtype(c))};
    in[0] = ir_graph_param(g, sym(c->s, "targets"), ir_value_type(fwd, targets),
                           ir_value(fwd, targets)->span);
    ir_build(&b, &(IrOpArgs){.kind = IR_OP_count_targets, .in = in, .n_in = 3});
}

static double decay_of(const PassOptions *o, Sym name)
{
    for (uint32_t i = 0; i < o->groups.n; i++)
        if (!fnmatch(o->groups.at[i].pattern, name, 0))
            return o->groups.at[i].decay;
    return 0;
}

static void give(IrOpArgs *args, const char *name, IrAttr value)
{
    uint32_t n = 0;
    while (args->attrs[n])
        n++;
    args->attrs[n] = name;
    args->values[n] = value;
}

/* lr and step are what the runtime writes before each step. */
static void write_update_op(PassContext *c, IrBuilder *b, IrState param, IrValue grad)
{
    IrGraph *g = b->g;
    IrModule *m = c->m;
    const PassOptions *o = c->options;
    IrValue w = ir_graph_state(g, param), coef = scalar(g, "coef", DTYPE_F32);
    IrValue lr = scalar(g, "lr", DTYPE_F32), step = scalar(g, "step", DTYPE_I64), master = {0};
    if (o->master != DTYPE_NONE && o->master != o->param)
        master = ir_graph_state(g, step_companion(m, param, "master", IR_STATE_MASTER, o->master));
    IrAttr decay = {.f = decay_of(o, ir_state_rec(m, param)->name)};
    b->span = ir_state_rec(m, param)->span;
    b->scope = ir_state_rec(m, param)->scope;
    if (!strcmp(o->optimizer, "sgd")) {
        IrValue momentum = {0};
        if (o->momentum != 0)
            momentum = ir_graph_state(
                g, step_companion(m, param, "exp_avg", IR_STATE_MOMENT1, o->moments));
        IrOpArgs args = {.kind = IR_OP_sgd, .n_in = 7};
        args.in = (IrValue[]){w, grad, momentum, master, coef, lr, step};
        give(&args, "momentum", (IrAttr){.f = o->momentum});
        give(&args, "decay", decay);
        give(&args, "nesterov", (IrAttr){.b = o->nesterov});
        ir_build(b, &args);
        return;
    }
    IrValue first =
        ir_graph_state(g, step_companion(m, param, "exp_avg", IR_STATE_MOMENT1, o->moments));
    IrValue second =
        ir_graph_state(g, step_companion(m, param, "exp_avg_sq", IR_STATE_MOMENT2, o->moments));
    IrOpArgs args = {.kind = IR_OP_adamw, .n_in = 8};
    args.in = (IrValue[]){w, grad, first, second, master, coef, lr, step};
    give(&args, "beta1", (IrAttr){.f = o->beta1});
    give(&args, "beta2", (IrAttr){.f = o->beta2});
    give(&args, "eps", (IrAttr){.f = o->eps});
    give(&args, "decay", decay);
    ir_build(b, &args);
}

/* A trained parameter's gradient in @update: @bwd's result, or the accumulator; {0} if it has
 * none. */
static IrValue gradient(PassContext *c, IrGraph *g, const IrGraph *bwd, IrState param)
{
    Sym name = ir_state_rec(c->m, param)->name;
    IrState acc = ir_state_find(c->m, intern_printf(&c->s->interner, "%s.acc", name));
    if (acc.i)
        return ir_graph_state(g, acc);
    IrValue v = ir_value_find(bwd, intern_printf(&c->s->interner, "%s.grad", name));
    if (!v.i)
        return (IrValue){0};
    return ir_graph_param(g, ir_value(bwd, v)->name, ir_value_type(bwd, v),
                          ir_state_rec(c->m, param)->span);
}

static void write_update(PassContext *c)
{
    const IrGraph *bwd = ir_graph_find(c->m, "bwd");
    IrGraph *g = ir_graph_new(c->m, sym(c->s, "update"));
    IrBuilder b = builder(g);
    uint32_t n_states = c->m->states.n, n_parts = 0;
    IrValue *grads = ARENA_ARRAY(c->scratch, IrValue, n_states);
    IrValue *norm_in = ARENA_ARRAY(c->scratch, IrValue, n_states + 3);
    norm_in[0] = scalar(g, "norm", DTYPE_F64);
    norm_in[1] = scalar(g, "coef", DTYPE_F32);
    for (uint32_t i = 1; i < n_states; i++) {
        const IrStateRec rec = c->m->states.at[i];
        if (rec.kind != IR_STATE_PARAM || !rec.trainable)
            continue;
        grads[i] = gradient(c, g, bwd, (IrState){i});
        if (!grads[i].i)
            continue;
        b.span = rec.span;
        b.scope = rec.scope;
        IrOpArgs args = {.kind = IR_OP_norm_sq, .in = &grads[i], .n_in = 1};
        args.name = intern_printf(&c->s->interner, "%s.norm_sq", rec.name);
        norm_in[2 + n_parts++] = ir_out(g, ir_build(&b, &args), 0);
    }
    b = builder(g);
    if (!n_parts && c->m->mesh.pp > 1)
        norm_in[2 + n_parts++] = norm_of_nothing(&b);
    IrOpArgs norm = {.kind = IR_OP_grad_norm, .in = norm_in, .n_in = 2 + n_parts};
    give(&norm, "max_norm", (IrAttr){.f = c->options->max_norm});
    ir_build(&b, &norm);
    for (uint32_t i = 1; i < n_states; i++)
        if (grads[i].i)
            write_update_op(c, &b, (IrState){i}, grads[i]);
    pass_stat(c, "parameters updated", n_parts);
    b.scope = (IrScope){1};
    b.span = (Span){0};
    IrValue mean[] = {scalar(g, "loss", DTYPE_F64), scalar(g, "loss_sum", DTYPE_F64),
                      scalar(g, "inverse", loss_dtype(c))};
    ir_build(&b, &(IrOpArgs){.kind = IR_OP_loss_mean, .in = mean, .n_in = 3});
    IrValue advance[] = {scalar(g, "step", DTYPE_I64), scalar(g, "skipped", DTYPE_I64),
                         scalar(g, "coef", DTYPE_F32)};
    ir_build(&b, &(IrOpArgs){.kind = IR_OP_advance, .in = advance, .n_in = 3});
}

Status pass_optimizer(PassContext *c)
{
    c->m->micro_batches = c->options->micro_batches;
    step_scalar(c->m, "seed", DTYPE_I64);
    step_scalar(c->m, "sample0", DTYPE_I64);
    write_begin(c);
    write_update(c);
    return STATUS_OK;
}
