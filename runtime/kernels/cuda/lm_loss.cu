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

/* Of a token's loss by one of its logits, before the soft cap; hot: the target's. */
__device__ static inline float logit_gradient(float logit, float cap, float lse, bool hot)
{
    float slope = 1;
    if (cap > 0) {
        float tanh = tanhf(logit / cap);
        logit = cap * tanh;
        slope = 1 - tanh * tanh;
    }
    return (expf(logit - lse) - (hot ? 1.0f : 0.0f)) * slope;
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
__device__ static inline Exponents block_exponents(Exponents e)
{
    __shared__ Exponents of_warp[LOSS_WARPS];
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
    for (int i = 1; i < LOSS_WARPS; i++)
        e = join(e, of_warp[i]);
    return e;
}

KERNEL_ENTRY(lm_loss_rows, 256, 4, CudaLmLoss)
{
    int64_t t = blockIdx.x;
    const float *row = x.logits + t * x.ld;
    Exponents e = block_exponents(thread_exponents(x, row));
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
                float g = logit_gradient(v[j], x.softcap, lse, i + j == hot);
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

/* Blocks take rows in turn; a thread has every 512th eight of a row, and all sums are in this
 * order. The first eights (bf16) wait between their two uses in shared memory, each at a place of
 * the thread's own: when it is free, the next row's goes on its way there, and AHEAD eights later
 * joins the next row's sums. Those that have no place are read last and then, for the
 * gradients, once more first: from the L2. */
constexpr int BOTH_THREADS = CUDA_HEAD_THREADS, BOTH_WARPS = BOTH_THREADS / WARP;
constexpr int BOTH_STEP = BOTH_THREADS * 8, BOTH_AHEAD = 6, BOTH_GROUP = 4;

__device__ static inline void leave8(bf16 *at, const float (&x)[8])
{
    store16(at, pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]), pack_bf16(x[4], x[5]),
            pack_bf16(x[6], x[7]));
}

__device__ static inline void leave8(float *at, const float (&x)[8])
{
    store8(at, x);
}

template <class T> struct Raw {
    uint4 part[sizeof(T) / 2];
};

__device__ static inline void load8(float (&to)[8], const Raw<bf16> &raw)
{
    load8(to, raw.part[0]);
}

__device__ static inline void load8(float (&to)[8], const Raw<float> &raw)
{
    const uint4 a = raw.part[0], b = raw.part[1];
    const uint32_t bits[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < 8; i++)
        to[i] = __uint_as_float(bits[i]);
}

template <class T, bool CAP> struct HeadRows {
    const CudaLmLossWithGrad &x;
    uint4 *place;     /* of the thread's first eight */
    int eights, kept; /* of a row, the thread's; those with a place, all of eight words */
    float doubling, seed;

    __device__ HeadRows(const CudaLmLossWithGrad &args, uint4 *places)
        : x(args), place(places + threadIdx.x)
    {
        int words = (int)x.vocab - (int)threadIdx.x * 8;
        eights = max(words + BOTH_STEP - 1, 0) / BOTH_STEP;
        kept = min(x.places, max(words + BOTH_STEP - 8, 0) / BOTH_STEP);
        doubling = CAP ? 2 * LOG2_E / x.softcap : 0;
        seed = (float)load_scalar(x.seed);
    }

    __device__ T *row(int64_t r) const
    {
        return (T *)x.logits + r * x.ld + threadIdx.x * 8;
    }

    __device__ bool ignored(int64_t r) const
    {
        return x.targets[x.token + r] == x.ignore;
    }

    /* -- an element; logits in bf16 carry no more than eight bits, so the hardware's exponential
     * and a quotient of about 2^-22 do -- */

    __device__ float exponential(float logit) const
    {
        return sizeof(T) == sizeof(bf16) ? exp2_fast(logit * LOG2_E) : expf(logit);
    }

    __device__ float tanh_of(float logit) const
    {
        return sizeof(T) == sizeof(bf16) ? 1 - 2 * reciprocal_fast(1 + exp2_fast(logit * doubling))
                                         : tanhf(logit / x.softcap);
    }

    __device__ float soft(float logit) const
    {
        return CAP ? x.softcap * tanh_of(logit) : logit;
    }

    /* Of the token's loss; hot: 1 for the target's logit. */
    __device__ float gradient(float logit, float lse, float hot) const
    {
        float tanh = CAP ? tanh_of(logit) : 0, capped = CAP ? x.softcap * tanh : logit;
        return (exponential(capped - lse) - hot) * (1 - tanh * tanh) * seed;
    }

    /* -- eight of them -- */

    __device__ void add(Exponents &e, float (&v)[8], int words = 8) const
    {
        float factor = 1, sum = 0;
#pragma unroll
        for (int j = 0; j < 8; j++)
            v[j] = soft(v[j]);
        if (words < 8)
#pragma unroll
            for (int j = 0; j < 8; j++)
                v[j] = j < words ? v[j] : minus_infinity();
        float most = fmaxf(fmaxf(fmaxf(v[0], v[1]), fmaxf(v[2], v[3])),
                           fmaxf(fmaxf(v[4], v[5]), fmaxf(v[6], v[7])));
        most = fmaxf(most, e.most);
        float shift = most == minus_infinity() ? 0 : most;
        if (most > e.most)
            factor = expf(e.most - shift);
#pragma unroll
        for (int j = 0; j < 8; j++)
            sum += exponential(v[j] - shift);
        e = {most, e.sum * factor + sum};
    }

    __device__ void leave(T *at, float (&v)[8], float lse) const
    {
#pragma unroll
        for (int j = 0; j < 8; j++)
            v[j] = gradient(v[j], lse, 0);
        leave8(at, v);
    }

    __device__ void leave_zeros(T *row) const
    {
        const float v[8] = {0, 0, 0, 0, 0, 0, 0, 0};
#pragma unroll 1
        for (int k = 0; k < eights; k++)
            leave8(row + k * BOTH_STEP, v);
    }

    /* -- the kept ones -- */

    __device__ void fetch(uint4 *at, const T *from) const
    {
        cp_async16(at, from, true);
        cp_async_commit();
    }

    __device__ void add_kept(Exponents &e, const uint4 *at) const
    {
        float v[8];
        load8(v, *at);
        add(e, v);
    }

    __device__ void leave_kept(T *to, const uint4 *at, float lse) const
    {
        float v[8];
        load8(v, *at);
        leave(to, v, lse);
    }

    /* -- the others: some are loaded before the first is used; the row's last may have less than
     * eight words -- */

    template <class Use> __device__ void each_other(const T *row, Use use) const
    {
#pragma unroll 1
        for (int first = kept; first < eights; first += BOTH_GROUP) {
            Raw<T> raw[BOTH_GROUP];
#pragma unroll
            for (int g = 0; g < BOTH_GROUP; g++)
                if (first + g < eights)
                    raw[g] = *(const Raw<T> *)(row + (first + g) * BOTH_STEP);
#pragma unroll
            for (int g = 0; g < BOTH_GROUP; g++) {
                int words = (int)x.vocab - (first + g) * BOTH_STEP - (int)threadIdx.x * 8;
                if (words <= 0)
                    break;
                float v[8];
                load8(v, raw[g]);
                use(v, first + g, words);
            }
        }
    }

    /* -- a row -- */

    /* What of a row's sums is left when all its kept eights are on their way. */
    __device__ void add_rest(Exponents &e, const T *row) const
    {
        cp_async_wait<0>();
#pragma unroll 1
        for (int k = max(kept - BOTH_AHEAD, 0); k < kept; k++)
            add_kept(e, place + k * BOTH_THREADS);
        each_other(row, [&](float(&v)[8], int, int words) { add(e, v, words); });
    }

    __device__ Exponents begin(const T *row) const
    {
        Exponents e = {minus_infinity(), 0};
#pragma unroll 1
        for (int k = 0; k < kept; k++) {
            fetch(place + k * BOTH_THREADS, row + k * BOTH_STEP);
            if (k < BOTH_AHEAD)
                continue;
            cp_async_wait<BOTH_AHEAD>();
            add_kept(e, place + (k - BOTH_AHEAD) * BOTH_THREADS);
        }
        add_rest(e, row);
        return e;
    }

    __device__ void leave_others(T *row, float lse) const
    {
        each_other(row, [&](float(&v)[8], int k, int) { leave(row + k * BOTH_STEP, v, lse); });
    }

    /* The gradients of a row, and the sums of the next one. */
    __device__ Exponents leave_and_begin(T *row, float lse, const T *next) const
    {
        Exponents e = {minus_infinity(), 0};
        uint4 *at = place;
        T *to = row;
        int k = 0;
        leave_others(row, lse);
#pragma unroll 1
        for (; k < min(kept, BOTH_AHEAD); k++, at += BOTH_THREADS, to += BOTH_STEP) {
            leave_kept(to, at, lse);
            fetch(at, to + (next - row));
        }
#pragma unroll 1
        for (; k < kept; k++, at += BOTH_THREADS, to += BOTH_STEP) {
            leave_kept(to, at, lse);
            fetch(at, to + (next - row));
            cp_async_wait<BOTH_AHEAD>();
            add_kept(e, at - BOTH_AHEAD * BOTH_THREADS);
        }
        add_rest(e, next);
        return e;
    }

    __device__ void leave_last(T *row, float lse) const
    {
        leave_others(row, lse);
#pragma unroll 1
        for (int k = 0; k < kept; k++)
            leave_kept(row + k * BOTH_STEP, place + k * BOTH_THREADS, lse);
    }

    /* log of the row's sum of exponentials, in every thread; odd: every other call, so that one
     * barrier does. */
    __device__ float block_lse(const Exponents &e, int odd) const
    {
        __shared__ Exponents of_warp[2][BOTH_WARPS];
        float most = warp_max(e.most), shift = most == minus_infinity() ? 0 : most;
        float sum = warp_sum(e.sum * expf(e.most - shift));
        if (threadIdx.x % WARP == 0)
            of_warp[odd][threadIdx.x / WARP] = {most, sum};
        __syncthreads();
        Exponents warp = of_warp[odd][threadIdx.x % BOTH_WARPS];
        most = warp_max(warp.most);
        shift = most == minus_infinity() ? 0 : most;
        sum = warp.sum * expf(warp.most - shift);
#pragma unroll
        for (int by = BOTH_WARPS / 2; by; by /= 2)
            sum += __shfl_xor_sync(ALL_LANES, sum, by);
        return most + logf(sum);
    }

    __device__ void run() const
    {
        Exponents e = {};
        int odd = 0;
        if (blockIdx.x < x.rows && !ignored(blockIdx.x))
            e = begin(row(blockIdx.x));
        for (int64_t r = blockIdx.x; r < x.rows; r += gridDim.x) {
            int64_t next = r + gridDim.x, target = x.targets[x.token + r];
            bool more = next < x.rows && !ignored(next);
            if (target == x.ignore) {
                if (threadIdx.x == 0)
                    x.token_loss[x.token + r] = 0;
                leave_zeros(row(r));
                if (more)
                    e = begin(row(next));
                continue;
            }
            bool valid = target >= 0 && target < x.vocab;
            /* the thread that has the target's logit */
            bool mine = threadIdx.x == (valid ? target / 8 % BOTH_THREADS : 0);
            T *hot = (T *)x.logits + r * x.ld + (valid ? target : 0);
            float logit = mine && valid ? to_f32(*hot) : 0, lse = block_lse(e, odd);
            odd ^= 1;
            if (mine && !valid)
                raise_fault(x.fault, CUDA_FAULT_TARGET, x.token + r, target, x.vocab);
            if (more)
                e = leave_and_begin(row(r), lse, row(next));
            else
                leave_last(row(r), lse);
            if (mine)
                x.token_loss[x.token + r] = valid ? lse - soft(logit) : 0;
            if (mine && valid) /* over what this thread has just left there */
                from_f32(hot, gradient(logit, lse, 1));
        }
    }
};

template <class T> __device__ static inline void head_rows(const CudaLmLossWithGrad &x)
{
    DYNAMIC_SHARED(places);
    if (x.softcap > 0)
        HeadRows<T, true>(x, (uint4 *)places).run();
    else
        HeadRows<T, false>(x, (uint4 *)places).run();
}

KERNEL_ENTRY(lm_loss_with_grad_rows, CUDA_HEAD_THREADS, 2, CudaLmLossWithGrad)
{
    head_rows<bf16>(x);
}

KERNEL_ENTRY(lm_loss_with_grad_rows_f32, CUDA_HEAD_THREADS, 1, CudaLmLossWithGrad)
{
    head_rows<float>(x);
}
