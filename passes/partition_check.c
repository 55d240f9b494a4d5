/* partition_check: what of a definition cannot be divided. On a rank, an op sees the parts that its
 * operands' types say; here it is refused where that is not a part of what it does on one rank.
 *
 *   types      have one divided factor at most, and integers none; the op's shape function takes
 *              the local ones: operands that meet are divided alike, and reshapes and slices keep
 *              what stands before a divided factor
 *   sums       over a divided dim: only a product's, and each element is on one rank alone
 *   shared     factors that several ranks have the same part of (kv heads where they are too
 *              few) are read by products of their own rows, and by attention of heads that all
 *              ranks divide: what flows back is then each rank's share, everywhere
 */
#include "passes/partition.h"

#include <inttypes.h>

#include "base/diag.h"
#include "ir/verify.h"

typedef struct Check { /* of an op */
    PassContext *c;
    int64_t tp;
    const IrGraph *g;
    IrOp op;
} Check;

/* The divided factor of a type, and the product of what stands before and behind it in its dim;
 * f NULL: there is none. */
typedef struct Cut {
    const IrFactor *f;
    uint32_t dim;
    int64_t before, behind;
} Cut;

static Cut cut_of(const Check *k, IrValue v)
{
    const IrTypeInfo *info = ir_type_info(k->c->m, ir_value_type(k->g, v));
    for (uint32_t i = 0; v.i && i < info->rank; i++) {
        Cut cut = {.dim = i, .before = 1, .behind = 1};
        for (uint32_t j = 0; j < info->dim[i].n; j++) {
            const IrFactor *f = &info->dim[i].f[j];
            if (f->mesh == IR_MESH_TP)
                cut.f = f;
            else
                *(cut.f ? &cut.behind : &cut.before) *= f->size;
        }
        if (cut.f)
            return cut;
    }
    return (Cut){0};
}

static uint32_t last_dim(const Check *k, IrValue v)
{
    return ir_type_info(k->c->m, ir_value_type(k->g, v))->rank - 1;
}

static const char *type_text(const Check *k, IrValue v)
{
    return ir_type_text(k->c->m, ir_value_type(k->g, v));
}

#define WHY(k, ...) arena_printf((k)->c->s->arena, __VA_ARGS__)

/* -- types -- */

static const char *why_not_type(PassContext *c, int64_t tp, IrType type)
{
    const IrTypeInfo *info = ir_type_info(c->m, type);
    uint32_t n = 0;
    for (uint32_t i = 0; i < info->rank; i++)
        for (uint32_t j = 0; j < info->dim[i].n; j++) {
            const IrFactor *f = &info->dim[i].f[j];
            n += f->mesh == IR_MESH_TP;
            if (f->mesh == IR_MESH_TP && !f->parts)
                return arena_printf(c->s->arena, "tp=%" PRId64 " does not divide %s=%" PRId64, tp,
                                    f->axis, f->size);
        }
    if (n > 1)
        return arena_printf(c->s->arena, "%s is divided twice, and may be once",
                            ir_type_text(c->m, type));
    if (n && !dtype_is_float(info->dtype))
        return arena_printf(c->s->arena, "an input over a divided dim, %s",
                            ir_type_text(c->m, type));
    return NULL;
}

static const char *why_not_types(const Check *k)
{
    const IrOpRec *rec = ir_op(k->g, k->op);
    const char *why = NULL;
    for (uint32_t i = 0; !why && i < rec->n_in; i++)
        why = why_not_type(k->c, k->tp, ir_value_type(k->g, ir_in(k->g, k->op, i)));
    for (uint32_t i = 0; !why && i < rec->n_out; i++)
        why = why_not_type(k->c, k->tp, ir_value_type(k->g, ir_out(k->g, k->op, i)));
    return why ? why : ir_verify_types(k->g, k->op, k->c->scratch);
}

/* -- kinds -- */

/* Parts that are all equal, one on each rank: a sum over ranks counts each element once. */
static bool is_once(const Check *k, const IrFactor *f)
{
    return f->parts == k->tp && f->size % f->parts == 0;
}

static const char *why_not_sum(const Check *k, IrValue x)
{
    Cut cut = cut_of(k, x);
    if (!cut.f || cut.dim != last_dim(k, x) || is_once(k, cut.f))
        return NULL;
    if (cut.f->parts < k->tp)
        return WHY(k, "a sum over %s=%" PRId64 ", of which several ranks have the same part",
                   cut.f->axis, cut.f->size);
    return WHY(k, "a sum over %s=%" PRId64 ", which tp=%" PRId64 " does not divide", cut.f->axis,
               cut.f->size, k->tp);
}

/* Rows of a table are found by their number: each rank has a run of them. */
static const char *why_not_rows(const Check *k, IrValue table)
{
    Cut cut = cut_of(k, table);
    if (cut.f && cut.f->parts < k->tp)
        return WHY(k, "a table %s, of which several ranks have the same part",
                   type_text(k, table));
    if (cut.f && cut.dim == 0 && (cut.before != 1 || cut.behind != 1))
        return WHY(k, "a table %s, of which no rank has one run of rows", type_text(k, table));
    return NULL;
}

static const char *why_not_loss(const Check *k, IrValue h, IrValue w)
{
    if (cut_of(k, h).f)
        return WHY(k, "a loss over a divided dim, %s", type_text(k, h));
    return why_not_rows(k, w);
}

/* A query head and the kv head that it reads must be on one rank. */
static const char *why_not_heads(const Check *k, IrValue q, IrValue kv)
{
    enum { HEADS = 2 };
    Cut a = cut_of(k, q), b = cut_of(k, kv);
    if (!a.f && !b.f)
        return NULL;
    if ((a.f && a.dim != HEADS) || (b.f && b.dim != HEADS))
        return WHY(k, "attention over a divided dim, %s", type_text(k, a.f ? q : kv));
    bool fits = a.f && b.f && is_once(k, a.f);
    if (fits && b.f->parts < k->tp)
        fits = a.before == 1 && b.before == 1 && b.behind == 1;
    else if (fits)
        fits = a.before == b.before && is_once(k, b.f);
    if (fits)
        return NULL;
    if (a.f && a.f->parts < k->tp)
        return WHY(k, "attention of heads %s, of which several ranks have the same part",
                   type_text(k, q));
    return WHY(k, "attention of heads %s, which are not divided as k and v, %s", type_text(k, q),
               type_text(k, kv));
}

/* What is spread over a rank's part must be a part itself, or whole: of `[kv_heads]` where that is
 * 1, all ranks would have the whole gradient, and no share. */
static const char *why_not_spread(const Check *k, IrValue a, IrValue b)
{
    return cut_of(k, b).f && !cut_of(k, a).f
               ? WHY(k, "%s is divided, and %s is not", type_text(k, b), type_text(k, a))
               : NULL;
}

static const char *why_not_kind(const Check *k)
{
    IrValue a = ir_in(k->g, k->op, 0), b = ir_in(k->g, k->op, 1);
    switch ((int)ir_op_kind(k->g, k->op)) {
    case IR_OP_linear:
        return why_not_sum(k, a);
    case IR_OP_embed:
        return why_not_rows(k, a);
    case IR_OP_lm_loss:
        return why_not_loss(k, a, b);
    case IR_OP_attention:
        return why_not_heads(k, a, b);
    case IR_OP_rope: {
        Cut cut = cut_of(k, a);
        return cut.f && cut.dim == last_dim(k, a) ? "rope over a divided dim" : NULL;
    }
    case IR_OP_add:
    case IR_OP_sub:
    case IR_OP_mul:
        return why_not_spread(k, a, b);
    default:
        return NULL;
    }
}

static Status refuse(PassContext *c, Span span, const char *why)
{
    diag(c->s, span, tp_unsupported, why);
    return STATUS_USER;
}

static Status check_graph(PassContext *c, int64_t tp, const IrGraph *g)
{
    for (uint32_t i = 0; i < g->order.n; i++) {
        Check k = {.c = c, .tp = tp, .g = g, .op = g->order.at[i]};
        const char *why = why_not_types(&k);
        if (!why)
            why = why_not_kind(&k);
        if (why)
            return refuse(c, ir_op(g, k.op)->span, why);
    }
    return STATUS_OK;
}

Status partition_check(PassContext *c, int64_t tp)
{
    for (uint32_t i = 1; i < c->m->states.n; i++) {
        const char *why = why_not_type(c, tp, c->m->states.at[i].type);
        if (why)
            return refuse(c, c->m->states.at[i].span, why);
    }
    for (uint32_t i = 0; i < c->m->graphs.n; i++)
        TRY(check_graph(c, tp, c->m->graphs.at[i]));
    return STATUS_OK;
}
