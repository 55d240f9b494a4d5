/* verify: what must hold of every module at every level. Run after each pass and behind the parser.
 */
#ifndef IR_VERIFY_H
#define IR_VERIFY_H

#include "ir/ir.h"

/* One diagnostic per fault, at the op's span, all of them; STATUS_USER if there was one. */
Status ir_verify(Session *s, const IrModule *m);

/* What is wrong with an op's types; NULL: they are what its shape function answers. */
const char *ir_verify_types(const IrGraph *g, IrOp op, Arena *scratch);

#endif
