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

/* A unit's gradient is updated by several instructions where its parts decay differently: one is
 * enough. */
static bool seen_before(const RtPlan *plan, uint64_t i)
{
    for (uint64_t k = 0; k < i; k++)
        if (plan->grads[k].state == plan->grads[i].state)
            return true;
    return false;
}

Status rt_dump_grads(Session *s, RtWorld *world, const RtPlan *plan, const unsigned char *arena,
                     const RtWeights *weights, const char *path)
{
    Arena *scratch = arena_new();
    VEC(RtOutTensor) out = {0};
    RtTensors tensors;
    rt_tensors_list(s, world, plan, &tensors);
    for (uint64_t i = 0; i < plan->n_grads; i++) {
        const PlanGrad *grad = &plan->grads[i];
        const unsigned char *base = arena + grad->tensor.offset;
        if (grad->tensor.offset == PLAN_ABSENT || seen_before(plan, i))
            continue;
        for (uint32_t k = 0; k < tensors.n; k++) {
            const RtTensor *tensor = &tensors.at[k];
            if (tensor->state != grad->layout)
                continue;
            const char *name =
                weights ? weights->file_names[tensor->of] : tensors.at[tensor->of].name;
            if (tensor->piece)
                vec_push(scratch, &out,
                         rt_tensor_out(scratch, world, &tensors, k, (DType)grad->tensor.dtype, name,
                                       base));
            else
                vec_push(scratch, &out,
                         dumped(name, &grad->tensor, tensor->rank, tensor->dim, arena));
        }
    }
    Status status = rt_tensors_write(s, rt_is_first(world) ? path : NULL, out.at, out.n);
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
