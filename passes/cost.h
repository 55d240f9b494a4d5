/* cost: FLOPs and bytes of an op, from shapes and attributes alone (column COST of ir/ops.def). */
#ifndef PASSES_COST_H
#define PASSES_COST_H

#include "ir/ir.h"
#include "passes/options.h"

typedef struct PassCost {
    uint64_t flops;    /* all arithmetic that the op does */
    uint64_t products; /* matrix products and attention that the model asks for: what MFU counts */
    uint64_t attention; /* the part of `flops` that is attention's */
    uint64_t replayed; /* the part of `flops` that repeats work of the forward pass */
    uint64_t bytes;    /* operands read and results written, once each */
} PassCost;

/* `uses`: results that nobody reads cost nothing. */
PassCost pass_cost_op(const IrGraph *g, const IrUses *uses, IrOp op);

/* Seconds that an instruction takes on the target. products: with attention's; bytes: those that
 * reach memory. */
typedef struct PassWork {
    uint64_t products, attention, flops, bytes;
} PassWork;

double pass_cost_seconds(PassTarget target, const PassWork *work);

/* Seconds that an exchange between ranks adds: all that it takes, or the share of it that is lost
 * where the module's exchanges run beside kernels; tensor-parallel ranks' never do. */
double pass_cost_exchange(PassTarget target, const IrGraph *g, IrOp op);

/* Pairs (query, key) that a mask shows, in one row of `seq` queries and `keys` keys. */
uint64_t pass_cost_visible_pairs(int64_t seq, int64_t keys, bool causal, int64_t window);

#endif
