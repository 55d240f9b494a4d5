/* fuzz: what the targets share. An input is one session, and its messages go nowhere. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stdio.h>
#include <stdlib.h>

#include "base/session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline FILE *fuzz_nowhere(void)
{
    static FILE *nowhere;
    if (!nowhere)
        nowhere = fopen("/dev/null", "w");
    return nowhere;
}

static inline Session *fuzz_session(void)
{
    return session_new(fuzz_nowhere());
}

/* The input as a registered source that ends in NUL. */
static inline Source fuzz_source(Session *s, const char *name, const uint8_t *data, size_t size)
{
    Source source = {sym(s, name), arena_strndup(s->arena, (const char *)data, size), size};
    session_add_source(s, source);
    return source;
}

/* An input that was taken but breaks a promise is a finding. */
static inline void fuzz_must(bool holds)
{
    if (!holds)
        abort();
}

#endif
