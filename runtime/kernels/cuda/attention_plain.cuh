/* attention_plain: attention and its gradients in f32 without tensor cores, for every head size up
 * to 512 and every mask: what f32 models run, and what the fast kernels are held against. A block
 * owns 32 rows; eight threads share a row. */
#ifndef RUNTIME_KERNELS_CUDA_ATTENTION_PLAIN_CUH
#define RUNTIME_KERNELS_CUDA_ATTENTION_PLAIN_CUH

#include "runtime/kernels/cuda/attention.cuh"

constexpr int PLAIN_THREADS = 256, PLAIN_M = CUDA_PLAIN_ROWS;

template <int D, int N> struct PlainShape {
    static constexpr int LD = D + 4, LDS = N + 1;
    static constexpr int FORWARD_BYTES = (PLAIN_M * LD + 2 * N * LD + PLAIN_M * LDS) * 4;
    static constexpr int BACKWARD_BYTES =
        (2 * PLAIN_M * LD + 2 * N * LD + 2 * PLAIN_M * LDS + 2 * N) * 4;
};

template <int D, int LD, typename T>
__device__ inline void plain_load(float *to, int rows, const T *from, int64_t row_stride, int first,
                                  int seq, int dim)
{
    for (int i = (int)threadIdx.x; i < rows * D; i += PLAIN_THREADS) {
        int r = i / D, d = i % D;
        to[r * LD + d] =
            first + r < seq && d < dim ? to_f32(from[(first + r) * row_stride + d]) : 0.0f;
    }
}

/* Of the thread's row with rows `part`, `part` + 8, ... of the other side. */
template <int D, int LD, int EACH>
__device__ inline void plain_scores(float (&s)[EACH], const float *row, const float *others,
                                    int part)
{
#pragma unroll
    for (int i = 0; i < EACH; i++)
        s[i] = 0;
    for (int d = 0; d < D; d += 4) {
        float4 a = *(const float4 *)(row + d);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            float4 o = *(const float4 *)(others + (part + 8 * i) * LD + d);
            s[i] += a.x * o.x + a.y * o.y + a.z * o.z + a.w * o.w;
        }
    }
}

/* The thread's columns are part * 4 + 32 i + 0..3. */
template <int D, int LD, int N>
__device__ inline void plain_add(float (&sum)[D / 8], const float *weights, const float *others,
                                 int part)
{
    for (int j = 0; j < N; j++) {
        float w = weights[j];
#pragma unroll
        for (int i = 0; i < D / 32; i++) {
            float4 o = *(const float4 *)(others + j * LD + part * 4 + 32 * i);
            sum[4 * i] += w * o.x;
            sum[4 * i + 1] += w * o.y;
            sum[4 * i + 2] += w * o.z;
            sum[4 * i + 3] += w * o.w;
        }
    }
}

template <int D, typename T>
__device__ inline void plain_store(const CudaHeads &heads, int b, int head, int row, int seq,
                                   int dim, int part, const float (&sum)[D / 8], float factor)
{
    if (!heads.at || row >= seq)
        return;
    T *to = head_at<T>(heads, b, head) + row * heads.row;
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
        int d = part * 4 + i / 4 * 32 + i % 4;
        if (d < dim)
            from_f32(to + d, sum[i] * factor);
    }
}

__device__ inline bool plain_sees(const CudaAttention &x, int b, int q, int k)
{
    return k > row_low(x, q) && k <= row_high(x, q) && segment_of(x, b, q) == segment_of(x, b, k) &&
           is_kept(x, b, k);
}

__device__ inline float plain_kept(const CudaAttention &x, const RtStream &stream, int q, int k)
{
    return x.threshold ? dropout_factor(x, rt_random_absorb(stream, (uint32_t)q), k) : 1.0f;
}

template <typename T, int D, int N> __device__ inline void attention_plain(const CudaAttention &x)
{
    using S = PlainShape<D, N>;
    constexpr int LD = S::LD, LDS = S::LDS, EACH = N / 8;
    DYNAMIC_SHARED(shared);
    float *queries = (float *)shared, *keys = queries + PLAIN_M * LD, *values = keys + N * LD,
          *kept = values + N * LD;
    int heads = x.batch * x.heads, tiles = (x.seq + PLAIN_M - 1) / PLAIN_M;
    int first = (tiles - 1 - (int)blockIdx.x / heads) * PLAIN_M;
    int b = (int)blockIdx.x % heads / x.heads, head = (int)blockIdx.x % x.heads,
        kv_head = head / x.group;
    int local = (int)threadIdx.x / 8, part = (int)threadIdx.x % 8, q = first + local,
        end = keys_end(x, first + PLAIN_M);
    float o[D / 8], s[EACH], most = minus_infinity(), sum = 0;
    RtStream stream = {0, 0};
    if (x.threshold)
        stream = dropout_stream(x, b, head);
#pragma unroll
    for (int i = 0; i < D / 8; i++)
        o[i] = 0;
    plain_load<D, LD>(queries, PLAIN_M, head_at<T>(x.q, b, head), x.q.row, first, x.seq, x.dim);
    for (int k = keys_begin(x, first) / N * N; k < end; k += N) {
        __syncthreads();
        plain_load<D, LD>(keys, N, head_at<T>(x.k, b, kv_head), x.k.row, k, x.seq, x.dim);
        plain_load<D, LD>(values, N, head_at<T>(x.v, b, kv_head), x.v.row, k, x.seq, x.dim);
        __syncthreads();
        plain_scores<D, LD, EACH>(s, queries + local * LD, keys, part);
        float top = most;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            float score = s[i] * x.scale;
            if (x.softcap > 0)
                score = x.softcap * tanhf(score / x.softcap);
            s[i] = plain_sees(x, b, q, k + part + 8 * i) ? score : minus_infinity();
            top = fmaxf(top, s[i]);
        }
#pragma unroll
        for (int by = 4; by; by /= 2)
            top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, by));
        float shift = top == minus_infinity() ? 0 : top, rescale = expf(most - shift), total = 0;
        most = top;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            float p = expf(s[i] - shift);
            total += p;
            kept[local * LDS + part + 8 * i] = p * plain_kept(x, stream, q, k + part + 8 * i);
        }
        sum = sum * rescale + total;
#pragma unroll
        for (int i = 0; i < D / 8; i++)
            o[i] *= rescale;
        __syncwarp();
        plain_add<D, LD, N>(o, kept + local * LDS, values, part);
        __syncwarp();
    }
#pragma unroll
    for (int by = 4; by; by /= 2)
        sum += __shfl_xor_sync(ALL_LANES, sum, by);
    plain_store<D, T>(x.o, b, head, q, x.seq, x.dim, part, o, sum == 0 ? 0 : 1 / sum);
    if (x.lse && part == 0 && q < x.seq)
        x.lse[((int64_t)b * x.heads + head) * x.seq + q] = sum == 0 ? infinity() : most + logf(sum);
}

/* p and ds of a pair. */
__device__ inline void plain_pair(const CudaAttention &x, float raw, float dp, float lse,
                                  float delta, float kept, bool sees, float *out_p, float *out_ds)
{
    float score = raw * x.scale, slope = x.scale;
    if (x.softcap > 0) {
        float t = tanhf(score / x.softcap);
        score = x.softcap * t;
        slope = x.scale * (1 - t * t);
    }
    float p = expf(score - lse);
    *out_p = sees ? p * kept : 0;
    *out_ds = sees ? p * (dp * kept - delta) * slope : 0;
}

/* QUERIES: dq of a tile of queries; else dk and dv of a tile of keys, over the group's heads and
 * their queries in order. */
template <typename T, int D, int N, bool QUERIES>
__device__ inline void attention_grad_plain(const CudaAttention &x)
{
    using S = PlainShape<D, N>;
    constexpr int LD = S::LD, LDS = S::LDS, EACH = N / 8;
    DYNAMIC_SHARED(shared);
    float *own1 = (float *)shared, *own2 = own1 + PLAIN_M * LD, *other1 = own2 + PLAIN_M * LD,
          *other2 = other1 + N * LD;
    float *probability = other2 + N * LD, *gradient = probability + PLAIN_M * LDS;
    float *other_lse = gradient + PLAIN_M * LDS, *other_delta = other_lse + N;
    int heads = QUERIES ? x.heads : x.kv_heads, all = x.batch * heads,
        tiles = (x.seq + PLAIN_M - 1) / PLAIN_M;
    int tile = (int)blockIdx.x / all, b = (int)blockIdx.x % all / heads,
        own_head = (int)blockIdx.x % heads;
    int first = (QUERIES ? tiles - 1 - tile : tile) * PLAIN_M;
    int local = (int)threadIdx.x / 8, part = (int)threadIdx.x % 8, row = first + local;
    int begin = (QUERIES ? keys_begin(x, first) : queries_begin(x, first)) / N * N;
    int end = QUERIES ? keys_end(x, first + PLAIN_M) : queries_end(x, min(first + PLAIN_M, x.seq));
    int head_first = QUERIES ? own_head / x.group : own_head * x.group,
        head_end = head_first + (QUERIES ? 1 : x.group);
    float sum1[D / 8], sum2[QUERIES ? 8 : D / 8], s[EACH], dp[EACH];
    float lse = 0, delta = 0;
    if (QUERIES && row < x.seq) {
        lse = x.lse[((int64_t)b * x.heads + own_head) * x.seq + row];
        delta = x.delta[((int64_t)b * x.heads + own_head) * x.seq + row];
    }
#pragma unroll
    for (int i = 0; i < D / 8; i++)
        sum1[i] = 0;
#pragma unroll
    for (int i = 0; i < (QUERIES ? 8 : D / 8); i++)
        sum2[i] = 0;
    const CudaHeads &h1 = QUERIES ? x.q : x.k, &h2 = QUERIES ? x.grad : x.v;
    const CudaHeads &o1 = QUERIES ? x.k : x.q, &o2 = QUERIES ? x.v : x.grad;
    plain_load<D, LD>(own1, PLAIN_M, head_at<T>(h1, b, own_head), h1.row, first, x.seq, x.dim);
    plain_load<D, LD>(own2, PLAIN_M, head_at<T>(h2, b, own_head), h2.row, first, x.seq, x.dim);
    for (int head = head_first; head < head_end; head++) {
        RtStream stream = {0, 0};
        if (x.threshold)
            stream = dropout_stream(x, b, QUERIES ? own_head : head);
        for (int at = begin; at < end; at += N) {
            __syncthreads();
            plain_load<D, LD>(other1, N, head_at<T>(o1, b, head), o1.row, at, x.seq, x.dim);
            plain_load<D, LD>(other2, N, head_at<T>(o2, b, head), o2.row, at, x.seq, x.dim);
            if (!QUERIES && threadIdx.x < N) {
                int q = at + (int)threadIdx.x;
                int64_t statistic = ((int64_t)b * x.heads + head) * x.seq + q;
                other_lse[threadIdx.x] = q < x.seq ? x.lse[statistic] : 0;
                other_delta[threadIdx.x] = q < x.seq ? x.delta[statistic] : 0;
            }
            __syncthreads();
            plain_scores<D, LD, EACH>(s, own1 + local * LD, other1, part);
            plain_scores<D, LD, EACH>(dp, own2 + local * LD, other2, part);
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                int j = part + 8 * i, q = QUERIES ? row : at + j, k = QUERIES ? at + j : row;
                float l = QUERIES ? lse : other_lse[j], d = QUERIES ? delta : other_delta[j];
                plain_pair(x, s[i], dp[i], l, d, plain_kept(x, stream, q, k),
                           plain_sees(x, b, q, k), &probability[local * LDS + j],
                           &gradient[local * LDS + j]);
            }
            __syncwarp();
            plain_add<D, LD, N>(sum1, gradient + local * LDS, other1, part);
            if constexpr (!QUERIES)
                plain_add<D, LD, N>(sum2, probability + local * LDS, other2, part);
            __syncwarp();
        }
    }
    plain_store<D, T>(QUERIES ? x.dq : x.dk, b, own_head, row, x.seq, x.dim, part, sum1, 1);
    if constexpr (!QUERIES)
        plain_store<D, T>(x.dv, b, own_head, row, x.seq, x.dim, part, sum2, 1);
}

#endif
