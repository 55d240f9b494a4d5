#include "runtime/cuda/cuda.h"

#define GROUP_OF(name)                                                                             \
    (PLAN_KERNEL_##name == PLAN_KERNEL_adamw     ? &rt_cuda_group_adamw                            \
     : PLAN_KERNEL_##name == PLAN_KERNEL_sgd     ? &rt_cuda_group_sgd                              \
     : PLAN_KERNEL_##name == PLAN_KERNEL_norm_sq ? &rt_cuda_group_norm_sq                          \
                                                 : NULL)

const RtCudaKernel rt_cuda_kernels[PLAN_KERNEL_COUNT] = {
#define KERNEL(name, ...) [PLAN_KERNEL_##name] = {rt_cuda_launch_##name, GROUP_OF(name)},
#include "runtime/abi/kernels.def"
#undef KERNEL
};
