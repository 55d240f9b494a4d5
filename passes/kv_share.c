/* kv-share: K/V cache ops become dataflow. A layer that owns its K/V passes them through its
 * update; a sharing layer's read is the no-op update: the producer's values themselves. No cache
 * op survives. */
#include "passes/pass.h"

#include <string.h>

#include "base/diag.h"

static Status check_update(PassContext *c, const IrGraph *g, IrOp op)
{
    bool replays = strcmp(c->options->recompute_policy, "none") != 0;
    if (!replays || strcmp(ir_attr_sym(g, op, "mode"), "append"))
        return STATUS_OK;
    diag(c->s, ir_op(g, op)->span, kv_append, ir_attr_sym(g, op, "slot"),
         c->options->recompute_policy);
    return STATUS_USER;
}

static void pass_through(IrGraph *g, IrOp op, IrValue k, IrValue v)
{
    ir_replace_uses(g, ir_out(g, op, 0), k);
    ir_replace_uses(g, ir_out(g, op, 1), v);
    ir_op_remove(g, op);
}

Status pass_kv_share(PassContext *c)
{
    for (uint32_t n = 0; n < c->m->graphs.n; n++) {
        IrGraph *g = c->m->graphs.at[n];
        Map slots; /* slot -> its last update */
        map_init(&slots, c->scratch);
        for (uint32_t i = 0; i < g->order.n; i++) {
            IrOp op = g->order.at[i];
            uint64_t update;
            if (ir_op_kind(g, op) == IR_OP_cache_update) {
                TRY(check_update(c, g, op));
                map_put(&slots, map_key(ir_attr_sym(g, op, "slot")), op.i);
                pass_through(g, op, ir_in(g, op, 0), ir_in(g, op, 1));
                pass_stat(c, "updates passed through", 1);
            } else if (ir_op_kind(g, op) == IR_OP_cache_read) {
                if (!map_get(&slots, map_key(ir_attr_sym(g, op, "slot")), &update)) {
                    diag(c->s, ir_op(g, op)->span, kv_no_producer, ir_attr_sym(g, op, "slot"));
                    return STATUS_USER;
                }
                IrOp producer = {(uint32_t)update};
                pass_through(g, op, ir_in(g, producer, 0), ir_in(g, producer, 1));
                pass_stat(c, "reads shared", 1);
            }
        }
        ir_graph_compact(g);
    }
    return STATUS_OK;
}
