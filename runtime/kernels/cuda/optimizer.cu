#include "runtime/kernels/cuda/device.cuh"

/* Updates of many tensors in one launch: blocks take chunks of them in turn. Every operation is
 * rounded by itself, as on the CPU. Moments go on unrounded within a step and are rounded when they
 * are stored; with a master copy that is what is updated, and the weight is its rounding. */

constexpr int UPDATE_THREADS = 256;

__device__ static inline const CudaUpdateEntry &
update_entry(const CudaUpdateEntry *entries, const CudaUpdateEntry &alone, int64_t n, int64_t chunk)
{
    if (!entries)
        return alone;
    int64_t low = 0, high = n;
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (entries[middle].first <= chunk)
            low = middle;
        else
            high = middle;
    }
    return entries[low];
}

__device__ static inline bool is_by_eight(const CudaUpdateEntry &e)
{
    return ((uintptr_t)e.w | (uintptr_t)e.g | (uintptr_t)e.m | (uintptr_t)e.v |
            (uintptr_t)e.master) %
               16 ==
           0;
}

struct AdamwFactors {
    float coef, decay, step_size, root, rest1, beta2, rest2, eps;
    float per_root; /* 1 / root, as quotient_inside takes it; 0: root or eps is not inside */
};

/* -- sqrt(x) and a / b to nearest without a branch, as the compiler has them where no result is
 * near the ends of the numbers: x in [2^-100, 2^60], |a| and |b| in [2^-64, 2^64] -- */

__device__ static inline float root_inside(float x)
{
    float per_root = reciprocal_root_fast(x), root = __fmul_rn(x, per_root);
    return __fmaf_rn(__fmaf_rn(-root, root, x), __fmul_rn(per_root, 0.5f), root);
}

__device__ static inline float reciprocal_inside(float b)
{
    float near = reciprocal_fast(b);
    return __fmaf_rn(near, __fmaf_rn(-b, near, 1.0f), near);
}

__device__ static inline float quotient_inside(float a, float b, float per_b)
{
    float near = __fmul_rn(a, per_b);
    return __fmaf_rn(per_b, __fmaf_rn(-b, near, a), near);
}

/* -- an element -- */

__device__ static inline void adamw_moments(const AdamwFactors &f, float g, float *m, float *v)
{
    float grad = __fmul_rn(g, f.coef);
    *m = __fadd_rn(*m, __fmul_rn(f.rest1, __fsub_rn(grad, *m)));
    *v = __fadd_rn(__fmul_rn(f.beta2, *v), __fmul_rn(f.rest2, __fmul_rn(grad, grad)));
}

__device__ static inline float adamw_weight(const AdamwFactors &f, float w, float change)
{
    return __fsub_rn(__fmul_rn(w, f.decay), __fmul_rn(f.step_size, change));
}

__device__ static inline float adamw_change(const AdamwFactors &f, float m, float v)
{
    return __fdiv_rn(m, __fadd_rn(__fdiv_rn(__fsqrt_rn(v), f.root), f.eps));
}

__device__ static inline void rotate(float (&x)[8], float last)
{
#pragma unroll
    for (int j = 0; j < 7; j++)
        x[j] = x[j + 1];
    x[7] = last;
}

/* Eight elements: most are inside, or, as rows of embeddings that no token has, without moments. */
__device__ static inline void adamw_eight(const AdamwFactors &f, const float (&g)[8], float (&w)[8],
                                          float (&m)[8], float (&v)[8])
{
    float least_m = infinity(), most_m = 0, least_v = infinity(), most_v = 0;
    uint32_t bits = 0;
#pragma unroll
    for (int j = 0; j < 8; j++) { /* what is no number goes either way */
        adamw_moments(f, g[j], &m[j], &v[j]);
        least_m = fminf(least_m, fabsf(m[j]));
        most_m = fmaxf(most_m, fabsf(m[j]));
        least_v = fminf(least_v, v[j]);
        most_v = fmaxf(most_v, v[j]);
        bits |= __float_as_uint(m[j]) | __float_as_uint(v[j]);
    }
    if (f.per_root != 0 && least_m >= 0x1p-64f && most_m <= 0x1p64f && least_v >= 0x1p-100f &&
        most_v <= 0x1p60f) {
#pragma unroll
        for (int j = 0; j < 8; j++) {
            float size = __fadd_rn(quotient_inside(root_inside(v[j]), f.root, f.per_root), f.eps);
            w[j] = adamw_weight(f, w[j], quotient_inside(m[j], size, reciprocal_inside(size)));
        }
    } else if (f.per_root != 0 && bits << 1 == 0) { /* 0 / eps, of its sign */
#pragma unroll
        for (int j = 0; j < 8; j++)
            w[j] = adamw_weight(f, w[j], m[j]);
    } else {
#pragma unroll 1
        for (int j = 0; j < 8; j++) { /* always the first: its code is there once */
            float first = adamw_weight(f, w[0], adamw_change(f, m[0], v[0]));
            rotate(w, first);
            rotate(m, m[0]);
            rotate(v, v[0]);
        }
    }
}

/* -- a chunk -- */

struct AdamwRaw { /* eight elements of each tensor, all of bf16 */
    uint4 w, g, m, v;
};

__device__ static inline AdamwRaw adamw_load(const CudaUpdateEntry &e, int64_t i)
{
    return {*(const uint4 *)((const bf16 *)e.w + i), *(const uint4 *)((const bf16 *)e.g + i),
            *(const uint4 *)((const bf16 *)e.m + i), *(const uint4 *)((const bf16 *)e.v + i)};
}

/* All of bf16, no master: the next loads are on their way while eight elements are updated. */
__device__ static inline void adamw_stream(const AdamwFactors &f, const CudaUpdateEntry &e,
                                           int64_t first, int64_t end)
{
    constexpr int BY = UPDATE_THREADS * 8;
    int64_t i = first + threadIdx.x * 8;
    if (i >= end)
        return;
    AdamwRaw next = adamw_load(e, i);
    for (; i < end; i += BY) {
        AdamwRaw now = next;
        if (i + BY < end)
            next = adamw_load(e, i + BY);
        float w[8], g[8], m[8], v[8];
        load8(w, now.w);
        load8(g, now.g);
        load8(m, now.m);
        load8(v, now.v);
        adamw_eight(f, g, w, m, v);
        store8((bf16 *)e.w + i, w);
        store8((bf16 *)e.m + i, m);
        store8((bf16 *)e.v + i, v);
    }
}

__device__ static inline void adamw_chunk(const AdamwFactors &f, const CudaUpdateEntry &e,
                                          int64_t first, int64_t end)
{
    bool by_eight = is_by_eight(e);
    const void *from = e.master ? e.master : e.w;
    int from_type = e.master ? CUDA_F32 : e.w_type;
    if (by_eight && !e.master && e.w_type == CUDA_BF16 && e.g_type == CUDA_BF16 &&
        e.m_type == CUDA_BF16 && e.v_type == CUDA_BF16) {
        int64_t last = end - (end - first) % 8;
        adamw_stream(f, e, first, last);
        first = last;
    }
    for (int64_t i = first + threadIdx.x * 8; i < end; i += UPDATE_THREADS * 8) {
        if (by_eight && i + 8 <= end) {
            float w[8], g[8], m[8], v[8];
            load8(w, from, from_type, i);
            load8(g, e.g, e.g_type, i);
            load8(m, e.m, e.m_type, i);
            load8(v, e.v, e.v_type, i);
            adamw_eight(f, g, w, m, v);
            if (e.master)
                store8((float *)e.master + i, w);
            store8(e.w, e.w_type, i, w);
            store8(e.m, e.m_type, i, m);
            store8(e.v, e.v_type, i, v);
            continue;
        }
        for (int64_t at = i; at < min(i + 8, end); at++) {
            float w = load_f32(from, from_type, at), m = load_f32(e.m, e.m_type, at),
                  v = load_f32(e.v, e.v_type, at);
            adamw_moments(f, load_f32(e.g, e.g_type, at), &m, &v);
            w = adamw_weight(f, w, adamw_change(f, m, v));
            if (e.master)
                ((float *)e.master)[at] = w;
            store_f32(e.w, e.w_type, at, w);
            store_f32(e.m, e.m_type, at, m);
            store_f32(e.v, e.v_type, at, v);
        }
    }
}

KERNEL_ENTRY(adamw, 256, 4, CudaAdamw)
{
    __shared__ AdamwFactors shared;
    double lr = *x.lr;
    if (threadIdx.x == 0) {
        double t = (double)*x.step + 1;
        shared.coef = *x.coef;
        shared.step_size = (float)(lr / (1 - pow(x.beta1, t)));
        shared.root = (float)sqrt(1 - pow(x.beta2, t));
    }
    __syncthreads();
    AdamwFactors f = shared;
    if (f.coef == 0)
        return;
    f.rest1 = (float)(1 - x.beta1);
    f.beta2 = (float)x.beta2;
    f.rest2 = (float)(1 - x.beta2);
    f.eps = (float)x.eps;
    bool inside = f.root >= 0x1p-20f && f.root <= 1 && f.eps >= 0x1p-40f && f.eps <= 1;
    f.per_root = inside ? reciprocal_inside(f.root) : 0.0f;
    for (int64_t chunk = blockIdx.x; chunk < x.chunks; chunk += gridDim.x) {
        const CudaUpdateEntry &e = update_entry(x.entries, x.alone, x.n_entries, chunk);
        int64_t first = (chunk - e.first) * CUDA_OPTIMIZER_CHUNK;
        f.decay = (float)(1 - lr * e.decay);
        adamw_chunk(f, e, first, min(first + CUDA_OPTIMIZER_CHUNK, e.n));
    }
}

struct SgdFactors {
    float coef, decay, lr, momentum;
    bool nesterov;
};

__device__ static inline void sgd_one(const SgdFactors &f, float g, bool has_moment, float *w,
                                      float *m)
{
    g = __fadd_rn(__fmul_rn(g, f.coef), __fmul_rn(f.decay, *w));
    if (has_moment) {
        *m = __fadd_rn(__fmul_rn(f.momentum, *m), g);
        g = f.nesterov ? __fadd_rn(g, __fmul_rn(f.momentum, *m)) : *m;
    }
    *w = __fsub_rn(*w, __fmul_rn(f.lr, g));
}

__device__ static inline void sgd_chunk(const SgdFactors &f, const CudaUpdateEntry &e,
                                        int64_t first, int64_t end)
{
    bool by_eight = is_by_eight(e);
    const void *from = e.master ? e.master : e.w;
    int from_type = e.master ? CUDA_F32 : e.w_type;
    for (int64_t i = first + threadIdx.x * 8; i < end; i += UPDATE_THREADS * 8) {
        if (by_eight && i + 8 <= end) {
            float w[8], g[8], m[8] = {0, 0, 0, 0, 0, 0, 0, 0};
            load8(w, from, from_type, i);
            load8(g, e.g, e.g_type, i);
            if (e.m)
                load8(m, e.m, e.m_type, i);
#pragma unroll
            for (int j = 0; j < 8; j++)
                sgd_one(f, g[j], e.m != nullptr, &w[j], &m[j]);
            if (e.m)
                store8(e.m, e.m_type, i, m);
            if (e.master)
                store8((float *)e.master + i, w);
            store8(e.w, e.w_type, i, w);
            continue;
        }
        for (int64_t at = i; at < min(i + 8, end); at++) {
            float w = load_f32(from, from_type, at), m = e.m ? load_f32(e.m, e.m_type, at) : 0;
            sgd_one(f, load_f32(e.g, e.g_type, at), e.m != nullptr, &w, &m);
            if (e.m)
                store_f32(e.m, e.m_type, at, m);
            if (e.master)
                ((float *)e.master)[at] = w;
            store_f32(e.w, e.w_type, at, w);
        }
    }
}

KERNEL_ENTRY(sgd, 256, 4, CudaSgd)
{
    SgdFactors f = {*x.coef, 0, *x.lr, (float)x.momentum, x.nesterov != 0};
    if (f.coef == 0)
        return;
    for (int64_t chunk = blockIdx.x; chunk < x.chunks; chunk += gridDim.x) {
        const CudaUpdateEntry &e = update_entry(x.entries, x.alone, x.n_entries, chunk);
        int64_t first = (chunk - e.first) * CUDA_OPTIMIZER_CHUNK;
        f.decay = (float)e.decay;
        sgd_chunk(f, e, first, min(first + CUDA_OPTIMIZER_CHUNK, e.n));
    }
}
