/* check: what --check does. Every buffer is filled with NaN before it is first written and when its
 * life ends, so that a plan that reads too late cannot stay unseen, and the first non-finite result
 * is named. Results do not change. */
#ifndef RUNTIME_CHECK_H
#define RUNTIME_CHECK_H

#include "runtime/comm.h"
#include "runtime/exec.h"

typedef struct RtCheck {
    Session *s;
    RtWorld *world; /* each rank says what it finds; NULL: one rank */
    const RtPlan *plan;
    const RtArena *arena;
    const RtExec *exec; /* whose instructions rt_check_after is told of */
    int64_t step;       /* for the message */
    bool found;         /* the first non-finite value has been named */
} RtCheck;

/* Fills what is neither a state, an input nor a scalar. */
void rt_check_poison(const RtCheck *check);
/* Names the states that are not finite as loaded. */
void rt_check_states(RtCheck *check);
/* An RtWatchFn over RtCheck. */
void rt_check_after(void *context, uint64_t instr);

/* Bit t: the kernel writes its tensor t, and that is finite in a sound run. A fused kernel's
 * tensors are in its own order: all of them count, and an operand that was not finite has been
 * named where it was made. */
uint32_t rt_check_results(uint32_t kernel);

/* Whether an element of the tensor at `base` is not finite; false for integers. */
bool rt_tensor_has_nonfinite(const PlanTensor *tensor, const void *base);

#endif
