/* json: writing strings and numbers of JSON. */
#ifndef RUNTIME_JSON_H
#define RUNTIME_JSON_H

#include <stdio.h>

void rt_json_text(FILE *out, const char *text); /* quoted and escaped */

/* Digits that round-trip; `null` where the value is no number of JSON. */
typedef struct RtJsonNumber {
    char text[32];
} RtJsonNumber;

RtJsonNumber rt_json_f32(float value);
RtJsonNumber rt_json_f64(double value);

#endif
