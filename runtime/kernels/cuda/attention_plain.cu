#include "runtime/kernels/cuda/attention_plain.cuh"
#include "runtime/kernels/cuda/attention_sizes.h"

#define PLAIN(T, type, D)                                                                          \
    static_assert(attention_plain_bytes(D) == PlainShape<D, 32>::FORWARD_BYTES &&                  \
                      attention_grad_plain_bytes(D) == PlainShape<D, 16>::BACKWARD_BYTES,          \
                  "as the launch says");                                                           \
    KERNEL_ENTRY(attention_plain_##type##_##D, 256, 1, CudaAttention)                              \
    {                                                                                              \
        attention_plain<T, D, 32>(x);                                                              \
    }                                                                                              \
    KERNEL_ENTRY(attention_grad_plain_q_##type##_##D, 256, 1, CudaAttention)                       \
    {                                                                                              \
        attention_grad_plain<T, D, 16, true>(x);                                                   \
    }                                                                                              \
    KERNEL_ENTRY(attention_grad_plain_kv_##type##_##D, 256, 1, CudaAttention)                      \
    {                                                                                              \
        attention_grad_plain<T, D, 16, false>(x);                                                  \
    }

PLAIN(float, f32, 64)
PLAIN(float, f32, 128)
PLAIN(float, f32, 256)
PLAIN(float, f32, 512)
PLAIN(bf16, bf16, 64)
PLAIN(bf16, bf16, 128)
PLAIN(bf16, bf16, 256)
PLAIN(bf16, bf16, 512)
