/* control: what a step takes over from the host and gives back, and --check's question. */
#include <stdint.h>

#include "runtime/cuda/control.h"

static __device__ void copy_bits(void *to, const void *from, uint32_t bytes)
{
    if (bytes == 4)
        *(uint32_t *)to = *(const uint32_t *)from;
    else
        *(uint64_t *)to = *(const uint64_t *)from;
}

static __device__ int64_t device_ns()
{
    int64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

/* One block of 32 threads, a scalar each. */
extern "C" __global__ void __launch_bounds__(32)
    control_begin(RtCudaControl *control, RtCudaScalars scalars)
{
    uint32_t i = threadIdx.x;
    if (i == 0)
        control->begin_ns = device_ns();
    if (i < RT_CUDA_SCALARS && scalars.at[i] && (control->set >> i & 1))
        copy_bits((void *)scalars.at[i], &control->in[i], scalars.bytes[i]);
}

extern "C" __global__ void __launch_bounds__(32)
    control_end(RtCudaControl *control, RtCudaScalars scalars)
{
    uint32_t i = threadIdx.x;
    if (i == 0)
        control->end_ns = device_ns();
    if (i < RT_CUDA_SCALARS && scalars.at[i])
        copy_bits(&control->out[i], (const void *)scalars.at[i], scalars.bytes[i]);
}

template <typename Bits>
static __device__ bool has_ones(const void *base, RtCudaTensor t, Bits mask)
{
    const Bits *at = (const Bits *)base;
    bool found = false;
    for (int64_t e = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; e < t.numel;
         e += (int64_t)gridDim.x * blockDim.x)
        found |= (at[e / t.run * t.pitch + e % t.run] & mask) == mask;
    return found;
}

/* An exponent of ones is an infinity or a NaN. mask_bytes: the element's; its exponent's bits
 * are in `mask`. */
extern "C" __global__ void __launch_bounds__(256)
    check_finite(const void *base, RtCudaTensor t, RtCudaControl *control, int64_t instr,
                 int64_t tensor)
{
    bool found = t.bytes == 2   ? has_ones<uint16_t>(base, t, (uint16_t)t.mask)
                 : t.bytes == 4 ? has_ones<uint32_t>(base, t, (uint32_t)t.mask)
                                : has_ones<uint64_t>(base, t, t.mask);
    if (found && atomicCAS((unsigned long long *)&control->nonfinite[0], 0ull, 1ull) == 0) {
        control->nonfinite[1] = instr;
        control->nonfinite[2] = tensor;
    }
}

/* Pairs of bf16 between -2 and 2 without pattern: what a matrix product is timed on. */
extern "C" __global__ void __launch_bounds__(256) fill_noise(uint32_t *at, int64_t words)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < words;
         i += (int64_t)gridDim.x * blockDim.x) {
        uint32_t bits = (uint32_t)i * 0x9e3779b9u;
        bits = (bits ^ bits >> 16) * 0x21f0aaadu;
        bits = (bits ^ bits >> 15) * 0x735a2d97u;
        bits ^= bits >> 15;
        at[i] = (bits & 0x807f807fu) | 0x3f003f00u | (bits & 0x00800080u);
    }
}
