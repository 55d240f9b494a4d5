/* fsdp: the parts of the pass that shares a step between data-parallel ranks. */
#ifndef PASSES_FSDP_H
#define PASSES_FSDP_H

#include "passes/units.h"

typedef struct Fsdp {
    PassContext *c;
    FlatUnits f;
    int64_t ranks; /* that share */
    bool weights, grads, moments; /* what they share; none: ddp */
    Sym cut;                      /* the mesh axis over which shared states are cut */
    IrValue *kept; /* by unit: what @fwd has gathered last, and @bwd begins with; {0}: nothing */
} Fsdp;

static inline FlatUnit *fsdp_unit(const Fsdp *x, IrState param)
{
    uint32_t unit = param.i < x->f.n_states ? x->f.unit_of[param.i] : 0;
    return unit ? &x->f.units.at[unit - 1] : NULL;
}

static inline FlatMember *fsdp_member(const Fsdp *x, IrState param)
{
    return &fsdp_unit(x, param)->members.at[x->f.member_of[param.i]];
}

/* A builder in front of (behind) the op at this place of the order, with the unit's scope and
 * span. */
IrBuilder fsdp_builder(IrGraph *g, const FlatUnit *u, uint32_t at);
IrValue fsdp_piece(IrBuilder *b, IrValue flat, const FlatMember *member, Sym name, IrType type);
IrValue fsdp_collective(IrBuilder *b, IrOpKind kind, IrValue x, Sym name, IrType out, Sym comm,
                        int64_t ranks);

/* fsdp_weights.c: flat states of all units, with their companions; weights in @fwd, @bwd and
 * @eval become pieces of what is gathered. */
void fsdp_make_states(Fsdp *x);
void fsdp_gather_weights(Fsdp *x, IrGraph *g);
/* fsdp_grads.c: gradients leave @bwd, or enter @update, summed over the data-parallel ranks. */
void fsdp_reduce_grads(Fsdp *x);
IrValue fsdp_sum_grad(Fsdp *x, IrBuilder *b, const FlatUnit *u, IrValue flat, DType dtype);
/* fsdp_update.c: @update over flat shards; loss and counts of all ranks. */
void fsdp_rewrite_update(Fsdp *x);
void fsdp_sum_scalars(Fsdp *x);

/* `UNIT.grad`: the summed gradient of a unit, where it is flat in @update. */
static inline Sym fsdp_grad_name(const Fsdp *x, const FlatUnit *u)
{
    return intern_printf(&x->c->s->interner, "%s.grad", u->name);
}

#endif
