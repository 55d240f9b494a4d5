#include "runtime/kernels/cuda/device.cuh"

/* Head and loss: rows of logits, a block each. Logits come from a product, a chunk of the
 * vocabulary at a time. */

constexpr int LOSS_THREADS = 256, LOSS_WARPS = LOSS_THREADS / WARP, SUM_THREADS = 1024;

struct Exponents { /* sum of e^(x - most) */
    float most, sum;
};

__device__ static inline Exponents join(Exponents a, Exponents b)
{
    float most = fmaxf(a.most, b.most), shift = most == minus_infinity() ? 0 : most;
    return {most, a.sum * expf(a.most - shift) + b.sum * expf(b.most - shift)};
}

__device__ static inline float soft(float x, float cap)
{
    return cap > 0 ? cap * tanhf(x / cap) : x;
}

/* Logits that are rounded to bf16 carry no more than eight bits: the hardware's exponential. */
__device__ static inline float exponential(float x, int type)
{
    return type == CUDA_BF16 ? exp2_fast(x * 1.4426950408889634f) : expf(x);
}

/* Of a token's loss by one of its logits, before the soft cap; hot: the target's. */
__device__ static inline float logit_gradient(float logit, float cap, float lse, bool hot, int type)
{
    float slope = 1;
    if (cap > 0) {
        float tanh = tanhf(logit / cap);
        logit = cap * tanh;
        slope = 1 - tanh * tanh;
    }
    return (exponential(logit - lse, type) - (hot ? 1.0f : 0.0f)) * slope;
}

__device__ static inline Exponents thread_exponents(const CudaLmLoss &x, const float *row)
{
    Exponents e = {minus_infinity(), 0};
    for (int64_t i = threadIdx.x * 4; i < x.count; i += LOSS_THREADS * 4) {
        float4 raw = *(const float4 *)(row + i);
        float v[4] = {raw.x, raw.y, raw.z, raw.w}, most = e.most, sum = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            v[j] = i + j < x.count ? soft(v[j], x.softcap) : minus_infinity();
            most = fmaxf(most, v[j]);
        }
        float shift = most == minus_infinity() ? 0 : most;
#pragma unroll
        for (int j = 0; j < 4; j++)
            sum += expf(v[j] - shift);
        e = {most, e.sum * expf(e.most - shift) + sum};
    }
    return e;
}

/* The block's, in every thread. */
template <int WARPS> __device__ static inline Exponents block_exponents(Exponents e)
{
    __shared__ Exponents of_warp[WARPS];
    for (int by = 16; by; by /= 2) {
        Exponents other;
        other.most = __shfl_xor_sync(ALL_LANES, e.most, by);
        other.sum = __shfl_xor_sync(ALL_LANES, e.sum, by);
        e = threadIdx.x & by ? join(other, e) : join(e, other);
    }
    if (threadIdx.x % WARP == 0)
        of_warp[threadIdx.x / WARP] = e;
    __syncthreads();
    e = of_warp[0];
    for (int i = 1; i < WARPS; i++)
        e = join(e, of_warp[i]);
    return e;
}

KERNEL_ENTRY(lm_loss_rows, 256, 4, CudaLmLoss)
{
    int64_t t = blockIdx.x;
    const float *row = x.logits + t * x.ld;
    Exponents e = block_exponents<LOSS_WARPS>(thread_exponents(x, row));
    if (threadIdx.x)
        return;
    if (!x.first)
        e = join({x.most[t], x.sum[t]}, e);
    int64_t target = x.targets[t], column = target - x.word;
    float logit = column >= 0 && column < x.count ? soft(row[column], x.softcap)
                  : x.first                       ? 0
                                                  : x.logit[t];
    if (!x.last) {
        x.most[t] = e.most;
        x.sum[t] = e.sum;
        x.logit[t] = logit;
        return;
    }
    float lse = e.most + logf(e.sum); /* of no words at all: -inf */
    bool valid = target >= 0 && target < x.vocab;
    if (target != x.ignore && !valid)
        raise_fault(x.fault, CUDA_FAULT_TARGET, t, target, x.vocab);
    if (x.part.at) {
        store_f32(x.part.at, x.part.type, view_at(x.part, t), lse);
        store_f32(x.part.at, x.part.type, view_at(x.part, x.tokens + t), logit);
        return;
    }
    x.token_loss[t] = target != x.ignore && valid ? lse - logit : 0;
    if (x.lse.at)
        store_f32(x.lse.at, x.lse.type, view_at(x.lse, t), lse);
}

/* The tokens' losses in one order: each thread every 1024th, then by halves. */
__device__ static inline void sum_losses(double *sums, double sum, const CudaView &loss)
{
    sums[threadIdx.x] = sum;
    for (int half = SUM_THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        store_scalar(loss, sums[0]);
}

KERNEL_ENTRY(lm_loss_sum, 1024, 1, CudaLmLoss)
{
    __shared__ double sums[SUM_THREADS];
    double sum = 0;
    for (int64_t t = threadIdx.x; t < x.tokens; t += SUM_THREADS)
        sum += (double)x.token_loss[t];
    sum_losses(sums, sum, x.loss);
}

/* The ranks' parts together, in their order. */
KERNEL_ENTRY(lm_loss_join, 1024, 1, CudaLossJoin)
{
    __shared__ double sums[SUM_THREADS];
    double sum = 0;
    for (int64_t t = threadIdx.x; t < x.tokens; t += SUM_THREADS) {
        float top = x.parts[t], total = 0, logit = 0;
        for (int64_t r = 1; r < x.ranks; r++)
            top = fmaxf(top, x.parts[2 * r * x.tokens + t]);
        for (int64_t r = 0; r < x.ranks; r++) {
            total += expf(x.parts[2 * r * x.tokens + t] - top);
            logit += x.parts[(2 * r + 1) * x.tokens + t];
        }
        float lse = top + logf(total);
        sum += x.targets[t] != x.ignore ? (double)(lse - logit) : 0;
        if (x.lse.at)
            store_f32(x.lse.at, x.lse.type, view_at(x.lse, t), lse);
    }
    if (x.loss.at)
        sum_losses(sums, sum, x.loss);
}

/* Eight logits are read by each thread, then all of them written: what is written in bf16 lies
 * where all has been read. */
KERNEL_ENTRY(lm_loss_grad_rows, 256, 4, CudaLmLossGrad)
{
    int64_t t = blockIdx.x, target = x.targets[t], hot = target - x.word;
    float *row = x.logits + t * x.ld;
    bool ignored = target == x.ignore;
    float lse = load_f32(x.lse.at, x.lse.type, view_at(x.lse, t)),
          seed = (float)load_scalar(x.seed);
    for (int64_t first = 0; first < x.count; first += LOSS_THREADS * 8) {
        int64_t i = first + threadIdx.x * 8;
        float v[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        if (i < x.count && !ignored) {
            load8(v, row + i);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                float g = logit_gradient(v[j], x.softcap, lse, i + j == hot, CUDA_F32);
                v[j] = i + j < x.words ? g * seed : 0;
            }
        }
        __syncthreads();
        if (i >= x.count)
            continue;
        if (x.type == CUDA_BF16)
            store8((bf16 *)row + i, v);
        else
            store8(row + i, v);
    }
}

/* -- loss and gradient over the same logits -- */

constexpr int BOTH_THREADS = 512, BOTH_WARPS = BOTH_THREADS / WARP;

__device__ static inline Exponents row_exponents(const CudaLmLossWithGrad &x, int64_t row)
{
    Exponents e = {minus_infinity(), 0};
    for (int64_t i = threadIdx.x * 8; i < x.vocab; i += BOTH_THREADS * 8) {
        float v[8], most = e.most, sum = 0;
        load8(v, x.logits, x.type, row + i);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            v[j] = i + j < x.vocab ? soft(v[j], x.softcap) : minus_infinity();
            most = fmaxf(most, v[j]);
        }
        float shift = most == minus_infinity() ? 0 : most;
#pragma unroll
        for (int j = 0; j < 8; j++)
            sum += exponential(v[j] - shift, x.type);
        e = {most, e.sum * expf(e.most - shift) + sum};
    }
    return e;
}

KERNEL_ENTRY(lm_loss_with_grad_rows, 512, 2, CudaLmLossWithGrad)
{
    int64_t t = x.token + blockIdx.x, row = (int64_t)blockIdx.x * x.ld, target = x.targets[t];
    bool ignored = target == x.ignore, valid = target >= 0 && target < x.vocab;
    Exponents e = {0, 1};
    float logit = 0, seed = (float)load_scalar(x.seed);
    if (!ignored) {
        if (valid)
            logit = soft(load_f32(x.logits, x.type, row + target), x.softcap);
        e = block_exponents<BOTH_WARPS>(row_exponents(x, row));
    }
    float lse = e.most + logf(e.sum);
    if (threadIdx.x == 0) {
        if (!ignored && !valid)
            raise_fault(x.fault, CUDA_FAULT_TARGET, t, target, x.vocab);
        x.token_loss[t] = !ignored && valid ? lse - logit : 0;
    }
    for (int64_t i = threadIdx.x * 8; i < x.vocab; i += BOTH_THREADS * 8) {
        float v[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        if (!ignored) {
            load8(v, x.logits, x.type, row + i);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                float g = logit_gradient(v[j], x.softcap, lse, i + j == target, x.type);
                v[j] = i + j < x.vocab ? g * seed : 0;
            }
        }
        store8(x.logits, x.type, row + i, v);
    }
}
