/* emit_region: a fused region as the emitter sees it: its ops, the tensors that it reads and
 * writes, its rows, and the key by which regions that compute the same share one kernel. */
#ifndef BACKEND_EMIT_REGION_H
#define BACKEND_EMIT_REGION_H

#include "ir/ir.h"
#include "runtime/abi/plan.h"

/* Element e of a tensor is element (e / run) * pitch + e % run from `offset`. */
typedef struct EmitTensor {
    IrValue value;
    DType dtype;
    uint64_t offset; /* bytes into the arena */
    int64_t numel, run, pitch;
    int64_t part, parts; /* read as part `part` of `parts` of its last dim; 0, 1: whole */
    bool written;
} EmitTensor;

typedef struct EmitRegion {
    const IrGraph *g;
    const IrOp *ops; /* contiguous in the order */
    uint32_t n_ops;
    VEC(EmitTensor) tensors;  /* in order of first use, operands before results */
    VEC(int64_t) random_keys; /* one per random op */
    int64_t rows, cols;       /* the iteration space */
    VEC(uint64_t) key;
    const uint32_t *number; /* by value: its number in the region, counted from 1 */
    uint32_t n_values;
} EmitRegion;

/* Whose rows an op works on. */
typedef enum EmitSpace {
    SPACE_ANY,     /* pointwise: any rows */
    SPACE_LAST,    /* rows of the first operand's last dim */
    SPACE_COLUMNS, /* rows as long as the first result, which sums over them */
} EmitSpace;

typedef struct EmitRule EmitRule;
typedef struct EmitOp {
    EmitSpace space;
    void (*rule)(EmitRule *r);
} EmitOp;

/* The rule of a fused op, or NULL for an op of another class. */
const EmitOp *emit_op(IrOpKind kind);

/* Where a value's elements are: its own place, its state's, or a view. False: no memory. */
bool emit_tensor(const IrGraph *g, IrValue v, EmitTensor *out_tensor);

/* The region's tensor of a value, or UINT32_MAX. */
uint32_t emit_tensor_find(const EmitRegion *region, IrValue v, int64_t part, int64_t parts);

/* Reads regions of one graph; keeps a table by value between them. */
typedef struct EmitScan {
    Session *s;
    const IrGraph *g;
    Arena *arena;
    uint32_t *number, *stamp, round; /* by value; a number counts where the stamp is the round's */
    unsigned char *outside;          /* by value: defined outside the region */
} EmitScan;

void emit_scan_init(EmitScan *scan, Session *s, const IrGraph *g, Arena *arena);
/* The region of `n_ops` contiguous ops. Its `number` table lasts until the scan's next call. */
Status emit_scan_region(EmitScan *scan, const IrOp *ops, uint32_t n_ops, EmitRegion *out_region);

#endif
