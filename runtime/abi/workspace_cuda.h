/* workspace_cuda: workspace.h for target cuda: bytes that a kernel needs beside its tensors,
 * from shapes alone, and how the launch functions cut their work by them. */
#ifndef RUNTIME_ABI_WORKSPACE_CUDA_H
#define RUNTIME_ABI_WORKSPACE_CUDA_H

#include "runtime/abi/workspace.h"

#define PLAN_CUDA_LIBRARY_WORKSPACE (32ull << 20) /* of matrix products, at the end of the arena   \
                                                   */

#define CUDA_ALIGN 256 /* bytes; every piece of a workspace begins at a multiple */

static inline uint64_t plan_cuda_align(uint64_t bytes)
{
    return (bytes + CUDA_ALIGN - 1) / CUDA_ALIGN * CUDA_ALIGN;
}

/* -- attention_grad: head sizes above 128 in bf16 keep tiles of P and dS in the workspace, for
 * some heads at a time -- */

#define SPLIT_TILE 128
#define SPLIT_COLUMNS 256
#define SPLIT_TILE_BYTES (2ull * 2 * SPLIT_TILE * SPLIT_TILE)
#ifndef SPLIT_BYTES_MOST                  /* the tests set smaller ones */
#define SPLIT_BYTES_WANTED (160ull << 20) /* as many groups as fit in this */
#define SPLIT_BYTES_MOST                                                                           \
    (544ull << 20) /* but two, or one, where they fit in this; else a part of one group's queries  \
                    */
#endif

/* A group is a (batch, kv head) pair with its query heads; a unit is one tile of queries of one
 * of these heads. */
typedef struct PlanSplit {
    int64_t tiles, reach;   /* tiles along seq; how many a window reaches back, or `tiles` */
    int64_t tiles_per_head; /* visible ones */
    int64_t units;          /* of a group */
    int64_t groups_per_piece;
    bool whole; /* a piece has all units of its groups */
    /* of the largest piece; of one result's f32 sums, where pieces are not whole */
    uint64_t tile_bytes, sum_bytes;
} PlanSplit;

/* Visible tiles of one head in the rows of tiles before row i. */
static inline int64_t plan_split_before(int64_t tiles, int64_t reach, bool causal, int64_t i)
{
    int64_t n;
    if (causal) {
        if (i <= reach + 1)
            return i * (i + 1) / 2;
        return (reach + 1) * (reach + 2) / 2 + (i - reach - 1) * (reach + 1);
    }
    n = i - 1 - reach;
    return i * tiles - (n > 0 ? n * (n + 1) / 2 : 0);
}

/* Visible tiles of the units before `unit`. */
static inline int64_t plan_split_before_unit(const PlanSplit *x, bool causal, int64_t unit)
{
    return unit / x->tiles * x->tiles_per_head +
           plan_split_before(x->tiles, x->reach, causal, unit % x->tiles);
}

/* The end of the piece that begins at `unit`, where pieces are parts of one group. */
static inline int64_t plan_split_end(const PlanSplit *x, bool causal, int64_t unit)
{
    int64_t most = (int64_t)(SPLIT_BYTES_MOST / SPLIT_TILE_BYTES), end = unit + 1;
    int64_t before = plan_split_before_unit(x, causal, unit);
    while (end < x->units && plan_split_before_unit(x, causal, end + 1) - before <= most)
        end++;
    return end;
}

static inline bool plan_attention_is_split(int64_t dim, uint32_t dtype)
{
    return dtype == DTYPE_BF16 && dim > 128 && dim <= 512 && dim % 8 == 0;
}

/* Reads batch, seq, heads, kv_heads, dim, causal and window. */
static inline PlanSplit plan_split(const PlanParam *p)
{
    int64_t seq = p[PLAN_attention_grad_seq].i, window = p[PLAN_attention_grad_window].i;
    int64_t kv_heads = p[PLAN_attention_grad_kv_heads].i,
            group = p[PLAN_attention_grad_heads].i / kv_heads;
    int64_t groups = p[PLAN_attention_grad_batch].i * kv_heads;
    bool causal = p[PLAN_attention_grad_causal].i;
    PlanSplit x = {.tiles = plan_ceil_div(seq, SPLIT_TILE)};
    x.reach = window ? plan_min(x.tiles, plan_ceil_div(window - 1, SPLIT_TILE)) : x.tiles;
    x.tiles_per_head = plan_split_before(x.tiles, x.reach, causal, x.tiles);
    x.units = group * x.tiles;
    uint64_t group_bytes = (uint64_t)(group * x.tiles_per_head) * SPLIT_TILE_BYTES;
    x.whole = group_bytes <= SPLIT_BYTES_MOST;
    if (x.whole) {
        int64_t fit = (int64_t)(SPLIT_BYTES_WANTED / group_bytes);
        if (fit < 2)
            fit = 2 * group_bytes <= SPLIT_BYTES_MOST ? 2 : 1;
        fit = plan_min(fit, groups);
        x.groups_per_piece = plan_ceil_div(groups, plan_ceil_div(groups, fit));
        x.tile_bytes = (uint64_t)x.groups_per_piece * group_bytes;
        return x;
    }
    int64_t most = 0;
    for (int64_t unit = 0, end; unit < x.units; unit = end) {
        end = plan_split_end(&x, causal, unit);
        int64_t n =
            plan_split_before_unit(&x, causal, end) - plan_split_before_unit(&x, causal, unit);
        most = n > most ? n : most;
    }
    x.groups_per_piece = 1;
    x.tile_bytes = (uint64_t)most * SPLIT_TILE_BYTES;
    x.sum_bytes =
        plan_cuda_align((uint64_t)(x.tiles * SPLIT_TILE *
                                   plan_round_up(p[PLAN_attention_grad_dim].i, SPLIT_COLUMNS)) *
                        4);
    return x;
}

static inline uint64_t plan_cuda_delta_bytes(const PlanParam *p)
{
    return plan_cuda_align(
        4 * (uint64_t)(p[PLAN_attention_grad_batch].i * p[PLAN_attention_grad_seq].i *
                       p[PLAN_attention_grad_heads].i));
}

/* Head sizes up to 64 in bf16: two f32 per query, seq rounded up to 64, and two counters. */
static inline bool plan_attention_is_grouped(int64_t dim, uint32_t dtype)
{
    return dtype == DTYPE_BF16 && dim <= 64 && dim % 8 == 0;
}

static inline uint64_t plan_cuda_statistics_bytes(const PlanParam *p)
{
    return plan_cuda_align(8 * (uint64_t)(p[PLAN_attention_grad_batch].i *
                                          plan_round_up(p[PLAN_attention_grad_seq].i, 64) *
                                          p[PLAN_attention_grad_heads].i));
}

static inline uint64_t plan_cuda_attention_grad_workspace(const PlanParam *p, const PlanTensor *t)
{
    uint64_t bytes = plan_cuda_delta_bytes(p); /* rowsum(do * o), f32 */
    if (plan_attention_is_grouped(p[PLAN_attention_grad_dim].i, t[PLAN_T_attention_grad_q].dtype))
        return plan_cuda_statistics_bytes(p) + CUDA_ALIGN;
    if (plan_attention_is_split(p[PLAN_attention_grad_dim].i, t[PLAN_T_attention_grad_q].dtype)) {
        PlanSplit split = plan_split(p);
        bytes += split.tile_bytes + 2 * split.sum_bytes;
    }
    return bytes;
}

/* -- lm_loss, lm_loss_grad: logits in f32, all tokens, some columns of the vocabulary at a time
 * -- */

#ifndef CUDA_LOGITS_BYTES
#define CUDA_LOGITS_BYTES (256ull << 20)
#endif

static inline int64_t plan_cuda_lm_columns(int64_t tokens, int64_t vocab)
{
    int64_t fit =
        (int64_t)(CUDA_LOGITS_BYTES / (4 * (uint64_t)(tokens > 0 ? tokens : 1))) / 256 * 256;
    if (fit < 256)
        fit = 256;
    if (fit >= vocab)
        return plan_round_up(vocab, 8);
    return plan_min(fit, plan_round_up(plan_ceil_div(vocab, plan_ceil_div(vocab, fit)), 256));
}

static inline uint64_t plan_cuda_logits_bytes(int64_t tokens, int64_t vocab)
{
    return plan_cuda_align(4 * (uint64_t)(tokens * plan_cuda_lm_columns(tokens, vocab)));
}

/* Reads tokens and vocab. */
static inline uint64_t plan_cuda_lm_loss_workspace(const PlanParam *p)
{
    int64_t tokens = p[PLAN_lm_loss_tokens].i;
    /* beside the logits per token: maximum, sum, the target's logit, the loss */
    return plan_cuda_logits_bytes(tokens, p[PLAN_lm_loss_vocab].i) +
           4 * plan_cuda_align(4 * (uint64_t)tokens);
}

/* Whether dh is summed in the workspace: it has more than one chunk, and is not f32 itself. */
static inline bool plan_cuda_lm_loss_grad_sums(const PlanParam *p, const PlanTensor *t)
{
    const PlanTensor *dh = &t[PLAN_T_lm_loss_grad_dh];
    int64_t tokens = p[PLAN_lm_loss_grad_tokens].i, vocab = p[PLAN_lm_loss_grad_vocab].i;
    return dh->offset != PLAN_ABSENT && plan_cuda_lm_columns(tokens, vocab) < vocab &&
           !plan_row_direct(dh, p[PLAN_lm_loss_grad_width].i, 4);
}

/* Reads tokens, width, vocab, and the tensor dh. */
static inline uint64_t plan_cuda_lm_loss_grad_workspace(const PlanParam *p, const PlanTensor *t)
{
    int64_t tokens = p[PLAN_lm_loss_grad_tokens].i;
    uint64_t bytes = plan_cuda_logits_bytes(tokens, p[PLAN_lm_loss_grad_vocab].i);
    if (plan_cuda_lm_loss_grad_sums(p, t))
        bytes += plan_cuda_align(4 * (uint64_t)(tokens * p[PLAN_lm_loss_grad_width].i));
    return bytes;
}

/* -- lm_loss_with_grad: logits in the head's own dtype, the whole vocabulary, some tokens at a
 * time -- */

#ifndef CUDA_HEAD_BYTES
#define CUDA_HEAD_BYTES (512ull << 20) /* of logits */
#endif
#ifndef CUDA_HEAD_SUMS_BYTES
#define CUDA_HEAD_SUMS_BYTES (1536ull << 20) /* of logits and sums of dw, where these are kept */
#endif
#ifndef CUDA_HEAD_ROWS
#define CUDA_HEAD_ROWS 256 /* a chunk has a multiple of these */
#endif

typedef struct PlanHead {
    int64_t rows;          /* tokens of a chunk; the last one's may be fewer */
    int64_t lent;          /* words whose sums lie in dw's own memory: half of all, or none */
    uint64_t logits_bytes; /* of a chunk */
    uint64_t sums_bytes;   /* of the other words; 0: there is one chunk, or dw itself is summed */
} PlanHead;

/* Rows of a chunk, where `fit` are the most. Every chunk reads and writes the sums of dw, so they
 * are few; but up to half as many again where dh's tiles (128 x 256, the largest of products) fill
 * the 132 multiprocessors better. */
static inline int64_t plan_cuda_head_rows(int64_t tokens, int64_t width, int64_t fit)
{
    int64_t best = tokens, best_waves = 0, least = tokens > fit ? plan_ceil_div(tokens, fit) : 1;
    for (int64_t chunks = least; chunks <= least + least / 2; chunks++) {
        int64_t rows = plan_round_up(plan_ceil_div(tokens, chunks), CUDA_HEAD_ROWS), waves = 0;
        for (int64_t t = 0; t < tokens; t += rows)
            waves += plan_ceil_div(
                plan_ceil_div(plan_min(rows, tokens - t), 128) * plan_ceil_div(width, 256), 132);
        if (chunks > least && waves >= best_waves)
            continue;
        best = plan_min(rows, tokens);
        best_waves = waves;
    }
    return best;
}

/* Reads tokens, width, vocab, and the tensors h and dw. */
static inline PlanHead plan_cuda_head(const PlanParam *p, const PlanTensor *t)
{
    const PlanTensor *dw = &t[PLAN_T_lm_loss_with_grad_dw];
    int64_t tokens = p[PLAN_lm_loss_with_grad_tokens].i, vocab = p[PLAN_lm_loss_with_grad_vocab].i,
            width = p[PLAN_lm_loss_with_grad_width].i;
    uint64_t row_bytes = (uint64_t)plan_round_up(vocab, 8) *
                         (t[PLAN_T_lm_loss_with_grad_h].dtype == DTYPE_BF16 ? 2 : 4);
    uint64_t bytes = CUDA_HEAD_BYTES, sums = (uint64_t)(vocab * width) * 4;
    PlanHead x = {0};
    if (dw->offset != PLAN_ABSENT && !plan_row_direct(dw, width, 4)) {
        if (sums > CUDA_HEAD_BYTES && dw->dtype == DTYPE_BF16 &&
            plan_row_pitch(dw, width) == width && (uint64_t)width * 2 <= CUDA_HEAD_ROWS * row_bytes)
            x.lent = vocab / 2 / 128 * 128;
        x.sums_bytes = plan_cuda_align((uint64_t)((vocab - x.lent) * width) * 4);
        if (x.sums_bytes + bytes < CUDA_HEAD_SUMS_BYTES)
            bytes = CUDA_HEAD_SUMS_BYTES - x.sums_bytes;
    }
    int64_t fit = (int64_t)(bytes / row_bytes) / CUDA_HEAD_ROWS * CUDA_HEAD_ROWS;
    x.rows = plan_cuda_head_rows(tokens, width, fit < CUDA_HEAD_ROWS ? CUDA_HEAD_ROWS : fit);
    x.logits_bytes = plan_cuda_align((uint64_t)x.rows * row_bytes);
    if (x.rows >= tokens)
        x.lent = 0, x.sums_bytes = 0;
    return x;
}

/* Logits; losses of the tokens; sums of dw where they are kept apart. */
static inline uint64_t plan_cuda_lm_loss_with_grad_workspace(const PlanParam *p,
                                                             const PlanTensor *t)
{
    PlanHead x = plan_cuda_head(p, t);
    return x.logits_bytes + plan_cuda_align(4 * (uint64_t)p[PLAN_lm_loss_with_grad_tokens].i) +
           x.sums_bytes;
}

/* -- the others -- */

static inline uint64_t plan_cuda_embed_grad_workspace(const PlanParam *p)
{
    uint64_t tokens = (uint64_t)p[PLAN_embed_grad_tokens].i,
             rows = (uint64_t)p[PLAN_embed_grad_rows].i;
    /* the order of tokens by id and room to sort it; where each row's tokens begin and end (i32) */
    return 2 * plan_cuda_align(4 * tokens) + 2 * plan_cuda_align(4 * rows);
}

/* Blocks of NORM_SQ_BLOCK elements that one thread block sums: one f64 each in the workspace. */
#define CUDA_NORM_SPAN 32

static inline int64_t plan_cuda_norm_spans(int64_t n)
{
    return plan_ceil_div(n, NORM_SQ_BLOCK * CUDA_NORM_SPAN);
}

/* -- exchanges between ranks: what the others have sent lies in the workspace, a piece for each
 * member, and is summed there -- */

#ifndef CUDA_COMM_BYTES
#define CUDA_COMM_BYTES (64ull << 20) /* of all members' pieces, in one round */
#endif
#define PLAN_CUDA_REDUCE_SMALL 4096 /* elements that every member sums for itself */

/* Elements of a member's piece in one round of many. */
static inline int64_t plan_cuda_comm_most(int64_t ranks, uint32_t dtype)
{
    int64_t most =
        (int64_t)(CUDA_COMM_BYTES / ((uint64_t)ranks * dtype_bytes((DType)dtype))) / 256 * 256;
    return most < 256 ? 256 : most;
}

/* Of a sum whose pieces stay where they are summed. */
static inline int64_t plan_cuda_comm_piece(int64_t ranks, int64_t count, uint32_t dtype)
{
    return plan_min(count, plan_cuda_comm_most(ranks, dtype));
}

/* Of a sum that all members get. */
static inline int64_t plan_cuda_reduce_piece(int64_t ranks, int64_t count, uint32_t dtype)
{
    return plan_min(plan_round_up(plan_ceil_div(count, ranks), 64),
                    plan_cuda_comm_most(ranks, dtype));
}

/* Bytes from one member's piece to the next. */
static inline uint64_t plan_cuda_comm_stride(int64_t piece, uint32_t dtype)
{
    return plan_cuda_align((uint64_t)piece * dtype_bytes((DType)dtype));
}

static inline uint64_t plan_cuda_reduce_scatter_workspace(const PlanParam *p, const PlanTensor *t)
{
    int64_t ranks = p[PLAN_reduce_scatter_ranks].i, count = p[PLAN_reduce_scatter_count].i;
    uint32_t dtype = t[PLAN_T_reduce_scatter_x].dtype;
    return (uint64_t)ranks *
           plan_cuda_comm_stride(plan_cuda_comm_piece(ranks, count, dtype), dtype);
}

static inline uint64_t plan_cuda_all_reduce_workspace(const PlanParam *p, const PlanTensor *t)
{
    int64_t ranks = p[PLAN_all_reduce_ranks].i, count = p[PLAN_all_reduce_count].i;
    uint32_t dtype = t[PLAN_T_all_reduce_x].dtype;
    int64_t piece = count <= PLAN_CUDA_REDUCE_SMALL ? count
                                                    : plan_cuda_reduce_piece(ranks, count, dtype);
    return (uint64_t)ranks * plan_cuda_comm_stride(piece, dtype);
}

/* Arena bytes of workspace for one instruction (kernel `fused`: by the compiler; gemm: the
 * library's, in the header). */
static inline uint64_t plan_cuda_workspace_bytes(PlanKernel kernel, const PlanParam *p,
                                                 const PlanTensor *t)
{
    switch (kernel) {
    case PLAN_KERNEL_attention_grad:
        return plan_cuda_attention_grad_workspace(p, t);
    case PLAN_KERNEL_lm_loss:
    case PLAN_KERNEL_lm_loss_part: /* the parts' parameters and tensors are the whole ops' */
        return plan_cuda_lm_loss_workspace(p);
    case PLAN_KERNEL_lm_loss_with_grad:
        return plan_cuda_lm_loss_with_grad_workspace(p, t);
    case PLAN_KERNEL_lm_loss_grad:
    case PLAN_KERNEL_lm_loss_part_grad:
        return plan_cuda_lm_loss_grad_workspace(p, t);
    case PLAN_KERNEL_embed_grad:
    case PLAN_KERNEL_embed_part_grad:
        return plan_cuda_embed_grad_workspace(p);
    case PLAN_KERNEL_norm_sq:
        return (uint64_t)plan_cuda_norm_spans(p[PLAN_norm_sq_n].i) * 8;
    case PLAN_KERNEL_reduce_scatter:
        return plan_cuda_reduce_scatter_workspace(p, t);
    case PLAN_KERNEL_all_reduce:
        return plan_cuda_all_reduce_workspace(p, t);
    default:
        return 0;
    }
}

#endif
