/* product: tiles of matrix products through the BLAS, for operands of any dtype and view. */
#ifndef RUNTIME_KERNELS_CPU_PRODUCT_H
#define RUNTIME_KERNELS_CPU_PRODUCT_H

#include <cblas.h>

#include "runtime/kernels/cpu/tile.h"

/* An operand as it is stored: rows of `width` elements. The product's depth k runs down its rows,
 * or along them. */
typedef struct RtMatrix {
    const void *at;
    const PlanTensor *view;
    int64_t width;
    bool k_down;
    int64_t ld;  /* elements between rows; 0: has to be packed before the product */
    int64_t top; /* the stored row that the product begins at */
} RtMatrix;

static inline RtMatrix rt_matrix(const void *at, const PlanTensor *view, int64_t width, bool k_down,
                                 uint64_t real_bytes)
{
    bool direct = plan_row_direct(view, width, real_bytes);
    return (RtMatrix){at, view, width, k_down, direct ? plan_row_pitch(view, width) : 0, 0};
}

#include "runtime/kernels/cpu/real_f32.h"
#include "runtime/kernels/cpu/product.inc.h"
#include "runtime/kernels/cpu/real_f64.h"
#include "runtime/kernels/cpu/product.inc.h"

#endif
