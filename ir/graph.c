#include "ir/ir.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

IrGraph *ir_graph_new(IrModule *m, Sym name)
{
    Arena *arena = m->s->arena;
    IrGraph *g = ARENA_NEW(arena, IrGraph);
    g->m = m;
    g->name = name;
    g->index = m->graphs.n;
    g->epoch = 1;
    vec_push(arena, &g->ops, (IrOpRec){0});
    vec_push(arena, &g->values, (IrValueRec){0});
    vec_push(arena, &g->regions, (IrRegionRec){0});
    map_init(&g->names, arena);
    map_init(&g->state_values, arena);
    vec_push(arena, &m->graphs, g);
    return g;
}

IrGraph *ir_graph_find(const IrModule *m, const char *name)
{
    for (uint32_t i = 0; i < m->graphs.n; i++)
        if (!strcmp(m->graphs.at[i]->name, name))
            return m->graphs.at[i];
    return NULL;
}

static void claim_name(IrGraph *g, Sym name, uint32_t value)
{
    if (ir_value_find(g, name).i) {
        fprintf(stderr, "internal error: value `%%%s` of @%s is defined twice\n", name, g->name);
        abort();
    }
    map_put(&g->names, map_key(name), value);
}

static IrValue value_add(IrGraph *g, IrValueRec rec)
{
    rec.place = (IrPlace){.offset = -1};
    vec_push(g->m->s->arena, &g->values, rec);
    g->epoch++;
    return (IrValue){g->values.n - 1};
}

IrValue ir_graph_param(IrGraph *g, Sym name, IrType type, Span span)
{
    claim_name(g, name, g->values.n);
    IrValue v =
        value_add(g, (IrValueRec){.name = name, .type = type, .def = IR_DEF_PARAM, .span = span});
    vec_push(g->m->s->arena, &g->params, v);
    return v;
}

/* States have names of their own (`$norm` beside `%norm`), so they are not in `names`. */
IrValue ir_graph_state(IrGraph *g, IrState state)
{
    uint64_t at;
    assert(state.i && state.i < g->m->states.n);
    if (map_get(&g->state_values, state.i, &at))
        return (IrValue){(uint32_t)at};
    const IrStateRec *rec = ir_state_rec(g->m, state);
    map_put(&g->state_values, state.i, g->values.n);
    IrValue v = value_add(g, (IrValueRec){.name = rec->name,
                                          .type = rec->type,
                                          .def = IR_DEF_STATE,
                                          .state = state,
                                          .span = rec->span});
    ir_value(g, v)->place.offset = rec->offset;
    return v;
}

IrValue ir_value_find(const IrGraph *g, Sym name)
{
    uint64_t at = 0;
    map_get(&g->names, map_key(name), &at);
    return (IrValue){(uint32_t)at};
}

/* Interned names are 16-byte aligned, so `key + 1` is free to hold the next suffix to try: a
 * thousand wishes for one name take a thousand steps, not a million. */
Sym ir_value_fresh_name(IrGraph *g, Sym wish)
{
    if (!ir_value_find(g, wish).i)
        return wish;
    uint64_t next = 1;
    map_get(&g->names, map_key(wish) + 1, &next);
    for (;; next++) {
        Sym name = intern_printf(&g->m->s->interner, "%s.%u", wish, (unsigned)next);
        if (!ir_value_find(g, name).i) {
            map_put(&g->names, map_key(wish) + 1, next + 1);
            return name;
        }
    }
}

void ir_value_rename(IrGraph *g, IrValue v, Sym name)
{
    IrValueRec *rec = ir_value(g, v);
    assert(v.i && rec->def != IR_DEF_STATE);
    if (rec->name == name)
        return;
    claim_name(g, name, v.i);
    if (ir_value_find(g, rec->name).i == v.i)
        map_put(&g->names, map_key(rec->name), 0);
    rec->name = name;
    g->epoch++;
}

void ir_set_in(IrGraph *g, IrOp op, uint32_t i, IrValue v)
{
    assert(i < ir_op(g, op)->n_in);
    g->operands.at[ir_op(g, op)->first_in + i] = v;
    g->epoch++;
}

void ir_op_remove(IrGraph *g, IrOp op)
{
    IrOpRec *rec = ir_op(g, op);
    rec->dead = true;
    for (uint32_t i = 0; i < rec->n_out; i++) {
        Sym name = ir_value(g, ir_out(g, op, i))->name;
        if (ir_value_find(g, name).i == rec->first_out + i)
            map_put(&g->names, map_key(name), 0);
    }
    g->epoch++;
}

void ir_graph_compact(IrGraph *g)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->order.n; i++)
        if (!ir_op(g, g->order.at[i])->dead)
            g->order.at[n++] = g->order.at[i];
    g->order.n = n;
    g->epoch++;
}

void ir_replace_uses(IrGraph *g, IrValue old, IrValue with)
{
    for (uint32_t i = 0; i < g->operands.n; i++)
        if (g->operands.at[i].i == old.i)
            g->operands.at[i] = with;
    for (uint32_t i = 0; i < g->results.n; i++)
        if (g->results.at[i].i == old.i)
            g->results.at[i] = with;
    for (uint32_t r = 1; r < g->regions.n; r++)
        for (uint32_t i = 0; i < g->regions.at[r].saves.n; i++)
            if (g->regions.at[r].saves.at[i].i == old.i)
                g->regions.at[r].saves.at[i] = with;
    g->epoch++;
}

/* -- attributes -- */

IrAttr *ir_attr_at(const IrGraph *g, IrOp op, const char *name)
{
    const IrOpRec *rec = ir_op(g, op);
    const IrOpInfo *info = ir_op_info((IrOpKind)rec->kind);
    for (uint32_t i = 0; i < info->n_attr; i++)
        if (!strcmp(info->attr[i].name, name))
            return &g->attrs.at[rec->first_attr + i];
    fprintf(stderr, "internal error: op `%s` has no attribute `%s`\n", info->name, name);
    abort();
}

int64_t ir_attr_i64(const IrGraph *g, IrOp op, const char *name)
{
    return ir_attr_at(g, op, name)->i;
}

double ir_attr_f64(const IrGraph *g, IrOp op, const char *name)
{
    return ir_attr_at(g, op, name)->f;
}

bool ir_attr_bool(const IrGraph *g, IrOp op, const char *name)
{
    return ir_attr_at(g, op, name)->b;
}

Sym ir_attr_sym(const IrGraph *g, IrOp op, const char *name)
{
    return ir_attr_at(g, op, name)->sym;
}
