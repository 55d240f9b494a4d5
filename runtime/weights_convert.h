/* weights_convert: values between float dtypes, each rounded once to nearest, ties to even,
 * whatever the two dtypes. */
#ifndef RUNTIME_WEIGHTS_CONVERT_H
#define RUNTIME_WEIGHTS_CONVERT_H

#include "base/dtype.h"

/* Both float, or both the same. Neither pointer need be aligned; they do not overlap. */
void rt_convert(void *to, DType to_dtype, const void *from, DType from_dtype, uint64_t n);

/* Rounds doubles to a float dtype. */
void rt_round(void *to, DType to_dtype, const double *from, uint64_t n);

/* Runs fn(context, chunk) for every chunk in [0, n_chunks) on the process's processors, in no
 * order. */
void rt_chunks_run(uint64_t n_chunks, void (*fn)(void *context, uint64_t chunk), void *context);

#endif
