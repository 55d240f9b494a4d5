/* init: weights from the seed. An element's value depends on the seed, the weight's name and the
 * element's index alone, and is computed by plain arithmetic: the same bits on any mesh, any thread
 * count and any processor. */
#ifndef RUNTIME_INIT_H
#define RUNTIME_INIT_H

#include "runtime/plan_map.h"

/* Values of PlanState.init, in the order of the compiler's own enumeration. */
typedef enum RtInitKind { RT_INIT_ZERO, RT_INIT_ONE, RT_INIT_NORMAL, RT_INIT_CONST } RtInitKind;

/* Fills every parameter and buffer, and every master copy; a parameter with a master is its master,
 * rounded. */
void rt_init_all(const RtPlan *plan, unsigned char *arena, uint64_t seed);

/* One parameter or buffer, by its index, and its master if there is one. */
void rt_init_state(const RtPlan *plan, unsigned char *arena, uint32_t state, uint64_t seed);

/* Index of the state of this kind that belongs to `of`, or UINT32_MAX. */
uint32_t rt_state_of(const RtPlan *plan, uint32_t of, uint32_t kind);

/* Counter-based random bits: the i-th number of a stream. */
uint64_t rt_random_bits(uint64_t stream, uint64_t i);
uint64_t rt_random_stream(uint64_t seed, const char *name);
double rt_random_normal(uint64_t bits); /* standard normal, by the inverse of its distribution */

static inline int64_t rt_state_numel(const PlanState *state)
{
    int64_t numel = 1;
    for (uint32_t i = 0; i < state->rank; i++)
        numel *= state->dim[i];
    return numel;
}

#endif
