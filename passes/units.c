#include "passes/units.h"

#include "passes/norm.h"

Sym flat_data_axes(const PassContext *c)
{
    return sym(c->s, c->m->mesh.dpr > 1 ? "dp+dpr" : "dp");
}

int64_t flat_data_ranks(const PassContext *c)
{
    return c->m->mesh.dp * c->m->mesh.dpr;
}

void flat_give_comm(IrOpArgs *args, Sym comm, int64_t ranks)
{
    args->attrs[0] = "comm";
    args->values[0].sym = comm;
    args->attrs[1] = "ranks";
    args->values[1].i = ranks;
}

IrType flat_type(IrModule *m, DType dtype, int64_t numel)
{
    IrTypeInfo info = {.dtype = dtype, .rank = 1, .dim = {ir_dim_number(numel)}};
    return ir_type(m, &info);
}

/* -- who belongs together -- */

typedef struct Grouper {
    PassContext *c;
    FlatUnits *out;
    IrOp *update;         /* by state: its update op */
    unsigned char *table; /* by state: a lookup reads it, or other stages do: a unit of its own */
    Map by_key;           /* unit's name -> 1 + its index */
} Grouper;

static void find_tables(Grouper *p)
{
    const IrGraph *fwd = ir_graph_find(p->c->m, "fwd");
    for (uint32_t i = 0; i < fwd->order.n; i++) {
        IrOp op = fwd->order.at[i];
        const IrValueRec *table = ir_value(fwd, ir_in(fwd, op, 0));
        if (ir_op_kind(fwd, op) == IR_OP_cast && table->def == IR_DEF_STATE)
            continue;
        bool looks_up =
            ir_op_kind(fwd, op) == IR_OP_embed || ir_op_kind(fwd, op) == IR_OP_embed_part;
        if (looks_up && table->def == IR_DEF_RESULT)
            table = ir_value(fwd, ir_in(fwd, table->op, 0)); /* through its cast */
        if (looks_up && table->def == IR_DEF_STATE)
            p->table[table->state.i] = 1;
    }
}

/* What several stages of a pipeline hold is laid out alike on all of them. */
static void find_tied(Grouper *p)
{
    for (uint32_t i = 0; i < p->c->m->ties.n; i++)
        p->table[ir_state_find(p->c->m, p->c->m->ties.at[i].name).i] = 1;
}

static void find_updates(Grouper *p)
{
    const IrGraph *update = ir_graph_find(p->c->m, "update");
    for (uint32_t i = 0; update && i < update->order.n; i++) {
        IrOp op = update->order.at[i];
        if (ir_op_kind(update, op) == IR_OP_adamw || ir_op_kind(update, op) == IR_OP_sgd)
            p->update[ir_value(update, ir_in(update, op, 0))->state.i] = op;
    }
}

static Sym unit_name(Grouper *p, IrState state, IrScope *out_scope)
{
    const IrModule *m = p->c->m;
    const IrStateRec *rec = ir_state_rec(m, state);
    IrScope block = ir_scope_block(m, rec->scope);
    const char *name = p->table[state.i] ? rec->name
                       : block.i         ? ir_scope_rec(m, block)->name
                                         : "rest";
    *out_scope = block.i ? block : (IrScope){1};
    return intern_printf(&p->c->s->interner, "%s.%s", p->update[state.i].i ? "flat" : "frozen",
                         name);
}

static void add_member(Grouper *p, IrState state)
{
    const IrStateRec *rec = ir_state_rec(p->c->m, state);
    IrScope scope;
    Sym name = unit_name(p, state, &scope);
    uint64_t at;
    if (!map_get(&p->by_key, map_key(name), &at)) {
        FlatUnit unit = {.name = name, .scope = scope, .span = rec->span};
        unit.trained = p->update[state.i].i;
        at = p->out->units.n;
        vec_push(p->c->scratch, &p->out->units, unit);
        map_put(&p->by_key, map_key(name), at);
    }
    FlatMember member = {.param = state, .update = p->update[state.i]};
    member.numel = ir_type_numel(p->c->m, rec->type);
    vec_push(p->c->scratch, &p->out->units.at[at].members, member);
    p->out->unit_of[state.i] = (uint32_t)at + 1;
}

/* -- layout -- */

static double decay_of(const IrGraph *update, IrOp op)
{
    return op.i ? ir_attr_f64(update, op, "decay") : 0;
}

/* By decay, then by how tp divides them: what the optimizer and the norm take as one run. */
static bool goes_before(const IrModule *m, const FlatMember *a, const FlatMember *b)
{
    const IrGraph *update = ir_graph_find(m, "update");
    double da = decay_of(update, a->update), db = decay_of(update, b->update);
    if (da != db)
        return da > db;
    return norm_parts(m, ir_state_rec(m, a->param)->type) >
           norm_parts(m, ir_state_rec(m, b->param)->type);
}

/* Insertion sort: stable, and units are small. */
static void sort_members(const IrModule *m, FlatUnit *u)
{
    for (uint32_t i = 1; i < u->members.n; i++) {
        FlatMember x = u->members.at[i];
        uint32_t k = i;
        for (; k && goes_before(m, &x, &u->members.at[k - 1]); k--)
            u->members.at[k] = u->members.at[k - 1];
        u->members.at[k] = x;
    }
}

static void lay_out(Grouper *p, uint32_t index, int64_t ranks)
{
    enum { ALIGN = 32 }; /* elements; runtime/abi/plan.h: PLAN_FLAT_ALIGN */
    FlatUnit *u = &p->out->units.at[index];
    IrModule *m = p->c->m;
    int64_t end = 0;
    if (u->trained)
        sort_members(m, u);
    u->first_piece = m->pieces.n;
    for (uint32_t i = 0; i < u->members.n; i++) {
        FlatMember *member = &u->members.at[i];
        const IrStateRec *rec = ir_state_rec(m, member->param);
        member->begin = (end + ALIGN - 1) / ALIGN * ALIGN;
        end = member->begin + member->numel;
        p->out->member_of[member->param.i] = i;
        IrPiece piece = {.name = rec->name, .type = rec->type, .begin = member->begin};
        piece.init = rec->init;
        piece.init_value = rec->init_value;
        piece.span = rec->span;
        piece.narrow = rec->narrow;
        vec_push(p->c->s->arena, &m->pieces, piece);
    }
    int64_t unit = ALIGN * ranks;
    u->numel = (end + unit - 1) / unit * unit;
}

FlatUnits flat_units(PassContext *c, int64_t ranks)
{
    uint32_t n = c->m->states.n;
    FlatUnits units = {.n_states = n};
    Grouper p = {.c = c, .out = &units};
    units.unit_of = ARENA_ARRAY(c->scratch, uint32_t, n);
    units.member_of = ARENA_ARRAY(c->scratch, uint32_t, n);
    p.update = ARENA_ARRAY(c->scratch, IrOp, n);
    p.table = ARENA_ARRAY(c->scratch, unsigned char, n);
    map_init(&p.by_key, c->scratch);
    find_tables(&p);
    find_tied(&p);
    find_updates(&p);
    for (uint32_t i = 1; i < n; i++)
        if (c->m->states.at[i].kind == IR_STATE_PARAM)
            add_member(&p, (IrState){i});
    for (uint32_t i = 0; i < units.units.n; i++)
        lay_out(&p, i, ranks);
    return units;
}
