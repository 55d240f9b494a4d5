/* json_read: a strict JSON reader that is pulled element by element, so that its caller sees
 * duplicate keys and keeps integers exact. The text need not end in NUL and is never read past its
 * length. */
#ifndef RUNTIME_JSON_READ_H
#define RUNTIME_JSON_READ_H

#include <stdbool.h>

#include "base/arena.h"

typedef struct RtJson {
    Arena *arena; /* decoded strings */
    const char *text;
    size_t length, at;
    const char *why; /* the first error; every call after it returns false */
} RtJson;

RtJson rt_json(Arena *arena, const char *text, size_t length);

/* Consumes `bracket`, the beginning of an object or array. */
bool rt_json_open(RtJson *j, char bracket);

/* True if another element follows, its comma consumed; false behind the closing bracket or on an
 * error. `n` counts the elements and starts at 0. */
bool rt_json_next(RtJson *j, char closing, uint32_t *n);

bool rt_json_key(RtJson *j, const char **out_key); /* and its colon */
bool rt_json_string(RtJson *j, const char **out_text);
bool rt_json_u64(RtJson *j, uint64_t *out_number); /* digits only: no sign, fraction or exponent */
bool rt_json_i64(RtJson *j, int64_t *out_number); /* the same with a sign */
bool rt_json_number(RtJson *j, double *out_number);
/* The first byte of the next value, which tells its kind; 0 at the end or after an error. */
char rt_json_peek(RtJson *j);
bool rt_json_skip(RtJson *j);                      /* any value */
bool rt_json_end(RtJson *j);                       /* nothing but white space is left */
bool rt_json_fail(RtJson *j, const char *why);     /* always false */

/* Writes `text` as a JSON string, quotes included, into the arena. */
const char *rt_json_quote(Arena *arena, const char *text);

#endif
