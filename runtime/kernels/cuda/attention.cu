#include "runtime/kernels/cuda/attention_backward.cuh"
#include "runtime/kernels/cuda/attention_forward.cuh"
#include "runtime/kernels/cuda/attention_sizes.h"
#include "runtime/kernels/cuda/attention_split.cuh"

/* Entries on the tensor cores. NAME_D_any: also segments, keep, softcap, dropout. */

#define ROWS(D)                                                    \
    static_assert(attention_rows_bytes(D) == 3 * 128 * (D + 8) * 2, "as the launch says"); \
    KERNEL_ENTRY(attention_rows_##D, 128, 2, CudaAttention)        \
    {                                                              \
        attention_rows<D, false>(x);                               \
    }                                                              \
    KERNEL_ENTRY(attention_rows_##D##_any, 128, 2, CudaAttention)  \
    {                                                              \
        attention_rows<D, true>(x);                                \
    }

#define WIDE(D)                                                                       \
    static_assert(attention_wide_bytes(D) == WideShape<D>::BYTES, "as the launch says"); \
    KERNEL_ENTRY(attention_wide_##D, 256, 1, CudaAttention)                           \
    {                                                                                 \
        attention_wide<D, false>(x);                                                  \
    }                                                                                 \
    KERNEL_ENTRY(attention_wide_##D##_any, 256, 1, CudaAttention)                     \
    {                                                                                 \
        attention_wide<D, true>(x);                                                   \
    }

#define GRAD(name, ROLE, D)                                                                                   \
    static_assert(attention_grad_bytes(D, ROLE != GRAD_V, ROLE == GRAD_Q) == GradShape<D, ROLE>::BYTES, \
                  "as the launch says");                                                                      \
    KERNEL_ENTRY(attention_grad_##name##_##D, 128, 2, CudaAttention)                                          \
    {                                                                                                         \
        attention_grad_rows<D, ROLE, false>(x);                                                               \
    }                                                                                                         \
    KERNEL_ENTRY(attention_grad_##name##_##D##_any, 128, 2, CudaAttention)                                    \
    {                                                                                                         \
        attention_grad_rows<D, ROLE, true>(x);                                                                \
    }

ROWS(64)
ROWS(96)
ROWS(128)
WIDE(256)
WIDE(512)

GRAD(q, GRAD_Q, 64)
GRAD(q, GRAD_Q, 96)
GRAD(q, GRAD_Q, 128)
GRAD(kv, GRAD_KV, 64)
GRAD(k, GRAD_K, 96)
GRAD(v, GRAD_V, 96)
GRAD(k, GRAD_K, 128)
GRAD(v, GRAD_V, 128)

static_assert(attention_scores_bytes == SCORE_BYTES && attention_products_bytes == PRODUCT_BYTES, "as the launch says");

KERNEL_ENTRY(attention_split_scores, 256, 1, CudaSplit)
{
    split_scores<false>(x);
}

KERNEL_ENTRY(attention_split_scores_any, 256, 1, CudaSplit)
{
    split_scores<true>(x);
}

KERNEL_ENTRY(attention_split_products, 256, 1, CudaSplit)
{
    split_products(x);
}

KERNEL_ENTRY(attention_delta_bf16, 256, 4, CudaAttention)
{
    attention_delta<bf16>(x);
}

KERNEL_ENTRY(attention_delta_f32, 256, 4, CudaAttention)
{
    attention_delta<float>(x);
}
