/* schedule: unrolls the instances of a step into one graph, @step: the counts of all micro-batches,
 * then forward and backward of each in turn, then the update. Values cross graphs by equal names;
 * with more than one micro-batch every value of instance m is named `m<m>/NAME`. @eval stays what
 * it is, one forward pass. */
#include <fnmatch.h>

#include "base/diag.h"
#include "passes/fuse.h"
#include "passes/pipe.h"

typedef struct Unroller {
    PassContext *c;
    IrGraph *step;
    IrBuilder b;
    Map by_name; /* name in @step -> value that later graphs read */
    bool *kept;  /* by index into options->keep: has it matched? */
} Unroller;

typedef struct Instance { /* one graph, once */
    Unroller *u;
    const IrGraph *from;
    const char *prefix;
    uint32_t number;
    IrValue *map; /* by value of `from` */
    IrRegion *regions;
} Instance;

static Sym prefixed(const Instance *in, Sym name)
{
    return *in->prefix ? intern_printf(&in->u->c->s->interner, "%s%s", in->prefix, name) : name;
}

/* A param is what an earlier graph of the instance made under that name, or else an input of the
 * step. */
static IrValue link_param(Instance *in, const IrValueRec *rec)
{
    Unroller *u = in->u;
    Sym name = prefixed(in, rec->name);
    uint64_t known;
    if (map_get(&u->by_name, map_key(name), &known))
        return (IrValue){(uint32_t)known};
    IrValue v = ir_graph_param(u->step, name, rec->type, rec->span);
    map_put(&u->by_name, map_key(name), v.i);
    return v;
}

static IrValue map_value(void *context, IrValue old)
{
    Instance *in = context;
    IrValue *at = &in->map[old.i];
    if (at->i)
        return *at;
    const IrValueRec *rec = ir_value(in->from, old);
    *at = rec->def == IR_DEF_STATE ? ir_graph_state(in->u->step, rec->state) : link_param(in, rec);
    return *at;
}

static IrRegion map_region(Instance *in, IrRegion old)
{
    if (!old.i || in->regions[old.i].i)
        return in->regions[old.i];
    IrGraph *step = in->u->step;
    const IrRegionRec *from = &in->from->regions.at[old.i];
    IrRegionRec rec = {.kind = from->kind, .scope = from->scope, .policy = from->policy};
    vec_push(step->m->s->arena, &step->regions, rec);
    return in->regions[old.i] = (IrRegion){step->regions.n - 1};
}

/* Sums over micro-batches start afresh in the first. */
static void mark_first(IrGraph *g, IrOp op)
{
    IrOpKind kind = ir_op_kind(g, op);
    if (kind == IR_OP_accumulate || kind == IR_OP_count_targets)
        ir_attr_at(g, op, "first")->b = true;
}

static void clone_op(Instance *in, IrOp op)
{
    Unroller *u = in->u;
    const IrOpRec *old = ir_op(in->from, op);
    u->b.region = map_region(in, old->region);
    u->b.re = old->re ? prefixed(in, old->re) : NULL;
    IrOp copy = ir_clone(&u->b, in->from, op, map_value, in, in->prefix, "");
    IrOpRec *rec = ir_op(u->step, copy);
    rec->graph = in->from->name;
    rec->instance = in->number;
    for (uint32_t r = 0; r < rec->n_out; r++)
        in->map[old->first_out + r] = ir_out(u->step, copy, r);
    if (in->number == 0)
        mark_first(u->step, copy);
}

static Instance instance_of(Unroller *u, const IrGraph *from, const char *prefix, uint32_t number)
{
    Instance in = {.u = u, .from = from, .prefix = prefix, .number = number};
    in.map = ARENA_ARRAY(u->c->scratch, IrValue, from->values.n);
    in.regions = ARENA_ARRAY(u->c->scratch, IrRegion, from->regions.n);
    return in;
}

/* What other graphs read of it, once all of it is there. */
static void hand_on(Instance *in)
{
    const IrGraph *from = in->from;
    for (uint32_t i = 0; i < from->results.n; i++) {
        Sym name = prefixed(in, ir_value(from, from->results.at[i])->name);
        map_put(&in->u->by_name, map_key(name), map_value(in, from->results.at[i]).i);
    }
}

static void unroll(Unroller *u, const IrGraph *from, const char *prefix, uint32_t number,
                   Instance *out)
{
    *out = instance_of(u, from, prefix, number);
    for (uint32_t i = 0; i < from->order.n; i++)
        clone_op(out, from->order.at[i]);
    hand_on(out);
}

/* Values of @fwd that --keep names live to the end of the step. */
static void keep_values(Unroller *u, const Instance *fwd)
{
    const PassOptions *o = u->c->options;
    for (uint32_t i = 0; o->keep.n && i < fwd->from->order.n; i++) {
        const IrOpRec *rec = ir_op(fwd->from, fwd->from->order.at[i]);
        for (uint32_t r = 0; r < rec->n_out; r++) {
            uint32_t v = rec->first_out + r;
            bool keep = false;
            for (uint32_t k = 0; k < o->keep.n; k++) {
                bool matches = !fnmatch(o->keep.at[k].glob, fwd->from->values.at[v].name, 0);
                u->kept[k] |= matches;
                keep |= matches;
            }
            if (keep)
                vec_push(u->c->s->arena, &u->step->results, fwd->map[v]);
        }
    }
}

static Status check_kept(const Unroller *u)
{
    const PassOptions *o = u->c->options;
    for (uint32_t k = 0; k < o->keep.n && o->pp < 2; k++) { /* else the pass `stages` has asked */
        if (u->kept[k])
            continue;
        diag(u->c->s, o->keep.at[k].span, keep_matches_nothing, o->keep.at[k].glob);
        return STATUS_USER;
    }
    return STATUS_OK;
}

static const char *prefix_of(PassContext *c, uint32_t instance)
{
    return c->m->micro_batches > 1 ? arena_printf(c->s->arena, "m%u/", instance) : "";
}

/* Room for all instances of two graphs at once. */
static void reserve(IrGraph *step, const IrGraph *a, const IrGraph *b, uint32_t times)
{
    static const IrGraph nothing;
    Arena *arena = step->m->s->arena;
    b = b ? b : &nothing;
    vec_reserve(arena, &step->ops, (a->order.n + b->order.n) * times);
    vec_reserve(arena, &step->order, (a->order.n + b->order.n) * times);
    vec_reserve(arena, &step->values, (a->values.n + b->values.n) * times);
    vec_reserve(arena, &step->operands, (a->operands.n + b->operands.n) * times);
    vec_reserve(arena, &step->attrs, (a->attrs.n + b->attrs.n) * times);
}

/* -- a stage of a pipeline -- */

/* One graph of a stage, taken apart. A chunk of it begins with what it receives and ends with what
 * it sends; @bwd has the chunks in reverse. */
typedef struct Pieces {
    const IrGraph *g;
    uint32_t *chunk; /* by op */
    bool *input;     /* by op: does a message of the backward pass depend on it? */
} Pieces;

static void find_chunks(Pieces *p, uint32_t n_chunks, bool backward)
{
    uint32_t chunk = 0;
    bool sent = false;
    for (uint32_t i = 0; n_chunks > 1 && i < p->g->order.n; i++) {
        IrOp op = p->g->order.at[i];
        IrOpKind kind = ir_op_kind(p->g, op);
        if (kind == IR_OP_recv && sent) {
            chunk++;
            sent = false;
        }
        sent |= kind == IR_OP_send;
        p->chunk[op.i] = backward ? n_chunks - 1 - chunk : chunk;
    }
}

static void mark_operands(Pieces *p, IrOp op)
{
    for (uint32_t k = 0; k < ir_op(p->g, op)->n_in; k++) {
        const IrValueRec *rec = ir_value(p->g, ir_in(p->g, op, k));
        if (rec->def == IR_DEF_RESULT)
            p->input[rec->op.i] = true;
    }
}

/* A kernel goes as a whole. */
static void find_input(Pieces *p)
{
    const IrGraph *g = p->g;
    for (uint32_t end = g->order.n, begin; end > 0; end = begin) {
        IrRegion region = ir_op(g, g->order.at[end - 1])->region;
        bool any = false;
        begin = end - 1;
        while (region.i && begin > 0 && ir_op(g, g->order.at[begin - 1])->region.i == region.i)
            begin--;
        for (uint32_t i = begin; i < end; i++)
            any |= p->input[g->order.at[i].i] || ir_op_kind(g, g->order.at[i]) == IR_OP_send;
        for (uint32_t i = end; any && i-- > begin;) {
            p->input[g->order.at[i].i] = true;
            mark_operands(p, g->order.at[i]);
        }
    }
}

static Pieces pieces_of(Unroller *u, const IrGraph *g, bool backward)
{
    Pieces p = {.g = g};
    p.chunk = ARENA_ARRAY(u->c->scratch, uint32_t, g->ops.n);
    p.input = ARENA_ARRAY(u->c->scratch, bool, g->ops.n);
    find_chunks(&p, u->c->m->chunks, backward);
    if (backward)
        find_input(&p);
    return p;
}

/* All that one chunk sends, or receives, in the order of the tags: both ends' order. */
static void unroll_messages(Instance *in, const Pieces *p, const PipeAction *a)
{
    IrOpKind kind = a->kind == PIPE_SEND ? IR_OP_send : IR_OP_recv;
    for (int64_t tag = -1, next;; tag = next) {
        IrOp found = {0};
        next = INT64_MAX;
        for (uint32_t i = 0; i < p->g->order.n; i++) {
            IrOp op = p->g->order.at[i];
            if (ir_op_kind(p->g, op) != kind || p->chunk[op.i] != a->chunk)
                continue;
            int64_t at = ir_attr_i64(p->g, op, "tag");
            if (at > tag && at < next) {
                next = at;
                found = op;
            }
        }
        if (!found.i)
            return;
        clone_op(in, found);
    }
}

static void unroll_work(Instance *in, const Pieces *p, const PipeAction *a, bool splits)
{
    for (uint32_t i = 0; i < p->g->order.n; i++) {
        IrOp op = p->g->order.at[i];
        IrOpKind kind = ir_op_kind(p->g, op);
        if (kind == IR_OP_send || kind == IR_OP_recv || p->chunk[op.i] != a->chunk)
            continue;
        if (a->kind == PIPE_FWD || !splits || p->input[op.i] == (a->kind == PIPE_BWD))
            clone_op(in, op);
    }
}

/* Is this the last that an instance of the graph has to do? */
static bool is_last(const PipeOrder *order, const PipeAction *a)
{
    if (a->kind == PIPE_FWD)
        return a->chunk + 1 == order->n_chunks;
    return !a->chunk && a->kind == (order->splits ? PIPE_WEIGHT : PIPE_BWD);
}

/* Every stage has the batch, whose shape its tokens have. */
static void take_ids(Instance *fwds, uint32_t n)
{
    const IrGraph *fwd = fwds[0].from;
    IrValue ids = ir_value_find(fwd, sym(fwd->m->s, "input_ids"));
    for (uint32_t i = 0; ids.i && i < n; i++)
        map_value(&fwds[i], ids);
}

static void unroll_stage(Unroller *u, const IrGraph *fwd, const IrGraph *bwd)
{
    PassContext *c = u->c;
    PipeOrder order = pipe_order_of(c->options, c->scratch);
    const PipeActions *actions = &order.stages[c->m->stage];
    Instance *fwds = ARENA_ARRAY(c->scratch, Instance, order.n_micro);
    Instance *bwds = ARENA_ARRAY(c->scratch, Instance, order.n_micro);
    Pieces of_fwd = pieces_of(u, fwd, false), of_bwd = pieces_of(u, bwd, true);
    for (uint32_t i = 0; i < order.n_micro; i++) {
        fwds[i] = instance_of(u, fwd, prefix_of(c, i), i);
        bwds[i] = instance_of(u, bwd, prefix_of(c, i), i);
    }
    take_ids(fwds, order.n_micro);
    for (uint32_t i = 0; i < actions->n; i++) {
        const PipeAction *a = &actions->at[i];
        bool message = a->kind >= PIPE_SEND, forward = message ? !a->backward : a->kind == PIPE_FWD;
        Instance *in = forward ? &fwds[a->micro] : &bwds[a->micro];
        const Pieces *pieces = forward ? &of_fwd : &of_bwd;
        if (message) {
            unroll_messages(in, pieces, a);
            continue;
        }
        unroll_work(in, pieces, a, order.splits);
        if (is_last(&order, a))
            hand_on(in);
        if (is_last(&order, a) && forward)
            keep_values(u, in);
    }
}

/* -- the step -- */

static void unroll_step(Unroller *u)
{
    PassContext *c = u->c;
    const IrGraph *begin = ir_graph_find(c->m, "begin"), *fwd = ir_graph_find(c->m, "fwd");
    const IrGraph *bwd = ir_graph_find(c->m, "bwd"), *update = ir_graph_find(c->m, "update");
    const IrGraph *count = ir_graph_find(c->m, "count");
    uint32_t n = (uint32_t)c->m->micro_batches;
    Instance in;
    reserve(u->step, fwd, bwd, n);
    for (uint32_t i = 0; begin && i < n; i++)
        unroll(u, begin, prefix_of(c, i), i, &in);
    if (count)
        unroll(u, count, "", n - 1, &in);
    bool pipeline = c->m->mesh.pp > 1 && bwd;
    if (pipeline)
        unroll_stage(u, fwd, bwd);
    for (uint32_t i = 0; !pipeline && i < n; i++) {
        unroll(u, fwd, prefix_of(c, i), i, &in);
        keep_values(u, &in);
        if (bwd)
            unroll(u, bwd, prefix_of(c, i), i, &in);
    }
    if (update)
        unroll(u, update, "", n - 1, &in);
    pass_stat(c, "instances", 2 * n);
    pass_stat(c, "ops", u->step->order.n);
}

Status pass_schedule(PassContext *c)
{
    IrModule *m = c->m;
    if (m->micro_batches < 1)
        m->micro_batches = 1;
    PassViews *views = pass_fuse_views(m, c->options->target, c->scratch);
    for (uint32_t i = 0; i < m->graphs.n; i++)
        pass_fuse_rest(c, m->graphs.at[i], views[m->graphs.at[i]->index]);

    IrGraph *eval = ir_graph_find(m, "eval");
    Unroller u = {.c = c, .step = ir_graph_new(m, sym(c->s, "step"))};
    u.b = ir_builder(u.step);
    u.kept = ARENA_ARRAY(c->scratch, bool, c->options->keep.n + 1);
    map_init(&u.by_name, c->scratch);
    unroll_step(&u);

    m->graphs.n = 0;
    vec_push(m->s->arena, &m->graphs, u.step);
    u.step->index = 0;
    if (eval) {
        vec_push(m->s->arena, &m->graphs, eval);
        eval->index = 1;
        for (uint32_t i = 0; i < eval->order.n; i++)
            ir_op(eval, eval->order.at[i])->graph = eval->name;
    }
    return check_kept(&u);
}
