/* cse: equal pure ops are merged. Only within one block, or with an op outside every block:
 * merging across blocks would make a value of one block live in another, and recompute would
 * have to keep it. */
#include "passes/pass.h"

#include <string.h>

static uint64_t op_hash(const IrGraph *g, IrOp op)
{
    const IrOpRec *rec = ir_op(g, op);
    uint64_t hash = map_hash(&rec->kind, sizeof rec->kind, 1);
    if (rec->n_in)
        hash = map_hash(&g->operands.at[rec->first_in], rec->n_in * sizeof(IrValue), hash);
    uint32_t n_attr = ir_op_info(ir_op_kind(g, op))->n_attr;
    if (n_attr)
        hash = map_hash(&g->attrs.at[rec->first_attr], n_attr * sizeof(IrAttr), hash);
    for (uint32_t r = 0; r < rec->n_out; r++) {
        IrType type = ir_value_type(g, ir_out(g, op, r));
        hash = map_hash(&type, sizeof type, hash);
    }
    return hash;
}

static bool ops_equal(const IrGraph *g, IrOp a, IrOp b)
{
    const IrOpRec *x = ir_op(g, a), *y = ir_op(g, b);
    if (x->kind != y->kind || x->n_in != y->n_in)
        return false;
    for (uint32_t i = 0; i < x->n_in; i++)
        if (ir_in(g, a, i).i != ir_in(g, b, i).i)
            return false;
    uint32_t n_attr = ir_op_info(ir_op_kind(g, a))->n_attr;
    if (n_attr &&
        memcmp(&g->attrs.at[x->first_attr], &g->attrs.at[y->first_attr], n_attr * sizeof(IrAttr)))
        return false;
    for (uint32_t r = 0; r < x->n_out; r++)
        if (ir_value_type(g, ir_out(g, a, r)).i != ir_value_type(g, ir_out(g, b, r)).i)
            return false;
    return true;
}

static bool may_merge(const IrGraph *g, IrOp first, IrOp second)
{
    IrScope a = ir_scope_block(g->m, ir_op(g, first)->scope),
            b = ir_scope_block(g->m, ir_op(g, second)->scope);
    return (a.i == 0 || a.i == b.i) && ops_equal(g, first, second);
}

Status pass_cse(PassContext *c)
{
    for (uint32_t k = 0; k < c->m->graphs.n; k++) {
        IrGraph *g = c->m->graphs.at[k];
        Map seen;
        map_init(&seen, c->scratch);
        for (uint32_t i = 0; i < g->order.n; i++) {
            IrOp op = g->order.at[i];
            if (!(ir_op_info(ir_op_kind(g, op))->traits & IR_PURE))
                continue;
            uint64_t hash = op_hash(g, op), first;
            if (!map_get(&seen, hash, &first) || !may_merge(g, (IrOp){(uint32_t)first}, op)) {
                map_put(&seen, hash, op.i);
                continue;
            }
            for (uint32_t r = 0; r < ir_op(g, op)->n_out; r++)
                ir_replace_uses(g, ir_out(g, op, r), ir_out(g, (IrOp){(uint32_t)first}, r));
            ir_op_remove(g, op);
            pass_stat(c, "ops merged", 1);
        }
        ir_graph_compact(g);
    }
    return STATUS_OK;
}
