/* init: weights from the seed. An element's value depends on the seed, the weight's name and the
 * element's index alone, and is computed by plain arithmetic: the same bits on any mesh, any thread
 * count and any processor. */
#ifndef RUNTIME_INIT_H
#define RUNTIME_INIT_H

#include "runtime/pieces.h"

/* Values of PlanState.init, in the order of the compiler's own enumeration. */
typedef enum RtInitKind { RT_INIT_ZERO, RT_INIT_ONE, RT_INIT_NORMAL, RT_INIT_CONST } RtInitKind;

/* Fills what this rank holds of every parameter and buffer, and of every master copy; a
 * parameter with a master is its master, rounded. */
void rt_init_all(const RtTensors *tensors, unsigned char *arena, uint64_t seed);

/* One parameter or buffer, by its index, or a master. */
void rt_init_tensor(const RtTensors *tensors, unsigned char *arena, uint32_t tensor, uint64_t seed);

/* Counter-based random bits: the i-th number of a stream. */
uint64_t rt_random_bits(uint64_t stream, uint64_t i);
uint64_t rt_random_stream(uint64_t seed, const char *name);
double rt_random_normal(uint64_t bits); /* standard normal, by the inverse of its distribution */

#endif
