/* head: a head's loss and its gradient become one op, which makes the logits once. They meet in
 * @step, where the gradient follows its loss; the count that the gradient is divided by is known
 * before both. */
#include "passes/pass.h"

#include "base/diag.h"

/* A gradient narrower than the sums over chunks of tokens is summed beside itself. Above this
 * many bytes of sums the memory is worth more than one product. */
enum { MOST_SUM_BYTES = 2000 << 20 };

typedef struct Head {
    IrGraph *g;
    const IrUses *uses;
    IrOp loss, grad;
} Head;

static bool has_uses(const Head *h, IrValue v)
{
    return h->uses->first[v.i + 1] > h->uses->first[v.i] || h->uses->is_result[v.i];
}

static IrOp view_of(const IrGraph *g, IrValue v)
{
    const IrValueRec *rec = ir_value(g, v);
    bool is_piece = rec->def == IR_DEF_RESULT && ir_op_kind(g, rec->op) == IR_OP_flat_piece;
    return is_piece ? rec->op : (IrOp){0};
}

/* Also two views of the same piece of a unit's weights, which both graphs have made. */
static bool is_same(const IrGraph *g, IrValue a, IrValue b)
{
    IrOp x = view_of(g, a), y = view_of(g, b);
    return a.i == b.i ||
           (x.i && y.i && ir_in(g, x, 0).i == ir_in(g, y, 0).i &&
            ir_attr_i64(g, x, "offset") == ir_attr_i64(g, y, "offset") &&
            ir_value_type(g, a).i == ir_value_type(g, b).i);
}

/* The one op that reads the loss's lse, if that is its gradient over the same operands. */
static bool find_grad(Head *h)
{
    enum { SEED, FIRST = 1, OPERANDS = 3 };
    IrValue lse = ir_out(h->g, h->loss, 1);
    uint32_t first = h->uses->first[lse.i];
    if (h->uses->first[lse.i + 1] != first + 1 || h->uses->is_result[lse.i])
        return false;
    h->grad = h->uses->at[first];
    if (ir_op_kind(h->g, h->grad) != IR_OP_lm_loss_grad)
        return false;
    for (uint32_t i = 0; i < OPERANDS; i++)
        if (!is_same(h->g, ir_in(h->g, h->grad, FIRST + i), ir_in(h->g, h->loss, i)))
            return false;
    return ir_value(h->g, ir_in(h->g, h->grad, SEED))->def == IR_DEF_STATE;
}

static bool is_worth_its_sums(PassContext *c, const Head *h)
{
    IrValue dw = ir_out(h->g, h->grad, 1);
    const IrTypeInfo *type = ir_type_info(c->m, ir_value_type(h->g, dw));
    if (!has_uses(h, dw) || type->dtype != DTYPE_BF16)
        return true;
    int64_t bytes = ir_type_numel(c->m, ir_value_type(h->g, dw)) * 4;
    if (bytes <= MOST_SUM_BYTES)
        return true;
    if (ir_op(h->g, h->loss)->instance == 0)
        diag(c->s, ir_op(h->g, h->loss)->span, head_apart, (long long)bytes);
    return false;
}

static void take_over(IrGraph *g, IrValue fresh, IrValue old, Sym *out_name)
{
    *out_name = ir_value(g, old)->name;
    ir_replace_uses(g, old, fresh);
}

/* Built where the loss was made. */
static void join(const Head *h, uint32_t at)
{
    IrGraph *g = h->g;
    IrOpRec loss = *ir_op(g, h->loss);
    IrBuilder b = ir_builder(g);
    b.at = at;
    b.scope = loss.scope;
    b.span = loss.span;
    b.region = loss.region;
    b.serves = ir_op(g, h->grad)->serves;
    IrOpArgs args = {.kind = IR_OP_lm_loss_with_grad, .n_in = 4, .attrs = {"softcap", "ignore"}};
    args.in = (IrValue[]){ir_in(g, h->grad, 0), ir_in(g, h->loss, 0), ir_in(g, h->loss, 1),
                          ir_in(g, h->loss, 2)};
    args.values[0].f = ir_attr_f64(g, h->loss, "softcap");
    args.values[1].i = ir_attr_i64(g, h->loss, "ignore");
    args.out[2] = ir_value_type(g, ir_out(g, h->grad, 1));
    IrOp joint = ir_build(&b, &args);
    ir_op(g, joint)->graph = loss.graph;
    ir_op(g, joint)->instance = loss.instance;

    IrValue w = ir_in(g, h->grad, 2); /* a view that only the gradient has read goes with it */
    if (w.i != args.in[2].i && h->uses->first[w.i + 1] == h->uses->first[w.i] + 1)
        ir_op_remove(g, view_of(g, w));
    Sym name[3];
    take_over(g, ir_out(g, joint, 0), ir_out(g, h->loss, 0), &name[0]);
    for (uint32_t i = 0; i < 2; i++)
        take_over(g, ir_out(g, joint, 1 + i), ir_out(g, h->grad, i), &name[1 + i]);
    ir_op_remove(g, h->loss);
    ir_op_remove(g, h->grad);
    ir_graph_compact(g);
    for (uint32_t i = 0; i < 3; i++)
        ir_value_rename(g, ir_out(g, joint, i), name[i]);
}

Status pass_head(PassContext *c)
{
    IrGraph *g = ir_graph_find(c->m, "step");
    IrUses uses = {0}; /* of one head's values no other changes */
    if (g)
        uses = ir_uses(g, c->scratch);
    for (uint32_t i = 0; g && i < g->order.n; i++) {
        if (ir_op_kind(g, g->order.at[i]) != IR_OP_lm_loss)
            continue;
        Head head = {.g = g, .uses = &uses, .loss = g->order.at[i]};
        if (!find_grad(&head) || !is_worth_its_sums(c, &head))
            continue;
        join(&head, i);
        pass_stat(c, "heads joined", 1);
    }
    return STATUS_OK;
}
