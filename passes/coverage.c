#include "passes/coverage.h"

/* A value crosses the border when an op of @bwd reads its memory. It may cross, for the part that
 * made it, when it is a saved discrete choice; a result of its block: read by the forward pass
 * outside the block (the block's output, shared K/V); under `submodule`, a result of its part.
 * Everything else has escaped. */

typedef struct PartFacts { /* by scope: a part, or a block for its ops outside every part */
    bool exists, escaped;
    uint64_t bytes; /* escaped, of the first micro-batch */
} PartFacts;

typedef struct Crossing {
    IrValue value;  /* with memory of its own, made by @fwd */
    IrOp reader;    /* the first op of @bwd that reads it */
    bool for_block; /* an op of some block does */
} Crossing;

typedef struct Coverage {
    const PassLifetimes *l;
    const IrGraph *g;
    const PassOptions *options;
    Arena *scratch;
    PassFacts *f;
    PartFacts *parts;                          /* by scope */
    unsigned char *leaves_block, *leaves_part; /* by value: the forward pass reads it elsewhere */
    unsigned char *from_weights;               /* by value: does it depend on a state? */
    unsigned char *has_replay;                 /* by op */
    unsigned char *block_replays;              /* by scope: is anything of the block replayed? */
    uint32_t *crossing_of;                     /* by value: its crossing + 1 */
    VEC(Crossing) crossings;
} Coverage;

static bool in_graph(const IrOpRec *rec, const char *name)
{
    return rec->graph && !strcmp(rec->graph, name);
}

static IrScope part_of(const IrModule *m, IrScope scope)
{
    for (IrScope at = scope; at.i; at = ir_scope_rec(m, at)->parent)
        if (ir_scope_rec(m, at)->kind == IR_SCOPE_PART)
            return at;
    return ir_scope_block(m, scope);
}

static IrScope block_of(const Coverage *c, IrOp op)
{
    return ir_scope_block(c->g->m, ir_op(c->g, op)->scope);
}

/* The forward pass's reads: who needs what elsewhere, and what depends on weights. */
static void walk_forward(Coverage *c, IrOp op)
{
    const IrGraph *g = c->g;
    const IrOpRec *rec = ir_op(g, op);
    IrScope block = block_of(c, op), part = part_of(g->m, rec->scope);
    bool weights = rec->kind == IR_OP_recv;
    for (uint32_t i = 0; i < rec->n_in; i++) {
        IrValue in = ir_in(g, op, i);
        const IrValueRec *value = ir_value(g, in);
        weights |= in.i && (value->def == IR_DEF_STATE || c->from_weights[in.i]);
        if (!in.i || value->def != IR_DEF_RESULT)
            continue;
        IrValue base = pass_base(g, in);
        if (ir_value(g, base)->def != IR_DEF_RESULT)
            continue;
        IrOp maker = ir_value(g, base)->op;
        c->leaves_block[base.i] |= block_of(c, maker).i != block.i;
        c->leaves_part[base.i] |= part_of(g->m, ir_op(g, maker)->scope).i != part.i;
    }
    for (uint32_t r = 0; r < rec->n_out; r++)
        c->from_weights[ir_out(g, op, r).i] = weights;
    if (block.i)
        c->parts[part.i].exists = true;
}

static void walk_backward(Coverage *c, IrOp op)
{
    const IrGraph *g = c->g;
    const IrOpRec *rec = ir_op(g, op);
    bool for_block = block_of(c, op).i != 0;
    for (uint32_t i = 0; i < rec->n_in && pass_has_code(g, op); i++) {
        IrValue base = pass_base(g, ir_in(g, op, i));
        const IrValueRec *value = ir_value(g, base);
        if (!base.i || value->def != IR_DEF_RESULT || !in_graph(ir_op(g, value->op), "fwd"))
            continue;
        if (!c->crossing_of[base.i]) {
            c->crossing_of[base.i] = c->crossings.n + 1;
            vec_push(c->scratch, &c->crossings, ((Crossing){.value = base, .reader = op}));
        }
        c->crossings.at[c->crossing_of[base.i] - 1].for_block |= for_block;
    }
    if (!rec->re)
        return;
    IrValue original = ir_value_find(g, rec->re);
    if (original.i && ir_value(g, original)->def == IR_DEF_RESULT)
        c->has_replay[ir_value(g, original)->op.i] = 1;
    c->block_replays[block_of(c, op).i] = 1;
    c->f->replayed_ops++;
}

static void walk(Coverage *c)
{
    for (uint32_t i = 0; i < c->g->order.n; i++) {
        IrOp op = c->g->order.at[i];
        if (in_graph(ir_op(c->g, op), "fwd"))
            walk_forward(c, op);
        else if (in_graph(ir_op(c->g, op), "bwd"))
            walk_backward(c, op);
    }
}

/* -- the policy -- */

/* Not asked for, but there: parts that save their results for themselves mean `submodule`. */
static const char *infer_policy(const Coverage *c)
{
    uint32_t by_part = 0, blocks = 0;
    unsigned char *counted = ARENA_ARRAY(c->scratch, unsigned char, c->g->m->scopes.n + 1);
    for (uint32_t i = 1; i < c->g->m->scopes.n; i++)
        blocks += c->block_replays[i];
    for (uint32_t i = 0; i < c->crossings.n; i++) {
        IrValue v = c->crossings.at[i].value;
        IrScope block = block_of(c, ir_value(c->g, v)->op);
        if (!c->block_replays[block.i] || counted[block.i] || c->leaves_block[v.i] ||
            !c->leaves_part[v.i])
            continue;
        counted[block.i] = 1;
        by_part++;
    }
    return !blocks ? "none" : 2 * by_part > blocks ? "submodule" : "block";
}

static void set_policy(Coverage *c)
{
    const char *asked =
        c->options && c->options->recompute_policy ? c->options->recompute_policy : "none";
    bool given = strcmp(asked, "none") || (c->options && c->options->recompute_pointwise);
    c->f->policy = sym(c->g->m->s, given ? asked : infer_policy(c));
}

/* -- escapes -- */

static bool may_cross(const Coverage *c, IrValue v)
{
    const IrOpRec *rec = ir_op(c->g, ir_value(c->g, v)->op);
    if (ir_op_info((IrOpKind)rec->kind)->traits & IR_DISCRETE)
        return true;
    return c->leaves_block[v.i] || (!strcmp(c->f->policy, "submodule") && c->leaves_part[v.i]);
}

static uint64_t bytes_of(const Coverage *c, IrValue v)
{
    return (uint64_t)ir_type_bytes(c->g->m, ir_value_type(c->g, v));
}

static Sym with_sigil(const Coverage *c, IrValue v)
{
    return intern_printf(&c->g->m->s->interner, "%%%s", ir_value(c->g, v)->name);
}

static Sym scope_name(const Coverage *c, IrScope scope)
{
    return scope.i ? ir_scope_rec(c->g->m, scope)->name : NULL;
}

static void add_escape(Coverage *c, const Crossing *x)
{
    IrModule *m = c->g->m;
    IrOp maker = ir_value(c->g, x->value)->op;
    IrScope part = part_of(m, ir_op(c->g, maker)->scope);
    bool is_part = ir_scope_rec(m, part)->kind == IR_SCOPE_PART;
    PassEscape e = {.name = with_sigil(c, x->value),
                    .type = ir_type_text(m, ir_value_type(c->g, x->value)),
                    .bytes = bytes_of(c, x->value),
                    .block = scope_name(c, block_of(c, maker)),
                    .part = is_part ? scope_name(c, part) : NULL,
                    .role = is_part ? ir_scope_rec(m, part)->role : NULL,
                    .span = ir_value(c->g, x->value)->span};
    if (ir_op(c->g, x->reader)->n_out)
        e.read_by = with_sigil(c, ir_out(c->g, x->reader, 0));
    vec_push(m->s->arena, &c->f->uncovered, e);
}

static void find_escapes(Coverage *c)
{
    bool none = !strcmp(c->f->policy, "none");
    for (uint32_t i = 0; i < c->crossings.n; i++) {
        const Crossing *x = &c->crossings.at[i];
        const IrOpRec *rec = ir_op(c->g, ir_value(c->g, x->value)->op);
        IrScope part = part_of(c->g->m, rec->scope);
        if (!part.i || (!none && may_cross(c, x->value)))
            continue;
        c->parts[part.i].escaped = true;
        if (rec->instance != 0)
            continue;
        c->parts[part.i].bytes += bytes_of(c, x->value);
        if (!none)
            add_escape(c, x);
    }
}

static void find_saved(Coverage *c)
{
    for (uint32_t i = 0; i < c->crossings.n; i++) {
        const Crossing *x = &c->crossings.at[i];
        const IrOpRec *rec = ir_op(c->g, ir_value(c->g, x->value)->op);
        if (rec->instance != 0 || !x->for_block || !c->from_weights[x->value.i])
            continue;
        PassSaved saved = {with_sigil(c, x->value), bytes_of(c, x->value),
                           scope_name(c, rec->scope), ir_value(c->g, x->value)->span};
        vec_push(c->g->m->s->arena, &c->f->saved, saved);
        c->f->saved_bytes += saved.bytes;
    }
}

/* -- parts, blocks, roles -- */

static bool is_recomputed(const Coverage *c, IrScope part)
{
    return strcmp(c->f->policy, "none") && !c->parts[part.i].escaped;
}

static PassBlock *block_facts(Coverage *c, IrScope scope, uint32_t *index_of)
{
    PassFacts *f = c->f;
    const IrScopeRec *rec = ir_scope_rec(c->g->m, scope);
    if (!index_of[scope.i]) {
        vec_push(
            c->g->m->s->arena, &f->blocks,
            ((PassBlock){.name = rec->name, .def = rec->def, .covered = true, .span = rec->span}));
        index_of[scope.i] = f->blocks.n;
    }
    return &f->blocks.at[index_of[scope.i] - 1];
}

static PassRole *role_facts(Coverage *c, Sym role)
{
    PassFacts *f = c->f;
    for (uint32_t i = 0; i < f->roles.n; i++)
        if (f->roles.at[i].name == role)
            return &f->roles.at[i];
    vec_push(c->g->m->s->arena, &f->roles, (PassRole){.name = role});
    return &f->roles.at[f->roles.n - 1];
}

static void count_part(Coverage *c, IrScope part, PassBlock *block)
{
    const IrScopeRec *rec = ir_scope_rec(c->g->m, part);
    bool recomputed = is_recomputed(c, part), is_part = rec->kind == IR_SCOPE_PART;
    PassRole *role = role_facts(c, is_part ? rec->role : sym(c->g->m->s, "other"));
    role->total++;
    role->recomputed += recomputed;
    role->saved_bytes += c->parts[part.i].bytes;
    block->saved_bytes += c->parts[part.i].bytes;
    block->covered &= recomputed;
    block->parts_total += is_part;
    block->parts_recomputed += is_part && recomputed;
}

/* Blocks in which a role's parts are left: a block may have several parts of one role. */
static void count_blocks_left(Coverage *c)
{
    IrModule *m = c->g->m;
    Map seen;
    map_init(&seen, c->scratch);
    for (uint32_t i = 1; i < m->scopes.n; i++) {
        IrScope part = {i}, block = ir_scope_block(m, part);
        if (!c->parts[i].exists || is_recomputed(c, part))
            continue;
        bool is_part = m->scopes.at[i].kind == IR_SCOPE_PART;
        PassRole *role = role_facts(c, is_part ? m->scopes.at[i].role : sym(m->s, "other"));
        uint64_t key = (uint64_t)block.i << 32 | (uint64_t)(role - c->f->roles.at);
        role->blocks_left += !map_get(&seen, key, NULL);
        map_put(&seen, key, 1);
    }
}

static void count_parts(Coverage *c)
{
    IrModule *m = c->g->m;
    uint32_t *index_of = ARENA_ARRAY(c->scratch, uint32_t, m->scopes.n + 1);
    for (uint32_t i = 1; i < m->scopes.n; i++) {
        if (!c->parts[i].exists)
            continue;
        count_part(c, (IrScope){i}, block_facts(c, ir_scope_block(m, (IrScope){i}), index_of));
    }
    count_blocks_left(c);
    c->f->blocks_total = c->f->blocks.n;
    for (uint32_t i = 0; i < c->f->blocks.n; i++)
        c->f->blocks_covered += c->f->blocks.at[i].covered;
}

/* -- replays that were not needed -- */

static void find_dropped(Coverage *c)
{
    const IrGraph *g = c->g;
    Session *s = g->m->s;
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        const IrOpRec *rec = ir_op(g, op);
        IrScope block = block_of(c, op);
        if (!in_graph(rec, "fwd") || rec->instance != 0 || !rec->n_out || !pass_has_code(g, op) ||
            !block.i || !c->block_replays[block.i] || c->has_replay[op.i])
            continue;
        if (!is_recomputed(c, part_of(g->m, rec->scope)))
            continue;
        PassDropped dropped = {with_sigil(c, ir_out(g, op, 0)),
                               sym(s, ir_op_info((IrOpKind)rec->kind)->name),
                               scope_name(c, rec->scope), rec->span};
        vec_push(s->arena, &c->f->dropped, dropped);
    }
    c->f->dropped_replays = c->f->dropped.n;
}

void pass_coverage(const PassLifetimes *l, const PassOptions *options, Arena *scratch, PassFacts *f)
{
    const IrGraph *g = l->g;
    uint32_t n_scopes = g->m->scopes.n + 1, n_values = g->values.n;
    Coverage c = {.l = l, .g = g, .options = options, .scratch = scratch, .f = f};
    c.parts = ARENA_ARRAY(scratch, PartFacts, n_scopes);
    c.block_replays = ARENA_ARRAY(scratch, unsigned char, n_scopes);
    c.leaves_block = ARENA_ARRAY(scratch, unsigned char, n_values);
    c.leaves_part = ARENA_ARRAY(scratch, unsigned char, n_values);
    c.from_weights = ARENA_ARRAY(scratch, unsigned char, n_values);
    c.crossing_of = ARENA_ARRAY(scratch, uint32_t, n_values);
    c.has_replay = ARENA_ARRAY(scratch, unsigned char, g->ops.n);
    walk(&c);
    set_policy(&c);
    find_escapes(&c);
    find_saved(&c);
    count_parts(&c);
    find_dropped(&c);
}
