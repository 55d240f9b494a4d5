/* stage_text: the lines of the text form that say which stage of a pipeline a module is.
 * Internal to ir/. */
#ifndef IR_STAGE_TEXT_H
#define IR_STAGE_TEXT_H

#include <stdio.h>

#include "ir/parse_state.h"

void ir_print_stage(FILE *out, const IrModule *m);
/* After the line's first word, `stage`, `tie` or `narrow`; *out_found: it was one of these. */
bool ir_parse_stage(IrParser *p, const char *word, bool *out_found);

#endif
