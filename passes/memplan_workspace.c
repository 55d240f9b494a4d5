#include "passes/memplan.h"

#include <string.h>

#include "runtime/abi/workspace_cuda.h"

/* The parameters and tensors that the workspace formulas read; the others stay zero. */
typedef struct KernelShape {
    PlanKernel kernel;
    PlanParam param[16];
    PlanTensor tensor[16];
} KernelShape;

typedef struct ShapeCall {
    const IrGraph *g;
    const IrUses *uses;
    IrOp op;
    KernelShape *out;
} ShapeCall;

static int64_t numel(const IrGraph *g, IrValue v)
{
    return ir_type_numel(g->m, ir_value_type(g, v));
}

static int64_t dim(const IrGraph *g, IrValue v, uint32_t i)
{
    return ir_dim_size(&ir_type_info(g->m, ir_value_type(g, v))->dim[i]);
}

static PlanTensor tensor_of(const ShapeCall *c, IrValue v)
{
    const IrPlace *place = &ir_value(c->g, v)->place;
    int64_t n = numel(c->g, v);
    PlanTensor t = {.numel = n, .run = n, .pitch = n};
    t.dtype = ir_type_info(c->g->m, ir_value_type(c->g, v))->dtype;
    if (place->base.i && place->run != place->pitch) {
        t.run = place->run;
        t.pitch = place->pitch;
    }
    if (ir_value(c->g, v)->def == IR_DEF_RESULT && c->uses->first[v.i + 1] == c->uses->first[v.i] &&
        !c->uses->is_result[v.i])
        t.offset = PLAN_ABSENT;
    return t;
}

static void shape_embed_grad(const ShapeCall *c)
{
    c->out->kernel = PLAN_KERNEL_embed_grad;
    c->out->param[PLAN_embed_grad_tokens].i = numel(c->g, ir_in(c->g, c->op, 0));
    c->out->param[PLAN_embed_grad_rows].i = dim(c->g, ir_out(c->g, c->op, 0), 0);
}

static void shape_attention_grad(const ShapeCall *c)
{
    IrValue q = ir_in(c->g, c->op, 1), k = ir_in(c->g, c->op, 2);
    c->out->kernel = PLAN_KERNEL_attention_grad;
    c->out->param[PLAN_attention_grad_batch].i = dim(c->g, q, 0);
    c->out->param[PLAN_attention_grad_seq].i = dim(c->g, q, 1);
    c->out->param[PLAN_attention_grad_heads].i = dim(c->g, q, 2);
    c->out->param[PLAN_attention_grad_kv_heads].i = dim(c->g, k, 2);
    c->out->param[PLAN_attention_grad_dim].i = dim(c->g, q, 3);
    c->out->param[PLAN_attention_grad_causal].i =
        !strcmp(ir_attr_sym(c->g, c->op, "mask"), "causal");
    c->out->param[PLAN_attention_grad_window].i = ir_attr_i64(c->g, c->op, "window");
    c->out->tensor[PLAN_T_attention_grad_q] = tensor_of(c, q);
}

static void shape_lm_loss(const ShapeCall *c)
{
    IrValue h = ir_in(c->g, c->op, 0), w = ir_in(c->g, c->op, 1);
    c->out->kernel = PLAN_KERNEL_lm_loss;
    c->out->param[PLAN_lm_loss_tokens].i = numel(c->g, h) / dim(c->g, w, 1);
    c->out->param[PLAN_lm_loss_width].i = dim(c->g, w, 1);
    c->out->param[PLAN_lm_loss_vocab].i = dim(c->g, w, 0);
    c->out->tensor[PLAN_T_lm_loss_h] = tensor_of(c, h);
    c->out->tensor[PLAN_T_lm_loss_w] = tensor_of(c, w);
}

static void shape_lm_loss_grad(const ShapeCall *c)
{
    IrValue h = ir_in(c->g, c->op, 1), w = ir_in(c->g, c->op, 2);
    c->out->kernel = PLAN_KERNEL_lm_loss_grad;
    c->out->param[PLAN_lm_loss_grad_tokens].i = numel(c->g, h) / dim(c->g, w, 1);
    c->out->param[PLAN_lm_loss_grad_width].i = dim(c->g, w, 1);
    c->out->param[PLAN_lm_loss_grad_vocab].i = dim(c->g, w, 0);
    c->out->tensor[PLAN_T_lm_loss_grad_dh] = tensor_of(c, ir_out(c->g, c->op, 0));
    c->out->tensor[PLAN_T_lm_loss_grad_dw] = tensor_of(c, ir_out(c->g, c->op, 1));
    c->out->tensor[PLAN_T_lm_loss_grad_h] = tensor_of(c, h);
    c->out->tensor[PLAN_T_lm_loss_grad_w] = tensor_of(c, w);
}

static void shape_lm_loss_with_grad(const ShapeCall *c)
{
    IrValue h = ir_in(c->g, c->op, 1), w = ir_in(c->g, c->op, 2);
    c->out->kernel = PLAN_KERNEL_lm_loss_with_grad;
    c->out->param[PLAN_lm_loss_with_grad_tokens].i = numel(c->g, h) / dim(c->g, w, 1);
    c->out->param[PLAN_lm_loss_with_grad_width].i = dim(c->g, w, 1);
    c->out->param[PLAN_lm_loss_with_grad_vocab].i = dim(c->g, w, 0);
    c->out->tensor[PLAN_T_lm_loss_with_grad_dh] = tensor_of(c, ir_out(c->g, c->op, 1));
    c->out->tensor[PLAN_T_lm_loss_with_grad_dw] = tensor_of(c, ir_out(c->g, c->op, 2));
    c->out->tensor[PLAN_T_lm_loss_with_grad_h] = tensor_of(c, h);
    c->out->tensor[PLAN_T_lm_loss_with_grad_w] = tensor_of(c, w);
}

static void shape_norm_sq(const ShapeCall *c)
{
    c->out->kernel = PLAN_KERNEL_norm_sq;
    c->out->param[PLAN_norm_sq_n].i = numel(c->g, ir_in(c->g, c->op, 0));
}

static void shape_embed_part_grad(const ShapeCall *c)
{
    shape_embed_grad(c);
    c->out->kernel = PLAN_KERNEL_embed_part_grad;
}

/* The parts' parameters and tensors are the whole ops', as far as the formulas read them. */
static void shape_lm_loss_part(const ShapeCall *c)
{
    shape_lm_loss(c);
    c->out->tensor[PLAN_T_lm_loss_part_h] = tensor_of(c, ir_in(c->g, c->op, 0));
    c->out->tensor[PLAN_T_lm_loss_part_w] = tensor_of(c, ir_in(c->g, c->op, 1));
    c->out->kernel = PLAN_KERNEL_lm_loss_part;
}

static void shape_lm_loss_part_grad(const ShapeCall *c)
{
    shape_lm_loss_grad(c);
    c->out->kernel = PLAN_KERNEL_lm_loss_part_grad;
}

static void shape_reduce_scatter(const ShapeCall *c)
{
    c->out->kernel = PLAN_KERNEL_reduce_scatter;
    c->out->param[PLAN_reduce_scatter_ranks].i = ir_attr_i64(c->g, c->op, "ranks");
    c->out->param[PLAN_reduce_scatter_count].i = numel(c->g, ir_out(c->g, c->op, 0));
    c->out->tensor[PLAN_T_reduce_scatter_x] = tensor_of(c, ir_in(c->g, c->op, 0));
}

static void shape_all_reduce(const ShapeCall *c)
{
    c->out->kernel = PLAN_KERNEL_all_reduce;
    c->out->param[PLAN_all_reduce_ranks].i = ir_attr_i64(c->g, c->op, "ranks");
    c->out->param[PLAN_all_reduce_count].i = numel(c->g, ir_in(c->g, c->op, 0));
    c->out->tensor[PLAN_T_all_reduce_x] = tensor_of(c, ir_in(c->g, c->op, 0));
}

typedef void (*ShapeFn)(const ShapeCall *c);

static const ShapeFn shapes[IR_OP_COUNT] = {
    [IR_OP_embed_grad] = shape_embed_grad, [IR_OP_attention_grad] = shape_attention_grad,
    [IR_OP_lm_loss] = shape_lm_loss,       [IR_OP_lm_loss_grad] = shape_lm_loss_grad,
    [IR_OP_lm_loss_with_grad] = shape_lm_loss_with_grad,
    [IR_OP_norm_sq] = shape_norm_sq,       [IR_OP_reduce_scatter] = shape_reduce_scatter,
    [IR_OP_embed_part_grad] = shape_embed_part_grad, [IR_OP_lm_loss_part] = shape_lm_loss_part,
    [IR_OP_lm_loss_part_grad] = shape_lm_loss_part_grad,
    [IR_OP_all_reduce] = shape_all_reduce, [IR_OP_all_reduce_state] = shape_all_reduce,
};

uint64_t pass_op_workspace(PassTarget target, const IrGraph *g, const IrUses *uses, IrOp op)
{
    ShapeFn shape = shapes[ir_op_kind(g, op)];
    if (!shape)
        return 0;
    KernelShape k = {0};
    shape(&(ShapeCall){g, uses, op, &k});
    return target == PASS_TARGET_CUDA ? plan_cuda_workspace_bytes(k.kernel, k.param, k.tensor)
                                      : plan_workspace_bytes(k.kernel, k.param, k.tensor);
}

uint64_t pass_library_workspace(PassTarget target)
{
    return target == PASS_TARGET_CUDA ? PLAN_CUDA_LIBRARY_WORKSPACE : 0;
}
