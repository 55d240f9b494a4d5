/* dce: pure ops whose results nobody reads are taken out, last first, so that chains go in one
 * sweep. */
#include "passes/pass.h"

Status pass_dce(PassContext *c)
{
    for (uint32_t k = 0; k < c->m->graphs.n; k++) {
        IrGraph *g = c->m->graphs.at[k];
        unsigned char *read = ARENA_ARRAY(c->scratch, unsigned char, g->values.n);
        for (uint32_t i = 0; i < g->results.n; i++)
            read[g->results.at[i].i] = 1;
        for (uint32_t i = g->order.n; i-- > 0;) {
            IrOp op = g->order.at[i];
            const IrOpRec *rec = ir_op(g, op);
            bool live = !(ir_op_info(ir_op_kind(g, op))->traits & IR_PURE);
            for (uint32_t r = 0; r < rec->n_out; r++)
                live |= read[rec->first_out + r] != 0;
            if (!live) {
                ir_op_remove(g, op);
                pass_stat(c, "ops removed", 1);
                continue;
            }
            for (uint32_t n = 0; n < rec->n_in; n++)
                read[ir_in(g, op, n).i] = 1;
        }
        ir_graph_compact(g);
    }
    return STATUS_OK;
}
