/* device: what the CUDA kernels share: elements by type and view, sums over warps and blocks,
 * faults. */
#ifndef RUNTIME_KERNELS_CUDA_DEVICE_CUH
#define RUNTIME_KERNELS_CUDA_DEVICE_CUH

#include "runtime/kernels/cuda/args.h"
#include "runtime/kernels/cuda/ptx.cuh"
#include "runtime/abi/random.h"

constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr int WARP = 32;
constexpr float LOG2_E = 1.4426950408889634f;

__device__ inline float minus_infinity()
{
    return __uint_as_float(0xff800000u);
}

__device__ inline float infinity()
{
    return __uint_as_float(0x7f800000u);
}

/* -- elements -- */

__device__ inline float to_f32(float x)
{
    return x;
}

__device__ inline float to_f32(bf16 x)
{
    return __uint_as_float((uint32_t)x.bits << 16);
}

__device__ inline float low_f32(uint32_t pair)
{
    return __uint_as_float(pair << 16);
}

__device__ inline float high_f32(uint32_t pair)
{
    return __uint_as_float(pair & 0xffff0000u);
}

__device__ inline void from_f32(float *to, float x)
{
    *to = x;
}

__device__ inline void from_f32(bf16 *to, float x)
{
    *to = round_bf16(x);
}

__device__ inline float load_f32(const void *at, int type, int64_t i)
{
    if (type == CUDA_BF16)
        return to_f32(((const bf16 *)at)[i]);
    return type == CUDA_F32 ? ((const float *)at)[i] : (float)((const double *)at)[i];
}

__device__ inline void store_f32(void *at, int type, int64_t i, float x)
{
    if (type == CUDA_BF16)
        ((bf16 *)at)[i] = round_bf16(x);
    else if (type == CUDA_F32)
        ((float *)at)[i] = x;
    else
        ((double *)at)[i] = x;
}

__device__ inline double load_scalar(const CudaView &view)
{
    return view.type == CUDA_F64 ? *(const double *)view.at
                                 : (double)load_f32(view.at, view.type, 0);
}

__device__ inline void store_scalar(const CudaView &view, double x)
{
    if (view.type == CUDA_F64)
        *(double *)view.at = x;
    else
        store_f32(view.at, view.type, 0, (float)x);
}

/* Eight elements from a place that 16 bytes divide (bf16) or 32 (f32). */
__device__ inline void load8(float (&to)[8], const uint4 &raw)
{
    const uint32_t pair[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        to[2 * i] = low_f32(pair[i]);
        to[2 * i + 1] = high_f32(pair[i]);
    }
}

__device__ inline void load8(float (&to)[8], const bf16 *at)
{
    load8(to, *(const uint4 *)at);
}

__device__ inline void load8(float (&to)[8], const float *at)
{
    float4 lo = ((const float4 *)at)[0], hi = ((const float4 *)at)[1];
    to[0] = lo.x, to[1] = lo.y, to[2] = lo.z, to[3] = lo.w;
    to[4] = hi.x, to[5] = hi.y, to[6] = hi.z, to[7] = hi.w;
}

__device__ inline void store8(bf16 *at, const float (&x)[8])
{
    *(uint4 *)at = make_uint4(pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]), pack_bf16(x[4], x[5]),
                              pack_bf16(x[6], x[7]));
}

__device__ inline void store8(float *at, const float (&x)[8])
{
    ((float4 *)at)[0] = make_float4(x[0], x[1], x[2], x[3]);
    ((float4 *)at)[1] = make_float4(x[4], x[5], x[6], x[7]);
}

__device__ inline void load8(float (&to)[8], const void *at, int type, int64_t i)
{
    if (type == CUDA_BF16)
        load8(to, (const bf16 *)at + i);
    else
        load8(to, (const float *)at + i);
}

__device__ inline void store8(void *at, int type, int64_t i, const float (&x)[8])
{
    if (type == CUDA_BF16)
        store8((bf16 *)at + i, x);
    else
        store8((float *)at + i, x);
}

/* Where element e of the view is. */
__device__ inline int64_t view_at(const CudaView &view, int64_t e)
{
    if (view.run == view.pitch)
        return e;
    int64_t row = e / view.run;
    return row * view.pitch + (e - row * view.run);
}

/* Whether eight elements from any multiple of eight on lie beside each other, at a place that 16
 * bytes divide. */
__device__ inline bool view_by_eight(const CudaView &view)
{
    uintptr_t bits = (uintptr_t)view.at % 16;
    return bits == 0 && (view.run == view.pitch || (view.run % 8 == 0 && view.pitch % 8 == 0));
}

/* -- reductions; the same order whatever the machine -- */

__device__ inline float warp_sum(float x)
{
#pragma unroll
    for (int by = 16; by; by /= 2)
        x += __shfl_xor_sync(ALL_LANES, x, by);
    return x;
}

__device__ inline float warp_max(float x)
{
#pragma unroll
    for (int by = 16; by; by /= 2)
        x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, by));
    return x;
}

__device__ inline int warp_min(int x)
{
#pragma unroll
    for (int by = 16; by; by /= 2)
        x = min(x, __shfl_xor_sync(ALL_LANES, x, by));
    return x;
}

__device__ inline int warp_max(int x)
{
#pragma unroll
    for (int by = 16; by; by /= 2)
        x = max(x, __shfl_xor_sync(ALL_LANES, x, by));
    return x;
}

/* -- faults -- */

__device__ inline void raise_fault(const CudaFault &fault, int64_t code, int64_t index,
                                   int64_t value, int64_t limit)
{
    if (atomicCAS((unsigned long long *)fault.at, 0ull, (unsigned long long)code) != 0)
        return;
    fault.at[1] = index;
    fault.at[2] = value;
    fault.at[3] = limit;
    fault.at[4] = fault.number;
}

#endif
