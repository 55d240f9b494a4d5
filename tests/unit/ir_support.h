/* ir_support: what the IR's unit tests share: a session whose diagnostics are read back, parse,
 * print. */
#ifndef TESTS_UNIT_IR_SUPPORT_H
#define TESTS_UNIT_IR_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ir/ir.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"

typedef struct Bench {
    Session *s;
    char *said; /* diagnostics, after bench_said */
    size_t said_n;
} Bench;

static inline Bench *bench_new(void)
{
    Bench *bench = calloc(1, sizeof *bench);
    assert_non_null(bench);
    FILE *out = open_memstream(&bench->said, &bench->said_n);
    assert_non_null(out);
    bench->s = session_new(out);
    return bench;
}

static inline const char *bench_said(Bench *bench)
{
    fflush(bench->s->diag_out);
    return bench->said;
}

static inline void bench_free(Bench *bench)
{
    fclose(bench->s->diag_out);
    session_free(bench->s);
    free(bench->said);
    free(bench);
}

static inline IrModule *bench_try(Bench *bench, const char *text)
{
    Source source = {sym(bench->s, "t.sir"), text, strlen(text)};
    IrModule *m = NULL;
    session_add_source(bench->s, source);
    ir_parse(bench->s, &source, &m);
    return m;
}

static inline IrModule *bench_parse(Bench *bench, const char *text)
{
    IrModule *m = bench_try(bench, text);
    if (!m)
        fail_msg("does not parse: %s", bench_said(bench));
    return m;
}

/* The module's text; free() it. */
static inline char *bench_print(const IrModule *m)
{
    char *text;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    assert_non_null(out);
    ir_print(out, m);
    fclose(out);
    return text;
}

static inline void assert_says(Bench *bench, const char *what)
{
    if (!strstr(bench_said(bench), what))
        fail_msg("`%s` is not in: %s", what, bench_said(bench));
}

#endif
