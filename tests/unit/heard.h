/* heard: a session whose messages are kept. */
#ifndef TESTS_UNIT_HEARD_H
#define TESTS_UNIT_HEARD_H

#include <stdio.h>
#include <stdlib.h>

#include "base/session.h"

typedef struct Heard {
    Session *s;
    FILE *out;
    char *text;
    size_t length;
} Heard;

static inline Heard *listen(void)
{
    Heard *heard = calloc(1, sizeof *heard);
    heard->out = open_memstream(&heard->text, &heard->length);
    heard->s = session_new(heard->out);
    return heard;
}

static inline const char *heard_text(Heard *heard)
{
    fflush(heard->out);
    return heard->text;
}

static inline void hush(Heard *heard)
{
    session_free(heard->s);
    fclose(heard->out);
    free(heard->text);
    free(heard);
}

#endif
