/* lifetime: a PLANNED graph as a list of instructions, and when each buffer of the transient arena
 * is alive. An instruction is a kernel region or an op with code; all that it touches is alive
 * together. Storage is shared as IrPlace says: a view lives in its base; values inside one region
 * have none. Where exchanges run beside kernels, what a sum over ranks touches is alive until its
 * result is read or the next sum begins, within its graph's instance. */
#ifndef PASSES_LIFETIME_H
#define PASSES_LIFETIME_H

#include "ir/ir.h"

#define PASS_NO_INSTR UINT32_MAX
#define PASS_NO_BUFFER UINT32_MAX

typedef struct PassBuffer {
    IrValue value;       /* a base: its elements are here; {0}: workspace */
    IrOp op;             /* the first that writes it; the one whose workspace it is */
    uint32_t begin, end; /* instructions, both included */
    uint64_t bytes;      /* not rounded */
} PassBuffer;

typedef struct PassLifetimes {
    const IrGraph *g;
    uint32_t n_instrs;
    uint32_t *instr;  /* by op index: its instruction; PASS_NO_INSTR: no code */
    IrOp *first_op;   /* by instruction */
    uint32_t *buffer; /* by value index: where its elements are; PASS_NO_BUFFER: a state, an input,
                         nowhere */
    VEC(PassBuffer) buffers; /* in order of `begin` */
} PassLifetimes;

/* All arrays are the arena's. */
PassLifetimes pass_lifetimes(const IrGraph *g, Arena *arena);

/* False for ops that only say where elements are: views, and from memplan on a concat whose parts
 * are written in place. */
bool pass_has_code(const IrGraph *g, IrOp op);
/* The value that owns the memory of v. */
static inline IrValue pass_base(const IrGraph *g, IrValue v)
{
    IrValue base = ir_value(g, v)->place.base;
    return base.i ? base : v;
}

/* Largest sum of live bytes, each rounded up to `align`, and the first instruction where it occurs.
 */
uint64_t pass_lifetimes_peak(const PassLifetimes *l, uint64_t align, Arena *scratch,
                             uint32_t *out_instr);

/* What the arena's addresses are multiples of: states and inputs, transient buffers. */
enum { PASS_ALIGN_PERSISTENT = 256, PASS_ALIGN_TRANSIENT = 64 };

static inline uint64_t pass_align(uint64_t bytes, uint64_t align)
{
    return (bytes + align - 1) / align * align;
}

#endif
