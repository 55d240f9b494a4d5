/* plan_map: a plan's bytes as typed tables, after every index and range in them has been
 * checked. */
#ifndef RUNTIME_PLAN_MAP_H
#define RUNTIME_PLAN_MAP_H

#include "base/dtype.h"
#include "base/session.h"
#include "runtime/abi/plan.h"

typedef struct RtPlan {
    const PlanHeader *header;
    const PlanInstr *instrs, *eval_instrs;
    const PlanTensor *tensors;
    const PlanParam *params;
    const PlanRange *deaths;
    const PlanState *states;
    const PlanInput *inputs;
    const PlanKept *kept;
    const PlanGrad *grads;
    const PlanOutside *outside;
    const PlanComm *comms;
    const PlanPiece *pieces;
    const char *strings;
    uint64_t n_instrs, n_eval_instrs, n_tensors, n_params, n_deaths, n_states, n_inputs, n_kept,
        n_grads, n_outside, n_comms, n_pieces, n_strings;
    const struct RtPlan *all; /* of a pipeline: the plans of all stages; else this one */
    uint32_t n_all;
} RtPlan;

/* Checks everything that running relies on: magic, version, hash, table bounds, string terminators,
 * tensors and workspaces within the arena, kernels' tensor and parameter counts, shapes against the
 * kernels' own formulas. A bad plan is one diagnostic that names the record, and STATUS_ENV. */
Status rt_plan_map(Session *s, const void *bytes, uint64_t n_bytes, uint64_t n_native_kernels,
                   RtPlan *out_plan);

/* All plans of a program, one per stage of its pipeline; all of them in memory of the session. */
Status rt_plans_map(Session *s, const StepProgram *program, const RtPlan **out_plans);
/* Of all plans together: what ranks compare. */
uint64_t rt_plans_hash(const RtPlan *plans);

static inline const char *rt_plan_string(const RtPlan *plan, uint32_t at)
{
    return plan->strings + at;
}

/* Of a source file, for messages. */
static inline const char *rt_plan_file(const RtPlan *plan, uint32_t at)
{
    return plan->strings[at] ? plan->strings + at : "(no source)";
}

/* Bytes from a tensor's first element to the end of its last one. */
static inline uint64_t rt_tensor_bytes(const PlanTensor *t)
{
    int64_t extent = (t->numel - 1) / t->run * t->pitch + (t->numel - 1) % t->run + 1;
    return (uint64_t)extent * dtype_bytes((DType)t->dtype);
}

#endif
