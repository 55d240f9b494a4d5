#include "backend/emit_cuda.h"

static LLVMTypeRef i32_type(EmitCode *c)
{
    return LLVMInt32TypeInContext(c->context);
}

static LLVMValueRef i32_of(EmitCode *c, uint32_t value)
{
    return LLVMConstInt(i32_type(c), value, false);
}

/* -- calls -- */

/* `emulated_NAME`, an ordinary function with the intrinsic's parameters. */
static LLVMValueRef call_host(EmitDevice *d, const char *name, LLVMTypeRef result,
                              LLVMValueRef *args, uint32_t n)
{
    char symbol[64];
    LLVMTypeRef types[4];
    snprintf(symbol, sizeof symbol, "emulated_%s", name);
    for (char *dot = symbol; (dot = strchr(dot, '.'));)
        *dot = '_';
    for (uint32_t i = 0; i < n; i++)
        types[i] = LLVMTypeOf(args[i]);
    LLVMTypeRef type = LLVMFunctionType(result, types, n, false);
    LLVMValueRef function = LLVMGetNamedFunction(d->code.module, symbol);
    if (!function)
        function = LLVMAddFunction(d->code.module, symbol, type);
    return LLVMBuildCall2(d->code.b, type, function, args, n, "");
}

/* An intrinsic `llvm.nvvm.NAME`; its result as `result`, which has as many bits. */
static LLVMValueRef call(EmitDevice *d, const char *name, LLVMTypeRef result, LLVMValueRef *args,
                         uint32_t n)
{
    EmitCode *c = &d->code;
    char symbol[64];
    if (d->emulated)
        return call_host(d, name, result, args, n);
    int length = snprintf(symbol, sizeof symbol, "llvm.nvvm.%s", name);
    unsigned id = LLVMLookupIntrinsicID(symbol, (size_t)length);
    LLVMValueRef function = LLVMGetIntrinsicDeclaration(c->module, id, NULL, 0);
    LLVMTypeRef type = LLVMIntrinsicGetType(c->context, id, NULL, 0);
    LLVMValueRef value = LLVMBuildCall2(c->b, type, function, args, n, "");
    return LLVMGetTypeKind(result) == LLVMVoidTypeKind ? value
                                                       : LLVMBuildBitCast(c->b, value, result, "");
}

LLVMValueRef cuda_thread_index(EmitDevice *d)
{
    return call(d, "read.ptx.sreg.tid.x", i32_type(&d->code), NULL, 0);
}

LLVMValueRef cuda_block_index(EmitDevice *d)
{
    return call(d, "read.ptx.sreg.ctaid.x", i32_type(&d->code), NULL, 0);
}

void cuda_barrier(EmitDevice *d)
{
    call(d, "barrier0", LLVMVoidTypeInContext(d->code.context), NULL, 0);
}

static LLVMValueRef exchange_f32(EmitDevice *d, LLVMValueRef x, uint32_t distance)
{
    EmitCode *c = &d->code;
    LLVMValueRef args[] = {i32_of(c, UINT32_MAX), x, i32_of(c, distance),
                           i32_of(c, CUDA_FUSED_WARP - 1)};
    return call(d, "shfl.sync.bfly.f32", LLVMTypeOf(x), args, 4);
}

LLVMValueRef cuda_exchange(EmitDevice *d, LLVMValueRef x, uint32_t distance)
{
    EmitCode *c = &d->code;
    LLVMTypeRef type = LLVMTypeOf(x), f32 = LLVMFloatTypeInContext(c->context);
    if (type == f32)
        return exchange_f32(d, x, distance);
    LLVMTypeRef pair = LLVMVectorType(f32, 2);
    LLVMValueRef halves = LLVMBuildBitCast(c->b, x, pair, ""), other[2];
    for (uint32_t i = 0; i < 2; i++)
        other[i] = exchange_f32(d, cuda_lane(c, halves, i), distance);
    return LLVMBuildBitCast(c->b, cuda_concat(c, other, 2), type, "");
}

/* -- bf16, two to a word: the first in the low half -- */

LLVMValueRef cuda_pack_bf16(EmitDevice *d, LLVMValueRef x, uint32_t lanes)
{
    EmitCode *c = &d->code;
    LLVMValueRef words[CUDA_FUSED_LANES / 2];
    if (lanes == 1)
        return call(d, "f2bf16.rn", LLVMInt16TypeInContext(c->context), &x, 1);
    for (uint32_t i = 0; i < lanes / 2; i++) {
        LLVMValueRef pair[] = {cuda_lane(c, x, 2 * i + 1), cuda_lane(c, x, 2 * i)};
        words[i] = call(d, "ff2bf16x2.rn", i32_type(c), pair, 2);
    }
    return cuda_concat(c, words, lanes / 2);
}

LLVMValueRef cuda_unpack_bf16(EmitCode *c, LLVMValueRef words, uint32_t lanes)
{
    LLVMTypeRef f32 = emit_type(c, ELEM_F32, lanes);
    if (lanes == 1)
        return emit_from_storage(c, words, DTYPE_BF16, 1);
    LLVMTypeRef type = emit_type(c, ELEM_I32, lanes / 2);
    LLVMValueRef low = LLVMBuildShl(c->b, words, emit_int(type, 16), "");
    LLVMValueRef high = LLVMBuildAnd(c->b, words, emit_int(type, 0xffff0000), "");
    if (lanes == 2)
        return LLVMBuildBitCast(c->b, cuda_concat(c, (LLVMValueRef[]){low, high}, 2), f32, "");
    uint32_t from[CUDA_FUSED_LANES];
    for (uint32_t i = 0; i < lanes; i++)
        from[i] = i / 2 + (i % 2 ? lanes / 2 : 0);
    return LLVMBuildBitCast(c->b, emit_shuffle(c, low, high, from, lanes), f32, "");
}

/* -- math -- */

/* The approximation and one step of Newton's: what ptxas makes of `rcp.rn` where no operand and no
 * intermediate result is denormal, without its test and branch per element. */
LLVMValueRef cuda_reciprocal(EmitDevice *d, LLVMValueRef x, uint32_t lanes)
{
    EmitCode *c = &d->code;
    LLVMValueRef each[CUDA_FUSED_LANES], one = emit_real(LLVMTypeOf(x), 1);
    for (uint32_t i = 0; i < lanes; i++) {
        LLVMValueRef lane = cuda_lane(c, x, i);
        each[i] = call(d, "rcp.approx.ftz.f", LLVMTypeOf(lane), &lane, 1);
    }
    LLVMValueRef near = cuda_concat(c, each, lanes);
    LLVMValueRef error = emit_fma(c, LLVMBuildFNeg(c->b, x, ""), near, one);
    return emit_fma(c, near, error, near);
}

static LLVMValueRef all_at_least(EmitCode *c, LLVMValueRef x, double bound, uint32_t lanes)
{
    LLVMValueRef all = NULL;
    LLVMValueRef each = LLVMBuildFCmp(c->b, LLVMRealOGE, x, emit_real(LLVMTypeOf(x), bound), "");
    for (uint32_t i = 0; i < lanes; i++)
        all = cuda_and(c, all, cuda_lane(c, each, i));
    return all;
}

/* x >= -86, so 1 + e^-x lies within [1, 2^125); where -x is below -86 the sum is 1 as at -86. */
static LLVMValueRef usual_sigmoid(EmitDevice *d, LLVMValueRef x, uint32_t lanes)
{
    EmitCode *c = &d->code;
    LLVMTypeRef type = LLVMTypeOf(x);
    LLVMValueRef least[] = {LLVMBuildFNeg(c->b, x, ""), emit_real(type, -86)};
    LLVMValueRef e = emit_exp_normal(c, emit_intrinsic(c, "llvm.maxnum", type, least, 2));
    return cuda_reciprocal(d, LLVMBuildFAdd(c->b, e, emit_real(type, 1), ""), lanes);
}

/* One test for all lanes; where one is NaN or below -86, all go the long way. */
LLVMValueRef cuda_sigmoid(EmitDevice *d, LLVMValueRef x, uint32_t lanes)
{
    EmitCode *c = &d->code;
    LLVMValueRef fn = LLVMGetBasicBlockParent(LLVMGetInsertBlock(c->b)), value[2];
    LLVMBasicBlockRef from[] = {LLVMAppendBasicBlockInContext(c->context, fn, "usual"),
                                LLVMAppendBasicBlockInContext(c->context, fn, "rare")};
    LLVMBasicBlockRef on = LLVMAppendBasicBlockInContext(c->context, fn, "on");
    LLVMBuildCondBr(c->b, all_at_least(c, x, -86, lanes), from[0], from[1]);
    for (uint32_t rare = 0; rare < 2; rare++) {
        LLVMPositionBuilderAtEnd(c->b, from[rare]);
        value[rare] = rare ? emit_sigmoid(c, x) : usual_sigmoid(d, x, lanes);
        LLVMBuildBr(c->b, on);
    }
    LLVMPositionBuilderAtEnd(c->b, on);
    LLVMValueRef result = LLVMBuildPhi(c->b, LLVMTypeOf(x), "");
    LLVMAddIncoming(result, value, from, 2);
    return result;
}

/* -- shared memory -- */

enum { GLOBAL_MEMORY = 1, SHARED_MEMORY = 3, SHARED_ALIGN = 16 };

LLVMValueRef cuda_shared(EmitDevice *d)
{
    static const char name[] = "step_shared";
    LLVMValueRef global = LLVMGetNamedGlobal(d->code.module, name);
    if (global)
        return global;
    LLVMTypeRef bytes = LLVMArrayType2(LLVMInt8TypeInContext(d->code.context), 0);
    global = LLVMAddGlobalInAddressSpace(d->code.module, bytes, name, SHARED_MEMORY);
    LLVMSetAlignment(global, SHARED_ALIGN);
    return global;
}

LLVMValueRef cuda_shared_array(EmitDevice *d, const char *name, uint32_t bytes)
{
    LLVMTypeRef type = LLVMArrayType2(LLVMInt8TypeInContext(d->code.context), bytes);
    LLVMValueRef global = LLVMAddGlobalInAddressSpace(d->code.module, type, name, SHARED_MEMORY);
    LLVMSetAlignment(global, SHARED_ALIGN);
    LLVMSetInitializer(global, LLVMGetUndef(type));
    LLVMSetLinkage(global, LLVMInternalLinkage);
    return global;
}

/* -- an entry -- */

static void annotate(EmitDevice *d, LLVMValueRef fn, const char *key, uint32_t value)
{
    EmitCode *c = &d->code;
    LLVMMetadataRef fields[] = {LLVMValueAsMetadata(fn),
                                LLVMMDStringInContext2(c->context, key, strlen(key)),
                                LLVMValueAsMetadata(i32_of(c, value))};
    LLVMMetadataRef node = LLVMMDNodeInContext2(c->context, fields, 3);
    LLVMAddNamedMetadataOperand(c->module, "nvvm.annotations",
                                LLVMMetadataAsValue(c->context, node));
}

static void give_attribute(EmitCode *c, LLVMValueRef fn, uint32_t index, const char *name,
                           uint64_t value)
{
    unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
    LLVMAddAttributeAtIndex(fn, index, LLVMCreateEnumAttribute(c->context, kind, value));
}

static uint32_t low_bit(uint64_t x)
{
    return (uint32_t)(x & (~x + 1));
}

LLVMValueRef cuda_entry(EmitDevice *d, const EmitFormula *f, const char *name, uint32_t threads)
{
    enum { KERNEL_CONVENTION = 71, MOST = 192 };
    EmitCode *c = &d->code;
    const EmitRegion *region = f->region;
    LLVMTypeRef types[MOST], pointer = LLVMPointerTypeInContext(c->context, GLOBAL_MEMORY);
    uint32_t n = 0, n_params = region->random_keys.n ? region->random_keys.n + 1 : 0;
    for (; n < region->tensors.n + 2; n++)
        types[n] = pointer;
    for (uint32_t i = 0; i < n_params; i++)
        types[n++] = LLVMInt64TypeInContext(c->context);
    LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(c->context), types, n, false);
    LLVMValueRef fn = LLVMAddFunction(c->module, name, type);
    for (uint32_t i = 0; i < region->tensors.n + 2; i++) {
        const EmitTensor *t = i < region->tensors.n ? &region->tensors.at[i] : NULL;
        give_attribute(c, fn, i + 1, "align", t ? low_bit(t->offset | SHARED_ALIGN) : 8);
        give_attribute(c, fn, i + 1, "noalias", 0);       /* what overlaps is never written */
        if (t ? !t->written : i == region->tensors.n + 1) /* the random words, too */
            give_attribute(c, fn, i + 1, "readonly", 0);
    }
    give_attribute(c, fn, (uint32_t)LLVMAttributeFunctionIndex, "nounwind", 0);
    if (!d->emulated) {
        LLVMSetFunctionCallConv(fn, KERNEL_CONVENTION);
        annotate(d, fn, "maxntidx", threads);
    }
    LLVMPositionBuilderAtEnd(c->b, LLVMAppendBasicBlockInContext(c->context, fn, "entry"));
    return fn;
}

/* -- vectors -- */

static uint32_t lanes_in(LLVMValueRef x)
{
    LLVMTypeRef type = LLVMTypeOf(x);
    return LLVMGetTypeKind(type) == LLVMVectorTypeKind ? LLVMGetVectorSize(type) : 1;
}

LLVMValueRef cuda_lane(EmitCode *c, LLVMValueRef all, uint32_t lane)
{
    return lanes_in(all) == 1 ? all : LLVMBuildExtractElement(c->b, all, i32_of(c, lane), "");
}

LLVMValueRef cuda_part(EmitCode *c, LLVMValueRef all, uint32_t first, uint32_t n)
{
    uint32_t from[EMIT_LANES];
    if (n == lanes_in(all))
        return all;
    if (n == 1)
        return cuda_lane(c, all, first);
    for (uint32_t i = 0; i < n; i++)
        from[i] = first + i;
    return emit_shuffle(c, all, LLVMGetPoison(LLVMTypeOf(all)), from, n);
}

LLVMValueRef cuda_splat(EmitCode *c, LLVMValueRef scalar, uint32_t lanes)
{
    uint32_t zeros[EMIT_LANES] = {0};
    if (lanes == 1)
        return scalar;
    LLVMValueRef poison = LLVMGetPoison(LLVMVectorType(LLVMTypeOf(scalar), lanes));
    LLVMValueRef first = LLVMBuildInsertElement(c->b, poison, scalar, i32_of(c, 0), "");
    return emit_shuffle(c, first, poison, zeros, lanes);
}

/* Pieces of one type, a power of two of them. */
LLVMValueRef cuda_concat(EmitCode *c, const LLVMValueRef *pieces, uint32_t n)
{
    if (n == 1)
        return pieces[0];
    uint32_t each = lanes_in(pieces[0]), from[EMIT_LANES];
    if (each == 1) {
        LLVMValueRef all = LLVMGetPoison(LLVMVectorType(LLVMTypeOf(pieces[0]), n));
        for (uint32_t i = 0; i < n; i++)
            all = LLVMBuildInsertElement(c->b, all, pieces[i], i32_of(c, i), "");
        return all;
    }
    for (uint32_t i = 0; i < n * each; i++)
        from[i] = i;
    LLVMValueRef low = cuda_concat(c, pieces, n / 2), high = cuda_concat(c, pieces + n / 2, n / 2);
    return emit_shuffle(c, low, high, from, n * each);
}

/* -- control flow and addresses -- */

LLVMBasicBlockRef cuda_begin_if(EmitCode *c, LLVMValueRef condition)
{
    if (!condition)
        return NULL;
    LLVMValueRef fn = LLVMGetBasicBlockParent(LLVMGetInsertBlock(c->b));
    LLVMBasicBlockRef yes = LLVMAppendBasicBlockInContext(c->context, fn, "if");
    LLVMBasicBlockRef on = LLVMAppendBasicBlockInContext(c->context, fn, "on");
    LLVMBuildCondBr(c->b, condition, yes, on);
    LLVMPositionBuilderAtEnd(c->b, yes);
    return on;
}

void cuda_end_if(EmitCode *c, LLVMBasicBlockRef on)
{
    if (!on)
        return;
    LLVMBuildBr(c->b, on);
    LLVMPositionBuilderAtEnd(c->b, on);
}

LLVMValueRef cuda_and(EmitCode *c, LLVMValueRef a, LLVMValueRef b)
{
    return !a ? b : !b ? a : LLVMBuildAnd(c->b, a, b, "");
}

LLVMValueRef cuda_bytes_behind(EmitCode *c, LLVMValueRef pointer, LLVMValueRef bytes)
{
    return LLVMBuildInBoundsGEP2(c->b, LLVMInt8TypeInContext(c->context), pointer, &bytes, 1, "");
}

DType cuda_memory_dtype(EmitElem elem)
{
    return elem == ELEM_F64   ? DTYPE_F64
           : elem == ELEM_I32 ? DTYPE_I32
           : elem == ELEM_I64 ? DTYPE_I64
                              : DTYPE_F32;
}
