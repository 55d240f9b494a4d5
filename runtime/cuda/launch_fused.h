/* launch_fused: kernels of the executable's own image. */
#ifndef RUNTIME_CUDA_LAUNCH_FUSED_H
#define RUNTIME_CUDA_LAUNCH_FUSED_H

#include "runtime/cuda/cuda.h"

enum { RT_CUDA_FUSED_ARGS = 192 }; /* tensors, workspace, random words, parameters */

/* NULL, or what is wrong with a fused instruction. */
const char *rt_cuda_fused_fault(const StepCudaKernel *code, const PlanInstr *instr);

#endif
