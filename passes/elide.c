/* elide: in the backward pass, where gradients of one value have each been summed over ranks and
 * are then added, the ranks' shares are added first and summed once: the three products that read
 * a block's normalised input send one message back, not three. */
#include <string.h>

#include "passes/pass.h"

typedef struct Sum { /* of what `share` has on each rank */
    IrOp op, pack; /* pack: what pads the share; {0}: nothing */
    IrValue share;
} Sum;

static bool is_read_once(const IrGraph *g, const IrUses *uses, IrValue v)
{
    (void)g;
    return uses->first[v.i + 1] - uses->first[v.i] == 1 && !uses->is_result[v.i];
}

static IrOp op_of(const IrGraph *g, IrValue v)
{
    return ir_value(g, v)->def == IR_DEF_RESULT ? ir_value(g, v)->op : (IrOp){0};
}

static bool is_gradient(const IrGraph *g, IrOp op)
{
    return ir_op(g, op)->serves && !ir_op(g, op)->re && !ir_op(g, op)->region.i;
}

/* A sum over ranks that only the addition reads, of a share that nobody else reads. */
static bool find_sum(const IrGraph *g, const IrUses *uses, IrValue v, Sum *out)
{
    *out = (Sum){.op = op_of(g, v)};
    IrOpKind kind = out->op.i ? ir_op_kind(g, out->op) : IR_OP_none;
    if ((kind != IR_OP_all_reduce && kind != IR_OP_reduce_scatter) ||
        !is_gradient(g, out->op) || !is_read_once(g, uses, v))
        return false;
    out->share = ir_in(g, out->op, 0);
    IrOp pack = op_of(g, out->share);
    if (pack.i && ir_op_kind(g, pack) == IR_OP_flat_pack && ir_op(g, pack)->n_in == 1) {
        if (!is_read_once(g, uses, out->share))
            return false;
        out->pack = pack;
        out->share = ir_in(g, pack, 0);
    }
    return is_read_once(g, uses, out->share);
}

static bool are_alike(const IrGraph *g, const Sum *a, const Sum *b)
{
    const IrOpInfo *info = ir_op_info(ir_op_kind(g, a->op));
    if (ir_op_kind(g, a->op) != ir_op_kind(g, b->op) || !a->pack.i != !b->pack.i ||
        ir_value_type(g, a->share).i != ir_value_type(g, b->share).i ||
        ir_value_type(g, ir_out(g, a->op, 0)).i != ir_value_type(g, ir_out(g, b->op, 0)).i)
        return false;
    for (uint32_t i = 0; i < info->n_attr; i++)
        if (memcmp(&g->attrs.at[ir_op(g, a->op)->first_attr + i],
                   &g->attrs.at[ir_op(g, b->op)->first_attr + i], sizeof(IrAttr)))
            return false;
    return true;
}

static IrValue build_like(IrBuilder *b, IrOp like, IrValue in, Sym name)
{
    IrGraph *g = b->g;
    const IrOpInfo *info = ir_op_info(ir_op_kind(g, like));
    IrOpArgs args = {.kind = ir_op_kind(g, like), .in = &in, .n_in = 1, .name = name};
    args.out[0] = ir_value_type(g, ir_out(g, like, 0));
    for (uint32_t i = 0; i < info->n_attr; i++) {
        args.attrs[i] = info->attr[i].name;
        args.values[i] = *ir_attr_at(g, like, info->attr[i].name);
    }
    return ir_out(g, ir_build(b, &args), 0);
}

/* At the addition's place: the shares' sum, then the ranks'. */
static void merge(PassContext *c, IrGraph *g, uint32_t at, const Sum *x, const Sum *y)
{
    IrOp add = g->order.at[at];
    const IrOpRec rec = *ir_op(g, add);
    IrValue old = ir_out(g, add, 0), in[] = {x->share, y->share};
    Sym name = ir_value(g, old)->name;
    IrBuilder b = ir_builder(g);
    b.at = at;
    b.scope = rec.scope;
    b.serves = (IrServes)rec.serves;
    b.span = rec.span;
    ir_value_rename(g, old, ir_value_fresh_name(g, sym(c->s, "added")));
    IrOpArgs args = {.kind = IR_OP_add, .in = in, .n_in = 2};
    args.name = intern_printf(&c->s->interner, "%s.part", name);
    IrValue v = ir_out(g, ir_build(&b, &args), 0);
    if (x->pack.i)
        v = build_like(&b, x->pack, v, intern_printf(&c->s->interner, "%s.padded", name));
    v = build_like(&b, x->op, v, name);
    ir_replace_uses(g, old, v);
    const IrOp gone[] = {add, x->op, y->op, x->pack, y->pack};
    for (uint32_t i = 0; i < sizeof gone / sizeof *gone; i++)
        if (gone[i].i)
            ir_op_remove(g, gone[i]);
    ir_graph_compact(g);
    pass_stat(c, "sums over ranks merged", 1);
}

static bool merge_at(PassContext *c, IrGraph *g, uint32_t at, const IrUses *uses)
{
    IrOp add = g->order.at[at];
    Sum x, y;
    if (ir_op_kind(g, add) != IR_OP_add || !is_gradient(g, add) ||
        ir_in(g, add, 0).i == ir_in(g, add, 1).i || !find_sum(g, uses, ir_in(g, add, 0), &x) ||
        !find_sum(g, uses, ir_in(g, add, 1), &y) || !are_alike(g, &x, &y))
        return false;
    merge(c, g, at, &x, &y);
    return true;
}

Status pass_elide(PassContext *c)
{
    IrGraph *g = ir_graph_find(c->m, "bwd");
    if (c->m->mesh.tp == 1 || !g)
        return STATUS_OK;
    IrUses uses = ir_uses(g, c->scratch);
    for (uint32_t i = 0; i < g->order.n; i++) {
        if (!merge_at(c, g, i, &uses))
            continue;
        uses = ir_uses(g, c->scratch);
        i = i > 8 ? i - 8 : 0; /* what is merged may be added to once more */
    }
    return STATUS_OK;
}
