/* attention_split: gradients in bf16 for head sizes above 128, where a block's result fills the
 * registers: P and dS are computed once and written to the workspace in tiles of 128 x 128; dk, dv
 * and dq are then products over those tiles, each tile of a result with one owner that sums in one
 * order. Five products in all, and any head size. */
#ifndef RUNTIME_KERNELS_CUDA_ATTENTION_SPLIT_CUH
#define RUNTIME_KERNELS_CUDA_ATTENTION_SPLIT_CUH

#include "runtime/kernels/cuda/attention_backward.cuh"

constexpr int SPLIT_THREADS = 256, SPLIT_STAGES = 4, SPLIT_T = CUDA_SPLIT_TILE;
constexpr int64_t SPLIT_TILE_ELEMENTS = (int64_t)SPLIT_T * SPLIT_T;

/* Visible tiles of one head in the rows of tiles before row i: workspace_cuda.h,
 * plan_split_before. */
__device__ inline int64_t split_before(const CudaSplit &s, int64_t i)
{
    int64_t reach = s.reach, n;
    if (s.x.causal) {
        if (i <= reach + 1)
            return i * (i + 1) / 2;
        return (reach + 1) * (reach + 2) / 2 + (i - reach - 1) * (reach + 1);
    }
    n = i - 1 - reach;
    return i * s.tiles - (n > 0 ? n * (n + 1) / 2 : 0);
}

__device__ inline int split_first_keys(const CudaSplit &s, int i)
{
    return max(0, i - s.reach);
}

/* Tile (i, j) of the given query head of group g of the piece. */
__device__ inline int64_t split_place(const CudaSplit &s, int g, int head, int i, int j)
{
    return g * s.tiles_per_group + head * s.tiles_per_head + split_before(s, i) + j -
           split_first_keys(s, i) - s.tiles_before;
}

/* -- P and dS -- */

constexpr int SCORE_LD = 64 + 8, SCORE_OPERAND = SPLIT_T * SCORE_LD, SCORE_LDO = SPLIT_T + 8;
constexpr int SCORE_BYTES =
    (SPLIT_STAGES * 2 * SCORE_OPERAND + 2 * SPLIT_T * SCORE_LDO) * 2 + 2 * 2 * SPLIT_T * 4;

struct SplitTile {
    int b, head, kv_head, q_first, k_first;
};

__device__ inline SplitTile split_tile(const CudaSplit &s, int64_t t)
{
    int64_t rest = t % s.tiles_per_group + s.tiles_before;
    int group = s.group_first + (int)(t / s.tiles_per_group),
        in_group = (int)(rest / s.tiles_per_head);
    rest %= s.tiles_per_head;
    int low = 0, high = s.tiles; /* the row of tiles: before(low) <= rest < before(high) */
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (split_before(s, middle) <= rest)
            low = middle;
        else
            high = middle;
    }
    int k_tile = split_first_keys(s, low) + (int)(rest - split_before(s, low)),
        kv_head = group % s.x.kv_heads;
    return {group / s.x.kv_heads, kv_head * s.x.group + in_group, kv_head, low * SPLIT_T,
            k_tile * SPLIT_T};
}

/* Steps of 64 columns of the head, first of q and k, then of grad and v, tile after tile of the
 * block. */
struct ScoreLoader {
    const CudaSplit &s;
    bf16 *ring;
    float *statistics; /* [2][lse, delta][128], by the parity of the block's tiles */
    int64_t t, total;
    SplitTile tile;
    int step, half_steps, slot, parity;

    __device__ inline void next()
    {
        const CudaAttention &x = s.x;
        if (t < total) {
            bf16 *to = ring + slot * 2 * SCORE_OPERAND;
            bool second = step >= half_steps;
            int column = (second ? step - half_steps : step) * 64;
            const CudaHeads &rows = second ? x.grad : x.q, &cols = second ? x.v : x.k;
            load_tile<SPLIT_T, 64, SCORE_LD, SPLIT_THREADS>(
                to, head_at<bf16>(rows, tile.b, tile.head), rows.row, tile.q_first, x.seq, column,
                x.dim);
            load_tile<SPLIT_T, 64, SCORE_LD, SPLIT_THREADS>(
                to + SCORE_OPERAND, head_at<bf16>(cols, tile.b, tile.kv_head), cols.row,
                tile.k_first, x.seq, column, x.dim);
            if (step == 0) {
                int i = (int)threadIdx.x, q = tile.q_first + i % SPLIT_T;
                const float *from = (i < SPLIT_T ? x.lse : x.delta) +
                                    ((int64_t)tile.b * x.heads + tile.head) * x.seq;
                cp_async4(statistics + parity * 2 * SPLIT_T + i, q < x.seq ? from + q : from,
                          q < x.seq);
            }
            if (++step == 2 * half_steps) {
                step = 0;
                parity ^= 1;
                t += gridDim.x;
                if (t < total)
                    tile = split_tile(s, t);
            }
        }
        cp_async_commit();
        slot = (slot + 1) % SPLIT_STAGES;
    }
};

template <int MT, int NT>
__device__ inline void score_steps(ScoreLoader &loader, float (&c)[MT][NT][4], int steps, int wm,
                                   int wn, int *slot)
{
#pragma unroll 1
    for (int i = 0; i < steps; i++) {
        cp_async_wait<SPLIT_STAGES - 2>();
        __syncthreads();
        loader.next();
        const bf16 *a = loader.ring + *slot * 2 * SCORE_OPERAND;
        multiply<MT, NT, 64>(c, a + wm * 64 * SCORE_LD, SCORE_LD,
                             a + SCORE_OPERAND + wn * 32 * SCORE_LD, SCORE_LD);
        *slot = (*slot + 1) % SPLIT_STAGES;
    }
}

template <bool ANY> __device__ inline void split_scores(const CudaSplit &s)
{
    const CudaAttention &x = s.x;
    DYNAMIC_SHARED(shared);
    bf16 *ring = (bf16 *)shared, *out_p = ring + SPLIT_STAGES * 2 * SCORE_OPERAND,
         *out_ds = out_p + SPLIT_T * SCORE_LDO;
    float *statistics = (float *)(out_ds + SPLIT_T * SCORE_LDO), unit = score_unit<ANY>(x);
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP, wm = warp / 4,
        wn = warp % 4;
    int row = lane / 4, pair = lane % 4 * 2, half_steps = (x.dim + 63) / 64, slot = 0, parity = 0;
    int64_t total = s.groups * s.tiles_per_group, t = blockIdx.x;
    if (t >= total)
        return;
    bool listed = ANY && (x.segments || x.keep);
    SplitTile tile = split_tile(s, t);
    ScoreLoader loader = {s, ring, statistics, t, total, tile, 0, half_steps, 0, 0};
    for (int i = 0; i < SPLIT_STAGES - 1; i++)
        loader.next();
    for (;;) {
        float c[4][4][4], dp[4][4][4];
        clear(c);
        score_steps(loader, c, half_steps, wm, wn, &slot);
        clear(dp);
        score_steps(loader, dp, half_steps, wm, wn, &slot);

        int q_first = tile.q_first + wm * 64, k_first = tile.k_first + wn * 32;
        bool all_seen = !listed && sees_all(x, q_first, q_first + 63, k_first, k_first + 31);
        const float *lse = statistics + parity * 2 * SPLIT_T, *delta = lse + SPLIT_T;
        RtStream stream = {0, 0};
        if (ANY && x.threshold)
            stream = dropout_stream(x, tile.b, tile.head);
#pragma unroll
        for (int m = 0; m < 4; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                int local = wm * 64 + m * 16 + half * 8 + row, q = tile.q_first + local;
                int low = row_low(x, q), high = row_high(x, q),
                    segment = listed ? segment_of(x, tile.b, q) : 0;
                float row_lse = lse[local] * LOG2_E, row_delta = delta[local];
                RtStream of_row = {0, 0};
                if (ANY && x.threshold)
                    of_row = rt_random_absorb(stream, (uint32_t)q);
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    GradPair g[2];
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        int k = k_first + n * 8 + pair + e, i = half * 2 + e;
                        float kept = 1;
                        if (ANY && x.threshold)
                            kept = dropout_factor(x, of_row, k);
                        g[e] = grad_pair<ANY>(x, unit, c[m][n][i], dp[m][n][i], row_lse, row_delta,
                                              kept);
                        bool sees = all_seen || (k > low && k <= high);
                        if (listed)
                            sees = sees && segment_of(x, tile.b, k) == segment &&
                                   is_kept(x, tile.b, k);
                        if (!sees)
                            g[e] = {0, 0};
                    }
                    int at = local * SCORE_LDO + wn * 32 + n * 8 + pair;
                    *(uint32_t *)(out_p + at) = pack_bf16(g[0].p, g[1].p);
                    *(uint32_t *)(out_ds + at) = pack_bf16(g[0].ds, g[1].ds);
                }
            }
        __syncthreads();
        bf16 *to_p = (bf16 *)s.p + t * SPLIT_TILE_ELEMENTS,
             *to_ds = (bf16 *)s.ds + t * SPLIT_TILE_ELEMENTS;
#pragma unroll
        for (int i = (int)threadIdx.x; i < SPLIT_T * SPLIT_T / 8; i += SPLIT_THREADS) {
            int r = i / (SPLIT_T / 8), at = i % (SPLIT_T / 8) * 8;
            *(uint4 *)(to_p + i * 8) = *(const uint4 *)(out_p + r * SCORE_LDO + at);
            *(uint4 *)(to_ds + i * 8) = *(const uint4 *)(out_ds + r * SCORE_LDO + at);
        }
        t += gridDim.x;
        if (t >= total)
            break;
        tile = split_tile(s, t);
        parity ^= 1;
    }
    cp_async_wait<0>();
}

/* -- dk, dv, dq: 128 rows of 256 columns each -- */

constexpr int PRODUCT_K = 64, PRODUCT_LDT = SPLIT_T + 8, PRODUCT_LDA = PRODUCT_K + 8,
              PRODUCT_N = CUDA_SPLIT_COLUMNS;
constexpr int PRODUCT_LDB = PRODUCT_N + 8, PRODUCT_A = SPLIT_T * PRODUCT_LDA,
              PRODUCT_B = PRODUCT_K * PRODUCT_LDB;
constexpr int PRODUCT_BYTES = SPLIT_STAGES * (PRODUCT_A + PRODUCT_B) * 2;
static_assert(PRODUCT_K * PRODUCT_LDT <= PRODUCT_A, "a transposed operand fits as well");

/* KEYS: dk or dv of a tile of keys, a sum over the group's units in order; else dq of a unit, a sum
 * over tiles of keys. */
template <bool KEYS> struct ProductLoader {
    const CudaSplit &s;
    const bf16 *tiles; /* P or dS */
    const CudaHeads &other;
    bf16 *ring;
    int g, b, head_first, tile,
        column; /* KEYS: head_first: the group's first query head, tile: of keys */
    int head, i, i_end, half,
        slot; /* KEYS: (head in the group, tile of queries); else i is the tile of keys */

    /* KEYS: the queries' tiles of `head` that are in the piece and meet the keys. */
    __device__ inline void open_head()
    {
        int first = s.unit_first - head * s.tiles, end = s.unit_end - head * s.tiles;
        i = max(first, s.x.causal ? tile : 0);
        i_end = min(min(end, s.tiles), (int)min((int64_t)s.tiles, (int64_t)tile + s.reach + 1));
    }

    __device__ inline void settle()
    {
        while (KEYS && i >= i_end && head + 1 < s.x.group) {
            head++;
            open_head();
        }
    }

    __device__ inline bool done() const
    {
        return i >= i_end;
    }

    __device__ inline void next()
    {
        const CudaAttention &x = s.x;
        if (!done()) {
            bf16 *to_a = ring + slot * (PRODUCT_A + PRODUCT_B), *to_b = to_a + PRODUCT_A;
            int64_t place =
                KEYS ? split_place(s, g, head, i, tile) : split_place(s, g, head, tile, i);
            const bf16 *from = tiles + place * SPLIT_TILE_ELEMENTS;
            if (KEYS)
                load_tile<PRODUCT_K, SPLIT_T, PRODUCT_LDT, SPLIT_THREADS>(
                    to_a, from, SPLIT_T, half * PRODUCT_K, SPLIT_T, 0, SPLIT_T);
            else
                load_tile<SPLIT_T, PRODUCT_K, PRODUCT_LDA, SPLIT_THREADS>(
                    to_a, from, SPLIT_T, 0, SPLIT_T, half * PRODUCT_K, SPLIT_T);
            int other_head = KEYS ? head_first + head : head_first;
            load_tile<PRODUCT_K, PRODUCT_N, PRODUCT_LDB, SPLIT_THREADS>(
                to_b, head_at<bf16>(other, b, other_head), other.row,
                i * SPLIT_T + half * PRODUCT_K, x.seq, column, x.dim);
            half ^= 1;
            if (!half) {
                i++;
                settle();
            }
        }
        cp_async_commit();
        slot = (slot + 1) % SPLIT_STAGES;
    }
};

template <bool KEYS>
__device__ inline void product(ProductLoader<KEYS> loader, const CudaHeads &to, int to_head,
                               float *sums)
{
    const CudaSplit &s = loader.s;
    const CudaAttention &x = s.x;
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP, wm = warp / 4,
        wn = warp % 4, slot = 0;
    int row = loader.tile * SPLIT_T + wm * 64 + lane / 4,
        column = loader.column + wn * 64 + lane % 4 * 2;
    int64_t ld = (int64_t)s.columns * PRODUCT_N;
    float c[4][8][4];
    clear(c);
    if (sums && !s.first)
#pragma unroll
        for (int m = 0; m < 4; m++)
#pragma unroll
            for (int n = 0; n < 8; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    c[m][n][i] = sums[(row + m * 16 + i / 2 * 8) * ld + column + n * 8 + i % 2];
    ProductLoader<KEYS> ahead = loader;
    ahead.settle();
    int steps = 0; /* this block's own, counted by a second walk */
    {
        ProductLoader<KEYS> walk = ahead;
        while (!walk.done()) {
            steps += 2 * (walk.i_end - walk.i);
            walk.i = walk.i_end;
            walk.settle();
        }
    }
    for (int i = 0; i < SPLIT_STAGES - 1; i++)
        ahead.next();
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        cp_async_wait<SPLIT_STAGES - 2>();
        __syncthreads();
        ahead.next();
        const bf16 *a_at = loader.ring + slot * (PRODUCT_A + PRODUCT_B),
                   *b_at = a_at + PRODUCT_A + wn * 64;
#pragma unroll
        for (int k = 0; k < PRODUCT_K; k += 16) {
            uint32_t a[4][4], bb[4];
#pragma unroll
            for (int m = 0; m < 4; m++)
                if (KEYS)
                    load_a_trans(a[m], a_at + k * PRODUCT_LDT + wm * 64 + m * 16, PRODUCT_LDT);
                else
                    load_a(a[m], a_at + (wm * 64 + m * 16) * PRODUCT_LDA + k, PRODUCT_LDA);
#pragma unroll
            for (int n = 0; n < 8; n += 2) {
                load_b_trans(bb, b_at + k * PRODUCT_LDB + n * 8, PRODUCT_LDB);
#pragma unroll
                for (int m = 0; m < 4; m++) {
                    mma(c[m][n], a[m], bb[0], bb[1]);
                    mma(c[m][n + 1], a[m], bb[2], bb[3]);
                }
            }
        }
        slot = (slot + 1) % SPLIT_STAGES;
    }
    cp_async_wait<0>();
    bf16 *out = head_at<bf16>(to, loader.b, to_head);
#pragma unroll
    for (int m = 0; m < 4; m++)
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int n = 0; n < 8; n++) {
                int r = row + m * 16 + half * 8, at = column + n * 8;
                float lo = c[m][n][half * 2], hi = c[m][n][half * 2 + 1];
                if (sums && !s.last) {
                    sums[r * ld + at] = lo;
                    sums[r * ld + at + 1] = hi;
                } else if (r < x.seq && at < x.dim) {
                    *(uint32_t *)(out + r * to.row + at) = pack_bf16(lo, hi);
                }
            }
}

/* Blocks: dk and dv of all tiles of keys, the first keys first (they have the most queries), then
 * dq of all units, the last queries first. */
__device__ inline void split_products(const CudaSplit &s)
{
    DYNAMIC_SHARED(shared);
    bf16 *ring = (bf16 *)shared;
    const CudaAttention &x = s.x;
    int of_keys = s.groups * 2 * s.columns, index = (int)blockIdx.x, n_keys = s.tiles * of_keys;
    if (index < n_keys) {
        int tile = index / of_keys, rest = index % of_keys, column = rest % s.columns;
        bool is_v = rest / s.columns % 2;
        int g = rest / s.columns / 2, group = s.group_first + g, b = group / x.kv_heads,
            kv_head = group % x.kv_heads;
        const CudaHeads &to = is_v ? x.dv : x.dk;
        if (!to.at)
            return;
        ProductLoader<true> loader = {s,
                                      (const bf16 *)(is_v ? s.p : s.ds),
                                      is_v ? x.grad : x.q,
                                      ring,
                                      g,
                                      b,
                                      kv_head * x.group,
                                      tile,
                                      column * PRODUCT_N,
                                      s.unit_first / s.tiles,
                                      0,
                                      0,
                                      0,
                                      0};
        loader.open_head();
        product(loader, to, kv_head, is_v ? s.dv_sum : s.dk_sum);
        return;
    }
    index -= n_keys;
    if (!x.dq.at)
        return;
    int units = s.unit_end - s.unit_first, per_tile = s.groups * s.columns,
        column = index % s.columns;
    int g = index % per_tile / s.columns, order = index / per_tile;
    int unit = s.unit_end - 1 - order, head, tile;
    if (units == x.group * s.tiles) { /* all heads' last tiles first */
        head = order % x.group;
        tile = s.tiles - 1 - order / x.group;
    } else {
        head = unit / s.tiles;
        tile = unit % s.tiles;
    }
    int group = s.group_first + g, b = group / x.kv_heads, kv_head = group % x.kv_heads;
    int i_end = x.causal ? tile + 1 : s.tiles;
    ProductLoader<false> loader = {
        s,    (const bf16 *)s.ds,        x.k,   ring, g, b, kv_head, tile, column * PRODUCT_N,
        head, split_first_keys(s, tile), i_end, 0,    0};
    product(loader, x.dq, kv_head * x.group + head, nullptr);
}

#endif
