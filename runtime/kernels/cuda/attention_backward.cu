#include "runtime/kernels/cuda/attention_backward.cuh"
#include "runtime/kernels/cuda/attention_sizes.h"

/* NAME_D_any: also segments, keep, softcap, dropout. */

#define GRAD(name, ROLE, D)                                                                        \
    static_assert(attention_grad_bytes(D, ROLE != GRAD_V, ROLE == GRAD_Q) ==                       \
                      GradShape<D, ROLE>::BYTES,                                                   \
                  "as the launch says");                                                           \
    KERNEL_ENTRY(attention_grad_##name##_##D, 128, 2, CudaAttention)                               \
    {                                                                                              \
        attention_grad_rows<D, ROLE, false>(x);                                                    \
    }                                                                                              \
    KERNEL_ENTRY(attention_grad_##name##_##D##_any, 128, 2, CudaAttention)                         \
    {                                                                                              \
        attention_grad_rows<D, ROLE, true>(x);                                                     \
    }

GRAD(q, GRAD_Q, 64)
GRAD(q, GRAD_Q, 96)
GRAD(q, GRAD_Q, 128)
GRAD(kv, GRAD_KV, 64)
GRAD(k, GRAD_K, 96)
GRAD(v, GRAD_V, 96)
GRAD(k, GRAD_K, 128)
GRAD(v, GRAD_V, 128)

KERNEL_ENTRY(attention_delta_bf16, 256, 4, CudaAttention)
{
    attention_delta<bf16>(x);
}

KERNEL_ENTRY(attention_delta_f32, 256, 4, CudaAttention)
{
    attention_delta<float>(x);
}
