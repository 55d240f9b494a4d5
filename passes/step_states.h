/* step_states: the states that a step adds to a model's weights, found by name or made. */
#ifndef PASSES_STEP_STATES_H
#define PASSES_STEP_STATES_H

#include "ir/ir.h"

/* A scalar of the step: lr, step, seed, count, inverse, loss_sum ... (runtime/abi/plan.h:
 * PlanScalars). */
IrState step_scalar(IrModule *m, const char *name, DType dtype);
/* `NAME.suffix`, of a parameter's dims; starts at zero. */
IrState step_companion(IrModule *m, IrState param, const char *suffix, IrStateKind kind,
                       DType dtype);

#endif
