/* stages: which piece of a pipeline makes what, and what crosses from piece to piece. */
#ifndef PASSES_STAGES_H
#define PASSES_STAGES_H

#include "passes/pass.h"

typedef enum StageRole {
    STAGE_FIXED,  /* made by one piece; others receive it */
    STAGE_FREE,   /* reads no state and nothing that a piece makes: made where it is read */
    STAGE_NARROW, /* made for each stage in the part that its own slices take */
} StageRole;

typedef struct StageOp {
    int32_t block;    /* counted from 0; -1: none */
    bool behind;      /* follows from what a block makes */
    StageRole role;
    uint32_t piece;   /* FIXED */
    uint32_t narrow;  /* NARROW, and slices of such values: 1 + index into `narrows` */
    uint32_t dim;     /* NARROW: the dim of its first result that is cut short */
} StageOp;

typedef struct StageNarrow { /* a value that only slices read, with all that it is made of */
    IrValue value;
    int64_t parts;           /* of the slices */
    int64_t *begin, *end;    /* by stage: the parts that it takes */
    VEC(IrOp) ops;
    VEC(struct StageNarrowState { IrState state; uint32_t dim; }) states;
} StageNarrow;

typedef struct Stages {
    PassContext *c;
    IrGraph *g; /* @fwd of the whole model */
    IrUses uses;
    uint32_t n_stages, n_chunks, n_pieces, n_blocks;
    uint32_t *first_block; /* by piece */
    StageOp *ops;          /* by op */
    bool *wants;           /* by value: does a gradient flow into it? */
    bool *needed;          /* by value and piece: is it read there? */
    VEC(StageNarrow) narrows;
} Stages;

static inline StageOp *stage_op(const Stages *s, IrOp op)
{
    return &s->ops[op.i];
}

/* stages_cut.c: where the pieces begin. */
Status stages_cut(Stages *s);
/* stages_narrow.c: values of which each stage makes its own part. */
void stages_narrow(Stages *s);
/* Does a value cross from `piece` to the next? */
bool stages_crosses(const Stages *s, IrValue v, uint32_t piece);
/* stages_split.c: the module of one stage. */
IrModule *stages_module(const Stages *s, uint32_t stage);

#endif
