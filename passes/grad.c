/* grad: one rule per GRAD column. Which residuals a rule reads is the op's business; autodiff
 * finds, saves or replays them. */
#include "passes/grad.h"

#include "base/diag.h"
#include "ir/shape.h"

/* -- building in @bwd -- */

/* Named after the op until autodiff names it as somebody's gradient: a name that no saved value
 * can have. */
static IrValue build(GradCall *c, IrServes serves, const IrOpArgs *args, uint32_t result)
{
    IrOpArgs named = *args;
    Sym of = ir_value(c->fwd, ir_out(c->fwd, c->op, 0))->name;
    named.name = intern_printf(&c->b->g->m->s->interner, "%s.bwd", of);
    c->b->serves = serves;
    IrOp op = ir_build(c->b, &named);
    return ir_out(c->b->g, op, result);
}

static IrValue build1(GradCall *c, IrServes serves, IrOpKind kind, IrType out, uint32_t n,
                      const IrValue *in)
{
    return build(c, serves, &(IrOpArgs){.kind = kind, .in = in, .n_in = n, .out = {out}}, 0);
}

/* The op's own attribute, handed to an op of the backward pass that has it too. */
static void copy_attr(const GradCall *c, IrOpArgs *args, const char *name)
{
    uint32_t n = 0;
    while (args->attrs[n])
        n++;
    args->attrs[n] = name;
    args->values[n] = *ir_attr_at(c->fwd, c->op, name);
}

static IrType in_type(const GradCall *c, uint32_t operand)
{
    return ir_value_type(c->fwd, ir_in(c->fwd, c->op, operand));
}

/* The gradient of an operand that was broadcast: summed down to the operand's dims. */
static void give_reduced(GradCall *c, uint32_t operand, IrValue dy)
{
    IrModule *m = c->b->g->m;
    IrType type = grad_type(c, operand);
    if (!ir_shape_same_dims(ir_type_info(m, ir_value_type(c->b->g, dy)), ir_type_info(m, type)))
        dy = build1(c, grad_serves(c, operand), IR_OP_sum_rows, type, 1, &dy);
    grad_give(c, operand, dy);
}

/* -- rules -- */

static void grad_embed(GradCall *c)
{
    IrOpArgs args = {.kind = IR_OP_embed_grad, .n_in = 2, .out = {grad_type(c, 0)}};
    args.in = (IrValue[]){grad_in(c, 1), grad_dy(c, 0)};
    copy_attr(c, &args, "padding");
    grad_give(c, 0, build(c, IR_SERVES_WEIGHT, &args, 0));
}

static void grad_linear(GradCall *c)
{
    IrValue dy = grad_dy(c, 0);
    if (grad_wants(c, 0)) {
        IrOpArgs args = {
            .kind = IR_OP_linear_grad_x, .in = (IrValue[]){dy, grad_in(c, 1)}, .n_in = 2};
        args.out[0] = in_type(c, 0);
        copy_attr(c, &args, "in_out");
        grad_give(c, 0, build(c, IR_SERVES_INPUT, &args, 0));
    }
    if (grad_wants(c, 1)) {
        IrOpArgs args = {
            .kind = IR_OP_linear_grad_w, .in = (IrValue[]){dy, grad_in(c, 0)}, .n_in = 2};
        args.out[0] = grad_type(c, 1);
        copy_attr(c, &args, "in_out");
        grad_give(c, 1, build(c, IR_SERVES_WEIGHT, &args, 0));
    }
    if (grad_wants(c, 2))
        grad_give(c, 2, build1(c, IR_SERVES_WEIGHT, IR_OP_sum_rows, grad_type(c, 2), 1, &dy));
}

static void grad_add(GradCall *c)
{
    IrValue dy = grad_dy(c, 0);
    if (grad_wants(c, 0))
        grad_give(c, 0, dy);
    if (grad_wants(c, 1))
        give_reduced(c, 1, dy);
}

static void grad_sub(GradCall *c)
{
    IrValue dy = grad_dy(c, 0);
    if (grad_wants(c, 0))
        grad_give(c, 0, dy);
    if (!grad_wants(c, 1))
        return;
    IrOpArgs args = {
        .kind = IR_OP_scale, .in = &dy, .n_in = 1, .attrs = {"factor"}, .values = {{.f = -1}}};
    give_reduced(c, 1, build(c, grad_serves(c, 1), &args, 0));
}

static void grad_mul(GradCall *c)
{
    IrValue dy = grad_dy(c, 0);
    if (grad_wants(c, 0))
        grad_give(c, 0,
                  build1(c, grad_serves(c, 0), IR_OP_mul, (IrType){0}, 2,
                         (IrValue[]){dy, grad_in(c, 1)}));
    if (grad_wants(c, 1))
        give_reduced(c, 1,
                     build1(c, grad_serves(c, 1), IR_OP_mul, (IrType){0}, 2,
                            (IrValue[]){dy, grad_in(c, 0)}));
}

static void grad_scale(GradCall *c)
{
    IrOpArgs args = {.kind = IR_OP_scale, .in = (IrValue[]){grad_dy(c, 0)}, .n_in = 1};
    copy_attr(c, &args, "factor");
    grad_give(c, 0, build(c, IR_SERVES_INPUT, &args, 0));
}

static void grad_cast(GradCall *c)
{
    IrValue dy = grad_dy(c, 0);
    IrType want = grad_type(c, 0);
    if (ir_value_type(c->b->g, dy).i != want.i)
        dy = build1(c, IR_SERVES_INPUT, IR_OP_cast, want, 1, &dy);
    grad_give(c, 0, dy);
}

static void grad_act(GradCall *c)
{
    IrOpArgs args = {
        .kind = IR_OP_act_grad, .in = (IrValue[]){grad_dy(c, 0), grad_in(c, 0)}, .n_in = 2};
    copy_attr(c, &args, "fn");
    grad_give(c, 0, build(c, IR_SERVES_INPUT, &args, 0));
}

static void grad_glu(GradCall *c)
{
    IrOpArgs args = {.kind = IR_OP_glu_grad, .n_in = 3};
    args.in = (IrValue[]){grad_dy(c, 0), grad_in(c, 0), grad_in(c, 1)};
    copy_attr(c, &args, "fn");
    IrValue dgate = build(c, IR_SERVES_INPUT, &args, 0);
    if (grad_wants(c, 0))
        grad_give(c, 0, dgate);
    if (grad_wants(c, 1))
        grad_give(c, 1, (IrValue){dgate.i + 1});
}

static void grad_softcap(GradCall *c)
{
    IrOpArgs args = {
        .kind = IR_OP_softcap_grad, .in = (IrValue[]){grad_dy(c, 0), grad_in(c, 0)}, .n_in = 2};
    copy_attr(c, &args, "cap");
    grad_give(c, 0, build(c, IR_SERVES_INPUT, &args, 0));
}

static void grad_rmsnorm(GradCall *c)
{
    IrValue dy = grad_dy(c, 0), x = grad_in(c, 0), rstd = grad_out(c, 1);
    if (grad_wants(c, 0)) {
        IrValue w = ir_in(c->fwd, c->op, 1).i ? grad_in(c, 1) : (IrValue){0};
        IrValue in[] = {dy, x, rstd, w};
        grad_give(c, 0, build1(c, IR_SERVES_INPUT, IR_OP_rmsnorm_grad_x, in_type(c, 0), 4, in));
    }
    if (grad_wants(c, 1)) {
        IrOpArgs args = {.kind = IR_OP_rmsnorm_grad_w, .in = (IrValue[]){dy, x, rstd}, .n_in = 3};
        args.out[0] = grad_type(c, 1);
        copy_attr(c, &args, "round");
        grad_give(c, 1, build(c, IR_SERVES_WEIGHT, &args, 0));
    }
}

static void grad_layernorm(GradCall *c)
{
    IrValue dy = grad_dy(c, 0), x = grad_in(c, 0), mean = grad_out(c, 1), rstd = grad_out(c, 2);
    if (grad_wants(c, 0)) {
        IrValue in[] = {dy, x, mean, rstd, grad_in(c, 1)};
        grad_give(c, 0, build1(c, IR_SERVES_INPUT, IR_OP_layernorm_grad_x, in_type(c, 0), 5, in));
    }
    if (grad_wants(c, 1)) {
        IrValue in[] = {dy, x, mean, rstd};
        grad_give(c, 1,
                  build1(c, IR_SERVES_WEIGHT, IR_OP_layernorm_grad_w, grad_type(c, 1), 4, in));
    }
    if (grad_wants(c, 2))
        grad_give(c, 2, build1(c, IR_SERVES_WEIGHT, IR_OP_sum_rows, grad_type(c, 2), 1, &dy));
}

static void grad_rope(GradCall *c)
{
    IrOpArgs args = {.kind = IR_OP_rope, .n_in = 3, .attrs = {"inverse"}};
    args.in = (IrValue[]){grad_dy(c, 0), grad_in(c, 1), grad_in(c, 2)};
    args.values[0].b = !ir_attr_bool(c->fwd, c->op, "inverse");
    copy_attr(c, &args, "pairing");
    grad_give(c, 0, build(c, IR_SERVES_INPUT, &args, 0));
}

static void grad_attention(GradCall *c)
{
    static const char *const attrs[] = {"scale", "mask", "window", "softcap", "dropout", "key"};
    IrOpArgs args = {.kind = IR_OP_attention_grad, .n_in = 8};
    IrValue in[8] = {grad_dy(c, 0), grad_in(c, 0),  grad_in(c, 1),
                     grad_in(c, 2), grad_out(c, 0), grad_out(c, 1)};
    for (uint32_t i = 0; i < 2; i++)
        if (ir_in(c->fwd, c->op, 3 + i).i)
            in[6 + i] = grad_in(c, 3 + i);
    args.in = in;
    for (uint32_t i = 0; i < sizeof attrs / sizeof *attrs; i++)
        copy_attr(c, &args, attrs[i]);
    IrValue dq = build(c, IR_SERVES_INPUT, &args, 0);
    for (uint32_t i = 0; i < 3; i++)
        if (grad_wants(c, i))
            grad_give(c, i, (IrValue){dq.i + i});
}

static void grad_dropout(GradCall *c)
{
    IrOpArgs args = {.kind = IR_OP_dropout, .in = (IrValue[]){grad_dy(c, 0)}, .n_in = 1};
    copy_attr(c, &args, "p");
    copy_attr(c, &args, "key");
    grad_give(c, 0, build(c, IR_SERVES_INPUT, &args, 0));
}

static void grad_lm_loss(GradCall *c)
{
    IrOpArgs args = {
        .kind = IR_OP_lm_loss_grad, .n_in = 5, .out = {in_type(c, 0), grad_type(c, 1)}};
    args.in =
        (IrValue[]){grad_dy(c, 0), grad_in(c, 0), grad_in(c, 1), grad_in(c, 2), grad_out(c, 1)};
    copy_attr(c, &args, "softcap");
    copy_attr(c, &args, "ignore");
    IrValue dh = build(c, IR_SERVES_BOTH, &args, 0);
    for (uint32_t i = 0; i < 2; i++)
        if (grad_wants(c, i))
            grad_give(c, i, (IrValue){dh.i + i});
}

static void grad_slice(GradCall *c)
{
    grad_give_part(c, 0, (uint32_t)ir_attr_i64(c->fwd, c->op, "index"),
                   (uint32_t)ir_attr_i64(c->fwd, c->op, "parts"), grad_dy(c, 0));
}

static void grad_reshape(GradCall *c)
{
    IrValue dy = grad_dy(c, 0);
    grad_give(c, 0, build1(c, IR_SERVES_INPUT, IR_OP_reshape, in_type(c, 0), 1, &dy));
}

/* -- between a pipeline's stages: what was sent comes back as a gradient, and goes back for what
 * was received -- */

static void give_back(GradCall *c, IrOpArgs *args)
{
    copy_attr(c, args, "comm");
    copy_attr(c, args, "ranks");
    copy_attr(c, args, "peer");
    copy_attr(c, args, "tag");
    c->b->serves = IR_SERVES_INPUT;
}

static void grad_send(GradCall *c)
{
    IrValue x = ir_in(c->fwd, c->op, 0);
    IrOpArgs args = {.kind = IR_OP_recv, .out = {grad_type(c, 0)}};
    args.name = intern_printf(&c->b->g->m->s->interner, "%s.grad", ir_value(c->fwd, x)->name);
    give_back(c, &args);
    grad_give(c, 0, ir_out(c->b->g, ir_build(c->b, &args), 0));
}

static void grad_recv(GradCall *c)
{
    IrValue dy = grad_dy(c, 0);
    IrOpArgs args = {.kind = IR_OP_send, .in = &dy, .n_in = 1};
    give_back(c, &args);
    ir_build(c->b, &args);
}

#define grad_none NULL
static const GradRule rules[IR_OP_COUNT] = {
#include "ir/op_columns.h"
#undef GRAD
#define GRAD(f) grad_##f,
#define OP(name, doc, ins, outs, attrs, ...) [IR_OP_##name] = __VA_ARGS__
#include "ir/ops.def"
#undef OP
};

GradRule grad_rule(IrOpKind kind)
{
    return rules[kind];
}
