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

/* Of a flat buffer that is cut over ranks, which elements. */
static void set_range(PlanCall *c, uint32_t comm, uint32_t begin, uint32_t end)
{
    if (*ir_attr_sym(c->g, c->op, "comm"))
        give(c, comm, plan_comm(c->w, c->g, c->op));
    give(c, begin, ir_attr_i64(c->g, c->op, "begin"));
    give(c, end, ir_attr_i64(c->g, c->op, "end"));
}

static void lower_norm_sq(PlanCall *c)
{
    take_in_order(c);
    set_range(c, PLAN_norm_sq_comm, PLAN_norm_sq_begin, PLAN_norm_sq_end);
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
    set_range(c, PLAN_adamw_comm, PLAN_adamw_begin, PLAN_adamw_end);
}

static void lower_sgd(PlanCall *c)
{
    take_in_order(c);
    GIVE_F64(c, sgd, momentum);
    GIVE_F64(c, sgd, decay);
    GIVE_BOOL(c, sgd, nesterov);
    set_range(c, PLAN_sgd_comm, PLAN_sgd_begin, PLAN_sgd_end);
}

static void lower_advance(PlanCall *c)
{
    take_in_order(c);
}

/* -- many ranks -- */

static void set_comm(PlanCall *c, uint32_t comm, uint32_t ranks)
{
    give(c, comm, plan_comm(c->w, c->g, c->op));
    give(c, ranks, ir_attr_i64(c->g, c->op, "ranks"));
}

/* A state is gathered in place, each member's part from where it lies. */
static void lower_all_gather(PlanCall *c)
{
    bool in_place = ir_op_kind(c->g, c->op) == IR_OP_all_gather_state;
    int64_t ranks = ir_attr_i64(c->g, c->op, "ranks"), n = numel(c, in(c, 0));
    take(c, PLAN_T_all_gather_y, in_place ? in(c, 0) : out(c, 0));
    if (!in_place)
        take(c, PLAN_T_all_gather_x, in(c, 0));
    set_comm(c, PLAN_all_gather_comm, PLAN_all_gather_ranks);
    give(c, PLAN_all_gather_count, in_place ? n / ranks : n);
}

static void lower_reduce_scatter(PlanCall *c)
{
    take_in_order(c);
    set_comm(c, PLAN_reduce_scatter_comm, PLAN_reduce_scatter_ranks);
    give(c, PLAN_reduce_scatter_count, numel(c, out(c, 0)));
}

/* A state is reduced in place. */
static void lower_all_reduce(PlanCall *c)
{
    bool in_place = ir_op_kind(c->g, c->op) == IR_OP_all_reduce_state;
    take(c, PLAN_T_all_reduce_y, in_place ? in(c, 0) : out(c, 0));
    take(c, PLAN_T_all_reduce_x, in(c, 0));
    set_comm(c, PLAN_all_reduce_comm, PLAN_all_reduce_ranks);
    give(c, PLAN_all_reduce_count, numel(c, in(c, 0)));
    bool max = !in_place && !strcmp(ir_attr_sym(c->g, c->op, "op"), "max");
    give(c, PLAN_all_reduce_op, max ? PLAN_MAX : PLAN_SUM);
}

static void lower_take_part(PlanCall *c)
{
    take_in_order(c);
    set_comm(c, PLAN_take_part_comm, PLAN_take_part_ranks);
    give(c, PLAN_take_part_count, numel(c, out(c, 0)));
}

static void lower_send(PlanCall *c)
{
    take_in_order(c);
    set_comm(c, PLAN_send_comm, PLAN_send_ranks);
    give(c, PLAN_send_count, numel(c, in(c, 0)));
    GIVE_I64(c, send, peer);
}

static void lower_recv(PlanCall *c)
{
    take_in_order(c);
    set_comm(c, PLAN_recv_comm, PLAN_recv_ranks);
    give(c, PLAN_recv_count, numel(c, out(c, 0)));
    GIVE_I64(c, recv, peer);
}

static void lower_flat_pack(PlanCall *c)
{
    take_in_order(c);
    c->n_tensors = 1 + ir_op(c->g, c->op)->n_in;
    give(c, PLAN_flat_pack_n, ir_op(c->g, c->op)->n_in);
}

#define GIVE_COMM(c, kernel) give(c, PLAN_##kernel##_comm, plan_comm((c)->w, (c)->g, (c)->op))

static void lower_embed_part(PlanCall *c)
{
    take_in_order(c);
    int64_t tokens = numel(c, in(c, 1));
    give(c, PLAN_embed_part_tokens, tokens);
    give(c, PLAN_embed_part_width, numel(c, out(c, 0)) / tokens);
    give(c, PLAN_embed_part_rows, dim(c, in(c, 0), 0));
    GIVE_I64(c, embed_part, total);
    GIVE_COMM(c, embed_part);
}

static void lower_embed_part_grad(PlanCall *c)
{
    take_in_order(c);
    int64_t tokens = numel(c, in(c, 0));
    give(c, PLAN_embed_part_grad_tokens, tokens);
    give(c, PLAN_embed_part_grad_width, numel(c, in(c, 1)) / tokens);
    give(c, PLAN_embed_part_grad_rows, dim(c, out(c, 0), 0));
    GIVE_I64(c, embed_part_grad, padding);
    GIVE_COMM(c, embed_part_grad);
}

static void lower_lm_loss_part(PlanCall *c)
{
    take_in_order(c);
    int64_t tokens = numel(c, in(c, 2));
    give(c, PLAN_lm_loss_part_tokens, tokens);
    give(c, PLAN_lm_loss_part_width, numel(c, in(c, 0)) / tokens);
    give(c, PLAN_lm_loss_part_vocab, dim(c, in(c, 1), 0));
    GIVE_F64(c, lm_loss_part, softcap);
    GIVE_I64(c, lm_loss_part, ignore);
    GIVE_I64(c, lm_loss_part, total);
    GIVE_COMM(c, lm_loss_part);
}

static void lower_lm_loss_join(PlanCall *c)
{
    take_in_order(c);
    give(c, PLAN_lm_loss_join_tokens, numel(c, in(c, 1)));
    GIVE_I64(c, lm_loss_join, n);
    GIVE_I64(c, lm_loss_join, ignore);
}

static void lower_lm_loss_part_grad(PlanCall *c)
{
    take_in_order(c);
    int64_t tokens = numel(c, in(c, 3));
    give(c, PLAN_lm_loss_part_grad_tokens, tokens);
    give(c, PLAN_lm_loss_part_grad_width, numel(c, in(c, 1)) / tokens);
    give(c, PLAN_lm_loss_part_grad_vocab, dim(c, in(c, 2), 0));
    GIVE_F64(c, lm_loss_part_grad, softcap);
    GIVE_I64(c, lm_loss_part_grad, ignore);
    GIVE_I64(c, lm_loss_part_grad, total);
    GIVE_COMM(c, lm_loss_part_grad);
}

static void lower_invert_count(PlanCall *c)
{
    take_in_order(c);
}

static void lower_sum_scalars(PlanCall *c)
{
    take_in_order(c);
    c->n_tensors = 1 + ir_op(c->g, c->op)->n_in;
    give(c, PLAN_sum_scalars_n, ir_op(c->g, c->op)->n_in);
    GIVE_F64(c, sum_scalars, factor);
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
