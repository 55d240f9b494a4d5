/* pointwise: where the recipe asks for it, @bwd replays the pointwise ops of blocks whose operands
 * it has anyway: states, inputs, what it still reads afterwards, and what is itself made again; and
 * what they make is no longer saved. A replay stands right before its first reader. What regions
 * replay, what gradients of another block read, and casts of weights stay as they are. */
#include "passes/pass.h"

typedef struct Pointwise {
    PassContext *c;
    IrGraph *fwd, *bwd;
    /* by value of @fwd */
    IrValue *there;       /* in @bwd: what it reads of the saved set, then what has been replayed */
    uint32_t *root;       /* the value whose memory it views; itself */
    unsigned char *stray; /* a view of what another block, or a region, has made */
    /* by root: positions in @bwd of its and its views' first and last readers, + 1; 0: none */
    uint32_t *first, *last;
    unsigned char *pinned; /* must be kept */
    unsigned char *again;  /* is made again */
    /* by value of @bwd before the replays: the value of @fwd that it is */
    IrValue *of;
    uint32_t n_of;
    /* of one question, by op of @fwd */
    uint32_t *asked; /* stamped with the op that it is asked for */
    unsigned char *answer;
    IrOp asking;
} Pointwise;

static bool is_result(const IrGraph *g, IrValue v)
{
    return v.i && ir_value(g, v)->def == IR_DEF_RESULT;
}

static uint32_t traits_of(const IrGraph *g, IrOp op)
{
    return ir_op_info(ir_op_kind(g, op))->traits;
}

static IrScope block_of(const IrGraph *g, IrOp op)
{
    return ir_scope_block(g->m, ir_op(g, op)->scope);
}

/* -- the saved set -- */

static void find_saved(Pointwise *k)
{
    const IrGraph *fwd = k->fwd;
    uint32_t begin = ir_module_has_loss(k->c->m) ? 1 : 0;
    for (uint32_t i = begin; i < fwd->results.n; i++) {
        IrValue v = fwd->results.at[i], param = ir_value_find(k->bwd, ir_value(fwd, v)->name);
        if (!param.i || ir_value(k->bwd, param)->def != IR_DEF_PARAM)
            continue;
        k->there[v.i] = param;
        k->of[param.i] = v;
    }
}

/* A saved view keeps its root's memory. One that cannot be replayed with the root pins it. */
static void find_roots(Pointwise *k)
{
    const IrGraph *g = k->fwd;
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        const IrOpRec *rec = ir_op(g, op);
        for (uint32_t r = 0; r < rec->n_out; r++)
            k->root[rec->first_out + r] = rec->first_out + r;
        IrValue in = ir_in(g, op, 0);
        if (!(traits_of(g, op) & IR_VIEW) || !is_result(g, in))
            continue;
        uint32_t root = k->root[rec->first_out] = k->root[in.i];
        k->stray[rec->first_out] =
            k->stray[in.i] || rec->region.i ||
            block_of(g, op).i != block_of(g, g->values.at[root].op).i;
        k->pinned[root] |= k->there[rec->first_out].i && k->stray[rec->first_out];
    }
}

static void find_readers(Pointwise *k)
{
    const IrGraph *g = k->bwd;
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        for (uint32_t n = 0; n < ir_op(g, op)->n_in; n++) {
            IrValue v = k->of[ir_in(g, op, n).i];
            if (!v.i)
                continue;
            uint32_t root = k->root[v.i];
            if (!k->first[root])
                k->first[root] = i + 1;
            k->last[root] = i + 1;
            k->pinned[root] |= block_of(g, op).i != block_of(k->fwd, k->fwd->values.at[root].op).i;
        }
    }
    for (uint32_t i = 0; i < g->results.n; i++)
        if (k->of[g->results.at[i].i].i)
            k->pinned[k->root[k->of[g->results.at[i].i].i]] = 1;
}

/* -- what is made again -- */

static bool can_make(Pointwise *k, IrOp op, uint32_t at);

static bool is_at_hand(Pointwise *k, IrValue v, uint32_t at)
{
    if (!is_result(k->fwd, v))
        return true;
    IrOp op = ir_value(k->fwd, v)->op;
    uint32_t root = k->root[v.i];
    if (!k->there[v.i].i)
        return can_make(k, op, at);
    bool same_block = block_of(k->fwd, op).i == block_of(k->fwd, k->asking).i;
    return k->last[root] >= at && (!k->again[root] || same_block);
}

static bool may_replay(const Pointwise *k, IrOp op)
{
    const IrGraph *g = k->fwd;
    uint32_t traits = traits_of(g, op);
    IrScope block = block_of(g, op);
    bool of_activations = false;
    for (uint32_t i = 0; i < ir_op(g, op)->n_in; i++)
        of_activations |= ir_in(g, op, i).i && ir_value(g, ir_in(g, op, i))->def != IR_DEF_STATE;
    return (traits & IR_PURE) && (traits & (IR_POINTWISE | IR_VIEW)) && of_activations &&
           !ir_op(g, op)->region.i && block.i && block.i == block_of(g, k->asking).i;
}

/* Can @bwd make the op's results before the op at `at` - 1, of what it still reads there? */
static bool can_make(Pointwise *k, IrOp op, uint32_t at)
{
    if (k->asked[op.i] == k->asking.i)
        return k->answer[op.i];
    bool can = may_replay(k, op);
    for (uint32_t i = 0; can && i < ir_op(k->fwd, op)->n_in; i++)
        can = is_at_hand(k, ir_in(k->fwd, op, i), at);
    k->asked[op.i] = k->asking.i;
    k->answer[op.i] = can;
    return can;
}

static void choose(Pointwise *k, IrOp op)
{
    if (!(traits_of(k->fwd, op) & IR_POINTWISE))
        return; /* a view's memory is its root's */
    uint32_t v = ir_out(k->fwd, op, 0).i;
    k->asking = op;
    k->again[v] = k->first[v] && !k->pinned[v] && can_make(k, op, k->first[v]);
}

/* -- the replays -- */

typedef struct Replay {
    Pointwise *k;
    IrBuilder b; /* at the reader */
} Replay;

static IrValue here(void *context, IrValue v)
{
    Replay *x = context;
    Pointwise *k = x->k;
    const IrValueRec *rec = ir_value(k->fwd, v);
    if (!v.i || k->there[v.i].i)
        return k->there[v.i];
    if (rec->def == IR_DEF_STATE)
        return k->there[v.i] = ir_graph_state(k->bwd, rec->state);
    if (rec->def == IR_DEF_PARAM) {
        IrValue param = ir_value_find(k->bwd, rec->name);
        if (!param.i)
            param = ir_graph_param(k->bwd, rec->name, rec->type, rec->span);
        return k->there[v.i] = param;
    }
    IrOp op = rec->op;
    for (uint32_t i = 0; i < ir_op(k->fwd, op)->n_in; i++)
        here(x, ir_in(k->fwd, op, i));
    x->b.re = ir_value(k->fwd, ir_out(k->fwd, op, 0))->name;
    IrOp copy = ir_clone(&x->b, k->fwd, op, here, x, "", ".re");
    pass_stat(k->c, "replays", 1);
    return k->there[v.i] = ir_out(k->bwd, copy, 0);
}

static void drop_saved(Pointwise *k)
{
    IrGraph *fwd = k->fwd, *bwd = k->bwd;
    uint32_t n = 0;
    for (uint32_t i = 0; i < bwd->params.n; i++) {
        IrValue v = k->of[bwd->params.at[i].i];
        if (!v.i || !k->again[k->root[v.i]]) {
            bwd->params.at[n++] = bwd->params.at[i];
            continue;
        }
        map_put(&bwd->names, map_key(ir_value(bwd, bwd->params.at[i])->name), 0);
        k->there[v.i] = (IrValue){0};
        pass_stat(k->c, "values no longer saved", 1);
    }
    bwd->params.n = n;
    n = 0;
    for (uint32_t i = 0; i < fwd->results.n; i++) {
        IrValue v = fwd->results.at[i];
        bool is_loss = !i && ir_module_has_loss(k->c->m);
        if (is_loss || !k->again[k->root[v.i]] || k->there[v.i].i)
            fwd->results.at[n++] = v;
    }
    fwd->results.n = n;
}

static void write_replays(Pointwise *k)
{
    IrGraph *g = k->bwd;
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        for (uint32_t n = 0; n < ir_op(g, op)->n_in; n++) {
            IrValue in = ir_in(g, op, n);
            IrValue v = in.i < k->n_of ? k->of[in.i] : (IrValue){0};
            if (!v.i || !k->again[k->root[v.i]])
                continue;
            Replay x = {.k = k, .b = ir_builder(g)};
            x.b.at = i;
            ir_set_in(g, op, n, here(&x, v));
            i = x.b.at;
        }
    }
}

Status pass_pointwise(PassContext *c)
{
    if (!c->options->recompute_pointwise)
        return STATUS_OK;
    Pointwise k = {.c = c, .fwd = ir_graph_find(c->m, "fwd"), .bwd = ir_graph_find(c->m, "bwd")};
    uint32_t n = k.fwd->values.n;
    k.there = ARENA_ARRAY(c->scratch, IrValue, n);
    k.root = ARENA_ARRAY(c->scratch, uint32_t, n);
    k.first = ARENA_ARRAY(c->scratch, uint32_t, n);
    k.last = ARENA_ARRAY(c->scratch, uint32_t, n);
    k.stray = ARENA_ARRAY(c->scratch, unsigned char, n);
    k.pinned = ARENA_ARRAY(c->scratch, unsigned char, n);
    k.again = ARENA_ARRAY(c->scratch, unsigned char, n);
    k.n_of = k.bwd->values.n;
    k.of = ARENA_ARRAY(c->scratch, IrValue, k.n_of);
    k.asked = ARENA_ARRAY(c->scratch, uint32_t, k.fwd->ops.n);
    k.answer = ARENA_ARRAY(c->scratch, unsigned char, k.fwd->ops.n);
    find_saved(&k);
    find_roots(&k);
    find_readers(&k);
    for (uint32_t i = 0; i < k.fwd->order.n; i++)
        choose(&k, k.fwd->order.at[i]);
    drop_saved(&k);
    write_replays(&k);
    return STATUS_OK;
}
