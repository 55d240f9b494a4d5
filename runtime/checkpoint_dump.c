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

/* The gradient that the stage has of a tensor; NULL: none. */
static const PlanGrad *grad_of(const RtPlan *plan, const RtTensor *tensor, uint32_t stage)
{
    const RtPart *part = rt_tensor_part(tensor, stage);
    for (uint64_t i = 0; part && i < plan->n_grads; i++)
        if (plan->grads[i].layout == part->state && plan->grads[i].tensor.offset != PLAN_ABSENT)
            return &plan->grads[i];
    return NULL;
}

typedef struct Dump {
    Arena *scratch;
    RtWorld *world;
    const unsigned char *arena;
    const RtWeights *weights;
    RtTensors tensors;
    VEC(RtOutTensor) out;
} Dump;

/* Its own memory on this rank, or, where ranks have parts of it, what they gather. */
static void dump_grad(Dump *d, uint32_t i, const PlanGrad *grad)
{
    const RtPlan *plan = d->tensors.plan;
    const RtTensor *tensor = &d->tensors.at[i];
    const char *name =
        d->weights ? d->weights->file_names[tensor->of] : d->tensors.at[tensor->of].name;
    const PlanGrad *own = grad_of(plan, tensor, plan->header->stage);
    const unsigned char *base = own ? d->arena + own->tensor.offset : NULL;
    if (!rt_tensor_is_whole(tensor))
        vec_push(d->scratch, &d->out,
                 rt_tensor_out(d->scratch, d->world, &d->tensors, i, (DType)grad->tensor.dtype,
                               name, base));
    else if (own)
        vec_push(d->scratch, &d->out,
                 dumped(name, &own->tensor, tensor->rank, tensor->dim, d->arena));
}

Status rt_dump_grads(Session *s, RtWorld *world, const RtPlan *plan, const unsigned char *arena,
                     const RtWeights *weights, const char *path)
{
    Arena *scratch = arena_new();
    Dump d = {.scratch = scratch, .world = world, .arena = arena, .weights = weights};
    rt_tensors_list(s, world, plan, &d.tensors);
    for (uint32_t i = 0; i < d.tensors.n; i++) {
        const PlanGrad *grad = NULL;
        for (uint32_t k = 0; k < d.tensors.at[i].n_parts && !grad; k++) {
            uint32_t stage = d.tensors.at[i].parts[k].stage;
            grad = grad_of(&plan->all[stage], &d.tensors.at[i], stage);
        }
        if (grad)
            dump_grad(&d, i, grad);
    }
    Status status = rt_tensors_write(s, rt_is_first(world) ? path : NULL, d.out.at, d.out.n);
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
