/* emit_llvm: a module under construction, and the lowering of lane-wise nodes, which is the same on
 * every target. */
#ifndef BACKEND_EMIT_LLVM_H
#define BACKEND_EMIT_LLVM_H

#include <llvm-c/Core.h>

#include "backend/emit_formula.h"

typedef struct EmitCode {
    LLVMContextRef context;
    LLVMModuleRef module;
    LLVMBuilderRef b;
} EmitCode;

/* A scalar for 1 lane, else a vector. */
LLVMTypeRef emit_type(EmitCode *c, EmitElem elem, uint32_t lanes);
LLVMTypeRef emit_storage(EmitCode *c, DType dtype, uint32_t lanes); /* in memory: bf16 is i16 */
LLVMValueRef emit_real(LLVMTypeRef type, double value); /* in every lane */
LLVMValueRef emit_int(LLVMTypeRef type, uint64_t value);
LLVMValueRef emit_i64(EmitCode *c, int64_t value);

/* Calls an intrinsic that is overloaded by its type. */
LLVMValueRef emit_intrinsic(EmitCode *c, const char *name, LLVMTypeRef type,
                            const LLVMValueRef *args, uint32_t n_args);
LLVMValueRef emit_fma(EmitCode *c, LLVMValueRef a, LLVMValueRef b, LLVMValueRef d);

/* Lane i is lane from[i] of a and b beside each other. */
LLVMValueRef emit_shuffle(EmitCode *c, LLVMValueRef a, LLVMValueRef b, const uint32_t *from,
                          uint32_t lanes);
/* Scalar to vector; `width` lanes to EMIT_LANES, zeros behind; the first `width` lanes. */
LLVMValueRef emit_splat(EmitCode *c, LLVMValueRef scalar);
LLVMValueRef emit_widen(EmitCode *c, LLVMValueRef narrow, uint32_t width);
LLVMValueRef emit_narrow(EmitCode *c, LLVMValueRef wide, uint32_t width);
/* Between memory's form and a node's. */
LLVMValueRef emit_from_storage(EmitCode *c, LLVMValueRef stored, DType dtype, uint32_t lanes);
LLVMValueRef emit_to_storage(EmitCode *c, LLVMValueRef value, DType dtype, uint32_t lanes);

LLVMValueRef emit_lower(EmitCode *c, EmitKind kind, EmitElem elem, uint32_t lanes,
                        const LLVMValueRef *args);

/* emit_math.c */
LLVMValueRef emit_exp(EmitCode *c, LLVMValueRef x);
/* Of f32 from -86 to 86: the same bits in fewer instructions. */
LLVMValueRef emit_exp_normal(EmitCode *c, LLVMValueRef x);
LLVMValueRef emit_sigmoid(EmitCode *c, LLVMValueRef x); /* 1 / (1 + e^-x) */
LLVMValueRef emit_tanh(EmitCode *c, LLVMValueRef x);
LLVMValueRef emit_erf(EmitCode *c, LLVMValueRef x);

#endif
