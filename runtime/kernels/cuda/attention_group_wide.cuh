/* attention_group_wide: o and lse on wgmma for head sizes above 256, up to 512. A block owns 64
 * queries of a head. Of a tile of 128 keys, each of the two groups takes the scores of 64, and 256
 * columns of o: the rows' maxima and the probabilities go through shared memory. Keys and values
 * come in pieces of 32 KiB through one ring. */
#ifndef RUNTIME_KERNELS_CUDA_ATTENTION_GROUP_WIDE_CUH
#define RUNTIME_KERNELS_CUDA_ATTENTION_GROUP_WIDE_CUH

#include "runtime/kernels/cuda/attention_forward.cuh"
#include "runtime/kernels/cuda/attention_group.cuh"

/* A piece of keys: 128 of them, 128 columns; of values: 32 of them, 512 columns. Everything in
 * tiles of 64 columns. */
struct GroupWideShape {
    static constexpr int M = GROUP_ROWS, N = 128, D = 512, PIECES = 4, SLOTS = 4;
    static constexpr int REGISTERS = 232, COPYING_REGISTERS = 40; /* of three times 168 */
    static constexpr int PIECE_BYTES = N * 128 * 2, V_ROWS = N / PIECES, V_TILE = V_ROWS * 128;
    static constexpr int QUERIES = 0, KEPT = QUERIES + M * D * 2, RING = KEPT + M * N * 2,
                         OUT = RING + SLOTS * PIECE_BYTES, EXCHANGE = OUT + 2 * M * GROUP_LD * 2,
                         BARRIERS = EXCHANGE + 2 * M * 4, BYTES = BARRIERS + (2 + 2 * SLOTS) * 8;
};

struct GroupWide {
    using S = GroupWideShape;
    const CudaAttention &x;
    unsigned char *shared;
    GroupRing ring;
    int first, b, head; /* of the item */
    int begin, end;     /* keys */

    __device__ inline GroupWide(const CudaAttention &args, unsigned char *memory)
        : x(args), shared(memory), ring({0, 0})
    {
    }

    __device__ inline uint64_t *own_full() const
    {
        return (uint64_t *)(shared + S::BARRIERS);
    }

    __device__ inline uint64_t *own_empty() const
    {
        return own_full() + 1;
    }

    __device__ inline uint64_t *full(int slot) const
    {
        return own_full() + 2 + slot;
    }

    __device__ inline uint64_t *empty(int slot) const
    {
        return own_full() + 2 + S::SLOTS + slot;
    }

    __device__ inline unsigned char *piece(int slot) const
    {
        return shared + S::RING + slot * S::PIECE_BYTES;
    }

    __device__ inline float *exchange(int group) const
    {
        return (float *)(shared + S::EXCHANGE) + group * S::M;
    }

    /* The block's item of a round, the last queries first; false: it has none, which can only be in
     * the last. */
    __device__ inline bool open(int round)
    {
        int tiles = (x.seq + S::M - 1) / S::M, heads = x.batch * x.heads, blocks = (int)gridDim.x,
            block = (int)blockIdx.x,
            item = round * blocks + (round % 2 ? blocks - 1 - block : block);
        if (item >= tiles * heads)
            return false;
        first = (tiles - 1 - item / heads) * S::M;
        b = item % heads / x.heads;
        head = item % x.heads;
        begin = keys_begin(x, first) / S::N * S::N;
        end = keys_end(x, first + S::M);
        return true;
    }
};

/* -- the group that copies -- */

__device__ inline void wide_copy(GroupWide &g)
{
    using S = GroupWideShape;
    const CudaAttention &x = g.x;
    for (int round = 0; g.open(round); round++) {
        int kv_head = g.head / x.group;
        const bf16 *q = head_at<bf16>(x.q, g.b, g.head);
        phase_wait(g.own_empty(), round % 2 ^ 1);
#pragma unroll 1
        for (int column = 0; column < S::D; column += 64)
            copy_tile<S::M>(g.shared + S::QUERIES + column * S::M * 2, q + column, x.q.row, g.first,
                            x.seq, x.dim - column);
        phase_arrive_after_copies(g.own_full());
        for (int at = g.begin; at < g.end; at += S::N)
#pragma unroll 1
            for (int piece = 0; piece < 2 * S::PIECES; piece++) {
                unsigned char *to = g.piece(g.ring.stage);
                phase_wait(g.empty(g.ring.stage), g.ring.parity ^ 1);
                if (piece < S::PIECES) {
                    const bf16 *k = head_at<bf16>(x.k, g.b, kv_head);
#pragma unroll 1
                    for (int column = piece * 128; column < piece * 128 + 128; column += 64) {
                        copy_tile<S::N>(to, k + column, x.k.row, at, x.seq, x.dim - column);
                        to += S::N * 128;
                    }
                } else {
                    const bf16 *v = head_at<bf16>(x.v, g.b, kv_head);
#pragma unroll 1
                    for (int column = 0; column < S::D; column += 64) {
                        copy_tile<S::V_ROWS>(to, v + column, x.v.row,
                                             at + (piece - S::PIECES) * S::V_ROWS, x.seq,
                                             x.dim - column);
                        to += S::V_TILE;
                    }
                }
                phase_arrive_after_copies(g.full(g.ring.stage));
                g.ring.step(S::SLOTS);
            }
    }
}

/* -- the groups that compute -- */

struct WideState {
    float o[32][4], s[1][8][4], most[1][2], sum[1][2];
    float unit;
    int group, warp_first, row; /* row: the thread's first, of the item's */
};

__device__ inline void wide_release(GroupWide &g, int slot)
{
    __syncwarp();
    if (threadIdx.x % WARP == 0)
        phase_arrive(g.empty(slot));
}

/* The next piece is there, and its products are issued by `issue`; the one before is handed back
 * once those of it are done. */
template <typename Issue> __device__ inline void wide_pieces(GroupWide &g, Issue issue)
{
    using S = GroupWideShape;
    int before = 0;
#pragma unroll 1
    for (int piece = 0; piece < S::PIECES; piece++) {
        int slot = g.ring.stage;
        phase_wait(g.full(slot), g.ring.parity);
        fence_async();
        group_fence();
        issue(piece, g.piece(slot));
        group_commit();
        if (piece) {
            group_wait<1>();
            wide_release(g, before);
        }
        before = slot;
        g.ring.step(S::SLOTS);
    }
    group_wait<0>();
    wide_release(g, before);
}

/* Scores of the group's 64 keys. */
__device__ inline void wide_scores(GroupWide &g, WideState &r)
{
    using S = GroupWideShape;
    clear(r.s);
    group_pin(r.s[0]);
    wide_pieces(g, [&](int piece, unsigned char *keys) {
        uint32_t q = tile_place(g.shared + S::QUERIES + piece * 2 * S::M * 128),
                 k = tile_place(keys + r.group * GROUP_ROWS * 128);
#pragma unroll
        for (int i = 0; i < 8; i++) /* steps of 16 columns: two tiles of four */
            group_mma<false, true>(r.s[0], q + i / 4 * (S::M * 128 / 16) + i % 4 * ALONG_ROW,
                                   k + i / 4 * (S::N * 128 / 16) + i % 4 * ALONG_ROW);
    });
    group_pin(r.s[0]);
}

/* The rows' maxima over both groups' scores. */
__device__ inline void wide_most(GroupWide &g, WideState &r)
{
    row_most(r.s, r.most);
    float *mine = g.exchange(r.group), *other = g.exchange(r.group ^ 1);
    if (threadIdx.x % 4 == 0) {
        mine[r.row] = r.most[0][0];
        mine[r.row + 8] = r.most[0][1];
    }
    bar_sync(1, 256);
    r.most[0][0] = fmaxf(r.most[0][0], other[r.row]);
    r.most[0][1] = fmaxf(r.most[0][1], other[r.row + 8]);
}

/* Probabilities into shared memory; o and sums so far go by the new maxima. */
__device__ inline void wide_softmax(GroupWide &g, WideState &r, const float (&before)[2])
{
    using S = GroupWideShape;
    unsigned char *kept = g.shared + S::KEPT + r.group * S::M * 128;
    int pair = (int)threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float most = r.most[0][half], shift = most == minus_infinity() ? 0.0f : most * r.unit,
              total = 0, rescale = exp2_fast(before[half] * r.unit - shift);
        int row = r.row + half * 8;
#pragma unroll
        for (int n = 0; n < 8; n++) {
            const float *s =
                &r.s[0][n][half * 2]; /* rounded as the product takes them, summed so */
            uint32_t rounded =
                pack_bf16(exp2_fast(s[0] * r.unit - shift), exp2_fast(s[1] * r.unit - shift));
            total += low_f32(rounded);
            total += high_f32(rounded);
            *(uint32_t *)(kept + swizzled(row, n) + pair * 4) = rounded;
        }
        r.sum[0][half] = r.sum[0][half] * rescale + total;
        if (!__any_sync(ALL_LANES, rescale != 1.0f))
            continue;
#pragma unroll
        for (int n = 0; n < 32; n++) {
            r.o[n][half * 2] *= rescale;
            r.o[n][half * 2 + 1] *= rescale;
        }
    }
    fence_async();
    bar_sync(1, 256);
}

/* o += the probabilities times the group's 256 columns of the values. */
__device__ inline void wide_product(GroupWide &g, WideState &r)
{
    using S = GroupWideShape;
    group_pin(r.o);
    wide_pieces(g, [&](int piece, unsigned char *values) {
        uint32_t p = tile_place(g.shared + S::KEPT + piece / 2 * S::M * 128) +
                     piece % 2 * 2 * ALONG_ROW,
                 v = tile_place(values + r.group * 4 * S::V_TILE, S::V_TILE);
#pragma unroll
        for (int i = 0; i < 2; i++)
            group_mma<true, true>(r.o, p + i * ALONG_ROW, v + i * ALONG_ROWS);
    });
    group_pin(r.o);
}

/* Sums of both groups, lse, and o: 64 columns at a time. */
__device__ inline void wide_finish(GroupWide &g, WideState &r)
{
    using S = GroupWideShape;
    const CudaAttention &x = g.x;
    float *mine = g.exchange(r.group), *other = g.exchange(r.group ^ 1), factor[1][2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        r.sum[0][half] += __shfl_xor_sync(ALL_LANES, r.sum[0][half], 1);
        r.sum[0][half] += __shfl_xor_sync(ALL_LANES, r.sum[0][half], 2);
        if (threadIdx.x % 4 == 0)
            mine[r.row + half * 8] = r.sum[0][half];
    }
    bar_sync(1, 256);
    /* in one order, whoever asks */
#pragma unroll
    for (int half = 0; half < 2; half++)
        r.sum[0][half] = r.group ? other[r.row + half * 8] + r.sum[0][half]
                                 : r.sum[0][half] + other[r.row + half * 8];
    bar_sync(1, 256); /* before the next item's maxima */
    finish_rows<1>(x, r.unit, r.most, r.sum, {g.first, g.b, g.head}, r.warp_first, r.group == 0,
                   factor);
    bf16 *to = head_at<bf16>(x.o, g.b, g.head) + r.group * 256;
    const float(*o)[8][4] = (const float(*)[8][4])r.o;
#pragma unroll
    for (int i = 0; i < 4; i++)
        store_own(g.shared + S::OUT, o[i], factor[0], to + i * 64, x.o.row, r.warp_first, x.seq,
                  x.dim - r.group * 256 - i * 64);
}

__device__ inline void wide_compute(GroupWide &g)
{
    using S = GroupWideShape;
    const CudaAttention &x = g.x;
    int warp = uniform((int)threadIdx.x / WARP);
    WideState r;
    r.unit = score_unit<false>(x);
    r.group = warp / 4;
    r.row = warp % 4 * 16 + (int)threadIdx.x % WARP / 4;
    for (int round = 0; g.open(round); round++) {
        r.warp_first = g.first + warp % 4 * 16;
#pragma unroll
        for (int n = 0; n < 32; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                r.o[n][i] = 0;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            r.most[0][half] = minus_infinity();
            r.sum[0][half] = 0;
        }
        phase_wait(g.own_full(), round % 2);
        for (int at = g.begin; at < g.end; at += S::N) {
            const float before[2] = {r.most[0][0], r.most[0][1]};
            wide_scores(g, r);
            if (at + S::N >= g.end) { /* the next item's queries may come */
                __syncwarp();
                if (threadIdx.x % WARP == 0)
                    phase_arrive(g.own_empty());
            }
            mask_scores<false>(x, g.b, r.s, r.warp_first, at + r.group * GROUP_ROWS);
            wide_most(g, r);
            wide_softmax(g, r, before);
            wide_product(g, r);
        }
        wide_finish(g, r);
    }
}

__device__ inline void wide_forward(const CudaAttention &x)
{
    using S = GroupWideShape;
    DYNAMIC_SHARED(shared);
    GroupWide g(x, shared);
    if (threadIdx.x == 0) {
        phase_init(g.own_full(), 128);
        phase_init(g.own_empty(), GROUP_COMPUTING);
        for (int i = 0; i < S::SLOTS; i++) {
            phase_init(g.full(i), 128);
            phase_init(g.empty(i), GROUP_COMPUTING);
        }
    }
    __syncthreads();
    if ((int)threadIdx.x / WARP < GROUP_COMPUTING) {
        group_takes_registers<S::REGISTERS>();
        wide_compute(g);
    } else {
        group_gives_registers<S::COPYING_REGISTERS>();
        wide_copy(g);
    }
}

#endif
