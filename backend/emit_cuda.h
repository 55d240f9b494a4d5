/* emit_cuda: a formula as CUDA kernels. A region without reductions is walked flat, a thread per
 * few elements; else a row belongs to some threads of one block, each of which keeps its elements
 * in registers from sweep to sweep. The cut and the order of sums are runtime/abi/fused_cuda.h's.
 */
#ifndef BACKEND_EMIT_CUDA_H
#define BACKEND_EMIT_CUDA_H

#include "backend/emit_llvm.h"
#include "runtime/abi/fused_cuda.h"

typedef struct EmitDevice {
    EmitCode code;
    bool
        emulated; /* what a device has and a host has not is a call of `emulated_NAME`: for tests */
} EmitDevice;

/* Adds a region's kernels to the module, named after `name`; the names are the arena's. */
StepCudaKernel emit_cuda_kernel(EmitDevice *d, const EmitFormula *f, const char *name,
                                Arena *arena);

/* -- shared by the emit_cuda_*.c files: the device's own instructions (emit_cuda_device.c) -- */

LLVMValueRef cuda_thread_index(EmitDevice *d); /* i32 */
LLVMValueRef cuda_block_index(EmitDevice *d);
void cuda_barrier(EmitDevice *d);
LLVMValueRef cuda_exchange(EmitDevice *d, LLVMValueRef x,
                           uint32_t distance); /* with thread ^ distance of the warp */
LLVMValueRef cuda_pack_bf16(EmitDevice *d, LLVMValueRef x,
                            uint32_t lanes); /* rounds f32; two to an i32; 1 lane: i16 */
LLVMValueRef cuda_unpack_bf16(EmitCode *c, LLVMValueRef words, uint32_t lanes);

/* 1 / x for f32 from 1 to below 2^125: the bits of a division. */
LLVMValueRef cuda_reciprocal(EmitDevice *d, LLVMValueRef x, uint32_t lanes);
LLVMValueRef cuda_sigmoid(EmitDevice *d, LLVMValueRef x, uint32_t lanes); /* of f32 */

LLVMValueRef cuda_shared(EmitDevice *d); /* the launch's dynamic shared memory */
LLVMValueRef cuda_shared_array(EmitDevice *d, const char *name, uint32_t bytes);

/* An entry with the parameters of plan.h's StepCudaKernel; the builder is in it. */
LLVMValueRef cuda_entry(EmitDevice *d, const EmitFormula *f, const char *name, uint32_t threads);

/* Small things about vectors, control flow and addresses. */
LLVMValueRef cuda_splat(EmitCode *c, LLVMValueRef scalar, uint32_t lanes);
LLVMValueRef cuda_concat(EmitCode *c, const LLVMValueRef *pieces, uint32_t n);
LLVMValueRef cuda_part(EmitCode *c, LLVMValueRef all, uint32_t first, uint32_t n);
LLVMValueRef cuda_lane(EmitCode *c, LLVMValueRef all,
                       uint32_t lane); /* all: a vector, or its one lane */
LLVMBasicBlockRef cuda_begin_if(EmitCode *c, LLVMValueRef condition); /* NULL: no condition */
void cuda_end_if(EmitCode *c, LLVMBasicBlockRef on);
LLVMValueRef cuda_and(EmitCode *c, LLVMValueRef a, LLVMValueRef b); /* NULL is true */
LLVMValueRef cuda_bytes_behind(EmitCode *c, LLVMValueRef pointer, LLVMValueRef bytes);
DType cuda_memory_dtype(EmitElem elem);

/* -- a kernel's walk -- */

enum { CUDA_MOST_PIECES = 8 };

typedef struct CudaRaw { /* some elements as they were loaded, in pieces of up to 16 bytes */
    LLVMValueRef piece[CUDA_MOST_PIECES];
    uint32_t n;
} CudaRaw;

typedef struct CudaRow {   /* what all threads of a row have in common */
    LLVMValueRef r;        /* its index */
    LLVMValueRef *uniform; /* by node */
} CudaRow;

typedef struct CudaStep { /* a group of neighbouring elements of a row */
    CudaRow *row;
    LLVMValueRef group;  /* elements group * lanes ... of the row */
    LLVMValueRef whole;  /* the group's index in the whole space, or NULL */
    LLVMValueRef inside; /* whether it exists; NULL: it does. Its indices are valid all the same */
    struct CudaStep *partner,
        *neighbour;      /* group + groups / 2, cyclic; group ^ 1; made when asked for */
    LLVMValueRef *memo;  /* by node: its lanes */
    LLVMValueRef *words; /* by node: the same packed, where it is rounded to bf16 */
    CudaRaw *raw;        /* by node: a load's elements */
    bool *issued;        /* by node: the loads below it have been */
    bool foreign;        /* another thread's, computed here once more */
} CudaStep;

typedef struct CudaWalk {
    EmitDevice *d;
    EmitCode *c;
    const EmitFormula *f;
    Arena *arena;
    int64_t rows, cols, groups; /* groups of lanes in a row */
    uint32_t lanes;
    LLVMTypeRef index; /* i32 where that reaches every element */
    LLVMValueRef fn, thread, workspace, random;
    LLVMValueRef *base; /* by tensor */
} CudaWalk;

/* emit_cuda_walk.c */
void cuda_walk_begin(CudaWalk *w, const char *name, uint32_t threads);
LLVMValueRef cuda_number(const CudaWalk *w, int64_t value);
LLVMValueRef cuda_index(const CudaWalk *w, LLVMValueRef i32);
CudaRow *cuda_row(CudaWalk *w, LLVMValueRef r);
CudaStep *cuda_step(CudaWalk *w, CudaRow *row, LLVMValueRef group);
/* Starts all loads that the stores and sums need of a step; what comes from other steps included.
 */
void cuda_issue_loads(CudaWalk *w, CudaStep *step);
LLVMValueRef cuda_value(CudaWalk *w, CudaStep *step, uint32_t node); /* its lanes */
LLVMValueRef cuda_uniform(CudaWalk *w, CudaRow *row, uint32_t node);
/* The stores of one stage, of a thread's steps in a row; leader: whether it is the thread that
 * writes one element per row, NULL: yes. */
void cuda_stores(CudaWalk *w, CudaStep *const *steps, uint32_t n, uint32_t stage,
                 LLVMValueRef leader);

/* emit_cuda_memory.c */
void cuda_load(CudaWalk *w, const CudaStep *step, const EmitAccess *at, CudaRaw *out);
LLVMValueRef cuda_loaded(CudaWalk *w, const CudaRaw *raw, const EmitAccess *at);
LLVMValueRef cuda_load_one(CudaWalk *w, const CudaRow *row, const EmitAccess *at);
void cuda_store(CudaWalk *w, const CudaStep *step, const EmitAccess *at, LLVMValueRef value,
                LLVMValueRef words);
void cuda_store_one(CudaWalk *w, const CudaRow *row, const EmitAccess *at, LLVMValueRef value);
/* `lanes` neighbours at a pointer that is aligned to `align` bytes. words: value packed, or NULL.
 */
LLVMValueRef cuda_read(EmitCode *c, DType dtype, LLVMValueRef at, uint32_t lanes, uint32_t align);
void cuda_write(EmitCode *c, DType dtype, LLVMValueRef at, LLVMValueRef value, LLVMValueRef words,
                uint32_t lanes, uint32_t align);

/* emit_cuda_rows.c */
void cuda_emit_flat(CudaWalk *w, const char *name, StepCudaKernel *out);
void cuda_emit_rows(CudaWalk *w, const char *name, StepCudaKernel *out);
/* emit_cuda_columns.c: adds the chunks of the workspace */
void cuda_emit_columns(CudaWalk *w, const char *name, StepCudaKernel *out);

#endif
