/* Functions that build ops which the op table alone does not explain: reshapes, slices, K/V. */
#include "frontend/model_eval.h"

bool front_arg_tensor(FrontEval *e, const FrontCall *call, uint32_t i, IrValue *out)
{
    const FrontValue *v = &call->args[i];
    const char *what;
    if (v->kind == FRONT_VALUE_TENSOR) {
        *out = v->u.tensor;
        return true;
    }
    what = arena_printf(e->s->arena, "argument %u of `%s`", i + 1, call->x->u.call.name);
    return front_type_mismatch(e, call->x->u.call.args.at[i].value->span, what, "a tensor", v);
}

static Span arg_span(const FrontCall *call, uint32_t i)
{
    return call->x->u.call.args.at[i].value->span;
}

static bool arg_dim(FrontEval *e, const FrontCall *call, uint32_t i, IrDim *out)
{
    const FrontValue *v = &call->args[i];
    int64_t size;
    if (v->kind == FRONT_VALUE_DIM) {
        *out = *v->u.dim;
        return true;
    }
    if (!front_value_int(v, &size) || size < 1) {
        diag(e->s, arg_span(call, i), front_dim, front_value_describe(e->s, e->g, v));
        return false;
    }
    *out = ir_dim_number(size);
    return true;
}

static bool reshape(FrontEval *e, const FrontCall *call, IrValue x, const IrTypeInfo *info,
                    FrontValue *out)
{
    IrOpArgs args = {.kind = IR_OP_reshape, .in = &x, .n_in = 1};
    args.out[0] = ir_type(e->m, info);
    return front_op(e, call->x->span, &args, call->want, out);
}

/* The last dim over n, keeping the factors that n does not take: 3*heads*16 over heads is 3*16. */
static bool dim_divide(const IrDim *dim, const IrDim *n, IrDim *out)
{
    IrDim left = *n;
    *out = (IrDim){0};
    for (uint32_t i = 0; i < dim->n; i++) {
        bool taken = false;
        for (uint32_t j = 0; j < left.n && !taken; j++)
            if (left.f[j].axis == dim->f[i].axis && left.f[j].size == dim->f[i].size) {
                left.f[j] = left.f[--left.n];
                taken = true;
            }
        if (!taken)
            out->f[out->n++] = dim->f[i];
    }
    if (!left.n)
        return true;
    int64_t size = ir_dim_size(dim), by = ir_dim_size(n);
    *out = ir_dim_number(size / by);
    return size % by == 0;
}

/* heads(x, n): [.., n * D] as [.., n, D] */
bool front_sugar_heads(FrontEval *e, const FrontCall *call, FrontValue *out)
{
    IrValue x;
    IrDim n, size;
    if (!front_arg_tensor(e, call, 0, &x) || !arg_dim(e, call, 1, &n))
        return false;
    IrTypeInfo info = *ir_type_info(e->m, ir_value_type(e->g, x));
    if (!info.rank || info.rank == IR_MAX_RANK ||
        !dim_divide(&info.dim[info.rank - 1], &n, &size)) {
        diag(e->s, arg_span(call, 1), front_heads, ir_type_text(e->m, ir_value_type(e->g, x)),
             (long long)ir_dim_size(&n));
        return false;
    }
    info.dim[info.rank - 1] = n;
    info.dim[info.rank++] = size;
    return reshape(e, call, x, &info, out);
}

/* merge(x): [.., n, D] as [.., n * D] */
bool front_sugar_merge(FrontEval *e, const FrontCall *call, FrontValue *out)
{
    IrValue x;
    if (!front_arg_tensor(e, call, 0, &x))
        return false;
    IrTypeInfo info = *ir_type_info(e->m, ir_value_type(e->g, x));
    if (info.rank < 2)
        return front_type_mismatch(e, arg_span(call, 0), "argument 1 of `merge`",
                                   "a tensor of two dims or more", &call->args[0]);
    info.rank--;
    info.dim[info.rank - 1] = ir_dim_product(info.dim[info.rank - 1], info.dim[info.rank]);
    return reshape(e, call, x, &info, out);
}

/* reshape(x, [dims]) */
bool front_sugar_reshape(FrontEval *e, const FrontCall *call, FrontValue *out)
{
    IrValue x;
    const FrontValue *dims = &call->args[1];
    if (!front_arg_tensor(e, call, 0, &x))
        return false;
    if (dims->kind != FRONT_VALUE_LIST)
        return front_type_mismatch(e, arg_span(call, 1), "argument 2 of `reshape`",
                                   "a list of dims", dims);
    IrTypeInfo info = {.dtype = ir_type_info(e->m, ir_value_type(e->g, x))->dtype};
    int64_t numel = 1, size;
    if (dims->u.list.n > IR_MAX_RANK) {
        diag(e->s, arg_span(call, 1), front_rank, (int)IR_MAX_RANK, dims->u.list.n);
        return false;
    }
    for (uint32_t i = 0; i < dims->u.list.n; i++) {
        const FrontValue *dim = &dims->u.list.at[i];
        if (!front_value_int(dim, &size) || size < 1) {
            diag(e->s, arg_span(call, 1), front_dim, front_value_describe(e->s, e->g, dim));
            return false;
        }
        if (__builtin_mul_overflow(numel, size, &numel)) {
            diag(e->s, arg_span(call, 1), front_tensor_size, 62);
            return false;
        }
        info.dim[info.rank++] = dim->kind == FRONT_VALUE_DIM ? *dim->u.dim : ir_dim_number(size);
    }
    return reshape(e, call, x, &info, out);
}

/* split(x, n): n equal parts of the last dim, as a tuple */
bool front_sugar_split(FrontEval *e, const FrontCall *call, FrontValue *out)
{
    enum { MOST = 4096 };
    IrValue x;
    int64_t n;
    if (!front_arg_tensor(e, call, 0, &x))
        return false;
    if (!front_value_int(&call->args[1], &n) || n < 1 || n > MOST)
        return front_type_mismatch(e, arg_span(call, 1), "argument 2 of `split`",
                                   "a whole number of parts", &call->args[1]);
    *out = (FrontValue){.kind = FRONT_VALUE_TUPLE};
    out->u.list.at = ARENA_ARRAY(e->s->arena, FrontValue, n);
    for (int64_t i = 0; i < n; i++) {
        const FrontNames *names = call->want.names;
        bool named = names && i < (int64_t)names->n;
        IrOpArgs args = {
            .kind = IR_OP_slice, .in = &x, .n_in = 1, .name = named ? names->at[i].name : NULL};
        args.attrs[0] = "index";
        args.values[0].i = i;
        args.attrs[1] = "parts";
        args.values[1].i = n;
        if (!front_op(e, call->x->span, &args, call->want, &out->u.list.at[i]))
            return false;
    }
    out->u.list.n = (uint32_t)n;
    return true;
}

/* -- K/V sharing -- */

static bool arg_slot(FrontEval *e, const FrontCall *call, Sym *out)
{
    if (call->args[0].kind != FRONT_VALUE_STRING)
        return front_type_mismatch(e, arg_span(call, 0), "a K/V slot", "a string", &call->args[0]);
    *out = call->args[0].u.s;
    for (const char *c = *out; *c; c++)
        if (*c <= ' ' || *c >= 0x7f || strchr("\"{}()[]=,:!%$@#", *c)) {
            diag(e->s, arg_span(call, 0), front_slot_name, *out);
            return false;
        }
    if (!**out)
        diag(e->s, arg_span(call, 0), front_slot_name, "");
    return **out != 0;
}

static FrontSlot *find_slot(FrontEval *e, Sym name)
{
    for (uint32_t i = 0; i < e->slots.n; i++)
        if (e->slots.at[i].name == name)
            return &e->slots.at[i];
    return NULL;
}

static void cache_args(FrontEval *e, const FrontCall *call, Sym slot, IrOpArgs *args)
{
    const FrontNames *names = call->want.names;
    bool two = names && names->n == 2;
    args->attrs[0] = "slot";
    args->values[0].sym = slot;
    args->name = two ? names->at[0].name : sym(e->s, "keys");
    args->out_names[1] = front_value_name(e, two ? names->at[1].name : sym(e->s, "values"));
}

/* k, v = kv.update(slot, k, v): what attention reads; the slot now holds it */
bool front_sugar_kv_update(FrontEval *e, const FrontCall *call, FrontValue *out)
{
    IrValue in[2];
    Sym slot;
    if (!arg_slot(e, call, &slot) || !front_arg_tensor(e, call, 1, &in[0]) ||
        !front_arg_tensor(e, call, 2, &in[1]))
        return false;
    IrOpArgs args = {.kind = IR_OP_cache_update, .in = in, .n_in = 2};
    cache_args(e, call, slot, &args);
    if (!front_op(e, call->x->span, &args, call->want, out))
        return false;
    FrontSlot *old = find_slot(e, slot);
    FrontSlot now = {slot, ir_value_type(e->g, in[0]), ir_value_type(e->g, in[1])};
    if (old)
        *old = now;
    else
        vec_push(e->s->arena, &e->slots, now);
    return true;
}

/* k, v = kv.shared(slot): the keys and values that the slot's last update put there */
bool front_sugar_kv_shared(FrontEval *e, const FrontCall *call, FrontValue *out)
{
    Sym slot;
    if (!arg_slot(e, call, &slot))
        return false;
    const FrontSlot *held = find_slot(e, slot);
    if (!held) {
        const char *known = e->slots.n ? "" : "none";
        for (uint32_t i = 0; i < e->slots.n; i++)
            known =
                arena_printf(e->s->arena, "%s%s`%s`", known, i ? ", " : "", e->slots.at[i].name);
        diag(e->s, arg_span(call, 0), front_slot_empty, slot, known);
        return false;
    }
    IrOpArgs args = {.kind = IR_OP_cache_read};
    cache_args(e, call, slot, &args);
    args.out[0] = held->keys;
    args.out[1] = held->values;
    return front_op(e, call->x->span, &args, call->want, out);
}
