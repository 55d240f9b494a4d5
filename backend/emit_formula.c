#include "backend/emit_formula.h"

#include <stdlib.h>

static const EmitKindInfo kinds[NODE_COUNT] = {
#define NODE(name, n_args, cost, class) {#name, n_args, cost, EMIT_##class},
#include "backend/emit_nodes.def"
#undef NODE
};

const EmitKindInfo *emit_kind_info(EmitKind kind)
{
    return &kinds[kind];
}

/* -- nodes -- */

static EmitNode add_node(EmitFormula *f, const EmitNodeRec *rec)
{
    for (uint32_t i = 1; i < f->nodes.n; i++)
        if (!memcmp(&f->nodes.at[i], rec, sizeof *rec))
            return (EmitNode){i};
    vec_push(f->arena, &f->nodes, *rec);
    return (EmitNode){f->nodes.n - 1};
}

EmitNode emit_node(EmitFormula *f, EmitKind kind, EmitElem elem, EmitNode a, EmitNode b, EmitNode c)
{
    EmitNode args[3] = {a, b, c};
    EmitNodeRec rec;
    memset(&rec, 0, sizeof rec); /* padding too: records are compared as bytes */
    rec.kind = (uint8_t)kind;
    rec.elem = (uint8_t)elem;
    for (uint32_t i = 0; i < kinds[kind].n_args; i++) {
        const EmitNodeRec *arg = emit_rec(f, args[i]);
        rec.arg[i] = args[i].i;
        rec.lanes |= arg->lanes;
        rec.rows |= arg->rows;
        if (arg->stage > rec.stage)
            rec.stage = arg->stage;
    }
    if (kinds[kind].class == EMIT_REDUCE) {
        rec.lanes = false;
        rec.stage++;
    }
    if (kind == NODE_swap_half)
        rec.stage++;
    if (rec.stage >= f->n_stages)
        f->n_stages = rec.stage + 1;
    return add_node(f, &rec);
}

EmitNode emit_number(EmitFormula *f, EmitElem elem, double value)
{
    EmitNodeRec rec;
    memset(&rec, 0, sizeof rec);
    rec.kind = NODE_number;
    rec.elem = (uint8_t)elem;
    rec.number = value;
    return add_node(f, &rec);
}

EmitNode emit_leaf(EmitFormula *f, EmitKind kind, EmitElem elem, int64_t index)
{
    EmitNodeRec rec;
    memset(&rec, 0, sizeof rec);
    rec.kind = (uint8_t)kind;
    rec.elem = (uint8_t)elem;
    rec.index = index;
    rec.lanes = kind == NODE_lane;
    rec.rows = kind == NODE_row;
    return add_node(f, &rec);
}

EmitNode emit_integer(EmitFormula *f, EmitElem elem, int64_t value)
{
    return emit_leaf(f, NODE_number, elem, value);
}

EmitNode emit_load(EmitFormula *f, EmitAccess access)
{
    static const EmitElem elems[DTYPE_COUNT] = {
        [DTYPE_F64] = ELEM_F64, [DTYPE_I64] = ELEM_I64, [DTYPE_I32] = ELEM_I32};
    EmitNodeRec rec;
    memset(&rec, 0, sizeof rec);
    rec.kind = NODE_load;
    rec.elem = (uint8_t)elems[f->region->tensors.at[access.tensor].dtype];
    rec.lanes = access.walk != WALK_ONE;
    rec.rows = access.row_mod != 1;
    rec.access = access;
    return add_node(f, &rec);
}

/* -- a region's values -- */

static IrValue in_value(const EmitRule *r, uint32_t in)
{
    return ir_in(r->g, r->op, in);
}

static DType value_dtype(const EmitRule *r, IrValue v)
{
    return ir_type_info(r->g->m, ir_value_type(r->g, v))->dtype;
}

static uint32_t number_of(const EmitRule *r, IrValue v)
{
    return r->f->region->number[v.i] - 1;
}

static uint32_t tensor_of(const EmitRule *r, IrValue v)
{
    return emit_tensor_find(r->f->region, v, 0, 1);
}

/* A tensor against the space: all of it, its trailing dims, a part of each row, or one element. */
static EmitAccess access_of(const EmitFormula *f, uint32_t tensor)
{
    int64_t numel = f->region->tensors.at[tensor].numel, cols = f->region->cols;
    EmitAccess at = {tensor, WALK_OWN, 1, numel / cols, cols};
    if (numel == 1)
        at = (EmitAccess){tensor, WALK_ONE, 1, 1, 1};
    else if (numel < cols && cols % numel == 0)
        at = (EmitAccess){tensor, WALK_WRAP, 1, 1, numel};
    else if (numel % cols)
        abort(); /* fuse put ops together whose rows do not match */
    return at;
}

static EmitAccess access_of_row(const EmitFormula *f, uint32_t tensor)
{
    return (EmitAccess){tensor, WALK_ONE, 1, f->region->tensors.at[tensor].numel, 1};
}

static EmitNode as_elem(EmitRule *r, EmitNode n, EmitElem elem)
{
    EmitElem from = (EmitElem)emit_rec(r->f, n)->elem;
    if (from == elem)
        return n;
    return emit_node(r->f, elem == ELEM_F64 ? NODE_to_f64 : NODE_to_f32, elem, n, (EmitNode){0},
                     (EmitNode){0});
}

bool emit_has(const EmitRule *r, uint32_t in)
{
    return in_value(r, in).i != 0;
}

EmitNode emit_in(EmitRule *r, uint32_t in)
{
    IrValue v = in_value(r, in);
    EmitNode known = r->values[number_of(r, v)];
    if (!known.i)
        known = emit_load(r->f, access_of(r->f, tensor_of(r, v)));
    return as_elem(r, known, r->elem);
}

EmitNode emit_in_part(EmitRule *r, uint32_t in, int64_t part, int64_t parts)
{
    uint32_t tensor = emit_tensor_find(r->f->region, in_value(r, in), part, parts);
    if (tensor == UINT32_MAX)
        abort(); /* fuse put a slice behind the op that makes what it cuts */
    return as_elem(r, emit_load(r->f, access_of(r->f, tensor)), r->elem);
}

EmitNode emit_in_row(EmitRule *r, uint32_t in)
{
    IrValue v = in_value(r, in);
    EmitNode known = r->values[number_of(r, v)];
    if (!known.i)
        known = emit_load(r->f, access_of_row(r->f, tensor_of(r, v)));
    return as_elem(r, known, r->elem);
}

EmitNode emit_in_angle(EmitRule *r, uint32_t in, bool interleaved)
{
    const IrTypeInfo *x = ir_type_info(r->g->m, ir_value_type(r->g, in_value(r, 0)));
    int64_t heads = ir_dim_size(&x->dim[x->rank - 2]), width = r->f->region->cols / 2;
    uint32_t tensor = tensor_of(r, in_value(r, in));
    int64_t rows = r->f->region->tensors.at[tensor].numel / width;
    EmitAccess at = {tensor, interleaved ? WALK_PAIR : WALK_WRAP, heads, rows, width};
    return as_elem(r, emit_load(r->f, at), r->elem);
}

EmitNode emit_in_partner(EmitRule *r, uint32_t in, bool interleaved)
{
    EmitNode own = emit_in(r, in);
    EmitNodeRec rec = *emit_rec(r->f, own);
    if (rec.kind == NODE_load && rec.access.walk == WALK_OWN && !interleaved) {
        rec.access.walk = WALK_PARTNER;
        return emit_load(r->f, rec.access);
    }
    return emit_node(r->f, interleaved ? NODE_swap_pair : NODE_swap_half, r->elem, own,
                     (EmitNode){0}, (EmitNode){0});
}

EmitNode emit_round(EmitRule *r, EmitNode value, DType dtype)
{
    if (dtype == DTYPE_F64)
        return as_elem(r, value, ELEM_F64);
    value = as_elem(r, value, ELEM_F32);
    if (dtype == DTYPE_BF16)
        value = emit_node(r->f, NODE_round_bf16, ELEM_F32, value, (EmitNode){0}, (EmitNode){0});
    return value;
}

static EmitNode give(EmitRule *r, uint32_t out, EmitNode value, bool per_row)
{
    IrValue v = ir_out(r->g, r->op, out);
    value = emit_round(r, value, value_dtype(r, v));
    r->values[number_of(r, v)] = value;
    uint32_t tensor = tensor_of(r, v);
    if (tensor != UINT32_MAX) {
        EmitAccess at = per_row ? access_of_row(r->f, tensor) : access_of(r->f, tensor);
        vec_push(r->f->arena, &r->f->stores, ((EmitStore){value, at}));
    }
    return value;
}

EmitNode emit_out(EmitRule *r, uint32_t out, EmitNode value)
{
    return give(r, out, value, false);
}

EmitNode emit_out_row(EmitRule *r, uint32_t out, EmitNode value)
{
    return give(r, out, value, true);
}

void emit_out_column(EmitRule *r, uint32_t out, EmitNode a, EmitNode b)
{
    EmitFormula *f = r->f;
    uint32_t tensor = tensor_of(r, ir_out(r->g, r->op, out));
    if (tensor == UINT32_MAX)
        return;
    a = as_elem(r, a, r->elem);
    b = b.i ? as_elem(r, b, r->elem) : b;
    uint64_t bytes = (uint64_t)f->region->cols * (r->elem == ELEM_F64 ? 8 : 4);
    f->partial_bytes = (f->partial_bytes + 7) / 8 * 8;
    vec_push(f->arena, &f->columns, ((EmitColumn){a, b, tensor, f->partial_bytes}));
    f->partial_bytes += bytes;
}

/* -- a region -- */

static void apply_rule(EmitRule *r, IrOp op)
{
    r->op = op;
    r->elem = ELEM_F32;
    const IrOpRec *rec = ir_op(r->g, op);
    for (uint32_t i = 0; i < rec->n_in; i++)
        if (ir_in(r->g, op, i).i && value_dtype(r, ir_in(r->g, op, i)) == DTYPE_F64)
            r->elem = ELEM_F64;
    for (uint32_t i = 0; i < rec->n_out; i++)
        if (value_dtype(r, ir_out(r->g, op, i)) == DTYPE_F64)
            r->elem = ELEM_F64;
    const EmitOp *rule = emit_op(ir_op_kind(r->g, op));
    if (rule)
        rule->rule(r);
    else
        emit_out(r, 0, emit_in(r, 0)); /* a reshape inside the region */
}

EmitFormula *emit_formula(const EmitRegion *region, Arena *arena)
{
    EmitFormula *f = ARENA_NEW(arena, EmitFormula);
    *f = (EmitFormula){.arena = arena, .region = region, .n_stages = 1};
    vec_push(arena, &f->nodes, (EmitNodeRec){0});
    uint32_t n_random = 0;
    EmitRule rule = {.f = f, .g = region->g, .n_random = &n_random};
    rule.values = ARENA_ARRAY(arena, EmitNode, region->n_values);
    for (uint32_t i = 0; i < region->n_ops; i++)
        apply_rule(&rule, region->ops[i]);
    f->partial_bytes = (f->partial_bytes + 7) / 8 * 8;
    return f;
}
