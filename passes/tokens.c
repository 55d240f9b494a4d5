#include "passes/tokens.h"

#include <string.h>

#include "passes/units.h"

/* A gathered value, or one that was taken apart, that readers nearby share. */
typedef struct Copy {
    IrValue of, copy;
    IrScope block;
    IrRegion region;
    Sym re;
} Copy;

typedef struct Reader { /* an op of @fwd as it was met, for its replays */
    IrValue *in;
    uint32_t n_in;
} Reader;

struct Tokens {
    PassContext *c;
    IrGraph *fwd;
    IrDim batch, seq;
    int64_t tp, n, part; /* all tokens, and of one rank, padding included */
    VEC(Copy) copies;    /* of the graph that is walked */
    VEC(Reader) readers;
    Map reader_of; /* name of the first result -> its index */
};

Tokens *tokens_new(PassContext *c)
{
    const IrAxis *batch = ir_axis_find(c->m, sym(c->s, "batch")),
                 *seq = ir_axis_find(c->m, sym(c->s, "seq"));
    if (!c->options->sequence_parallel || !batch || !seq)
        return NULL;
    Tokens *t = ARENA_NEW(c->scratch, Tokens);
    t->c = c;
    t->fwd = ir_graph_find(c->m, "fwd");
    t->batch = ir_dim_axis(batch->name, batch->size);
    t->seq = ir_dim_axis(seq->name, seq->size);
    t->tp = c->m->mesh.tp;
    t->n = batch->size * seq->size;
    t->part = (t->n + t->tp - 1) / t->tp;
    map_init(&t->reader_of, c->scratch);
    ir_axis_set(c->m, sym(c->s, "tokens"), t->n);
    return t;
}

/* -- types -- */

static bool is_axis(const IrDim *dim, const IrDim *axis)
{
    return dim->n == 1 && dim->f[0].axis == axis->f[0].axis && dim->f[0].mesh == IR_MESH_NONE;
}

bool tokens_lead(const Tokens *t, IrType type)
{
    const IrTypeInfo *info = ir_type_info(t->c->m, type);
    return info->rank >= 2 && is_axis(&info->dim[0], &t->batch) && is_axis(&info->dim[1], &t->seq);
}

static bool is_divided(const Tokens *t, IrType type)
{
    const IrTypeInfo *info = ir_type_info(t->c->m, type);
    const IrDim *dim = &info->dim[0];
    return info->rank && dim->n == 1 && dim->f[0].mesh == IR_MESH_TP &&
           dim->f[0].axis == sym(t->c->s, "tokens");
}

/* [batch,seq,...] -> [(tokens/tp),...] */
static IrType divide(const Tokens *t, IrType type)
{
    IrTypeInfo info = *ir_type_info(t->c->m, type);
    info.dim[0] = ir_dim_axis(sym(t->c->s, "tokens"), t->n);
    info.dim[0].f[0].mesh = IR_MESH_TP;
    info.dim[0].f[0].parts = (int32_t)t->tp;
    memmove(&info.dim[1], &info.dim[2], (info.rank - 2) * sizeof info.dim[0]);
    info.rank--;
    info.dim[info.rank] = (IrDim){0};
    return ir_type(t->c->m, &info);
}

static IrType whole(const Tokens *t, IrType type)
{
    IrTypeInfo info = *ir_type_info(t->c->m, type);
    memmove(&info.dim[2], &info.dim[1], (info.rank - 1) * sizeof info.dim[0]);
    info.dim[0] = t->batch;
    info.dim[1] = t->seq;
    info.rank++;
    return ir_type(t->c->m, &info);
}

/* Flat, of so many tokens as wide as v's. */
static IrType flat_tokens(const Tokens *t, const IrGraph *g, IrValue v, int64_t of, int64_t tokens)
{
    IrType type = ir_value_type(g, v);
    int64_t width = ir_type_numel(g->m, type) / of;
    return flat_type(t->c->m, ir_type_info(g->m, type)->dtype, tokens * width);
}

/* Of tp, even where all ranks have the same part of it: what flows back to them is each one's
 * share. */
static bool has_axis(const Tokens *t, IrType type, bool mesh)
{
    const IrTypeInfo *info = ir_type_info(t->c->m, type);
    for (uint32_t i = 0; i < info->rank; i++)
        for (uint32_t k = 0; k < info->dim[i].n; k++) {
            const IrFactor *f = &info->dim[i].f[k];
            if (mesh ? f->mesh == IR_MESH_TP
                     : f->axis == t->batch.f[0].axis || f->axis == t->seq.f[0].axis)
                return true;
        }
    return false;
}

/* -- what the table says -- */

#include "ir/op_columns.h"
#undef SHARD
#define SHARD(text) text
#define OP(name, doc, ins, outs, attrs, columns) [IR_OP_##name] = columns,
static const char *const rules[IR_OP_COUNT] = {
    [IR_OP_none] = "->",
#include "ir/ops.def"
};
#undef OP

typedef struct Rule {
    /* operands, results: `...`, `t`, others */
    bool reads_free, reads_rows, gives_free, gives_bound;
} Rule;

static const char *blanks(const char *at)
{
    return at + strspn(at, " ,");
}

/* `...`: dims that the op does not tell apart; `t`: dims that it sums over. */
static Rule rule_of(IrOpKind kind)
{
    const char *text = rules[kind], *arrow = strstr(text, "->");
    Rule rule = {0};
    for (const char *at = blanks(text); at < arrow; at = blanks(at + strcspn(at, ",-"))) {
        rule.reads_free |= !strncmp(at, "...", 3);
        rule.reads_rows |= at[0] == 't' && (at[1] == ' ' || at[1] == ',');
        if (*at == '-')
            break;
    }
    const char *at = arrow + 2;
    while (*at) {
        size_t n = strcspn(at, ",");
        const char *first = at + strspn(at, " ");
        if (first < at + n || n)
            *(strncmp(first, "...", 3) ? &rule.gives_bound : &rule.gives_free) = true;
        at += n + (at[n] == ',');
    }
    return rule;
}

/* -- copies -- */

static IrBuilder builder_before(IrGraph *g, uint32_t at)
{
    const IrOpRec *rec = ir_op(g, g->order.at[at]);
    IrBuilder b = ir_builder(g);
    b.at = at;
    b.scope = rec->scope;
    b.region = rec->region;
    b.serves = (IrServes)rec->serves;
    b.span = rec->span;
    return b;
}

static Sym with_suffix(const Tokens *t, Sym name, const char *suffix)
{
    return intern_printf(&t->c->s->interner, "%s.%s", name, suffix);
}

static IrValue build(const Tokens *t, IrBuilder *b, IrOpKind kind, IrValue in, Sym name, IrType out)
{
    IrOpArgs args = {.kind = kind, .in = &in, .n_in = 1, .name = name, .out = {out}};
    if (kind != IR_OP_flat_pack && kind != IR_OP_flat_piece)
        flat_give_comm(&args, sym(t->c->s, "tp"), t->tp);
    return ir_out(b->g, ir_build(b, &args), 0);
}

/* The op that made a value of @fwd, by the name that a replay of it has to give. */
static Sym made_by(const Tokens *t, IrValue v)
{
    const IrOpRec *rec = ir_op(t->fwd, ir_value(t->fwd, v)->op);
    return ir_value(t->fwd, (IrValue){rec->first_out})->name;
}

/* A replay of a copy is NAME.re, though it may be of the same value. */
static Sym copy_name(const Tokens *t, const IrGraph *g, IrValue v, const char *suffix, IrValue re)
{
    return re.i ? with_suffix(t, ir_value(t->fwd, re)->name, "re")
                : with_suffix(t, ir_value(g, v)->name, suffix);
}

/* `re` is the copy in @fwd that this one replays; {0}: none. */
static IrValue gather(Tokens *t, IrBuilder *b, IrValue v, IrValue re)
{
    IrGraph *g = b->g;
    Sym name = copy_name(t, g, v, "whole", re);
    IrType type = whole(t, ir_value_type(g, v));
    bool padded = t->part * t->tp != t->n;
    IrValue all_re = re;
    if (padded && re.i)
        all_re = ir_in(t->fwd, ir_value(t->fwd, re)->op, 0);
    b->re = re.i ? made_by(t, all_re) : NULL;
    IrType all = padded ? flat_tokens(t, g, v, t->part, t->part * t->tp) : type;
    Sym all_name = padded ? with_suffix(t, name, "padded") : name;
    IrValue y = build(t, b, IR_OP_all_gather, v, all_name, all);
    if (padded) {
        b->re = re.i ? made_by(t, re) : NULL;
        y = build(t, b, IR_OP_flat_piece, y, name, type);
    }
    b->re = NULL;
    pass_stat(t->c, "gathers of tokens", 1);
    return y;
}

static IrValue take(Tokens *t, IrBuilder *b, IrValue v, IrValue re)
{
    Sym name = copy_name(t, b->g, v, "mine", re);
    b->re = re.i ? made_by(t, re) : NULL;
    IrValue y = build(t, b, IR_OP_take_part, v, name, divide(t, ir_value_type(b->g, v)));
    b->re = NULL;
    return y;
}

/* What the original of a replay reads there. */
static IrValue original_operand(const Tokens *t, Sym re, uint32_t operand)
{
    uint64_t at;
    if (!re || !map_get(&t->reader_of, map_key(re), &at))
        return (IrValue){0};
    const Reader *reader = &t->readers.at[at];
    return operand < reader->n_in ? reader->in[operand] : (IrValue){0};
}

/* The operand as the op at `*at` reads it: gathered, or this rank's part. */
static void convert(Tokens *t, IrGraph *g, uint32_t *at, uint32_t operand, bool to_whole)
{
    IrOp op = g->order.at[*at];
    const IrOpRec *rec = ir_op(g, op);
    IrValue v = ir_in(g, op, operand), re = original_operand(t, rec->re, operand);
    Copy want = {.of = v, .block = ir_scope_block(g->m, rec->scope), .region = rec->region};
    want.re = re.i ? ir_value(t->fwd, re)->name : NULL;
    for (uint32_t i = t->copies.n; i-- > 0;) {
        const Copy *have = &t->copies.at[i];
        if (have->of.i == v.i && have->block.i == want.block.i &&
            have->region.i == want.region.i && (have->re == want.re || !want.re)) {
            ir_set_in(g, op, operand, have->copy);
            return;
        }
    }
    IrBuilder b = builder_before(g, *at);
    want.copy = to_whole ? gather(t, &b, v, re) : take(t, &b, v, re);
    vec_push(t->c->scratch, &t->copies, want);
    *at = b.at;
    ir_set_in(g, op, operand, want.copy);
}

/* -- ops -- */

/* Does the op see each token for itself, or sum over them, with all its other operands whole? */
static TokensMode mode_of(const Tokens *t, const IrGraph *g, IrOp op)
{
    const IrOpRec *rec = ir_op(g, op);
    Rule rule = rule_of(ir_op_kind(g, op));
    bool any = false;
    for (uint32_t i = 0; i < rec->n_in; i++) {
        IrValue v = ir_in(g, op, i);
        IrType type = ir_value_type(g, v);
        if (!v.i)
            continue;
        any |= is_divided(t, type) || (ir_op_kind(g, op) == IR_OP_embed && i == 1);
        if (!is_divided(t, type) && has_axis(t, type, true))
            return TOKENS_NONE;
        if (!is_divided(t, type) && !tokens_lead(t, type) && has_axis(t, type, false))
            return TOKENS_NONE;
    }
    if (!any || !rec->n_out)
        return TOKENS_NONE;
    if (rule.reads_rows)
        return TOKENS_SUMMED;
    if (!rule.reads_free || rule.gives_bound == rule.gives_free)
        return TOKENS_NONE;
    for (uint32_t i = 0; rule.gives_free && i < rec->n_out; i++)
        if (!tokens_lead(t, ir_value_type(g, ir_out(g, op, i))))
            return TOKENS_NONE;
    return rule.gives_free ? TOKENS_KEPT : TOKENS_SUMMED;
}

static void remember_reader(Tokens *t, const IrGraph *g, IrOp op)
{
    const IrOpRec *rec = ir_op(g, op);
    if (!rec->n_out || g != t->fwd)
        return;
    Reader reader = {ARENA_ARRAY(t->c->scratch, IrValue, rec->n_in + 1), rec->n_in};
    for (uint32_t i = 0; i < rec->n_in; i++)
        reader.in[i] = ir_in(g, op, i);
    map_put(&t->reader_of, map_key(ir_value(g, ir_out(g, op, 0))->name), t->readers.n);
    vec_push(t->c->scratch, &t->readers, reader);
}

void tokens_enter(Tokens *t, IrGraph *g)
{
    t->copies.n = 0;
    for (uint32_t i = 0; g != t->fwd && t->fwd && i < g->params.n; i++) {
        IrValueRec *param = ir_value(g, g->params.at[i]);
        IrValue from = ir_value_find(t->fwd, param->name);
        if (from.i && is_divided(t, ir_value_type(t->fwd, from)))
            param->type = ir_value_type(t->fwd, from);
    }
}

TokensMode tokens_prepare(Tokens *t, IrGraph *g, uint32_t *at, bool reads_whole)
{
    IrOp op = g->order.at[*at];
    TokensMode mode = reads_whole ? TOKENS_NONE : mode_of(t, g, op);
    for (uint32_t i = 0; i < ir_op(g, op)->n_in; i++) {
        IrValue v = ir_in(g, op, i);
        IrType type = ir_value_type(g, v);
        if (!v.i)
            continue;
        if (mode == TOKENS_NONE ? is_divided(t, type) : tokens_lead(t, type))
            convert(t, g, at, i, mode == TOKENS_NONE);
    }
    remember_reader(t, g, op);
    for (uint32_t i = 0; mode == TOKENS_KEPT && i < ir_op(g, op)->n_out; i++) {
        IrValueRec *out = ir_value(g, ir_out(g, op, i));
        out->type = divide(t, out->type);
    }
    return mode;
}

IrValue tokens_scatter(Tokens *t, IrBuilder *b, IrValue v, Sym name, Sym re, IrType sum)
{
    IrType out = divide(t, sum);
    if (t->part * t->tp != t->n) {
        b->re = re ? with_suffix(t, re, "padded") : NULL;
        v = build(t, b, IR_OP_flat_pack, v, with_suffix(t, name, "padded"),
                  flat_tokens(t, b->g, v, t->n, t->part * t->tp));
    }
    b->re = re;
    v = build(t, b, IR_OP_reduce_scatter, v, name, out);
    b->re = NULL;
    pass_stat(t->c, "scatters of tokens", 1);
    return v;
}
