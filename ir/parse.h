/* parse: the IR's text form to a module; the inverse of ir/print.h. docs/ir.md specifies the text.
 */
#ifndef IR_PARSE_H
#define IR_PARSE_H

#include "ir/ir.h"

/* Collects diagnostics (at most a screenful) and returns STATUS_USER if there was one; *out is then
 * NULL. The module's own rules beyond names, types and counts are the verifier's. */
Status ir_parse(Session *s, const Source *source, IrModule **out);

#endif
