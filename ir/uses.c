#include "ir/ir.h"

/* Two passes over the live order: count, then fill, so that each value's uses stand in order. */
IrUses ir_uses(const IrGraph *g, Arena *arena)
{
    IrUses uses = {.first = ARENA_ARRAY(arena, uint32_t, g->values.n + 2),
                   .is_result = ARENA_ARRAY(arena, unsigned char, g->values.n),
                   .epoch = g->epoch};
    uint32_t *count = uses.first + 1; /* count[v + 1] becomes first[v + 1] by the running sum */
    for (uint32_t i = 0; i < g->order.n; i++) {
        const IrOpRec *rec = ir_op(g, g->order.at[i]);
        for (uint32_t j = 0; !rec->dead && j < rec->n_in; j++)
            count[g->operands.at[rec->first_in + j].i]++;
    }
    count[0] = 0; /* absent operands are no uses */
    for (uint32_t v = 0; v < g->values.n; v++)
        uses.first[v + 1] += uses.first[v];
    uses.at = ARENA_ARRAY(arena, IrOp, uses.first[g->values.n] + 1);
    uint32_t *next = ARENA_ARRAY(arena, uint32_t, g->values.n);
    memcpy(next, uses.first, g->values.n * sizeof *next);
    for (uint32_t i = 0; i < g->order.n; i++) {
        const IrOpRec *rec = ir_op(g, g->order.at[i]);
        for (uint32_t j = 0; !rec->dead && j < rec->n_in; j++) {
            uint32_t v = g->operands.at[rec->first_in + j].i;
            if (v)
                uses.at[next[v]++] = g->order.at[i];
        }
    }
    for (uint32_t i = 0; i < g->results.n; i++)
        uses.is_result[g->results.at[i].i] = 1;
    return uses;
}

uint32_t *ir_positions(const IrGraph *g, Arena *arena)
{
    uint32_t *positions = ARENA_ARRAY(arena, uint32_t, g->ops.n);
    for (uint32_t i = 0; i < g->order.n; i++)
        positions[g->order.at[i].i] = i;
    return positions;
}
