/* attention: what the attention kernels share: masks, dropout, scores, and tiles of bf16 in shared
 * memory. A tile's rows are padded by 16 bytes, so that the eight rows of a matrix lie in different
 * banks. */
#ifndef RUNTIME_KERNELS_CUDA_ATTENTION_CUH
#define RUNTIME_KERNELS_CUDA_ATTENTION_CUH

#include "runtime/kernels/cuda/device.cuh"

template <typename T> __device__ inline T *head_at(const CudaHeads &heads, int b, int head)
{
    return (T *)heads.at + b * heads.batch + head * heads.head;
}

/* -- who sees whom: query q sees keys in (low, high] of its own segment that are kept -- */

__device__ inline int row_low(const CudaAttention &x, int q)
{
    return x.window ? q - x.window : -1;
}

__device__ inline int row_high(const CudaAttention &x, int q)
{
    return q >= x.seq ? -1 : x.causal ? q : x.seq - 1;
}

/* Keys that queries [first, end) may see, [begin, end), and the other way round. */
__device__ inline int keys_begin(const CudaAttention &x, int q_first)
{
    return x.window ? max(0, q_first - x.window + 1) : 0;
}

__device__ inline int keys_end(const CudaAttention &x, int q_end)
{
    return x.causal ? min(x.seq, q_end) : x.seq;
}

__device__ inline int queries_begin(const CudaAttention &x, int k_first)
{
    return x.causal ? k_first : 0;
}

__device__ inline int queries_end(const CudaAttention &x, int k_end)
{
    return x.window ? (int)min((int64_t)x.seq, (int64_t)k_end - 1 + x.window) : x.seq;
}

/* Over the ranges' ends too: nothing to mask, or nothing to do. Segments and keep are not looked
 * at. */
__device__ inline bool sees_all(const CudaAttention &x, int q_first, int q_last, int k_first,
                                int k_last)
{
    return (!x.causal || k_last <= q_first) && (!x.window || k_first > q_last - x.window) &&
           k_last < x.seq && q_last < x.seq;
}

__device__ inline bool sees_none(const CudaAttention &x, int q_first, int q_last, int k_first,
                                 int k_last)
{
    return (x.causal && k_first > q_last) || (x.window && k_last <= q_first - x.window) ||
           k_first >= x.seq || q_first >= x.seq;
}

__device__ inline int segment_of(const CudaAttention &x, int b, int row)
{
    return x.segments && row < x.seq ? x.segments[(int64_t)b * x.seq + row] : 0;
}

__device__ inline bool is_kept(const CudaAttention &x, int b, int row)
{
    return !x.keep || (row < x.seq && x.keep[(int64_t)b * x.seq + row]);
}

/* Segments of rows [first, first + n), by a whole warp. low > high: none of the keys is kept. */
struct SegmentRange {
    int low, high;
};

__device__ inline SegmentRange segment_range(const CudaAttention &x, int b, int first, int n,
                                             bool keys)
{
    SegmentRange range = {0x7fffffff, -0x7fffffff - 1};
    for (int i = (int)threadIdx.x % WARP; i < n; i += WARP) {
        int row = first + i;
        if (row >= x.seq || (keys && !is_kept(x, b, row)))
            continue;
        int segment = segment_of(x, b, row);
        range.low = min(range.low, segment);
        range.high = max(range.high, segment);
    }
    range.low = warp_min(range.low);
    range.high = warp_max(range.high);
    return range;
}

__device__ inline bool ranges_meet(const SegmentRange &a, const SegmentRange &b)
{
    return a.low <= b.high && b.low <= a.high;
}

/* -- scores -- */

__device__ inline float tanh_fast(float x)
{
    return 1.0f - __fdividef(2.0f, exp2_fast(x * (2 * LOG2_E)) + 1.0f);
}

/* The score is raw (times `unit` in the exponent of 2), or with a softcap cap * tanh(scale * raw /
 * cap). */
template <bool ANY> __device__ inline float score_unit(const CudaAttention &x)
{
    return ANY && x.softcap > 0 ? LOG2_E : x.scale * LOG2_E;
}

/* -- dropout -- */

__device__ inline RtStream dropout_stream(const CudaAttention &x, int b, int head)
{
    RtStream stream = rt_random_stream(x.random[1], x.random[0], x.key, x.random[2] + x.sample + b);
    return rt_random_absorb(stream, (uint32_t)head);
}

__device__ inline float dropout_factor(const CudaAttention &x, RtStream row, int key)
{
    return rt_random_draw(row, (uint64_t)key) >= x.threshold ? x.keep_factor : 0.0f;
}

/* -- tiles -- */

/* Rows [first, first + ROWS) of a head from column `column` on; zeros behind seq and dim. */
template <int ROWS, int COLS, int LD, int THREADS>
__device__ inline void load_tile(bf16 *to, const bf16 *from, int64_t row_stride, int first, int seq,
                                 int column, int dim)
{
    constexpr int CHUNKS = COLS / 8, ALL = ROWS * CHUNKS;
    if constexpr (THREADS % CHUNKS == 0) { /* a thread stays in its columns */
        constexpr int BY = THREADS / CHUNKS;
        int r = (int)threadIdx.x / CHUNKS, c = (int)threadIdx.x % CHUNKS * 8;
        const bf16 *at = from + (first + r) * row_stride + column + c;
        int rows = column + c < dim ? seq - first - r : 0;
        to += r * LD + c;
#pragma unroll
        for (int i = 0; i < ROWS; i += BY) {
            cp_async16(to + i * LD, i < rows ? at : from, i < rows);
            at += BY * row_stride;
        }
    } else {
#pragma unroll
        for (int i0 = 0; i0 < ALL; i0 += THREADS) {
            int i = i0 + (int)threadIdx.x, r = i / CHUNKS, c = i % CHUNKS * 8;
            if (ALL % THREADS && i >= ALL)
                break;
            bool inside = first + r < seq && column + c < dim;
            cp_async16(to + r * LD + c,
                       inside ? from + (first + r) * row_stride + column + c : from, inside);
        }
    }
}

/* Fragments: `at` is the tile's element (0, 0). A's [16 rows, 16 k] with k contiguous, or stored
 * [k][rows]. */
__device__ inline void load_a(uint32_t (&a)[4], const bf16 *at, int ld)
{
    int lane = (int)threadIdx.x % WARP;
    ldmatrix(a, at + lane % 16 * ld + lane / 16 * 8);
}

__device__ inline void load_a_trans(uint32_t (&a)[4], const bf16 *at, int ld)
{
    int lane = (int)threadIdx.x % WARP;
    ldmatrix_trans(a, at + (lane % 8 + lane / 16 * 8) * ld + lane / 8 % 2 * 8);
}

/* B's [16 k, 16 columns], stored [column][k] or [k][column]; b[0], b[1]: columns 0..7, b[2], b[3]:
 * the others. */
__device__ inline void load_b(uint32_t (&b)[4], const bf16 *at, int ld)
{
    int lane = (int)threadIdx.x % WARP;
    ldmatrix(b, at + (lane % 8 + lane / 16 * 8) * ld + lane / 8 % 2 * 8);
}

__device__ inline void load_b_trans(uint32_t (&b)[4], const bf16 *at, int ld)
{
    int lane = (int)threadIdx.x % WARP;
    ldmatrix_trans(b, at + lane % 16 * ld + lane / 16 * 8);
}

/* c[MT * 16, NT * 8] += A B over K: A [rows][k] and B [columns][k] in shared memory. UNROLL: steps
 * of 16 of K at a time; where few registers are left, more of them spill. */
template <int MT, int NT, int K, int UNROLL = 2>
__device__ inline void multiply(float (&c)[MT][NT][4], const bf16 *a_at, int lda, const bf16 *b_at,
                                int ldb)
{
#pragma unroll UNROLL
    for (int k = 0; k < K; k += 16) {
        uint32_t a[MT][4], b[4];
#pragma unroll
        for (int m = 0; m < MT; m++)
            load_a(a[m], a_at + m * 16 * lda + k, lda);
#pragma unroll
        for (int n = 0; n < NT; n += 2) {
            load_b(b, b_at + n * 8 * ldb + k, ldb);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                mma(c[m][n], a[m], b[0], b[1]);
                mma(c[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* c[MT * 16, NT * 8] += P B over the PT * 8 columns of P, which is in registers as multiply leaves
 * it, in pairs: p[m][n][0] of row lane / 4, p[m][n][1] of the row 8 below. B [k][columns]. */
template <int MT, int PT, int NT>
__device__ inline void multiply_kept(float (&c)[MT][NT][4], const uint32_t (&p)[MT][PT][2],
                                     const bf16 *b_at, int ldb)
{
#pragma unroll
    for (int k = 0; k < PT; k += 2) {
        uint32_t b[4];
#pragma unroll
        for (int n = 0; n < NT; n += 2) {
            load_b_trans(b, b_at + k * 8 * ldb + n * 8, ldb);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                const uint32_t a[4] = {p[m][k][0], p[m][k][1], p[m][k + 1][0], p[m][k + 1][1]};
                mma(c[m][n], a, b[0], b[1]);
                mma(c[m][n + 1], a, b[2], b[3]);
            }
        }
    }
}

template <int MT, int NT>
__device__ inline void pack_pairs(uint32_t (&to)[MT][NT][2], const float (&c)[MT][NT][4])
{
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                to[m][n][half] = pack_bf16(c[m][n][half * 2], c[m][n][half * 2 + 1]);
}

template <int MT, int NT> __device__ inline void clear(float (&c)[MT][NT][4])
{
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                c[m][n][i] = 0;
}

/* A warp's fragments, rows times `factor`, into its own rows of shared memory, and from there to
 * global memory in pieces of 16 bytes: columns [column, column + NT * 8) of rows [first, first + MT
 * * 16). */
template <int MT, int NT>
__device__ inline void store_rows(bf16 *stage, int ld, const float (&c)[MT][NT][4],
                                  const float (&factor)[MT][2], bf16 *to, int64_t row_stride,
                                  int first, int seq, int column, int dim)
{
    int lane = (int)threadIdx.x % WARP, row = lane / 4, pair = lane % 4 * 2;
    __syncwarp();
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                *(uint32_t *)(stage + (m * 16 + half * 8 + row) * ld + n * 8 + pair) = pack_bf16(
                    c[m][n][half * 2] * factor[m][half], c[m][n][half * 2 + 1] * factor[m][half]);
    __syncwarp();
    constexpr int CHUNKS = NT, ALL = MT * 16 * CHUNKS;
    for (int i = lane; i < ALL; i += WARP) {
        int r = i / CHUNKS, at = i % CHUNKS * 8;
        if (first + r < seq && column + at < dim)
            *(uint4 *)(to + (first + r) * row_stride + column + at) =
                *(const uint4 *)(stage + r * ld + at);
    }
}

#endif
