/* workspace: the bytes that a kernel needs beside its tensors, from shapes alone. The compiler plans with these
 * functions, the runtime's kernels cut their work by the same constants. */
#ifndef RUNTIME_ABI_WORKSPACE_H
#define RUNTIME_ABI_WORKSPACE_H

#include "base/dtype.h"
#include "runtime/abi/plan.h"

enum {
    GEMM_TILE_M = 256, GEMM_TILE_N = 256, /* one sgemm call computes at most this much of C */
    LM_LOSS_CHUNK_BYTES = 64 << 20,       /* logits in memory at once, at most (at least one token's) */
    ATTENTION_TILE = 64,                  /* rows of q and of k per tile */
    NORM_SQ_BLOCK = 4096,
};

/* Arithmetic is f64 for f64 tensors, else f32. */
static inline uint64_t plan_real_bytes(uint32_t dtype)
{
    return dtype == DTYPE_F64 ? 8 : 4;
}

/* Tokens whose logits are in memory at once: a multiple of 16 where more than 16 fit. */
static inline int64_t plan_lm_loss_chunk(int64_t tokens, int64_t vocab, uint32_t dtype)
{
    int64_t fit = (int64_t)(LM_LOSS_CHUNK_BYTES / ((uint64_t)vocab * plan_real_bytes(dtype)));
    if (fit > 16)
        fit -= fit % 16;
    return fit < 1 ? 1 : fit > tokens ? tokens : fit;
}

static inline uint64_t plan_lm_loss_workspace(const PlanParam *p, const PlanTensor *t)
{
    int64_t tokens = p[PLAN_lm_loss_tokens].i, vocab = p[PLAN_lm_loss_vocab].i;
    uint32_t dtype = t[PLAN_T_lm_loss_h].dtype;
    /* logits of a chunk, and one loss per token */
    return ((uint64_t)(plan_lm_loss_chunk(tokens, vocab, dtype) * vocab) + (uint64_t)tokens) * plan_real_bytes(dtype);
}

static inline uint64_t plan_lm_loss_grad_workspace(const PlanParam *p, const PlanTensor *t)
{
    int64_t tokens = p[PLAN_lm_loss_grad_tokens].i, vocab = p[PLAN_lm_loss_grad_vocab].i;
    uint32_t dtype = t[PLAN_T_lm_loss_grad_h].dtype;
    uint64_t real = plan_real_bytes(dtype);
    uint64_t bytes = (uint64_t)(plan_lm_loss_chunk(tokens, vocab, dtype) * vocab) * real;
    /* dw is summed over chunks in f32: its own copy where dw is narrower and there is more than one chunk */
    if (t[PLAN_T_lm_loss_grad_dw].offset != PLAN_ABSENT && dtype == DTYPE_BF16 &&
        plan_lm_loss_chunk(tokens, vocab, dtype) < tokens)
        bytes += (uint64_t)(vocab * p[PLAN_lm_loss_grad_width].i) * 4;
    return bytes;
}

static inline uint64_t plan_embed_grad_workspace(const PlanParam *p)
{
    /* token order sorted by id (i32), and where each row's tokens begin (i32) */
    return ((uint64_t)p[PLAN_embed_grad_tokens].i + (uint64_t)p[PLAN_embed_grad_rows].i + 1) * 4;
}

static inline uint64_t plan_attention_grad_workspace(const PlanParam *p, const PlanTensor *t)
{
    /* rowsum(do * o), one per query row */
    return (uint64_t)(p[PLAN_attention_grad_batch].i * p[PLAN_attention_grad_seq].i * p[PLAN_attention_grad_heads].i) *
           plan_real_bytes(t[PLAN_T_attention_grad_q].dtype);
}

static inline uint64_t plan_norm_sq_workspace(const PlanParam *p)
{
    return (uint64_t)((p[PLAN_norm_sq_n].i + NORM_SQ_BLOCK - 1) / NORM_SQ_BLOCK) * 8;
}

/* Arena bytes of workspace for one instruction (kernel `fused`: n_chunks * partial_bytes, by the compiler). */
static inline uint64_t plan_workspace_bytes(PlanKernel kernel, const PlanParam *p, const PlanTensor *t)
{
    (void)p;
    (void)t;
    switch (kernel) {
#define KERNEL(name, doc, tensors, params, workspace) \
    case PLAN_KERNEL_##name:                          \
        return workspace;
#include "runtime/abi/kernels.def"
#undef KERNEL
    default:
        return 0;
    }
}

/* Scratch per worker thread, outside the arena. */
uint64_t plan_scratch_bytes(PlanKernel kernel, const PlanParam *p, const PlanTensor *t);

/* Rows per chunk of a fused region over [rows, cols]: about 16 Ki elements, at most 64 chunks where columns are summed. */
static inline int64_t plan_fused_rows_per_chunk(int64_t rows, int64_t cols, int sums_columns)
{
    int64_t per = (16384 + cols - 1) / (cols > 0 ? cols : 1);
    if (sums_columns && per < (rows + 63) / 64)
        per = (rows + 63) / 64;
    return per < 1 ? 1 : per > rows && rows > 0 ? rows : per;
}

#endif
