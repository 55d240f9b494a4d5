/* plan: the layout that the compiler writes and the runtime maps: a header, then tables of fixed
 * records. Every address is an offset into one arena; every name an offset into the string
 * table. All integers little-endian, records 8-byte aligned. The runtime checks every index and
 * range before it trusts one (runtime/plan_check.c). */
#ifndef RUNTIME_ABI_PLAN_H
#define RUNTIME_ABI_PLAN_H

#include <stdint.h>

enum { PLAN_MAGIC = 0x70657473 /* "step" */, PLAN_VERSION = 3, PLAN_MAX_RANK = 5 };

#define PLAN_ABSENT UINT64_MAX

/* -- kernels: what an instruction may run; one row each in kernels.def -- */

typedef enum PlanKernel {
#define KERNEL(name, ...) PLAN_KERNEL_##name,
#include "runtime/abi/kernels.def"
#undef KERNEL
    PLAN_KERNEL_COUNT
} PlanKernel;

/* Parameter indices, by kernel: PLAN_gemm_m is the index of gemm's parameter m. */
#define P(kernel, name) PLAN_##kernel##_##name,
#define KERNEL(name, doc, tensors, params, workspace) enum { params PLAN_##name##_PARAMS };
#include "runtime/abi/kernels.def"
#undef KERNEL
#undef P

/* Tensor indices, by kernel: PLAN_T_gemm_c is the index of gemm's tensor c. */
#define T(kernel, name) PLAN_T_##kernel##_##name,
#define KERNEL(name, doc, tensors, params, workspace) enum { tensors PLAN_T_##name##_TENSORS };
#include "runtime/abi/kernels.def"
#undef KERNEL
#undef T

typedef union PlanParam {
    int64_t i;
    double f;
} PlanParam;

/* Element e (row-major) of a tensor is at element (e / run) * pitch + e % run from its start.
 * Contiguous: run = pitch. */
typedef struct PlanTensor {
    /* bytes into the arena; PLAN_ABSENT: not given, or a result that nobody reads */
    uint64_t offset;
    int64_t numel, run, pitch;
    uint32_t dtype; /* DType */
    uint32_t name;  /* value or state, with its sigil */
} PlanTensor;

typedef struct PlanInstr {
    uint32_t kernel; /* PlanKernel */
    uint32_t code;   /* kernel `fused`: index into the executable's native kernels */
    uint32_t first_tensor, n_tensors;
    uint32_t first_param, n_params;
    uint32_t first_death, n_deaths; /* buffers whose life ends here: what --check fills with NaN */
    uint64_t workspace, workspace_bytes; /* in the arena; PLAN_ABSENT, 0: none */
    uint32_t name;  /* op path: `model.layers.3/attention %q`, for messages and profiles */
    uint32_t file, line; /* of the model's source */
    uint32_t instance;   /* micro-batch */
    uint32_t phase;      /* PlanPhase */
    uint32_t replay;     /* 1: recomputed ops alone */
    uint64_t flops;
} PlanInstr;

typedef enum PlanReduce { PLAN_SUM, PLAN_MAX } PlanReduce;

typedef enum PlanTarget { PLAN_TARGET_CPU, PLAN_TARGET_CUDA } PlanTarget;

typedef enum PlanPhase { PLAN_BEGIN, PLAN_FWD, PLAN_BWD, PLAN_UPDATE, PLAN_EVAL } PlanPhase;

typedef struct PlanRange { /* a piece of the arena */
    uint64_t offset, bytes;
    uint32_t dtype, name;
} PlanRange;

typedef struct PlanState {
    uint32_t name;      /* checkpoint name, without `$`; `NAME.exp_avg` for a moment */
    uint32_t kind;      /* IrStateKind's value: PLAN_STATE_* below */
    uint32_t dtype, rank;
    int64_t dim[PLAN_MAX_RANK];
    uint64_t offset, bytes;
    /* index of the parameter that a moment or master belongs to; own index for a parameter */
    uint32_t of;
    uint32_t trainable;
    uint32_t init;      /* IrInitKind's value */
    uint32_t group;     /* optimizer group */
    double init_value;
    uint32_t file, line;
} PlanState;

enum {
    PLAN_STATE_PARAM,
    PLAN_STATE_BUFFER,
    PLAN_STATE_MASTER,
    PLAN_STATE_MOMENT1,
    PLAN_STATE_MOMENT2,
    PLAN_STATE_ACC,
    PLAN_STATE_SCALAR
};

/* -- more than one rank: world = pp * dpr * dp * tp ranks; rank = ((stage * dpr + r) * dp + d) *
 * tp + t. Each stage has a plan of its own; a program's plans stand one behind the other, in the
 * order of the stages. Every rank of a stage runs its plan; what depends on a rank's coordinates
 * (members of communicators, pieces of states, rows of the batch) the runtime derives from them
 * -- */

typedef struct PlanMesh { /* 0 is 1; PLAN_MOST_RANKS at most */
    uint32_t tp, dp, dpr, pp;
} PlanMesh;

enum { PLAN_MOST_RANKS = 4096 }; /* of an executable: every process holds a link to every other */

enum { PLAN_AXIS_TP = 1, PLAN_AXIS_DP = 2, PLAN_AXIS_DPR = 4, PLAN_AXIS_PP = 8 };

/* The ranks that differ in these axes alone, in the order of their ranks. With a `group`, each
 * run of so many neighbours among them is a communicator of its own (tp ranks that hold the same
 * kv heads). With `stages`, of those along pp only the ones whose bit is set. */
typedef struct PlanComm {
    uint32_t axes; /* PLAN_AXIS_* */
    uint32_t name;
    uint32_t group, pad; /* 0: all */
    uint64_t stages;     /* 0: all */
} PlanComm;

/* Which part of a checkpoint's tensor a state holds. A state without pieces is whole, and equal
 * on all ranks.
 *
 * By tp, dim `split` is outer * parts * chunk * inner, of which a rank has
 * [outer][chunk][inner]: part t * parts / tp (fewer parts than tp: several ranks have the same
 * one). With outer 1 the last parts may reach beyond the dim: that is padding, zero. By `flat`
 * axes, the state of member d is elements [d * n, (d + 1) * n), n the state's own numel, of the
 * unit's pieces laid one after the other at `begin`, each the tp-local tensor, row-major; what
 * no piece covers is padding. Pieces of one state stand together, in the order of the states. */
typedef struct PlanPiece {
    uint32_t state;
    /* the parameter's or buffer's; a moment's file name follows from the state's kind */
    uint32_t name;
    uint32_t flat; /* PLAN_AXIS_DP | PLAN_AXIS_DPR; 0: the state is the whole unit, tp-local */
    uint32_t rank; /* of the whole tensor, and */
    int64_t dim[PLAN_MAX_RANK];
    uint32_t split; /* the dim that tp divides; PLAN_WHOLE: none */
    /* A stage of a pipeline may have only a run of one dim, [narrow_begin, narrow_begin +
     * narrow_size); PLAN_WHOLE: all of it. tp does not divide such a tensor. */
    uint32_t narrow;
    int64_t narrow_begin, narrow_size;
    int64_t outer, parts, chunk, inner; /* with PLAN_WHOLE: 1 each, not read */
    int64_t begin, numel; /* in the unit; of the tp-local tensor */
    uint32_t init, kind;  /* IrInitKind's value; PLAN_STATE_PARAM or PLAN_STATE_BUFFER */
    double init_value;
    uint32_t file, line;
} PlanPiece;

#define PLAN_WHOLE UINT32_MAX

enum { PLAN_FLAT_ALIGN = 32 }; /* elements: where pieces of a flat buffer may begin */

static inline int64_t plan_flat_next(int64_t end)
{
    return (end + PLAN_FLAT_ALIGN - 1) / PLAN_FLAT_ALIGN * PLAN_FLAT_ALIGN;
}

/* What a step reads: [micro_batches, batch, seq] of i32, one piece of the arena per input. */
typedef struct PlanInput {
    uint32_t name; /* input_ids, targets, positions, segments, keep */
    uint32_t dtype, rank;
    uint32_t stride_bytes; /* from one micro-batch to the next */
    int64_t dim[PLAN_MAX_RANK]; /* of one micro-batch */
    uint64_t offset;
    uint32_t eval; /* 1: read by the eval list, which uses micro-batch 0's piece */
    uint32_t pad;
} PlanInput;

typedef struct PlanKept { /* a value kept at build (--keep), for --dump-values */
    PlanTensor tensor;
    uint32_t rank, pad;
    int64_t dim[PLAN_MAX_RANK];
} PlanKept;

/* a parameter's gradient in the step's last instance, for --dump-grads; before clipping */
typedef struct PlanGrad {
    uint32_t state;
    /* the state whose pieces the gradient has; one without pieces: it is whole, like `state` */
    uint32_t layout;
    PlanTensor tensor;
} PlanGrad;

/* memory outside the arena, a line each: what it is for, and its planned bytes */
typedef struct PlanOutside {
    uint32_t name, pad;
    uint64_t bytes;
} PlanOutside;

typedef struct PlanTable {
    uint64_t offset, count; /* from the plan's first byte */
} PlanTable;

/* Scalars in the arena that the host reads and writes between steps; byte offsets. */
typedef struct PlanScalars {
    uint64_t lr;       /* f32, written before each step */
    uint64_t step;     /* i64, updates done so far */
    uint64_t seed;     /* i64 */
    uint64_t count;    /* i64, targets of the global batch */
    uint64_t inverse;  /* f32 */
    uint64_t loss_sum; /* f64 */
    uint64_t loss;     /* f64, mean over the targets */
    uint64_t norm;     /* f64, gradient norm before clipping */
    uint64_t coef;     /* f32, clip coefficient; 0: the update was skipped */
    uint64_t skipped;  /* i64, updates skipped in a row */
    uint64_t eval_sum;   /* f64, sum of losses of the eval list */
    uint64_t sample0;  /* i64, index of the step's first sample in the run, for random keys */
} PlanScalars;

typedef struct PlanHeader {
    uint32_t magic, version;
    uint64_t total_bytes;
    uint64_t arena_bytes;
    uint64_t hash; /* of everything behind the header */
    int64_t micro_batches, batch, seq; /* of one rank */
    uint64_t flops_per_step;
    uint64_t thread_scratch_bytes; /* target cpu: per worker thread, outside the arena */
    /* target cuda: in the arena, for matrix products */
    uint64_t library_workspace, library_workspace_bytes;
    uint32_t target; /* PlanTarget */
    uint32_t stage;  /* of a pipeline: below mesh.pp */
    /* strings: the definition's name; the config.json that a save writes */
    uint32_t model, model_config;
    /* string: JSON, the recipe as the runtime needs it (docs/recipes.md) */
    uint32_t settings;
    /* string: JSON, what `stepc plan --json` prints, for --describe */
    uint32_t report;
    PlanScalars scalars;
    PlanTable instrs;      /* PlanInstr: one training step */
    PlanTable eval_instrs; /* PlanInstr: one forward over micro-batch 0's inputs */
    PlanTable tensors, params, deaths; /* PlanTensor, PlanParam, PlanRange */
    PlanTable states, inputs, kept, grads, outside;
    PlanMesh mesh;
    PlanTable comms, pieces;
    PlanTable strings;     /* bytes, each string NUL-terminated; the first is empty */
} PlanHeader;

/* -- native code: what the compiler links into the executable beside the plan -- */

/* Runs rows [row, row_end) of a fused region. tensors[i] is the base address of the
 * instruction's tensor i (NULL if absent); partials: this chunk's row of the workspace for
 * column sums, or NULL. random: step, seed, sample0. params: the instruction's own: none, or for
 * a region that draws random numbers its micro-batch, then the key of each random op in the
 * region's order. */
typedef void (*StepRowFn)(void *const *tensors, int64_t row, int64_t row_end, void *partials,
                          const int64_t *random, const PlanParam *params);
/* Adds the chunks' partials in chunk order into columns [col, col_end) of the column results. */
typedef void (*StepColumnFn)(void *const *tensors, int64_t col, int64_t col_end,
                             const void *workspace, int64_t n_chunks);

typedef struct StepKernel {
    const char *name;
    StepRowFn rows_fn;
    StepColumnFn cols_fn; /* NULL: no column results */
    int64_t rows, rows_per_chunk;
    int64_t cols;          /* columns of the widest column result */
    int64_t partial_bytes; /* of one chunk's partials */
} StepKernel;

/* The same for target cuda: an entry of the executable's device image. Its parameters are one
 * device pointer per tensor of the instruction (NULL: absent), then the workspace (chunk
 * partials), then the three random words (step, seed, first sample) in device memory, then the
 * instruction's own parameters, 64 bits each; both entries take the same. Fixed launch shapes: a
 * block owns rows or columns by its index alone. */
typedef struct StepCudaKernel {
    const char *name, *cols_name; /* cols_name NULL: no column results */
    uint32_t grid, threads, shared_bytes;
    uint32_t cols_grid, cols_threads;
} StepCudaKernel;

typedef struct StepProgram { /* the executable's one exported object: `step_program` */
    const void *plan; /* of a pipeline: all stages' plans */
    uint64_t plan_bytes;
    const StepKernel *kernels;           /* target cpu */
    const StepCudaKernel *cuda_kernels;  /* target cuda; n_kernels of either */
    uint64_t n_kernels;
    const void *image; /* target cuda: cubin, or PTX that the driver compiles at load */
    uint64_t image_bytes;
} StepProgram;

extern const StepProgram step_program;

#endif
