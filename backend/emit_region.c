#include "backend/emit_region.h"

#include "base/diag.h"

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

bool emit_tensor(const IrGraph *g, IrValue v, EmitTensor *out_tensor)
{
    const IrValueRec *rec = ir_value(g, v);
    int64_t numel = ir_type_numel(g->m, rec->type);
    DType dtype = ir_type_info(g->m, rec->type)->dtype;
    EmitTensor t = {
        .value = v, .dtype = dtype, .numel = numel, .run = numel, .pitch = numel, .parts = 1};
    if (rec->def == IR_DEF_STATE) {
        t.offset = (uint64_t)ir_state_rec(g->m, rec->state)->offset;
    } else if (rec->place.base.i) {
        if (!emit_tensor(g, rec->place.base, &t))
            return false;
        t.value = v;
        t.offset += (uint64_t)rec->place.view_offset * dtype_bytes(dtype);
        bool contiguous = rec->place.run == rec->place.pitch || rec->place.run >= numel;
        t.numel = numel;
        t.run = contiguous ? numel : rec->place.run;
        t.pitch = contiguous ? numel : rec->place.pitch;
    } else if (rec->place.offset >= 0) {
        t.offset = (uint64_t)rec->place.offset;
    } else {
        return false;
    }
    *out_tensor = t;
    return true;
}

uint32_t emit_tensor_find(const EmitRegion *region, IrValue v, int64_t part, int64_t parts)
{
    for (uint32_t i = 0; i < region->tensors.n; i++) {
        const EmitTensor *t = &region->tensors.at[i];
        if (t->value.i == v.i && t->part == part && t->parts == parts)
            return i;
    }
    return UINT32_MAX;
}

/* The part of a tensor that `slice` reads: its last dim is `last` elements. */
static EmitTensor tensor_part(EmitTensor t, int64_t last, int64_t part, int64_t parts)
{
    int64_t width = last / parts;
    t.part = part;
    t.parts = parts;
    t.offset += (uint64_t)(part * width) * dtype_bytes(t.dtype);
    t.numel /= parts;
    t.pitch = t.run == t.pitch ? last : t.pitch;
    t.run = width;
    return t;
}

void emit_scan_init(EmitScan *scan, Session *s, const IrGraph *g, Arena *arena)
{
    *scan = (EmitScan){.s = s, .g = g, .arena = arena};
    scan->number = ARENA_ARRAY(arena, uint32_t, g->values.n);
    scan->stamp = ARENA_ARRAY(arena, uint32_t, g->values.n);
    scan->outside = ARENA_ARRAY(arena, unsigned char, g->values.n);
}

static void key_word(EmitScan *scan, EmitRegion *r, uint64_t word)
{
    vec_push(scan->arena, &r->key, word);
}

static void key_type(EmitScan *scan, EmitRegion *r, IrType type)
{
    const IrTypeInfo *info = ir_type_info(scan->g->m, type);
    key_word(scan, r, (uint64_t)info->dtype << 8 | info->rank);
    for (uint32_t i = 0; i < info->rank; i++)
        key_word(scan, r, (uint64_t)ir_dim_size(&info->dim[i]));
}

static void key_layout(EmitScan *scan, EmitRegion *r, const EmitTensor *t)
{
    key_word(scan, r, (uint64_t)t->run);
    key_word(scan, r, (uint64_t)t->pitch);
    key_word(scan, r, t->offset % 16); /* what the code may take for aligned */
}

static bool numbered(const EmitScan *scan, IrValue v)
{
    return scan->stamp[v.i] == scan->round;
}

static void give_number(EmitScan *scan, EmitRegion *r, IrValue v, bool outside)
{
    scan->stamp[v.i] = scan->round;
    scan->outside[v.i] = outside;
    scan->number[v.i] = ++r->n_values;
    key_type(scan, r, ir_value_type(scan->g, v));
}

/* An operand from outside the region becomes one of its tensors at first sight. */
static Status scan_operand(EmitScan *scan, EmitRegion *r, IrValue v, int64_t part, int64_t parts)
{
    const IrGraph *g = scan->g;
    if (v.i && !numbered(scan, v))
        give_number(scan, r, v, true);
    if (v.i && scan->outside[v.i] && emit_tensor_find(r, v, part, parts) == UINT32_MAX) {
        EmitTensor tensor;
        if (!emit_tensor(g, v, &tensor)) {
            diag(scan->s, ir_value(g, v)->span, backend_no_memory, ir_value(g, v)->name);
            return STATUS_BUG;
        }
        if (parts > 1)
            tensor = tensor_part(tensor, ir_type_last(g->m, ir_value_type(g, v)), part, parts);
        key_layout(scan, r, &tensor);
        vec_push(scan->arena, &r->tensors, tensor);
    }
    key_word(scan, r, v.i ? scan->number[v.i] : 0);
    return STATUS_OK;
}

static void scan_result(EmitScan *scan, EmitRegion *r, IrValue v)
{
    give_number(scan, r, v, false);
    EmitTensor tensor;
    bool stored = emit_tensor(scan->g, v, &tensor);
    key_word(scan, r, stored);
    if (stored) {
        tensor.written = true;
        key_layout(scan, r, &tensor);
        vec_push(scan->arena, &r->tensors, tensor);
    }
}

static Status scan_op(EmitScan *scan, EmitRegion *r, IrOp op)
{
    const IrGraph *g = scan->g;
    const IrOpRec *rec = ir_op(g, op);
    const IrOpInfo *info = ir_op_info((IrOpKind)rec->kind);
    key_word(scan, r, (uint64_t)rec->kind << 32 | rec->n_in);
    for (uint32_t i = 0; i < info->n_attr; i++) {
        IrAttr attr = g->attrs.at[rec->first_attr + i];
        bool random = info->traits & IR_RANDOM && !strcmp(info->attr[i].name, "key");
        if (random)
            vec_push(scan->arena, &r->random_keys, attr.i);
        uint64_t word = 0; /* a random op's key is a parameter: equal code for all */
        if (!random)
            memcpy(&word, &attr, info->attr[i].type == IR_ATTR_BOOL ? sizeof attr.b : sizeof attr);
        key_word(scan, r, word);
    }
    bool slices = rec->kind == IR_OP_slice;
    int64_t part = slices ? ir_attr_i64(g, op, "index") : 0;
    int64_t parts = slices ? ir_attr_i64(g, op, "parts") : 1;
    for (uint32_t i = 0; i < rec->n_in; i++)
        TRY(scan_operand(scan, r, ir_in(g, op, i), part, parts));
    for (uint32_t i = 0; i < rec->n_out; i++)
        scan_result(scan, r, ir_out(g, op, i));
    return STATUS_OK;
}

/* -- the iteration space -- */

static int64_t numel_of(const EmitRegion *r, IrValue v)
{
    return ir_type_numel(r->g->m, ir_value_type(r->g, v));
}

/* The widest of the ops' results and first operands. */
static IrValue widest_value(const EmitRegion *r)
{
    IrValue widest = {0};
    int64_t most = -1;
    for (uint32_t i = 0; i < r->n_ops; i++) {
        if (!emit_op(ir_op_kind(r->g, r->ops[i])))
            continue;
        IrValue candidates[2] = {ir_out(r->g, r->ops[i], 0), ir_in(r->g, r->ops[i], 0)};
        bool slices = ir_op_info(ir_op_kind(r->g, r->ops[i]))->traits & IR_VIEW;
        for (uint32_t k = 0; k < (slices ? 1u : 2u); k++)
            if (numel_of(r, candidates[k]) > most) {
                most = numel_of(r, candidates[k]);
                widest = candidates[k];
            }
    }
    return widest;
}

/* Whether every tensor of a pointwise region is in one piece per row of `cols` elements. */
static bool rows_fit(const EmitRegion *r, int64_t numel, int64_t per_sample, int64_t cols)
{
    if (numel % cols || (r->random_keys.n && per_sample % cols))
        return false;
    for (uint32_t i = 0; i < r->tensors.n; i++) {
        const EmitTensor *t = &r->tensors.at[i];
        if (t->numel > 1 && (t->numel % cols || (t->run != t->pitch && t->run % cols)))
            return false;
    }
    return true;
}

/* Pointwise: any cut gives the same bits; rows grow until they are about a thousand elements. */
static void choose_rows(EmitRegion *r)
{
    enum { LONG_ENOUGH = 1024 };
    IrValue widest = widest_value(r);
    const IrTypeInfo *info = ir_type_info(r->g->m, ir_value_type(r->g, widest));
    int64_t numel = numel_of(r, widest);
    int64_t per_sample = info->rank ? numel / ir_dim_size(&info->dim[0]) : 1;
    int64_t cols = ir_type_last(r->g->m, ir_value_type(r->g, widest));
    for (uint32_t i = 0; i < r->tensors.n; i++) {
        const EmitTensor *t = &r->tensors.at[i];
        if (t->numel > 1)
            cols = gcd(cols, t->run == t->pitch ? t->numel : gcd(t->numel, t->run));
    }
    int64_t trailing = 1;
    for (uint32_t i = info->rank; i-- > 0;) {
        trailing *= ir_dim_size(&info->dim[i]);
        if (trailing > cols && cols < LONG_ENOUGH && rows_fit(r, numel, per_sample, trailing))
            cols = trailing;
    }
    r->cols = cols;
    r->rows = numel / cols;
}

static Status choose_space(EmitScan *scan, EmitRegion *r)
{
    int64_t cols = 0;
    for (uint32_t i = 0; i < r->n_ops; i++) {
        const EmitOp *op = emit_op(ir_op_kind(r->g, r->ops[i]));
        if (!op || op->space == SPACE_ANY)
            continue;
        int64_t wants = op->space == SPACE_LAST
                            ? ir_type_last(r->g->m, ir_value_type(r->g, ir_in(r->g, r->ops[i], 0)))
                            : numel_of(r, ir_out(r->g, r->ops[i], 0));
        if (cols && wants != cols) {
            diag(scan->s, ir_op(r->g, r->ops[i])->span, backend_rows_differ, (long long)cols,
                 (long long)wants);
            return STATUS_BUG;
        }
        cols = wants;
    }
    if (!cols) {
        choose_rows(r);
        return STATUS_OK;
    }
    r->cols = cols;
    r->rows = numel_of(r, widest_value(r)) / cols;
    return STATUS_OK;
}

Status emit_scan_region(EmitScan *scan, const IrOp *ops, uint32_t n_ops, EmitRegion *out_region)
{
    scan->round++;
    EmitRegion r = {.g = scan->g, .ops = ops, .n_ops = n_ops, .number = scan->number};
    for (uint32_t i = 0; i < n_ops; i++)
        TRY(scan_op(scan, &r, ops[i]));
    TRY(choose_space(scan, &r));
    *out_region = r;
    return STATUS_OK;
}
