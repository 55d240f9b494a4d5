/* cuda: a device made ready for a plan, and what the launch functions of kernels stand on. Compiled
 * without nvcc: the driver and cuBLASLt are loaded at start. While a step runs, nothing is
 * allocated, waited for or read by the host, so that all its launches can be captured into one
 * graph. */
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

/* What a kernel reports that stops the run, into int64[RT_CUDA_FAULT_WORDS]. The first one wins:
 * atomicCAS of word 0 from 0 to the code (args.h has the same ones), and only the winner writes the
 * other words. */
typedef enum RtCudaFaultCode {
    RT_CUDA_FAULT_NONE,
    RT_CUDA_FAULT_ID, /* word 1: the token, 2: its id, 3: rows of the table, 4: rt_cuda_number */
    RT_CUDA_FAULT_TARGET, /* word 1: the token, 2: its target, 3: size of the vocabulary, 4:
                             rt_cuda_number */
} RtCudaFaultCode;

enum { RT_CUDA_FAULT_WORDS = 8 };

typedef struct RtCudaFused { /* a fused kernel of the executable's image */
    CUfunction rows, cols;
} RtCudaFused;

typedef struct RtCudaMapped { /* a piece of the device's memory */
    CUdeviceptr at;
    uint64_t bytes; /* in whole pages */
    CUmemGenericAllocationHandle handle;
} RtCudaMapped;

enum { RT_CUDA_LINES = 12 };

typedef struct RtCudaLine { /* device memory outside the arena, measured while it was taken */
    const char *name;
    uint64_t bytes;
} RtCudaLine;

typedef struct RtCuda {
    Session *s;
    const RtPlan *plan;
    const StepProgram *program;
    RtCudaDriver driver;
    RtCublasLt lt;
    void *driver_library, *lt_library;
    CUdevice device;
    CUcontext context;
    char device_name[128];
    int driver_version, multiprocessors;
    uint64_t total_bytes; /* of the device */
    CUstream stream;      /* every launch of a step; while an exchange is launched, comm_stream */
    CUstream copy_stream; /* inputs of the next step */
    CUstream comm_stream; /* exchanges between ranks; NULL: one rank */
    struct RtCudaRanks *ranks; /* nccl.h; NULL: one rank */
    VEC(CUmodule) kernel_modules;
    CUmodule program_module;
    Map functions;      /* Sym -> CUfunction of our own kernels */
    RtCudaFused *fused; /* by StepProgram's index */
    RtCudaMapped arena, tables;
    CUdeviceptr control;     /* RtCudaControl (control.h), in `tables` */
    int64_t *fault_device;   /* device address: RT_CUDA_FAULT_WORDS words, in it */
    void *library_workspace; /* in the arena; what matrix products may use */
    uint64_t library_workspace_bytes;
    struct RtCudaGemms *gemms;
    RtCudaLine line[RT_CUDA_LINES];
    uint32_t n_lines;
    uint64_t free_bytes; /* of the device when last measured */
    bool rehearsing;     /* launch functions run, but launch nothing: names are resolved, products
                            collected */
    bool lost;           /* an error after which the device answers no more; it has been said */
} RtCuda;

/* One diagnostic for a call that failed, and STATUS_ENV. what: "launching `adamw`". */
Status rt_cuda_result(RtCuda *cuda, CUresult result, const char *what);
Status rt_cublas_result(RtCuda *cuda, cublasStatus_t result, const char *what);

/* -- launching; all of it does nothing on the device while rehearsing -- */

/* An `extern "C" __global__` function of runtime/kernels/cuda/. That it is not there is a bug of
 * ours, and aborts. */
CUfunction rt_cuda_function(RtCuda *cuda, const char *name);

typedef struct RtCudaShape {
    uint32_t grid, grid_y, grid_z; /* y, z: 0 counts as 1 */
    uint32_t threads;
    uint32_t shared_bytes; /* dynamic; above 48 KiB the function's limit is raised */
} RtCudaShape;

/* args: addresses of the parameters in order, as cuLaunchKernel takes them. Device addresses are
 * kept as pointers, so
 * `(void *)&call->at[i]` is one. */
Status rt_cuda_start(RtCuda *cuda, CUfunction function, RtCudaShape shape, void **args);
Status rt_cuda_start_named(RtCuda *cuda, const char *name, RtCudaShape shape, void **args);

/* Fills bytes of device memory, on the stream. */
Status rt_cuda_fill(RtCuda *cuda, void *at, unsigned char byte, uint64_t bytes);

/* The instruction's number in its list, for a fault's word 4. */
int64_t rt_cuda_number(const RtCuda *cuda, const RtCall *call);

/* -- kernels: a launch function per row of kernels.def; device addresses in call->at,
 * call->workspace, call->random -- */

#define KERNEL(name, ...) Status rt_cuda_launch_##name(RtCuda *cuda, const RtCall *call);
#include "runtime/abi/kernels.def"
#undef KERNEL

/* Consecutive calls of one kernel that touch nothing of each other run as one launch, from a table
 * in device memory that is written once, at load. Results are those of the calls one by one, bit
 * for bit. */
typedef struct RtCudaGroupKernel {
    uint64_t (*table_bytes)(const RtCall *calls, uint32_t n);
    /* out_table: host memory, zeroed, table_bytes long; table: the device address that it will
     * have, 256-byte aligned */
    void (*table_fill)(const RtCall *calls, uint32_t n, void *out_table, void *table);
    Status (*launch)(RtCuda *cuda, const RtCall *calls, uint32_t n, void *table);
    uint32_t writes; /* bit t: the kernel writes its tensor t */
    bool workspace;  /* it uses the calls' workspaces; else its table has room for what they would
                        hold */
} RtCudaGroupKernel;

typedef struct RtCudaKernel {
    Status (*launch)(RtCuda *cuda, const RtCall *call);
    const RtCudaGroupKernel *group; /* NULL: one by one */
} RtCudaKernel;

extern const RtCudaKernel rt_cuda_kernels[PLAN_KERNEL_COUNT]; /* table.c */
/* launch_optimizer.c, launch_reduce.c */
extern const RtCudaGroupKernel rt_cuda_group_adamw, rt_cuda_group_sgd, rt_cuda_group_norm_sq;

/* -- matrix products -- */

/* Row-major C[m,n] = alpha A B + beta C (+ bias[n]), accumulated in f32 (f64 where an operand is
 * f64), rounded once. */
typedef struct RtGemm {
    int64_t m, n, k;
    bool ta, tb;              /* A is stored [k,m]; B is stored [n,k] */
    const void *a, *b, *bias; /* device addresses; bias NULL: none */
    void *c;
    int64_t lda, ldb, ldc; /* elements from one stored row to the next; 0: dense */
    DType a_type, b_type, c_type, bias_type;
    double alpha, beta;
    int64_t batch; /* 0 counts as 1: so many products, these elements apart */
    int64_t stride_a, stride_b, stride_c;
} RtGemm;

/* On the stream, with the algorithm that is bound to the product's shape, the same for all products
 * of that shape. Algorithms are bound at load, for all products of the rehearsal; a product that
 * was not in it binds its own. */
Status rt_cuda_gemm(RtCuda *cuda, const RtGemm *gemm);

#endif
