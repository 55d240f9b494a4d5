#include "runtime/cuda/exec.h"

#include "runtime/cuda/inputs.h"

enum { CHECK_THREADS = 256, CHECK_BLOCKS = 1024 };

/* Offsets of the scalars in the arena and their sizes, in the order of PlanScalars. */
static RtCudaScalars scalars_of(const RtCuda *cuda)
{
    RtCudaScalars scalars = {{0}, {0}};
    for (uint32_t i = 0; i < RT_CUDA_SCALARS; i++) {
        RtCudaScalar scalar = rt_cuda_scalar(cuda->plan, i);
        scalars.at[i] = scalar.offset == PLAN_ABSENT ? 0 : cuda->arena.at + scalar.offset;
        scalars.bytes[i] = scalar.bytes;
    }
    return scalars;
}

static Status start(RtCuda *cuda, const char *name)
{
    RtCudaScalars scalars = scalars_of(cuda);
    void *args[] = {&cuda->control, &scalars};
    return rt_cuda_start_named(cuda, name, (RtCudaShape){.grid = 1, .threads = 32}, args);
}

Status rt_cuda_control_begin(RtCuda *cuda)
{
    return start(cuda, "control_begin");
}

Status rt_cuda_control_end(RtCuda *cuda)
{
    return start(cuda, "control_end");
}

static uint64_t exponent_mask(uint32_t dtype)
{
    switch (dtype) {
    case DTYPE_F64:
        return 0x7ff0000000000000u;
    case DTYPE_F32:
        return 0x7f800000u;
    case DTYPE_BF16:
        return 0x7f80u;
    case DTYPE_F16:
        return 0x7c00u;
    default:
        return 0;
    }
}

Status rt_cuda_check_tensor(RtCuda *cuda, const RtCall *call, uint32_t t)
{
    const PlanTensor *tensor = &call->tensor[t];
    RtCudaTensor view = {tensor->numel,
                         tensor->run,
                         tensor->pitch,
                         exponent_mask(tensor->dtype),
                         dtype_bytes((DType)tensor->dtype),
                         0};
    if (!view.mask)
        return STATUS_OK;
    int64_t number = rt_cuda_number(cuda, call), index = t;
    void *args[] = {(void *)&call->at[t], &view, &cuda->control, &number, &index};
    int64_t blocks = (view.numel + CHECK_THREADS - 1) / CHECK_THREADS;
    return rt_cuda_start_named(
        cuda, "check_finite",
        (RtCudaShape){.grid = (uint32_t)(blocks < CHECK_BLOCKS ? blocks : CHECK_BLOCKS),
                      .threads = CHECK_THREADS},
        args);
}
