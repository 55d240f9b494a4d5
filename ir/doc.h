/* doc: the op table as text for people: `stepc explain OP`, `stepc explain ops`. */
#ifndef IR_DOC_H
#define IR_DOC_H

#include <stdio.h>

#include "ir/ir.h"

void ir_explain_op(FILE *out, IrOpKind kind);
void ir_ops_markdown(FILE *out); /* every op, as one page */

#endif
