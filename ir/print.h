/* print: the IR's text form, as docs/ir.md specifies it; ir/parse.h reads it back. */
#ifndef IR_PRINT_H
#define IR_PRINT_H

#include <stdio.h>

#include "ir/ir.h"

void ir_print(FILE *out, const IrModule *m);

/* `text` as a word of the text form: quoted and escaped where it must be. */
void ir_print_word(FILE *out, const char *text);
/* A sigil and a name: `%h2`, `$"odd name"`. */
void ir_print_name(FILE *out, char sigil, const char *name);
void ir_print_f64(FILE *out,
                  double value); /* the shortest digits that read back as the same bits */

#endif
