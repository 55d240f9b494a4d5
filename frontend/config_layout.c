/* One layout for config.json's spellings, and places of keys in its text. */
#include "frontend/config.h"

#include <ctype.h>
#include <math.h>

/* A whole number in a float's place is a float, where the file's own text is kept. */
static cJSON *copy_in_place_of(const cJSON *old, const cJSON *item)
{
    cJSON *copy = cJSON_Duplicate(item, 1);
    bool was_float = cJSON_IsNumber(old) && old->valuestring && strpbrk(old->valuestring, ".eE");
    double f = item->valuedouble;
    if (!was_float || !cJSON_IsNumber(item) || f != floor(f) || fabs(f) >= 1e15)
        return copy;
    copy->valuestring = cJSON_malloc(32);
    snprintf(copy->valuestring, 32, "%.1f", f);
    return copy;
}

void front_config_lay_over(cJSON *under, const cJSON *over)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, over)
    {
        cJSON *old = cJSON_GetObjectItemCaseSensitive(under, item->string);
        if (old && cJSON_IsObject(old) && cJSON_IsObject(item))
            front_config_lay_over(old, item);
        else if (old)
            cJSON_ReplaceItemInObjectCaseSensitive(under, item->string,
                                                   copy_in_place_of(old, item));
        else
            cJSON_AddItemToObject(under, item->string, cJSON_Duplicate(item, 1));
    }
}

static void rename_type(cJSON *rope)
{
    cJSON *item;
    cJSON *type = cJSON_GetObjectItemCaseSensitive(rope, "type");
    if (cJSON_IsString(type) && !cJSON_GetObjectItemCaseSensitive(rope, "rope_type")) {
        cJSON_AddStringToObject(rope, "rope_type", type->valuestring);
        cJSON_DeleteItemFromObjectCaseSensitive(rope, "type");
    }
    cJSON_ArrayForEach(item, rope) if (cJSON_IsObject(item)) rename_type(item);
}

static bool has_members(const cJSON *object)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, object) if (cJSON_IsObject(item)) return true;
    return false;
}

static const char *const flat_rope[] = {"rope_theta", "partial_rotary_factor"};

/* rope_parameters: { rope_type, rope_theta, ... }, or one such object per layer type. */
void front_config_unify_rope(cJSON *keys)
{
    cJSON *rope = cJSON_GetObjectItemCaseSensitive(keys, "rope_parameters");
    cJSON *scaling = cJSON_GetObjectItemCaseSensitive(keys, "rope_scaling");
    bool unscaled = cJSON_IsNull(scaling), flat = false;
    for (uint32_t i = 0; i < 2; i++)
        flat |= cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(keys, flat_rope[i]));
    if (!cJSON_IsObject(rope) && (cJSON_IsObject(scaling) || unscaled || flat)) {
        cJSON_DeleteItemFromObjectCaseSensitive(keys, "rope_parameters");
        rope = cJSON_IsObject(scaling) ? cJSON_Duplicate(scaling, 1) : cJSON_CreateObject();
        cJSON_AddItemToObject(keys, "rope_parameters", rope);
        if (unscaled)
            cJSON_AddStringToObject(rope, "rope_type", "default");
    }
    if (!cJSON_IsObject(rope))
        return;
    rename_type(rope);
    for (uint32_t i = 0; i < 2 && !has_members(rope); i++) {
        const cJSON *value = cJSON_GetObjectItemCaseSensitive(keys, flat_rope[i]);
        if (cJSON_IsNumber(value) && !cJSON_GetObjectItemCaseSensitive(rope, flat_rope[i]))
            cJSON_AddItemToObject(rope, flat_rope[i], cJSON_Duplicate(value, 1));
    }
}

const char *front_config_rope_fault(const cJSON *keys, const char **out_key)
{
    const cJSON *rope = cJSON_GetObjectItemCaseSensitive(keys, *out_key = "rope_parameters");
    if (rope && !cJSON_IsObject(rope) && !cJSON_IsNull(rope))
        return "must be an object";
    const cJSON *scaling = cJSON_GetObjectItemCaseSensitive(keys, *out_key = "rope_scaling");
    if (scaling && !cJSON_IsObject(scaling) && !cJSON_IsNull(scaling))
        return "must be an object with a `rope_type`";
    if (cJSON_IsObject(scaling) && cJSON_IsObject(rope) && !cJSON_Compare(scaling, rope, 1))
        return "says another thing than `rope_parameters`: one of them is to be there";
    for (uint32_t i = 0; i < 2; i++) {
        const cJSON *value = cJSON_GetObjectItemCaseSensitive(keys, *out_key = flat_rope[i]);
        const cJSON *same = cJSON_GetObjectItemCaseSensitive(rope, flat_rope[i]);
        if (value && !cJSON_IsNumber(value) && !cJSON_IsNull(value))
            return "must be a number";
        if (cJSON_IsNumber(value) && same && !cJSON_Compare(value, same, 1))
            return "is another number than in `rope_parameters`";
    }
    return NULL;
}

const char *front_config_fault(const cJSON *json, const char **out_key)
{
    const cJSON *item, *other;
    if (cJSON_IsNumber(json) && !isfinite(json->valuedouble)) {
        *out_key = json->string ? json->string : "a list's item";
        return "is a number out of range";
    }
    cJSON_ArrayForEach(item, json)
    {
        for (other = item->next; other && cJSON_IsObject(json); other = other->next)
            if (!strcmp(item->string, other->string)) {
                *out_key = item->string;
                return "stands twice";
            }
        const char *fault = front_config_fault(item, out_key);
        if (fault)
            return fault;
    }
    return NULL;
}

/* -- places: a walk over text that cJSON has found to be JSON -- */

typedef struct JsonWalk {
    const char *at;
    uint32_t line;
    const char *line_start;
} JsonWalk;

static void skip_space(JsonWalk *w)
{
    for (; isspace((unsigned char)*w->at); w->at++)
        if (*w->at == '\n') {
            w->line++;
            w->line_start = w->at + 1;
        }
}

static void skip_string(JsonWalk *w)
{
    for (w->at++; *w->at && *w->at != '"'; w->at++)
        if (*w->at == '\\' && w->at[1])
            w->at++;
    w->at += *w->at == '"';
}

/* Over one value, up to the comma or bracket behind it. */
static void skip_value(JsonWalk *w)
{
    uint32_t depth = 0;
    for (;;) {
        skip_space(w);
        char c = *w->at;
        if (!c || (!depth && (c == ',' || c == '}' || c == ']')))
            return;
        if (c == '"') {
            skip_string(w);
            continue;
        }
        depth += c == '{' || c == '[';
        depth -= c == '}' || c == ']';
        w->at++;
    }
}

static void keep_numbers(JsonWalk *w, cJSON *item)
{
    skip_space(w);
    char open = *w->at;
    if (cJSON_IsNumber(item)) {
        size_t length = strcspn(w->at, ",]} \t\r\n");
        item->valuestring = cJSON_malloc(length + 1);
        memcpy(item->valuestring, w->at, length);
        item->valuestring[length] = '\0';
    }
    if (open != '{' && open != '[') {
        skip_value(w);
        return;
    }
    cJSON *child;
    cJSON_ArrayForEach(child, item)
    {
        w->at++; /* the bracket or the comma */
        skip_space(w);
        if (open == '{') {
            skip_string(w);
            skip_space(w);
            w->at++;
        }
        keep_numbers(w, child);
        skip_space(w);
    }
    if (!item->child) {
        w->at++;
        skip_space(w);
    }
    w->at++;
}

void front_config_keep_numbers(const char *text, cJSON *root)
{
    JsonWalk w = {strncmp(text, "\xEF\xBB\xBF", 3) ? text : text + 3, 1, text};
    keep_numbers(&w, root);
}

/* Stands on `{`; stops on the value of `key`, whose place it gives. */
static bool find_member(JsonWalk *w, Sym file, const char *key, Span *out)
{
    size_t length = strlen(key);
    skip_space(w);
    if (*w->at != '{')
        return false;
    do {
        w->at++;
        skip_space(w);
        if (*w->at != '"')
            return false;
        const char *start = w->at;
        skip_string(w);
        *out =
            (Span){file, w->line, (uint32_t)(start - w->line_start) + 1, (uint32_t)(w->at - start)};
        bool found = (size_t)(w->at - start) == length + 2 && !strncmp(start + 1, key, length);
        skip_space(w);
        if (*w->at != ':')
            return false;
        w->at++;
        if (found)
            return true;
        skip_value(w);
    } while (*w->at == ',');
    return false;
}

Span front_config_locate(Sym file, const char *text, const char *const *path, uint32_t depth)
{
    JsonWalk w = {text, 1, text};
    Span span = {0};
    for (uint32_t i = 0; i < depth; i++)
        if (!find_member(&w, file, path[i], &span))
            return (Span){.file = file};
    return span;
}
