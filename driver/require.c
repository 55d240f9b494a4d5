/* The language of --require: paths into the report, numbers with units, strings, + - * /,
 * comparisons, and/or/not. A list counts as its length. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/diag.h"
#include "driver/report.h"

enum { MAX_DEPTH = 64 };

typedef enum ValueKind { VALUE_NUMBER, VALUE_TEXT, VALUE_BOOL, VALUE_NULL } ValueKind;

typedef struct Value {
    ValueKind kind;
    double number; /* BOOL: 0 or 1 */
    const char *text;
} Value;

typedef struct Eval {
    Session *s;
    const cJSON *report;
    Sym name; /* of the source that holds the expression */
    const char *text, *at;
    const char *why; /* the comparisons that did not hold */
    uint32_t depth;
} Eval;

static Status eval_or(Eval *e, Value *out);

static Span span_at(const Eval *e, const char *at, size_t length)
{
    return (Span){e->name, 1, (uint32_t)(at - e->text) + 1, (uint32_t)length};
}

static void skip_space(Eval *e)
{
    while (isspace((unsigned char)*e->at))
        e->at++;
}

static bool is_word_char(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-';
}

/* Takes `word` if it stands here as a whole. */
static bool take_word(Eval *e, const char *word)
{
    size_t length = strlen(word);
    skip_space(e);
    if (strncmp(e->at, word, length) || is_word_char(e->at[length]) || e->at[length] == '.')
        return false;
    e->at += length;
    return true;
}

static bool take(Eval *e, const char *sign)
{
    size_t length = strlen(sign);
    skip_space(e);
    if (strncmp(e->at, sign, length))
        return false;
    e->at += length;
    return true;
}

static Status syntax(Eval *e, const char *expected)
{
    skip_space(e);
    diag(e->s, span_at(e, e->at, 0), require_syntax, expected);
    return STATUS_USER;
}

/* -- values -- */

static const char *value_text(Session *s, const Value *v)
{
    switch (v->kind) {
    case VALUE_NUMBER:
        return arena_printf(s->arena, "%.17g", v->number);
    case VALUE_TEXT:
        return arena_printf(s->arena, "\"%s\"", v->text);
    case VALUE_BOOL:
        return v->number != 0 ? "true" : "false";
    default:
        return "null";
    }
}

static Value value_of(const cJSON *item)
{
    if (cJSON_IsNumber(item))
        return (Value){VALUE_NUMBER, item->valuedouble, NULL};
    if (cJSON_IsString(item))
        return (Value){VALUE_TEXT, 0, item->valuestring};
    if (cJSON_IsBool(item))
        return (Value){VALUE_BOOL, cJSON_IsTrue(item), NULL};
    if (cJSON_IsArray(item) || cJSON_IsObject(item))
        return (Value){VALUE_NUMBER, cJSON_GetArraySize(item), NULL};
    return (Value){VALUE_NULL, 0, NULL};
}

/* -- paths -- */

static Status no_member(Eval *e, const cJSON *object, const char *name, const char *at)
{
    const char *names[256];
    uint32_t n = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, object) if (item->string && n < 256) names[n++] = item->string;
    diag(e->s, span_at(e, at, strlen(name)), require_no_member, name);
    const char *near = diag_nearest(name, names, n);
    if (near)
        diag(e->s, no_span, did_you_mean, near);
    return STATUS_USER;
}

static Status member(Eval *e, const char *name, const char *at, const cJSON **item)
{
    const cJSON *next = cJSON_GetObjectItemCaseSensitive(*item, name);
    if (!next)
        return no_member(e, *item, name, at);
    *item = next;
    return STATUS_OK;
}

static const char *take_name(Eval *e)
{
    const char *start = e->at;
    while (is_word_char(*e->at))
        e->at++;
    return intern_n(&e->s->interner, start, (size_t)(e->at - start));
}

static Status subscript(Eval *e, const cJSON **item)
{
    const char *at = e->at;
    if (take(e, "\"")) {
        size_t length = strcspn(e->at, "\"");
        const char *name = intern_n(&e->s->interner, e->at, length);
        e->at += length;
        if (!take(e, "\"") || !take(e, "]"))
            return syntax(e, "`\"]`");
        return member(e, name, at, item);
    }
    char *end;
    long index = strtol(e->at, &end, 10);
    if (end == e->at)
        return syntax(e, "an index");
    e->at = end;
    if (!take(e, "]"))
        return syntax(e, "`]`");
    int n = cJSON_IsArray(*item) ? cJSON_GetArraySize(*item) : 0;
    if (index < 0 || index >= n) {
        diag(e->s, span_at(e, at, (size_t)(end - at)), require_index, index, n);
        return STATUS_USER;
    }
    *item = cJSON_GetArrayItem(*item, (int)index);
    return STATUS_OK;
}

static Status eval_path(Eval *e, Value *out)
{
    const cJSON *item = e->report;
    const char *at = e->at;
    TRY(member(e, take_name(e), at, &item));
    for (;;) {
        if (*e->at == '[') {
            e->at++;
            TRY(subscript(e, &item));
        } else if (*e->at == '.') {
            at = ++e->at;
            TRY(member(e, take_name(e), at, &item));
        } else {
            *out = value_of(item);
            return STATUS_OK;
        }
    }
}

/* -- operands -- */

static Status eval_number(Eval *e, Value *out)
{
    static const struct {
        const char *name;
        double factor;
    } units[] = {
        {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"kB", 1e3},
        {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},    {"%", 0.01},
    };
    char *end;
    *out = (Value){VALUE_NUMBER, strtod(e->at, &end), NULL};
    e->at = end;
    while (*e->at == ' ')
        e->at++;
    for (unsigned i = 0; i < sizeof units / sizeof *units; i++) {
        size_t length = strlen(units[i].name);
        if (strncasecmp(e->at, units[i].name, length) || is_word_char(e->at[length]))
            continue;
        e->at += length;
        out->number *= units[i].factor;
        break;
    }
    return STATUS_OK;
}

static Status eval_quoted(Eval *e, Value *out)
{
    char quote[2] = {*e->at++, 0};
    size_t length = strcspn(e->at, quote);
    if (!e->at[length])
        return syntax(e, "a closing quote");
    *out = (Value){VALUE_TEXT, 0, intern_n(&e->s->interner, e->at, length)};
    e->at += length + 1;
    return STATUS_OK;
}

static Status eval_group(Eval *e, Value *out)
{
    if (++e->depth > MAX_DEPTH)
        return syntax(e, "less nesting");
    TRY(eval_or(e, out));
    e->depth--;
    return take(e, ")") ? STATUS_OK : syntax(e, "`)`");
}

static Status eval_operand(Eval *e, Value *out)
{
    skip_space(e);
    if (take(e, "("))
        return eval_group(e, out);
    if (take_word(e, "true") || take_word(e, "false")) {
        *out = (Value){VALUE_BOOL, e->at[-2] == 'u', NULL};
        return STATUS_OK;
    }
    if (isdigit((unsigned char)*e->at) || (*e->at == '.' && isdigit((unsigned char)e->at[1])))
        return eval_number(e, out);
    if (*e->at == '"' || *e->at == '\'')
        return eval_quoted(e, out);
    if (isalpha((unsigned char)*e->at) || *e->at == '_')
        return eval_path(e, out);
    return syntax(e, "a path, a number, a string or `(`");
}

static Status need_numbers(Eval *e, const char *at, const Value *a, const Value *b)
{
    if (a->kind == VALUE_NUMBER && b->kind == VALUE_NUMBER)
        return STATUS_OK;
    diag(e->s, span_at(e, at, (size_t)(e->at - at)), require_kinds, value_text(e->s, a),
         value_text(e->s, b));
    return STATUS_USER;
}

static Status eval_signed(Eval *e, Value *out)
{
    bool negative = false;
    const char *at = e->at;
    while (take(e, "-"))
        negative = !negative;
    TRY(eval_operand(e, out));
    if (negative) {
        TRY(need_numbers(e, at, out, out));
        out->number = -out->number;
    }
    return STATUS_OK;
}

static Status eval_product(Eval *e, Value *out)
{
    const char *at = e->at;
    TRY(eval_signed(e, out));
    for (;;) {
        bool times = take(e, "*");
        if (!times && !take(e, "/"))
            return STATUS_OK;
        Value b;
        TRY(eval_signed(e, &b));
        TRY(need_numbers(e, at, out, &b));
        out->number = times ? out->number * b.number : out->number / b.number;
    }
}

static Status eval_sum(Eval *e, Value *out)
{
    const char *at = e->at;
    TRY(eval_product(e, out));
    for (;;) {
        bool plus = take(e, "+");
        if (!plus && !take(e, "-"))
            return STATUS_OK;
        Value b;
        TRY(eval_product(e, &b));
        TRY(need_numbers(e, at, out, &b));
        out->number += plus ? b.number : -b.number;
    }
}

/* -- comparisons and logic -- */

static bool compare(const char *sign, const Value *a, const Value *b)
{
    bool number = a->kind == VALUE_NUMBER;
    if (!number) {
        bool same = a->kind == b->kind && a->number == b->number &&
                    (a->kind != VALUE_TEXT || !strcmp(a->text, b->text));
        return sign[0] == '!' ? !same : same;
    }
    if (sign[0] == '=')
        return a->number == b->number;
    if (sign[0] == '!')
        return a->number != b->number;
    if (sign[0] == '<')
        return sign[1] ? a->number <= b->number : a->number < b->number;
    return sign[1] ? a->number >= b->number : a->number > b->number;
}

static const char *trimmed(Session *s, const char *from, const char *to)
{
    while (from < to && isspace((unsigned char)*from))
        from++;
    while (to > from && isspace((unsigned char)to[-1]))
        to--;
    return intern_n(&s->interner, from, (size_t)(to - from));
}

/* ` PATH is VALUE` unless the text is the value. */
static void explain(Eval *e, const char *from, const char *to, const Value *v)
{
    const char *text = trimmed(e->s, from, to), *value = value_text(e->s, v);
    if (strcmp(text, value) && (isalpha((unsigned char)*text) || *text == '_'))
        e->why =
            arena_printf(e->s->arena, "%s%s`%s` is %s", e->why, *e->why ? ", " : "", text, value);
}

static Status eval_comparison(Eval *e, Value *out)
{
    static const char *const signs[] = {"==", "!=", "<=", ">=", "<", ">"};
    const char *a_at = e->at, *sign = NULL;
    TRY(eval_sum(e, out));
    const char *a_end = e->at;
    for (unsigned i = 0; i < 6 && !sign; i++)
        if (take(e, signs[i]))
            sign = signs[i];
    if (!sign)
        return STATUS_OK;
    Value a = *out, b;
    const char *b_at = e->at;
    TRY(eval_sum(e, &b));
    bool ordered = sign[0] == '<' || sign[0] == '>';
    if (ordered || a.kind == VALUE_NUMBER || b.kind == VALUE_NUMBER)
        TRY(need_numbers(e, a_at, &a, &b));
    *out = (Value){VALUE_BOOL, compare(sign, &a, &b), NULL};
    if (out->number == 0) {
        explain(e, a_at, a_end, &a);
        explain(e, b_at, e->at, &b);
    }
    return STATUS_OK;
}

static Status need_bool(Eval *e, const char *at, const Value *v)
{
    if (v->kind == VALUE_BOOL)
        return STATUS_OK;
    diag(e->s, span_at(e, at, (size_t)(e->at - at)), require_not_bool, value_text(e->s, v));
    return STATUS_USER;
}

static Status eval_not(Eval *e, Value *out)
{
    const char *at = e->at;
    bool negate = false;
    while (take_word(e, "not"))
        negate = !negate;
    TRY(eval_comparison(e, out));
    if (negate) {
        TRY(need_bool(e, at, out));
        out->number = out->number == 0;
    }
    return STATUS_OK;
}

static Status eval_and(Eval *e, Value *out)
{
    const char *at = e->at;
    TRY(eval_not(e, out));
    while (take_word(e, "and")) {
        Value b;
        TRY(need_bool(e, at, out));
        TRY(eval_not(e, &b));
        TRY(need_bool(e, at, &b));
        out->number = out->number != 0 && b.number != 0;
    }
    return STATUS_OK;
}

static Status eval_or(Eval *e, Value *out)
{
    const char *at = e->at;
    TRY(eval_and(e, out));
    while (take_word(e, "or")) {
        Value b;
        TRY(need_bool(e, at, out));
        TRY(eval_and(e, &b));
        TRY(need_bool(e, at, &b));
        out->number = out->number != 0 || b.number != 0;
    }
    return STATUS_OK;
}

/* Each expression is a source of its own, so that carets find it. */
static Sym source_name(Session *s)
{
    uint32_t n = 1;
    Sym name = sym(s, "--require");
    for (uint32_t i = 0; i < s->sources.n; i++)
        if (s->sources.at[i].name == name)
            name = intern_printf(&s->interner, "--require#%u", ++n);
    return name;
}

Status driver_require(Session *s, const cJSON *report, const char *expression, Span from)
{
    Eval e = {s, report, source_name(s), expression, expression, "", 0};
    session_add_source(s, (Source){e.name, expression, strlen(expression)});
    Value value;
    TRY(eval_or(&e, &value));
    skip_space(&e);
    if (*e.at)
        return syntax(&e, "the end");
    TRY(need_bool(&e, expression, &value));
    if (value.number != 0)
        return STATUS_OK;
    diag(s, from, require_fails, expression, *e.why ? ": " : "", e.why);
    return STATUS_CHECK;
}
