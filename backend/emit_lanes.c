#include "backend/emit_llvm.h"

#include <stdlib.h>

/* -- types and constants -- */

static LLVMTypeRef vector_of(LLVMTypeRef scalar, uint32_t lanes)
{
    return lanes == 1 ? scalar : LLVMVectorType(scalar, lanes);
}

LLVMTypeRef emit_type(EmitCode *c, EmitElem elem, uint32_t lanes)
{
    LLVMTypeRef scalar = elem == ELEM_F32   ? LLVMFloatTypeInContext(c->context)
                         : elem == ELEM_F64 ? LLVMDoubleTypeInContext(c->context)
                         : elem == ELEM_I32 ? LLVMInt32TypeInContext(c->context)
                         : elem == ELEM_I64 ? LLVMInt64TypeInContext(c->context)
                                            : LLVMInt1TypeInContext(c->context);
    return vector_of(scalar, lanes);
}

LLVMTypeRef emit_storage(EmitCode *c, DType dtype, uint32_t lanes)
{
    LLVMTypeRef scalar = dtype == DTYPE_F32 ? LLVMFloatTypeInContext(c->context)
                         : dtype == DTYPE_F64
                             ? LLVMDoubleTypeInContext(c->context)
                             : LLVMIntTypeInContext(c->context, 8 * dtype_bytes(dtype));
    return vector_of(scalar, lanes);
}

static bool is_vector(LLVMTypeRef type)
{
    return LLVMGetTypeKind(type) == LLVMVectorTypeKind;
}

static LLVMTypeRef scalar_of(LLVMTypeRef type)
{
    return is_vector(type) ? LLVMGetElementType(type) : type;
}

static LLVMValueRef in_every_lane(LLVMTypeRef type, LLVMValueRef scalar)
{
    if (!is_vector(type))
        return scalar;
    LLVMValueRef all[EMIT_LANES];
    uint32_t lanes = LLVMGetVectorSize(type);
    for (uint32_t i = 0; i < lanes; i++)
        all[i] = scalar;
    return LLVMConstVector(all, lanes);
}

LLVMValueRef emit_real(LLVMTypeRef type, double value)
{
    return in_every_lane(type, LLVMConstReal(scalar_of(type), value));
}

LLVMValueRef emit_int(LLVMTypeRef type, uint64_t value)
{
    return in_every_lane(type, LLVMConstInt(scalar_of(type), value, false));
}

LLVMValueRef emit_i64(EmitCode *c, int64_t value)
{
    return LLVMConstInt(LLVMInt64TypeInContext(c->context), (uint64_t)value, true);
}

/* -- calls and shuffles -- */

LLVMValueRef emit_intrinsic(EmitCode *c, const char *name, LLVMTypeRef type,
                            const LLVMValueRef *args, uint32_t n_args)
{
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    LLVMValueRef function = LLVMGetIntrinsicDeclaration(c->module, id, &type, 1);
    LLVMTypeRef function_type = LLVMIntrinsicGetType(c->context, id, &type, 1);
    LLVMValueRef copy[4];
    memcpy(copy, args, n_args * sizeof *args);
    return LLVMBuildCall2(c->b, function_type, function, copy, n_args, "");
}

LLVMValueRef emit_fma(EmitCode *c, LLVMValueRef a, LLVMValueRef b, LLVMValueRef d)
{
    return emit_intrinsic(c, "llvm.fma", LLVMTypeOf(a), (LLVMValueRef[]){a, b, d}, 3);
}

LLVMValueRef emit_shuffle(EmitCode *c, LLVMValueRef a, LLVMValueRef b, const uint32_t *from,
                          uint32_t lanes)
{
    LLVMValueRef mask[EMIT_LANES];
    for (uint32_t i = 0; i < lanes; i++)
        mask[i] = LLVMConstInt(LLVMInt32TypeInContext(c->context), from[i], false);
    return LLVMBuildShuffleVector(c->b, a, b, LLVMConstVector(mask, lanes), "");
}

LLVMValueRef emit_splat(EmitCode *c, LLVMValueRef scalar)
{
    uint32_t zeros[EMIT_LANES] = {0};
    LLVMTypeRef type = LLVMVectorType(LLVMTypeOf(scalar), EMIT_LANES);
    LLVMValueRef first =
        LLVMBuildInsertElement(c->b, LLVMGetPoison(type), scalar, emit_i64(c, 0), "");
    return emit_shuffle(c, first, LLVMGetPoison(type), zeros, EMIT_LANES);
}

LLVMValueRef emit_widen(EmitCode *c, LLVMValueRef narrow, uint32_t width)
{
    uint32_t from[EMIT_LANES];
    LLVMTypeRef type = LLVMTypeOf(narrow);
    if (width == EMIT_LANES)
        return narrow;
    if (width == 1) {
        LLVMTypeRef wide = LLVMVectorType(type, EMIT_LANES);
        return LLVMBuildInsertElement(c->b, LLVMConstNull(wide), narrow, emit_i64(c, 0), "");
    }
    for (uint32_t i = 0; i < EMIT_LANES; i++)
        from[i] = i < width ? i : width; /* lane `width` of the pair is the zeros' first */
    return emit_shuffle(c, narrow, LLVMConstNull(type), from, EMIT_LANES);
}

LLVMValueRef emit_narrow(EmitCode *c, LLVMValueRef wide, uint32_t width)
{
    uint32_t from[EMIT_LANES];
    if (width == EMIT_LANES)
        return wide;
    if (width == 1)
        return LLVMBuildExtractElement(c->b, wide, emit_i64(c, 0), "");
    for (uint32_t i = 0; i < width; i++)
        from[i] = i;
    return emit_shuffle(c, wide, LLVMGetPoison(LLVMTypeOf(wide)), from, width);
}

/* -- memory's form -- */

LLVMValueRef emit_from_storage(EmitCode *c, LLVMValueRef stored, DType dtype, uint32_t lanes)
{
    if (dtype != DTYPE_BF16)
        return stored;
    LLVMTypeRef i32 = emit_type(c, ELEM_I32, lanes);
    LLVMValueRef bits = LLVMBuildZExt(c->b, stored, i32, "");
    bits = LLVMBuildShl(c->b, bits, emit_int(i32, 16), "");
    return LLVMBuildBitCast(c->b, bits, emit_type(c, ELEM_F32, lanes), "");
}

LLVMValueRef emit_to_storage(EmitCode *c, LLVMValueRef value, DType dtype, uint32_t lanes)
{
    if (dtype != DTYPE_BF16)
        return value;
    LLVMTypeRef i32 = emit_type(c, ELEM_I32, lanes);
    LLVMValueRef bits = LLVMBuildBitCast(c->b, value, i32, ""); /* the low half is zero */
    bits = LLVMBuildLShr(c->b, bits, emit_int(i32, 16), "");
    return LLVMBuildTrunc(c->b, bits, emit_storage(c, dtype, lanes), "");
}

/* -- lane-wise nodes: lower_KIND, one per row of emit_nodes.def -- */

typedef struct Lower { /* one node */
    EmitCode *c;
    LLVMTypeRef type; /* of the result */
    uint32_t lanes;
    const LLVMValueRef *x;
} Lower;

#define BINARY(name, Build)                                                                        \
    static LLVMValueRef lower_##name(const Lower *l)                                               \
    {                                                                                              \
        return Build(l->c->b, l->x[0], l->x[1], "");                                               \
    }
BINARY(add, LLVMBuildFAdd)
BINARY(sub, LLVMBuildFSub)
BINARY(mul, LLVMBuildFMul)
BINARY(div, LLVMBuildFDiv)
BINARY(iadd, LLVMBuildAdd)
BINARY(imul, LLVMBuildMul)
BINARY(idiv, LLVMBuildUDiv)
BINARY(irem, LLVMBuildURem)
BINARY(ixor, LLVMBuildXor)
#undef BINARY

static LLVMValueRef lower_fma(const Lower *l)
{
    return emit_fma(l->c, l->x[0], l->x[1], l->x[2]);
}

static LLVMValueRef lower_sqrt(const Lower *l)
{
    return emit_intrinsic(l->c, "llvm.sqrt", l->type, l->x, 1);
}

static LLVMValueRef lower_exp(const Lower *l)
{
    return emit_exp(l->c, l->x[0]);
}

static LLVMValueRef lower_sigmoid(const Lower *l)
{
    return emit_sigmoid(l->c, l->x[0]);
}

static LLVMValueRef lower_tanh(const Lower *l)
{
    return emit_tanh(l->c, l->x[0]);
}

static LLVMValueRef lower_erf(const Lower *l)
{
    return emit_erf(l->c, l->x[0]);
}

static LLVMValueRef lower_less(const Lower *l)
{
    LLVMTypeKind kind = LLVMGetTypeKind(scalar_of(LLVMTypeOf(l->x[0])));
    if (kind == LLVMIntegerTypeKind)
        return LLVMBuildICmp(l->c->b, LLVMIntULT, l->x[0], l->x[1], "");
    return LLVMBuildFCmp(l->c->b, LLVMRealOLT, l->x[0], l->x[1], "");
}

static LLVMValueRef lower_select(const Lower *l)
{
    return LLVMBuildSelect(l->c->b, l->x[0], l->x[1], l->x[2], "");
}

/* As base/dtype.h's f32_to_bf16, with the result's bits left in the high half. */
static LLVMValueRef lower_round_bf16(const Lower *l)
{
    LLVMBuilderRef b = l->c->b;
    LLVMTypeRef i32 = emit_type(l->c, ELEM_I32, l->lanes);
    LLVMValueRef bits = LLVMBuildBitCast(b, l->x[0], i32, "");
    LLVMValueRef odd =
        LLVMBuildAnd(b, LLVMBuildLShr(b, bits, emit_int(i32, 16), ""), emit_int(i32, 1), "");
    LLVMValueRef up = LLVMBuildAdd(b, LLVMBuildAdd(b, bits, emit_int(i32, 0x7fff), ""), odd, "");
    LLVMValueRef quiet = LLVMBuildOr(b, bits, emit_int(i32, 0x400000), "");
    LLVMValueRef nan = LLVMBuildFCmp(b, LLVMRealUNO, l->x[0], l->x[0], "");
    LLVMValueRef rounded = LLVMBuildSelect(b, nan, quiet, up, "");
    rounded = LLVMBuildAnd(b, rounded, emit_int(i32, 0xffff0000), "");
    return LLVMBuildBitCast(b, rounded, l->type, "");
}

static LLVMValueRef to_real(const Lower *l)
{
    LLVMTypeKind kind = LLVMGetTypeKind(scalar_of(LLVMTypeOf(l->x[0])));
    if (kind == LLVMIntegerTypeKind)
        return LLVMBuildSIToFP(l->c->b, l->x[0], l->type, "");
    return LLVMBuildFPCast(l->c->b, l->x[0], l->type, "");
}

static LLVMValueRef lower_to_f32(const Lower *l)
{
    return to_real(l);
}

static LLVMValueRef lower_to_f64(const Lower *l)
{
    return to_real(l);
}

static LLVMValueRef lower_low(const Lower *l)
{
    return LLVMBuildTrunc(l->c->b, l->x[0], l->type, "");
}

static LLVMValueRef lower_high(const Lower *l)
{
    LLVMValueRef half = emit_int(LLVMTypeOf(l->x[0]), 32);
    return LLVMBuildTrunc(l->c->b, LLVMBuildLShr(l->c->b, l->x[0], half, ""), l->type, "");
}

static LLVMValueRef lower_mix(const Lower *l)
{
    static const struct {
        uint32_t shift, times;
    } steps[] = {{16, 0x21f0aaad}, {15, 0x735a2d97}, {15, 1}};
    LLVMBuilderRef b = l->c->b;
    LLVMValueRef x = l->x[0];
    for (uint32_t i = 0; i < 3; i++) {
        x = LLVMBuildXor(b, x, LLVMBuildLShr(b, x, emit_int(l->type, steps[i].shift), ""), "");
        x = LLVMBuildMul(b, x, emit_int(l->type, steps[i].times), "");
    }
    return x;
}

LLVMValueRef emit_lower(EmitCode *c, EmitKind kind, EmitElem elem, uint32_t lanes,
                        const LLVMValueRef *args)
{
#define LOWER_LEAF(name) NULL
#define LOWER_REDUCE(name) NULL
#define LOWER_SWAP(name) NULL
#define LOWER_LANEWISE(name) lower_##name
#define NODE(name, n_args, cost, class) LOWER_##class(name),
    static LLVMValueRef (*const lower[NODE_COUNT])(const Lower *l) = {
#include "backend/emit_nodes.def"
    };
#undef NODE
    Lower l = {c, emit_type(c, elem, lanes), lanes, args};
    return lower[kind](&l);
}
