#include "runtime/kernels/cuda/attention_forward.cuh"
#include "runtime/kernels/cuda/attention_sizes.h"

/* NAME_D_any: also segments, keep, softcap, dropout. Where there is no NAME_D, the kernels on wgmma
 * take masks by position alone. */

#define ROWS(D)                                                                                    \
    static_assert(attention_rows_bytes(D) == 3 * 128 * (D + 8) * 2, "as the launch says");         \
    KERNEL_ENTRY(attention_rows_##D##_any, 128, 2, CudaAttention)                                  \
    {                                                                                              \
        attention_rows<D>(x);                                                                      \
    }

#define WIDE(name, D, ANY)                                                                         \
    static_assert(attention_wide_bytes(D) == WideShape<D>::BYTES, "as the launch says");           \
    KERNEL_ENTRY(attention_wide_##name, 256, 1, CudaAttention)                                     \
    {                                                                                              \
        attention_wide<D, ANY>(x);                                                                 \
    }

ROWS(64)
ROWS(96)
ROWS(128)
WIDE(256, 256, false)
WIDE(256_any, 256, true)
WIDE(512_any, 512, true)
