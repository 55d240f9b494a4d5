#include "runtime/plan_shapes.h"

#include "base/dtype.h"
#include "runtime/abi/workspace_cuda.h"

#define BIT(name) UINT64_C(1) << PLAN_KERNEL_##name
/* kernels with more tensors behind the declared ones */
#define VARIADIC                                                                                   \
    (BIT(fused) | BIT(concat) | BIT(grad_norm) | BIT(flat_pack) | BIT(sum_scalars))
_Static_assert(PLAN_KERNEL_COUNT <= 64, "a bit for each kernel");

static const RtKernelShape shapes[] = {
#define KERNEL(name, doc, tensors, params, workspace)                                              \
    {#name, PLAN_T_##name##_TENSORS, PLAN_##name##_PARAMS,                                         \
     VARIADIC >> PLAN_KERNEL_##name & 1},
#include "runtime/abi/kernels.def"
#undef KERNEL
};
#undef VARIADIC
#undef BIT

const RtKernelShape *rt_kernel_shape(uint32_t kernel)
{
    return &shapes[kernel];
}

int64_t rt_size_mul(int64_t a, int64_t b)
{
    int64_t product;
    return a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

typedef struct Question { /* about one instruction; the first `no` stays */
    const PlanTensor *t;
    const PlanParam *p;
    uint32_t n_tensors;
    const char *no;
} Question;

enum {
    REALS = 1 << DTYPE_F64 | 1 << DTYPE_F32 | 1 << DTYPE_BF16,
    WIDE = 1 << DTYPE_F64 | 1 << DTYPE_F32,
    F64 = 1 << DTYPE_F64,
    F32 = 1 << DTYPE_F32,
    I64 = 1 << DTYPE_I64,
    I32 = 1 << DTYPE_I32,
};

static void refuse(Question *q, const char *why)
{
    if (!q->no)
        q->no = why;
}

static void may(Question *q, int tensor, int64_t numel, unsigned dtypes)
{
    const PlanTensor *t = &q->t[tensor];
    if (t->offset == PLAN_ABSENT)
        return;
    if (t->numel != numel)
        refuse(q, "a tensor's size is not what the parameters say");
    if (!(dtypes >> t->dtype & 1))
        refuse(q, "a tensor's dtype is not what the kernel takes");
}

static void must(Question *q, int tensor, int64_t numel, unsigned dtypes)
{
    if (q->t[tensor].offset == PLAN_ABSENT)
        refuse(q, "a tensor that the kernel needs is absent");
    may(q, tensor, numel, dtypes);
}

static int64_t param_count(Question *q, int param)
{
    if (q->p[param].i < 1)
        refuse(q, "a size is not positive");
    return q->p[param].i;
}

static int64_t mul(int64_t a, int64_t b)
{
    return rt_size_mul(a, b);
}

#define COUNT(kernel, name) int64_t name = param_count(q, PLAN_##kernel##_##name)
#define MUST(kernel, name, numel, dtypes) must(q, PLAN_T_##kernel##_##name, numel, dtypes)
#define MAY(kernel, name, numel, dtypes) may(q, PLAN_T_##kernel##_##name, numel, dtypes)

static void shape_fused(Question *q)
{
    (void)q; /* its native code knows; the executor checks the workspace against it */
}

static void shape_gemm(Question *q)
{
    COUNT(gemm, m);
    COUNT(gemm, n);
    COUNT(gemm, k);
    MUST(gemm, c, mul(m, n), REALS);
    MUST(gemm, a, mul(m, k), REALS);
    MUST(gemm, b, mul(k, n), REALS);
    MAY(gemm, bias, n, REALS);
}

static void shape_embed(Question *q)
{
    COUNT(embed, tokens);
    COUNT(embed, width);
    COUNT(embed, rows);
    MUST(embed, y, mul(tokens, width), REALS);
    MUST(embed, table, mul(rows, width), REALS);
    MUST(embed, ids, tokens, I32);
}

static void shape_embed_grad(Question *q)
{
    COUNT(embed_grad, tokens);
    COUNT(embed_grad, width);
    COUNT(embed_grad, rows);
    MUST(embed_grad, dtable, mul(rows, width), REALS);
    MUST(embed_grad, ids, tokens, I32);
    MUST(embed_grad, dy, mul(tokens, width), REALS);
}

static void shape_rope_table(Question *q)
{
    COUNT(rope_table, tokens);
    COUNT(rope_table, dims);
    MUST(rope_table, cos, mul(tokens, dims / 2), WIDE);
    MUST(rope_table, sin, mul(tokens, dims / 2), WIDE);
    MUST(rope_table, positions, tokens, I32);
    if (dims % 2)
        refuse(q, "an odd number of rotated dims");
    if (q->p[PLAN_rope_table_kind].i < 0 || q->p[PLAN_rope_table_kind].i > 3)
        refuse(q, "an unknown kind of rope");
}

static void shape_attention(Question *q)
{
    COUNT(attention, batch);
    COUNT(attention, seq);
    COUNT(attention, heads);
    COUNT(attention, kv_heads);
    COUNT(attention, dim);
    int64_t tokens = mul(batch, seq);
    MUST(attention, o, mul(tokens, mul(heads, dim)), REALS);
    MAY(attention, lse, mul(tokens, heads), WIDE);
    MUST(attention, q, mul(tokens, mul(heads, dim)), REALS);
    MUST(attention, k, mul(tokens, mul(kv_heads, dim)), REALS);
    MUST(attention, v, mul(tokens, mul(kv_heads, dim)), REALS);
    MAY(attention, segments, tokens, I32);
    MAY(attention, keep, tokens, I32);
    if (kv_heads < 1 || heads % kv_heads)
        refuse(q, "the heads are no multiple of the kv heads");
}

static void shape_attention_grad(Question *q)
{
    COUNT(attention_grad, batch);
    COUNT(attention_grad, seq);
    COUNT(attention_grad, heads);
    COUNT(attention_grad, kv_heads);
    COUNT(attention_grad, dim);
    int64_t tokens = mul(batch, seq);
    int64_t wide = mul(tokens, mul(heads, dim)), narrow = mul(tokens, mul(kv_heads, dim));
    MAY(attention_grad, dq, wide, REALS);
    MAY(attention_grad, dk, narrow, REALS);
    MAY(attention_grad, dv, narrow, REALS);
    MUST(attention_grad, do, wide, REALS);
    MUST(attention_grad, q, wide, REALS);
    MUST(attention_grad, k, narrow, REALS);
    MUST(attention_grad, v, narrow, REALS);
    MUST(attention_grad, o, wide, REALS);
    MUST(attention_grad, lse, mul(tokens, heads), WIDE);
    MAY(attention_grad, segments, tokens, I32);
    MAY(attention_grad, keep, tokens, I32);
    if (kv_heads < 1 || heads % kv_heads)
        refuse(q, "the heads are no multiple of the kv heads");
}

static void shape_lm_loss(Question *q)
{
    COUNT(lm_loss, tokens);
    COUNT(lm_loss, width);
    COUNT(lm_loss, vocab);
    MUST(lm_loss, loss, 1, WIDE);
    MAY(lm_loss, lse, tokens, WIDE);
    MUST(lm_loss, h, mul(tokens, width), REALS);
    MUST(lm_loss, w, mul(vocab, width), REALS);
    MUST(lm_loss, targets, tokens, I32);
}

static void shape_lm_loss_with_grad(Question *q)
{
    COUNT(lm_loss_with_grad, tokens);
    COUNT(lm_loss_with_grad, width);
    COUNT(lm_loss_with_grad, vocab);
    MUST(lm_loss_with_grad, loss, 1, WIDE);
    MAY(lm_loss_with_grad, dh, mul(tokens, width), REALS);
    MAY(lm_loss_with_grad, dw, mul(vocab, width), REALS);
    MUST(lm_loss_with_grad, seed, 1, WIDE);
    MUST(lm_loss_with_grad, h, mul(tokens, width), REALS);
    MUST(lm_loss_with_grad, w, mul(vocab, width), REALS);
    MUST(lm_loss_with_grad, targets, tokens, I32);
}

static void shape_lm_loss_grad(Question *q)
{
    COUNT(lm_loss_grad, tokens);
    COUNT(lm_loss_grad, width);
    COUNT(lm_loss_grad, vocab);
    MAY(lm_loss_grad, dh, mul(tokens, width), REALS);
    MAY(lm_loss_grad, dw, mul(vocab, width), REALS);
    MUST(lm_loss_grad, seed, 1, WIDE);
    MUST(lm_loss_grad, h, mul(tokens, width), REALS);
    MUST(lm_loss_grad, w, mul(vocab, width), REALS);
    MUST(lm_loss_grad, targets, tokens, I32);
    MUST(lm_loss_grad, lse, tokens, WIDE);
}

static void shape_concat(Question *q)
{
    COUNT(concat, rows);
    COUNT(concat, width);
    COUNT(concat, n);
    MUST(concat, y, mul(rows, mul(width, n)), REALS);
    if (q->n_tensors < 2 || (uint64_t)n != q->n_tensors - 1) {
        refuse(q, "the number of parts is not what the parameter says");
        return;
    }
    for (uint32_t i = 1; i < q->n_tensors; i++)
        may(q, (int)i, mul(rows, width), REALS);
}

static void shape_count_targets(Question *q)
{
    COUNT(count_targets, n);
    MUST(count_targets, targets, n, I32);
    MUST(count_targets, count, 1, I64);
    MUST(count_targets, inverse, 1, WIDE);
}

static void shape_accumulate(Question *q)
{
    int64_t numel = q->t[PLAN_T_accumulate_x].numel;
    MUST(accumulate, state, numel, REALS);
    MUST(accumulate, x, numel, REALS);
}

static void shape_norm_sq(Question *q)
{
    COUNT(norm_sq, n);
    MUST(norm_sq, y, 1, F64);
    MUST(norm_sq, x, n, REALS);
}

static void shape_grad_norm(Question *q)
{
    MUST(grad_norm, norm, 1, F64);
    MUST(grad_norm, coef, 1, WIDE);
    if (q->p[PLAN_grad_norm_n].i < 0 || (uint64_t)q->p[PLAN_grad_norm_n].i != q->n_tensors - 2)
        refuse(q, "the number of parts is not what the parameter says");
    for (uint32_t i = PLAN_T_grad_norm_TENSORS; i < q->n_tensors; i++)
        must(q, (int)i, 1, F64);
}

static void shape_loss_mean(Question *q)
{
    MUST(loss_mean, loss, 1, F64);
    MUST(loss_mean, sum, 1, WIDE);
    MUST(loss_mean, inverse, 1, WIDE);
}

/* Where all ranks hold a weight that each updates a part of, it is larger than the gradient;
 * plan_map.c knows how many parts there are. */
static int64_t updated(Question *q, int weight, int gradient)
{
    must(q, weight, q->t[weight].numel, REALS);
    return q->t[gradient].numel;
}

static void shape_adamw(Question *q)
{
    int64_t numel = updated(q, PLAN_T_adamw_w, PLAN_T_adamw_g);
    MUST(adamw, g, numel, REALS);
    MUST(adamw, m, numel, REALS);
    MUST(adamw, v, numel, REALS);
    MAY(adamw, master, numel, WIDE);
    MUST(adamw, coef, 1, WIDE);
    MUST(adamw, lr, 1, WIDE);
    MUST(adamw, step, 1, I64);
}

static void shape_sgd(Question *q)
{
    int64_t numel = updated(q, PLAN_T_sgd_w, PLAN_T_sgd_g);
    MUST(sgd, g, numel, REALS);
    MAY(sgd, m, numel, REALS);
    MAY(sgd, master, numel, WIDE);
    MUST(sgd, coef, 1, WIDE);
    MUST(sgd, lr, 1, WIDE);
    MUST(sgd, step, 1, I64);
}

static void shape_advance(Question *q)
{
    MUST(advance, step, 1, I64);
    MUST(advance, skipped, 1, I64);
    MUST(advance, coef, 1, WIDE);
}

static void dense(Question *q, int tensor)
{
    const PlanTensor *t = &q->t[tensor];
    if (t->run != t->pitch && t->run < t->numel)
        refuse(q, "a tensor that ranks exchange is not dense");
}

static void shape_all_gather(Question *q)
{
    COUNT(all_gather, ranks);
    COUNT(all_gather, count);
    MUST(all_gather, y, mul(ranks, count), UINT32_MAX);
    MAY(all_gather, x, count, UINT32_MAX);
    dense(q, PLAN_T_all_gather_y);
    dense(q, PLAN_T_all_gather_x);
    if (q->t[PLAN_T_all_gather_x].offset != PLAN_ABSENT &&
        q->t[PLAN_T_all_gather_y].dtype != q->t[PLAN_T_all_gather_x].dtype)
        refuse(q, "a gather changes the dtype");
}

static void shape_reduce_scatter(Question *q)
{
    COUNT(reduce_scatter, ranks);
    COUNT(reduce_scatter, count);
    MUST(reduce_scatter, y, count, REALS);
    MUST(reduce_scatter, x, mul(ranks, count), REALS);
    dense(q, PLAN_T_reduce_scatter_y);
    dense(q, PLAN_T_reduce_scatter_x);
}

static void shape_all_reduce(Question *q)
{
    COUNT(all_reduce, ranks);
    COUNT(all_reduce, count);
    (void)ranks;
    MUST(all_reduce, y, count, REALS | I64);
    MUST(all_reduce, x, count, REALS | I64);
    dense(q, PLAN_T_all_reduce_y);
    dense(q, PLAN_T_all_reduce_x);
    if ((q->t[PLAN_T_all_reduce_x].dtype == DTYPE_I64) !=
        (q->t[PLAN_T_all_reduce_y].dtype == DTYPE_I64))
        refuse(q, "a sum mixes whole numbers and others");
    if (q->p[PLAN_all_reduce_op].i < 0 || q->p[PLAN_all_reduce_op].i > PLAN_MAX)
        refuse(q, "an unknown kind of reduction");
}

static void shape_take_part(Question *q)
{
    COUNT(take_part, ranks);
    COUNT(take_part, count);
    int64_t numel = q->t[PLAN_T_take_part_x].numel;
    MUST(take_part, y, count, UINT32_MAX);
    MUST(take_part, x, numel, UINT32_MAX);
    if (numel > mul(ranks, count))
        refuse(q, "the parts do not cover the whole");
    if (q->t[PLAN_T_take_part_y].dtype != q->t[PLAN_T_take_part_x].dtype)
        refuse(q, "taking a part changes the dtype");
}

static void shape_message(Question *q, int64_t ranks, int64_t peer)
{
    dense(q, 0);
    if (peer < 0 || peer >= ranks)
        refuse(q, "the other end of a message is no member");
}

static void shape_send(Question *q)
{
    COUNT(send, ranks);
    COUNT(send, count);
    MUST(send, x, count, UINT32_MAX);
    shape_message(q, ranks, q->p[PLAN_send_peer].i);
}

static void shape_recv(Question *q)
{
    COUNT(recv, ranks);
    COUNT(recv, count);
    MUST(recv, y, count, UINT32_MAX);
    shape_message(q, ranks, q->p[PLAN_recv_peer].i);
}

static void shape_flat_pack(Question *q)
{
    int64_t n = q->p[PLAN_flat_pack_n].i, total = 0;
    if (n < 1 || (uint64_t)n != q->n_tensors - 1) {
        refuse(q, "the number of parts is not what the parameter says");
        return;
    }
    MUST(flat_pack, y, q->t[PLAN_T_flat_pack_y].numel, REALS);
    for (uint32_t i = 1; i < q->n_tensors; i++) {
        may(q, (int)i, q->t[i].numel, REALS);
        total = total > INT64_MAX - q->t[i].numel ? INT64_MAX : total + q->t[i].numel;
    }
    if (total > q->t[PLAN_T_flat_pack_y].numel)
        refuse(q, "the parts are larger than the whole");
}

static void shape_invert_count(Question *q)
{
    MUST(invert_count, inverse, 1, WIDE);
    MUST(invert_count, count, 1, I64);
}

static void shape_sum_scalars(Question *q)
{
    MUST(sum_scalars, y, 1, F64);
    if (q->p[PLAN_sum_scalars_n].i < 0 || (uint64_t)q->p[PLAN_sum_scalars_n].i != q->n_tensors - 1)
        refuse(q, "the number of parts is not what the parameter says");
    for (uint32_t i = PLAN_T_sum_scalars_TENSORS; i < q->n_tensors; i++)
        must(q, (int)i, 1, F64);
}

static void shape_embed_part(Question *q)
{
    COUNT(embed_part, tokens);
    COUNT(embed_part, width);
    COUNT(embed_part, rows);
    MUST(embed_part, y, mul(tokens, width), REALS);
    MUST(embed_part, table, mul(rows, width), REALS);
    MUST(embed_part, ids, tokens, I32);
}

static void shape_embed_part_grad(Question *q)
{
    COUNT(embed_part_grad, tokens);
    COUNT(embed_part_grad, width);
    COUNT(embed_part_grad, rows);
    MUST(embed_part_grad, dtable, mul(rows, width), REALS);
    MUST(embed_part_grad, ids, tokens, I32);
    MUST(embed_part_grad, dy, mul(tokens, width), REALS);
}

static void shape_lm_loss_part(Question *q)
{
    COUNT(lm_loss_part, tokens);
    COUNT(lm_loss_part, width);
    COUNT(lm_loss_part, vocab);
    MUST(lm_loss_part, part, mul(2, tokens), WIDE);
    MUST(lm_loss_part, h, mul(tokens, width), REALS);
    MUST(lm_loss_part, w, mul(vocab, width), REALS);
    MUST(lm_loss_part, targets, tokens, I32);
}

static void shape_lm_loss_join(Question *q)
{
    COUNT(lm_loss_join, tokens);
    COUNT(lm_loss_join, n);
    MUST(lm_loss_join, loss, 1, WIDE);
    MAY(lm_loss_join, lse, tokens, WIDE);
    MUST(lm_loss_join, parts, mul(n, mul(2, tokens)), WIDE);
    MUST(lm_loss_join, targets, tokens, I32);
}

static void shape_lm_loss_part_grad(Question *q)
{
    COUNT(lm_loss_part_grad, tokens);
    COUNT(lm_loss_part_grad, width);
    COUNT(lm_loss_part_grad, vocab);
    MAY(lm_loss_part_grad, dh, mul(tokens, width), REALS);
    MAY(lm_loss_part_grad, dw, mul(vocab, width), REALS);
    MUST(lm_loss_part_grad, seed, 1, WIDE);
    MUST(lm_loss_part_grad, h, mul(tokens, width), REALS);
    MUST(lm_loss_part_grad, w, mul(vocab, width), REALS);
    MUST(lm_loss_part_grad, targets, tokens, I32);
    MUST(lm_loss_part_grad, lse, tokens, WIDE);
}

static uint64_t workspace_bytes(PlanTarget target, const PlanInstr *instr,
                                const PlanTensor *tensors, const PlanParam *params)
{
    PlanKernel kernel = (PlanKernel)instr->kernel;
    return target == PLAN_TARGET_CUDA ? plan_cuda_workspace_bytes(kernel, params, tensors)
                                      : plan_workspace_bytes(kernel, params, tensors);
}

const char *rt_plan_shape_fault(PlanTarget target, const PlanInstr *instr,
                                const PlanTensor *tensors, const PlanParam *params)
{
    static void (*const questions[])(Question *) = {
#define KERNEL(name, ...) shape_##name,
#include "runtime/abi/kernels.def"
#undef KERNEL
    };
    Question q = {.t = tensors, .p = params, .n_tensors = instr->n_tensors};
    questions[instr->kernel](&q);
    if (!q.no && instr->kernel != PLAN_KERNEL_fused &&
        instr->workspace_bytes < workspace_bytes(target, instr, tensors, params))
        q.no = "the workspace is smaller than the kernel needs";
    return q.no;
}
