/* The walks over the space: flat, or by rows with reductions and sums over rows. */
#include "backend/emit_cuda.h"

enum { FLAT_STEPS = 2, SLOT_BYTES = 8 };

static LLVMValueRef i32_of(EmitCode *c, int64_t value)
{
    return LLVMConstInt(LLVMInt32TypeInContext(c->context), (uint64_t)value, false);
}

static LLVMValueRef below(CudaWalk *w, LLVMValueRef a, int64_t limit)
{
    return LLVMBuildICmp(w->c->b, LLVMIntULT, a,
                         LLVMConstInt(LLVMTypeOf(a), (uint64_t)limit, false), "");
}

static LLVMValueRef at_most(CudaWalk *w, LLVMValueRef a, int64_t most)
{
    return LLVMBuildSelect(w->c->b, below(w, a, most), a,
                           LLVMConstInt(LLVMTypeOf(a), (uint64_t)most, false), "");
}

static LLVMValueRef plus(CudaWalk *w, LLVMValueRef a, LLVMValueRef b)
{
    return LLVMBuildNUWAdd(w->c->b, a, b, "");
}

static LLVMValueRef times(CudaWalk *w, LLVMValueRef a, int64_t factor)
{
    return LLVMBuildNUWMul(w->c->b, a, cuda_number(w, factor), "");
}

/* -- flat -- */

/* Ops that pair a row's halves: a thread then takes a group of each. */
static bool pairs_halves(const EmitFormula *f)
{
    for (uint32_t i = 1; i < f->nodes.n; i++)
        if (f->nodes.at[i].kind == NODE_swap_half ||
            (f->nodes.at[i].kind == NODE_load && f->nodes.at[i].access.walk == WALK_PARTNER))
            return true;
    return false;
}

/* One item: a group, or a pair of groups. */
static uint32_t flat_steps(CudaWalk *w, LLVMValueRef item, LLVMValueRef inside, bool paired,
                           CudaStep **out)
{
    LLVMBuilderRef b = w->c->b;
    LLVMValueRef per_row = cuda_number(w, paired ? w->groups / 2 : w->groups);
    CudaRow *row = cuda_row(w, LLVMBuildUDiv(b, item, per_row, ""));
    LLVMValueRef group = LLVMBuildURem(b, item, per_row, "");
    out[0] = cuda_step(w, row, group);
    out[0]->inside = inside;
    if (!paired) {
        out[0]->whole = item;
        return 1;
    }
    out[1] = cuda_step(w, row, plus(w, group, per_row));
    out[1]->inside = inside;
    out[0]->partner = out[1];
    out[1]->partner = out[0];
    return 2;
}

void cuda_emit_flat(CudaWalk *w, const char *name, StepCudaKernel *out)
{
    bool paired = pairs_halves(w->f);
    int64_t items = w->rows * w->groups / (paired ? 2 : 1);
    uint32_t per_thread = paired ? 1 : FLAT_STEPS, per_block = per_thread * CUDA_FUSED_THREADS;
    CudaStep *steps[FLAT_STEPS][2];
    uint32_t n_steps = 0;
    cuda_walk_begin(w, name, CUDA_FUSED_THREADS);
    LLVMValueRef first = times(w, cuda_index(w, cuda_block_index(w->d)), per_block);
    first = plus(w, first, cuda_index(w, w->thread));
    for (uint32_t i = 0; i < per_thread; i++) {
        LLVMValueRef item = plus(w, first, cuda_number(w, (int64_t)i * CUDA_FUSED_THREADS)),
                     inside = NULL;
        if (items % per_block) {
            inside = below(w, item, items);
            item = at_most(w, item, items - 1);
        }
        n_steps = flat_steps(w, item, inside, paired, steps[i]);
        for (uint32_t k = 0; k < n_steps; k++)
            cuda_issue_loads(w, steps[i][k]);
    }
    for (uint32_t i = 0; i < per_thread; i++) {
        LLVMValueRef leads =
            LLVMBuildICmp(w->c->b, LLVMIntEQ, steps[i][0]->group, cuda_number(w, 0), "");
        leads = cuda_and(w->c, steps[i][0]->inside, leads);
        for (uint32_t stage = 0; stage < w->f->n_stages; stage++)
            cuda_stores(w, steps[i], n_steps, stage, leads);
    }
    LLVMBuildRetVoid(w->c->b);
    out->name = name;
    out->grid = (uint32_t)plan_ceil_div(items, per_block);
    out->threads = CUDA_FUSED_THREADS;
}

/* -- reductions over a row -- */

typedef struct Rows { /* a walk by rows */
    CudaWalk *w;
    PlanCudaRow shape;
    PlanCudaSums sums;
    int64_t tiles;
    uint32_t stages, most; /* stages with reductions; reductions of one stage */
    uint32_t *nodes;       /* room for these */
    LLVMValueRef t, g;     /* thread of its row; row of the block (i32) */
    LLVMValueRef *groups;  /* by step: its group, */
    LLVMValueRef *inside;  /* and whether it exists, or NULL */
    LLVMValueRef chunk;    /* i32 */
    LLVMValueRef pass;     /* how many times the block has taken rows (i32); NULL: once */
    CudaStep **steps;
    CudaRow *row;
    LLVMValueRef row_inside;   /* NULL: it is */
    LLVMValueRef **sum, **phi; /* by column result and step */
    uint32_t shared_bytes;
} Rows;

static uint32_t find_reductions(Rows *x, uint32_t stage)
{
    const EmitFormula *f = x->w->f;
    uint32_t n = 0;
    for (uint32_t i = 1; i < f->nodes.n; i++)
        if (emit_kind_info((EmitKind)f->nodes.at[i].kind)->class == EMIT_REDUCE &&
            f->nodes.at[i].stage == stage)
            x->nodes[n++] = i;
    return n;
}

/* A thread's own elements, in order. */
static LLVMValueRef sum_own(Rows *x, uint32_t node)
{
    CudaWalk *w = x->w;
    const EmitNodeRec *rec = &w->f->nodes.at[node];
    bool dot = emit_kind_info((EmitKind)rec->kind)->n_args > 1;
    LLVMValueRef sum = LLVMConstNull(emit_type(w->c, (EmitElem)rec->elem, 1));
    for (uint32_t k = 0; k < x->shape.steps; k++) {
        LLVMValueRef a = cuda_value(w, x->steps[k], rec->arg[0]), before = sum;
        LLVMValueRef b = dot ? cuda_value(w, x->steps[k], rec->arg[1]) : NULL;
        for (uint32_t i = 0; i < w->lanes; i++) {
            LLVMValueRef term = cuda_lane(w->c, a, i);
            sum = dot ? emit_fma(w->c, term, cuda_lane(w->c, b, i), sum)
                      : LLVMBuildFAdd(w->c->b, sum, term, "");
        }
        if (x->inside[k])
            sum = LLVMBuildSelect(w->c->b, x->inside[k], sum, before, "");
    }
    return sum;
}

static LLVMValueRef sum_of_warp(Rows *x, LLVMValueRef sum)
{
    uint32_t threads =
        x->shape.threads < CUDA_FUSED_WARP ? (uint32_t)x->shape.threads : CUDA_FUSED_WARP;
    for (uint32_t distance = threads / 2; distance; distance /= 2)
        sum = LLVMBuildFAdd(x->w->c->b, sum, cuda_exchange(x->w->d, sum, distance), "");
    return sum;
}

/* Where warp `warp` leaves its sum of reduction i. Two sets take turns, so that one barrier is
 * enough. */
static LLVMValueRef slot(Rows *x, LLVMValueRef set, uint32_t i, LLVMValueRef warp)
{
    EmitCode *c = x->w->c;
    int64_t warps = x->shape.threads / CUDA_FUSED_WARP;
    LLVMValueRef at = LLVMBuildMul(c->b, set, i32_of(c, x->most * warps * SLOT_BYTES), "");
    at = LLVMBuildAdd(c->b, at, i32_of(c, i * warps * SLOT_BYTES), "");
    at = LLVMBuildAdd(c->b, at, LLVMBuildMul(c->b, warp, i32_of(c, SLOT_BYTES), ""), "");
    return cuda_bytes_behind(c, cuda_shared(x->w->d), at);
}

static void sum_of_block(Rows *x, uint32_t n, LLVMValueRef set, LLVMValueRef *sums)
{
    EmitCode *c = x->w->c;
    uint32_t warps = (uint32_t)(x->shape.threads / CUDA_FUSED_WARP);
    LLVMValueRef warp = LLVMBuildLShr(c->b, x->w->thread, i32_of(c, 5), "");
    LLVMValueRef lane = LLVMBuildAnd(c->b, x->w->thread, i32_of(c, CUDA_FUSED_WARP - 1), "");
    LLVMBasicBlockRef on = cuda_begin_if(c, LLVMBuildICmp(c->b, LLVMIntEQ, lane, i32_of(c, 0), ""));
    for (uint32_t i = 0; i < n; i++)
        LLVMBuildStore(c->b, sums[i], slot(x, set, i, warp));
    cuda_end_if(c, on);
    cuda_barrier(x->w->d);
    for (uint32_t i = 0; i < n; i++) {
        LLVMTypeRef type = emit_type(c, (EmitElem)x->w->f->nodes.at[x->nodes[i]].elem, 1);
        for (uint32_t k = 0; k < warps; k++) {
            LLVMValueRef part = LLVMBuildLoad2(c->b, type, slot(x, set, i, i32_of(c, k)), "");
            sums[i] = k ? LLVMBuildFAdd(c->b, sums[i], part, "") : part;
        }
    }
}

/* done: stages with reductions before this one in the row. */
static bool reduce(Rows *x, uint32_t stage, uint32_t done)
{
    CudaWalk *w = x->w;
    uint32_t n = find_reductions(x, stage);
    LLVMValueRef *sums = ARENA_ARRAY(w->arena, LLVMValueRef, n);
    for (uint32_t i = 0; i < n; i++)
        sums[i] = sum_of_warp(x, sum_own(x, x->nodes[i]));
    if (n && x->shape.threads > CUDA_FUSED_WARP) {
        LLVMValueRef turn = i32_of(w->c, done);
        if (x->pass && x->stages % 2)
            turn = LLVMBuildAdd(w->c->b, x->pass, turn, "");
        sum_of_block(x, n, LLVMBuildAnd(w->c->b, turn, i32_of(w->c, 1), ""), sums);
    }
    for (uint32_t i = 0; i < n; i++)
        x->row->uniform[x->nodes[i]] = sums[i];
    return n > 0;
}

/* -- one row -- */

static void begin_row(Rows *x, LLVMValueRef r, LLVMValueRef row_inside)
{
    CudaWalk *w = x->w;
    int64_t steps = x->shape.steps;
    bool exact = x->tiles == 1 && steps % 2 == 0 && steps * x->shape.threads == w->groups;
    x->row = cuda_row(w, r);
    x->row_inside = row_inside;
    for (int64_t k = 0; k < steps; k++) {
        x->steps[k] = cuda_step(w, x->row, x->groups[k]);
        x->steps[k]->inside = cuda_and(w->c, x->inside[k], row_inside);
    }
    for (int64_t k = 0; k < steps && exact; k++)
        x->steps[k]->partner = x->steps[(k + steps / 2) % steps];
    for (int64_t k = 0; k < steps; k++)
        cuda_issue_loads(w, x->steps[k]);
}

static void add_columns(Rows *x)
{
    CudaWalk *w = x->w;
    for (uint32_t i = 0; i < w->f->columns.n; i++)
        for (int64_t k = 0; k < x->shape.steps; k++) {
            const EmitColumn *column = &w->f->columns.at[i];
            LLVMValueRef a = cuda_value(w, x->steps[k], column->a.i), old = x->sum[i][k];
            LLVMValueRef sum = column->b.i
                                   ? emit_fma(w->c, a, cuda_value(w, x->steps[k], column->b.i), old)
                                   : LLVMBuildFAdd(w->c->b, old, a, "");
            if (x->steps[k]->inside)
                sum = LLVMBuildSelect(w->c->b, x->steps[k]->inside, sum, old, "");
            x->sum[i][k] = sum;
        }
}

static void emit_row(Rows *x)
{
    CudaWalk *w = x->w;
    LLVMValueRef leads = LLVMBuildICmp(w->c->b, LLVMIntEQ, x->t, i32_of(w->c, 0), "");
    leads = cuda_and(w->c, leads, x->row_inside);
    for (uint32_t stage = 0, done = 0; stage < w->f->n_stages; stage++) {
        done += reduce(x, stage, done);
        cuda_stores(w, x->steps, (uint32_t)x->shape.steps, stage, leads);
    }
    add_columns(x);
}

/* -- rows without sums over them: a block has its rows at once -- */

static void row_of_block(Rows *x)
{
    CudaWalk *w = x->w;
    LLVMValueRef r = times(w, cuda_index(w, cuda_block_index(w->d)), x->shape.rows), inside = NULL;
    r = plus(w, r, cuda_index(w, x->g));
    if (w->rows % x->shape.rows) {
        inside = below(w, r, w->rows);
        r = at_most(w, r, w->rows - 1);
    }
    begin_row(x, r, inside);
    emit_row(x);
}

/* -- sums over rows: a block has a chunk of them, one set of rows after the other -- */

static LLVMTypeRef sum_type(const Rows *x, uint32_t column)
{
    const EmitFormula *f = x->w->f;
    return emit_type(x->w->c, (EmitElem)emit_rec(f, f->columns.at[column].a)->elem, x->w->lanes);
}

static void row_of_chunk(Rows *x)
{
    CudaWalk *w = x->w;
    LLVMValueRef r = times(w, cuda_index(w, x->chunk), x->sums.rows_per_chunk), inside = NULL;
    r = plus(w, r, times(w, cuda_index(w, x->pass), x->shape.rows));
    r = plus(w, r, cuda_index(w, x->g));
    if (w->rows % x->sums.rows_per_chunk) {
        inside = below(w, r, w->rows);
        r = at_most(w, r, w->rows - 1);
    }
    begin_row(x, r, inside);
    emit_row(x);
}

static void rows_of_chunk(Rows *x)
{
    CudaWalk *w = x->w;
    EmitCode *c = w->c;
    LLVMBasicBlockRef before = LLVMGetInsertBlock(c->b);
    LLVMBasicBlockRef loop = LLVMAppendBasicBlockInContext(c->context, w->fn, "rows");
    LLVMBasicBlockRef end = LLVMAppendBasicBlockInContext(c->context, w->fn, "summed");
    LLVMBuildBr(c->b, loop);
    LLVMPositionBuilderAtEnd(c->b, loop);
    LLVMValueRef zero = i32_of(c, 0);
    x->pass = LLVMBuildPhi(c->b, LLVMTypeOf(zero), "pass");
    LLVMAddIncoming(x->pass, &zero, &before, 1);
    for (uint32_t i = 0; i < w->f->columns.n; i++)
        for (int64_t k = 0; k < x->shape.steps; k++) {
            LLVMValueRef none = LLVMConstNull(sum_type(x, i));
            x->phi[i][k] = x->sum[i][k] = LLVMBuildPhi(c->b, sum_type(x, i), "sum");
            LLVMAddIncoming(x->phi[i][k], &none, &before, 1);
        }
    LLVMValueRef pass = x->pass;
    row_of_chunk(x);
    LLVMValueRef next = LLVMBuildAdd(c->b, pass, i32_of(c, 1), "");
    LLVMBasicBlockRef latch = LLVMGetInsertBlock(c->b);
    LLVMBuildCondBr(c->b, below(w, next, x->sums.rows_per_chunk / x->shape.rows), loop, end);
    LLVMAddIncoming(pass, &next, &latch, 1);
    for (uint32_t i = 0; i < w->f->columns.n; i++)
        for (int64_t k = 0; k < x->shape.steps; k++)
            LLVMAddIncoming(x->phi[i][k], &x->sum[i][k], &latch, 1);
    LLVMPositionBuilderAtEnd(c->b, end);
}

/* The chunk's row of the workspace, at a group of lanes. */
static void write_partial(Rows *x, uint32_t column, LLVMValueRef group, LLVMValueRef sum)
{
    CudaWalk *w = x->w;
    EmitCode *c = w->c;
    const EmitFormula *f = w->f;
    LLVMTypeRef i64 = LLVMInt64TypeInContext(c->context);
    DType dtype = cuda_memory_dtype((EmitElem)emit_rec(f, f->columns.at[column].a)->elem);
    uint32_t bytes = dtype_bytes(dtype);
    LLVMValueRef at = LLVMBuildMul(c->b, LLVMBuildZExt(c->b, x->chunk, i64, ""),
                                   emit_i64(c, (int64_t)f->partial_bytes), "");
    at = LLVMBuildAdd(c->b, at, emit_i64(c, (int64_t)f->columns.at[column].offset), "");
    LLVMValueRef col = LLVMBuildZExtOrBitCast(c->b, group, i64, "");
    at = LLVMBuildAdd(c->b, at, LLVMBuildMul(c->b, col, emit_i64(c, w->lanes * bytes), ""), "");
    cuda_write(c, dtype, cuda_bytes_behind(c, w->workspace, at), sum, NULL, w->lanes,
               w->lanes * bytes);
}

/* Sums of the rows that a block has at once, group after group, in order. */
static void join_rows(Rows *x, uint32_t column)
{
    CudaWalk *w = x->w;
    EmitCode *c = w->c;
    DType dtype = cuda_memory_dtype((EmitElem)emit_rec(w->f, w->f->columns.at[column].a)->elem);
    int64_t bytes = w->lanes * dtype_bytes(dtype), row_bytes = w->groups * bytes;
    LLVMValueRef shared = cuda_shared(w->d),
                 own = LLVMBuildMul(c->b, x->g, i32_of(c, row_bytes), "");
    for (int64_t k = 0; k < x->shape.steps; k++) {
        LLVMValueRef group = LLVMBuildTruncOrBitCast(c->b, x->groups[k], LLVMTypeOf(own), "");
        LLVMValueRef at =
            LLVMBuildAdd(c->b, own, LLVMBuildMul(c->b, group, i32_of(c, bytes), ""), "");
        LLVMBasicBlockRef on = cuda_begin_if(c, x->inside[k]);
        cuda_write(c, dtype, cuda_bytes_behind(c, shared, at), x->sum[column][k], NULL, w->lanes,
                   (uint32_t)bytes);
        cuda_end_if(c, on);
    }
    cuda_barrier(w->d);
    for (int64_t first = 0; first < w->groups; first += CUDA_FUSED_THREADS) {
        LLVMValueRef group = LLVMBuildAdd(c->b, w->thread, i32_of(c, first), "");
        LLVMBasicBlockRef on = cuda_begin_if(
            c, first + CUDA_FUSED_THREADS > w->groups ? below(w, group, w->groups) : NULL);
        LLVMValueRef at = cuda_bytes_behind(c, shared,
                                            LLVMBuildMul(c->b, group, i32_of(c, bytes), "")),
                     sum = NULL;
        for (int64_t g = 0; g < x->shape.rows; g++) {
            LLVMValueRef from = cuda_bytes_behind(c, at, i32_of(c, g * row_bytes));
            LLVMValueRef part = cuda_read(c, dtype, from, w->lanes, (uint32_t)bytes);
            sum = g ? LLVMBuildFAdd(c->b, sum, part, "") : part;
        }
        write_partial(x, column, group, sum);
        cuda_end_if(c, on);
    }
    if (column + 1 < w->f->columns.n)
        cuda_barrier(w->d);
    if (row_bytes * x->shape.rows > x->shared_bytes)
        x->shared_bytes = (uint32_t)(row_bytes * x->shape.rows);
}

static void write_partials(Rows *x)
{
    for (uint32_t i = 0; i < x->w->f->columns.n; i++) {
        if (x->shape.rows > 1) {
            join_rows(x, i);
            continue;
        }
        for (int64_t k = 0; k < x->shape.steps; k++) {
            LLVMBasicBlockRef on = cuda_begin_if(x->w->c, x->inside[k]);
            write_partial(x, i, x->groups[k], x->sum[i][k]);
            cuda_end_if(x->w->c, on);
        }
    }
}

/* -- the kernel -- */

static void prepare(Rows *x, CudaWalk *w)
{
    const EmitFormula *f = w->f;
    *x = (Rows){.w = w, .tiles = 1};
    x->sums = plan_cuda_sums(w->rows, w->cols);
    x->shape = x->sums.row;
    x->nodes = ARENA_ARRAY(w->arena, uint32_t, f->nodes.n);
    for (uint32_t stage = 0; stage < f->n_stages; stage++) {
        uint32_t n = find_reductions(x, stage);
        x->stages += n > 0;
        x->most = n > x->most ? n : x->most;
    }
    if (!x->stages && x->sums.tiles > 1) {
        x->tiles = x->sums.tiles;
        x->shape = (PlanCudaRow){w->lanes, CUDA_FUSED_THREADS, 1, 1};
    }
    x->groups = ARENA_ARRAY(w->arena, LLVMValueRef, x->shape.steps);
    x->inside = ARENA_ARRAY(w->arena, LLVMValueRef, x->shape.steps);
    x->steps = ARENA_ARRAY(w->arena, CudaStep *, x->shape.steps);
    x->sum = ARENA_ARRAY(w->arena, LLVMValueRef *, f->columns.n);
    x->phi = ARENA_ARRAY(w->arena, LLVMValueRef *, f->columns.n);
    for (uint32_t i = 0; i < f->columns.n; i++) {
        x->sum[i] = ARENA_ARRAY(w->arena, LLVMValueRef, x->shape.steps);
        x->phi[i] = ARENA_ARRAY(w->arena, LLVMValueRef, x->shape.steps);
    }
}

/* Which groups of its row a thread has: the same for all its rows. */
static void place_thread(Rows *x)
{
    CudaWalk *w = x->w;
    EmitCode *c = w->c;
    int64_t threads = x->shape.threads, last = w->groups - 1;
    x->t = x->shape.rows > 1 ? LLVMBuildURem(c->b, w->thread, i32_of(c, threads), "") : w->thread;
    x->g =
        x->shape.rows > 1 ? LLVMBuildUDiv(c->b, w->thread, i32_of(c, threads), "") : i32_of(c, 0);
    LLVMValueRef first = x->t;
    if (w->f->columns.n)
        x->chunk = cuda_block_index(w->d);
    if (x->tiles > 1) {
        LLVMValueRef tile = LLVMBuildURem(c->b, x->chunk, i32_of(c, x->tiles), "");
        x->chunk = LLVMBuildUDiv(c->b, x->chunk, i32_of(c, x->tiles), "");
        first = LLVMBuildAdd(c->b, first, LLVMBuildMul(c->b, tile, i32_of(c, threads), ""), "");
    }
    for (int64_t k = 0; k < x->shape.steps; k++) {
        x->groups[k] = plus(w, cuda_index(w, first), cuda_number(w, k * threads));
        if ((k + 1) * threads * x->tiles > w->groups) {
            x->inside[k] = below(w, x->groups[k], w->groups);
            x->groups[k] = at_most(w, x->groups[k], last);
        }
    }
}

void cuda_emit_rows(CudaWalk *w, const char *name, StepCudaKernel *out)
{
    Rows *x = ARENA_NEW(w->arena, Rows);
    prepare(x, w);
    out->threads = (uint32_t)(x->shape.threads * x->shape.rows);
    cuda_walk_begin(w, name, out->threads);
    place_thread(x);
    if (w->f->columns.n) {
        rows_of_chunk(x);
        write_partials(x);
        out->grid = (uint32_t)(x->sums.chunks * x->tiles);
    } else {
        row_of_block(x);
        out->grid = (uint32_t)plan_ceil_div(w->rows, x->shape.rows);
    }
    LLVMBuildRetVoid(w->c->b);
    if (x->stages && x->shape.threads > CUDA_FUSED_WARP)
        x->shared_bytes = 2 * x->most * (uint32_t)(x->shape.threads / CUDA_FUSED_WARP) * SLOT_BYTES;
    out->name = name;
    out->shared_bytes = x->shared_bytes;
}
