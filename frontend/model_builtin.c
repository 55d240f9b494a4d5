/* The language's functions, one row each in `front_builtins`. */
#include "frontend/model_eval.h"

#include <math.h>

static Span arg_span(const FrontCall *call, uint32_t i)
{
    return call->x->u.call.args.at[i].value->span;
}

static bool wrong_arg(FrontEval *e, const FrontCall *call, uint32_t i, const char *want)
{
    const char *what =
        arena_printf(e->s->arena, "argument %u of `%s`", i + 1, call->x->u.call.name);
    return front_type_mismatch(e, arg_span(call, i), what, want, &call->args[i]);
}

static bool arg_number(FrontEval *e, const FrontCall *call, uint32_t i, double *out)
{
    return front_value_number(&call->args[i], out) || wrong_arg(e, call, i, "a number");
}

static bool give_float(FrontEval *e, const FrontCall *call, double f, FrontValue *out)
{
    *out = front_float(f);
    if (isfinite(f))
        return true;
    diag(e->s, call->x->span, front_not_finite, call->x->u.call.name);
    return false;
}

/* A whole result is an int where it fits one. */
static bool give_whole(FrontEval *e, const FrontCall *call, double f, FrontValue *out)
{
    if (!give_float(e, call, f, out))
        return false;
    int64_t i;
    if (front_value_int(out, &i))
        *out = front_int(i);
    return true;
}

/* -- numbers -- */

/* To the parameters' dtype: trainers keep such a factor in a tensor beside the weights. */
static bool call_round(FrontEval *e, const FrontCall *call, FrontValue *out)
{
    double f;
    if (!arg_number(e, call, 0, &f))
        return false;
    if (e->request->param_dtype == DTYPE_BF16)
        f = (double)bf16_to_f32(f32_to_bf16((float)f));
    else if (e->request->param_dtype != DTYPE_F64)
        f = (double)(float)f;
    return give_float(e, call, f, out);
}

static bool call_sqrt(FrontEval *e, const FrontCall *call, FrontValue *out)
{
    double f;
    return arg_number(e, call, 0, &f) && give_float(e, call, sqrt(f), out);
}

static bool call_log(FrontEval *e, const FrontCall *call, FrontValue *out)
{
    double f;
    return arg_number(e, call, 0, &f) && give_float(e, call, log(f), out);
}

static bool call_exp(FrontEval *e, const FrontCall *call, FrontValue *out)
{
    double f;
    return arg_number(e, call, 0, &f) && give_float(e, call, exp(f), out);
}

static bool call_pow(FrontEval *e, const FrontCall *call, FrontValue *out)
{
    double a, b;
    return arg_number(e, call, 0, &a) && arg_number(e, call, 1, &b) &&
           give_float(e, call, pow(a, b), out);
}

static bool call_floor(FrontEval *e, const FrontCall *call, FrontValue *out)
{
    double f;
    return arg_number(e, call, 0, &f) && give_whole(e, call, floor(f), out);
}

static bool call_ceil(FrontEval *e, const FrontCall *call, FrontValue *out)
{
    double f;
    return arg_number(e, call, 0, &f) && give_whole(e, call, ceil(f), out);
}

static bool extreme(FrontEval *e, const FrontCall *call, bool want_max, FrontValue *out)
{
    const FrontValue *items = call->args;
    uint32_t n = call->n;
    if (n == 1 && items[0].kind == FRONT_VALUE_LIST) {
        n = items[0].u.list.n;
        items = items[0].u.list.at;
    }
    if (!n)
        return wrong_arg(e, call, 0, "a list that is not empty");
    double best, f;
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!front_value_number(&items[i], &f))
            return wrong_arg(e, call, call->n == 1 ? 0 : i, "numbers");
        if (!i || (want_max ? f > best : f < best)) {
            best = f;
            at = i;
        }
    }
    *out = items[at];
    return true;
}

static bool call_min(FrontEval *e, const FrontCall *call, FrontValue *out)
{
    return extreme(e, call, false, out);
}

static bool call_max(FrontEval *e, const FrontCall *call, FrontValue *out)
{
    return extreme(e, call, true, out);
}

/* -- lists -- */

static bool has_items(const FrontValue *v)
{
    return v->kind == FRONT_VALUE_LIST || v->kind == FRONT_VALUE_DICT ||
           v->kind == FRONT_VALUE_TUPLE;
}

static bool call_len(FrontEval *e, const FrontCall *call, FrontValue *out)
{
    if (!has_items(&call->args[0]))
        return wrong_arg(e, call, 0, "a list, a dict or a tuple");
    *out = front_int(call->args[0].u.list.n);
    return true;
}

/* First (or last) place of argument 1 in the list, -1 if it is not there. */
static bool find_item(FrontEval *e, const FrontCall *call, bool last, int64_t *out)
{
    const FrontValue *list = &call->args[0];
    if (list->kind != FRONT_VALUE_LIST)
        return wrong_arg(e, call, 0, "a list");
    *out = -1;
    for (uint32_t i = 0; i < list->u.list.n && (last || *out < 0); i++)
        if (front_value_equal(&list->u.list.at[i], &call->args[1]))
            *out = i;
    return true;
}

static bool call_contains(FrontEval *e, const FrontCall *call, FrontValue *out)
{
    int64_t at;
    if (!find_item(e, call, false, &at))
        return false;
    *out = front_bool(at >= 0);
    return true;
}

static bool call_index_of(FrontEval *e, const FrontCall *call, FrontValue *out)
{
    int64_t at;
    if (!find_item(e, call, false, &at))
        return false;
    *out = at < 0 ? (FrontValue){0} : front_int(at);
    return true;
}

static bool call_last_index_of(FrontEval *e, const FrontCall *call, FrontValue *out)
{
    int64_t at;
    if (!find_item(e, call, true, &at))
        return false;
    *out = at < 0 ? (FrontValue){0} : front_int(at);
    return true;
}

static bool is_key(const char *key, const FrontValue *v)
{
    int64_t i;
    if (v->kind == FRONT_VALUE_STRING)
        return !strcmp(key, v->u.s);
    return front_value_int(v, &i) && front_key_is_number(key, i);
}

/* The first key of a dict that is none of the list's: what a model must not leave unread. */
static bool call_other_key(FrontEval *e, const FrontCall *call, FrontValue *out)
{
    const FrontValue *dict = &call->args[0], *list = &call->args[1];
    *out = (FrontValue){0};
    if (dict->kind == FRONT_VALUE_NONE)
        return true;
    if (dict->kind != FRONT_VALUE_DICT)
        return wrong_arg(e, call, 0, "a dict or `none`");
    if (list->kind != FRONT_VALUE_LIST)
        return wrong_arg(e, call, 1, "a list");
    for (uint32_t i = 0; i < dict->u.list.n && out->kind == FRONT_VALUE_NONE; i++) {
        uint32_t k = 0;
        while (k < list->u.list.n && !is_key(dict->u.list.keys[i], &list->u.list.at[k]))
            k++;
        if (k == list->u.list.n)
            *out = front_string(dict->u.list.keys[i]);
    }
    return true;
}

/* -- words -- */

/* Names that config.json uses for activations, and ours. */
static bool call_activation(FrontEval *e, const FrontCall *call, FrontValue *out)
{
    static const char *const pairs[][2] = {
        {"gelu_new", "gelu_tanh"}, {"gelu_pytorch_tanh", "gelu_tanh"},
        {"gelu", "gelu_erf"},      {"quick_gelu", "quick_gelu"},
        {"silu", "silu"},          {"swish", "silu"},
        {"relu", "relu"},          {"sigmoid", "sigmoid"},
        {"tanh", "tanh"},
    };
    enum { N = sizeof pairs / sizeof pairs[0] };
    if (call->args[0].kind != FRONT_VALUE_STRING)
        return wrong_arg(e, call, 0, "a string");
    const char *known = "";
    for (uint32_t i = 0; i < N; i++) {
        if (!strcmp(call->args[0].u.s, pairs[i][0])) {
            *out = front_string(sym(e->s, pairs[i][1]));
            return true;
        }
        known = arena_printf(e->s->arena, "%s%s%s", known, i ? ", " : "", pairs[i][0]);
    }
    diag(e->s, arg_span(call, 0), front_activation, call->args[0].u.s, known);
    return false;
}

static bool call_window(FrontEval *e, const FrontCall *call, FrontValue *out)
{
    int64_t keys;
    if (!front_value_int(&call->args[0], &keys) || keys < 1)
        return wrong_arg(e, call, 0, "a whole number of keys above 0");
    *out = (FrontValue){.kind = FRONT_VALUE_MASK, .u.i = keys};
    return true;
}

/* -- tensors' dims -- */

static bool call_dim(FrontEval *e, const FrontCall *call, FrontValue *out)
{
    IrValue x;
    int64_t i;
    if (!front_arg_tensor(e, call, 0, &x))
        return false;
    const IrTypeInfo *info = ir_type_info(e->m, ir_value_type(e->g, x));
    if (!front_value_int(&call->args[1], &i))
        return wrong_arg(e, call, 1, "an int");
    i += i < 0 ? info->rank : 0;
    if (i < 0 || i >= info->rank)
        return wrong_arg(e, call, 1, "the number of a dim, or a negative one from the end");
    IrDim *dim = ARENA_NEW(e->s->arena, IrDim);
    *dim = info->dim[i];
    *out = (FrontValue){.kind = FRONT_VALUE_DIM, .u.dim = dim};
    return true;
}

/* The size alone, without its axis. */
static bool call_size(FrontEval *e, const FrontCall *call, FrontValue *out)
{
    int64_t i;
    if (!front_value_int(&call->args[0], &i))
        return wrong_arg(e, call, 0, "an axis or a product of axes");
    *out = front_int(i);
    return true;
}

enum { ANY = 1 << 16 };

const FrontBuiltin front_builtins[] = {
    {"round", "round(number)", 1, 1, call_round},
    {"sqrt", "sqrt(number)", 1, 1, call_sqrt},
    {"log", "log(number)", 1, 1, call_log},
    {"exp", "exp(number)", 1, 1, call_exp},
    {"pow", "pow(base, exponent)", 2, 2, call_pow},
    {"floor", "floor(number)", 1, 1, call_floor},
    {"ceil", "ceil(number)", 1, 1, call_ceil},
    {"min", "min(number, ...)", 1, ANY, call_min},
    {"max", "max(number, ...)", 1, ANY, call_max},
    {"len", "len(list)", 1, 1, call_len},
    {"contains", "contains(list, item)", 2, 2, call_contains},
    {"index_of", "index_of(list, item)", 2, 2, call_index_of},
    {"last_index_of", "last_index_of(list, item)", 2, 2, call_last_index_of},
    {"other_key", "other_key(dict, list)", 2, 2, call_other_key},
    {"activation", "activation(name)", 1, 1, call_activation},
    {"window", "window(keys)", 1, 1, call_window},
    {"dim", "dim(tensor, number)", 2, 2, call_dim},
    {"size", "size(dim)", 1, 1, call_size},
    {"heads", "heads(tensor, n)", 2, 2, front_sugar_heads},
    {"merge", "merge(tensor)", 1, 1, front_sugar_merge},
    {"split", "split(tensor, n)", 2, 2, front_sugar_split},
    {"reshape", "reshape(tensor, [dims])", 2, 2, front_sugar_reshape},
    {"kv.update", "kv.update(slot, k, v)", 3, 3, front_sugar_kv_update},
    {"kv.shared", "kv.shared(slot)", 1, 1, front_sugar_kv_shared},
    {NULL, NULL, 0, 0, NULL},
};

const FrontBuiltin *front_builtin_find(Sym name)
{
    for (const FrontBuiltin *b = front_builtins; b->name; b++)
        if (!strcmp(b->name, name))
            return b;
    return NULL;
}
