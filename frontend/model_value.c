#include "frontend/model_value.h"

#include <inttypes.h>
#include <math.h>

static const double INT_LIMIT = 9007199254740992.0; /* 2^53: JSON numbers are doubles */

FrontValue front_value_from_json(Session *s, const cJSON *json)
{
    FrontValue v = {0};
    if (cJSON_IsBool(json))
        return front_bool(cJSON_IsTrue(json));
    if (cJSON_IsNumber(json)) {
        double f = json->valuedouble;
        return f == floor(f) && fabs(f) <= INT_LIMIT ? front_int((int64_t)f) : front_float(f);
    }
    if (cJSON_IsString(json))
        return front_string(sym(s, json->valuestring));
    if (!cJSON_IsArray(json) && !cJSON_IsObject(json))
        return v;
    bool is_dict = cJSON_IsObject(json);
    uint32_t n = (uint32_t)cJSON_GetArraySize(json);
    v.kind = is_dict ? FRONT_VALUE_DICT : FRONT_VALUE_LIST;
    v.u.list.at = ARENA_ARRAY(s->arena, FrontValue, n + 1);
    v.u.list.keys = is_dict ? ARENA_ARRAY(s->arena, Sym, n + 1) : NULL;
    const cJSON *item;
    cJSON_ArrayForEach(item, json)
    {
        if (is_dict)
            v.u.list.keys[v.u.list.n] = sym(s, item->string);
        v.u.list.at[v.u.list.n++] = front_value_from_json(s, item);
    }
    return v;
}

bool front_value_number(const FrontValue *v, double *out)
{
    if (v->kind == FRONT_VALUE_INT)
        *out = (double)v->u.i;
    else if (v->kind == FRONT_VALUE_FLOAT)
        *out = v->u.f;
    else if (v->kind == FRONT_VALUE_DIM)
        *out = (double)ir_dim_size(v->u.dim);
    else
        return false;
    return true;
}

bool front_value_int(const FrontValue *v, int64_t *out)
{
    if (v->kind == FRONT_VALUE_INT)
        *out = v->u.i;
    else if (v->kind == FRONT_VALUE_DIM)
        *out = ir_dim_size(v->u.dim);
    else if (v->kind == FRONT_VALUE_FLOAT && v->u.f == floor(v->u.f) && fabs(v->u.f) <= INT_LIMIT)
        *out = (int64_t)v->u.f;
    else
        return false;
    return true;
}

bool front_key_is_number(const char *key, int64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, number);
    while (key[0] == '0' && key[1])
        key++;
    return !strcmp(key, text);
}

bool front_value_equal(const FrontValue *a, const FrontValue *b)
{
    double x, y;
    if (front_value_number(a, &x) && front_value_number(b, &y))
        return x == y;
    if (a->kind != b->kind)
        return false;
    switch (a->kind) {
    case FRONT_VALUE_NONE:
        return true;
    case FRONT_VALUE_BOOL:
        return a->u.b == b->u.b;
    case FRONT_VALUE_STRING:
        return a->u.s == b->u.s;
    case FRONT_VALUE_MASK:
        return a->u.i == b->u.i;
    case FRONT_VALUE_TENSOR:
        return a->u.tensor.i == b->u.tensor.i;
    default:
        break;
    }
    if (a->u.list.n != b->u.list.n)
        return false;
    if (a->u.list.at == b->u.list.at)
        return true;
    for (uint32_t i = 0; i < a->u.list.n; i++) {
        if (a->kind == FRONT_VALUE_DICT && a->u.list.keys[i] != b->u.list.keys[i])
            return false;
        if (!front_value_equal(&a->u.list.at[i], &b->u.list.at[i]))
            return false;
    }
    return true;
}

static const char *dim_text(Session *s, const IrDim *dim)
{
    const char *text = "";
    for (uint32_t i = 0; i < dim->n; i++) {
        const char *times = i ? "*" : "";
        text = dim->f[i].axis ? arena_printf(s->arena, "%s%s%s", text, times, dim->f[i].axis)
                              : arena_printf(s->arena, "%s%s%" PRId64, text, times, dim->f[i].size);
    }
    return text;
}

const char *front_value_describe(Session *s, IrGraph *g, const FrontValue *v)
{
    Arena *a = s->arena;
    switch (v->kind) {
    case FRONT_VALUE_NONE:
        return "`none`";
    case FRONT_VALUE_BOOL:
        return v->u.b ? "the bool `true`" : "the bool `false`";
    case FRONT_VALUE_INT:
        return arena_printf(a, "the int %" PRId64, v->u.i);
    case FRONT_VALUE_FLOAT:
        return arena_printf(a, "the float %.9g", v->u.f);
    case FRONT_VALUE_STRING:
        return arena_printf(a, "the string \"%s\"", v->u.s);
    case FRONT_VALUE_LIST:
        return arena_printf(a, "a list of %u", v->u.list.n);
    case FRONT_VALUE_DICT:
        return arena_printf(a, "a dict of %u keys", v->u.list.n);
    case FRONT_VALUE_DIM:
        return arena_printf(a, "the dim %s (%" PRId64 ")", dim_text(s, v->u.dim),
                            ir_dim_size(v->u.dim));
    case FRONT_VALUE_MASK:
        return "a mask";
    case FRONT_VALUE_TENSOR:
        return g ? arena_printf(a, "a tensor %s", ir_type_text(g->m, ir_value_type(g, v->u.tensor)))
                 : "a tensor";
    case FRONT_VALUE_TUPLE:
        return arena_printf(a, "a tuple of %u tensors", v->u.list.n);
    }
    return "a value";
}

bool front_value_text(Session *s, const FrontValue *v, const char **out)
{
    int64_t i;
    if (v->kind == FRONT_VALUE_STRING)
        *out = v->u.s;
    else if (v->kind == FRONT_VALUE_BOOL)
        *out = v->u.b ? "true" : "false";
    else if (v->kind == FRONT_VALUE_NONE)
        *out = "none";
    else if (front_value_int(v, &i))
        *out = arena_printf(s->arena, "%" PRId64, i);
    else if (v->kind == FRONT_VALUE_FLOAT)
        *out = arena_printf(s->arena, "%.9g", v->u.f);
    else
        return false;
    return true;
}

const char *front_type_describe(FrontTypeKind kind)
{
    static const char *const names[] = {"anything", "an int", "a float", "a bool",  "a string",
                                        "a list",   "a dict", "a dim",   "a tuple", "a tensor"};
    return names[kind];
}
