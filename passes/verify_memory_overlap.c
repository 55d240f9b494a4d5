#include "passes/verify_memory.h"

#include <stdlib.h>

#include "base/diag.h"
#include "runtime/abi/workspace_cuda.h"
#include "passes/memplan.h"

typedef struct Extent { /* bytes of the arena over a span of moments */
    uint64_t begin, end;
    uint32_t from, to; /* moments, both included */
    IrValue value;     /* {0}: workspace of `op` */
    IrOp op;
    uint32_t next; /* the next extent that ends at the same moment */
} Extent;

typedef struct Sweep {
    MemoryVerifier *v;
    VEC(Extent) extents;
    uint32_t *extent_of; /* by value: its extent + 1 */
    uint32_t *active;    /* extents that are alive, by begin */
    uint32_t n_active;
    uint32_t *ending; /* by moment: first extent that ends there + 1 */
    uint32_t reported;
} Sweep;

static IrValue storage(const IrGraph *g, IrValue value)
{
    IrValue base = ir_value(g, value)->place.base;
    return base.i ? base : value;
}

static void add_extent(Sweep *s, Extent e)
{
    vec_push(s->v->c->scratch, &s->extents, e);
}

/* A value that has memory of its own, from its writer on. */
static void add_value(Sweep *s, IrValue value, uint32_t from, uint32_t to)
{
    const IrGraph *g = s->v->g;
    const IrValueRec *rec = ir_value(g, value);
    if (rec->place.offset < 0)
        return;
    uint64_t begin = (uint64_t)rec->place.offset, bytes = (uint64_t)ir_type_bytes(g->m, rec->type);
    s->extent_of[value.i] = s->extents.n + 1;
    add_extent(s, (Extent){begin, begin + bytes, from, to, value, rec->op, 0});
}

static void add_persistent(Sweep *s)
{
    const IrGraph *g = s->v->g;
    uint32_t end = s->v->n_moments;
    for (uint32_t i = 1; i < g->m->states.n; i++) {
        const IrStateRec *rec = &g->m->states.at[i];
        uint64_t begin = (uint64_t)rec->offset;
        if (rec->offset >= 0)
            add_extent(s, (Extent){.begin = begin,
                                   .end = begin + (uint64_t)ir_type_bytes(g->m, rec->type),
                                   .to = end,
                                   .next = i /* which state, until the sweep links extents */});
    }
    for (uint32_t i = 0; i < g->params.n; i++)
        add_value(s, g->params.at[i], 0, end);
}

static void read_value(Sweep *s, IrValue value, uint32_t at)
{
    uint32_t extent = value.i ? s->extent_of[storage(s->v->g, value).i] : 0;
    if (extent && s->extents.at[extent - 1].to < at)
        s->extents.at[extent - 1].to = at;
}

/* Memory is needed from the first on that writes there. */
static void write_value(Sweep *s, IrValue value, uint32_t at)
{
    if (!s->extent_of[value.i])
        add_value(s, value, at, at);
    read_value(s, value, at);
}

static void add_transient(Sweep *s)
{
    const IrGraph *g = s->v->g;
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        uint32_t at = s->v->when[op.i];
        for (uint32_t k = 0; verify_memory_runs(g, op) && k < ir_op(g, op)->n_in; k++)
            read_value(s, ir_in(g, op, k), at);
        for (uint32_t r = 0; r < ir_op(g, op)->n_out; r++)
            if (!ir_value(g, ir_out(g, op, r))->place.base.i || verify_memory_runs(g, op))
                write_value(s, storage(g, ir_out(g, op, r)), at);
        if (op.i >= g->workspaces.n || g->workspaces.at[op.i].offset < 0)
            continue;
        uint64_t begin = (uint64_t)g->workspaces.at[op.i].offset;
        uint64_t bytes = (uint64_t)g->workspaces.at[op.i].run;
        add_extent(s, (Extent){begin, begin + bytes, at, at, {0}, op, 0});
    }
    for (uint32_t i = 0; i < g->results.n; i++)
        read_value(s, g->results.at[i], s->v->n_moments);
}

/* -- messages -- */

static const char *extent_name(const Sweep *s, const Extent *e)
{
    const IrGraph *g = s->v->g;
    Arena *scratch = s->v->c->scratch;
    if (e->value.i)
        return verify_memory_name(s->v, e->value);
    if (e->op.i)
        return arena_printf(scratch, "workspace of %s", verify_memory_op_name(s->v, e->op));
    return arena_printf(scratch, "$%s", g->m->states.at[e->next].name);
}

static Span extent_span(const Sweep *s, const Extent *e)
{
    const IrGraph *g = s->v->g;
    if (e->value.i)
        return ir_value(g, e->value)->span;
    return e->op.i ? ir_op(g, e->op)->span : g->m->states.at[e->next].span;
}

static bool is_state(const Extent *e)
{
    return !e->value.i && !e->op.i;
}

static void report(Sweep *s, const Extent *a, const Extent *b)
{
    enum { SCREENFUL = 20 };
    s->v->status = STATUS_BUG;
    if (s->reported++ >= SCREENFUL)
        return;
    IrOp op = s->v->first_at[a->from < s->v->n_moments ? a->from : 0];
    diag(s->v->c->s, extent_span(s, a), memory_overlap, extent_name(s, a),
         (unsigned long long)a->begin, (unsigned long long)a->end, extent_name(s, b),
         (unsigned long long)b->begin, (unsigned long long)b->end, verify_memory_op_name(s->v, op));
    diag(s->v->c->s, extent_span(s, b), memory_made_here, extent_name(s, b));
}

/* -- bounds -- */

static void check_bounds(Sweep *s, const Extent *e)
{
    enum { ALIGN = 64 };
    const IrModule *m = s->v->g->m;
    unsigned long long begin = e->begin, end = e->end;
    unsigned long long arena = m->arena_bytes - pass_library_workspace(s->v->c->options->target);
    if (e->end < e->begin || e->end > arena)
        diag(s->v->c->s, extent_span(s, e), memory_outside, extent_name(s, e), begin, end, arena);
    else if (e->begin % ALIGN)
        diag(s->v->c->s, extent_span(s, e), memory_unaligned, extent_name(s, e), begin, ALIGN);
    else
        return;
    s->v->status = STATUS_BUG;
}

/* -- the sweep over moments -- */

static uint32_t find_active(const Sweep *s, const Extent *e)
{
    uint32_t low = 0, high = s->n_active;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (s->extents.at[s->active[middle]].begin < e->begin)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Its neighbours in the arena are the only ones that it can overlap, as long as those alive do not
 * overlap themselves. */
static void enter(Sweep *s, uint32_t index)
{
    const Extent *e = &s->extents.at[index];
    uint32_t at = find_active(s, e);
    if (at > 0 && s->extents.at[s->active[at - 1]].end > e->begin)
        report(s, e, &s->extents.at[s->active[at - 1]]);
    if (at < s->n_active && s->extents.at[s->active[at]].begin < e->end)
        report(s, e, &s->extents.at[s->active[at]]);
    memmove(&s->active[at + 1], &s->active[at], (s->n_active - at) * sizeof *s->active);
    s->active[at] = index;
    s->n_active++;
}

static void leave(Sweep *s, uint32_t index)
{
    uint32_t at = find_active(s, &s->extents.at[index]);
    while (at < s->n_active && s->active[at] != index)
        at++;
    if (at == s->n_active)
        return;
    s->n_active--;
    memmove(&s->active[at], &s->active[at + 1], (s->n_active - at) * sizeof *s->active);
}

static int by_start(const void *a, const void *b)
{
    const Extent *x = a, *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static void sweep(Sweep *s)
{
    uint32_t moment = 0;
    for (uint32_t i = 0; i < s->extents.n; i++) {
        Extent *e = &s->extents.at[i];
        check_bounds(s, e);
        for (; moment < e->from; moment++)
            for (uint32_t k = s->ending[moment]; k; k = s->extents.at[k - 1].next)
                leave(s, k - 1);
        enter(s, i);
        if (is_state(e))
            continue; /* never ends */
        e->next = s->ending[e->to];
        s->ending[e->to] = i + 1;
    }
}

void verify_memory_overlap(MemoryVerifier *v)
{
    Arena *scratch = v->c->scratch;
    Sweep s = {.v = v};
    s.extent_of = ARENA_ARRAY(scratch, uint32_t, v->g->values.n + 1);
    s.ending = ARENA_ARRAY(scratch, uint32_t, v->n_moments + 1);
    add_persistent(&s);
    add_transient(&s);
    s.active = ARENA_ARRAY(scratch, uint32_t, s.extents.n + 1);
    qsort(s.extents.at, s.extents.n, sizeof *s.extents.at, by_start);
    sweep(&s);
}
