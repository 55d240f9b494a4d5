/* exec: an instruction list prepared to run: addresses resolved, phases and chunks counted, nothing
 * left to decide. */
#ifndef RUNTIME_EXEC_H
#define RUNTIME_EXEC_H

#include "runtime/arena_map.h"
#include "runtime/kernel.h"
#include "runtime/plan_map.h"
#include "runtime/pool.h"

typedef struct RtJob { /* one phase of one instruction */
    void (*run)(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch);
    const RtCall *call;
    uint64_t chunks;
    uint32_t phase;
} RtJob;

typedef struct RtExec {
    const PlanInstr *instrs;
    uint64_t n_instrs;
    RtCall *calls;       /* one per instruction */
    RtJob *jobs;         /* in order */
    uint32_t *first_job; /* of each instruction; n_instrs + 1 */
    RtFault *fault;
    uint64_t table_bytes; /* of all the above */
} RtExec;

typedef struct RtExecRequest {
    const RtPlan *plan;
    const PlanInstr *instrs; /* of the plan */
    uint64_t n_instrs;
    const StepProgram *program;
    const RtKernel *kernels; /* PLAN_KERNEL_COUNT of them */
    const RtArena *arena;
    struct RtGroup *groups; /* by the plan's comms */
    const int64_t *random; /* step, seed, first sample; read while running */
    RtFault *fault;
} RtExecRequest;

/* Who the instruction exchanges with, or among whom its rank's place matters; NULL: nobody.
 * groups: by the plan's comms; NULL: one rank. */
struct RtGroup *rt_instr_group(const RtPlan *plan, struct RtGroup *groups, const PlanInstr *instr);

Status rt_exec_prepare(Session *s, const RtExecRequest *request, RtExec *out_exec);

/* What looks on: called after every instruction of rt_exec_run_watched. */
typedef void (*RtWatchFn)(void *context, uint64_t instr);

/* Runs instructions [from, to). False: a kernel raised a fault; *out_instr is the instruction.
 * Allocates nothing. */
bool rt_exec_run(const RtExec *exec, uint64_t from, uint64_t to, RtPool *pool, uint64_t *out_instr);
bool rt_exec_run_watched(const RtExec *exec, uint64_t from, uint64_t to, RtPool *pool,
                         RtWatchFn watch, void *context, uint64_t *out_instr);

#endif
