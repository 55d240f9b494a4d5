/* The module of one stage: its pieces of @fwd one behind the other, each with what it receives in
 * front and what it sends behind, and the states that it reads. */
#include "passes/stages.h"

typedef struct Split {
    const Stages *s;
    uint32_t stage;
    IrModule *m;
    IrGraph *from, *to; /* @fwd of the whole model, in this module; the stage's */
    IrBuilder b;
    IrValue *map; /* by value of `from` */
} Split;

static IrValue map_value(void *context, IrValue old)
{
    Split *x = context;
    const IrValueRec *rec = ir_value(x->from, old);
    if (!x->map[old.i].i && rec->def == IR_DEF_STATE)
        x->map[old.i] = ir_graph_state(x->to, rec->state);
    return x->map[old.i];
}

/* -- parts of values -- */

static int64_t n_parts(const Split *x, const StageNarrow *n)
{
    return n->end[x->stage] - n->begin[x->stage];
}

static IrType narrow_type(Split *x, const StageNarrow *n, IrType type, uint32_t dim)
{
    IrTypeInfo info = *ir_type_info(x->m, type);
    info.dim[dim] = ir_dim_number(ir_dim_size(&info.dim[dim]) / n->parts * n_parts(x, n));
    return ir_type(x->m, &info);
}

static void narrow_states(Split *x, const StageNarrow *n)
{
    for (uint32_t i = 0; n_parts(x, n) && i < n->states.n; i++) {
        IrStateRec *rec = ir_state_rec(x->m, n->states.at[i].state);
        uint32_t dim = n->states.at[i].dim;
        int64_t whole = ir_dim_size(&ir_type_info(x->m, rec->type)->dim[dim]);
        rec->narrow = (IrNarrow){dim, whole / n->parts * n->begin[x->stage], whole};
        rec->type = narrow_type(x, n, rec->type, dim);
    }
}

/* What the op makes is as much shorter as what it reads; statistics have the dims in front of a
 * row. */
static void narrow_results(Split *x, IrOp copy, const StageOp *at)
{
    const StageNarrow *n = &x->s->narrows.at[at->narrow - 1];
    IrGraph *g = x->to;
    if (at->role != STAGE_NARROW) {
        ir_attr_at(g, copy, "index")->i -= n->begin[x->stage];
        ir_attr_at(g, copy, "parts")->i = n_parts(x, n);
        return;
    }
    for (uint32_t r = 0; r < ir_op(g, copy)->n_out; r++) {
        IrValueRec *rec = ir_value(g, ir_out(g, copy, r));
        if (at->dim < ir_type_info(x->m, rec->type)->rank)
            rec->type = narrow_type(x, n, rec->type, at->dim);
    }
}

/* -- what crosses borders -- */

static IrOpArgs message(Split *x, IrOpKind kind, uint32_t peer, int64_t tag)
{
    IrOpArgs args = {.kind = kind, .attrs = {"comm", "ranks", "peer", "tag"}};
    args.values[0].sym = sym(x->m->s, "pp");
    args.values[1].i = x->s->n_stages;
    args.values[2].i = peer;
    args.values[3].i = tag;
    return args;
}

static void place(Split *x, IrValue old)
{
    x->b.scope = (IrScope){1};
    x->b.span = ir_value(x->from, old)->span;
}

static void receive(Split *x, uint32_t piece)
{
    int64_t tag = 0;
    for (uint32_t v = 1; piece && v < x->s->g->values.n; v++) {
        if (!stages_crosses(x->s, (IrValue){v}, piece - 1))
            continue;
        const IrValueRec *rec = &x->from->values.at[v];
        IrOpArgs args = message(x, IR_OP_recv, (piece - 1) % x->s->n_stages, tag++);
        place(x, (IrValue){v});
        args.name = rec->name;
        args.out[0] = rec->type;
        args.attrs[4] = "grad";
        args.values[4].b = x->s->wants[v];
        x->map[v] = ir_out(x->to, ir_build(&x->b, &args), 0);
    }
}

static void send(Split *x, uint32_t piece)
{
    int64_t tag = 0;
    for (uint32_t v = 1; piece + 1 < x->s->n_pieces && v < x->s->g->values.n; v++) {
        if (!stages_crosses(x->s, (IrValue){v}, piece))
            continue;
        IrOpArgs args = message(x, IR_OP_send, (piece + 1) % x->s->n_stages, tag++);
        place(x, (IrValue){v});
        args.in = &x->map[v];
        args.n_in = 1;
        ir_build(&x->b, &args);
    }
}

/* -- the module -- */

static bool is_needed(const Split *x, IrOp op)
{
    const IrOpRec *rec = ir_op(x->from, op);
    for (uint32_t r = 0; r < rec->n_out; r++)
        for (uint32_t c = 0; c < x->s->n_chunks; c++)
            if (x->s->needed[(size_t)(rec->first_out + r) * x->s->n_pieces +
                             c * x->s->n_stages + x->stage])
                return true;
    return false;
}

static void take_op(Split *x, IrOp op)
{
    const StageOp *at = stage_op(x->s, op);
    uint32_t first_out = ir_op(x->from, op)->first_out, n_out = ir_op(x->from, op)->n_out;
    IrOp copy = ir_clone(&x->b, x->from, op, map_value, x, "", "");
    if (at->narrow)
        narrow_results(x, copy, at);
    for (uint32_t r = 0; r < n_out; r++)
        x->map[first_out + r] = ir_out(x->to, copy, r);
}

static void take_piece(Split *x, uint32_t chunk)
{
    uint32_t piece = chunk * x->s->n_stages + x->stage;
    receive(x, piece);
    for (uint32_t i = 0; i < x->from->order.n; i++) {
        IrOp op = x->from->order.at[i];
        const StageOp *at = stage_op(x->s, op);
        bool here = at->role == STAGE_FIXED ? at->piece == piece : !chunk && is_needed(x, op);
        if (here)
            take_op(x, op);
    }
    send(x, piece);
}

/* A state that nobody reads stays with the first stage. */
static void drop_states(Split *x)
{
    bool *drop = ARENA_ARRAY(x->s->c->scratch, bool, x->m->states.n);
    for (uint32_t i = 1; i < x->m->states.n; i++) {
        const IrUses *uses = &x->s->uses;
        uint64_t v;
        bool read = map_get(&x->from->state_values, i, &v) && uses->first[v + 1] > uses->first[v];
        drop[i] = read ? !map_get(&x->to->state_values, i, NULL) : x->stage > 0;
    }
    ir_states_drop(x->m, drop);
}

IrModule *stages_module(const Stages *s, uint32_t stage)
{
    Split x = {.s = s, .stage = stage, .m = ir_module_copy(s->g->m)};
    IrModule *m = x.m;
    m->stage = stage;
    m->chunks = s->n_chunks;
    m->mesh.pp = s->n_stages;
    x.from = m->graphs.at[s->g->index];
    m->graphs.n = 0;
    x.to = ir_graph_new(m, x.from->name);
    x.b = ir_builder(x.to);
    x.map = ARENA_ARRAY(s->c->scratch, IrValue, x.from->values.n);
    for (uint32_t i = 0; i < s->narrows.n; i++)
        narrow_states(&x, &s->narrows.at[i]);
    for (uint32_t i = 0; i < x.from->params.n; i++) {
        const IrValueRec *rec = ir_value(x.from, x.from->params.at[i]);
        x.map[x.from->params.at[i].i] = ir_graph_param(x.to, rec->name, rec->type, rec->span);
    }
    for (uint32_t c = 0; c < s->n_chunks; c++)
        take_piece(&x, c);
    for (uint32_t i = 0; i < x.from->results.n; i++)
        if (x.map[x.from->results.at[i].i].i)
            vec_push(m->s->arena, &x.to->results, x.map[x.from->results.at[i].i]);
    drop_states(&x);
    return m;
}
