#include "runtime/kernels/cuda/device.cuh"

/* -- rope_table: an angle is position * frequency, both rounded to f32 -- */

constexpr int ROPE_TOKENS = 16; /* of a block */

KERNEL_ENTRY(rope_table, 256, 4, CudaRope)
{
    __shared__ float frequency[CUDA_ROPE_FREQUENCIES];
    for (int i = (int)threadIdx.x; i < x.count; i += 256)
        frequency[i] = x.frequency[i];
    __syncthreads();
    int64_t first = (int64_t)blockIdx.x * ROPE_TOKENS,
            tokens = min((int64_t)ROPE_TOKENS, x.tokens - first);
    for (int i = (int)threadIdx.x; i < tokens * x.count; i += 256) {
        int64_t token = first + i / x.count, e = token * x.half + x.first + i % x.count;
        float angle = __fmul_rn((float)x.positions[token], frequency[i % x.count]);
        if (x.cos.at)
            store_f32(x.cos.at, x.cos.type, view_at(x.cos, e), __fmul_rn(cosf(angle), x.factor));
        if (x.sin.at)
            store_f32(x.sin.at, x.sin.type, view_at(x.sin, e), __fmul_rn(sinf(angle), x.factor));
    }
}

/* -- concat: rows of the parts beside each other -- */

KERNEL_ENTRY(concat, 256, 4, CudaConcat)
{
    bool by_eight = x.part_width % 8 == 0 && view_by_eight(x.y);
    for (int i = 0; i < x.count; i++)
        by_eight = by_eight && (!x.part[i].at || view_by_eight(x.part[i]));
    int64_t step = by_eight ? 8 : 1, units = x.part_width / step, all = x.rows * x.count * units;
    for (int64_t u = (int64_t)blockIdx.x * 256 + threadIdx.x; u < all;
         u += (int64_t)gridDim.x * 256) {
        int64_t column = u % units * step, row = u / units / x.count;
        int part = (int)(u / units % x.count);
        const CudaView &from = x.part[part];
        int64_t to = view_at(x.y, row * x.width + (x.first + part) * x.part_width + column);
        int64_t at = view_at(from, row * x.part_width + column);
        if (by_eight) {
            float v[8] = {0, 0, 0, 0, 0, 0, 0, 0};
            if (from.at)
                load8(v, from.at, from.type, at);
            store8(x.y.at, x.y.type, to, v);
        } else {
            store_f32(x.y.at, x.y.type, to, from.at ? load_f32(from.at, from.type, at) : 0.0f);
        }
    }
}
