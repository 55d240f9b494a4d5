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
};

__device__ static inline void adamw_one(const AdamwFactors &f, float g, float *w, float *m,
                                        float *v)
{
    float grad = __fmul_rn(g, f.coef);
    *m = __fadd_rn(*m, __fmul_rn(f.rest1, __fsub_rn(grad, *m)));
    *v = __fadd_rn(__fmul_rn(f.beta2, *v), __fmul_rn(f.rest2, __fmul_rn(grad, grad)));
    float size = __fadd_rn(__fdiv_rn(__fsqrt_rn(*v), f.root), f.eps);
    *w = __fsub_rn(__fmul_rn(*w, f.decay), __fmul_rn(f.step_size, __fdiv_rn(*m, size)));
}

__device__ static inline void adamw_chunk(const AdamwFactors &f, const CudaUpdateEntry &e,
                                          int64_t first, int64_t end)
{
    bool by_eight = is_by_eight(e);
    const void *from = e.master ? e.master : e.w;
    int from_type = e.master ? CUDA_F32 : e.w_type;
    for (int64_t i = first + threadIdx.x * 8; i < end; i += UPDATE_THREADS * 8) {
        if (by_eight && i + 8 <= end) {
            float w[8], g[8], m[8], v[8];
            load8(w, from, from_type, i);
            load8(g, e.g, e.g_type, i);
            load8(m, e.m, e.m_type, i);
            load8(v, e.v, e.v_type, i);
#pragma unroll
            for (int j = 0; j < 8; j++)
                adamw_one(f, g[j], &w[j], &m[j], &v[j]);
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
            adamw_one(f, load_f32(e.g, e.g_type, at), &w, &m, &v);
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
