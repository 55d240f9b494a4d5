/* span: a place in a source text. Line and column count from 1; line 0 means "no place". */
#ifndef BASE_SPAN_H
#define BASE_SPAN_H

#include "base/intern.h"

typedef struct Span {
    Sym file;
    uint32_t line, col, length; /* length in bytes, for the caret's underline; 0 = one caret */
} Span;

#endif
