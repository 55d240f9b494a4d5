#include "frontend/recipe_read.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <cjson/cJSON.h>

#include "base/diag.h"

enum { MAX_JSON_NODES = 10000 }; /* anchors can make a small text a huge tree */

static void wrong_type(const FrontField *v, const FrontNode *node, const char *want)
{
    diag(v->s, node->span, recipe_type, v->path, want, front_node_what(node));
}

/* -- numbers -- */

typedef struct Interval {
    char open, close;
    double low, high;
} Interval;

static const char *interval_text(Session *s, const Interval *in)
{
    const char *low = in->open == '(' ? "more than" : "at least";
    if (isinf(in->high))
        return arena_printf(s->arena, "%s %g", low, in->low);
    return arena_printf(s->arena, "%s %g and %s %g", low, in->low,
                        in->close == ')' ? "less than" : "at most", in->high);
}

static bool in_rule(const FrontField *v, const FrontNode *node, double x)
{
    Interval in;
    if (!v->rule || sscanf(v->rule, "%c%lf,%lf%c", &in.open, &in.low, &in.high, &in.close) != 4)
        return true;
    if ((in.open == '(' ? x > in.low : x >= in.low) &&
        (in.close == ')' ? x < in.high : x <= in.high))
        return true;
    diag(v->s, node->span, recipe_range, v->path, node->text, interval_text(v->s, &in));
    return false;
}

static bool parse_int(const FrontNode *node, int64_t *out)
{
    if (node->kind != FRONT_NODE_SCALAR || node->quoted || !*node->text ||
        isspace((unsigned char)*node->text))
        return false;
    char text[32];
    size_t n = 0;
    for (const char *c = node->text; *c; c++) { /* YAML writes 1_000_000 */
        if (*c == '_' && n)
            continue;
        if (n + 1 == sizeof text)
            return false;
        text[n++] = *c;
    }
    text[n] = 0;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    *out = value;
    return !*end && end != text && !errno;
}

static bool parse_float(const FrontNode *node, double *out)
{
    if (node->kind != FRONT_NODE_SCALAR || node->quoted || !*node->text ||
        isspace((unsigned char)*node->text))
        return false;
    char *end;
    *out = strtod(node->text, &end);
    return !*end && end != node->text && isfinite(*out) && !strpbrk(node->text, "xX");
}

static bool read_int(const FrontField *v, const FrontNode *node)
{
    FrontInt *field = v->field;
    int64_t value;
    if (!parse_int(node, &value)) {
        wrong_type(v, node, "an integer");
        return false;
    }
    if (!in_rule(v, node, (double)value))
        return false;
    field->v = value;
    return true;
}

static bool read_float(const FrontField *v, const FrontNode *node)
{
    FrontFloat *field = v->field;
    double value;
    if (!parse_float(node, &value)) {
        wrong_type(v, node, "a number");
        return false;
    }
    if (!in_rule(v, node, value))
        return false;
    field->v = value;
    return true;
}

static bool read_pair(const FrontField *v, const FrontNode *node)
{
    FrontPair *field = v->field;
    double value[2];
    if (node->kind != FRONT_NODE_LIST || node->items.n != 2) {
        wrong_type(v, node, "a list of two numbers");
        return false;
    }
    for (uint32_t i = 0; i < 2; i++) {
        const FrontNode *item = node->items.at[i];
        if (!parse_float(item, &value[i])) {
            wrong_type(v, item, "a number");
            return false;
        }
        if (!in_rule(v, item, value[i]))
            return false;
    }
    memcpy(field->v, value, sizeof value);
    return true;
}

bool front_parse_bytes(const char *text, int64_t *out_bytes)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = {
        {"", 1},         {"B", 1},    {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
        {"TiB", 0x1p40}, {"kB", 1e3}, {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},
    };
    if (!isdigit((unsigned char)*text))
        return false;
    char *end;
    double number = strtod(text, &end);
    while (*end == ' ')
        end++;
    for (unsigned i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcasecmp(end, units[i].name))
            continue;
        double bytes = number * units[i].bytes;
        if (!(bytes >= 0 && bytes < 0x1p62))
            return false;
        *out_bytes = (int64_t)bytes;
        return true;
    }
    return false;
}

static bool read_bytes(const FrontField *v, const FrontNode *node)
{
    FrontBytes *field = v->field;
    int64_t value;
    if (node->kind != FRONT_NODE_SCALAR || !front_parse_bytes(node->text, &value)) {
        wrong_type(v, node, "bytes such as `139GiB`");
        return false;
    }
    field->v = value;
    return true;
}

/* -- words -- */

/* Equal but for case, `-` and `_`. */
static bool same_word(const char *a, size_t a_length, const char *b)
{
    size_t i = 0;
    for (; *b; b++) {
        if (*b == '-' || *b == '_')
            continue;
        while (i < a_length && (a[i] == '-' || a[i] == '_'))
            i++;
        if (i == a_length || tolower((unsigned char)a[i]) != tolower((unsigned char)*b))
            return false;
        i++;
    }
    while (i < a_length && (a[i] == '-' || a[i] == '_'))
        i++;
    return i == a_length;
}

/* The choice as the table spells it; NULL if `text` is none of them. Without a rule, the text
 * itself. */
static Sym choose(const FrontField *v, const char *text)
{
    if (!v->rule)
        return sym(v->s, text);
    for (const char *at = v->rule; *at;) {
        size_t length = strcspn(at, "|");
        if (same_word(at, length, text))
            return intern_n(&v->s->interner, at, length);
        at += length + (at[length] == '|');
    }
    return NULL;
}

static void not_a_choice(const FrontField *v, const FrontNode *node)
{
    const char *names[16], *list = "";
    uint32_t n = 0;
    for (const char *at = v->rule; n < 16; at++) {
        size_t length = strcspn(at, "|");
        names[n] = intern_n(&v->s->interner, at, length);
        list = arena_printf(v->s->arena, "%s%s%s", list, n ? ", " : "", names[n]);
        n++;
        at += length;
        if (!*at)
            break;
    }
    diag(v->s, node->span, recipe_choice, v->path, node->text, list);
    const char *near = diag_nearest(node->text, names, n);
    if (near)
        diag(v->s, no_span, did_you_mean, near);
}

static bool read_one_word(const FrontField *v, const FrontNode *node, FrontWord *out)
{
    if (node->kind != FRONT_NODE_SCALAR || !*node->text) {
        wrong_type(v, node, "a word");
        return false;
    }
    Sym word = choose(v, node->text);
    if (!word) {
        not_a_choice(v, node);
        return false;
    }
    *out = (FrontWord){true, node->span, word};
    return true;
}

static bool read_word(const FrontField *v, const FrontNode *node)
{
    return read_one_word(v, node, v->field);
}

/* One word, or a list of them. */
static bool read_words_into(const FrontField *v, const FrontNode *node, FrontWords *out)
{
    FrontWord word;
    out->v.n = 0;
    if (node->kind != FRONT_NODE_LIST) {
        if (!read_one_word(v, node, &word))
            return false;
        vec_push(v->s->arena, &out->v, word);
        return true;
    }
    for (uint32_t i = 0; i < node->items.n; i++) {
        if (!read_one_word(v, node->items.at[i], &word))
            return false;
        vec_push(v->s->arena, &out->v, word);
    }
    return true;
}

static bool read_words(const FrontField *v, const FrontNode *node)
{
    return read_words_into(v, node, v->field);
}

static bool read_bool(const FrontField *v, const FrontNode *node)
{
    FrontBool *field = v->field;
    if (node->kind == FRONT_NODE_SCALAR && !node->quoted) {
        if (!strcasecmp(node->text, "true")) {
            field->v = true;
            return true;
        }
        if (!strcasecmp(node->text, "false")) {
            field->v = false;
            return true;
        }
    }
    wrong_type(v, node, "true or false");
    return false;
}

static bool read_dtype(const FrontField *v, const FrontNode *node)
{
    FrontDtype *field = v->field;
    if (node->kind != FRONT_NODE_SCALAR) {
        wrong_type(v, node, "a dtype");
        return false;
    }
    DType dtype = dtype_parse(node->text);
    bool none = front_node_is_none(node);
    const char *name = dtype == DTYPE_NONE && !none ? "" : dtype_name(dtype);
    if (!choose(v, name)) {
        not_a_choice(v, node);
        return false;
    }
    field->v = none ? DTYPE_NONE : dtype;
    return true;
}

/* -- structures -- */

static cJSON *json_of(const FrontNode *node, uint32_t *budget)
{
    if (!*budget)
        return NULL;
    --*budget;
    if (node->kind == FRONT_NODE_LIST) {
        cJSON *list = cJSON_CreateArray();
        for (uint32_t i = 0; i < node->items.n; i++)
            cJSON_AddItemToArray(list, json_of(node->items.at[i], budget));
        return list;
    }
    if (node->kind == FRONT_NODE_MAP) {
        cJSON *map = cJSON_CreateObject();
        for (uint32_t i = 0; i < node->entries.n; i++)
            cJSON_AddItemToObject(map, node->entries.at[i].key,
                                  json_of(node->entries.at[i].value, budget));
        return map;
    }
    double number;
    if (front_node_is_none(node))
        return cJSON_CreateNull();
    if (!node->quoted && (!strcasecmp(node->text, "true") || !strcasecmp(node->text, "false")))
        return cJSON_CreateBool(tolower((unsigned char)*node->text) == 't');
    if (parse_float(node, &number))
        return cJSON_CreateNumber(number);
    return cJSON_CreateString(node->text);
}

static bool read_json(const FrontField *v, const FrontNode *node)
{
    FrontJson *field = v->field;
    uint32_t budget = MAX_JSON_NODES;
    if (node->kind != FRONT_NODE_MAP) {
        wrong_type(v, node, "a section");
        return false;
    }
    cJSON *json = json_of(node, &budget);
    char *text = budget ? cJSON_PrintUnformatted(json) : NULL;
    if (text)
        field->v = arena_strndup(v->s->arena, text, strlen(text));
    else
        diag(v->s, node->span, recipe_too_large, v->path, MAX_JSON_NODES);
    cJSON_free(text);
    cJSON_Delete(json);
    return budget != 0;
}

static bool read_group_entry(const FrontField *v, const FrontEntry *entry, FrontGroup *group)
{
    static const char *const names[] = {"match", "weight_decay"};
    FrontField value = *v;
    value.path = arena_printf(v->s->arena, "%s.%s", v->path, entry->key);
    if (!strcmp(entry->key, "match")) {
        FrontWords words = {0};
        bool ok = read_words_into(&value, entry->value, &words);
        memcpy(&group->match, &words.v, sizeof group->match);
        return ok;
    }
    if (!strcmp(entry->key, "weight_decay")) {
        FrontFloat number = {0};
        value.rule = "[0,inf)";
        value.field = &number;
        bool ok = read_float(&value, entry->value);
        group->weight_decay = number.v;
        return ok;
    }
    diag(v->s, entry->span, recipe_unknown_key, value.path);
    const char *near = diag_nearest(entry->key, names, 2);
    if (near)
        diag(v->s, no_span, did_you_mean, near);
    return false;
}

static bool read_group(const FrontField *v, const FrontNode *node, FrontGroup *group)
{
    bool has_decay = false;
    *group = (FrontGroup){.span = node->span};
    if (node->kind != FRONT_NODE_MAP) {
        wrong_type(v, node, "a group {match, weight_decay}");
        return false;
    }
    for (uint32_t i = 0; i < node->entries.n; i++) {
        if (!read_group_entry(v, &node->entries.at[i], group))
            return false;
        has_decay |= !strcmp(node->entries.at[i].key, "weight_decay");
    }
    if (group->match.n && has_decay)
        return true;
    diag(v->s, node->span, recipe_group, v->path);
    return false;
}

static bool read_groups(const FrontField *v, const FrontNode *node)
{
    FrontGroups *field = v->field;
    if (node->kind != FRONT_NODE_LIST) {
        wrong_type(v, node, "a list of groups {match, weight_decay}");
        return false;
    }
    for (uint32_t i = 0; i < node->items.n; i++) {
        FrontGroup group;
        if (!read_group(v, node->items.at[i], &group))
            return false;
        vec_push(v->s->arena, &field->v, group);
    }
    return true;
}

/* -- all types -- */

static const struct {
    bool (*read)(const FrontField *value, const FrontNode *node);
} readers[] = {
    [FRONT_KEY_Int] = {read_int},     [FRONT_KEY_Float] = {read_float},
    [FRONT_KEY_Bool] = {read_bool},   [FRONT_KEY_Word] = {read_word},
    [FRONT_KEY_Words] = {read_words}, [FRONT_KEY_Dtype] = {read_dtype},
    [FRONT_KEY_Bytes] = {read_bytes}, [FRONT_KEY_Pair] = {read_pair},
    [FRONT_KEY_Json] = {read_json},   [FRONT_KEY_Groups] = {read_groups},
};

/* Every field begins with `given` and `span`, whatever its type. */
static void mark(void *field, bool given, Span span)
{
    *(bool *)((char *)field + offsetof(FrontInt, given)) = given;
    *(Span *)((char *)field + offsetof(FrontInt, span)) = span;
}

void front_field_read(const FrontField *value, const FrontNode *node)
{
    bool word = front_node_is_none(node) && !strcasecmp(node->text, "none");
    if (front_node_is_none(node) && !(word && value->rule && choose(value, "none")))
        return;
    if (readers[value->type].read(value, node))
        mark(value->field, true, node->span.line ? node->span : value->span);
}

void front_field_mark_default(const FrontField *value)
{
    mark(value->field, false, no_span);
}
