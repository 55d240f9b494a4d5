/* workspace: the bytes that a kernel needs beside its tensors, from shapes alone. The compiler
 * plans with these functions, the runtime's kernels cut their work by the same constants. */
#ifndef RUNTIME_ABI_WORKSPACE_H
#define RUNTIME_ABI_WORKSPACE_H

#include "base/dtype.h"
#include "runtime/abi/plan.h"

enum {
    GEMM_TILE = 512,             /* rows and columns of C per library call, at most */
    GEMM_TILE_MIN = 256,         /* below this, more chunks are not worth a slower call */
    GEMM_CHUNKS = 8,             /* as many chunks as this are enough */
    GEMM_CALL = 128 * 128 * 128, /* multiply-adds per call, at least */
    GEMM_PACK_K = 512,           /* depth of a panel that is converted before a call */
    LM_LOSS_TILE_M = 256,        /* tokens, and */
    LM_LOSS_TILE_N = 512,        /* columns of the vocabulary per library call */
    LM_LOSS_SPAN = 2048,         /* columns of the vocabulary that one chunk goes over */
    LM_LOSS_GRAD_BYTES = 64 << 20, /* gradients of logits at once, or one tile's columns */
    ATTENTION_TILE = 64,           /* rows of q and of k per tile */
    ATTENTION_LANES = 16,          /* a small product's columns are a multiple of this line */
    NORM_SQ_BLOCK = 4096,
    /* elements of a piece that one round of a sum over ranks moves, at most */
    COMM_CHUNK = 1 << 18,
};

static inline int64_t plan_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline int64_t plan_round_up(int64_t a, int64_t b)
{
    return plan_ceil_div(a, b) * b;
}

static inline int64_t plan_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Arithmetic is f64 for f64 tensors, else f32. */
static inline uint64_t plan_real_bytes(uint32_t dtype)
{
    return dtype == DTYPE_F64 ? 8 : 4;
}

/* Elements from one row of `width` elements to the next; 0: the rows are not evenly spaced. */
static inline int64_t plan_row_pitch(const PlanTensor *t, int64_t width)
{
    if (t->run == t->pitch || t->run >= t->numel)
        return width;
    return t->run == width ? t->pitch : 0;
}

/* Whether a product can read or write the tensor in place. */
static inline bool plan_row_direct(const PlanTensor *t, int64_t width, uint64_t real_bytes)
{
    uint32_t dtype = real_bytes == 8 ? DTYPE_F64 : DTYPE_F32;
    return t->dtype == dtype && plan_row_pitch(t, width) > 0;
}

/* -- gemm -- */

typedef struct PlanTiles {
    int64_t tile_m, tile_n; /* size of a chunk of C; the last ones may be smaller */
    int64_t rows, cols;     /* number of tiles in each direction */
} PlanTiles;

/* Tiles of C[m, n] with depth k: large enough for the library, and enough of them, evenly many
 * where they are few. */
static inline PlanTiles plan_gemm_tiles(int64_t m, int64_t n, int64_t k)
{
    PlanTiles t = {.rows = plan_ceil_div(m, GEMM_TILE), .cols = plan_ceil_div(n, GEMM_TILE)};
    for (;;) {
        int64_t rows = plan_ceil_div(m, t.rows), cols = plan_ceil_div(n, t.cols);
        int64_t larger = rows >= cols ? rows : cols, chunks = t.rows * t.cols;
        int64_t least = chunks < 2 ? 2 : GEMM_TILE_MIN;
        if (chunks >= GEMM_CHUNKS || larger < 2 * least || rows * cols < 2 * GEMM_CALL / k)
            break;
        if (rows >= cols)
            t.rows *= 2;
        else
            t.cols *= 2;
    }
    if (t.rows * t.cols % 2 && t.rows * t.cols > 1 && t.rows * t.cols < 2 * GEMM_CHUNKS) {
        if (t.rows > 1)
            t.rows++;
        if (t.cols > 1)
            t.cols++;
    }
    t.tile_m = plan_min(m, plan_round_up(plan_ceil_div(m, t.rows), 16));
    t.tile_n = plan_min(n, plan_round_up(plan_ceil_div(n, t.cols), 16));
    t.rows = plan_ceil_div(m, t.tile_m);
    t.cols = plan_ceil_div(n, t.tile_n);
    return t;
}

/* Converted panels of A [tile_m, depth] and B [depth, tile_n], for operands that cannot be read in
 * place. */
static inline uint64_t plan_pack_bytes(int64_t tile_m, int64_t tile_n, int64_t k, bool direct_a,
                                       bool direct_b, uint64_t real_bytes)
{
    int64_t depth = plan_min(k, GEMM_PACK_K);
    int64_t a = direct_a ? 0 : plan_round_up(tile_m * depth, 16),
            b = direct_b ? 0 : plan_round_up(tile_n * depth, 16);
    return (uint64_t)(a + b) * real_bytes;
}

static inline uint64_t plan_gemm_real_bytes(const PlanTensor *t)
{
    bool f64 = t[PLAN_T_gemm_c].dtype == DTYPE_F64 || t[PLAN_T_gemm_a].dtype == DTYPE_F64 ||
               t[PLAN_T_gemm_b].dtype == DTYPE_F64;
    return f64 ? 8 : 4;
}

static inline uint64_t plan_gemm_scratch(const PlanParam *p, const PlanTensor *t)
{
    int64_t m = p[PLAN_gemm_m].i, n = p[PLAN_gemm_n].i, k = p[PLAN_gemm_k].i;
    uint64_t real = plan_gemm_real_bytes(t);
    PlanTiles tiles = plan_gemm_tiles(m, n, k);
    bool direct_a = plan_row_direct(&t[PLAN_T_gemm_a], p[PLAN_gemm_ta].i ? m : k, real);
    bool direct_b = plan_row_direct(&t[PLAN_T_gemm_b], p[PLAN_gemm_tb].i ? k : n, real);
    bool direct_c = plan_row_direct(&t[PLAN_T_gemm_c], n, real);
    int64_t c = direct_c ? 0 : plan_round_up(tiles.tile_m * tiles.tile_n, 16);
    return plan_pack_bytes(tiles.tile_m, tiles.tile_n, k, direct_a, direct_b, real) +
           (uint64_t)(c + plan_round_up(tiles.tile_n, 16) /* bias */) * real;
}

/* -- lm_loss -- */

static inline int64_t plan_lm_loss_spans(int64_t vocab)
{
    return plan_ceil_div(vocab, LM_LOSS_SPAN);
}

static inline uint64_t plan_lm_loss_workspace(const PlanParam *p, const PlanTensor *t)
{
    int64_t tokens = p[PLAN_lm_loss_tokens].i, spans = plan_lm_loss_spans(p[PLAN_lm_loss_vocab].i);
    /* per token: maximum and sum over each span, the target's logit, the loss */
    return (uint64_t)(tokens * (2 * spans + 2)) * plan_real_bytes(t[PLAN_T_lm_loss_h].dtype);
}

static inline uint64_t plan_lm_loss_scratch(const PlanParam *p, const PlanTensor *t)
{
    int64_t width = p[PLAN_lm_loss_width].i;
    uint64_t real = plan_real_bytes(t[PLAN_T_lm_loss_h].dtype);
    return plan_pack_bytes(LM_LOSS_TILE_M, LM_LOSS_TILE_N, width,
                           plan_row_direct(&t[PLAN_T_lm_loss_h], width, real),
                           plan_row_direct(&t[PLAN_T_lm_loss_w], width, real), real) +
           (uint64_t)(LM_LOSS_TILE_M * LM_LOSS_TILE_N) * real;
}

/* Columns of the vocabulary whose gradients of logits are in memory at once, for all tokens: dw's
 * rows are then each one product over all tokens. */
static inline int64_t plan_lm_loss_grad_columns(int64_t tokens, int64_t vocab, uint32_t dtype)
{
    int64_t fit = (int64_t)(LM_LOSS_GRAD_BYTES / ((uint64_t)tokens * plan_real_bytes(dtype)));
    if (fit < LM_LOSS_TILE_N)
        fit = LM_LOSS_TILE_N;
    if (fit >= vocab)
        return vocab;
    return plan_min(fit, plan_round_up(plan_ceil_div(vocab, plan_ceil_div(vocab, fit)), 16));
}

/* Whether dh is summed in the workspace, because it cannot hold the sums itself. */
static inline bool plan_lm_loss_grad_sums(const PlanParam *p, const PlanTensor *t)
{
    const PlanTensor *dh = &t[PLAN_T_lm_loss_grad_dh];
    int64_t tokens = p[PLAN_lm_loss_grad_tokens].i, vocab = p[PLAN_lm_loss_grad_vocab].i;
    uint32_t dtype = t[PLAN_T_lm_loss_grad_h].dtype;
    return dh->offset != PLAN_ABSENT && plan_lm_loss_grad_columns(tokens, vocab, dtype) < vocab &&
           !plan_row_direct(dh, p[PLAN_lm_loss_grad_width].i, plan_real_bytes(dtype));
}

static inline uint64_t plan_lm_loss_grad_workspace(const PlanParam *p, const PlanTensor *t)
{
    int64_t tokens = p[PLAN_lm_loss_grad_tokens].i, vocab = p[PLAN_lm_loss_grad_vocab].i;
    uint32_t dtype = t[PLAN_T_lm_loss_grad_h].dtype;
    int64_t elements = tokens * plan_lm_loss_grad_columns(tokens, vocab, dtype);
    if (plan_lm_loss_grad_sums(p, t))
        elements += tokens * p[PLAN_lm_loss_grad_width].i;
    return (uint64_t)elements * plan_real_bytes(dtype);
}

static inline uint64_t plan_lm_loss_grad_scratch(const PlanParam *p, const PlanTensor *t)
{
    int64_t tokens = p[PLAN_lm_loss_grad_tokens].i, width = p[PLAN_lm_loss_grad_width].i;
    uint32_t dtype = t[PLAN_T_lm_loss_grad_h].dtype;
    uint64_t real = plan_real_bytes(dtype);
    int64_t columns = plan_lm_loss_grad_columns(tokens, p[PLAN_lm_loss_grad_vocab].i, dtype);
    bool direct_h = plan_row_direct(&t[PLAN_T_lm_loss_grad_h], width, real);
    bool direct_w = plan_row_direct(&t[PLAN_T_lm_loss_grad_w], width, real);
    uint64_t logits =
        plan_pack_bytes(LM_LOSS_TILE_M, LM_LOSS_TILE_N, width, direct_h, direct_w, real);
    PlanTiles dh = plan_gemm_tiles(tokens, width, columns),
              dw = plan_gemm_tiles(columns, width, tokens);
    uint64_t dh_bytes = plan_pack_bytes(dh.tile_m, dh.tile_n, columns, true, direct_w, real) +
                        (uint64_t)plan_round_up(dh.tile_m * dh.tile_n, 16) * real;
    uint64_t dw_bytes = plan_pack_bytes(dw.tile_m, dw.tile_n, tokens, true, direct_h, real) +
                        (uint64_t)plan_round_up(dw.tile_m * dw.tile_n, 16) * real;
    uint64_t most = dh_bytes > dw_bytes ? dh_bytes : dw_bytes;
    return logits > most ? logits : most;
}

/* -- lm_loss_with_grad: tokens whose logits are in memory at once, for the whole vocabulary: dh's
 * rows are then each one product over it -- */

static inline int64_t plan_lm_loss_with_grad_rows(int64_t tokens, int64_t vocab, uint32_t dtype)
{
    uint64_t row = (uint64_t)plan_round_up(vocab, 16) * plan_real_bytes(dtype);
    int64_t fit = (int64_t)(LM_LOSS_GRAD_BYTES / row) / LM_LOSS_TILE_M * LM_LOSS_TILE_M;
    return plan_min(tokens, fit < LM_LOSS_TILE_M ? LM_LOSS_TILE_M : fit);
}

/* Whether dw is summed in the workspace, because it cannot hold the sums itself. */
static inline bool plan_lm_loss_with_grad_sums(const PlanParam *p, const PlanTensor *t)
{
    const PlanTensor *dw = &t[PLAN_T_lm_loss_with_grad_dw];
    int64_t tokens = p[PLAN_lm_loss_with_grad_tokens].i;
    uint32_t dtype = t[PLAN_T_lm_loss_with_grad_h].dtype;
    int64_t rows =
        plan_lm_loss_with_grad_rows(tokens, p[PLAN_lm_loss_with_grad_vocab].i, dtype);
    return dw->offset != PLAN_ABSENT && rows < tokens &&
           !plan_row_direct(dw, p[PLAN_lm_loss_with_grad_width].i, plan_real_bytes(dtype));
}

static inline uint64_t plan_lm_loss_with_grad_workspace(const PlanParam *p, const PlanTensor *t)
{
    int64_t tokens = p[PLAN_lm_loss_with_grad_tokens].i,
            vocab = p[PLAN_lm_loss_with_grad_vocab].i;
    uint32_t dtype = t[PLAN_T_lm_loss_with_grad_h].dtype;
    int64_t elements =
        plan_lm_loss_with_grad_rows(tokens, vocab, dtype) * plan_round_up(vocab, 16) + tokens;
    if (plan_lm_loss_with_grad_sums(p, t))
        elements += vocab * p[PLAN_lm_loss_with_grad_width].i;
    return (uint64_t)elements * plan_real_bytes(dtype);
}

static inline uint64_t plan_lm_loss_with_grad_scratch(const PlanParam *p, const PlanTensor *t)
{
    int64_t width = p[PLAN_lm_loss_with_grad_width].i, vocab = p[PLAN_lm_loss_with_grad_vocab].i;
    uint32_t dtype = t[PLAN_T_lm_loss_with_grad_h].dtype;
    uint64_t real = plan_real_bytes(dtype);
    int64_t rows =
        plan_lm_loss_with_grad_rows(p[PLAN_lm_loss_with_grad_tokens].i, vocab, dtype);
    bool direct_h = plan_row_direct(&t[PLAN_T_lm_loss_with_grad_h], width, real);
    bool direct_w = plan_row_direct(&t[PLAN_T_lm_loss_with_grad_w], width, real);
    uint64_t most =
        plan_pack_bytes(LM_LOSS_TILE_M, LM_LOSS_TILE_N, width, direct_h, direct_w, real);
    PlanTiles dh = plan_gemm_tiles(rows, width, vocab), dw = plan_gemm_tiles(vocab, width, rows);
    uint64_t dh_bytes = plan_pack_bytes(dh.tile_m, dh.tile_n, vocab, true, direct_w, real) +
                        (uint64_t)plan_round_up(dh.tile_m * dh.tile_n, 16) * real;
    uint64_t dw_bytes = plan_pack_bytes(dw.tile_m, dw.tile_n, rows, true, direct_h, real) +
                        (uint64_t)plan_round_up(dw.tile_m * dw.tile_n, 16) * real;
    most = dh_bytes > most ? dh_bytes : most;
    return dw_bytes > most ? dw_bytes : most;
}

/* -- the others -- */

static inline uint64_t plan_embed_grad_workspace(const PlanParam *p)
{
    /* token order sorted by id (i32), and where each row's tokens begin (i32) */
    return ((uint64_t)p[PLAN_embed_grad_tokens].i + (uint64_t)p[PLAN_embed_grad_rows].i + 1) * 4;
}

/* Elements from one row of a tile to the next: an odd number of lines, so that a column does not
 * fall into few sets of the cache. */
static inline int64_t plan_attention_pitch(int64_t dim)
{
    return (plan_ceil_div(dim, ATTENTION_LANES) | 1) * ATTENTION_LANES;
}

static inline uint64_t plan_attention_scratch(int64_t dim, uint32_t dtype)
{
    int64_t tile = ATTENTION_TILE, pitch = plan_attention_pitch(dim);
    /* q transposed, k; v, o; scores; maximum, sum, rescale */
    return (uint64_t)(2 * tile * dim + 2 * tile * pitch + tile * tile + 3 * tile) *
           plan_real_bytes(dtype);
}

static inline uint64_t plan_attention_grad_workspace(const PlanParam *p, const PlanTensor *t)
{
    /* rowsum(do * o), one per query row */
    return (uint64_t)(p[PLAN_attention_grad_batch].i * p[PLAN_attention_grad_seq].i *
                      p[PLAN_attention_grad_heads].i) *
           plan_real_bytes(t[PLAN_T_attention_grad_q].dtype);
}

static inline uint64_t plan_attention_grad_scratch(int64_t dim, uint32_t dtype)
{
    int64_t tile = ATTENTION_TILE, pitch = plan_attention_pitch(dim);
    /* two operands transposed; two operands and two results; scores and their gradient; two
     * statistics */
    return (uint64_t)(2 * tile * dim + 4 * tile * pitch + 2 * tile * tile + 2 * tile) *
           plan_real_bytes(dtype);
}

static inline uint64_t plan_norm_sq_workspace(const PlanParam *p)
{
    return (uint64_t)plan_ceil_div(p[PLAN_norm_sq_n].i, NORM_SQ_BLOCK) * 8;
}

/* A round's pieces, one from each member. */
static inline uint64_t plan_comm_workspace(int64_t ranks, int64_t count, uint32_t dtype)
{
    return (uint64_t)plan_round_up(ranks * plan_min(count, COMM_CHUNK) * dtype_bytes((DType)dtype),
                                   8);
}

static inline uint64_t plan_reduce_scatter_workspace(const PlanParam *p, const PlanTensor *t)
{
    return plan_comm_workspace(p[PLAN_reduce_scatter_ranks].i, p[PLAN_reduce_scatter_count].i,
                               t[PLAN_T_reduce_scatter_x].dtype);
}

static inline uint64_t plan_all_reduce_workspace(const PlanParam *p, const PlanTensor *t)
{
    return plan_comm_workspace(p[PLAN_all_reduce_ranks].i, p[PLAN_all_reduce_count].i,
                               t[PLAN_T_all_reduce_x].dtype);
}

/* The parts' formulas are those of the whole ops, whose parameters and tensors come first and in
 * the same order. */
static inline uint64_t plan_embed_part_grad_workspace(const PlanParam *p)
{
    _Static_assert((int)PLAN_embed_part_grad_rows == (int)PLAN_embed_grad_rows, "one formula");
    return plan_embed_grad_workspace(p);
}

static inline uint64_t plan_lm_loss_part_workspace(const PlanParam *p, const PlanTensor *t)
{
    _Static_assert((int)PLAN_lm_loss_part_ignore == (int)PLAN_lm_loss_ignore, "one formula");
    int64_t tokens = p[PLAN_lm_loss_part_tokens].i;
    int64_t spans = plan_lm_loss_spans(p[PLAN_lm_loss_part_vocab].i);
    /* per token: maximum and sum over each span, the target's logit */
    return (uint64_t)(tokens * (2 * spans + 1)) * plan_real_bytes(t[PLAN_T_lm_loss_part_h].dtype);
}

static inline uint64_t plan_lm_loss_part_grad_workspace(const PlanParam *p, const PlanTensor *t)
{
    _Static_assert((int)PLAN_lm_loss_part_grad_ignore == (int)PLAN_lm_loss_grad_ignore &&
                       (int)PLAN_T_lm_loss_part_grad_lse == (int)PLAN_T_lm_loss_grad_lse,
                   "one formula");
    return plan_lm_loss_grad_workspace(p, t);
}

/* Arena bytes of workspace for one instruction (kernel `fused`: n_chunks * partial_bytes, by the
 * compiler). */
static inline uint64_t plan_workspace_bytes(PlanKernel kernel, const PlanParam *p,
                                            const PlanTensor *t)
{
    (void)p;
    (void)t;
    switch (kernel) {
#define KERNEL(name, doc, tensors, params, workspace)                                              \
    case PLAN_KERNEL_##name:                                                                       \
        return workspace;
#include "runtime/abi/kernels.def"
#undef KERNEL
    default:
        return 0;
    }
}

/* Scratch per worker thread, outside the arena, for one instruction. */
static inline uint64_t plan_scratch_bytes(PlanKernel kernel, const PlanParam *p,
                                          const PlanTensor *t)
{
    switch (kernel) {
    case PLAN_KERNEL_gemm:
        return plan_gemm_scratch(p, t);
    case PLAN_KERNEL_lm_loss:
        return plan_lm_loss_scratch(p, t);
    case PLAN_KERNEL_lm_loss_grad:
    case PLAN_KERNEL_lm_loss_part_grad:
        return plan_lm_loss_grad_scratch(p, t);
    case PLAN_KERNEL_lm_loss_with_grad:
        return plan_lm_loss_with_grad_scratch(p, t);
    case PLAN_KERNEL_lm_loss_part:
        return plan_pack_bytes(
                   LM_LOSS_TILE_M, LM_LOSS_TILE_N, p[PLAN_lm_loss_part_width].i,
                   plan_row_direct(&t[PLAN_T_lm_loss_part_h], p[PLAN_lm_loss_part_width].i,
                                   plan_real_bytes(t[PLAN_T_lm_loss_part_h].dtype)),
                   plan_row_direct(&t[PLAN_T_lm_loss_part_w], p[PLAN_lm_loss_part_width].i,
                                   plan_real_bytes(t[PLAN_T_lm_loss_part_h].dtype)),
                   plan_real_bytes(t[PLAN_T_lm_loss_part_h].dtype)) +
               (uint64_t)(LM_LOSS_TILE_M * LM_LOSS_TILE_N) *
                   plan_real_bytes(t[PLAN_T_lm_loss_part_h].dtype);
    case PLAN_KERNEL_attention:
        return plan_attention_scratch(p[PLAN_attention_dim].i, t[PLAN_T_attention_q].dtype);
    case PLAN_KERNEL_attention_grad:
        return plan_attention_grad_scratch(p[PLAN_attention_grad_dim].i,
                                           t[PLAN_T_attention_grad_q].dtype);
    default:
        return 0;
    }
}

/* Rows per chunk of a fused region over [rows, cols]: about 16 Ki elements, at most 64 chunks where
 * columns are summed. */
static inline int64_t plan_fused_rows_per_chunk(int64_t rows, int64_t cols, int sums_columns)
{
    int64_t per = (16384 + cols - 1) / (cols > 0 ? cols : 1);
    if (sums_columns && per < (rows + 63) / 64)
        per = (rows + 63) / 64;
    return per < 1 ? 1 : per > rows && rows > 0 ? rows : per;
}

#endif
