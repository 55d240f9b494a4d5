#include "ir/ir.h"

#include <stdio.h>
#include <stdlib.h>

const char *const ir_mesh_size_names[IR_MESH_SIZES] = {"tp", "dp", "dpr", "pp"};

IrModule *ir_module_new(Session *s)
{
    IrModule *m = ARENA_NEW(s->arena, IrModule);
    m->s = s;
    map_init(&m->type_index, s->arena);
    map_init(&m->scope_index, s->arena);
    map_init(&m->state_index, s->arena);
    vec_push(s->arena, &m->types, (IrTypeInfo){0});
    vec_push(s->arena, &m->scopes, (IrScopeRec){0});
    vec_push(s->arena, &m->states, (IrStateRec){0});
    m->model = sym(s, "");
    m->mesh = (IrMeshSizes){1, 1, 1, 1};
    /* scope 1, the model itself; its name is empty until the model definition names it */
    vec_push(s->arena, &m->scopes, ((IrScopeRec){.name = m->model, .kind = IR_SCOPE_MODEL}));
    map_put(&m->scope_index, map_key(m->model), 1);
    return m;
}

void ir_axis_set(IrModule *m, Sym name, int64_t size)
{
    for (uint32_t i = 0; i < m->axes.n; i++) {
        if (m->axes.at[i].name == name) {
            m->axes.at[i].size = size;
            return;
        }
    }
    vec_push(m->s->arena, &m->axes, ((IrAxis){name, size}));
}

const IrAxis *ir_axis_find(const IrModule *m, Sym name)
{
    for (uint32_t i = 0; i < m->axes.n; i++)
        if (m->axes.at[i].name == name)
            return &m->axes.at[i];
    return NULL;
}

/* -- scopes -- */

IrScope ir_scope(IrModule *m, IrScopeRec rec)
{
    uint64_t at;
    if (rec.kind == IR_SCOPE_MODEL) {
        IrScopeRec *root = &m->scopes.at[1];
        if (rec.name && rec.name != root->name) {
            map_put(&m->scope_index, map_key(root->name), 0);
            map_put(&m->scope_index, map_key(rec.name), 1);
            root->name = rec.name;
        }
        if (rec.def)
            root->def = rec.def;
        if (rec.span.file)
            root->span = rec.span;
        return (IrScope){1};
    }
    if (map_get(&m->scope_index, map_key(rec.name), &at) && at)
        return (IrScope){(uint32_t)at};
    if (!rec.parent.i)
        rec.parent.i = 1;
    map_put(&m->scope_index, map_key(rec.name), m->scopes.n);
    vec_push(m->s->arena, &m->scopes, rec);
    return (IrScope){m->scopes.n - 1};
}

IrScope ir_scope_find(const IrModule *m, Sym name)
{
    uint64_t at = 0;
    map_get(&m->scope_index, map_key(name), &at);
    return (IrScope){(uint32_t)at};
}

const IrScopeRec *ir_scope_rec(const IrModule *m, IrScope scope)
{
    return &m->scopes.at[scope.i];
}

IrScope ir_scope_block(const IrModule *m, IrScope scope)
{
    while (scope.i && m->scopes.at[scope.i].kind != IR_SCOPE_BLOCK)
        scope = m->scopes.at[scope.i].parent;
    return scope;
}

Sym ir_scope_role(IrModule *m, IrScope scope)
{
    for (; scope.i; scope = m->scopes.at[scope.i].parent) {
        const IrScopeRec *rec = &m->scopes.at[scope.i];
        if (rec->kind == IR_SCOPE_PART)
            return rec->role;
        if (rec->kind == IR_SCOPE_BLOCK)
            break; /* a block inside a part starts afresh */
    }
    return sym(m->s, "other");
}

/* -- states -- */

IrState ir_state_add(IrModule *m, IrStateRec rec)
{
    if (ir_state_find(m, rec.name).i) {
        fprintf(stderr, "internal error: state `$%s` is added twice\n", rec.name);
        abort();
    }
    rec.offset = -1;
    map_put(&m->state_index, map_key(rec.name), m->states.n);
    vec_push(m->s->arena, &m->states, rec);
    return (IrState){m->states.n - 1};
}

IrState ir_state_find(const IrModule *m, Sym name)
{
    uint64_t at = 0;
    map_get(&m->state_index, map_key(name), &at);
    return (IrState){(uint32_t)at};
}

IrStateRec *ir_state_rec(const IrModule *m, IrState state)
{
    return &m->states.at[state.i];
}

/* Values of dropped states stay as records that nothing reads. */
static void move_state_values(IrGraph *g, const uint32_t *new_index)
{
    map_init(&g->state_values, g->m->s->arena);
    for (uint32_t i = 1; i < g->values.n; i++) {
        IrValueRec *rec = &g->values.at[i];
        if (rec->def != IR_DEF_STATE)
            continue;
        rec->state.i = new_index[rec->state.i];
        if (rec->state.i)
            map_put(&g->state_values, rec->state.i, i);
        else
            rec->def = IR_DEF_NONE;
    }
    g->epoch++;
}

void ir_states_drop(IrModule *m, const bool *drop)
{
    uint32_t *new_index = ARENA_ARRAY(m->s->arena, uint32_t, m->states.n), n = 1;
    map_init(&m->state_index, m->s->arena);
    for (uint32_t i = 1; i < m->states.n; i++) {
        if (drop[i])
            continue;
        new_index[i] = n;
        map_put(&m->state_index, map_key(m->states.at[i].name), n);
        m->states.at[n++] = m->states.at[i];
    }
    m->states.n = n;
    for (uint32_t i = 1; i < n; i++)
        m->states.at[i].of.i = new_index[m->states.at[i].of.i];
    for (uint32_t i = 0; i < m->graphs.n; i++)
        move_state_values(m->graphs.at[i], new_index);
}

/* -- copies -- */

#define COPY(arena, to, from)                                                                      \
    do {                                                                                           \
        (to)->at = NULL;                                                                           \
        (to)->n = (to)->cap = 0;                                                                   \
        vec_reserve((arena), (to), (from)->n);                                                     \
        if ((from)->n)                                                                             \
            memcpy((to)->at, (from)->at, (from)->n * sizeof *(from)->at);                          \
        (to)->n = (from)->n;                                                                       \
    } while (0)

static Map map_copy(const Map *from, Arena *arena)
{
    Map map = *from;
    map.arena = arena;
    map.keys = ARENA_ARRAY(arena, uint64_t, from->cap);
    map.values = ARENA_ARRAY(arena, uint64_t, from->cap);
    map.used = ARENA_ARRAY(arena, unsigned char, from->cap);
    if (from->cap) {
        memcpy(map.keys, from->keys, from->cap * sizeof *map.keys);
        memcpy(map.values, from->values, from->cap * sizeof *map.values);
        memcpy(map.used, from->used, from->cap * sizeof *map.used);
    }
    return map;
}

static IrGraph *graph_copy(IrModule *m, const IrGraph *from)
{
    Arena *arena = m->s->arena;
    IrGraph *g = ARENA_NEW(arena, IrGraph);
    *g = *from;
    g->m = m;
    COPY(arena, &g->ops, &from->ops);
    COPY(arena, &g->values, &from->values);
    COPY(arena, &g->regions, &from->regions);
    COPY(arena, &g->operands, &from->operands);
    COPY(arena, &g->attrs, &from->attrs);
    COPY(arena, &g->order, &from->order);
    COPY(arena, &g->params, &from->params);
    COPY(arena, &g->results, &from->results);
    COPY(arena, &g->workspaces, &from->workspaces);
    for (uint32_t i = 0; i < g->regions.n; i++)
        COPY(arena, &g->regions.at[i].saves, &from->regions.at[i].saves);
    g->names = map_copy(&from->names, arena);
    g->state_values = map_copy(&from->state_values, arena);
    return g;
}

IrModule *ir_module_copy(const IrModule *from)
{
    Arena *arena = from->s->arena;
    IrModule *m = ARENA_NEW(arena, IrModule);
    *m = *from;
    COPY(arena, &m->axes, &from->axes);
    COPY(arena, &m->types, &from->types);
    COPY(arena, &m->scopes, &from->scopes);
    COPY(arena, &m->states, &from->states);
    COPY(arena, &m->pieces, &from->pieces);
    COPY(arena, &m->graphs, &from->graphs);
    COPY(arena, &m->ties, &from->ties);
    m->type_index = map_copy(&from->type_index, arena);
    m->scope_index = map_copy(&from->scope_index, arena);
    m->state_index = map_copy(&from->state_index, arena);
    for (uint32_t i = 0; i < m->graphs.n; i++)
        m->graphs.at[i] = graph_copy(m, from->graphs.at[i]);
    return m;
}
