#include "runtime/kernels/cuda/attention_group_backward.cuh"
#include "runtime/kernels/cuda/attention_group_forward.cuh"
#include "runtime/kernels/cuda/attention_group_wide.cuh"

static_assert(attention_group_bytes(64) == GroupForwardShape<64>::BYTES, "as the launch says");
static_assert(attention_group_bytes(128) == GroupForwardShape<128>::BYTES, "as the launch says");
static_assert(attention_group_wide_bytes == GroupWideShape::BYTES, "as the launch says");
static_assert(attention_group_grad_bytes == GroupGradShape::BYTES, "as the launch says");

KERNEL_ENTRY(attention_group_64, 384, 1, CudaAttention)
{
    attention_group_forward<64>(x);
}

KERNEL_ENTRY(attention_group_128, 384, 1, CudaAttention)
{
    attention_group_forward<128>(x);
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
