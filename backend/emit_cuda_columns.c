/* The second kernel of sums over rows: a thread adds a strip of chunks for a few columns, then the
 * block the strips. */
#include "backend/emit_cuda.h"

typedef struct Columns { /* one column result */
    CudaWalk *w;
    const EmitColumn *column;
    PlanCudaSums sums;
    uint32_t lanes;
    int64_t wide; /* groups of lanes of a block */
    DType partial;
    LLVMValueRef x, strip, group, inside; /* i32; inside: NULL if it always is */
    LLVMValueRef shared;
} Columns;

static LLVMValueRef i32_of(EmitCode *c, int64_t value)
{
    return LLVMConstInt(LLVMInt32TypeInContext(c->context), (uint64_t)value, false);
}

static LLVMValueRef i64_from(EmitCode *c, LLVMValueRef i32)
{
    return LLVMBuildZExt(c->b, i32, LLVMInt64TypeInContext(c->context), "");
}

static uint32_t group_bytes(const Columns *k)
{
    return k->lanes * dtype_bytes(k->partial);
}

static LLVMValueRef read_partial(const Columns *k, LLVMValueRef chunk)
{
    EmitCode *c = k->w->c;
    LLVMValueRef at =
        LLVMBuildMul(c->b, i64_from(c, chunk), emit_i64(c, (int64_t)k->w->f->partial_bytes), "");
    LLVMValueRef col = LLVMBuildMul(c->b, i64_from(c, k->group), emit_i64(c, group_bytes(k)), "");
    at = LLVMBuildAdd(c->b, LLVMBuildAdd(c->b, at, emit_i64(c, (int64_t)k->column->offset), ""),
                      col, "");
    return cuda_read(c, k->partial, cuda_bytes_behind(c, k->w->workspace, at), k->lanes,
                     group_bytes(k));
}

/* The strip's chunks in order; all are loaded before the first is added. */
static LLVMValueRef sum_strip(const Columns *k)
{
    EmitCode *c = k->w->c;
    int64_t n = k->sums.chunks_per_strip, chunks = k->sums.chunks;
    LLVMValueRef *part = ARENA_ARRAY(k->w->arena, LLVMValueRef, n),
                 *valid = ARENA_ARRAY(k->w->arena, LLVMValueRef, n);
    LLVMValueRef first = LLVMBuildMul(c->b, k->strip, i32_of(c, n), "");
    for (int64_t i = 0; i < n; i++) {
        LLVMValueRef chunk = LLVMBuildAdd(c->b, first, i32_of(c, i), "");
        if ((k->sums.strips - 1) * n + i >= chunks) {
            valid[i] = LLVMBuildICmp(c->b, LLVMIntULT, chunk, i32_of(c, chunks), "");
            chunk = LLVMBuildSelect(c->b, valid[i], chunk, i32_of(c, chunks - 1), "");
        }
        part[i] = read_partial(k, chunk);
    }
    LLVMValueRef sum = LLVMConstNull(LLVMTypeOf(part[0]));
    for (int64_t i = 0; i < n; i++) {
        LLVMValueRef more = LLVMBuildFAdd(c->b, sum, part[i], "");
        sum = valid[i] ? LLVMBuildSelect(c->b, valid[i], more, sum, "") : more;
    }
    return sum;
}

static LLVMValueRef shared_at(const Columns *k, LLVMValueRef strip)
{
    EmitCode *c = k->w->c;
    LLVMValueRef at = LLVMBuildMul(c->b, strip, i32_of(c, k->wide * group_bytes(k)), "");
    at = LLVMBuildAdd(c->b, at, LLVMBuildMul(c->b, k->x, i32_of(c, group_bytes(k)), ""), "");
    return cuda_bytes_behind(c, k->shared, at);
}

static void write_result(const Columns *k, LLVMValueRef sum)
{
    EmitCode *c = k->w->c;
    const EmitTensor *t = &k->w->f->region->tensors.at[k->column->tensor];
    LLVMValueRef words = NULL;
    bool f64 = t->dtype == DTYPE_F64;
    if ((k->partial == DTYPE_F64) != f64)
        sum = f64 ? emit_lower(c, NODE_to_f64, ELEM_F64, k->lanes, &sum)
                  : emit_lower(c, NODE_to_f32, ELEM_F32, k->lanes, &sum);
    if (t->dtype == DTYPE_BF16)
        words = cuda_pack_bf16(k->w->d, sum, k->lanes);
    uint32_t bytes = dtype_bytes(t->dtype), align = k->lanes * bytes;
    while (t->offset % align)
        align /= 2;
    LLVMValueRef at = LLVMBuildMul(c->b, i64_from(c, k->group), emit_i64(c, k->lanes * bytes), "");
    at = cuda_bytes_behind(c, k->w->base[k->column->tensor], at);
    LLVMBasicBlockRef on = cuda_begin_if(c, k->inside);
    cuda_write(c, t->dtype, at, sum, words, k->lanes, align);
    cuda_end_if(c, on);
}

static void sum_column(const Columns *k)
{
    EmitCode *c = k->w->c;
    LLVMValueRef sum = sum_strip(k);
    if (k->sums.strips == 1) {
        write_result(k, sum);
        return;
    }
    cuda_write(c, k->partial, shared_at(k, k->strip), sum, NULL, k->lanes, group_bytes(k));
    cuda_barrier(k->w->d);
    LLVMValueRef leads = LLVMBuildICmp(c->b, LLVMIntEQ, k->strip, i32_of(c, 0), "");
    LLVMBasicBlockRef on = cuda_begin_if(c, leads);
    for (int64_t i = 0; i < k->sums.strips; i++) {
        LLVMValueRef part =
            cuda_read(c, k->partial, shared_at(k, i32_of(c, i)), k->lanes, group_bytes(k));
        sum = i ? LLVMBuildFAdd(c->b, sum, part, "") : part;
    }
    write_result(k, sum);
    cuda_end_if(c, on);
}

void cuda_emit_columns(CudaWalk *w, const char *name, StepCudaKernel *out)
{
    EmitCode *c = w->c;
    Columns k = {.w = w, .sums = plan_cuda_sums(w->rows, w->cols), .lanes = w->cols % 4 ? 1 : 4};
    int64_t groups = w->cols / k.lanes;
    k.wide = CUDA_FUSED_THREADS / k.sums.strips;
    cuda_walk_begin(w, name, CUDA_FUSED_THREADS);
    if (k.sums.strips > 1)
        k.shared = cuda_shared_array(w->d, arena_printf(w->arena, "%s_shared", name),
                                     CUDA_FUSED_THREADS * k.lanes * dtype_bytes(DTYPE_F64));
    k.x = LLVMBuildURem(c->b, w->thread, i32_of(c, k.wide), "");
    k.strip = LLVMBuildUDiv(c->b, w->thread, i32_of(c, k.wide), "");
    k.group = LLVMBuildMul(c->b, cuda_block_index(w->d), i32_of(c, k.wide), "");
    k.group = LLVMBuildAdd(c->b, k.group, k.x, "");
    if (groups % k.wide) {
        k.inside = LLVMBuildICmp(c->b, LLVMIntULT, k.group, i32_of(c, groups), "");
        k.group = LLVMBuildSelect(c->b, k.inside, k.group, i32_of(c, groups - 1), "");
    }
    for (uint32_t i = 0; i < w->f->columns.n; i++) {
        k.column = &w->f->columns.at[i];
        k.partial = cuda_memory_dtype((EmitElem)emit_rec(w->f, k.column->a)->elem);
        if (i && k.sums.strips > 1)
            cuda_barrier(w->d);
        sum_column(&k);
    }
    LLVMBuildRetVoid(c->b);
    out->cols_name = name;
    out->cols_grid = (uint32_t)plan_ceil_div(groups, k.wide);
    out->cols_threads = CUDA_FUSED_THREADS;
}
