/* norm: the global gradient norm of a step that ranks share: every element counts on one rank. */
#ifndef PASSES_NORM_H
#define PASSES_NORM_H

#include "passes/pass.h"

typedef struct NormItem { /* a gradient, or a range of a flat one */
    IrValue grad;
    Sym name;
    int64_t begin, end; /* elements of the flat buffer; end 0: all */
    int64_t parts;      /* into how many tp divides it; 1: every tp rank has all of it */
    IrScope scope;
    Span span;
} NormItem;

/* How many parts a tensor of this type has over tp: 1 where it is whole. */
int64_t norm_parts(const IrModule *m, IrType type);

/* A part of the norm where a stage of a pipeline has no gradients: 0. */
IrValue norm_of_nothing(IrBuilder *b);

/* Takes the norm of @update out and writes it anew, in front of the op at `at` once that is
 * done. `cut`: the axis over which all gradients are cut, with so many ranks; NULL: they are
 * whole. */
void norm_write(PassContext *c, IrGraph *update, uint32_t at, const NormItem *items, uint32_t n,
                Sym cut, int64_t ranks);

#endif
