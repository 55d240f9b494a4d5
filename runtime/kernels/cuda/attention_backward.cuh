/* attention_backward: gradients in bf16 on the tensor cores for head sizes up to 128. A block owns
 * 128 rows of a result and goes over the tiles that they meet in one order, so sums are the same in
 * every run. Probabilities come again from q, k and lse. */
#ifndef RUNTIME_KERNELS_CUDA_ATTENTION_BACKWARD_CUH
#define RUNTIME_KERNELS_CUDA_ATTENTION_BACKWARD_CUH

#include "runtime/kernels/cuda/attention.cuh"

enum GradRole { GRAD_Q, GRAD_KV, GRAD_K, GRAD_V };

/* What a pair's score and the gradient of its probability become. */
struct GradPair {
    float p, ds;
};

/* raw: q k; dp: grad v. kept: dropout's factor. lse in units of log 2. */
template <bool ANY>
__device__ inline GradPair grad_pair(const CudaAttention &x, float unit, float raw, float dp,
                                     float lse, float delta, float kept)
{
    float score = raw, slope = x.scale;
    if (ANY && x.softcap > 0) {
        float t = tanh_fast(raw * (x.scale / x.softcap));
        score = x.softcap * t;
        slope = x.scale * (1.0f - t * t);
    }
    float p = exp2_fast(score * unit - lse);
    return {p * kept, p * (dp * kept - delta) * slope};
}

/* What a block owns: rows from `first` on of a head. The last queries have the most keys, the first
 * keys the most queries: they go first. */
struct GradPlace {
    int first, b, head;
};

template <int M, bool QUERIES>
__device__ inline GradPlace grad_place(const CudaAttention &x, int block)
{
    int tiles = (x.seq + M - 1) / M, heads = QUERIES ? x.heads : x.kv_heads, all = x.batch * heads,
        tile = block / all;
    return {(QUERIES ? tiles - 1 - tile : tile) * M, block % all / heads, block % heads};
}

/* Where a block is among the tiles of the other side: of `heads` heads one after the other, each
 * [begin, end). */
struct GradCursor {
    int head, at;
};

template <int D, int ROLE> struct GradShape {
    static constexpr int M = CUDA_ATTENTION_ROWS, N = 32, THREADS = M, LD = D + 8;
    static constexpr bool HAS_DP = ROLE != GRAD_V;
    static constexpr int OWN = (HAS_DP ? 2 : 1) * M * LD, STAGE = 2 * N * LD;
    static constexpr int STATISTICS =
        ROLE == GRAD_Q ? 2 * M : 2 * 2 * N; /* lse and delta of queries */
    static constexpr int BYTES = (OWN + 2 * STAGE) * 2 + STATISTICS * 4;
};

template <int D, int ROLE, bool ANY> struct GradRows {
    using S = GradShape<D, ROLE>;
    static constexpr bool QUERIES = ROLE == GRAD_Q;
    const CudaAttention &x;
    bf16 *own, *stages;
    float *statistics; /* [lse, delta][M] of the own rows, or where those are keys [2 stages][lse,
                          delta][N] */
    int b, head_first, heads, begin, end;
    SegmentRange rows;

    __device__ inline bool is_in(GradCursor c) const
    {
        return QUERIES ? c.at < end : c.head < heads;
    }

    __device__ inline GradCursor settle(GradCursor c) const
    {
        while (is_in(c)) {
            if (!QUERIES && c.at >= end) {
                c = {c.head + 1, begin};
                continue;
            }
            if (!ANY || !(x.segments || x.keep) ||
                ranges_meet(rows, segment_range(x, b, c.at, S::N, QUERIES)))
                break;
            c.at += S::N;
        }
        return c;
    }

    __device__ inline void load(GradCursor c, int stage)
    {
        bf16 *to = stages + stage * S::STAGE;
        int head = head_first + c.head;
        if (QUERIES) {
            load_tile<S::N, D, S::LD, S::THREADS>(to, head_at<bf16>(x.k, b, head), x.k.row, c.at,
                                                  x.seq, 0, x.dim);
            load_tile<S::N, D, S::LD, S::THREADS>(to + S::N * S::LD, head_at<bf16>(x.v, b, head),
                                                  x.v.row, c.at, x.seq, 0, x.dim);
            return;
        }
        load_tile<S::N, D, S::LD, S::THREADS>(to, head_at<bf16>(x.q, b, head), x.q.row, c.at, x.seq,
                                              0, x.dim);
        load_tile<S::N, D, S::LD, S::THREADS>(to + S::N * S::LD, head_at<bf16>(x.grad, b, head),
                                              x.grad.row, c.at, x.seq, 0, x.dim);
        int i = (int)threadIdx.x;
        if (i < 2 * S::N) {
            const float *from =
                (i < S::N ? x.lse : x.delta) + ((int64_t)b * x.heads + head) * x.seq;
            bool inside = c.at + i % S::N < x.seq;
            cp_async4(statistics + stage * 2 * S::N + i, inside ? from + c.at + i % S::N : from,
                      inside);
        }
    }
};

template <int D, int ROLE, bool ANY>
__device__ inline void attention_grad_rows(const CudaAttention &x)
{
    using S = GradShape<D, ROLE>;
    constexpr bool QUERIES = ROLE == GRAD_Q;
    constexpr int M = S::M, N = S::N, LD = S::LD, NT = N / 8, DT = D / 8,
                  RESULTS = ROLE == GRAD_KV ? 2 : 1;
    constexpr int UNROLL = RESULTS * D == 128 && S::HAS_DP ? 1 : 2;
    DYNAMIC_SHARED(shared);
    GradPlace place = grad_place<M, QUERIES>(x, (int)blockIdx.x);
    int first = place.first, b = place.b, own_head = place.head;
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP, row = lane / 4,
        pair = lane % 4 * 2;
    int own_first = first + warp * 32;
    GradRows<D, ROLE, ANY> r = {x, (bf16 *)shared, (bf16 *)shared + S::OWN, nullptr, b, 0, 0, 0,
                                0, {0, 0}};
    r.statistics = (float *)(r.stages + 2 * S::STAGE);
    r.head_first = QUERIES ? own_head / x.group : own_head * x.group;
    r.heads = QUERIES ? 1 : x.group;
    r.begin = (QUERIES ? keys_begin(x, first) : queries_begin(x, first)) / N * N;
    r.end = QUERIES ? keys_end(x, first + M) : queries_end(x, min(first + M, x.seq));
    if (ANY && (x.segments || x.keep))
        r.rows = segment_range(x, b, first, M, !QUERIES);
    bool listed = ANY && (x.segments || x.keep);

    float result[RESULTS][2][DT][4], unit = score_unit<ANY>(x);
    int own_segment[2][2];
    bool own_kept[2][2];
#pragma unroll
    for (int i = 0; i < RESULTS; i++)
        clear(result[i]);
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int at = own_first + m * 16 + half * 8 + row;
            own_segment[m][half] = listed ? segment_of(x, b, at) : 0;
            own_kept[m][half] = !(listed && !QUERIES) || is_kept(x, b, at);
        }

    if (QUERIES) {
        int i = (int)threadIdx.x;
        int64_t at = ((int64_t)b * x.heads + own_head) * x.seq + first + i;
        r.statistics[i] = first + i < x.seq ? x.lse[at] * LOG2_E : 0;
        r.statistics[M + i] = first + i < x.seq ? x.delta[at] : 0;
    }
    load_tile<M, D, LD, S::THREADS>(r.own, head_at<bf16>(QUERIES ? x.q : x.k, b, own_head),
                                    (QUERIES ? x.q : x.k).row, first, x.seq, 0, x.dim);
    if (S::HAS_DP)
        load_tile<M, D, LD, S::THREADS>(r.own + M * LD,
                                        head_at<bf16>(QUERIES ? x.grad : x.v, b, own_head),
                                        (QUERIES ? x.grad : x.v).row, first, x.seq, 0, x.dim);
    GradCursor c = r.settle({0, r.begin});
    int stage = 0;
    if (r.is_in(c))
        r.load(c, 0);
    cp_async_commit();
    while (r.is_in(c)) {
        GradCursor after = r.settle({c.head, c.at + N});
        cp_async_wait<0>();
        __syncthreads();
        if (r.is_in(after))
            r.load(after, stage ^ 1);
        cp_async_commit();
        int q_first = QUERIES ? own_first : c.at, q_last = QUERIES ? own_first + 31 : c.at + N - 1;
        int k_first = QUERIES ? c.at : own_first, k_last = QUERIES ? c.at + N - 1 : own_first + 31;
        if (!sees_none(x, q_first, q_last, k_first, k_last)) {
            const bf16 *other = r.stages + stage * S::STAGE;
            const float *statistics =
                QUERIES ? r.statistics + warp * 32 + row : r.statistics + stage * 2 * N;
            bool all_seen = !listed && sees_all(x, q_first, q_last, k_first, k_last);
            float s[2][NT][4], dp[2][NT][4];
            clear(s);
            multiply<2, NT, D, UNROLL>(s, r.own + warp * 32 * LD, LD, other, LD);
            clear(dp);
            if (S::HAS_DP)
                multiply<2, NT, D, UNROLL>(dp, r.own + (M + warp * 32) * LD, LD, other + N * LD,
                                           LD);
            int head = QUERIES ? own_head : r.head_first + c.head;
            RtStream stream = {0, 0};
            if (ANY && x.threshold)
                stream = dropout_stream(x, b, head);
            uint32_t kept_p[2][NT][2], kept_ds[2][NT][2];
#pragma unroll
            for (int n = 0; n < NT; n++) {
                float lse[2], delta[2];
                int segment[2];
                bool is_seen[2];
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    int i = n * 8 + pair + e;
                    lse[e] = QUERIES ? 0 : statistics[i] * LOG2_E;
                    delta[e] = QUERIES ? 0 : statistics[N + i];
                    segment[e] = listed ? segment_of(x, b, c.at + i) : 0;
                    is_seen[e] = !(listed && QUERIES) || is_kept(x, b, c.at + i);
                }
#pragma unroll
                for (int m = 0; m < 2; m++)
#pragma unroll
                    for (int half = 0; half < 2; half++) {
                        GradPair g[2];
                        int own = m * 16 + half * 8;
#pragma unroll
                        for (int e = 0; e < 2; e++) {
                            int own_at = own_first + m * 16 + half * 8 + row,
                                at = c.at + n * 8 + pair + e;
                            int q = QUERIES ? own_at : at, k = QUERIES ? at : own_at,
                                i = half * 2 + e;
                            float kept = 1;
                            if (ANY && x.threshold)
                                kept = dropout_factor(x, rt_random_absorb(stream, (uint32_t)q), k);
                            g[e] = grad_pair<ANY>(x, unit, s[m][n][i], dp[m][n][i],
                                                  QUERIES ? statistics[own] : lse[e],
                                                  QUERIES ? statistics[M + own] : delta[e], kept);
                            bool sees = all_seen || (k > row_low(x, q) && k <= row_high(x, q));
                            if (listed)
                                sees = sees && segment[e] == own_segment[m][half] && is_seen[e] &&
                                       own_kept[m][half];
                            if (!sees)
                                g[e] = {0, 0};
                        }
                        kept_p[m][n][half] = pack_bf16(g[0].p, g[1].p);
                        kept_ds[m][n][half] = pack_bf16(g[0].ds, g[1].ds);
                    }
            }
            if (ROLE == GRAD_V)
                multiply_kept(result[0], kept_p, other + N * LD, LD);
            else
                multiply_kept(result[0], kept_ds, other, LD);
            if (ROLE == GRAD_KV)
                multiply_kept(result[RESULTS - 1], kept_p, other + N * LD, LD);
        }
        c = after;
        stage ^= 1;
    }
    cp_async_wait<0>();
    __syncthreads();
    const float one[2][2] = {{1, 1}, {1, 1}};
    const CudaHeads &to = ROLE == GRAD_Q ? x.dq : ROLE == GRAD_V ? x.dv : x.dk;
    bf16 *staged = r.own + warp * 32 * LD;
    place = grad_place<M, QUERIES>(x, block_again());
    if (to.at)
        store_rows<2, DT>(staged, LD, result[0], one, head_at<bf16>(to, place.b, place.head),
                          to.row, own_first, x.seq, 0, x.dim);
    if (ROLE == GRAD_KV && x.dv.at)
        store_rows<2, DT>(staged, LD, result[RESULTS - 1], one,
                          head_at<bf16>(x.dv, place.b, place.head), x.dv.row, own_first, x.seq, 0,
                          x.dim);
}

/* delta = rowsum(grad * o), a warp per row. */
template <typename T> __device__ inline void attention_delta(const CudaAttention &x)
{
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    int64_t index = (int64_t)blockIdx.x * (blockDim.x / WARP) + warp; /* [batch, seq, heads] */
    if (index >= (int64_t)x.batch * x.seq * x.heads)
        return;
    int head = (int)(index % x.heads), row = (int)(index / x.heads % x.seq),
        b = (int)(index / x.heads / x.seq);
    const T *o = head_at<T>(x.o, b, head) + row * x.o.row,
            *grad = head_at<T>(x.grad, b, head) + row * x.grad.row;
    float sum = 0;
    bool by_eight = (((uintptr_t)o | (uintptr_t)grad) % 16 == 0) && x.dim % 8 == 0;
    if (by_eight) {
        for (int d = lane * 8; d < x.dim; d += WARP * 8) {
            float a[8], g[8];
            load8(a, o + d);
            load8(g, grad + d);
#pragma unroll
            for (int i = 0; i < 8; i++)
                sum += a[i] * g[i];
        }
    } else {
        for (int d = lane; d < x.dim; d += WARP)
            sum += to_f32(o[d]) * to_f32(grad[d]);
    }
    sum = warp_sum(sum);
    if (lane == 0)
        x.delta[((int64_t)b * x.heads + head) * x.seq + row] = sum;
}

#endif
