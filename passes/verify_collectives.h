/* verify-collectives: what the verifier takes a step to be, for plans and for tests of it alike:
 * a list of collectives for each class of ranks. */
#ifndef PASSES_VERIFY_COLLECTIVES_H
#define PASSES_VERIFY_COLLECTIVES_H

#include "ir/ir.h"

typedef struct CollectiveEvent {
    Sym kind, comm; /* all_gather; `dp`, `tp/2` */
    int64_t count;  /* elements that a member hands in */
    DType dtype;
    uint32_t classes; /* that come to its communicator; 0: not known */
    bool message; /* a send or a recv: comm is that of the two stages, `pp:0-1` */
    int64_t tag;  /* of a message: which value of which instance, forward or back */
    Sym name;     /* of what is exchanged; of a collective's the same in every class */
    Span span;
} CollectiveEvent;

typedef VEC(CollectiveEvent) CollectiveEvents;

typedef struct CollectiveClass { /* ranks that run one program */
    const char *name;
    CollectiveEvents events;
} CollectiveClass;

/* Those of a planned graph, in order. */
CollectiveEvents collective_events(Session *s, const IrGraph *g, Arena *arena);

/* A collective holds its class up until every class that uses its communicator has come to one
 * on it; one's `send` meets the other's `recv`. Errors where two classes meet with different ones,
 * and where classes wait for each other in a circle. */
Status verify_collective_classes(Session *s, const CollectiveClass *classes, uint32_t n,
                                 Arena *scratch);

#endif
