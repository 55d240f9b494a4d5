/* canon: ops that do nothing are taken out. */
#include "passes/pass.h"

static bool does_nothing(const IrGraph *g, IrOp op)
{
    switch (ir_op_kind(g, op)) {
    case IR_OP_scale:
        return ir_attr_f64(g, op, "factor") == 1.0;
    case IR_OP_dropout:
        return ir_attr_f64(g, op, "p") == 0.0;
    case IR_OP_reshape:
    case IR_OP_cast:
        return ir_value_type(g, ir_out(g, op, 0)).i == ir_value_type(g, ir_in(g, op, 0)).i;
    default:
        return false;
    }
}

Status pass_canon(PassContext *c)
{
    for (uint32_t k = 0; k < c->m->graphs.n; k++) {
        IrGraph *g = c->m->graphs.at[k];
        for (uint32_t i = 0; i < g->order.n; i++) {
            IrOp op = g->order.at[i];
            if (!does_nothing(g, op))
                continue;
            ir_replace_uses(g, ir_out(g, op, 0), ir_in(g, op, 0));
            ir_op_remove(g, op);
            pass_stat(c, "ops removed", 1);
        }
        ir_graph_compact(g);
    }
    return STATUS_OK;
}
