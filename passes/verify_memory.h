/* verify_memory: what the two halves of the memory verifier share. Nothing of it is the planner's.
 */
#ifndef PASSES_VERIFY_MEMORY_H
#define PASSES_VERIFY_MEMORY_H

#include "passes/pass.h"

typedef struct MemoryVerifier {
    PassContext *c;
    const IrGraph *g;
    uint32_t *when; /* by op: the moment of its code; ops of one kernel share theirs, views have
                       that of the op before */
    uint32_t *seen; /* by op: 1 + its place in the order; 0 so far */
    uint32_t n_moments;
    IrOp *first_at; /* by moment: its first op */
    Status status;
} MemoryVerifier;

/* A value's or op's name with its sigil, for messages. */
const char *verify_memory_name(const MemoryVerifier *v, IrValue value);
const char *verify_memory_op_name(const MemoryVerifier *v, IrOp op);
/* Does the op run code, or only say where elements are? */
bool verify_memory_runs(const IrGraph *g, IrOp op);

/* Everything that has memory, over the time in which it is needed: no two share a byte. */
void verify_memory_overlap(MemoryVerifier *v);

#endif
