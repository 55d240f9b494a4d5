#include "runtime/cuda/launch_view.h"

_Static_assert((int)CUDA_FAULT_ID == (int)RT_CUDA_FAULT_ID &&
                   (int)CUDA_FAULT_TARGET == (int)RT_CUDA_FAULT_TARGET,
               "the kernels' fault codes are the runtime's");

Status rt_cuda_run(RtCuda *cuda, const char *name, uint32_t grid, uint32_t threads,
                   uint32_t shared_bytes, const void *args)
{
    void *parameters[] = {(void *)(uintptr_t)args};
    RtCudaShape shape = {.grid = grid, .threads = threads, .shared_bytes = shared_bytes};
    return rt_cuda_start_named(cuda, name, shape, parameters);
}

Status rt_cuda_round_sums(RtCuda *cuda, const RtCall *call, int tensor, void *sums)
{
    int64_t n = call->tensor[tensor].numel;
    CudaAccumulate x = {
        .state = rt_cuda_view(call, tensor),
        .x = {.at = sums, .run = n, .pitch = n, .type = CUDA_F32},
        .n = n,
        .first = 1,
    };
    return rt_cuda_run(cuda, "accumulate", rt_cuda_grid(n, 256 * 8, cuda->multiprocessors * 16),
                       256, 0, &x);
}
