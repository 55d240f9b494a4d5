#include "backend/emit_cpu.h"

LLVMValueRef emit_function(EmitCode *c, const char *name, const char *params)
{
    LLVMTypeRef types[8], pointer = LLVMPointerTypeInContext(c->context, 0);
    uint32_t n = 0;
    for (; params[n]; n++)
        types[n] = params[n] == 'p' ? pointer : LLVMInt64TypeInContext(c->context);
    LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(c->context), types, n, false);
    LLVMValueRef fn = LLVMAddFunction(c->module, name, type);
    static const char width[] = "prefer-vector-width", bits[] = "512", nounwind[] = "nounwind";
    LLVMAttributeRef attributes[] = {
        LLVMCreateStringAttribute(c->context, width, sizeof width - 1, bits, sizeof bits - 1),
        LLVMCreateEnumAttribute(c->context,
                                LLVMGetEnumAttributeKindForName(nounwind, sizeof nounwind - 1), 0),
    };
    for (uint32_t i = 0; i < 2; i++)
        LLVMAddAttributeAtIndex(fn, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, attributes[i]);
    LLVMSetLinkage(fn, LLVMInternalLinkage);
    LLVMPositionBuilderAtEnd(c->b, LLVMAppendBasicBlockInContext(c->context, fn, "entry"));
    return fn;
}

LLVMValueRef emit_tensor_base(EmitCode *c, LLVMValueRef tensors, uint32_t index)
{
    LLVMTypeRef pointer = LLVMPointerTypeInContext(c->context, 0);
    LLVMValueRef at = emit_i64(c, index);
    return LLVMBuildLoad2(c->b, pointer, LLVMBuildGEP2(c->b, pointer, tensors, &at, 1, ""), "");
}

typedef struct Columns { /* one column result */
    EmitCode *c;
    const EmitFormula *f;
    const EmitColumn *column;
    LLVMValueRef fn, out, col_end, workspace, n_chunks;
    DType partial, result;
} Columns;

static LLVMBasicBlockRef block(const Columns *k, const char *name)
{
    return LLVMAppendBasicBlockInContext(k->c->context, k->fn, name);
}

static LLVMValueRef read_partial(const Columns *k, LLVMValueRef chunk, LLVMValueRef j,
                                 uint32_t lanes)
{
    EmitCode *c = k->c;
    LLVMValueRef at = LLVMBuildMul(c->b, chunk, emit_i64(c, (int64_t)k->f->partial_bytes), "");
    at = LLVMBuildAdd(c->b, at, emit_i64(c, (int64_t)k->column->offset), "");
    at = LLVMBuildGEP2(c->b, LLVMInt8TypeInContext(c->context), k->workspace, &at, 1, "");
    at = LLVMBuildGEP2(c->b, emit_storage(c, k->partial, 1), at, &j, 1, "");
    LLVMValueRef value = LLVMBuildLoad2(c->b, emit_storage(c, k->partial, lanes), at, "");
    LLVMSetAlignment(value, dtype_bytes(k->partial));
    return value;
}

/* The chunks' partial sums in chunk order. */
static LLVMValueRef sum_chunks(const Columns *k, LLVMValueRef j, uint32_t lanes)
{
    EmitCode *c = k->c;
    LLVMValueRef first = read_partial(k, emit_i64(c, 0), j, lanes), one = emit_i64(c, 1);
    LLVMBasicBlockRef before = LLVMGetInsertBlock(c->b), head = block(k, "chunks"),
                      body = block(k, "chunk"), end = block(k, "summed");
    LLVMBuildBr(c->b, head);
    LLVMPositionBuilderAtEnd(c->b, head);
    LLVMValueRef chunk = LLVMBuildPhi(c->b, LLVMTypeOf(one), "chunk");
    LLVMValueRef sum = LLVMBuildPhi(c->b, LLVMTypeOf(first), "sum");
    LLVMBuildCondBr(c->b, LLVMBuildICmp(c->b, LLVMIntSLT, chunk, k->n_chunks, ""), body, end);
    LLVMPositionBuilderAtEnd(c->b, body);
    LLVMValueRef more = LLVMBuildFAdd(c->b, sum, read_partial(k, chunk, j, lanes), "");
    LLVMValueRef next = LLVMBuildAdd(c->b, chunk, one, "");
    LLVMBuildBr(c->b, head);
    LLVMAddIncoming(chunk, (LLVMValueRef[]){one, next}, (LLVMBasicBlockRef[]){before, body}, 2);
    LLVMAddIncoming(sum, (LLVMValueRef[]){first, more}, (LLVMBasicBlockRef[]){before, body}, 2);
    LLVMPositionBuilderAtEnd(c->b, end);
    return sum;
}

static void write_result(const Columns *k, LLVMValueRef j, LLVMValueRef sum, uint32_t lanes)
{
    EmitCode *c = k->c;
    if (k->partial != (k->result == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32))
        sum = k->result == DTYPE_F64 ? emit_lower(c, NODE_to_f64, ELEM_F64, lanes, &sum)
                                     : emit_lower(c, NODE_to_f32, ELEM_F32, lanes, &sum);
    if (k->result == DTYPE_BF16)
        sum = emit_lower(c, NODE_round_bf16, ELEM_F32, lanes, &sum);
    LLVMValueRef at = LLVMBuildGEP2(c->b, emit_storage(c, k->result, 1), k->out, &j, 1, "");
    LLVMValueRef store = LLVMBuildStore(c->b, emit_to_storage(c, sum, k->result, lanes), at);
    LLVMSetAlignment(store, dtype_bytes(k->result));
}

/* As many steps of `lanes` columns as fit before the end; returns the column behind them. */
static LLVMValueRef sum_steps(const Columns *k, LLVMValueRef from, uint32_t lanes)
{
    EmitCode *c = k->c;
    LLVMBasicBlockRef before = LLVMGetInsertBlock(c->b), head = block(k, "columns"),
                      body = block(k, "step"), end = block(k, "behind");
    LLVMBuildBr(c->b, head);
    LLVMPositionBuilderAtEnd(c->b, head);
    LLVMValueRef j = LLVMBuildPhi(c->b, LLVMTypeOf(from), "j");
    LLVMValueRef next = LLVMBuildAdd(c->b, j, emit_i64(c, lanes), "");
    LLVMBuildCondBr(c->b, LLVMBuildICmp(c->b, LLVMIntSLE, next, k->col_end, ""), body, end);
    LLVMPositionBuilderAtEnd(c->b, body);
    write_result(k, j, sum_chunks(k, j, lanes), lanes);
    LLVMBasicBlockRef latch = LLVMGetInsertBlock(c->b);
    LLVMBuildBr(c->b, head);
    LLVMAddIncoming(j, (LLVMValueRef[]){from, next}, (LLVMBasicBlockRef[]){before, latch}, 2);
    LLVMPositionBuilderAtEnd(c->b, end);
    return j;
}

LLVMValueRef emit_columns_function(EmitCode *c, const EmitFormula *f, const char *name)
{
    LLVMValueRef fn = emit_function(c, name, "piipi");
    for (uint32_t i = 0; i < f->columns.n; i++) {
        const EmitColumn *column = &f->columns.at[i];
        Columns k = {.c = c, .f = f, .column = column, .fn = fn};
        k.out = emit_tensor_base(c, LLVMGetParam(fn, 0), column->tensor);
        k.col_end = LLVMGetParam(fn, 2);
        k.workspace = LLVMGetParam(fn, 3);
        k.n_chunks = LLVMGetParam(fn, 4);
        k.partial = emit_rec(f, column->a)->elem == ELEM_F64 ? DTYPE_F64 : DTYPE_F32;
        k.result = f->region->tensors.at[column->tensor].dtype;
        sum_steps(&k, sum_steps(&k, LLVMGetParam(fn, 1), EMIT_LANES), 1);
    }
    LLVMBuildRetVoid(c->b);
    return fn;
}
