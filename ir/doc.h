/* doc: the op table as text for people: `stepc explain OP` and docs/ops.md. */
#ifndef IR_DOC_H
#define IR_DOC_H

#include <stdio.h>

#include "ir/ir.h"

void ir_explain_op(FILE *out, IrOpKind kind);
void ir_ops_markdown(FILE *out); /* the whole of docs/ops.md */

#endif
