#include "backend/emit_cpu.h"

#include <stdlib.h>

enum {
    KEEP_ABOVE = 12,    /* cost above which a later sweep of the row reads a value back */
    STRAIGHT_COLS = 64, /* rows up to here have no loop, and their values stay in registers */
    MAX_STEPS = STRAIGHT_COLS / EMIT_LANES,
};

typedef struct Walk {
    EmitCode *c;
    const EmitFormula *f;
    Arena *arena;
    int64_t cols;
    bool straight;
    LLVMValueRef fn, r, partials, random, params;
    LLVMValueRef *base;                       /* by tensor */
    LLVMValueRef *uniform;                    /* by node: its one value in the row */
    LLVMValueRef *sum;                        /* by reduction: its lanes so far */
    LLVMValueRef *kept;                       /* by node: a row of scratch, or NULL */
    uint32_t *prepared;                       /* by node: 1 + the last sweep it was prepared for */
    EmitPieces *pieces;                       /* by node: where a load's row is */
    EmitPieces *store_pieces, *column_pieces; /* by store, by column sum */
    LLVMValueRef *straight_memo[MAX_STEPS];
} Walk;

static uint32_t n_args(const EmitNodeRec *rec)
{
    return emit_kind_info((EmitKind)rec->kind)->n_args;
}

static EmitClass class_of(const EmitNodeRec *rec)
{
    return emit_kind_info((EmitKind)rec->kind)->class;
}

static const EmitNodeRec *rec_of(const Walk *w, uint32_t node)
{
    return &w->f->nodes.at[node];
}

static DType memory_dtype(EmitElem elem)
{
    return elem == ELEM_F64   ? DTYPE_F64
           : elem == ELEM_I32 ? DTYPE_I32
           : elem == ELEM_I64 ? DTYPE_I64
                              : DTYPE_F32;
}

/* -- what is kept from one sweep of the row for the next -- */

static uint32_t cost_of(const Walk *w, uint32_t node, uint32_t budget)
{
    const EmitNodeRec *rec = rec_of(w, node);
    uint32_t cost = rec->lanes ? emit_kind_info((EmitKind)rec->kind)->cost : 0;
    for (uint32_t i = 0; rec->lanes && i < n_args(rec) && cost <= budget; i++)
        cost += cost_of(w, rec->arg[i], budget - cost);
    return cost;
}

typedef struct Marks {
    bool *kept; /* by node */
    bool *seen; /* by sweep and node */
} Marks;

/* Marks what `node`, computed in the sweep `stage`, needs kept from earlier ones. */
static void mark_kept(Walk *w, uint32_t node, uint32_t stage, const Marks *m)
{
    const EmitNodeRec *rec = rec_of(w, node);
    bool *seen = &m->seen[stage * w->f->nodes.n + node];
    if (!rec->lanes || *seen)
        return;
    *seen = true;
    if (rec->kind == NODE_swap_half) { /* reads the whole row of its argument */
        m->kept[rec->arg[0]] = true;
        mark_kept(w, rec->arg[0], rec_of(w, rec->arg[0])->stage, m);
        return;
    }
    bool early = rec->stage < stage;
    if (early && rec->elem != ELEM_BIT && cost_of(w, node, KEEP_ABOVE) > KEEP_ABOVE)
        m->kept[node] = true;
    uint32_t own = early && m->kept[node] ? rec->stage : stage;
    for (uint32_t i = 0; i < n_args(rec); i++)
        mark_kept(w, rec->arg[i], own, m);
}

static uint32_t column_stage(const Walk *w, const EmitColumn *column)
{
    uint32_t a = rec_of(w, column->a.i)->stage, b = column->b.i ? rec_of(w, column->b.i)->stage : 0;
    return a > b ? a : b;
}

/* In the entry block. */
static void keep_rows(Walk *w)
{
    const EmitFormula *f = w->f;
    Marks m = {ARENA_ARRAY(w->arena, bool, f->nodes.n),
               ARENA_ARRAY(w->arena, bool, f->nodes.n * f->n_stages)};
    if (w->straight)
        return;
    for (uint32_t i = 1; i < f->nodes.n; i++)
        for (uint32_t k = 0; class_of(rec_of(w, i)) == EMIT_REDUCE && k < n_args(rec_of(w, i)); k++)
            mark_kept(w, rec_of(w, i)->arg[k], rec_of(w, i)->stage - 1, &m);
    for (uint32_t i = 0; i < f->stores.n; i++)
        mark_kept(w, f->stores.at[i].value.i, rec_of(w, f->stores.at[i].value.i)->stage, &m);
    for (uint32_t i = 0; i < f->columns.n; i++) {
        const EmitColumn *column = &f->columns.at[i];
        mark_kept(w, column->a.i, column_stage(w, column), &m);
        if (column->b.i)
            mark_kept(w, column->b.i, column_stage(w, column), &m);
    }
    for (uint32_t i = 1; i < f->nodes.n; i++) {
        if (!m.kept[i])
            continue;
        LLVMTypeRef type = emit_type(w->c, (EmitElem)rec_of(w, i)->elem, 1);
        w->kept[i] = LLVMBuildArrayAlloca(w->c->b, type, emit_i64(w->c, w->cols), "kept");
        LLVMSetAlignment(w->kept[i], 64);
    }
}

/* -- nodes -- */

static LLVMValueRef uniform(Walk *w, uint32_t node)
{
    const EmitNodeRec *rec = rec_of(w, node);
    EmitCode *c = w->c;
    if (w->uniform[node])
        return w->uniform[node];
    LLVMTypeRef type = emit_type(c, (EmitElem)rec->elem, 1);
    LLVMValueRef value, args[3];
    if (rec->kind == NODE_number) {
        bool real = rec->elem == ELEM_F32 || rec->elem == ELEM_F64;
        value = real ? emit_real(type, rec->number) : emit_int(type, (uint64_t)rec->index);
    } else if (rec->kind == NODE_load) {
        const EmitTensor *t = &w->f->region->tensors.at[rec->access.tensor];
        EmitPieces p = emit_pieces(c, t, w->base[rec->access.tensor], &rec->access, w->r,
                                   w->f->region->rows, w->cols);
        value = emit_read_one(c, &p);
    } else if (rec->kind == NODE_row) {
        value = w->r;
    } else if (rec->kind == NODE_random || rec->kind == NODE_param) {
        LLVMValueRef from = rec->kind == NODE_random ? w->random : w->params,
                     at = emit_i64(c, rec->index);
        value = LLVMBuildLoad2(c->b, type, LLVMBuildGEP2(c->b, type, from, &at, 1, ""), "");
    } else {
        if (class_of(rec) != EMIT_LANEWISE)
            abort(); /* a reduction is here before anything reads it */
        for (uint32_t i = 0; i < n_args(rec); i++)
            args[i] = uniform(w, rec->arg[i]);
        value = emit_lower(c, (EmitKind)rec->kind, (EmitElem)rec->elem, 1, args);
    }
    return w->uniform[node] = value;
}

static EmitPieces kept_row(const Walk *w, uint32_t node, EmitWalk walk)
{
    return (EmitPieces){.row = w->kept[node],
                        .dtype = memory_dtype((EmitElem)rec_of(w, node)->elem),
                        .walk = walk,
                        .width = w->cols,
                        .cols = w->cols};
}

static EmitStep straight_step(Walk *w, uint32_t index)
{
    EmitStep step = {.at = index * EMIT_LANES, .memo = w->straight_memo[index]};
    step.j = emit_i64(w->c, step.at);
    step.width = w->cols - step.at < EMIT_LANES ? (uint32_t)(w->cols - step.at) : EMIT_LANES;
    return step;
}

static LLVMValueRef lanes_of(Walk *w, const EmitStep *step, uint32_t node);

/* Column (j + D/2) % D of a row that is in registers. */
static LLVMValueRef swap_in_registers(Walk *w, const EmitStep *step, uint32_t node)
{
    LLVMValueRef all = NULL;
    for (uint32_t source = 0; source * EMIT_LANES < w->cols; source++) {
        EmitStep other = straight_step(w, source);
        uint32_t from[EMIT_LANES], hits = 0;
        for (uint32_t i = 0; i < EMIT_LANES; i++) {
            int64_t partner = (step->at + i + w->cols / 2) % w->cols;
            bool hit = i < step->width && partner / EMIT_LANES == source;
            from[i] = hit ? (uint32_t)(EMIT_LANES + partner % EMIT_LANES) : i;
            hits += hit;
        }
        if (!hits)
            continue;
        LLVMValueRef lanes = lanes_of(w, &other, node);
        all = emit_shuffle(w->c, all ? all : lanes, lanes, from, EMIT_LANES);
    }
    return all;
}

static LLVMValueRef swap_half(Walk *w, const EmitStep *step, uint32_t node)
{
    if (w->straight)
        return swap_in_registers(w, step, node);
    EmitPieces p = kept_row(w, node, WALK_PARTNER);
    return emit_read(w->c, &p, step);
}

static LLVMValueRef swap_pair(Walk *w, const EmitStep *step, uint32_t node)
{
    uint32_t from[EMIT_LANES];
    for (uint32_t i = 0; i < EMIT_LANES; i++)
        from[i] = i ^ 1;
    LLVMValueRef own = lanes_of(w, step, node);
    return emit_shuffle(w->c, own, own, from, EMIT_LANES);
}

static LLVMValueRef lane_index(Walk *w, const EmitStep *step)
{
    LLVMTypeRef i32 = LLVMInt32TypeInContext(w->c->context);
    LLVMValueRef count[EMIT_LANES];
    for (uint32_t i = 0; i < EMIT_LANES; i++)
        count[i] = LLVMConstInt(i32, i, false);
    LLVMValueRef first = LLVMBuildTrunc(w->c->b, step->j, i32, "");
    return LLVMBuildAdd(w->c->b, emit_splat(w->c, first), LLVMConstVector(count, EMIT_LANES), "");
}

static LLVMValueRef compute(Walk *w, const EmitStep *step, uint32_t node)
{
    const EmitNodeRec *rec = rec_of(w, node);
    LLVMValueRef args[3];
    if (!rec->lanes)
        return emit_splat(w->c, w->uniform[node]);
    if (rec->kind == NODE_load)
        return emit_read(w->c, &w->pieces[node], step);
    if (rec->kind == NODE_lane)
        return lane_index(w, step);
    if (rec->kind == NODE_swap_half)
        return swap_half(w, step, rec->arg[0]);
    if (rec->kind == NODE_swap_pair)
        return swap_pair(w, step, rec->arg[0]);
    for (uint32_t i = 0; i < n_args(rec); i++)
        args[i] = lanes_of(w, step, rec->arg[i]);
    return emit_lower(w->c, (EmitKind)rec->kind, (EmitElem)rec->elem, EMIT_LANES, args);
}

static LLVMValueRef lanes_of(Walk *w, const EmitStep *step, uint32_t node)
{
    if (!step->memo[node])
        step->memo[node] = compute(w, step, node);
    return step->memo[node];
}

/* -- one sweep of the row: everything that waits for `stage` row reductions -- */

static bool is_reduction(const Walk *w, uint32_t node, uint32_t stage)
{
    return class_of(rec_of(w, node)) == EMIT_REDUCE && rec_of(w, node)->stage == stage + 1;
}

static bool is_kept(const Walk *w, uint32_t node, uint32_t stage)
{
    return w->kept[node] && rec_of(w, node)->stage == stage;
}

static bool is_row_store(const Walk *w, const EmitStore *store)
{
    return store->at.walk == WALK_ONE && !rec_of(w, store->value.i)->lanes;
}

/* Before the sweep's loop: scalars, and where the rows of loads begin. */
static void prepare(Walk *w, uint32_t node, uint32_t stage)
{
    const EmitNodeRec *rec = rec_of(w, node);
    if (w->prepared[node] == stage + 1)
        return;
    w->prepared[node] = stage + 1;
    if (!rec->lanes) {
        uniform(w, node);
        return;
    }
    if (rec->kind == NODE_load && !w->pieces[node].tensor) {
        const EmitTensor *t = &w->f->region->tensors.at[rec->access.tensor];
        w->pieces[node] = emit_pieces(w->c, t, w->base[rec->access.tensor], &rec->access, w->r,
                                      w->f->region->rows, w->cols);
    }
    bool read_back = w->kept[node] && rec->stage < stage;
    for (uint32_t i = 0; !read_back && i < n_args(rec); i++)
        prepare(w, rec->arg[i], stage);
}

static bool prepare_stage(Walk *w, uint32_t stage)
{
    const EmitFormula *f = w->f;
    bool any = false;
    for (uint32_t i = 1; i < f->nodes.n; i++) {
        bool reduction = is_reduction(w, i, stage);
        any |= reduction || is_kept(w, i, stage);
        if (is_kept(w, i, stage))
            prepare(w, i, stage);
        for (uint32_t k = 0; reduction && k < n_args(rec_of(w, i)); k++)
            prepare(w, rec_of(w, i)->arg[k], stage);
        if (reduction)
            w->sum[i] = LLVMConstNull(emit_type(w->c, (EmitElem)rec_of(w, i)->elem, EMIT_LANES));
    }
    for (uint32_t i = 0; i < f->stores.n; i++)
        if (rec_of(w, f->stores.at[i].value.i)->stage == stage) {
            prepare(w, f->stores.at[i].value.i, stage);
            any |= !is_row_store(w, &f->stores.at[i]);
        }
    for (uint32_t i = 0; i < f->columns.n; i++)
        if (column_stage(w, &f->columns.at[i]) == stage) {
            prepare(w, f->columns.at[i].a.i, stage);
            if (f->columns.at[i].b.i)
                prepare(w, f->columns.at[i].b.i, stage);
            any = true;
        }
    return any;
}

static LLVMValueRef accumulate(Walk *w, const EmitStep *step, LLVMValueRef sum, uint32_t a,
                               uint32_t b)
{
    LLVMValueRef x = lanes_of(w, step, a);
    if (b)
        return emit_fma(w->c, x, lanes_of(w, step, b), sum);
    return LLVMBuildFAdd(w->c->b, sum, x, "");
}

/* Rows behind the tensor's last are broadcast copies: the first writes. */
static LLVMBasicBlockRef begin_rows_below(Walk *w, int64_t limit)
{
    if (limit >= w->f->region->rows)
        return NULL;
    LLVMBasicBlockRef yes = LLVMAppendBasicBlockInContext(w->c->context, w->fn, "write");
    LLVMBasicBlockRef on = LLVMAppendBasicBlockInContext(w->c->context, w->fn, "on");
    LLVMValueRef below = LLVMBuildICmp(w->c->b, LLVMIntULT, w->r, emit_i64(w->c, limit), "");
    LLVMBuildCondBr(w->c->b, below, yes, on);
    LLVMPositionBuilderAtEnd(w->c->b, yes);
    return on;
}

static void end_rows_below(Walk *w, LLVMBasicBlockRef on)
{
    if (!on)
        return;
    LLVMBuildBr(w->c->b, on);
    LLVMPositionBuilderAtEnd(w->c->b, on);
}

static void emit_step(Walk *w, const EmitStep *step, uint32_t stage)
{
    const EmitFormula *f = w->f;
    for (uint32_t i = 1; i < f->nodes.n; i++) {
        const EmitNodeRec *rec = rec_of(w, i);
        if (is_reduction(w, i, stage)) {
            LLVMValueRef sum =
                accumulate(w, step, w->sum[i], rec->arg[0], n_args(rec) > 1 ? rec->arg[1] : 0);
            w->sum[i] = emit_blend(w->c, sum, w->sum[i], step->width);
        }
        if (is_kept(w, i, stage)) {
            EmitPieces p = kept_row(w, i, WALK_OWN);
            emit_write(w->c, &p, step, lanes_of(w, step, i));
        }
    }
    for (uint32_t i = 0; i < f->columns.n; i++) {
        const EmitColumn *column = &f->columns.at[i];
        if (column_stage(w, column) != stage)
            continue;
        LLVMValueRef old = emit_read(w->c, &w->column_pieces[i], step);
        emit_write(w->c, &w->column_pieces[i], step,
                   accumulate(w, step, old, column->a.i, column->b.i));
    }
    for (uint32_t i = 0; i < f->stores.n; i++) {
        const EmitStore *store = &f->stores.at[i];
        if (rec_of(w, store->value.i)->stage != stage || is_row_store(w, store))
            continue;
        if (store->at.walk == WALK_WRAP)
            abort(); /* a value that repeats within the row: fuse joins values of one size */
        LLVMValueRef value = lanes_of(w, step, store->value.i);
        LLVMBasicBlockRef on = begin_rows_below(w, store->at.row_mod);
        emit_write(w->c, &w->store_pieces[i], step, value);
        end_rows_below(w, on);
    }
}

/* What earlier sweeps kept is read back at its first use in the step. */
static void read_back(Walk *w, EmitStep *step, uint32_t stage)
{
    for (uint32_t i = 1; i < w->f->nodes.n; i++)
        if (w->kept[i] && rec_of(w, i)->stage < stage) {
            EmitPieces p = kept_row(w, i, WALK_OWN);
            step->memo[i] = emit_read(w->c, &p, step);
        }
}

static void emit_loop_step(Walk *w, LLVMValueRef j, int64_t at, uint32_t width, uint32_t stage)
{
    EmitStep step = {j, at, width, ARENA_ARRAY(w->arena, LLVMValueRef, w->f->nodes.n)};
    read_back(w, &step, stage);
    emit_step(w, &step, stage);
}

static void emit_loop(Walk *w, int64_t end, uint32_t stage)
{
    EmitCode *c = w->c;
    const EmitFormula *f = w->f;
    LLVMValueRef *phi = ARENA_ARRAY(w->arena, LLVMValueRef, f->nodes.n);
    LLVMBasicBlockRef before = LLVMGetInsertBlock(c->b);
    LLVMBasicBlockRef loop = LLVMAppendBasicBlockInContext(c->context, w->fn, "columns");
    LLVMBuildBr(c->b, loop);
    LLVMPositionBuilderAtEnd(c->b, loop);
    LLVMValueRef zero = emit_i64(c, 0), j = LLVMBuildPhi(c->b, LLVMTypeOf(zero), "j");
    for (uint32_t i = 1; i < f->nodes.n; i++)
        if (is_reduction(w, i, stage)) {
            phi[i] = LLVMBuildPhi(c->b, LLVMTypeOf(w->sum[i]), "sum");
            LLVMAddIncoming(phi[i], &w->sum[i], &before, 1);
            w->sum[i] = phi[i];
        }
    emit_loop_step(w, j, -1, EMIT_LANES, stage);
    LLVMValueRef next = LLVMBuildAdd(c->b, j, emit_i64(c, EMIT_LANES), "");
    LLVMValueRef more = LLVMBuildICmp(c->b, LLVMIntULT, next, emit_i64(c, end), "");
    LLVMBasicBlockRef latch = LLVMGetInsertBlock(c->b);
    LLVMBasicBlockRef behind = LLVMAppendBasicBlockInContext(c->context, w->fn, "behind");
    LLVMBuildCondBr(c->b, more, loop, behind);
    LLVMAddIncoming(j, (LLVMValueRef[]){zero, next}, (LLVMBasicBlockRef[]){before, latch}, 2);
    for (uint32_t i = 1; i < f->nodes.n; i++)
        if (phi[i])
            LLVMAddIncoming(phi[i], &w->sum[i], &latch, 1);
    LLVMPositionBuilderAtEnd(c->b, behind);
}

/* Lanes l and l + 8, then l and l + 4, ... */
static LLVMValueRef sum_of_lanes(EmitCode *c, LLVMValueRef lanes)
{
    for (uint32_t half = EMIT_LANES / 2; half; half /= 2) {
        uint32_t from[EMIT_LANES];
        for (uint32_t i = 0; i < EMIT_LANES; i++)
            from[i] = (i + half) % EMIT_LANES;
        lanes = LLVMBuildFAdd(c->b, lanes, emit_shuffle(c, lanes, lanes, from, EMIT_LANES), "");
    }
    return LLVMBuildExtractElement(c->b, lanes, emit_i64(c, 0), "");
}

static void write_row_results(Walk *w, uint32_t stage)
{
    for (uint32_t i = 0; i < w->f->stores.n; i++) {
        const EmitStore *store = &w->f->stores.at[i];
        if (rec_of(w, store->value.i)->stage != stage || !is_row_store(w, store))
            continue;
        LLVMValueRef value = uniform(w, store->value.i);
        LLVMBasicBlockRef on = begin_rows_below(w, store->at.row_mod);
        emit_write_one(w->c, &w->store_pieces[i], value);
        end_rows_below(w, on);
    }
}

static void emit_stage(Walk *w, uint32_t stage)
{
    int64_t whole = w->cols / EMIT_LANES * EMIT_LANES;
    bool sweeps = prepare_stage(w, stage);
    write_row_results(w, stage);
    if (!sweeps)
        return;
    if (w->straight) {
        for (uint32_t i = 0; i * EMIT_LANES < w->cols; i++) {
            EmitStep step = straight_step(w, i);
            emit_step(w, &step, stage);
        }
    } else {
        emit_loop(w, whole, stage);
        if (whole < w->cols)
            emit_loop_step(w, emit_i64(w->c, whole), whole, (uint32_t)(w->cols - whole), stage);
    }
    for (uint32_t i = 1; i < w->f->nodes.n; i++)
        if (is_reduction(w, i, stage))
            w->uniform[i] = sum_of_lanes(w->c, w->sum[i]);
}

/* -- the function -- */

static void begin_rows(Walk *w)
{
    EmitCode *c = w->c;
    const EmitFormula *f = w->f;
    for (uint32_t i = 0; i < f->region->tensors.n; i++)
        w->base[i] = emit_tensor_base(c, LLVMGetParam(w->fn, 0), i);
    w->partials = LLVMGetParam(w->fn, 3);
    w->random = LLVMGetParam(w->fn, 4);
    w->params = LLVMGetParam(w->fn, 5);
    keep_rows(w);
    for (uint32_t i = 0; i < f->columns.n; i++) {
        LLVMTypeRef byte = LLVMInt8TypeInContext(c->context);
        LLVMValueRef at = emit_i64(c, (int64_t)f->columns.at[i].offset);
        w->column_pieces[i] =
            (EmitPieces){.row = LLVMBuildGEP2(c->b, byte, w->partials, &at, 1, ""),
                         .walk = WALK_OWN,
                         .dtype = memory_dtype((EmitElem)rec_of(w, f->columns.at[i].a.i)->elem),
                         .width = w->cols,
                         .cols = w->cols};
    }
    if (f->columns.n)
        LLVMBuildMemSet(c->b, w->partials, LLVMConstNull(LLVMInt8TypeInContext(c->context)),
                        emit_i64(c, (int64_t)f->partial_bytes), 8);
    for (uint32_t i = 1; i < f->nodes.n; i++)
        if (!rec_of(w, i)->lanes && !rec_of(w, i)->rows && !rec_of(w, i)->stage)
            uniform(w, i);
}

static void emit_row(Walk *w)
{
    const EmitFormula *f = w->f;
    for (uint32_t i = 0; i < f->stores.n; i++) {
        const EmitAccess *at = &f->stores.at[i].at;
        w->store_pieces[i] = emit_pieces(w->c, &f->region->tensors.at[at->tensor],
                                         w->base[at->tensor], at, w->r, f->region->rows, w->cols);
    }
    for (uint32_t stage = 0; stage < f->n_stages; stage++)
        emit_stage(w, stage);
}

static LLVMValueRef emit_rows_function(Walk *w, const char *name)
{
    EmitCode *c = w->c;
    w->fn = emit_function(c, name, "piippp");
    begin_rows(w);
    LLVMValueRef row = LLVMGetParam(w->fn, 1), row_end = LLVMGetParam(w->fn, 2);
    LLVMBasicBlockRef before = LLVMGetInsertBlock(c->b);
    LLVMBasicBlockRef rows = LLVMAppendBasicBlockInContext(c->context, w->fn, "rows");
    LLVMBasicBlockRef end = LLVMAppendBasicBlockInContext(c->context, w->fn, "end");
    LLVMBuildCondBr(c->b, LLVMBuildICmp(c->b, LLVMIntSLT, row, row_end, ""), rows, end);
    LLVMPositionBuilderAtEnd(c->b, rows);
    w->r = LLVMBuildPhi(c->b, LLVMTypeOf(row), "r");
    emit_row(w);
    LLVMValueRef next = LLVMBuildAdd(c->b, w->r, emit_i64(c, 1), "");
    LLVMBasicBlockRef latch = LLVMGetInsertBlock(c->b);
    LLVMBuildCondBr(c->b, LLVMBuildICmp(c->b, LLVMIntSLT, next, row_end, ""), rows, end);
    LLVMAddIncoming(w->r, (LLVMValueRef[]){row, next}, (LLVMBasicBlockRef[]){before, latch}, 2);
    LLVMPositionBuilderAtEnd(c->b, end);
    LLVMBuildRetVoid(c->b);
    return w->fn;
}

EmitFunctions emit_cpu_kernel(EmitCode *c, const EmitFormula *f, Arena *arena, uint32_t index)
{
    uint32_t n = f->nodes.n;
    Walk w = {.c = c, .f = f, .arena = arena, .cols = f->region->cols};
    w.straight = w.cols <= STRAIGHT_COLS;
    w.base = ARENA_ARRAY(arena, LLVMValueRef, f->region->tensors.n);
    w.uniform = ARENA_ARRAY(arena, LLVMValueRef, n);
    w.sum = ARENA_ARRAY(arena, LLVMValueRef, n);
    w.kept = ARENA_ARRAY(arena, LLVMValueRef, n);
    w.prepared = ARENA_ARRAY(arena, uint32_t, n);
    w.pieces = ARENA_ARRAY(arena, EmitPieces, n);
    w.store_pieces = ARENA_ARRAY(arena, EmitPieces, f->stores.n);
    w.column_pieces = ARENA_ARRAY(arena, EmitPieces, f->columns.n);
    for (uint32_t i = 0; i < MAX_STEPS; i++)
        w.straight_memo[i] = ARENA_ARRAY(arena, LLVMValueRef, n);
    EmitFunctions functions = {0};
    functions.rows = emit_rows_function(&w, arena_printf(arena, "rows_%u", index));
    if (f->columns.n)
        functions.columns = emit_columns_function(c, f, arena_printf(arena, "columns_%u", index));
    return functions;
}
