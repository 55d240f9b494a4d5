#include "runtime/kernels/cuda/attention_split.cuh"
#include "runtime/kernels/cuda/attention_sizes.h"

static_assert(attention_scores_bytes == SCORE_BYTES && attention_products_bytes == PRODUCT_BYTES,
              "as the launch says");

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
