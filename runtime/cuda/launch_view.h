/* launch_view: what the launch functions share: a plan's tensors as the kernels take them, and
 * refusals. */
#ifndef RUNTIME_CUDA_LAUNCH_VIEW_H
#define RUNTIME_CUDA_LAUNCH_VIEW_H

#include "runtime/abi/workspace_cuda.h"
#include "runtime/cuda/cuda.h"
#include "runtime/kernels/cuda/args.h"

/* A plan that this target cannot run: one diagnostic with the instruction's place, and STATUS_ENV.
 */
Status rt_cuda_refuse(RtCuda *cuda, const RtCall *call, const char *why);

/* One struct by value is all that a kernel of ours takes. */
Status rt_cuda_run(RtCuda *cuda, const char *name, uint32_t grid, uint32_t threads,
                   uint32_t shared_bytes, const void *args);

static inline int32_t rt_cuda_type(uint32_t dtype)
{
    return dtype == DTYPE_BF16  ? CUDA_BF16
           : dtype == DTYPE_F64 ? CUDA_F64
           : dtype == DTYPE_I64 ? CUDA_I64
                                : CUDA_F32;
}

/* bf16 or f32: what the kernels compute with. */
static inline bool rt_cuda_is_real(uint32_t dtype)
{
    return dtype == DTYPE_BF16 || dtype == DTYPE_F32;
}

static inline CudaView rt_cuda_view(const RtCall *call, int tensor)
{
    const PlanTensor *t = &call->tensor[tensor];
    CudaView view = {
        .at = call->at[tensor], .run = t->run, .pitch = t->pitch, .type = rt_cuda_type(t->dtype)};
    if (t->run >= t->numel) /* one run: contiguous */
        view.pitch = view.run;
    return view;
}

static inline bool rt_cuda_is_dense(const RtCall *call, int tensor)
{
    const PlanTensor *t = &call->tensor[tensor];
    return t->run == t->pitch || t->run >= t->numel;
}

/* Evenly spaced rows of bf16 or f32, as a product takes them; also: absent. */
static inline bool rt_cuda_is_matrix(const RtCall *call, int tensor, int64_t width)
{
    const PlanTensor *t = &call->tensor[tensor];
    return !call->at[tensor] || (rt_cuda_is_real(t->dtype) && plan_row_pitch(t, width) > 0);
}

static inline void *rt_cuda_row(const RtCall *call, int tensor, int64_t width, int64_t row)
{
    const PlanTensor *t = &call->tensor[tensor];
    return (unsigned char *)call->at[tensor] +
           row * plan_row_pitch(t, width) * dtype_bytes((DType)t->dtype);
}

static inline CudaFault rt_cuda_fault(const RtCuda *cuda, const RtCall *call)
{
    return (CudaFault){.at = cuda->fault_device, .number = rt_cuda_number(cuda, call)};
}

/* What this rank has of something that is divided over a communicator: elements [first, end) of its
 * own n, as far as they lie in [begin, end) of the whole; end 0: all of them. */
typedef struct RtCudaSpan {
    int64_t first, end;
} RtCudaSpan;

static inline int64_t rt_cuda_between(int64_t value, int64_t least, int64_t most)
{
    return value < least ? least : value > most ? most : value;
}

static inline RtCudaSpan rt_cuda_span(const RtCall *call, int64_t n, int64_t begin, int64_t end)
{
    int64_t before = (int64_t)call->member * n;
    if (!end)
        return (RtCudaSpan){0, n};
    return (RtCudaSpan){rt_cuda_between(begin - before, 0, n),
                        rt_cuda_between(end - before, 0, n)};
}

/* Element i of a dense tensor; NULL stays NULL. */
static inline void *rt_cuda_element(const RtCall *call, int tensor, int64_t i)
{
    unsigned char *at = call->at[tensor];
    return at ? at + i * (int64_t)dtype_bytes((DType)call->tensor[tensor].dtype) : NULL;
}

static inline uint32_t rt_cuda_grid(int64_t items, int64_t per_block, int64_t most)
{
    int64_t blocks = plan_ceil_div(items, per_block);
    return (uint32_t)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

/* Sums in f32, dense, rounded into the tensor. */
Status rt_cuda_round_sums(RtCuda *cuda, const RtCall *call, int tensor, void *sums);

/* The pass over a chunk's logits; sets x->places. */
Status rt_cuda_head_rows(RtCuda *cuda, CudaLmLossWithGrad *x);

#endif
