/* grad: the gradient rules, one per GRAD column of the op table, and what a rule may ask of
 * autodiff. */
#ifndef PASSES_GRAD_H
#define PASSES_GRAD_H

#include "ir/ir.h"
#include "passes/pass.h"

/* One call of a rule: op stands in @fwd, the rule builds into @bwd through `b`. */
typedef struct GradCall {
    struct Autodiff *ad;
    IrBuilder *b;
    const IrGraph *fwd;
    IrOp op;
} GradCall;

/* the result's gradient; {0}: nothing reads it */
IrValue grad_dy(GradCall *c, uint32_t result);
/* the operand as @bwd has it: saved, replayed or a state */
IrValue grad_in(GradCall *c, uint32_t operand);
IrValue grad_out(GradCall *c, uint32_t result);          /* the result likewise */
/* does a trained parameter stand behind the operand? */
bool grad_wants(const GradCall *c, uint32_t operand);
/* of the operand's gradient: weights' in the grad dtype */
IrType grad_type(const GradCall *c, uint32_t operand);
/* what an op of the operand's gradient serves */
IrServes grad_serves(const GradCall *c, uint32_t operand);
void grad_give(GradCall *c, uint32_t operand, IrValue v); /* adds v to the operand's gradient */
/* of its last dim */
void grad_give_part(GradCall *c, uint32_t operand, uint32_t part, uint32_t parts, IrValue v);

typedef void (*GradRule)(GradCall *c);
GradRule grad_rule(IrOpKind kind); /* NULL: nothing flows back */

#endif
