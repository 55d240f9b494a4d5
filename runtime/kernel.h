/* kernel: what the executor calls. A kernel runs in phases with a barrier between; a phase is
 * chunks that are cut from shapes alone, never from the number of threads, and may run in any order
 * on any worker. */
#ifndef RUNTIME_KERNEL_H
#define RUNTIME_KERNEL_H

#include "runtime/abi/plan.h"

typedef struct RtCall {
    const PlanInstr *instr;
    const PlanTensor *tensor;
    const PlanParam *param;
    void *const *at; /* base address per tensor; NULL: absent */
    void *workspace;
    const StepKernel *code; /* kernel `fused` */
    const int64_t *random;  /* step, seed, index of the step's first sample */
    struct RtGroup *group; /* of kernels with a parameter `comm`; NULL: one rank */
    uint32_t member;       /* this rank's place in it */
    struct RtFault *fault; /* where a kernel reports what stops the run (an id outside its table) */
} RtCall;

typedef struct RtFault { /* first one wins; see rt_fault_raise */
    int raised;
    char message[240];
} RtFault;

void rt_fault_raise(RtFault *fault, const char *format, ...) __attribute__((format(printf, 2, 3)));

typedef struct RtKernel {
    const char *name;
    uint32_t (*phases)(const RtCall *call);                 /* NULL: one */
    uint64_t (*chunks)(const RtCall *call, uint32_t phase); /* NULL: one */
    /* scratch: this worker's own, header.thread_scratch_bytes, 64-byte aligned */
    void (*run)(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch);
    void (*start)(uint32_t threads); /* NULL: nothing. Once before the first step: takes what a
                                      * library would else allocate in its midst */
} RtKernel;

extern const RtKernel rt_kernels[PLAN_KERNEL_COUNT]; /* runtime/kernels/cpu/table.c */
extern const RtKernel rt_kernel_fused;               /* runtime/fused.c; the table's row `fused` */

#endif
