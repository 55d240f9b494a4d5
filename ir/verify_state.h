/* verify_state: what the verifier's files share. Internal to ir/. */
#ifndef IR_VERIFY_STATE_H
#define IR_VERIFY_STATE_H

#include "base/diag.h"
#include "ir/ir.h"

typedef struct Verifier {
    Session *s;
    const IrModule *m;
    Arena *scratch;
    /* the graph in hand */
    const IrGraph *g;
    unsigned char *seen;    /* by op: it stood in the order */
    unsigned char *defined; /* by value: it is defined so far */
    unsigned char *closed;  /* by region: an op outside stood behind it */
    uint32_t region;        /* of the op before */
    Map names;
} Verifier;

const char *ir_verify_value_text(const Verifier *v, IrValue value); /* `%h`, `$w` */
void ir_verify_graph(Verifier *v, const IrGraph *g);
void ir_verify_module(Verifier *v);
void ir_verify_saved_set(Verifier *v);

#endif
