/* How each op of class KERNEL calls the runtime kernel that its row of ir/ops.def names. */
#include "backend/plan_write.h"

static int64_t numel(const PlanCall *c, IrValue v)
{
    return ir_type_numel(c->g->m, ir_value_type(c->g, v));
}

static int64_t dim(const PlanCall *c, IrValue v, uint32_t i)
{
    return ir_dim_size(&ir_type_info(c->g->m, ir_value_type(c->g, v))->dim[i]);
}

static IrValue in(const PlanCall *c, uint32_t i)
{
    return ir_in(c->g, c->op, i);
}

static IrValue out(const PlanCall *c, uint32_t i)
{
    return ir_out(c->g, c->op, i);
}

static void take(PlanCall *c, uint32_t tensor, IrValue v)
{
    if (v.i)
        c->tensor[tensor] = plan_tensor(c->w, c->g, v);
}

/* Results, then operands, from tensor 0 on. */
static void take_in_order(PlanCall *c)
{
    const IrOpRec *rec = ir_op(c->g, c->op);
    for (uint32_t i = 0; i < rec->n_out; i++)
        take(c, i, out(c, i));
    for (uint32_t i = 0; i < rec->n_in; i++)
        take(c, rec->n_out + i, in(c, i));
}

static void give(PlanCall *c, uint32_t param, int64_t value)
{
    c->param[param].i = value;
}

#define GIVE_I64(c, kernel, name)                                                                  \
    give(c, PLAN_##kernel##_##name, ir_attr_i64((c)->g, (c)->op, #name))
#define GIVE_BOOL(c, kernel, name)                                                                 \
    give(c, PLAN_##kernel##_##name, ir_attr_bool((c)->g, (c)->op, #name))
#define GIVE_F64(c, kernel, name)                                                                  \
    ((c)->param[PLAN_##kernel##_##name].f = ir_attr_f64((c)->g, (c)->op, #name))

static void set_product(PlanCall *c, IrValue result, IrValue a, IrValue b, bool ta, bool tb)
{
    take(c, PLAN_T_gemm_c, result);
    take(c, PLAN_T_gemm_a, a);
    take(c, PLAN_T_gemm_b, b);
    give(c, PLAN_gemm_ta, ta);
    give(c, PLAN_gemm_tb, tb);
}

static void set_size(PlanCall *c, int64_t m, int64_t n, int64_t k)
{
    give(c, PLAN_gemm_m, m);
    give(c, PLAN_gemm_n, n);
    give(c, PLAN_gemm_k, k);
}

/* W is [o, i], or [i, o] with `in_out`: y = x W^T, dx = dy W, dW = dy^T x or its transpose. */
static void lower_gemm(PlanCall *c)
{
    bool in_out = ir_attr_bool(c->g, c->op, "in_out");
    IrOpKind kind = ir_op_kind(c->g, c->op);
    IrValue w = kind == IR_OP_linear_grad_w ? out(c, 0) : in(c, 1);
    int64_t o = dim(c, w, in_out), i = dim(c, w, !in_out);
    if (kind == IR_OP_linear) {
        set_product(c, out(c, 0), in(c, 0), w, false, !in_out);
        set_size(c, numel(c, in(c, 0)) / i, o, i);
        take(c, PLAN_T_gemm_bias, in(c, 2));
    } else if (kind == IR_OP_linear_grad_x) {
        set_product(c, out(c, 0), in(c, 0), w, false, in_out);
        set_size(c, numel(c, in(c, 0)) / o, i, o);
    } else {
        IrValue dy = in(c, 0), x = in(c, 1);
        set_product(c, w, in_out ? x : dy, in_out ? dy : x, true, false);
        set_size(c, dim(c, w, 0), dim(c, w, 1), numel(c, dy) / o);
    }
}

static void lower_embed(PlanCall *c)
{
    take_in_order(c);
    int64_t tokens = numel(c, in(c, 1));
    give(c, PLAN_embed_tokens, tokens);
    give(c, PLAN_embed_width, numel(c, out(c, 0)) / tokens);
    give(c, PLAN_embed_rows, dim(c, in(c, 0), 0));
}

static void lower_embed_grad(PlanCall *c)
{
    take_in_order(c);
    int64_t tokens = numel(c, in(c, 0));
    give(c, PLAN_embed_grad_tokens, tokens);
    give(c, PLAN_embed_grad_width, numel(c, in(c, 1)) / tokens);
    give(c, PLAN_embed_grad_rows, dim(c, out(c, 0), 0));
    GIVE_I64(c, embed_grad, padding);
}

static int64_t rope_kind(Sym word)
{
    static const char *const kinds[] = {"default", "proportional", "llama3", "yarn"};
    int64_t kind = 0;
    while (strcmp(word, kinds[kind]))
        kind++; /* the op table allows no other word */
    return kind;
}

static void lower_rope_table(PlanCall *c)
{
    take_in_order(c);
    give(c, PLAN_rope_table_tokens, numel(c, in(c, 0)));
    give(c, PLAN_rope_table_kind, rope_kind(ir_attr_sym(c->g, c->op, "kind")));
    GIVE_I64(c, rope_table, dims);
    GIVE_F64(c, rope_table, base);
    GIVE_F64(c, rope_table, factor);
    GIVE_F64(c, rope_table, partial);
    GIVE_F64(c, rope_table, low);
    GIVE_F64(c, rope_table, high);
    GIVE_F64(c, rope_table, original);
    GIVE_F64(c, rope_table, beta_fast);
    GIVE_F64(c, rope_table, beta_slow);
    GIVE_F64(c, rope_table, attention_factor);
}

/* The parameters of attention and of its gradient are the same, index by index. */
static void set_attention(PlanCall *c, IrValue q, IrValue k)
{
    _Static_assert((int)PLAN_attention_micro_batch == (int)PLAN_attention_grad_micro_batch,
                   "attention's parameters are its gradient's");
    take_in_order(c);
    give(c, PLAN_attention_batch, dim(c, q, 0));
    give(c, PLAN_attention_seq, dim(c, q, 1));
    give(c, PLAN_attention_heads, dim(c, q, 2));
    give(c, PLAN_attention_kv_heads, dim(c, k, 2));
    give(c, PLAN_attention_dim, dim(c, q, 3));
    give(c, PLAN_attention_causal, !strcmp(ir_attr_sym(c->g, c->op, "mask"), "causal"));
    give(c, PLAN_attention_micro_batch, ir_op(c->g, c->op)->instance);
    GIVE_I64(c, attention, window);
    GIVE_F64(c, attention, scale);
    GIVE_F64(c, attention, softcap);
    GIVE_F64(c, attention, dropout);
    GIVE_I64(c, attention, key);
}

static void lower_attention(PlanCall *c)
{
    set_attention(c, in(c, 0), in(c, 1));
}

static void lower_attention_grad(PlanCall *c)
{
    set_attention(c, in(c, 1), in(c, 2));
}

static void lower_lm_loss(PlanCall *c)
{
    take_in_order(c);
    int64_t tokens = numel(c, in(c, 2));
    give(c, PLAN_lm_loss_tokens, tokens);
    give(c, PLAN_lm_loss_width, numel(c, in(c, 0)) / tokens);
    give(c, PLAN_lm_loss_vocab, dim(c, in(c, 1), 0));
    GIVE_F64(c, lm_loss, softcap);
    GIVE_I64(c, lm_loss, ignore);
}

static void lower_lm_loss_grad(PlanCall *c)
{
    take_in_order(c);
    int64_t tokens = numel(c, in(c, 3));
    give(c, PLAN_lm_loss_grad_tokens, tokens);
    give(c, PLAN_lm_loss_grad_width, numel(c, in(c, 1)) / tokens);
    give(c, PLAN_lm_loss_grad_vocab, dim(c, in(c, 2), 0));
    GIVE_F64(c, lm_loss_grad, softcap);
    GIVE_I64(c, lm_loss_grad, ignore);
}

static void lower_lm_loss_with_grad(PlanCall *c)
{
    take_in_order(c);
    int64_t tokens = numel(c, in(c, 3));
    give(c, PLAN_lm_loss_with_grad_tokens, tokens);
    give(c, PLAN_lm_loss_with_grad_width, numel(c, in(c, 1)) / tokens);
    give(c, PLAN_lm_loss_with_grad_vocab, dim(c, in(c, 2), 0));
    GIVE_F64(c, lm_loss_with_grad, softcap);
    GIVE_I64(c, lm_loss_with_grad, ignore);
}

static void lower_concat(PlanCall *c)
{
    take_in_order(c);
    int64_t n = ir_op(c->g, c->op)->n_in,
            last = ir_type_last(c->g->m, ir_value_type(c->g, out(c, 0)));
    c->n_tensors = 1 + (uint32_t)n;
    give(c, PLAN_concat_rows, numel(c, out(c, 0)) / last);
    give(c, PLAN_concat_width, last / n);
    give(c, PLAN_concat_n, n);
}

static void lower_count_targets(PlanCall *c)
{
    take_in_order(c);
    give(c, PLAN_count_targets_n, numel(c, in(c, 0)));
    GIVE_I64(c, count_targets, ignore);
    GIVE_BOOL(c, count_targets, first);
}

static void lower_accumulate(PlanCall *c)
{
    take_in_order(c);
    GIVE_BOOL(c, accumulate, first);
}

static void lower_norm_sq(PlanCall *c)
{
    take_in_order(c);
    give(c, PLAN_norm_sq_n, numel(c, in(c, 0)));
}

static void lower_grad_norm(PlanCall *c)
{
    take_in_order(c);
    c->n_tensors = ir_op(c->g, c->op)->n_in;
    give(c, PLAN_grad_norm_n, c->n_tensors - PLAN_T_grad_norm_TENSORS);
    GIVE_F64(c, grad_norm, max_norm);
}

static void lower_loss_mean(PlanCall *c)
{
    take_in_order(c);
}

static void lower_adamw(PlanCall *c)
{
    take_in_order(c);
    GIVE_F64(c, adamw, beta1);
    GIVE_F64(c, adamw, beta2);
    GIVE_F64(c, adamw, eps);
    GIVE_F64(c, adamw, decay);
}

static void lower_sgd(PlanCall *c)
{
    take_in_order(c);
    GIVE_F64(c, sgd, momentum);
    GIVE_F64(c, sgd, decay);
    GIVE_BOOL(c, sgd, nesterov);
}

static void lower_advance(PlanCall *c)
{
    take_in_order(c);
}

/* -- the table -- */

static const struct {
    void (*lower)(PlanCall *c); /* NULL: no kernel */
    PlanKernel kernel;
} lowerings[IR_OP_COUNT] = {
#include "ir/op_columns.h"
#undef CPU
#define CPU_FUSED(f) NULL, PLAN_KERNEL_fused
#define CPU_KERNEL(f) lower_##f, PLAN_KERNEL_##f
#define CPU_VIEW(f) NULL, PLAN_KERNEL_fused
#define CPU(class, f) CPU_##class(f)
#define OP(name, doc, ins, outs, attrs, columns) [IR_OP_##name] = {columns},
#include "ir/ops.def"
#undef OP
};

static const struct {
    uint32_t n_tensors, n_params;
} sizes[] = {
#define KERNEL(name, doc, tensors, params, workspace)                                              \
    {PLAN_T_##name##_TENSORS, PLAN_##name##_PARAMS},
#include "runtime/abi/kernels.def"
#undef KERNEL
};

bool plan_lower(PlanCall *c)
{
    IrOpKind kind = ir_op_kind(c->g, c->op);
    if (!lowerings[kind].lower)
        return false;
    c->kernel = lowerings[kind].kernel;
    c->n_tensors = sizes[c->kernel].n_tensors;
    c->n_params = sizes[c->kernel].n_params;
    lowerings[kind].lower(c);
    return true;
}
