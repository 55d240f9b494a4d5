/* precision: the frontend writes every float as f32; here each value gets its dtype. Weights are
 * stored as `param`, values are `compute`, and where an op would read another float dtype a cast
 * stands before it, in the op's own scope, so that a recompute region replays it too.
 * Statistics, tables of angles and the loss keep the dtype that their op gives them. */
#include "passes/pass.h"

#include <string.h>

typedef struct Precision {
    PassContext *c;
    IrGraph *g;
    Map casts; /* value, block -> its cast */
} Precision;

static void set_state_types(PassContext *c)
{
    for (uint32_t i = 1; i < c->m->states.n; i++) {
        IrStateRec *rec = &c->m->states.at[i];
        if (rec->kind == IR_STATE_PARAM || rec->kind == IR_STATE_BUFFER)
            rec->type = ir_type_with_dtype(c->m, rec->type, c->options->param);
    }
}

/* Operands that keep their own dtype: a table that rows are looked up in (a cast would touch all
 * of it), and angles. */
static bool keeps_dtype(IrOpKind kind, uint32_t operand)
{
    return (kind == IR_OP_embed && operand == 0) || (kind == IR_OP_rope && operand > 0) ||
           kind == IR_OP_cast;
}

static IrValue cast_to(Precision *p, uint32_t *at, IrOp op, IrValue v, DType dtype)
{
    IrGraph *g = p->g;
    IrScope scope = ir_op(g, op)->scope;
    uint64_t key = (uint64_t)v.i << 32 | ir_scope_block(g->m, scope).i, known;
    if (map_get(&p->casts, key, &known))
        return (IrValue){(uint32_t)known};
    IrBuilder b = ir_builder(g);
    b.at = *at;
    b.scope = scope;
    b.span = ir_op(g, op)->span;
    IrOpArgs args = {.kind = IR_OP_cast, .in = &v, .n_in = 1};
    args.name = intern_printf(&p->c->s->interner, "%s.%s", ir_value(g, v)->name, dtype_name(dtype));
    args.out[0] = ir_type_with_dtype(g->m, ir_value_type(g, v), dtype);
    IrValue cast = ir_out(g, ir_build(&b, &args), 0);
    ++*at;
    map_put(&p->casts, key, cast.i);
    pass_stat(p->c, "casts", 1);
    return cast;
}

/* Result types again, now that operands have theirs. */
static Status infer(Precision *p, IrOp op)
{
    IrGraph *g = p->g;
    const IrOpRec *rec = ir_op(g, op);
    const IrOpInfo *info = ir_op_info(ir_op_kind(g, op));
    DType compute = p->c->options->compute;
    IrType *in = ARENA_ARRAY(p->c->scratch, IrType, rec->n_in + 1), out[IR_MAX_OUTS] = {{0}};
    for (uint32_t i = 0; i < rec->n_in; i++)
        if (ir_in(g, op, i).i)
            in[i] = ir_value_type(g, ir_in(g, op, i));
    for (uint32_t r = 0; r < rec->n_out; r++) {
        out[r] = ir_value_type(g, ir_out(g, op, r));
        bool table = ir_op_kind(g, op) == IR_OP_rope_table && compute != DTYPE_F64;
        if (ir_op_kind(g, op) == IR_OP_reshape)
            out[r] = ir_type_with_dtype(g->m, out[r], ir_type_info(g->m, in[0])->dtype);
        else if (dtype_is_float(ir_type_info(g->m, out[r])->dtype) &&
                 ir_op_kind(g, op) != IR_OP_cast)
            out[r] = ir_type_with_dtype(g->m, out[r], table ? DTYPE_F32 : compute);
    }
    IrAttr *attr = info->n_attr ? &g->attrs.at[rec->first_attr] : NULL;
    IrShapeCall call = {.m = g->m, .in = in, .n_in = rec->n_in, .attr = attr, .out = out};
    if (!info->shape(&call))
        return STATUS_BUG;
    for (uint32_t r = 0; r < rec->n_out; r++)
        ir_value(g, ir_out(g, op, r))->type = out[r];
    return STATUS_OK;
}

static Status set_value_types(PassContext *c, IrGraph *g)
{
    Precision p = {.c = c, .g = g};
    map_init(&p.casts, c->scratch);
    for (uint32_t i = 1; i < g->values.n; i++)
        if (g->values.at[i].def == IR_DEF_STATE)
            g->values.at[i].type = ir_state_rec(c->m, g->values.at[i].state)->type;
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        uint32_t at = i;
        for (uint32_t n = 0; n < ir_op(g, op)->n_in; n++) {
            IrValue v = ir_in(g, op, n);
            if (!v.i || keeps_dtype(ir_op_kind(g, op), n))
                continue;
            DType dtype = ir_type_info(c->m, ir_value_type(g, v))->dtype;
            if (dtype_is_float(dtype) && dtype != c->options->compute)
                ir_set_in(g, op, n, cast_to(&p, &at, op, v, c->options->compute));
        }
        i = at;
        TRY(infer(&p, op));
    }
    return STATUS_OK;
}

Status pass_precision(PassContext *c)
{
    set_state_types(c);
    for (uint32_t k = 0; k < c->m->graphs.n; k++)
        TRY(set_value_types(c, c->m->graphs.at[k]));
    return STATUS_OK;
}
