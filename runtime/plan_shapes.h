/* plan_shapes: what each kernel asks of its tensors, so that a plan's instruction can be refused
 * before it runs. */
#ifndef RUNTIME_PLAN_SHAPES_H
#define RUNTIME_PLAN_SHAPES_H

#include <stdbool.h>

#include "runtime/abi/plan.h"

typedef struct RtKernelShape {
    const char *name;
    uint32_t n_tensors, n_params; /* as declared in kernels.def */
    bool variadic; /* more tensors may follow the declared ones (kernel `fused`: more parameters,
                      too) */
} RtKernelShape;

const RtKernelShape *rt_kernel_shape(uint32_t kernel);

/* NULL, or what is wrong. Tensors and parameters are already known to be there, and as many as
 * declared. */
const char *rt_plan_shape_fault(PlanTarget target, const PlanInstr *instr,
                                const PlanTensor *tensors, const PlanParam *params);

/* a * b, or INT64_MAX where that does not fit; negative sizes count as too large. */
int64_t rt_size_mul(int64_t a, int64_t b);

#endif
