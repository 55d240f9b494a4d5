#include "backend/emit_cpu.h"

static LLVMValueRef add(EmitCode *c, LLVMValueRef a, LLVMValueRef b)
{
    return LLVMBuildAdd(c->b, a, b, "");
}

static LLVMValueRef times(EmitCode *c, LLVMValueRef a, int64_t factor)
{
    return LLVMBuildMul(c->b, a, emit_i64(c, factor), "");
}

static LLVMValueRef quotient(EmitCode *c, LLVMValueRef a, int64_t by)
{
    return by == 1 ? a : LLVMBuildUDiv(c->b, a, emit_i64(c, by), "");
}

static LLVMValueRef rest(EmitCode *c, LLVMValueRef a, int64_t by)
{
    return LLVMBuildURem(c->b, a, emit_i64(c, by), "");
}

static LLVMValueRef element_at(EmitCode *c, DType dtype, LLVMValueRef base, LLVMValueRef index)
{
    return LLVMBuildGEP2(c->b, emit_storage(c, dtype, 1), base, &index, 1, "");
}

EmitPieces emit_pieces(EmitCode *c, const EmitTensor *t, LLVMValueRef base, const EmitAccess *at,
                       LLVMValueRef r, int64_t rows, int64_t cols)
{
    EmitPieces p = {.dtype = t->dtype,
                    .walk = (EmitWalk)at->walk,
                    .width = at->width,
                    .cols = cols,
                    .tensor = t,
                    .base = base};
    LLVMValueRef row = at->row_mod == 1 ? emit_i64(c, 0) : quotient(c, r, at->row_div);
    if (at->row_mod > 1 && at->row_mod < (rows + at->row_div - 1) / at->row_div)
        row = rest(c, row, at->row_mod);
    p.index = row;
    if (t->run == t->pitch) {
        p.row = element_at(c, t->dtype, base, times(c, row, at->width));
    } else if (t->run % at->width == 0) {
        int64_t per_run = t->run / at->width;
        LLVMValueRef element = times(c, quotient(c, row, per_run), t->pitch);
        if (per_run > 1)
            element = add(c, element, times(c, rest(c, row, per_run), at->width));
        p.row = element_at(c, t->dtype, base, element);
    }
    return p;
}

/* -- one element -- */

static LLVMValueRef load(EmitCode *c, DType dtype, LLVMValueRef pointer, uint32_t lanes)
{
    LLVMValueRef stored = LLVMBuildLoad2(c->b, emit_storage(c, dtype, lanes), pointer, "");
    LLVMSetAlignment(stored, dtype_bytes(dtype));
    return emit_from_storage(c, stored, dtype, lanes);
}

static void store(EmitCode *c, DType dtype, LLVMValueRef pointer, LLVMValueRef value,
                  uint32_t lanes)
{
    LLVMValueRef kept = emit_to_storage(c, value, dtype, lanes);
    LLVMSetAlignment(LLVMBuildStore(c->b, kept, pointer), dtype_bytes(dtype));
}

/* Where a tensor's rows are not in one piece: element `lane` of the row through run and pitch. */
static LLVMValueRef scattered(EmitCode *c, const EmitPieces *p, LLVMValueRef lane)
{
    LLVMValueRef e = add(c, times(c, p->index, p->width), lane);
    LLVMValueRef at = times(c, quotient(c, e, p->tensor->run), p->tensor->pitch);
    return element_at(c, p->dtype, p->base, add(c, at, rest(c, e, p->tensor->run)));
}

static LLVMValueRef pointer_to(EmitCode *c, const EmitPieces *p, LLVMValueRef lane)
{
    return p->row ? element_at(c, p->dtype, p->row, lane) : scattered(c, p, lane);
}

LLVMValueRef emit_read_one(EmitCode *c, const EmitPieces *p)
{
    return load(c, p->dtype, pointer_to(c, p, emit_i64(c, 0)), 1);
}

void emit_write_one(EmitCode *c, const EmitPieces *p, LLVMValueRef value)
{
    store(c, p->dtype, pointer_to(c, p, emit_i64(c, 0)), value, 1);
}

/* -- a step -- */

LLVMValueRef emit_blend(EmitCode *c, LLVMValueRef fresh, LLVMValueRef old, uint32_t width)
{
    uint32_t from[EMIT_LANES];
    for (uint32_t i = 0; i < EMIT_LANES; i++)
        from[i] = i < width ? i : EMIT_LANES + i;
    return width == EMIT_LANES ? fresh : emit_shuffle(c, fresh, old, from, EMIT_LANES);
}

static LLVMValueRef read_run(EmitCode *c, const EmitPieces *p, LLVMValueRef first, uint32_t width)
{
    return emit_widen(c, load(c, p->dtype, element_at(c, p->dtype, p->row, first), width), width);
}

/* The walk at constant columns: one load per run of neighbours, each shuffled to its lanes. */
static LLVMValueRef read_constant(EmitCode *c, const EmitPieces *p, const EmitStep *step)
{
    int64_t index[EMIT_LANES];
    for (uint32_t i = 0; i < step->width; i++) {
        int64_t j = step->at + i;
        index[i] = p->walk == WALK_PARTNER ? (j + p->cols / 2) % p->cols : j % p->width;
    }
    LLVMValueRef all = NULL;
    for (uint32_t first = 0, end; first < step->width; first = end) {
        uint32_t from[EMIT_LANES];
        for (end = first + 1; end < step->width && index[end] == index[end - 1] + 1;)
            end++;
        LLVMValueRef run = read_run(c, p, emit_i64(c, index[first]), end - first);
        for (uint32_t i = 0; i < EMIT_LANES; i++)
            from[i] = i >= first && i < end ? EMIT_LANES + i - first : i;
        all = all ? emit_shuffle(c, all, run, from, EMIT_LANES) : run;
    }
    return all;
}

/* The walk's lane 0, where the lanes behind it are its neighbours. */
static LLVMValueRef walk_start(EmitCode *c, const EmitPieces *p, const EmitStep *step)
{
    if (p->walk == WALK_WRAP)
        return rest(c, step->j, p->width);
    LLVMValueRef half = emit_i64(c, p->cols / 2);
    LLVMValueRef first = LLVMBuildICmp(c->b, LLVMIntULT, step->j, half, "");
    return LLVMBuildSelect(c->b, first, add(c, step->j, half),
                           LLVMBuildSub(c->b, step->j, half, ""), "");
}

static LLVMValueRef walk_lane(EmitCode *c, const EmitPieces *p, LLVMValueRef j)
{
    if (p->walk == WALK_PARTNER)
        return rest(c, add(c, j, emit_i64(c, p->cols / 2)), p->cols);
    return p->walk == WALK_WRAP   ? rest(c, j, p->width)
           : p->walk == WALK_PAIR ? quotient(c, j, 2)
                                  : j;
}

static LLVMValueRef read_one_by_one(EmitCode *c, const EmitPieces *p, const EmitStep *step)
{
    LLVMValueRef all = NULL;
    for (uint32_t i = 0; i < step->width; i++) {
        LLVMValueRef lane = walk_lane(c, p, add(c, step->j, emit_i64(c, i)));
        LLVMValueRef one = load(c, p->dtype, pointer_to(c, p, lane), 1);
        all = all ? LLVMBuildInsertElement(c->b, all, one, emit_i64(c, i), "")
                  : emit_widen(c, one, 1);
    }
    return all;
}

LLVMValueRef emit_read(EmitCode *c, const EmitPieces *p, const EmitStep *step)
{
    if (!p->row)
        return read_one_by_one(c, p, step);
    if (p->walk == WALK_OWN)
        return read_run(c, p, step->j, step->width);
    if (p->walk == WALK_PAIR) {
        uint32_t from[EMIT_LANES];
        for (uint32_t i = 0; i < EMIT_LANES; i++)
            from[i] = i / 2;
        LLVMValueRef half = read_run(c, p, quotient(c, step->j, 2), (step->width + 1) / 2);
        return emit_shuffle(c, half, half, from, EMIT_LANES);
    }
    if (step->at >= 0)
        return read_constant(c, p, step);
    int64_t period = p->walk == WALK_PARTNER ? p->cols / 2 : p->width;
    if (period % EMIT_LANES)
        return read_one_by_one(c, p, step);
    return read_run(c, p, walk_start(c, p, step), step->width);
}

void emit_write(EmitCode *c, const EmitPieces *p, const EmitStep *step, LLVMValueRef value)
{
    if (p->row) {
        LLVMValueRef lanes = emit_narrow(c, value, step->width);
        store(c, p->dtype, element_at(c, p->dtype, p->row, step->j), lanes, step->width);
        return;
    }
    for (uint32_t i = 0; i < step->width; i++) {
        LLVMValueRef one = LLVMBuildExtractElement(c->b, value, emit_i64(c, i), "");
        store(c, p->dtype, scattered(c, p, add(c, step->j, emit_i64(c, i))), one, 1);
    }
}
