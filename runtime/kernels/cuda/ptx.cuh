/* ptx: the few instructions of sm_90 that CUDA C++ has no name for, and the form of a kernel. The
 * same kernels run on a CPU under the emulator of tests/device, which replaces this file's second
 * half. */
#ifndef RUNTIME_KERNELS_CUDA_PTX_CUH
#define RUNTIME_KERNELS_CUDA_PTX_CUH

#include <stdint.h>

struct bf16 {
    uint16_t bits;
};

#ifdef STEPC_EMULATOR
#include STEPC_EMULATOR
#else

/* A kernel takes one struct by value, x. blocks: that shall fit on a multiprocessor together. */
#define KERNEL_ENTRY(name, threads, blocks, Args)                                                  \
    extern "C" __global__ void __launch_bounds__(threads, blocks)                                  \
        name(const __grid_constant__ Args x)

#define DYNAMIC_SHARED(name) extern __shared__ __align__(128) unsigned char name[]

__device__ inline uint32_t shared_address(const void *at)
{
    return (uint32_t)__cvta_generic_to_shared(at);
}

/* Four 8x8 matrices of bf16; lane l gives the address of row l % 8 of matrix l / 8. */
__device__ inline void ldmatrix(uint32_t (&r)[4], const bf16 *at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(at))
                 : "memory");
}

__device__ inline void ldmatrix_trans(uint32_t (&r)[4], const bf16 *at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(at))
                 : "memory");
}

/* d[16,8] += a[16,16] b[16,8], bf16 with f32 sums. */
__device__ inline void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, "
                 "%6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* 16 bytes from global to shared memory; zeros where not `inside`, and then `from` is not read. */
__device__ inline void cp_async16(void *to, const void *from, bool inside)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(inside ? 16 : 0)
                 : "memory");
}

__device__ inline void cp_async4(void *to, const void *from, bool inside)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(inside ? 4 : 0)
                 : "memory");
}

__device__ inline void cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Until at most `pending` of this thread's groups are under way. */
template <int pending> __device__ inline void cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

/* One of the barriers 1..15 among `threads` threads of the block. */
__device__ inline void bar_sync(int barrier, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/* blockIdx.x, read anew: what is computed from it needs no registers until then. */
__device__ inline int block_again()
{
    int index;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
    return index;
}

/* 2^x within 2 ulp; 2^-inf is 0. */
__device__ inline float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Rounded to nearest even; lo in the low half. */
__device__ inline uint32_t pack_bf16(float lo, float hi)
{
    uint32_t packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(hi), "f"(lo));
    return packed;
}

__device__ inline bf16 round_bf16(float value)
{
    bf16 rounded;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded.bits) : "f"(value));
    return rounded;
}

#endif
#endif
