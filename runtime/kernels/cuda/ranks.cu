#include "runtime/kernels/cuda/device.cuh"

/* What ranks do with what they have exchanged: sums in the order of the ranks, and what they put
 * together to send. */

constexpr int PART_THREADS = 256;

/* A part's first element. */
__device__ static inline const char *part_at(const CudaSumParts &x, int rank, int64_t bytes)
{
    return rank == x.self ? (const char *)x.own
                          : (const char *)x.others + rank * x.stride * bytes;
}

template <typename T> __device__ static inline T join_parts(const CudaSumParts &x, T a, T b)
{
    if (!x.is_max)
        return a + b;
    return b > a || b != b ? b : a;
}

template <typename T> __device__ static inline T sum_one(const CudaSumParts &x, int64_t i)
{
    T sum = ((const T *)part_at(x, 0, sizeof(T)))[i];
    for (int r = 1; r < x.ranks; r++)
        sum = join_parts(x, sum, ((const T *)part_at(x, r, sizeof(T)))[i]);
    return sum;
}

__device__ static inline void sum_wide(const CudaSumParts &x)
{
    for (int64_t i = blockIdx.x * PART_THREADS + threadIdx.x; i < x.n;
         i += (int64_t)gridDim.x * PART_THREADS) {
        if (x.from_type == CUDA_I64) {
            ((int64_t *)x.y)[i] = sum_one<int64_t>(x, i);
            continue;
        }
        double sum = sum_one<double>(x, i);
        if (x.to_type == CUDA_F64)
            ((double *)x.y)[i] = sum;
        else
            store_f32(x.y, x.to_type, i, (float)sum);
    }
}

__device__ static inline bool parts_by_eight(const CudaSumParts &x)
{
    uintptr_t bits = (uintptr_t)x.y | (uintptr_t)x.own | (uintptr_t)x.others |
                     (uintptr_t)(x.stride * (x.from_type == CUDA_BF16 ? 2 : 4));
    return bits % 16 == 0 && x.to_type != CUDA_F64;
}

KERNEL_ENTRY(sum_parts, 256, 4, CudaSumParts)
{
    if (x.from_type == CUDA_I64 || x.from_type == CUDA_F64) {
        sum_wide(x);
        return;
    }
    bool by_eight = parts_by_eight(x);
    int64_t bytes = x.from_type == CUDA_BF16 ? 2 : 4;
    int64_t step = by_eight ? 8 : 1, stride = (int64_t)gridDim.x * PART_THREADS * step;
    for (int64_t i = ((int64_t)blockIdx.x * PART_THREADS + threadIdx.x) * step; i < x.n;
         i += stride) {
        if (by_eight && i + 8 <= x.n) {
            float sum[8], v[8];
            load8(sum, part_at(x, 0, bytes), x.from_type, i);
            for (int r = 1; r < x.ranks; r++) {
                load8(v, part_at(x, r, bytes), x.from_type, i);
#pragma unroll
                for (int j = 0; j < 8; j++)
                    sum[j] = join_parts(x, sum[j], v[j]);
            }
            store8(x.y, x.to_type, i, sum);
            continue;
        }
        for (int64_t at = i; at < i + step && at < x.n; at++) {
            float sum = load_f32(part_at(x, 0, bytes), x.from_type, at);
            for (int r = 1; r < x.ranks; r++)
                sum = join_parts(x, sum, load_f32(part_at(x, r, bytes), x.from_type, at));
            if (x.to_type == CUDA_F64)
                ((double *)x.y)[at] = (double)sum;
            else
                store_f32(x.y, x.to_type, at, sum);
        }
    }
}

/* -- flat buffers -- */

__device__ static inline const CudaSegment &segment_of(const CudaFlatPack &x, int64_t eight)
{
    int at = 0;
    while (at + 1 < x.count && x.segment[at + 1].first <= eight)
        at++;
    return x.segment[at];
}

KERNEL_ENTRY(flat_pack, 256, 4, CudaFlatPack)
{
    for (int64_t e = (int64_t)blockIdx.x * 256 + threadIdx.x; e < x.eights;
         e += (int64_t)gridDim.x * 256) {
        const CudaSegment &s = segment_of(x, e);
        int64_t i = (e - s.first) * 8, to = s.begin + i;
        if (i + 8 <= s.n && to % 8 == 0 && view_by_eight(x.y) &&
            (!s.x.at || view_by_eight(s.x))) {
            float v[8] = {0, 0, 0, 0, 0, 0, 0, 0};
            if (s.x.at)
                load8(v, s.x.at, s.x.type, view_at(s.x, i));
            store8(x.y.at, x.y.type, to, v);
            continue;
        }
        for (int64_t k = i; k < min(i + 8, s.n); k++)
            store_f32(x.y.at, x.y.type, s.begin + k,
                      s.x.at ? load_f32(s.x.at, s.x.type, view_at(s.x, k)) : 0.0f);
    }
}

/* -- scalars -- */

KERNEL_ENTRY(invert_count, 32, 1, CudaInvertCount)
{
    if (threadIdx.x == 0)
        store_scalar(x.inverse, 1 / (double)(*x.count > 1 ? *x.count : 1));
}

KERNEL_ENTRY(sum_scalars, 32, 1, CudaSumScalars)
{
    if (threadIdx.x)
        return;
    double sum = x.first ? 0 : *x.y;
    for (int i = 0; i < x.count; i++)
        sum += *x.part[i];
    *x.y = x.last ? x.factor * sum : sum;
}
