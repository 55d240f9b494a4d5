/* outside: names of the lines of device memory outside the arena, planned by the compiler and
 * measured here. */
#ifndef RUNTIME_CUDA_OUTSIDE_H
#define RUNTIME_CUDA_OUTSIDE_H

#define OUTSIDE(id, name, bytes) static const char RT_OUTSIDE_##id[] __attribute__((unused)) = name;
#include "runtime/abi/outside_cuda.def"
#undef OUTSIDE

#endif
