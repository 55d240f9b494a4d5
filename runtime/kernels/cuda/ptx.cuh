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

#define GROUP_D1(n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define GROUP_D4(n) GROUP_D1(n), GROUP_D1(n + 1), GROUP_D1(n + 2), GROUP_D1(n + 3)

/* A kernel takes one struct by value, x. blocks: that shall fit on a multiprocessor together. */
#define KERNEL_ENTRY(name, threads, blocks, Args)                                                  \
    extern "C" __global__ void __launch_bounds__(threads, blocks)                                  \
        name(const __grid_constant__ Args x)

#define DYNAMIC_SHARED(name) extern __shared__ __align__(1024) unsigned char name[]

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

/* -- barriers in shared memory (mbarrier): a phase ends when `count` have arrived -- */

__device__ inline void phase_init(uint64_t *barrier, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(count)
                 : "memory");
}

__device__ inline void phase_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
                 : "memory");
}

/* Arrives once this thread's asynchronous copies so far have landed. */
__device__ inline void phase_arrive_after_copies(uint64_t *barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(
                     shared_address(barrier))
                 : "memory");
}

/* Until the phase of this parity has ended; before the first phase: parity 1 has. */
__device__ inline void phase_wait(uint64_t *barrier, int parity)
{
    uint32_t done;
    do {
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(shared_address(barrier)), "r"(parity)
                     : "memory");
    } while (!done);
}

/* Between shared memory written by ordinary stores or cp.async and wgmma that reads it. */
__device__ inline void fence_async()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* -- products by a group of four warps (wgmma): they run beside what follows, until waited for. No
 * register of theirs may be touched before that; group_pin marks when its values may be used -- */

/* Registers of a group's threads from here on; those of all groups together are what the launch
 * has. */
template <int registers> __device__ inline void group_takes_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

template <int registers> __device__ inline void group_gives_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

__device__ inline void group_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ inline void group_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int pending> __device__ inline void group_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

template <int NT> __device__ inline void group_pin(float (&d)[NT][4])
{
#pragma unroll
    for (int n = 0; n < NT; n++)
        asm volatile("" : "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])::"memory");
}

/* d[64 rows, NT * 8] (+)= a[64, 16] b[16, NT * 8]; a: of the warp's 16 rows, as mma takes it. b: a
 * sixteenth of the address of a tile in shared memory in the 128-byte swizzle, rows of 128 bytes,
 * eight of them 1024 bytes from the next eight; stored [column][k], or TRANS [k][column]. */
template <bool TRANS, bool ADD>
__device__ inline void group_mma(float (&d)[8][4], const uint32_t (&a)[4], uint32_t b)
{
    asm volatile(
        "{\n.reg .pred p;\n.reg .b64 b;\nmov.b64 b, {%36, 1073741888};\nsetp.ne.b32 p, %38, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
        "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
        "%27, %28, %29, %30, %31}, {%32, %33, %34, %35}, b, p, 1, 1, %37;\n}"
        : GROUP_D4(0), GROUP_D4(4)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"((int)TRANS), "n"((int)ADD));
}

template <bool TRANS, bool ADD>
__device__ inline void group_mma(float (&d)[16][4], const uint32_t (&a)[4], uint32_t b)
{
    asm volatile(
        "{\n.reg .pred p;\n.reg .b64 b;\nmov.b64 b, {%68, 1073741888};\nsetp.ne.b32 p, %70, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, "
        "%8, "
        "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
        "%27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, "
        "%45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, "
        "%63}, {%64, %65, %66, %67}, b, p, 1, 1, %69;\n}"
        : GROUP_D4(0), GROUP_D4(4), GROUP_D4(8), GROUP_D4(12)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"((int)TRANS), "n"((int)ADD));
}

/* The same with both operands in shared memory: a is the place of the group's 64 rows, stored
 * [row][k]. Where b is wider than 64 columns, those are tiles beside each other; how far, in
 * sixteenths, is the upper half of b. */
template <bool TRANS, bool ADD>
__device__ inline void group_mma(float (&d)[8][4], uint32_t a, uint32_t b)
{
    asm volatile(
        "{\n.reg .pred p;\n.reg .b64 a, b;\nmov.b64 a, {%32, 1073741888};\n"
        "mov.b64 b, {%33, 1073741888};\nsetp.ne.b32 p, %35, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
        "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
        "%27, %28, %29, %30, %31}, a, b, p, 1, 1, 0, %34;\n}"
        : GROUP_D4(0), GROUP_D4(4)
        : "r"(a), "r"(b), "n"((int)TRANS), "n"((int)ADD));
}

template <bool TRANS, bool ADD>
__device__ inline void group_mma(float (&d)[32][4], uint32_t a, uint32_t b)
{
    asm volatile(
        "{\n.reg .pred p;\n.reg .b64 a, b;\nmov.b64 a, {%128, 1073741888};\n"
        "mov.b64 b, {%129, 1073741888};\nsetp.ne.b32 p, %131, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
        "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "
        "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "
        "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, "
        "%66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, "
        "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, "
        "%98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, "
        "%126, %127"
        "}, a, b, p, 1, 1, 0, %130;\n}"
        : GROUP_D4(0), GROUP_D4(4), GROUP_D4(8), GROUP_D4(12), GROUP_D4(16), GROUP_D4(20),
          GROUP_D4(24), GROUP_D4(28)
        : "r"(a), "r"(b), "n"((int)TRANS), "n"((int)ADD));
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

/* threadIdx.x, likewise. */
__device__ inline int thread_again()
{
    int index;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
    return index;
}

/* 2^x within 2 ulp; 2^-inf is 0. */
__device__ inline float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 1 / x and 1 / sqrt(x) to start from, within 1 and 2 ulp. */
__device__ inline float reciprocal_fast(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ inline float reciprocal_root_fast(float x)
{
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 16 bytes to global memory, which the compiler may not cut. */
__device__ inline void store16(void *at, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(a), "r"(b), "r"(c),
                 "r"(d)
                 : "memory");
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
