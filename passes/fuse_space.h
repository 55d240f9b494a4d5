/* fuse_space: the iteration space [rows, cols] of fused ops, and which of them may share one. */
#ifndef PASSES_FUSE_SPACE_H
#define PASSES_FUSE_SPACE_H

#include "ir/ir.h"
#include "passes/options.h"

typedef enum PassOpClass {
    PASS_CLASS_NONE,
    PASS_CLASS_FUSED,
    PASS_CLASS_KERNEL,
    PASS_CLASS_VIEW
} PassOpClass;

/* The op's class on the target: columns CPU and CUDA of ir/ops.def. */
PassOpClass pass_op_class(PassTarget target, IrOpKind kind);

/* A row-major space of `numel` elements. Row-wise ops fix the row's length; pointwise ones take
 * any. */
typedef struct PassSpace {
    int64_t numel;
    int64_t cols;   /* 0: any */
    int64_t period; /* numel of operands broadcast along trailing dims: in step with the rows; 0:
                       none */
    int64_t
        run;   /* elements beside each other in strided operands: whole rows; 0: no such operand */
    bool sums; /* has results that sum over the rows */
} PassSpace;

PassSpace pass_space_of_op(const IrGraph *g, IrOp op); /* operands taken as contiguous */
/* The space of both, or false. */
bool pass_space_join(const PassSpace *a, const PassSpace *b, PassSpace *out);

/* Does result r sum over the rows of the op's space? Such a result is not complete before the
 * region's end. */
bool pass_result_sums(const IrGraph *g, IrOp op, uint32_t r);

/* Bytes of workspace of a region, the `n` ops at `ops`: a row of partial sums per chunk of rows. */
uint64_t pass_region_workspace(PassTarget target, const IrGraph *g, const IrOp *ops, uint32_t n);

#endif
