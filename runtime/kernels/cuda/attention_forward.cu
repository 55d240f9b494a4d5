#include "runtime/kernels/cuda/attention_forward.cuh"
#include "runtime/kernels/cuda/attention_sizes.h"

/* NAME_D_any: also segments, keep, softcap, dropout. */

#define ROWS(D)                                                                                    \
    static_assert(attention_rows_bytes(D) == 3 * 128 * (D + 8) * 2, "as the launch says");         \
    KERNEL_ENTRY(attention_rows_##D, 128, 2, CudaAttention)                                        \
    {                                                                                              \
        attention_rows<D, false>(x);                                                               \
    }                                                                                              \
    KERNEL_ENTRY(attention_rows_##D##_any, 128, 2, CudaAttention)                                  \
    {                                                                                              \
        attention_rows<D, true>(x);                                                                \
    }

#define WIDE(D)                                                                                    \
    static_assert(attention_wide_bytes(D) == WideShape<D>::BYTES, "as the launch says");           \
    KERNEL_ENTRY(attention_wide_##D, 256, 1, CudaAttention)                                        \
    {                                                                                              \
        attention_wide<D, false>(x);                                                               \
    }                                                                                              \
    KERNEL_ENTRY(attention_wide_##D##_any, 256, 1, CudaAttention)                                  \
    {                                                                                              \
        attention_wide<D, true>(x);                                                                \
    }

ROWS(64)
ROWS(96)
ROWS(128)
WIDE(256)
WIDE(512)
