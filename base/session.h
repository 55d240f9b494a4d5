/* session: what one compilation or one run shares, passed first everywhere: memory, names,
 * diagnostics. */
#ifndef BASE_SESSION_H
#define BASE_SESSION_H

#include <stdbool.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/intern.h"
#include "base/map.h"
#include "base/span.h"
#include "base/status.h"
#include "base/vec.h"

typedef struct Source { /* a text that spans point into */
    Sym name;
    const char *text;
    size_t length;
} Source;

/* one thing that must not stay silent; `code` is its row's name in diag.def */
typedef struct Record {
    const char *code;
    const char *message;
    Span span;
} Record;

typedef struct Session {
    Arena *arena;
    Interner interner;
    VEC(Source) sources;
    VEC(Record) records;
    FILE *diag_out; /* where diagnostics go: stderr, or a buffer in tests */
    bool strict;    /* records are errors */
    uint32_t n_errors, n_warnings;
} Session;

Session *session_new(FILE *diag_out);
void session_free(Session *s);

static inline Sym sym(Session *s, const char *text)
{
    return intern(&s->interner, text);
}

/* Reads a whole file, registers it as a source under `path`, and returns its text
 * (NUL-terminated). */
Status session_read_source(Session *s, const char *path, Span from, Source *out_source);
void session_add_source(Session *s, Source source);

#endif
