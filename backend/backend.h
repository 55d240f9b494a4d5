/* backend: a PLANNED module to a step executable: kernels by LLVM, the plan's bytes, and the
 * system's linker. */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include "ir/ir.h"
#include "runtime/abi/plan.h"

typedef struct BackendFlops { /* by op index (cost model) */
    const uint64_t *step, *eval; /* of @step's ops, of @eval's */
} BackendFlops;

typedef struct BackendOptions {
    PlanTarget target;
    const char *cpu;         /* `host` or an LLVM cpu name such as x86-64-v3 */
    const char *runtime_lib; /* path of libsteprt.a */
    const char *cuda_lib;    /* target cuda: path of libsteprt_cuda.a */
    const char *out_path;    /* X.step; appears by rename */
    const char *settings_json, *report_json, *config_json; /* strings that the plan carries */
    const char *dump_llvm;   /* directory for .ll files, or NULL */
    const BackendFlops *flops; /* by stage (one without a pipeline), or NULL */
    uint64_t flops_per_step;   /* of one rank, on average */
} BackendOptions;

/* The plan's bytes alone (also what tests mutate): of a pipeline, all stages' plans one behind
 * the other. */
Status backend_plan_bytes(Session *s, IrModule *m, const BackendOptions *options,
                          unsigned char **out_bytes, uint64_t *out_n_bytes);
/* The kernels' PTX, target cuda; "" where there are none. */
Status backend_ptx(Session *s, IrModule *m, const char **out_text);
/* Is `cpu` a processor's name that code can be made for? An error at `span` if not. */
Status backend_check_cpu(Session *s, const char *cpu, Span span);
Status backend_build(Session *s, IrModule *m, const BackendOptions *options);

#endif
