/* attention_forward: o and lse in bf16 on the tensor cores (mma.sync). ANY: segments, keep,
 * softcap, dropout too. */
#ifndef RUNTIME_KERNELS_CUDA_ATTENTION_FORWARD_CUH
#define RUNTIME_KERNELS_CUDA_ATTENTION_FORWARD_CUH

#include "runtime/kernels/cuda/attention.cuh"

/* What a block owns: queries from `first` on of a head. The last queries have the most keys: they
 * go first. */
struct ForwardPlace {
    int first, b, head;
};

template <int M> __device__ inline ForwardPlace forward_place(const CudaAttention &x, int block)
{
    int heads = x.batch * x.heads, tiles = (x.seq + M - 1) / M;
    return {(tiles - 1 - block / heads) * M, block % heads / x.heads, block % x.heads};
}

/* Softcap and mask of a warp's scores: rows from q_first on, MT * 16 of them, keys from k_first on,
 * NT * 8. */
template <bool ANY, int MT, int NT>
__device__ inline void mask_scores(const CudaAttention &x, int b, float (&s)[MT][NT][4],
                                   int q_first, int k_first)
{
    int lane = (int)threadIdx.x % WARP, row = lane / 4, pair = lane % 4 * 2;
    if (ANY && x.softcap > 0) {
        float in = x.scale / x.softcap;
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    s[m][n][i] = x.softcap * tanh_fast(s[m][n][i] * in);
    }
    bool listed = ANY && (x.segments || x.keep);
    if (!listed && sees_all(x, q_first, q_first + MT * 16 - 1, k_first, k_first + NT * 8 - 1))
        return;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int q = q_first + m * 16 + half * 8 + row, low = row_low(x, q), high = row_high(x, q);
            int segment = listed ? segment_of(x, b, q) : 0;
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    int k = k_first + n * 8 + pair + c;
                    bool sees = k > low && k <= high;
                    if (listed)
                        sees = sees && segment_of(x, b, k) == segment && is_kept(x, b, k);
                    s[m][n][half * 2 + c] = sees ? s[m][n][half * 2 + c] : minus_infinity();
                }
        }
}

/* The largest score of each row so far, over the lanes of a quad. */
template <int MT, int NT>
__device__ inline void row_most(const float (&s)[MT][NT][4], float (&most)[MT][2])
{
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float top = most[m][half];
#pragma unroll
            for (int n = 0; n < NT; n++)
                top = fmaxf(top, fmaxf(s[m][n][half * 2], s[m][n][half * 2 + 1]));
            top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 1));
            most[m][half] = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 2));
        }
}

/* Scores to probabilities (not yet divided by their sum), rounded to bf16 as the product takes
 * them: the sum is of what is added up, so that the weights of a row are 1 together. before: the
 * maxima that `sum` and o go by; rescaled to `most`. */
template <int MT, int NT, int DT>
__device__ inline void probabilities(float unit, float (&s)[MT][NT][4],
                                     const float (&before)[MT][2], const float (&most)[MT][2],
                                     float (&sum)[MT][2], float (&o)[MT][DT][4])
{
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float shift = most[m][half] == minus_infinity() ? 0.0f : most[m][half] * unit;
            float rescale = exp2_fast(before[m][half] * unit - shift), total = 0;
#pragma unroll
            for (int n = 0; n < NT; n++) {
                float *p = &s[m][n][half * 2];
                uint32_t rounded = pack_bf16(exp2_fast(p[0] * unit - shift),
                                             exp2_fast(p[1] * unit - shift));
                p[0] = low_f32(rounded);
                p[1] = high_f32(rounded);
                total += p[0];
                total += p[1];
            }
            sum[m][half] = sum[m][half] * rescale + total;
            if (!__any_sync(ALL_LANES, rescale != 1.0f))
                continue;
#pragma unroll
            for (int d = 0; d < DT; d++) {
                o[m][d][half * 2] *= rescale;
                o[m][d][half * 2 + 1] *= rescale;
            }
        }
}

template <int MT, int NT>
__device__ inline void drop(const CudaAttention &x, int b, int head, float (&s)[MT][NT][4],
                            int q_first, int k_first)
{
    RtStream stream = dropout_stream(x, b, head);
    int lane = (int)threadIdx.x % WARP, row = lane / 4, pair = lane % 4 * 2;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            RtStream of_row =
                rt_random_absorb(stream, (uint32_t)(q_first + m * 16 + half * 8 + row));
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int c = 0; c < 2; c++)
                    s[m][n][half * 2 + c] *= dropout_factor(x, of_row, k_first + n * 8 + pair + c);
        }
}

/* 1 / sum of each row and its lse. */
template <int MT>
__device__ inline void finish_rows(const CudaAttention &x, float unit, const float (&most)[MT][2],
                                   const float (&sum)[MT][2], const ForwardPlace &place,
                                   int q_first, bool writes, float (&out_factor)[MT][2])
{
    int lane = (int)threadIdx.x % WARP;
    float *lse = x.lse ? x.lse + ((int64_t)place.b * x.heads + place.head) * x.seq : nullptr;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float total = sum[m][half];
            int q = q_first + m * 16 + half * 8 + lane / 4;
            out_factor[m][half] = total == 0 ? 0.0f : 1.0f / total;
            if (writes && lane % 4 == 0 && lse && q < x.seq)
                lse[q] =
                    total == 0 ? infinity() : most[m][half] * unit * (1 / LOG2_E) + logf(total);
        }
}

/* The next tile of keys at or behind k that may be seen by rows of the segments `rows`. */
template <bool ANY, int N>
__device__ inline int next_keys(const CudaAttention &x, int b, const SegmentRange &rows, int k,
                                int end)
{
    if (ANY && (x.segments || x.keep))
        while (k < end && !ranges_meet(rows, segment_range(x, b, k, N, true)))
            k += N;
    return k;
}

/* -- head sizes up to 128: a warp has 32 rows and all columns of o; probabilities stay in registers
 * -- */

template <int D> __device__ inline void attention_rows(const CudaAttention &x)
{
    constexpr int M = CUDA_ATTENTION_ROWS, N = 64, THREADS = M, LD = D + 8, DT = D / 8;
    constexpr int AT_ONCE = D == 64 ? 64 : 32,
                  NT = AT_ONCE / 8; /* keys whose scores are in registers */
    DYNAMIC_SHARED(shared);
    bf16 *queries = (bf16 *)shared, *stages = queries + M * LD;
    ForwardPlace place = forward_place<M>(x, (int)blockIdx.x);
    int first = place.first, b = place.b, head = place.head, kv_head = head / x.group;
    int warp = (int)threadIdx.x / WARP, q_first = first + warp * 32;
    const bf16 *k_at = head_at<bf16>(x.k, b, kv_head), *v_at = head_at<bf16>(x.v, b, kv_head);
    float o[2][DT][4], most[2][2], sum[2][2], factor[2][2], unit = score_unit<true>(x);
    SegmentRange rows = {0, 0};
    if (x.segments || x.keep)
        rows = segment_range(x, b, first, M, false);
    clear(o);
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            most[m][half] = minus_infinity();
            sum[m][half] = 0;
        }

    int end = keys_end(x, first + M), stage = 0;
    int k = next_keys<true, N>(x, b, rows, keys_begin(x, first) / N * N, end);
    load_tile<M, D, LD, THREADS>(queries, head_at<bf16>(x.q, b, head), x.q.row, first, x.seq, 0,
                                 x.dim);
    if (k < end) {
        load_tile<N, D, LD, THREADS>(stages, k_at, x.k.row, k, x.seq, 0, x.dim);
        load_tile<N, D, LD, THREADS>(stages + N * LD, v_at, x.v.row, k, x.seq, 0, x.dim);
    }
    cp_async_commit();
    while (k < end) {
        int after = next_keys<true, N>(x, b, rows, k + N, end);
        cp_async_wait<0>();
        __syncthreads();
        if (after < end) {
            bf16 *next = stages + (stage ^ 1) * 2 * N * LD;
            load_tile<N, D, LD, THREADS>(next, k_at, x.k.row, after, x.seq, 0, x.dim);
            load_tile<N, D, LD, THREADS>(next + N * LD, v_at, x.v.row, after, x.seq, 0, x.dim);
        }
        cp_async_commit();
#pragma unroll 1
        for (int i = 0; i < N; i += AT_ONCE) {
            if (sees_none(x, q_first, q_first + 31, k + i, k + i + AT_ONCE - 1))
                continue;
            const bf16 *keys = stages + stage * 2 * N * LD + i * LD;
            float s[2][NT][4], before[2][2] = {{most[0][0], most[0][1]}, {most[1][0], most[1][1]}};
            clear(s);
            multiply<2, NT, D>(s, queries + warp * 32 * LD, LD, keys, LD);
            mask_scores<true>(x, b, s, q_first, k + i);
            row_most(s, most);
            probabilities(unit, s, before, most, sum, o);
            if (x.threshold)
                drop(x, b, head, s, q_first, k + i);
            uint32_t kept[2][NT][2];
            pack_pairs(kept, s);
            multiply_kept(o, kept, keys + N * LD, LD);
        }
        k = after;
        stage ^= 1;
    }
    cp_async_wait<0>();
    __syncthreads();
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            sum[m][half] += __shfl_xor_sync(ALL_LANES, sum[m][half], 1);
            sum[m][half] += __shfl_xor_sync(ALL_LANES, sum[m][half], 2);
        }
    place = forward_place<M>(x, block_again());
    finish_rows<2>(x, unit, most, sum, place, q_first, true, factor);
    store_rows<2, DT>(queries + warp * 32 * LD, LD, o, factor,
                      head_at<bf16>(x.o, place.b, place.head), x.o.row, q_first, x.seq, 0, x.dim);
}

/* -- head sizes 256 and 512: warps in rows and columns. A warp has 32 rows, 32 keys of the scores,
 * 128 columns of o; probabilities go through shared memory; keys and values come in pieces, a ring
 * of them -- */

template <int D> struct WideShape {
    static constexpr int WN = D / 128, WM = 8 / WN, M = WM * 32, N = WN * 32;
    static constexpr int KD = D == 256 ? 256 : 128,
                         VK = D == 256 ? 64 : 32; /* columns of a piece of keys, rows of v's */
    static constexpr int K_PIECES = D / KD, V_PIECES = N / VK, SLOTS = 4;
    static constexpr int LDQ = D + 8, LDK = KD + 8, LDV = D + 8, LDP = N + 8;
    static constexpr int SLOT = N * LDK > VK *LDV ? N *LDK : VK *LDV;
    static constexpr int ELEMENTS = M * LDQ + M * LDP + SLOTS * SLOT;
    static constexpr int BYTES = ELEMENTS * 2 + WN * M * 4;
};

template <int D, bool ANY> struct WideLoader {
    using S = WideShape<D>;
    const CudaAttention &x;
    const bf16 *k_at, *v_at;
    bf16 *ring;
    SegmentRange rows;
    int b, end, k, piece, slot;

    __device__ inline void next()
    {
        if (k < end) {
            bf16 *to = ring + slot * S::SLOT;
            if (piece < S::K_PIECES)
                load_tile<S::N, S::KD, S::LDK, 256>(to, k_at, x.k.row, k, x.seq, piece * S::KD,
                                                    x.dim);
            else
                load_tile<S::VK, D, S::LDV, 256>(
                    to, v_at, x.v.row, k + (piece - S::K_PIECES) * S::VK, x.seq, 0, x.dim);
            if (++piece == S::K_PIECES + S::V_PIECES) {
                piece = 0;
                k = next_keys<ANY, S::N>(x, b, rows, k + S::N, end);
            }
        }
        cp_async_commit();
        slot = (slot + 1) % S::SLOTS;
    }
};

/* Waits for the oldest piece on its way, and sends for another in the place of the one before
 * it. */
template <int D, bool ANY> __device__ inline void wide_step(WideLoader<D, ANY> &loader)
{
    cp_async_wait<WideShape<D>::SLOTS - 2>();
    __syncthreads();
    loader.next();
}

template <int D, bool ANY> __device__ inline void attention_wide(const CudaAttention &x)
{
    using S = WideShape<D>;
    constexpr int DT = 16, M = S::M, N = S::N;
    DYNAMIC_SHARED(shared);
    bf16 *queries = (bf16 *)shared, *kept = queries + M * S::LDQ, *ring = kept + M * S::LDP;
    float *exchange = (float *)(queries + S::ELEMENTS); /* [WN][M] */
    ForwardPlace place = forward_place<M>(x, (int)blockIdx.x);
    int first = place.first, b = place.b, head = place.head, kv_head = head / x.group;
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP, wm = warp / S::WN,
        wn = warp % S::WN;
    int row = wm * 32, q_first = first + row, end = keys_end(x, first + M), slot = 0;
    float o[2][DT][4], most[2][2], sum[2][2], factor[2][2], unit = score_unit<ANY>(x);
    SegmentRange rows = {0, 0};
    if (ANY && (x.segments || x.keep))
        rows = segment_range(x, b, first, M, false);
    clear(o);
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            most[m][half] = minus_infinity();
            sum[m][half] = 0;
        }

    int k = next_keys<ANY, N>(x, b, rows, keys_begin(x, first) / N * N, end);
    WideLoader<D, ANY> loader = {
        x, head_at<bf16>(x.k, b, kv_head), head_at<bf16>(x.v, b, kv_head), ring, rows, b, end, k, 0,
        0};
    load_tile<M, D, S::LDQ, 256>(queries, head_at<bf16>(x.q, b, head), x.q.row, first, x.seq, 0,
                                 x.dim);
    for (int i = 0; i < S::SLOTS - 1; i++)
        loader.next();
    while (k < end) {
        float s[2][4][4], before[2][2] = {{most[0][0], most[0][1]}, {most[1][0], most[1][1]}};
        clear(s);
#pragma unroll 1
        for (int piece = 0; piece < S::K_PIECES; piece++) {
            wide_step(loader);
            multiply<2, 4, S::KD, D == 512 ? 1 : 2>(
                s, queries + row * S::LDQ + piece * S::KD, S::LDQ,
                ring + slot * S::SLOT + wn * 32 * S::LDK, S::LDK);
            slot = (slot + 1) % S::SLOTS;
        }
        mask_scores<ANY>(x, b, s, q_first, k + wn * 32);
        row_most(s, most);
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                if (lane % 4 == 0)
                    exchange[wn * M + row + m * 16 + half * 8 + lane / 4] = most[m][half];
        bar_sync(1 + wm, S::WN * WARP);
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int half = 0; half < 2; half++)
#pragma unroll
                for (int i = 0; i < S::WN; i++)
                    most[m][half] =
                        fmaxf(most[m][half], exchange[i * M + row + m * 16 + half * 8 + lane / 4]);
        probabilities(unit, s, before, most, sum, o);
        if (ANY && x.threshold)
            drop(x, b, head, s, q_first, k + wn * 32);
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int half = 0; half < 2; half++)
                    *(uint32_t *)(kept + (row + m * 16 + half * 8 + lane / 4) * S::LDP + wn * 32 +
                                  n * 8 + lane % 4 * 2) =
                        pack_bf16(s[m][n][half * 2], s[m][n][half * 2 + 1]);
#pragma unroll 1
        for (int piece = 0; piece < S::V_PIECES; piece++) {
            wide_step(loader); /* its barrier also lets `kept` be read */
            const bf16 *v = ring + slot * S::SLOT + wn * 128;
#pragma unroll(ANY ? 1 : S::VK / 16)
            for (int i = 0; i < S::VK; i += 16) {
                uint32_t a[2][4], bb[4];
                load_a(a[0], kept + row * S::LDP + piece * S::VK + i, S::LDP);
                load_a(a[1], kept + (row + 16) * S::LDP + piece * S::VK + i, S::LDP);
#pragma unroll
                for (int n = 0; n < DT; n += 2) {
                    load_b_trans(bb, v + i * S::LDV + n * 8, S::LDV);
#pragma unroll
                    for (int m = 0; m < 2; m++) {
                        mma(o[m][n], a[m], bb[0], bb[1]);
                        mma(o[m][n + 1], a[m], bb[2], bb[3]);
                    }
                }
            }
            slot = (slot + 1) % S::SLOTS;
        }
        k = next_keys<ANY, N>(x, b, rows, k + N, end);
    }
    cp_async_wait<0>();
    __syncthreads();
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            sum[m][half] += __shfl_xor_sync(ALL_LANES, sum[m][half], 1);
            sum[m][half] += __shfl_xor_sync(ALL_LANES, sum[m][half], 2);
            if (lane % 4 == 0)
                exchange[wn * M + row + m * 16 + half * 8 + lane / 4] = sum[m][half];
        }
    __syncthreads();
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            sum[m][half] = 0;
#pragma unroll
            for (int i = 0; i < S::WN; i++)
                sum[m][half] += exchange[i * M + row + m * 16 + half * 8 + lane / 4];
        }
    place = forward_place<M>(x, block_again());
    finish_rows<2>(x, unit, most, sum, place, q_first, wn == 0, factor);
    constexpr int LDO = 128 + 8;
    store_rows<2, DT>(ring + warp * 32 * LDO, LDO, o, factor,
                      head_at<bf16>(x.o, place.b, place.head), x.o.row, q_first, x.seq, wn * 128,
                      x.dim);
}

#endif
