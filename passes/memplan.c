/* memplan: gives everything its place in the arena. From the bottom: states, inputs, then the
 * transient space that @step and @eval share, since they never run at once. Offsets follow the
 * final order and nothing else. */
#include "passes/memplan.h"

#include "passes/fuse_space.h"
#include "passes/memplan_views.h"
#include "passes/pass.h"

typedef struct InputPiece {
    uint64_t offset, stride; /* of micro-batch 0; from one to the next */
} InputPiece;

typedef struct Planner {
    PassContext *c;
    uint64_t top; /* end of what is placed for good */
    Map inputs;   /* name without its micro-batch -> index into `pieces` */
    VEC(InputPiece) pieces;
} Planner;

/* -- what outlives a step -- */

static void place_states(Planner *p)
{
    IrModule *m = p->c->m;
    for (uint32_t i = 1; i < m->states.n; i++) {
        IrStateRec *rec = &m->states.at[i];
        p->top = pass_align(p->top, PASS_ALIGN_PERSISTENT);
        rec->offset = (int64_t)p->top;
        p->top += (uint64_t)ir_type_bytes(m, rec->type);
    }
}

/* `m3/targets` is micro-batch 3's piece of `targets`. */
static Sym split_input(const IrModule *m, Sym name, uint32_t *out_instance)
{
    unsigned instance = 0;
    int length = 0;
    *out_instance = 0;
    if (m->micro_batches > 1 && sscanf(name, "m%u/%n", &instance, &length) == 1 && length) {
        *out_instance = instance;
        return sym(m->s, name + length);
    }
    return name;
}

/* One range per input, its micro-batches one behind the other; @eval reads the first. */
static void place_inputs(Planner *p, IrGraph *g)
{
    IrModule *m = p->c->m;
    for (uint32_t i = 0; i < g->params.n; i++) {
        IrValueRec *rec = ir_value(g, g->params.at[i]);
        uint32_t instance;
        Sym name = split_input(m, rec->name, &instance);
        uint64_t at;
        if (!map_get(&p->inputs, map_key(name), &at)) {
            uint64_t stride =
                pass_align((uint64_t)ir_type_bytes(m, rec->type), PASS_ALIGN_TRANSIENT);
            uint64_t offset = pass_align(p->top, PASS_ALIGN_PERSISTENT);
            at = p->pieces.n;
            vec_push(p->c->scratch, &p->pieces, ((InputPiece){offset, stride}));
            map_put(&p->inputs, map_key(name), at);
            p->top = offset + stride * (uint64_t)(m->micro_batches > 1 ? m->micro_batches : 1);
        }
        rec->place.offset = (int64_t)(p->pieces.at[at].offset + p->pieces.at[at].stride * instance);
    }
}

/* -- workspaces and views -- */

static void set_workspace(IrGraph *g, IrOp op, uint64_t bytes)
{
    g->workspaces.at[op.i] = (IrPlace){.offset = -1, .run = (int64_t)bytes};
}

static void size_workspaces(IrGraph *g, PassTarget target, Arena *scratch)
{
    IrUses uses = ir_uses(g, scratch);
    g->workspaces.n = 0;
    vec_reserve(g->m->s->arena, &g->workspaces, g->ops.n);
    g->workspaces.n = g->ops.n;
    for (uint32_t i = 0; i < g->ops.n; i++)
        set_workspace(g, (IrOp){i}, 0);
    for (uint32_t i = 0, n; i < g->order.n; i += n) {
        IrOp op = g->order.at[i];
        IrRegion region = ir_op(g, op)->region;
        n = 1;
        if (!ir_in_kernel(g, op)) {
            set_workspace(g, op, pass_op_workspace(target, g, &uses, op));
            continue;
        }
        while (i + n < g->order.n && ir_op(g, g->order.at[i + n])->region.i == region.i)
            n++;
        uint64_t bytes = pass_region_workspace(target, g, &g->order.at[i], n);
        g->regions.at[region.i].workspace = bytes;
        set_workspace(g, op, bytes);
    }
}

static void set_views(IrGraph *g, Arena *scratch)
{
    PassViews views = pass_views_planned(g, scratch);
    for (uint32_t i = 1; i < g->values.n; i++) {
        IrValueRec *rec = &g->values.at[i];
        rec->place = views[i];
        rec->place.offset = rec->def == IR_DEF_STATE ? ir_state_rec(g->m, rec->state)->offset : -1;
    }
}

/* -- the transient space -- */

/* out_bound: the largest so far of all graphs; below that no packing matters. */
static uint64_t pack_graph(Planner *p, IrGraph *g, uint64_t base, uint64_t *out_bound)
{
    Arena *scratch = p->c->scratch;
    PassLifetimes l = pass_lifetimes(g, scratch);
    uint32_t peak;
    uint64_t bound = pass_lifetimes_peak(&l, PASS_ALIGN_TRANSIENT, scratch, &peak);
    uint64_t *offsets = ARENA_ARRAY(scratch, uint64_t, l.buffers.n + 1);
    if (bound > *out_bound)
        *out_bound = bound;
    uint64_t height = memplan_pack_buffers(&l, *out_bound, scratch, offsets);
    for (uint32_t i = 0; i < l.buffers.n; i++) {
        const PassBuffer *b = &l.buffers.at[i];
        IrPlace *place = b->value.i ? &ir_value(g, b->value)->place : &g->workspaces.at[b->op.i];
        place->offset = (int64_t)(base + offsets[i]);
    }
    pass_stat(p->c, "buffers", l.buffers.n);
    return height;
}

Status pass_memplan(PassContext *c)
{
    IrModule *m = c->m;
    Planner p = {.c = c};
    map_init(&p.inputs, c->scratch);
    place_states(&p);
    for (uint32_t i = 0; i < m->graphs.n; i++) {
        set_views(m->graphs.at[i], c->scratch);
        place_inputs(&p, m->graphs.at[i]);
        size_workspaces(m->graphs.at[i], c->options->target, c->scratch);
    }
    uint64_t base = pass_align(p.top, PASS_ALIGN_PERSISTENT), height = 0, bound = 0;
    for (uint32_t i = 0; i < m->graphs.n; i++) {
        uint64_t h = pack_graph(&p, m->graphs.at[i], base, &bound);
        height = h > height ? h : height;
    }
    m->arena_bytes = pass_align(base + height, PASS_ALIGN_PERSISTENT) +
                     pass_library_workspace(c->options->target);
    pass_stat(c, "persistent bytes", (int64_t)base);
    pass_stat(c, "transient bytes", (int64_t)height);
    pass_stat(c, "transient bytes, lower bound", (int64_t)bound);
    return STATUS_OK;
}
