#include "base/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"

Session *session_new(FILE *diag_out)
{
    Arena *arena = arena_new();
    Session *s = ARENA_NEW(arena, Session);
    s->arena = arena;
    s->diag_out = diag_out;
    interner_init(&s->interner, arena);
    return s;
}

void session_free(Session *s)
{
    if (s)
        arena_free(s->arena);
}

void session_add_source(Session *s, Source source)
{
    vec_push(s->arena, &s->sources, source);
}

Status session_read_source(Session *s, const char *path, Span from, Source *out_source)
{
    Status status = STATUS_ENV;
    FILE *file = fopen(path, "rb");
    if (!file) {
        diag(s, from, file_open, path, strerror(errno));
        return STATUS_ENV;
    }
    VEC(char) text = {0};
    size_t got;
    do {
        vec_reserve(s->arena, &text, text.n + (1u << 16) + 1);
        got = fread(text.at + text.n, 1, 1u << 16, file);
        text.n += (uint32_t)got;
    } while (got == 1u << 16);
    if (ferror(file)) {
        diag(s, from, file_read, path, strerror(errno));
        goto out_file;
    }
    text.at[text.n] = 0;
    *out_source = (Source){sym(s, path), text.at, text.n};
    session_add_source(s, *out_source);
    status = STATUS_OK;
out_file:
    fclose(file);
    return status;
}
