/* attention_group: what the attention kernels on wgmma share, for masks by position alone and head
 * sizes up to 64, forward up to 128; attention_group_wide is for larger ones. A block stays on its
 * multiprocessor and takes items from a queue: 128 rows of a result, 64 for each of two groups of
 * four warps, whose warps copy their own rows of the other operand themselves, ahead of the item. A
 * third group copies tiles of the other side through a ring. Tiles are rows of 128 bytes in the
 * 128-byte swizzle. compute-sanitizer's racecheck takes no order from the phases: what a warp
 * stores in shared memory only products, atomics or that warp read, but for what named barriers
 * order. */
#ifndef RUNTIME_KERNELS_CUDA_ATTENTION_GROUP_CUH
#define RUNTIME_KERNELS_CUDA_ATTENTION_GROUP_CUH

#include "runtime/kernels/cuda/attention.cuh"
#include "runtime/kernels/cuda/attention_sizes.h"

constexpr int GROUP_ROWS = 64, GROUP_OWN = 2 * GROUP_ROWS, GROUP_DIM = 64; /* per group; item */
constexpr int GROUP_THREADS = 384, GROUP_COMPUTING = 8; /* threads; warps that compute */
constexpr int GROUP_REGISTERS = 240, GROUP_COPYING_REGISTERS = 24; /* of three times 168 */
constexpr int GROUP_OWN_BYTES = 16 * 128;    /* of a warp's own rows */
constexpr int GROUP_LD = GROUP_DIM + 8;      /* of results on their way out */

/* Byte offset of 16 bytes in a tile. */
__device__ inline int swizzled(int row, int chunk)
{
    return row * 128 + ((chunk ^ (row & 7)) << 4);
}

/* A value that all lanes of a warp have, for the compiler to know it. */
__device__ inline int uniform(int value)
{
    return __shfl_sync(ALL_LANES, value, 0);
}

/* As group_mma takes a tile, or tiles of 64 columns each, `apart` bytes from one to the next. */
__device__ inline uint32_t tile_place(const void *tile, uint32_t apart = 16)
{
    return (uint32_t)uniform((int)(shared_address(tile) >> 4 | apart / 16 << 16));
}

/* The next 16 of k: along a row, or 16 rows on. */
constexpr uint32_t ALONG_ROW = 32 / 16, ALONG_ROWS = 16 * 128 / 16;

/* -- the queue -- */

/* The item's place: tiles of `at_once` heads, the longest first, then of the next heads. Few heads
 * keep what they stream in the L2 cache; all heads balance best. */
template <bool QUERIES>
__device__ inline void group_place(const CudaAttention &x, int item, int at_once, int &first,
                                   int &b, int &head)
{
    int tiles = (x.seq + GROUP_OWN - 1) / GROUP_OWN, heads = QUERIES ? x.heads : x.kv_heads,
        all = x.batch * heads, section = item / (at_once * tiles),
        of_section = min(at_once, all - section * at_once),
        rest = item - section * at_once * tiles, tile = rest / of_section,
        which = section * at_once + rest % of_section;
    first = (QUERIES ? tiles - 1 - tile : tile) * GROUP_OWN;
    b = which / heads;
    head = which % heads;
}

/* -- copying, by one group -- */

struct GroupRing { /* the next place of the ring, and the parity of its use */
    int stage, parity;

    __device__ inline void step(int stages)
    {
        if (++stage == stages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

/* ROWS rows from `first` on; zeros behind seq and dim. */
template <int ROWS>
__device__ inline void copy_tile(unsigned char *to, const bf16 *from, int64_t row_stride, int first,
                                 int seq, int dim)
{
    int thread = thread_again() % 128, r = thread / 8, chunk = thread % 8;
    const bf16 *at = from + (int64_t)(first + r) * row_stride + chunk * 8;
    int rows = chunk * 8 < dim ? seq - first - r : 0;
    to += swizzled(r, chunk);
#pragma unroll
    for (int i = 0; i < ROWS; i += 16) {
        cp_async16(to + i * 128, i < rows ? at : from, i < rows);
        at += 16 * row_stride;
    }
}

/* A warp's 16 own rows, from `first` on; zeros behind seq and dim. */
__device__ inline void copy_own(unsigned char *to, const bf16 *from, int64_t row_stride, int first,
                                int seq, int dim)
{
    int lane = thread_again() % WARP, r = lane / 8, chunk = lane % 8;
    const bf16 *at = from + (int64_t)(first + r) * row_stride + chunk * 8;
    int rows = chunk * 8 < dim ? seq - first - r : 0;
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
        cp_async16(to + swizzled(r + i, chunk), i < rows ? at : from, i < rows);
        at += 4 * row_stride;
    }
}

/* Until what the warp has copied for itself is there for all its lanes. */
__device__ inline void copies_end()
{
    cp_async_wait<0>();
    __syncwarp();
}

/* -- products -- */

/* A warp's 16 own rows as the left operand. */
__device__ inline void load_own(uint32_t (&a)[4][4], const unsigned char *own)
{
    int lane = thread_again() % WARP;
#pragma unroll
    for (int k = 0; k < 4; k++)
        ldmatrix(a[k], (const bf16 *)(own + swizzled(lane % 16, k * 2 + lane / 16)));
}

/* A warp's 16 rows of a result, times `factor`, through its own part of `out`. first: of them. */
__device__ inline void store_own(unsigned char *out, const float (&c)[8][4],
                                 const float (&factor)[2], bf16 *to, int64_t row_stride, int first,
                                 int seq, int dim)
{
    int thread = thread_again(), lane = thread % WARP;
    bf16 *stage = (bf16 *)out + thread / WARP * 16 * GROUP_LD;
    __syncwarp();
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            *(uint32_t *)(stage + (half * 8 + lane / 4) * GROUP_LD + n * 8 + lane % 4 * 2) =
                pack_bf16(c[n][half * 2] * factor[half], c[n][half * 2 + 1] * factor[half]);
    __syncwarp();
    int row = lane / 8, at = lane % 8 * 8;
    bf16 *to_row = to + (int64_t)(first + row) * row_stride + at;
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
        if (first + row + i < seq && at < dim)
            *(uint4 *)to_row = *(const uint4 *)(stage + (row + i) * GROUP_LD + at);
        to_row += 4 * row_stride;
    }
}

/* d (ADD: +)= a b^T over 64 of the head size: b a tile [NT * 8 columns][GROUP_DIM]. */
template <bool ADD = false, int NT>
__device__ inline void group_scores(float (&d)[NT][4], const uint32_t (&a)[4][4], uint32_t b)
{
    group_mma<false, ADD>(d, a[0], b);
#pragma unroll
    for (int k = 1; k < 4; k++)
        group_mma<false, true>(d, a[k], b + k * ALONG_ROW);
}

/* d += a b over K * 16 rows of b: a tile [rows][GROUP_DIM], or tiles beside each other. */
template <int K, int NT>
__device__ inline void group_product(float (&d)[NT][4], const uint32_t (&a)[K][4], uint32_t b)
{
#pragma unroll
    for (int k = 0; k < K; k++)
        group_mma<true, true>(d, a[k], b + k * ALONG_ROWS);
}

/* Scores' registers as the left operand of the next product. */
template <int K>
__device__ inline void pack_left(uint32_t (&a)[K][4], const float (&d)[2 * K][4])
{
#pragma unroll
    for (int k = 0; k < K; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[k][i] = pack_bf16(d[k * 2 + i / 2][i % 2 * 2], d[k * 2 + i / 2][i % 2 * 2 + 1]);
}

#endif
