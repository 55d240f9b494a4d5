/* cost: FLOPs and bytes of an op, from shapes and attributes alone (column COST of ir/ops.def). */
#ifndef PASSES_COST_H
#define PASSES_COST_H

#include "ir/ir.h"
#include "passes/options.h"

typedef struct PassCost {
    uint64_t flops;    /* all arithmetic that the op does */
    uint64_t products; /* matrix products and attention that the model asks for: what MFU counts */
    uint64_t replayed; /* the part of `flops` that repeats work of the forward pass */
    uint64_t bytes;    /* operands read and results written, once each */
} PassCost;

/* `uses`: results that nobody reads cost nothing. */
PassCost pass_cost_op(const IrGraph *g, const IrUses *uses, IrOp op);

/* Seconds on the target; `bytes` are those that reach memory. */
double pass_cost_seconds(PassTarget target, uint64_t products, uint64_t flops, uint64_t bytes);

/* Seconds that an exchange between ranks takes, beside which nothing else runs. */
double pass_cost_exchange(PassTarget target, const IrGraph *g, IrOp op);

/* Pairs (query, key) that a mask shows, in one row of `seq` queries and `keys` keys. */
uint64_t pass_cost_visible_pairs(int64_t seq, int64_t keys, bool causal, int64_t window);

#endif
