#include "runtime/json_read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 64 };

RtJson rt_json(Arena *arena, const char *text, size_t length)
{
    return (RtJson){.arena = arena, .text = text, .length = length};
}

bool rt_json_fail(RtJson *j, const char *why)
{
    if (!j->why)
        j->why = why;
    return false;
}

/* The next byte that is no white space, or 0 at the end (a NUL in the text is no legal token
 * either). */
char rt_json_peek(RtJson *j)
{
    while (j->at < j->length && strchr(" \t\r\n", j->text[j->at]) && j->text[j->at])
        j->at++;
    return j->at < j->length && !j->why ? j->text[j->at] : 0;
}

bool rt_json_open(RtJson *j, char bracket)
{
    if (rt_json_peek(j) != bracket)
        return rt_json_fail(j, bracket == '{' ? "expected an object" : "expected an array");
    j->at++;
    return true;
}

bool rt_json_next(RtJson *j, char closing, uint32_t *n)
{
    char c = rt_json_peek(j);
    if (c == closing && !j->why) {
        j->at++;
        return false;
    }
    if (*n) {
        if (c != ',')
            return rt_json_fail(j, closing == '}' ? "expected `,` or `}`" : "expected `,` or `]`");
        j->at++;
    }
    ++*n;
    return !j->why;
}

bool rt_json_key(RtJson *j, const char **out_key)
{
    if (!rt_json_string(j, out_key))
        return false;
    if (rt_json_peek(j) != ':')
        return rt_json_fail(j, "expected `:`");
    j->at++;
    return true;
}

static bool hex4(RtJson *j, uint32_t *out_code)
{
    *out_code = 0;
    for (int i = 0; i < 4; i++, j->at++) {
        char c = j->at < j->length ? j->text[j->at] : 0;
        uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                                : 16;
        if (digit == 16)
            return rt_json_fail(j, "bad `\\u` escape");
        *out_code = *out_code << 4 | digit;
    }
    return true;
}

static size_t put_utf8(char *to, uint32_t code)
{
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; code >>= 6)
        to[i] = (char)(0x80 | (code & 0x3f));
    to[0] = (char)((0xf00u >> n & 0xf0) | code);
    return n;
}

/* One escape behind its backslash; at most as long in UTF-8 as in the text. */
static bool escape(RtJson *j, char **to)
{
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    char c = j->at < j->length ? j->text[j->at++] : 0;
    const char *known = c ? strchr(from, c) : NULL;
    if (known) {
        *(*to)++ = into[known - from];
        return true;
    }
    uint32_t code, low;
    if (c != 'u')
        return rt_json_fail(j, "bad escape in a string");
    if (!hex4(j, &code))
        return false;
    if (code >= 0xd800 && code < 0xdc00) {
        if (j->length - j->at < 2 || j->text[j->at] != '\\' || j->text[j->at + 1] != 'u')
            return rt_json_fail(j, "half of a surrogate pair");
        j->at += 2;
        if (!hex4(j, &low))
            return false;
        if (low < 0xdc00 || low > 0xdfff)
            return rt_json_fail(j, "half of a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code < 0xe000) {
        return rt_json_fail(j, "half of a surrogate pair");
    }
    if (!code)
        return rt_json_fail(j, "NUL in a string");
    *to += put_utf8(*to, code);
    return true;
}

/* Length of the well-formed UTF-8 sequence at p, or 0. */
static size_t utf8_length(const unsigned char *p, size_t left)
{
    if (p[0] < 0x80)
        return 1;
    size_t n = p[0] >= 0xf0 && p[0] <= 0xf4   ? 4
               : (p[0] & 0xf0) == 0xe0        ? 3
               : p[0] >= 0xc2 && p[0] <= 0xdf ? 2
                                              : 0;
    if (!n || left < n)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90);
    bool outside = (p[0] == 0xed && p[1] >= 0xa0) || (p[0] == 0xf4 && p[1] >= 0x90);
    return overlong || outside ? 0 : n;
}

/* Bytes up to the closing quote, which must be there; j->at is behind the opening one. */
static bool string_extent(RtJson *j, size_t *out_bytes)
{
    for (size_t i = j->at; i < j->length; i++) {
        if (j->text[i] == '"') {
            *out_bytes = i - j->at;
            return true;
        }
        i += j->text[i] == '\\';
    }
    return rt_json_fail(j, "a string without its end");
}

bool rt_json_string(RtJson *j, const char **out_text)
{
    size_t bytes;
    *out_text = "";
    if (rt_json_peek(j) != '"')
        return rt_json_fail(j, "expected a string");
    j->at++;
    if (!string_extent(j, &bytes))
        return false;
    char *text = arena_alloc(j->arena, bytes + 1), *to = text;
    while (j->text[j->at] != '"') {
        const unsigned char *p = (const unsigned char *)j->text + j->at;
        size_t n = utf8_length(p, j->length - j->at);
        if (*p == '\\') {
            j->at++;
            if (!escape(j, &to))
                return false;
        } else if (*p < 0x20) {
            return rt_json_fail(j, "control character in a string");
        } else if (!n) {
            return rt_json_fail(j, "bad UTF-8 in a string");
        } else {
            memcpy(to, p, n);
            to += n;
            j->at += n;
        }
    }
    j->at++;
    *to = 0;
    *out_text = text;
    return true;
}

static bool digit_at(const RtJson *j)
{
    return j->at < j->length && j->text[j->at] >= '0' && j->text[j->at] <= '9';
}

bool rt_json_u64(RtJson *j, uint64_t *out_number)
{
    *out_number = 0;
    char first = rt_json_peek(j);
    if (!digit_at(j) || j->why)
        return rt_json_fail(j, "expected a whole number that is not negative");
    size_t from = j->at;
    for (; digit_at(j); j->at++) {
        uint64_t digit = (uint64_t)(j->text[j->at] - '0');
        if (*out_number > (UINT64_MAX - digit) / 10)
            return rt_json_fail(j, "number too large");
        *out_number = *out_number * 10 + digit;
    }
    if (first == '0' && j->at - from > 1)
        return rt_json_fail(j, "number with a leading zero");
    if (j->at < j->length && strchr(".eE", j->text[j->at]) && j->text[j->at])
        return rt_json_fail(j, "expected a whole number that is not negative");
    return true;
}

bool rt_json_i64(RtJson *j, int64_t *out_number)
{
    uint64_t size;
    *out_number = 0;
    bool negative = rt_json_peek(j) == '-';
    j->at += negative;
    if (negative && !digit_at(j))
        return rt_json_fail(j, "expected a whole number");
    if (!rt_json_u64(j, &size))
        return false;
    if (size > (uint64_t)INT64_MAX + negative)
        return rt_json_fail(j, "number too large");
    *out_number = negative ? (int64_t)-size : (int64_t)size;
    return true;
}

static bool skip_digits(RtJson *j)
{
    if (!digit_at(j))
        return rt_json_fail(j, "bad number");
    while (digit_at(j))
        j->at++;
    return true;
}

static bool take(RtJson *j, const char *any)
{
    bool found = j->at < j->length && j->text[j->at] && strchr(any, j->text[j->at]);
    j->at += found;
    return found;
}

static bool skip_number(RtJson *j)
{
    take(j, "-");
    if (!take(j, "0") && !skip_digits(j))
        return false;
    if (take(j, ".") && !skip_digits(j))
        return false;
    if (!take(j, "eE"))
        return true;
    take(j, "+-");
    return skip_digits(j);
}

bool rt_json_number(RtJson *j, double *out_number)
{
    *out_number = 0;
    char first = rt_json_peek(j);
    size_t from = j->at;
    if (first != '-' && !digit_at(j))
        return rt_json_fail(j, "expected a number");
    if (!skip_number(j))
        return false;
    *out_number = strtod(arena_strndup(j->arena, j->text + from, j->at - from), NULL);
    return isfinite(*out_number) || rt_json_fail(j, "number too large");
}

static bool skip_word(RtJson *j)
{
    static const char *const words[] = {"true", "false", "null"};
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if (j->length - j->at >= n && !memcmp(j->text + j->at, words[i], n)) {
            j->at += n;
            return true;
        }
    }
    return rt_json_fail(j, "expected a value");
}

static bool skip_value(RtJson *j, int depth)
{
    const char *text;
    char c = rt_json_peek(j);
    if (depth > DEEPEST)
        return rt_json_fail(j, "nested too deep");
    if (c == '"')
        return rt_json_string(j, &text);
    if (c == '-' || digit_at(j))
        return skip_number(j);
    if (c != '{' && c != '[')
        return skip_word(j);
    uint32_t n = 0;
    char closing = c == '{' ? '}' : ']';
    rt_json_open(j, c);
    while (rt_json_next(j, closing, &n))
        if ((c == '{' && !rt_json_key(j, &text)) || !skip_value(j, depth + 1))
            return false;
    return !j->why;
}

bool rt_json_skip(RtJson *j)
{
    return skip_value(j, 0);
}

bool rt_json_end(RtJson *j)
{
    rt_json_peek(j);
    return j->why ? false : j->at == j->length ? true : rt_json_fail(j, "text behind the end");
}

const char *rt_json_quote(Arena *arena, const char *text)
{
    static const char hex[] = "0123456789abcdef";
    char *quoted = arena_alloc(arena, strlen(text) * 6 + 3), *to = quoted;
    *to++ = '"';
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            *to++ = '\\';
        if (c < 0x20) {
            memcpy(to, "\\u00", 4);
            to[4] = hex[c >> 4];
            to[5] = hex[c & 15];
            to += 6;
        } else {
            *to++ = (char)c;
        }
    }
    *to++ = '"';
    *to = 0;
    return quoted;
}
