/* control: a small block of device memory that goes to the device before a step and comes back
 * after it. Shared with runtime/kernels/cuda/control.cu. */
#ifndef RUNTIME_CUDA_CONTROL_H
#define RUNTIME_CUDA_CONTROL_H

#include <stdint.h>

enum { RT_CUDA_SCALARS = 12, RT_CUDA_CONTROL_FAULT_WORDS = 8 };

typedef struct RtCudaControl {
    int64_t random[3]; /* step, seed, first sample: what RtCall.random points at */
    uint64_t set;      /* bit i: scalar i of `in` goes into the arena when the step begins */
    uint64_t in[RT_CUDA_SCALARS];  /* the scalars' bits, in the order of PlanScalars */
    uint64_t out[RT_CUDA_SCALARS]; /* as they are when the step ends */
    int64_t fault[RT_CUDA_CONTROL_FAULT_WORDS];
    int64_t nonfinite[3]; /* --check: 1 where one was found, the instruction, its tensor */
    int64_t begin_ns, end_ns; /* by the device's clock: the step's first and last kernel */
    int64_t mark; /* 1 + the instruction whose exchange with other ranks began last */
} RtCudaControl;

typedef struct RtCudaScalars { /* a kernel's parameter: where the scalars are, 0 where there is
                                  none, and their sizes */
    uint64_t at[RT_CUDA_SCALARS];
    uint32_t bytes[RT_CUDA_SCALARS];
} RtCudaScalars;

typedef struct RtCudaTensor { /* a kernel's parameter: element e is at (e / run) * pitch + e % run
                               */
    int64_t numel, run, pitch;
    uint64_t mask;  /* the exponent's bits of an element */
    uint32_t bytes; /* of an element */
    uint32_t pad;
} RtCudaTensor;

#endif
