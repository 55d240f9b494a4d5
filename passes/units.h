/* units: what data-parallel ranks share and exchange at once: a block's parameters, an embedding
 * table, the rest of the model; trained and frozen ones apart. */
#ifndef PASSES_UNITS_H
#define PASSES_UNITS_H

#include "passes/pass.h"

typedef struct FlatMember {
    IrState param; /* as it was; it is gone once the unit has states of its own */
    int64_t begin, numel;
    IrOp update; /* in @update; {0}: not trained */
} FlatMember;

typedef struct FlatUnit {
    Sym name; /* of its flat states, before `.exp_avg` and the like */
    IrScope scope;
    Span span;
    bool trained;
    VEC(FlatMember) members;
    int64_t numel; /* of the whole flat buffer: a multiple of the ranks that share it */
    uint32_t first_piece;
    IrState param, acc; /* flat; {0}: none */
} FlatUnit;

typedef struct FlatUnits {
    VEC(FlatUnit) units;
    uint32_t n_states;   /* that there were before the units had their own */
    uint32_t *unit_of;   /* by state index: 1 + its unit; 0: none */
    uint32_t *member_of; /* and which member it is there */
} FlatUnits;

/* Members stand in the order of the states, those of equal weight decay beside each other. The
 * buffer divides by `ranks`. All memory is the pass's scratch arena, but for what becomes part
 * of the module. */
FlatUnits flat_units(PassContext *c, int64_t ranks);

/* The mesh axes over which gradients are summed: `dp`, `dp+dpr`. */
Sym flat_data_axes(const PassContext *c);
int64_t flat_data_ranks(const PassContext *c);

/* A collective's attributes, into an op that is about to be built. */
void flat_give_comm(IrOpArgs *args, Sym comm, int64_t ranks);
/* f32[numel], or of the dtype given. */
IrType flat_type(IrModule *m, DType dtype, int64_t numel);

#endif
