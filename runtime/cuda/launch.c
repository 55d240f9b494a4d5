#include <stdlib.h>

#include "runtime/cuda/cuda.h"

enum { PLAIN_SHARED_BYTES = 48 << 10 };

CUfunction rt_cuda_function(RtCuda *cuda, const char *name)
{
    uint64_t known;
    Sym key = sym(cuda->s, name);
    if (map_get(&cuda->functions, map_key(key), &known))
        return (CUfunction)(uintptr_t)known;
    CUfunction function = NULL;
    for (uint32_t i = 0; i < cuda->kernel_modules.n; i++)
        if (cuda->driver.ModuleGetFunction(&function, cuda->kernel_modules.at[i], name) ==
            CUDA_SUCCESS)
            break;
    if (!function) {
        fprintf(stderr, "internal error: this library has no device function `%s`\n", name);
        abort();
    }
    map_put(&cuda->functions, map_key(key), (uint64_t)(uintptr_t)function);
    return function;
}

Status rt_cuda_start(RtCuda *cuda, CUfunction function, RtCudaShape shape, void **args)
{
    if (cuda->rehearsing)
        return STATUS_OK;
    if (shape.shared_bytes > PLAIN_SHARED_BYTES)
        TRY(rt_cuda_result(
            cuda,
            cuda->driver.FuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                          (int)shape.shared_bytes),
            "raising a kernel's shared memory"));
    return rt_cuda_result(
        cuda,
        cuda->driver.LaunchKernel(function, shape.grid, shape.grid_y ? shape.grid_y : 1,
                                  shape.grid_z ? shape.grid_z : 1, shape.threads, 1, 1,
                                  shape.shared_bytes, cuda->stream, args, NULL),
        "launching a kernel");
}

Status rt_cuda_start_named(RtCuda *cuda, const char *name, RtCudaShape shape, void **args)
{
    return rt_cuda_start(cuda, rt_cuda_function(cuda, name), shape, args);
}

Status rt_cuda_fill(RtCuda *cuda, void *at, unsigned char byte, uint64_t bytes)
{
    if (cuda->rehearsing || !bytes)
        return STATUS_OK;
    return rt_cuda_result(
        cuda, cuda->driver.MemsetD8Async((CUdeviceptr)(uintptr_t)at, byte, bytes, cuda->stream),
        "filling device memory");
}

int64_t rt_cuda_number(const RtCuda *cuda, const RtCall *call)
{
    const RtPlan *plan = cuda->plan;
    bool train = call->instr >= plan->instrs && call->instr < plan->instrs + plan->n_instrs;
    return call->instr - (train ? plan->instrs : plan->eval_instrs);
}
