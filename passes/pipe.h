/* pipe: the order in which the stages of a pipeline work, and hand values on. The model is cut
 * into stages * chunks pieces; piece k is chunk k / stages of stage k % stages. */
#ifndef PASSES_PIPE_H
#define PASSES_PIPE_H

#include "passes/options.h"

typedef enum PipeKind {
    PIPE_FWD,
    PIPE_BWD,    /* with `splits`: what the stage before waits for */
    PIPE_WEIGHT, /* with `splits`: the rest of the backward pass */
    PIPE_SEND,
    PIPE_RECV
} PipeKind;

typedef struct PipeAction {
    PipeKind kind;
    uint32_t micro, chunk;
    bool backward; /* SEND, RECV: gradients */
    uint32_t peer; /* SEND, RECV: the other stage */
} PipeAction;

typedef VEC(PipeAction) PipeActions;

typedef struct PipeOrder {
    uint32_t n_stages, n_chunks, n_micro;
    bool splits; /* the backward pass is in two parts */
    PipeActions *stages;
} PipeOrder;

/* Sends and receives stand where no stage waits for another in a circle, though a send holds its
 * stage up until it is received. All stages find the same order. */
PipeOrder pipe_order(Sym schedule, uint32_t n_stages, uint32_t n_chunks, uint32_t n_micro,
                     Arena *arena);
/* What the order of a module of stages is by the options. */
PipeOrder pipe_order_of(const PassOptions *o, Arena *arena);

typedef struct PipeCosts { /* seconds, by stage */
    double fwd, bwd, weight; /* of one micro-batch, of all its chunks */
    double send, send_back;  /* to the next stage; to the one before */
} PipeCosts;

/* Seconds until all stages are done; *out_bubble: the share of it that stages wait, on average. */
double pipe_seconds(const PipeOrder *order, const PipeCosts *costs, Arena *scratch,
                    double *out_bubble);

#endif
