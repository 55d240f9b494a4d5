/* partition: divides a step between tensor-parallel ranks. Which dims are divided follows from
 * the names of the axes: heads, ffn and vocab by tp, kv heads by tp or, where tp has more ranks
 * than there are, in as many parts as there are. Every type that has such an axis becomes the
 * local one; then each op that has summed over a divided axis is followed by the sum over ranks.
 * Gradients of K and V that several ranks hold are each rank's share, until a sum over the kv
 * heads, or over the ranks that hold the same ones, makes them whole. */
#include <string.h>

#include "base/diag.h"
#include "passes/norm.h"
#include "passes/partition.h"
#include "passes/tokens.h"

typedef struct Partition {
    PassContext *c;
    int64_t tp;
    IrType *types; /* by type: its local one; {0}: not asked yet */
    uint32_t n_types;
    Tokens *tokens; /* NULL: each rank has all of them everywhere */
    Status status;
} Partition;

/* -- axes -- */

typedef enum AxisRule { AXIS_WHOLE, AXIS_DIVIDES, AXIS_PADDED, AXIS_SHARED } AxisRule;

static AxisRule rule_of(const char *axis)
{
    static const struct {
        const char *name;
        AxisRule rule;
    } rules[] = {{"heads", AXIS_DIVIDES},
                 {"ffn", AXIS_DIVIDES},
                 {"vocab", AXIS_PADDED},
                 {"kv_heads", AXIS_SHARED},
                 {"global_kv_heads", AXIS_SHARED}};
    for (uint32_t i = 0; axis && i < sizeof rules / sizeof *rules; i++)
        if (!strcmp(rules[i].name, axis))
            return rules[i].rule;
    return AXIS_WHOLE;
}

/* Into how many parts tp ranks divide an axis; 0: they cannot. */
static int64_t parts_of(const char *axis, int64_t size, int64_t tp)
{
    switch (rule_of(axis)) {
    case AXIS_DIVIDES:
        return size % tp ? 0 : tp;
    case AXIS_PADDED:
        return tp;
    case AXIS_SHARED:
        return size % tp == 0 ? tp : tp % size == 0 ? size : 0;
    default:
        return 1;
    }
}

static bool is_of_heads(const IrAxis *axis)
{
    return rule_of(axis->name) == AXIS_SHARED || !strcmp(axis->name, "heads");
}

static bool is_legal(const IrModule *m, int64_t tp, bool heads_alone)
{
    for (uint32_t i = 0; i < m->axes.n; i++)
        if ((!heads_alone || is_of_heads(&m->axes.at[i])) &&
            !parts_of(m->axes.at[i].name, m->axes.at[i].size, tp))
            return false;
    return true;
}

static int64_t heads_of(const IrModule *m)
{
    const IrAxis *heads = ir_axis_find(m, sym(m->s, "heads"));
    return heads ? heads->size : 1;
}

/* More ranks than that are never legal: the heads there are, or the least of the axes that must
 * divide. */
static int64_t most_ranks(const IrModule *m, bool heads_alone)
{
    int64_t most = heads_alone ? heads_of(m) : INT64_MAX;
    for (uint32_t i = 0; i < m->axes.n; i++)
        if (rule_of(m->axes.at[i].name) == AXIS_DIVIDES && m->axes.at[i].size < most)
            most = m->axes.at[i].size;
    return most;
}

/* Degrees that the axes of heads admit, or all axes. */
static const char *legal_degrees(PassContext *c, bool heads_alone)
{
    const char *text = "";
    for (int64_t tp = 1, most = most_ranks(c->m, heads_alone); tp <= most; tp++)
        if (is_legal(c->m, tp, heads_alone))
            text = arena_printf(c->s->arena, "%s%s%lld", text, *text ? ", " : "", (long long)tp);
    return text;
}

static Status check_axes(PassContext *c, int64_t tp)
{
    for (uint32_t i = 0; i < c->m->axes.n; i++) {
        const IrAxis *axis = &c->m->axes.at[i];
        if (parts_of(axis->name, axis->size, tp))
            continue;
        if (rule_of(axis->name) == AXIS_SHARED)
            diag(c->s, c->options->tp_span, tp_kv_heads, (long long)tp, axis->name,
                 (long long)axis->size, (long long)heads_of(c->m), legal_degrees(c, true));
        else
            diag(c->s, c->options->tp_span, tp_axis, (long long)tp, axis->name,
                 (long long)axis->size, legal_degrees(c, false));
        return STATUS_USER;
    }
    return STATUS_OK;
}

/* -- types -- */

static IrType local_type(Partition *p, IrType type)
{
    if (!type.i || type.i >= p->n_types)
        return type;
    if (p->types[type.i].i)
        return p->types[type.i];
    IrTypeInfo info = *ir_type_info(p->c->m, type);
    for (uint32_t i = 0; i < info.rank; i++)
        for (uint32_t k = 0; k < info.dim[i].n; k++) {
            IrFactor *f = &info.dim[i].f[k];
            if (rule_of(f->axis) == AXIS_WHOLE || f->mesh != IR_MESH_NONE)
                continue;
            f->mesh = IR_MESH_TP;
            f->parts = (int32_t)parts_of(f->axis, f->size, p->tp);
        }
    return p->types[type.i] = ir_type(p->c->m, &info);
}

static void divide_types(Partition *p)
{
    IrModule *m = p->c->m;
    p->n_types = m->types.n;
    p->types = ARENA_ARRAY(p->c->scratch, IrType, p->n_types);
    for (uint32_t i = 1; i < m->states.n; i++)
        m->states.at[i].type = local_type(p, m->states.at[i].type);
    for (uint32_t k = 0; k < m->graphs.n; k++) {
        IrGraph *g = m->graphs.at[k];
        for (uint32_t i = 1; i < g->values.n; i++)
            g->values.at[i].type = local_type(p, g->values.at[i].type);
        g->epoch++;
    }
}

/* The divided factor of the named axis (NULL: of any) in a type, from dim `first` on; NULL if
 * there is none. */
static const IrFactor *divided(const IrModule *m, IrType type, const char *axis)
{
    const IrTypeInfo *info = ir_type_info(m, type);
    for (uint32_t i = 0; i < info->rank; i++)
        for (uint32_t k = 0; k < info->dim[i].n; k++) {
            const IrFactor *f = &info->dim[i].f[k];
            if (f->mesh == IR_MESH_TP && (!axis || f->axis == axis))
                return f;
        }
    return NULL;
}

/* -- sums over ranks -- */

typedef struct Site { /* an op that is changed, and where it stands in the order */
    Partition *p;
    IrGraph *g;
    uint32_t at;
    IrOp op;
    IrBuilder b; /* behind the op, with what it carries */
} Site;

static Site site_at(Partition *p, IrGraph *g, uint32_t at)
{
    Site s = {.p = p, .g = g, .at = at, .op = g->order.at[at], .b = ir_builder(g)};
    const IrOpRec *rec = ir_op(g, s.op);
    s.b.at = at + 1;
    s.b.scope = rec->scope;
    s.b.region = rec->region;
    s.b.serves = (IrServes)rec->serves;
    s.b.span = rec->span;
    return s;
}

static Sym with_suffix(const Site *s, Sym name, const char *suffix)
{
    return intern_printf(&s->p->c->s->interner, "%s.%s", name, suffix);
}

/* By `group` ranks each; 0: over all of them. */
static IrValue sum_everywhere(Site *s, IrValue v, Sym name, IrType type, int64_t group)
{
    IrOpArgs args = {.kind = IR_OP_all_reduce, .in = &v, .n_in = 1, .name = name};
    args.out[0] = type;
    args.attrs[0] = "comm";
    args.values[0].sym = sym(s->p->c->s, "tp");
    args.attrs[1] = "ranks";
    args.values[1].i = group ? group : s->p->tp;
    args.attrs[2] = "group";
    args.values[2].i = group && group < s->p->tp ? group : 0;
    pass_stat(s->p->c, "sums over tp", 1);
    return ir_out(s->g, ir_build(&s->b, &args), 0);
}

/* A rank's share of a sum is f32 at least, so that the sum is rounded once, as on one rank. */
static IrType share_type(const Site *s, IrValue v)
{
    IrTypeInfo info = *ir_type_info(s->g->m, ir_value_type(s->g, v));
    if (dtype_bytes(info.dtype) < dtype_bytes(DTYPE_F32))
        info.dtype = DTYPE_F32;
    return ir_type(s->g->m, &info);
}

/* The sum takes the value's name, type and readers; the value becomes NAME.part of type `share`,
 * and its replay the replay of that. Of all tokens each rank gets the sums of its own, where it has
 * its own. */
static IrValue sum_result(Site *s, IrValue v, IrType share, int64_t group)
{
    Tokens *tokens = s->p->tokens;
    IrGraph *g = s->g;
    Sym name = ir_value(g, v)->name, re = ir_op(g, s->op)->re;
    IrType type = ir_value_type(g, v);
    ir_value_rename(g, v, ir_value_fresh_name(g, with_suffix(s, name, "part")));
    ir_value(g, v)->type = share;
    if (re)
        ir_op(g, s->op)->re = with_suffix(s, re, "part");
    s->b.re = re;
    uint32_t first = s->b.at;
    IrValue sum = tokens && !group && tokens_lead(tokens, type)
                      ? tokens_scatter(tokens, &s->b, v, name, re, type)
                      : sum_everywhere(s, v, name, type, group);
    ir_replace_uses(g, v, sum);
    ir_set_in(g, g->order.at[first], 0, v);
    s->b.re = NULL;
    return sum;
}

/* A product's bias is added once, behind the sum. */
static void add_bias(Site *s, IrValue sum, IrValue bias)
{
    IrGraph *g = s->g;
    Sym name = ir_value(g, sum)->name, re = ir_op(g, ir_value(g, sum)->op)->re;
    ir_value_rename(g, sum, ir_value_fresh_name(g, with_suffix(s, name, "sum")));
    if (re)
        ir_op(g, ir_value(g, sum)->op)->re = with_suffix(s, re, "sum");
    s->b.re = re;
    IrOpArgs args = {.kind = IR_OP_add, .in = (IrValue[]){sum, bias}, .n_in = 2, .name = name};
    IrOp op = ir_build(&s->b, &args);
    ir_replace_uses(g, sum, ir_out(g, op, 0));
    ir_set_in(g, op, 0, sum);
}

/* Is an axis divided in an operand, and not there in the result? */
static bool sums_divided(const Site *s)
{
    const IrModule *m = s->g->m;
    IrType out = ir_value_type(s->g, ir_out(s->g, s->op, 0));
    for (uint32_t i = 0; i < ir_op(s->g, s->op)->n_in; i++) {
        IrValue in = ir_in(s->g, s->op, i);
        const IrTypeInfo *info = ir_type_info(m, ir_value_type(s->g, in));
        for (uint32_t d = 0; in.i && d < info->rank; d++)
            for (uint32_t k = 0; k < info->dim[d].n; k++)
                if (info->dim[d].f[k].mesh == IR_MESH_TP &&
                    !divided(m, out, info->dim[d].f[k].axis))
                    return true;
    }
    return false;
}

/* Results that several ranks have the same part of, of which each has made its share. */
static int64_t sharing_ranks(const Site *s)
{
    const IrFactor *f = divided(s->g->m, ir_value_type(s->g, ir_out(s->g, s->op, 0)), NULL);
    return f ? s->p->tp / f->parts : 1;
}

static void split_sum(Site *s)
{
    IrOpKind kind = ir_op_kind(s->g, s->op);
    IrValue y = ir_out(s->g, s->op, 0),
            bias = kind == IR_OP_linear ? ir_in(s->g, s->op, 2) : (IrValue){0};
    bool weight_gradient = kind != IR_OP_linear && kind != IR_OP_linear_grad_x;
    if (sums_divided(s)) {
        if (bias.i)
            ir_set_in(s->g, s->op, 2, (IrValue){0});
        IrValue sum = sum_result(s, y, share_type(s, y), 0);
        if (bias.i)
            add_bias(s, sum, bias);
    } else if (weight_gradient && sharing_ranks(s) > 1) {
        sum_result(s, y, share_type(s, y), sharing_ranks(s));
    }
}

/* -- tables and heads that are divided by rows -- */

static void give_part(Partition *p, IrOpArgs *args, IrType table)
{
    uint32_t n = 0;
    while (args->attrs[n])
        n++;
    args->attrs[n] = "comm";
    args->values[n++].sym = sym(p->c->s, "tp");
    if (args->kind == IR_OP_embed_part_grad)
        return;
    const IrFactor *f = &ir_type_info(p->c->m, table)->dim[0].f[0];
    args->attrs[n] = "total";
    args->values[n].i = f->size;
}

static void copy_attrs(const Site *s, IrOpArgs *args)
{
    const IrOpInfo *info = ir_op_info(ir_op_kind(s->g, s->op));
    for (uint32_t i = 0; i < info->n_attr; i++) {
        args->attrs[i] = info->attr[i].name;
        args->values[i] = *ir_attr_at(s->g, s->op, info->attr[i].name);
    }
}

/* The op over this rank's rows stands for the old one, under its names. */
static IrOp replace_op(Site *s, IrOpArgs *args, IrType table)
{
    IrGraph *g = s->g;
    const IrOpRec old = *ir_op(g, s->op);
    copy_attrs(s, args);
    give_part(s->p, args, table);
    Sym names[IR_MAX_OUTS] = {NULL};
    for (uint32_t i = 0; i < old.n_out; i++)
        names[i] = ir_value(g, ir_out(g, s->op, i))->name;
    ir_op_remove(g, s->op);
    args->name = names[0];
    for (uint32_t i = 1; i < old.n_out; i++)
        args->out_names[i] = names[i];
    s->b.re = old.re;
    IrOp op = ir_build(&s->b, args);
    s->b.re = NULL;
    for (uint32_t i = 0; i < ir_op(g, op)->n_out && i < old.n_out; i++)
        ir_replace_uses(g, (IrValue){old.first_out + i}, ir_out(g, op, i));
    s->op = op;
    return op;
}

static void split_embed(Site *s)
{
    IrValue in[] = {ir_in(s->g, s->op, 0), ir_in(s->g, s->op, 1)};
    IrOpArgs args = {.kind = IR_OP_embed_part, .in = in, .n_in = 2};
    IrValue y = ir_out(s->g, replace_op(s, &args, ir_value_type(s->g, in[0])), 0);
    sum_result(s, y, ir_value_type(s->g, y), 0); /* a row of one rank, and zeros */
}

static void split_embed_grad(Site *s)
{
    IrValue in[] = {ir_in(s->g, s->op, 0), ir_in(s->g, s->op, 1)};
    IrType table = ir_value_type(s->g, ir_out(s->g, s->op, 0));
    IrOpArgs args = {.kind = IR_OP_embed_part_grad, .in = in, .n_in = 2, .out = {table}};
    replace_op(s, &args, table);
}

static void split_loss(Site *s)
{
    IrGraph *g = s->g;
    Session *session = s->p->c->s;
    IrValue h = ir_in(g, s->op, 0), w = ir_in(g, s->op, 1), targets = ir_in(g, s->op, 2);
    IrValue old[] = {ir_out(g, s->op, 0), ir_out(g, s->op, 1)};
    Sym names[] = {ir_value(g, old[0])->name, ir_value(g, old[1])->name};
    IrAttr ignore = *ir_attr_at(g, s->op, "ignore");
    IrOpArgs part = {.kind = IR_OP_lm_loss_part, .in = (IrValue[]){h, w, targets}, .n_in = 3};
    copy_attrs(s, &part);
    give_part(s->p, &part, ir_value_type(g, w));
    part.name = with_suffix(s, names[0], "part");
    ir_op_remove(g, s->op);
    IrValue mine = ir_out(g, ir_build(&s->b, &part), 0);
    IrTypeInfo all = {.dtype = ir_type_info(g->m, ir_value_type(g, mine))->dtype, .rank = 1};
    all.dim[0] = ir_dim_number(s->p->tp * ir_type_numel(g->m, ir_value_type(g, mine)));
    IrOpArgs gather = {.kind = IR_OP_all_gather,
                       .in = &mine,
                       .n_in = 1,
                       .name = with_suffix(s, names[0], "parts")};
    gather.out[0] = ir_type(g->m, &all);
    gather.attrs[0] = "comm";
    gather.values[0].sym = sym(session, "tp");
    gather.attrs[1] = "ranks";
    gather.values[1].i = s->p->tp;
    IrValue parts = ir_out(g, ir_build(&s->b, &gather), 0);
    IrOpArgs join = {.kind = IR_OP_lm_loss_join, .in = (IrValue[]){parts, targets}, .n_in = 2};
    join.name = names[0];
    join.out_names[1] = names[1];
    join.attrs[0] = "ignore";
    join.values[0] = ignore;
    join.attrs[1] = "n";
    join.values[1].i = s->p->tp;
    IrOp op = ir_build(&s->b, &join);
    for (uint32_t i = 0; i < 2; i++)
        ir_replace_uses(g, old[i], ir_out(g, op, i));
}

static bool is_read(const IrGraph *g, IrValue v)
{
    for (uint32_t i = 0; i < g->order.n; i++)
        for (uint32_t k = 0; k < ir_op(g, g->order.at[i])->n_in; k++)
            if (ir_in(g, g->order.at[i], k).i == v.i)
                return true;
    return false;
}

static void split_loss_grad(Site *s)
{
    IrGraph *g = s->g;
    IrValue in[5];
    for (uint32_t i = 0; i < 5; i++)
        in[i] = ir_in(g, s->op, i);
    IrOpArgs args = {.kind = IR_OP_lm_loss_part_grad, .in = in, .n_in = 5};
    for (uint32_t i = 0; i < 2; i++)
        args.out[i] = ir_value_type(g, ir_out(g, s->op, i));
    IrValue dh = ir_out(g, replace_op(s, &args, ir_value_type(g, in[2])), 0);
    if (is_read(g, dh))
        sum_result(s, dh, share_type(s, dh), 0);
}

/* -- the walk -- */

typedef void (*SplitFn)(Site *s);

/* What becomes of an op whose operands are divided; *out_whole: it must see all tokens. */
static SplitFn split_of(const IrGraph *g, IrOp op, bool *out_whole)
{
    static const SplitFn sums[IR_OP_COUNT] = {
        [IR_OP_linear] = split_sum,         [IR_OP_linear_grad_x] = split_sum,
        [IR_OP_linear_grad_w] = split_sum,  [IR_OP_sum_rows] = split_sum,
        [IR_OP_rmsnorm_grad_w] = split_sum, [IR_OP_layernorm_grad_w] = split_sum,
    };
    static const struct {
        SplitFn split;
        uint32_t table; /* operand; the result where it is behind the operands */
    } rows[IR_OP_COUNT] = {
        [IR_OP_embed] = {split_embed, 0},
        [IR_OP_embed_grad] = {split_embed_grad, 2},
        [IR_OP_lm_loss] = {split_loss, 1},
        [IR_OP_lm_loss_grad] = {split_loss_grad, 2},
    };
    IrOpKind kind = ir_op_kind(g, op);
    *out_whole = false;
    if (!rows[kind].split)
        return sums[kind];
    uint32_t at = rows[kind].table;
    IrValue table = at < ir_op(g, op)->n_in ? ir_in(g, op, at) : ir_out(g, op, 0);
    const IrDim *dim = &ir_type_info(g->m, ir_value_type(g, table))->dim[0];
    *out_whole = dim->n == 1 && dim->f[0].mesh == IR_MESH_TP;
    return *out_whole ? rows[kind].split : NULL;
}

/* Ops that need a whole row, or whose random numbers are drawn by its place. */
static const char *why_not(const IrGraph *g, IrOp op)
{
    IrValue x = ir_in(g, op, 0);
    const IrTypeInfo *info = ir_type_info(g->m, ir_value_type(g, x));
    const IrDim *last = info->rank ? &info->dim[info->rank - 1] : NULL;
    bool row = false;
    for (uint32_t k = 0; last && k < last->n; k++)
        row |= last->f[k].mesh == IR_MESH_TP && last->f[k].parts > 1;
    switch ((int)ir_op_kind(g, op)) {
    case IR_OP_rmsnorm:
    case IR_OP_layernorm:
        return row ? "a norm over a divided dim" : NULL;
    case IR_OP_dropout:
        return x.i && divided(g->m, ir_value_type(g, x), NULL) ? "dropout of a divided value"
                                                               : NULL;
    case IR_OP_attention:
        return ir_attr_f64(g, op, "dropout") > 0 ? "dropout in attention" : NULL;
    default:
        return NULL;
    }
}

/* Each rank has summed over its own tokens. */
static void sum_over_tokens(Site *s)
{
    for (uint32_t i = 0; i < ir_op(s->g, s->op)->n_out; i++) {
        IrValue y = ir_out(s->g, s->op, i);
        sum_result(s, y, share_type(s, y), 0);
    }
}

static void split_graph(Partition *p, IrGraph *g)
{
    if (p->tokens)
        tokens_enter(p->tokens, g);
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        bool reads_whole;
        SplitFn split = split_of(g, op, &reads_whole);
        TokensMode mode =
            p->tokens ? tokens_prepare(p->tokens, g, &i, reads_whole) : TOKENS_NONE;
        if (mode != TOKENS_NONE)
            split = mode == TOKENS_SUMMED ? sum_over_tokens : NULL;
        const char *why = why_not(g, op);
        if (why && p->status == STATUS_OK) {
            diag(p->c->s, ir_op(g, op)->span, tp_unsupported, why);
            p->status = STATUS_USER;
        }
        if (!split)
            continue;
        Site s = site_at(p, g, i);
        split(&s);
        i = s.b.at - 1;
    }
    ir_graph_compact(g);
}

static void split_norm(PassContext *c, IrGraph *g)
{
    NormItem *items = ARENA_ARRAY(c->scratch, NormItem, g->order.n);
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        if (ir_op_kind(g, op) != IR_OP_norm_sq)
            continue;
        IrValue grad = ir_in(g, op, 0);
        NormItem item = {
            .grad = grad, .name = ir_value(g, grad)->name, .scope = ir_op(g, op)->scope};
        item.span = ir_op(g, op)->span;
        item.parts = norm_parts(c->m, ir_value_type(g, grad));
        items[n++] = item;
    }
    norm_write(c, g, 0, items, n, NULL, 1);
}

Status pass_partition(PassContext *c)
{
    Partition p = {.c = c, .tp = c->m->mesh.tp};
    if (p.tp == 1)
        return STATUS_OK;
    TRY(check_axes(c, p.tp));
    divide_types(&p);
    TRY(partition_check(c, p.tp));
    p.tokens = tokens_new(c);
    for (uint32_t i = 0; i < c->m->graphs.n; i++)
        split_graph(&p, c->m->graphs.at[i]);
    if (ir_graph_find(c->m, "update"))
        split_norm(c, ir_graph_find(c->m, "update"));
    return p.status;
}
