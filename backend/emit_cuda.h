/* emit_cuda: a formula as CUDA kernels. A region without reductions is walked flat, a thread per few elements; else a
 * row belongs to some threads of one block, each of which keeps its elements in registers from sweep to sweep. The cut
 * and the order of sums are runtime/abi/fused_cuda.h's. */
#ifndef BACKEND_EMIT_CUDA_H
#define BACKEND_EMIT_CUDA_H

#include "backend/emit_llvm.h"
#include "runtime/abi/fused_cuda.h"

typedef struct EmitDevice {
    EmitCode code;
    bool emulated; /* what a device has and a host has not is a call of `emulated_NAME`: for tests */
} EmitDevice;

/* Adds the kernels to the module; names are the arena's. */
StepCudaKernel emit_cuda_kernel(EmitDevice *d, const EmitFormula *f, Arena *arena, const char *name);

/* -- shared by the emit_cuda_*.c files -- */

enum { CUDA_MOST_PIECES = 8, CUDA_FLAT_STEPS = 2 };

typedef struct CudaRaw { /* some elements as they were loaded, in pieces of up to 16 bytes */
    LLVMValueRef piece[CUDA_MOST_PIECES];
    uint32_t n;
} CudaRaw;

typedef struct CudaRow { /* what all threads of a row have in common */
    LLVMValueRef r;        /* its index */
    LLVMValueRef *uniform; /* by node */
} CudaRow;

/* One group of neighbouring elements of a row. */
typedef struct CudaStep {
    const CudaRow *row;
    LLVMValueRef group;  /* elements group * lanes ... of the row */
    LLVMValueRef whole;  /* the group's index in the whole space, or NULL */
    LLVMValueRef inside; /* whether it exists, where that is a question; else NULL. Its indices are valid all the same */
    struct CudaStep *partner, *neighbour; /* group + groups / 2, cyclic; group ^ 1; made when asked for */
    LLVMValueRef *memo;  /* by node: its lanes */
    LLVMValueRef *words; /* by node: the same packed, where it is rounded to bf16 */
    CudaRaw *raw;        /* by node */
} CudaStep;

typedef struct CudaWalk {
    EmitDevice *d;
    EmitCode *c;
    const EmitFormula *f;
    Arena *arena;
    int64_t rows, cols, groups; /* groups of lanes in a row */
    uint32_t lanes;
    LLVMTypeRef index; /* i32 where that is enough for every element of every tensor */
    LLVMValueRef fn, thread, workspace, random;
    LLVMValueRef *base; /* by tensor */
    bool *needed;       /* by node: something that is stored or summed depends on it */
    uint32_t shared_bytes;
} CudaWalk;

/* emit_cuda_device.c: the device's own instructions, and control flow */

LLVMValueRef cuda_pointer_type(EmitCode *c, uint32_t space, LLVMTypeRef *out_type);
LLVMValueRef cuda_thread_index(EmitDevice *d);
LLVMValueRef cuda_block_index(EmitDevice *d);
void cuda_barrier(EmitDevice *d);
LLVMValueRef cuda_exchange(EmitDevice *d, LLVMValueRef x, uint32_t distance); /* with thread ^ distance of the warp */
LLVMValueRef cuda_round_words(EmitDevice *d, LLVMValueRef x, uint32_t lanes); /* f32 to packed bf16 */
LLVMValueRef cuda_shared(EmitDevice *d); /* the block's dynamic shared memory */

