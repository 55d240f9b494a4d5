/* emit_cpu: a formula as a loop over rows and, within a row, over steps of EMIT_LANES columns: a
 * partial last step puts column j into lane j % EMIT_LANES all the same. */
#ifndef BACKEND_EMIT_CPU_H
#define BACKEND_EMIT_CPU_H

#include "backend/emit_llvm.h"

/* plan.h's StepRowFn and StepColumnFn. The latter is NULL where nothing is summed over rows. */
typedef struct EmitFunctions {
    LLVMValueRef rows, columns;
} EmitFunctions;

EmitFunctions emit_cpu_kernel(EmitCode *c, const EmitFormula *f, Arena *arena, uint32_t index);

/* -- shared by emit_cpu.c, emit_cpu_memory.c and emit_cpu_columns.c -- */

/* A new internal function; `params`: p pointer, i 64-bit integer. The builder is in its entry. */
LLVMValueRef emit_function(EmitCode *c, const char *name, const char *params);
LLVMValueRef emit_tensor_base(EmitCode *c, LLVMValueRef tensors, uint32_t index);
LLVMValueRef emit_columns_function(EmitCode *c, const EmitFormula *f, const char *name);

typedef struct EmitStep { /* the columns j .. j + width of a row */
    LLVMValueRef j;       /* i64 */
    int64_t at;           /* j where it is constant, else -1 */
    uint32_t width;
    LLVMValueRef *memo; /* by node: its lanes */
} EmitStep;

/* Elements that begin at `row`; or, where that is NULL, a tensor whose rows are in pieces. */
typedef struct EmitPieces {
    LLVMValueRef row;
    DType dtype;
    EmitWalk walk;
    int64_t width, cols;      /* of the tensor's rows, of the space */
    const EmitTensor *tensor; /* where row is NULL: its base, and the row's index */
    LLVMValueRef base, index;
} EmitPieces;

/* The first element of a row of a tensor, seen from row `r` of a space of `rows` rows. */
EmitPieces emit_pieces(EmitCode *c, const EmitTensor *t, LLVMValueRef base, const EmitAccess *at,
                       LLVMValueRef r, int64_t rows, int64_t cols);
/* EMIT_LANES lanes; those behind the step's width are zero. */
LLVMValueRef emit_read(EmitCode *c, const EmitPieces *p, const EmitStep *step);
LLVMValueRef emit_read_one(EmitCode *c, const EmitPieces *p);
void emit_write(EmitCode *c, const EmitPieces *p, const EmitStep *step, LLVMValueRef value);
void emit_write_one(EmitCode *c, const EmitPieces *p, LLVMValueRef value);
/* Lanes [0, width) of `fresh`, the others of `old`. */
LLVMValueRef emit_blend(EmitCode *c, LLVMValueRef fresh, LLVMValueRef old, uint32_t width);

#endif
