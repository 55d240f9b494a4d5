#include "runtime/kernels/cuda/attention_group_backward.cuh"
#include "runtime/kernels/cuda/attention_group_forward.cuh"
#include "runtime/kernels/cuda/attention_group_wide.cuh"

static_assert(attention_group_bytes == GroupForwardShape::BYTES, "as the launch says");
static_assert(attention_group_wide_bytes == GroupWideShape::BYTES, "as the launch says");
static_assert(attention_group_grad_bytes == GroupGradShape::BYTES, "as the launch says");

KERNEL_ENTRY(attention_group, 384, 1, CudaAttention)
{
    attention_group_forward(x);
}

KERNEL_ENTRY(attention_group_wide, 384, 1, CudaAttention)
{
    wide_forward(x);
}

KERNEL_ENTRY(attention_group_grad_kv, 384, 1, CudaAttention)
{
    attention_group_grad<false>(x);
}

KERNEL_ENTRY(attention_group_grad_q, 384, 1, CudaAttention)
{
    attention_group_grad<true>(x);
}

KERNEL_ENTRY(attention_group_statistics, 256, 4, CudaAttention)
{
    group_statistics(x);
}
