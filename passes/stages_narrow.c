/* A value that is made in front of the blocks, and of which every block takes a slice of its own
 * (inputs of each layer), is made on each stage in the part that its blocks take, with the rows
 * or columns of the weights that this part needs. No weight is then held twice. */
#include "passes/stages.h"

typedef struct Narrowing {
    Stages *s;
    StageNarrow *n;
    bool *member; /* by op */
} Narrowing;

static const IrTypeInfo *type_of(const Stages *s, IrValue v)
{
    return ir_type_info(s->g->m, ir_value_type(s->g, v));
}

/* A plain number that the parts divide. */
static bool divides(const IrTypeInfo *t, uint32_t dim, int64_t parts)
{
    const IrDim *d = &t->dim[dim];
    for (uint32_t i = 0; i < d->n; i++)
        if (d->f[i].axis)
            return false;
    return ir_dim_size(d) % parts == 0;
}

/* -- ranges -- */

/* Every stage's slices are a run of parts, and no two stages take the same. */
static bool find_ranges(Narrowing *x)
{
    Stages *s = x->s;
    IrValue v = x->n->value;
    int64_t *count = ARENA_ARRAY(s->c->scratch, int64_t, s->n_stages);
    x->n->begin = ARENA_ARRAY(s->c->scratch, int64_t, s->n_stages);
    x->n->end = ARENA_ARRAY(s->c->scratch, int64_t, s->n_stages);
    bool *taken = NULL;
    for (uint32_t i = s->uses.first[v.i]; i < s->uses.first[v.i + 1]; i++) {
        IrOp op = s->uses.at[i];
        if (ir_op_kind(s->g, op) != IR_OP_slice || stage_op(s, op)->block < 0)
            return false;
        int64_t parts = ir_attr_i64(s->g, op, "parts"), index = ir_attr_i64(s->g, op, "index");
        uint32_t stage = stage_op(s, op)->piece;
        if (!taken) {
            x->n->parts = parts;
            taken = ARENA_ARRAY(s->c->scratch, bool, (size_t)parts);
        }
        if (parts != x->n->parts || taken[index])
            return false;
        taken[index] = true;
        if (!count[stage]++ || index < x->n->begin[stage])
            x->n->begin[stage] = index;
        if (index >= x->n->end[stage])
            x->n->end[stage] = index + 1;
    }
    for (uint32_t i = 0; i < s->n_stages; i++)
        if (count[i] != x->n->end[i] - x->n->begin[i])
            return false;
    return taken != NULL && x->n->parts > 1;
}

/* -- what the value is made of -- */

static bool narrow(Narrowing *x, IrValue v, uint32_t dim);

/* A weight that only this op reads. */
static bool narrow_state(Narrowing *x, IrValue v, uint32_t dim)
{
    Stages *s = x->s;
    if (!v.i || ir_value(s->g, v)->def != IR_DEF_STATE ||
        s->uses.first[v.i + 1] - s->uses.first[v.i] != 1 ||
        !divides(type_of(s, v), dim, x->n->parts))
        return false;
    vec_push(s->c->scratch, &x->n->states,
             ((struct StageNarrowState){ir_value(s->g, v)->state, dim}));
    return true;
}

static bool narrow_broadcast(Narrowing *x, IrOp op, uint32_t dim)
{
    IrValue a = ir_in(x->s->g, op, 0), b = ir_in(x->s->g, op, 1);
    uint32_t rank = type_of(x->s, a)->rank, behind = type_of(x->s, b)->rank;
    if (!narrow(x, a, dim))
        return false;
    if (behind == rank)
        return narrow(x, b, dim);
    return dim + behind < rank; /* b repeats along the dim */
}

static int64_t size_before(const IrTypeInfo *t, uint32_t dim)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < dim; i++)
        n *= ir_dim_size(&t->dim[i]);
    return n;
}

/* The dim of x whose parts are those of y's. */
static bool narrow_reshape(Narrowing *x, IrOp op, uint32_t dim)
{
    IrValue in = ir_in(x->s->g, op, 0);
    const IrTypeInfo *to = type_of(x->s, ir_out(x->s->g, op, 0)), *from = type_of(x->s, in);
    int64_t before = size_before(to, dim);
    for (uint32_t i = 0; i < from->rank; i++)
        if (size_before(from, i) == before && ir_dim_size(&from->dim[i]) % x->n->parts == 0)
            return narrow(x, in, i);
    return false;
}

static bool narrow_linear(Narrowing *x, IrOp op, uint32_t dim)
{
    const IrGraph *g = x->s->g;
    bool in_out = ir_attr_bool(g, op, "in_out"),
         last = dim + 1 == type_of(x->s, ir_out(g, op, 0))->rank;
    IrValue bias = ir_in(g, op, 2);
    return last && narrow_state(x, ir_in(g, op, 1), in_out) &&
           (!bias.i || narrow_state(x, bias, 0));
}

static bool narrow_op(Narrowing *x, IrOp op, uint32_t dim)
{
    const IrGraph *g = x->s->g;
    uint32_t rank = type_of(x->s, ir_out(g, op, 0))->rank;
    switch ((int)ir_op_kind(g, op)) {
    case IR_OP_add:
    case IR_OP_sub:
    case IR_OP_mul:
        return narrow_broadcast(x, op, dim);
    case IR_OP_scale:
    case IR_OP_cast:
    case IR_OP_act:
        return narrow(x, ir_in(g, op, 0), dim);
    case IR_OP_reshape:
        return narrow_reshape(x, op, dim);
    case IR_OP_rmsnorm:
        return dim + 1 < rank && narrow(x, ir_in(g, op, 0), dim);
    case IR_OP_linear:
        return narrow_linear(x, op, dim);
    case IR_OP_embed:
        return dim + 1 == rank && narrow_state(x, ir_in(g, op, 0), 1);
    default:
        return false;
    }
}

/* Made in front of the blocks, for this value alone. */
static bool narrow(Narrowing *x, IrValue v, uint32_t dim)
{
    Stages *s = x->s;
    const IrValueRec *rec = ir_value(s->g, v);
    if (rec->def != IR_DEF_RESULT || rec->result || s->uses.is_result[v.i] ||
        !divides(type_of(s, v), dim, x->n->parts))
        return false;
    StageOp *op = stage_op(s, rec->op);
    bool alone = v.i == x->n->value.i || s->uses.first[v.i + 1] - s->uses.first[v.i] == 1;
    if (op->block >= 0 || op->behind || op->role != STAGE_FIXED || x->member[rec->op.i] || !alone)
        return false;
    x->member[rec->op.i] = true;
    vec_push(s->c->scratch, &x->n->ops, rec->op);
    op->dim = dim;
    return narrow_op(x, rec->op, dim);
}

static void try_value(Stages *s, IrValue v)
{
    StageNarrow n = {.value = v};
    Narrowing x = {.s = s, .n = &n, .member = ARENA_ARRAY(s->c->scratch, bool, s->g->ops.n)};
    if (!find_ranges(&x) || !narrow(&x, v, type_of(s, v)->rank - 1))
        return;
    vec_push(s->c->scratch, &s->narrows, n);
    for (uint32_t i = 0; i < n.ops.n; i++) {
        stage_op(s, n.ops.at[i])->role = STAGE_NARROW;
        stage_op(s, n.ops.at[i])->narrow = s->narrows.n;
    }
    for (uint32_t i = s->uses.first[v.i]; i < s->uses.first[v.i + 1]; i++)
        stage_op(s, s->uses.at[i])->narrow = s->narrows.n;
    pass_stat(s->c, "values made in parts", 1);
}

void stages_narrow(Stages *s)
{
    if (s->n_chunks > 1)
        return; /* a stage's slices are no run then */
    for (uint32_t i = 0; i < s->g->order.n; i++) {
        IrOp op = s->g->order.at[i];
        const StageOp *at = stage_op(s, op);
        if (at->block >= 0 || at->behind || at->role != STAGE_FIXED || ir_op(s->g, op)->n_out != 1)
            continue;
        IrValue v = ir_out(s->g, op, 0);
        if (type_of(s, v)->rank && s->uses.first[v.i + 1] - s->uses.first[v.i] > 1)
            try_value(s, v);
    }
}
