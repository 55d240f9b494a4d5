#include "runtime/json.h"

#include <math.h>

void rt_json_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(out, "\\%c", *c);
        else if (*c < 0x20)
            fprintf(out, "\\u%04x", *c);
        else
            fputc(*c, out);
    }
    fputc('"', out);
}

static RtJsonNumber number(double value, int digits)
{
    RtJsonNumber result = {"null"};
    if (isfinite(value))
        snprintf(result.text, sizeof result.text, "%.*g", digits, value);
    return result;
}

RtJsonNumber rt_json_f32(float value)
{
    return number((double)value, 9);
}

RtJsonNumber rt_json_f64(double value)
{
    return number(value, 17);
}
