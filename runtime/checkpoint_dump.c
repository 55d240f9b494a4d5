#include "runtime/checkpoint.h"

/* A tensor of the plan: its own memory, or a view of it. */
static RtOutTensor dumped(const char *name, const PlanTensor *tensor, uint32_t rank,
                          const int64_t *dim, const unsigned char *arena)
{
    RtOutTensor out = rt_out_tensor(name, (DType)tensor->dtype, rank, dim, arena + tensor->offset);
    out.run_bytes = (uint64_t)tensor->run * out.element_bytes;
    out.pitch_bytes = (uint64_t)tensor->pitch * out.element_bytes;
    return out;
}

Status rt_dump_grads(Session *s, const RtPlan *plan, const unsigned char *arena,
                     const RtWeights *weights, const char *path)
{
    Arena *scratch = arena_new();
    VEC(RtOutTensor) out = {0};
    for (uint64_t i = 0; i < plan->n_grads; i++) {
        const PlanGrad *grad = &plan->grads[i];
        const PlanState *state = &plan->states[grad->state];
        const char *name =
            weights ? weights->file_names[grad->state] : rt_plan_string(plan, state->name);
        if (grad->tensor.offset != PLAN_ABSENT)
            vec_push(scratch, &out, dumped(name, &grad->tensor, state->rank, state->dim, arena));
    }
    Status status = rt_tensors_write(s, path, out.at, out.n);
    arena_free(scratch);
    return status;
}

Status rt_dump_values(Session *s, const RtPlan *plan, const unsigned char *arena, const char *path)
{
    Arena *scratch = arena_new();
    VEC(RtOutTensor) out = {0};
    for (uint64_t i = 0; i < plan->n_kept; i++) {
        const PlanKept *kept = &plan->kept[i];
        const char *name = rt_plan_string(plan, kept->tensor.name);
        name += *name == '%' || *name == '$';
        if (kept->tensor.offset != PLAN_ABSENT)
            vec_push(scratch, &out, dumped(name, &kept->tensor, kept->rank, kept->dim, arena));
    }
    Status status = rt_tensors_write(s, path, out.at, out.n);
    arena_free(scratch);
    return status;
}
