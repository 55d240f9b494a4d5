/* cuda: a device made ready for a plan, and what the launch functions of kernels stand on. Compiled without nvcc: the
 * driver and cuBLASLt are loaded at start. While a step runs, nothing is allocated, waited for or read by the host, so
 * that all launches can be captured into one graph. */
#ifndef RUNTIME_CUDA_CUDA_H
#define RUNTIME_CUDA_CUDA_H

#include <cublasLt.h>
#include <cuda.h>

#include "base/dtype.h"
#include "base/session.h"
#include "runtime/kernel.h"
#include "runtime/plan_map.h"

/* -- libraries -- */

typedef struct RtCudaDriver { /* driver.LaunchKernel is cuLaunchKernel */
#define CUDA_DRIVER(name) __typeof__(cu##name) *name;
#include "runtime/cuda/cuda_api.def"
} RtCudaDriver;

typedef struct RtCublasLt { /* lt.Matmul is cublasLtMatmul */
#define CUBLAS_LT(name) __typeof__(cublasLt##name) *name;
#include "runtime/cuda/cuda_api.def"
} RtCublasLt;

/* -- the device -- */

/* What a kernel reports that stops the run; the first one wins (atomicCAS of word 0 from 0 to the code). */
typedef enum RtCudaFaultCode {
    RT_CUDA_FAULT_NONE,
    RT_CUDA_FAULT_ID, /* word 1: the element, 2: its id, 3: rows of the table, 4: the instruction (rt_cuda_number) */
} RtCudaFaultCode;

enum { RT_CUDA_FAULT_WORDS = 8 };

typedef struct RtCudaControl { /* a piece of device memory that the host writes before a step and reads after it */
    int64_t random[4];                  /* step, seed, first sample */
    int64_t fault[RT_CUDA_FAULT_WORDS];
    int64_t nonfinite[4];               /* of --check: 1 where a tensor has a non-finite element */
} RtCudaControl;

enum { RT_CUDA_LINES = 12 };

typedef struct RtCuda {
    Session *s;
    const RtPlan *plan;
    RtCudaDriver driver;
    RtCublasLt lt;
    void *driver_library, *lt_library;
    CUdevice device;
    CUcontext context;
    char device_name[128];
    int multiprocessors;
    CUstream stream;      /* every launch of a step */
    CUstream copy_stream; /* inputs of the next step */
    CUmodule kernels;     /* our own, embedded in this library */
    CUmodule program;     /* the executable's fused kernels */
    Map functions;        /* Sym of a name -> CUfunction of `kernels` */
    CUdeviceptr arena;
    uint64_t arena_bytes, arena_mapped; /* as planned; in whole pages */
    CUmemGenericAllocationHandle arena_handle, tables_handle;
    CUdeviceptr tables;   /* control block, then tables of grouped launches */
    uint64_t tables_bytes, tables_mapped;
    CUdeviceptr control;  /* RtCudaControl */
    void *library_workspace; /* device address, for matrix products; in the arena */
    uint64_t library_workspace_bytes;
    struct RtCudaGemms *gemms; /* gemm.c: handle, bound algorithms */
    uint64_t total_bytes;      /* of the device */
    struct RtCudaLine {        /* device memory, measured while it was taken */
        const char *name;
        uint64_t bytes;
    } line[RT_CUDA_LINES];
    uint32_t n_lines;
    bool lost; /* an error after which the device answers no more; said once */
} RtCuda;

static inline CUdeviceptr rt_cuda_fault(const RtCuda *cuda) /* int64[RT_CUDA_FAULT_WORDS] */
{
    return cuda->control + offsetof(RtCudaControl, fault);
}

/* One diagnostic for a call that failed, and STATUS_ENV; `what` is what was being done: "launching `adamw`". */
Status rt_cuda_result(RtCuda *cuda, CUresult result, const char *what);
Status rt_cublas_result(RtCuda *cuda, cublasStatus_t result, const char *what);

/* -- launching -- */

/* An `extern "C" __global__` function of runtime/kernels/cuda/. Its absence is a bug of ours and aborts. */
CUfunction rt_cuda_function(RtCuda *cuda, const char *name);

typedef struct RtCudaShape {
    uint32_t grid, grid_y, grid_z; /* y, z: 0 counts as 1 */
    uint32_t threads;
    uint32_t shared_bytes; /* dynamic; above 48 KiB the function's limit is raised */
} RtCudaShape;

/* args: addresses of the parameters in order, as cuLaunchKernel takes them. `&call->at[i]` is one: device addresses
 * are kept as pointers. */
Status rt_cuda_start(RtCuda *cuda, CUfunction function, RtCudaShape shape, void **args);
/* The same, by name. */
Status rt_cuda_start_named(RtCuda *cuda, const char *name, RtCudaShape shape, void **args);

/* The instruction's number in its list, for fault word 4. */
int64_t rt_cuda_number(const RtCuda *cuda, const RtCall *call);

/* -- kernels: one launch function per row of kernels.def; device addresses in call->at, call->workspace, call->random -- */

#define KERNEL(name, ...) Status rt_cuda_launch_##name(RtCuda *cuda, const RtCall *call);
#include "runtime/abi/kernels.def"
#undef KERNEL

/* Consecutive calls of one kernel that touch nothing of each other can run as one launch, from a table in device memory
 * that is written once, at load. */
typedef struct RtCudaGroupKernel {
    uint64_t (*table_bytes)(const RtCall *calls, uint32_t n);
    void (*table_fill)(const RtCall *calls, uint32_t n, void *out_table); /* host memory, zeroed, table_bytes long */
    Status (*launch)(RtCuda *cuda, const RtCall *calls, uint32_t n, CUdeviceptr table);
} RtCudaGroupKernel;

extern const RtCudaGroupKernel rt_cuda_group_adamw; /* launch_optimizer.c */

/* -- matrix products -- */

/* Row-major C[m,n] = alpha A B + beta C (+ bias[n]), accumulated in f32 (f64 where an operand is f64), rounded once. */
typedef struct RtGemm {
    int64_t m, n, k;
    bool ta, tb; /* A is stored [k,m]; B is stored [n,k] */
    const void *a, *b, *bias; /* device addresses; bias NULL: none */
    void *c;
    int64_t lda, ldb, ldc; /* elements from one stored row to the next; 0: dense */
    DType a_type, b_type, c_type, bias_type;
    double alpha, beta;
    int64_t batch; /* 0 counts as 1: independent products, these many elements apart */
    int64_t stride_a, stride_b, stride_c;
} RtGemm;

/* On the stream, with the algorithm bound to this shape (bound now if it is new: then not within a capture). */
Status rt_cuda_gemm(RtCuda *cuda, const RtGemm *gemm);
/* Binds the algorithm before the first step; launch functions that run products do it from their `prepare`. */
Status rt_cuda_gemm_bind(RtCuda *cuda, const RtGemm *gemm);

/* Called once per instruction at load, where a kernel runs products of its own: binds their algorithms. */
Status rt_cuda_prepare_lm_loss(RtCuda *cuda, const RtCall *call);
Status rt_cuda_prepare_lm_loss_grad(RtCuda *cuda, const RtCall *call);

#endif
