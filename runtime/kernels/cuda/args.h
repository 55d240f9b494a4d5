/* args: what the CUDA kernels are launched with: one struct by value each, laid out alike for C and
 * for CUDA C++. Addresses are device addresses; strides and counts are elements unless said
 * otherwise. */
#ifndef RUNTIME_KERNELS_CUDA_ARGS_H
#define RUNTIME_KERNELS_CUDA_ARGS_H

#include <stdint.h>

/* -- faults: int64[8] on the device, runtime/cuda/cuda.h: RtCudaFaultCode -- */

enum { CUDA_FAULT_ID = 1, CUDA_FAULT_TARGET = 2 };

typedef struct CudaFault {
    int64_t *at;
    int64_t number; /* of the instruction */
} CudaFault;

/* -- tensors -- */

enum { CUDA_BF16, CUDA_F32, CUDA_F64, CUDA_I64 }; /* types of the kernels that switch on them */

/* Element e is at (e / run) * pitch + e % run; contiguous: run = pitch. */
typedef struct CudaView {
    void *at; /* NULL: absent */
    int64_t run, pitch;
    int32_t type, pad;
} CudaView;

/* [batch, seq, heads, dim], where dim is contiguous. */
typedef struct CudaHeads {
    void *at;
    int64_t batch, row, head; /* strides */
} CudaHeads;

/* -- attention -- */

enum {
    CUDA_ATTENTION_ROWS = 128, /* query rows (keys) that a block of the tensor-core kernels owns */
    CUDA_SPLIT_TILE = 128,     /* rows and columns of a tile of probabilities in the workspace */
    CUDA_SPLIT_COLUMNS = 256,  /* columns of a result that a block of the split backward owns */
    CUDA_PLAIN_ROWS = 32,      /* rows that a block of the plain kernels owns */
};

typedef struct CudaAttention {
    CudaHeads q, k, v, o;
    CudaHeads grad, dq, dk, dv; /* backward; dk, dv or dq NULL: nobody reads it. grad: of o */
    float *lse; /* [batch, heads, seq], natural log; +inf where a query sees no key. Forward: may be
                   NULL */
    float *delta; /* [batch, heads, seq]: rowsum(grad * o); for the kernels on wgmma with lse, as
                     attention_group_statistics leaves them */
    int32_t *next; /* items taken from the queues of keys and of queries (wgmma) */
    const int32_t *segments, *keep; /* [batch, seq]; NULL: none */
    const int64_t *random;          /* step, seed, the step's first sample */
    int64_t key, sample; /* sample: of the batch's first row, counted from the step's first */
    int32_t batch, seq, heads, kv_heads, group, dim; /* group: query heads per kv head */
    int32_t causal, window, items; /* items: all of the queue that the kernel takes from (wgmma) */
    float scale, softcap, keep_factor; /* softcap 0: none; keep_factor: 1 / (1 - dropout) */
    uint32_t threshold;                /* of the draws; 0: no dropout */
} CudaAttention;

/* A piece of the split backward: `groups` (batch, kv head) pairs from `group_first`, and of each
 * its units [unit_first, unit_end); a unit is a (query head of the group, tile of queries),
 * numbered head first. P and dS of a unit's visible tiles lie in `p` and `ds` as bf16 [query][key],
 * tile after tile. A piece that does not have all units of its groups carries dk and dv on in
 * f32. */
typedef struct CudaSplit {
    CudaAttention x;
    void *p, *ds;
    float *dk_sum,
        *dv_sum; /* [groups, tiles * 128, columns rounded up]; NULL: the piece has all units */
    int64_t tiles_per_head,
        tiles_per_group;  /* visible tiles: of a whole head, of a group's units in this piece */
    int64_t tiles_before; /* visible tiles of the group's units before unit_first */
    int32_t group_first, groups, unit_first, unit_end;
    int32_t tiles, reach; /* tiles along seq; tiles that a window reaches back, or `tiles` */
    int32_t columns;      /* blocks of CUDA_SPLIT_COLUMNS along dim */
    int32_t first, last;  /* of the pieces of these groups */
} CudaSplit;

/* -- loss -- */

/* A chunk of the vocabulary: logits [tokens, ld] in f32 of columns [word, word + count). */
typedef struct CudaLmLoss {
    float *logits;
    float *most, *sum, *logit, *token_loss; /* [tokens], carried from chunk to chunk */
    CudaView lse, loss;
    CudaView part; /* of one rank's words: [2, tokens], in place of the losses; NULL: all words */
    const int32_t *targets;
    CudaFault fault;
    int64_t tokens, vocab, word, count, ld, ignore;
    float softcap;
    int32_t first, last;
} CudaLmLoss;

/* Logits to their gradients, in place: a row of f32 becomes a row of `type` from the same place
 * on. Columns behind the first `words` are no words: zeros. */
typedef struct CudaLmLossGrad {
    float *logits;
    CudaView lse, seed;
    const int32_t *targets;
    int64_t tokens, word, count, words, ld, ignore;
    float softcap;
    int32_t type;
} CudaLmLossGrad;

#define CUDA_HEAD_THREADS 512

/* Rows of logits [rows, ld] to their gradients, in place, and the losses of these tokens. */
typedef struct CudaLmLossWithGrad {
    void *logits;
    float *token_loss;
    CudaView seed;
    const int32_t *targets;
    CudaFault fault;
    int64_t token, rows; /* the chunk's first; how many */
    int64_t vocab, ld, ignore;
    float softcap;
    int32_t type;   /* of logits and gradients */
    int32_t places; /* for eights of each thread, in dynamic shared memory */
} CudaLmLossWithGrad;

/* -- embedding -- */

/* A table of the rows [first, first + rows) of `total`: a token of another row gets zeros. */
typedef struct CudaEmbed {
    CudaView y, table;
    const int32_t *ids;
    CudaFault fault;
    int64_t tokens, width, rows, first, total;
} CudaEmbed;

/* order, spare: [tokens]; begin, end: [rows], zero where a row has no token. The table's first row
 * is that of id `first`; padding is a row of the table. */
typedef struct CudaEmbedGrad {
    CudaView dtable, dy;
    const int32_t *ids;
    int32_t *order, *spare, *begin, *end;
    int64_t tokens, width, rows, padding, first;
} CudaEmbedGrad;

/* -- views, tables, scalars -- */

enum { CUDA_ROPE_FREQUENCIES = 512, CUDA_CONCAT_PARTS = 16, CUDA_NORM_PARTS = 480 };

typedef struct CudaRope {
    CudaView cos, sin; /* [tokens, half] */
    const int32_t *positions;
    int64_t tokens, half, first; /* frequencies of columns [first, first + count) */
    int32_t count;
    float factor;
    float frequency[CUDA_ROPE_FREQUENCIES];
} CudaRope;

typedef struct CudaConcat {
    CudaView y, part[CUDA_CONCAT_PARTS];
    int64_t rows, width, part_width, first; /* parts [first, first + count) */
    int32_t count, pad;
} CudaConcat;

typedef struct CudaCountTargets {
    const int32_t *targets;
    int64_t *count;
    CudaView inverse;
    int64_t n, ignore;
    int32_t first, pad;
} CudaCountTargets;

typedef struct CudaAccumulate {
    CudaView state, x;
    int64_t n;
    int32_t first, pad;
} CudaAccumulate;

typedef struct CudaLossMean {
    CudaView loss, sum, inverse;
} CudaLossMean;

typedef struct CudaGradNorm {
    CudaView norm, coef;
    double max_norm;
    int32_t count, first, last, pad;
    const double *part[CUDA_NORM_PARTS];
} CudaGradNorm;

typedef struct CudaAdvance {
    int64_t *step, *skipped;
    CudaView coef;
} CudaAdvance;

/* -- tables over tensors: entries in device memory, `first` counts the blocks of the entries before
 * -- */

enum {
    CUDA_NORM_BLOCKS = 32,        /* blocks of NORM_SQ_BLOCK elements that one thread block sums */
    CUDA_OPTIMIZER_CHUNK = 16384, /* elements that one thread block updates at a time */
};

typedef struct CudaNormEntry {
    const void *x;
    double *sums; /* one per thread block of the entry */
    double *y;
    int64_t n, first;
    int64_t run, pitch;
    int32_t type, pad;
} CudaNormEntry;

/* entries NULL: the one in `alone`. */
typedef struct CudaNorm {
    const CudaNormEntry *entries;
    CudaNormEntry alone;
    int64_t n_entries;
} CudaNorm;

typedef struct CudaUpdateEntry {
    void *w, *m, *v, *master; /* NULL: absent; sgd: v is not used */
    const void *g;
    int64_t n, first;
    double decay;
    int32_t w_type, g_type, m_type, v_type; /* master: f32 */
} CudaUpdateEntry;

typedef struct CudaAdamw {
    const CudaUpdateEntry *entries;
    CudaUpdateEntry alone;
    int64_t n_entries, chunks;
    const float *coef, *lr;
    const int64_t *step;
    double beta1, beta2, eps;
} CudaAdamw;

typedef struct CudaSgd {
    const CudaUpdateEntry *entries;
    CudaUpdateEntry alone;
    int64_t n_entries, chunks;
    const float *coef, *lr;
    double momentum;
    int32_t nesterov, pad;
} CudaSgd;

/* -- more than one rank -- */

enum { CUDA_FLAT_SEGMENTS = 32, CUDA_SUM_SCALARS = 64 };

/* y = the sum (the largest) of the parts in the order of the ranks: part `self` is `own`, part r
 * lies at others + r * stride. n elements each. */
typedef struct CudaSumParts {
    void *y;
    const void *own, *others;
    int64_t n, stride;
    int32_t ranks, self;
    int32_t from_type, to_type;
    int32_t is_max, pad;
} CudaSumParts;

typedef struct CudaSegment { /* elements [begin, begin + n) of y */
    CudaView x;              /* NULL: zeros */
    int64_t begin, n;
    int64_t first; /* eights of the segments before */
} CudaSegment;

typedef struct CudaFlatPack {
    CudaView y;
    int64_t eights; /* of all segments */
    int32_t count, pad;
    CudaSegment segment[CUDA_FLAT_SEGMENTS];
} CudaFlatPack;

typedef struct CudaInvertCount {
    CudaView inverse;
    const int64_t *count;
} CudaInvertCount;

typedef struct CudaSumScalars { /* y carries the sum from one launch to the next */
    double *y;
    double factor;
    int32_t count, first, last, pad;
    const double *part[CUDA_SUM_SCALARS];
} CudaSumScalars;

typedef struct CudaLossJoin { /* parts: [ranks, 2, tokens] in f32 */
    CudaView loss, lse;
    const float *parts;
    const int32_t *targets;
    int64_t tokens, ranks, ignore;
} CudaLossJoin;

#endif
