/* The nodes of a formula, by group of elements. */
#include <stdlib.h>

#include "backend/emit_cuda.h"

static const EmitNodeRec *rec_of(const CudaWalk *w, uint32_t node)
{
    return &w->f->nodes.at[node];
}

static uint32_t n_args(const EmitNodeRec *rec)
{
    return emit_kind_info((EmitKind)rec->kind)->n_args;
}

LLVMValueRef cuda_number(const CudaWalk *w, int64_t value)
{
    return LLVMConstInt(w->index, (uint64_t)value, false);
}

LLVMValueRef cuda_index(const CudaWalk *w, LLVMValueRef i32)
{
    return LLVMBuildZExtOrBitCast(w->c->b, i32, w->index, "");
}

/* Whether 31 bits hold the index of every element, gaps between pieces included. */
static bool is_small(const CudaWalk *w)
{
    bool small = w->rows * w->cols < INT32_MAX;
    for (uint32_t i = 0; i < w->f->region->tensors.n; i++) {
        const EmitTensor *t = &w->f->region->tensors.at[i];
        small &= plan_ceil_div(t->numel, t->run) * t->pitch < INT32_MAX;
    }
    return small;
}

void cuda_walk_begin(CudaWalk *w, const char *name, uint32_t threads)
{
    uint32_t n = w->f->region->tensors.n;
    w->index =
        is_small(w) ? LLVMInt32TypeInContext(w->c->context) : LLVMInt64TypeInContext(w->c->context);
    w->fn = cuda_entry(w->d, w->f, name, threads);
    w->base = ARENA_ARRAY(w->arena, LLVMValueRef, n);
    for (uint32_t i = 0; i < n; i++)
        w->base[i] = LLVMGetParam(w->fn, i);
    w->workspace = LLVMGetParam(w->fn, n);
    w->random = LLVMGetParam(w->fn, n + 1);
    w->thread = cuda_thread_index(w->d);
}

/* -- steps -- */

CudaRow *cuda_row(CudaWalk *w, LLVMValueRef r)
{
    CudaRow *row = ARENA_NEW(w->arena, CudaRow);
    row->r = r;
    row->uniform = ARENA_ARRAY(w->arena, LLVMValueRef, w->f->nodes.n);
    return row;
}

CudaStep *cuda_step(CudaWalk *w, CudaRow *row, LLVMValueRef group)
{
    uint32_t n = w->f->nodes.n;
    CudaStep *step = ARENA_NEW(w->arena, CudaStep);
    *step = (CudaStep){.row = row, .group = group};
    step->memo = ARENA_ARRAY(w->arena, LLVMValueRef, n);
    step->words = ARENA_ARRAY(w->arena, LLVMValueRef, n);
    step->raw = ARENA_ARRAY(w->arena, CudaRaw, n);
    step->issued = ARENA_ARRAY(w->arena, bool, n);
    return step;
}

static CudaStep *partner_of(CudaWalk *w, CudaStep *step)
{
    LLVMBuilderRef b = w->c->b;
    if (!step->partner) {
        LLVMValueRef half = cuda_number(w, w->groups / 2);
        LLVMValueRef low = LLVMBuildICmp(b, LLVMIntULT, step->group, half, "");
        LLVMValueRef group = LLVMBuildSelect(b, low, LLVMBuildAdd(b, step->group, half, ""),
                                             LLVMBuildSub(b, step->group, half, ""), "");
        step->partner = cuda_step(w, step->row, group);
        step->partner->foreign = true;
        step->partner->partner = step;
    }
    return step->partner;
}

static CudaStep *neighbour_of(CudaWalk *w, CudaStep *step)
{
    if (!step->neighbour) {
        LLVMValueRef group = LLVMBuildXor(w->c->b, step->group, cuda_number(w, 1), "");
        step->neighbour = cuda_step(w, step->row, group);
        step->neighbour->foreign = true;
        step->neighbour->neighbour = step;
    }
    return step->neighbour;
}

/* Where a node's argument comes from another group of the row. */
static CudaStep *source_of(CudaWalk *w, CudaStep *step, const EmitNodeRec *rec)
{
    if (rec->kind == NODE_swap_half)
        return partner_of(w, step);
    return rec->kind == NODE_swap_pair && w->lanes == 1 ? neighbour_of(w, step) : step;
}

/* -- loads -- */

/* A load of the row's other half is a load of the partner's own elements. */
static uint32_t own_load(const CudaWalk *w, uint32_t node)
{
    EmitNodeRec own = *rec_of(w, node);
    own.access.walk = WALK_OWN;
    for (uint32_t i = 1; i < w->f->nodes.n; i++)
        if (rec_of(w, i)->kind == NODE_load &&
            !memcmp(&rec_of(w, i)->access, &own.access, sizeof own.access))
            return i;
    return node;
}

static const CudaRaw *raw_of(CudaWalk *w, CudaStep *step, uint32_t node)
{
    EmitAccess at = rec_of(w, node)->access;
    if (at.walk == WALK_PARTNER) {
        step = partner_of(w, step);
        node = own_load(w, node);
        at.walk = WALK_OWN;
    }
    if (!step->raw[node].n)
        cuda_load(w, step, &at, &step->raw[node]);
    return &step->raw[node];
}

static void issue(CudaWalk *w, CudaStep *step, uint32_t node)
{
    const EmitNodeRec *rec = rec_of(w, node);
    if (step->issued[node] || (step->foreign && !rec->lanes))
        return;
    step->issued[node] = true;
    if (rec->kind == NODE_load && rec->lanes)
        raw_of(w, step, node);
    else if (rec->kind == NODE_load)
        cuda_uniform(w, step->row, node);
    CudaStep *from = source_of(w, step, rec);
    for (uint32_t i = 0; i < n_args(rec); i++)
        issue(w, from, rec->arg[i]);
}

void cuda_issue_loads(CudaWalk *w, CudaStep *step)
{
    const EmitFormula *f = w->f;
    for (uint32_t i = 0; i < f->stores.n; i++)
        issue(w, step, f->stores.at[i].value.i);
    for (uint32_t i = 0; i < f->columns.n; i++) {
        issue(w, step, f->columns.at[i].a.i);
        if (f->columns.at[i].b.i)
            issue(w, step, f->columns.at[i].b.i);
    }
}

/* -- values -- */

static LLVMValueRef own_word(CudaWalk *w, const EmitNodeRec *rec)
{
    LLVMTypeRef type = emit_type(w->c, (EmitElem)rec->elem, 1);
    LLVMValueRef at = cuda_number(w, rec->index);
    return LLVMBuildLoad2(w->c->b, type,
                          LLVMBuildInBoundsGEP2(w->c->b, type, w->random, &at, 1, ""), "");
}

static LLVMValueRef compute_uniform(CudaWalk *w, CudaRow *row, const EmitNodeRec *rec)
{
    EmitCode *c = w->c;
    LLVMTypeRef type = emit_type(c, (EmitElem)rec->elem, 1);
    LLVMValueRef args[3];
    if (rec->kind == NODE_number) {
        bool real = rec->elem == ELEM_F32 || rec->elem == ELEM_F64;
        return real ? emit_real(type, rec->number) : emit_int(type, (uint64_t)rec->index);
    }
    if (rec->kind == NODE_load)
        return cuda_load_one(w, row, &rec->access);
    if (rec->kind == NODE_row)
        return LLVMBuildZExtOrBitCast(c->b, row->r, type, "");
    if (rec->kind == NODE_random)
        return own_word(w, rec);
    if (rec->kind == NODE_param)
        return LLVMGetParam(w->fn, w->f->region->tensors.n + 2 + (uint32_t)rec->index);
    if (emit_kind_info((EmitKind)rec->kind)->class != EMIT_LANEWISE)
        abort(); /* a reduction is there before anything reads it */
    for (uint32_t i = 0; i < n_args(rec); i++)
        args[i] = cuda_uniform(w, row, rec->arg[i]);
    if (rec->kind == NODE_round_bf16)
        return cuda_unpack_bf16(c, cuda_pack_bf16(w->d, args[0], 1), 1);
    return emit_lower(c, (EmitKind)rec->kind, (EmitElem)rec->elem, 1, args);
}

LLVMValueRef cuda_uniform(CudaWalk *w, CudaRow *row, uint32_t node)
{
    if (!row->uniform[node])
        row->uniform[node] = compute_uniform(w, row, rec_of(w, node));
    return row->uniform[node];
}

static LLVMValueRef lane_index(CudaWalk *w, const CudaStep *step)
{
    LLVMTypeRef i32 = LLVMInt32TypeInContext(w->c->context);
    LLVMValueRef count[CUDA_FUSED_LANES];
    LLVMValueRef first = LLVMBuildMul(w->c->b, step->group, cuda_number(w, w->lanes), "");
    first = LLVMBuildTruncOrBitCast(w->c->b, first, i32, "");
    if (w->lanes == 1)
        return first;
    for (uint32_t i = 0; i < w->lanes; i++)
        count[i] = LLVMConstInt(i32, i, false);
    return LLVMBuildAdd(w->c->b, cuda_splat(w->c, first, w->lanes),
                        LLVMConstVector(count, w->lanes), "");
}

static LLVMValueRef swap_pair(CudaWalk *w, CudaStep *step, uint32_t node)
{
    uint32_t from[CUDA_FUSED_LANES];
    if (w->lanes == 1)
        return cuda_value(w, neighbour_of(w, step), node);
    for (uint32_t i = 0; i < w->lanes; i++)
        from[i] = i ^ 1;
    LLVMValueRef own = cuda_value(w, step, node);
    return emit_shuffle(w->c, own, own, from, w->lanes);
}

static LLVMValueRef compute(CudaWalk *w, CudaStep *step, uint32_t node)
{
    const EmitNodeRec *rec = rec_of(w, node);
    LLVMValueRef args[3];
    if (!rec->lanes)
        return cuda_splat(w->c, cuda_uniform(w, step->row, node), w->lanes);
    if (rec->kind == NODE_load)
        return cuda_loaded(w, raw_of(w, step, node), &rec->access);
    if (rec->kind == NODE_lane)
        return lane_index(w, step);
    if (rec->kind == NODE_swap_half)
        return cuda_value(w, partner_of(w, step), rec->arg[0]);
    if (rec->kind == NODE_swap_pair)
        return swap_pair(w, step, rec->arg[0]);
    for (uint32_t i = 0; i < n_args(rec); i++)
        args[i] = cuda_value(w, step, rec->arg[i]);
    if (rec->kind == NODE_sigmoid && rec->elem == ELEM_F32)
        return cuda_sigmoid(w->d, args[0], w->lanes);
    if (rec->kind != NODE_round_bf16)
        return emit_lower(w->c, (EmitKind)rec->kind, (EmitElem)rec->elem, w->lanes, args);
    step->words[node] = cuda_pack_bf16(w->d, args[0], w->lanes);
    return cuda_unpack_bf16(w->c, step->words[node], w->lanes);
}

LLVMValueRef cuda_value(CudaWalk *w, CudaStep *step, uint32_t node)
{
    if (!step->memo[node])
        step->memo[node] = compute(w, step, node);
    return step->memo[node];
}

/* -- stores -- */

/* Rows behind the tensor's last are broadcast copies: the first writes. */
static LLVMValueRef is_below(CudaWalk *w, const CudaRow *row, int64_t limit)
{
    if (limit >= w->rows)
        return NULL;
    return LLVMBuildICmp(w->c->b, LLVMIntULT, row->r, cuda_number(w, limit), "");
}

static bool is_row_store(const CudaWalk *w, const EmitStore *store)
{
    return store->at.walk == WALK_ONE && !rec_of(w, store->value.i)->lanes;
}

/* Of every element, at the rows that `limit` allows. Values are computed in front of the branch:
 * later stages use them. */
static void store_lanes(CudaWalk *w, CudaStep *step, uint32_t stage, bool limited)
{
    const EmitFormula *f = w->f;
    for (uint32_t i = 0; i < f->stores.n; i++)
        if (rec_of(w, f->stores.at[i].value.i)->stage == stage &&
            !is_row_store(w, &f->stores.at[i]))
            cuda_value(w, step, f->stores.at[i].value.i);
    LLVMBasicBlockRef on = limited ? NULL : cuda_begin_if(w->c, step->inside);
    for (uint32_t i = 0; i < f->stores.n; i++) {
        const EmitStore *store = &f->stores.at[i];
        uint32_t node = store->value.i;
        bool has_limit = store->at.row_mod < w->rows;
        if (rec_of(w, node)->stage != stage || is_row_store(w, store) || has_limit != limited)
            continue;
        LLVMBasicBlockRef behind =
            limited ? cuda_begin_if(w->c, cuda_and(w->c, step->inside,
                                                   is_below(w, step->row, store->at.row_mod)))
                    : NULL;
        cuda_store(w, step, &store->at, step->memo[node], step->words[node]);
        cuda_end_if(w->c, behind);
    }
    cuda_end_if(w->c, on);
}

static void store_row(CudaWalk *w, CudaRow *row, uint32_t stage, LLVMValueRef leader)
{
    const EmitFormula *f = w->f;
    for (uint32_t i = 0; i < f->stores.n; i++) {
        const EmitStore *store = &f->stores.at[i];
        if (rec_of(w, store->value.i)->stage != stage || !is_row_store(w, store))
            continue;
        LLVMValueRef value = cuda_uniform(w, row, store->value.i);
        LLVMBasicBlockRef on =
            cuda_begin_if(w->c, cuda_and(w->c, leader, is_below(w, row, store->at.row_mod)));
        cuda_store_one(w, row, &store->at, value);
        cuda_end_if(w->c, on);
    }
}

void cuda_stores(CudaWalk *w, CudaStep *const *steps, uint32_t n, uint32_t stage,
                 LLVMValueRef leader)
{
    for (uint32_t i = 0; i < n; i++) {
        store_lanes(w, steps[i], stage, false);
        store_lanes(w, steps[i], stage, true);
    }
    store_row(w, steps[0]->row, stage, leader);
}
