/* Expressions: names, lists, members, choices, strings, dims. */
#include "frontend/model_eval.h"

bool front_step(FrontEval *e, Span span)
{
    enum { DEEPEST = 500, MOST_STEPS = 1000000 };
    if (e->depth > DEEPEST) {
        diag(e->s, span, front_depth, DEEPEST);
        return false;
    }
    if (++e->steps > MOST_STEPS) {
        diag(e->s, span, front_steps, MOST_STEPS);
        return false;
    }
    return true;
}

bool front_type_mismatch(FrontEval *e, Span span, const char *what, const char *want,
                         const FrontValue *v)
{
    diag(e->s, span, front_type, what, want, front_value_describe(e->s, e->g, v));
    return false;
}

/* -- names -- */

static bool eval_name(FrontEval *e, const FrontExpr *x, FrontValue *out)
{
    const FrontVar *var = front_lookup(e, x->u.s);
    if (var) {
        *out = var->value;
        return true;
    }
    /* a word of the op table: `causal`, `silu`, `before_weight` */
    if (front_op_word(x->u.s)) {
        *out = front_string(x->u.s);
        return true;
    }
    diag(e->s, x->span, front_unknown_name, x->u.s);
    FrontHints names = {0};
    for (const FrontFrame *frame = e->frame; frame; frame = frame->up)
        for (uint32_t i = 0; i < frame->vars.n; i++)
            vec_push(e->s->arena, &names, frame->vars.at[i].name);
    front_op_words(e, &names);
    const char *near = diag_nearest(x->u.s, names.at, names.n);
    if (near)
        diag(e->s, no_span, did_you_mean, near);
    return false;
}

/* -- strings: each {name} becomes that name's value -- */

static bool string_piece(FrontEval *e, const FrontExpr *x, const char *from, size_t length,
                         const char **out)
{
    const FrontVar *var = front_lookup(e, intern_n(&e->s->interner, from, length));
    if (var && front_value_text(e->s, &var->value, out))
        return true;
    diag(e->s, x->span, front_string_piece, (int)length, from);
    return false;
}

bool front_eval_string(FrontEval *e, const FrontExpr *x, const char **out)
{
    enum { LONGEST = 4096 };
    const char *text = "", *at = x->u.s;
    for (;;) {
        const char *open = strchr(at, '{');
        if (!open)
            break;
        const char *close = strchr(open, '}'), *piece;
        if (!close) {
            diag(e->s, x->span, front_string_brace);
            return false;
        }
        if (!string_piece(e, x, open + 1, (size_t)(close - open - 1), &piece))
            return false;
        text = arena_printf(e->s->arena, "%s%.*s%s", text, (int)(open - at), at, piece);
        at = close + 1;
        if (strlen(text) > LONGEST) {
            diag(e->s, x->span, front_string_long, LONGEST);
            return false;
        }
    }
    *out = text[0] ? arena_printf(e->s->arena, "%s%s", text, at) : at;
    return true;
}

/* -- lists -- */

static bool eval_list(FrontEval *e, const FrontExpr *x, FrontValue *out)
{
    *out = (FrontValue){.kind = FRONT_VALUE_LIST};
    out->u.list.at = ARENA_ARRAY(e->s->arena, FrontValue, x->u.list.n + 1);
    for (uint32_t i = 0; i < x->u.list.n; i++)
        if (!front_eval_plain(e, x->u.list.at[i], &out->u.list.at[i]))
            return false;
    out->u.list.n = x->u.list.n;
    return true;
}

static bool eval_each(FrontEval *e, const FrontExpr *x, FrontValue *out)
{
    int64_t from, to;
    if (!front_eval_int(e, x->u.each.from, "the start of `for`", &from) ||
        !front_eval_int(e, x->u.each.to, "the end of `for`", &to))
        return false;
    VEC(FrontValue) items = {0};
    for (int64_t i = from; i < to; i++) {
        FrontFrame frame;
        FrontValue item;
        if (!front_step(e, x->span))
            return false;
        front_frame_push(e, &frame, e->frame);
        bool ok = front_define(e, &frame, x->u.each.name, FRONT_BOUND_LOOP, front_int(i)) &&
                  front_eval_plain(e, x->u.each.item, &item);
        e->frame = frame.up;
        if (!ok)
            return false;
        vec_push(e->s->arena, &items, item);
    }
    *out = (FrontValue){.kind = FRONT_VALUE_LIST};
    out->u.list.at = items.at;
    out->u.list.n = items.n;
    return true;
}

/* -- parts of lists and dicts -- */

static bool missing_key(FrontEval *e, Span span, const FrontValue *dict, const char *key)
{
    diag(e->s, span, front_no_key, key);
    const char *near = diag_nearest(key, dict->u.list.keys, dict->u.list.n);
    if (near)
        diag(e->s, no_span, did_you_mean, near);
    return false;
}

static bool read_member(FrontValue *member, FrontValue *out)
{
    member->read = true;
    *out = *member;
    return true;
}

static bool find_key(const FrontValue *dict, Sym key, FrontValue *out)
{
    for (uint32_t i = 0; i < dict->u.list.n; i++)
        if (dict->u.list.keys[i] == key)
            return read_member(&dict->u.list.at[i], out);
    return false;
}

/* A dict whose keys are numbers is read by number: 5 finds "5" and "05". */
static bool find_number(const FrontValue *dict, int64_t number, FrontValue *out)
{
    for (uint32_t i = 0; i < dict->u.list.n; i++)
        if (front_key_is_number(dict->u.list.keys[i], number))
            return read_member(&dict->u.list.at[i], out);
    return false;
}

static bool eval_member(FrontEval *e, const FrontExpr *x, FrontWant want, FrontValue *out)
{
    FrontValue of;
    if (!front_eval_expr(e, x->u.member.of, (FrontWant){.lenient = want.lenient}, &of))
        return false;
    *out = (FrontValue){0};
    if (of.kind == FRONT_VALUE_NONE && want.lenient)
        return true;
    if (of.kind != FRONT_VALUE_DICT)
        return front_type_mismatch(e, x->u.member.of->span, "what stands before `.`", "a dict",
                                   &of);
    Sym key = x->u.member.name.name;
    return find_key(&of, key, out) || want.lenient ||
           missing_key(e, x->u.member.name.span, &of, key);
}

static bool index_dict(FrontEval *e, const FrontExpr *x, const FrontValue *of, const FrontValue *at,
                       FrontWant want, FrontValue *out)
{
    int64_t number;
    const char *text;
    if (at->kind == FRONT_VALUE_STRING && (find_key(of, at->u.s, out) || want.lenient))
        return true;
    if (front_value_int(at, &number) && (find_number(of, number, out) || want.lenient))
        return true;
    if (at->kind != FRONT_VALUE_STRING && !front_value_int(at, &number))
        return front_type_mismatch(e, x->u.index.at->span, "a dict's index", "a string or an int",
                                   at);
    front_value_text(e->s, at, &text);
    return missing_key(e, x->u.index.at->span, of, text);
}

static bool eval_index(FrontEval *e, const FrontExpr *x, FrontWant want, FrontValue *out)
{
    FrontValue of, at;
    int64_t i;
    if (!front_eval_expr(e, x->u.index.of, (FrontWant){.lenient = want.lenient}, &of) ||
        !front_eval_expr(e, x->u.index.at, (FrontWant){.lenient = want.lenient}, &at))
        return false;
    *out = (FrontValue){0};
    if (want.lenient && (of.kind == FRONT_VALUE_NONE || at.kind == FRONT_VALUE_NONE))
        return true;
    if (of.kind == FRONT_VALUE_DICT)
        return index_dict(e, x, &of, &at, want, out);
    if (of.kind != FRONT_VALUE_LIST && of.kind != FRONT_VALUE_TUPLE)
        return front_type_mismatch(e, x->u.index.of->span, "what stands before `[`",
                                   "a list, a tuple or a dict", &of);
    if (!front_value_int(&at, &i))
        return front_type_mismatch(e, x->u.index.at->span, "a list's index", "an int", &at);
    if (i >= 0 && i < (int64_t)of.u.list.n) {
        *out = of.u.list.at[i];
        return true;
    }
    if (want.lenient)
        return true;
    diag(e->s, x->u.index.at->span, front_index_range, (long long)i, of.u.list.n);
    return false;
}

/* -- the rest -- */

static bool eval_choice(FrontEval *e, const FrontExpr *x, FrontWant want, FrontValue *out)
{
    bool yes;
    return front_eval_bool(e, x->u.choice.condition, "the condition before `?`", &yes) &&
           front_eval_expr(e, yes ? x->u.choice.yes : x->u.choice.no, want, out);
}

static bool eval_unary(FrontEval *e, const FrontExpr *x, FrontWant want, FrontValue *out)
{
    bool b;
    if (x->u.unary.op == FRONT_NEGATE)
        return front_eval_negate(e, x, want, out);
    if (!front_eval_bool(e, x->u.unary.a, "what stands behind `not`", &b))
        return false;
    *out = front_bool(!b);
    return true;
}

static bool eval_kind(FrontEval *e, const FrontExpr *x, FrontWant want, FrontValue *out)
{
    const char *text;
    switch (x->kind) {
    case FRONT_EXPR_NONE:
        *out = (FrontValue){0};
        return true;
    case FRONT_EXPR_INT:
        *out = front_int(x->u.i);
        return true;
    case FRONT_EXPR_FLOAT:
        *out = front_float(x->u.f);
        return true;
    case FRONT_EXPR_BOOL:
        *out = front_bool(x->u.b);
        return true;
    case FRONT_EXPR_STRING:
        if (!front_eval_string(e, x, &text))
            return false;
        *out = front_string(sym(e->s, text));
        return true;
    case FRONT_EXPR_NAME:
        return eval_name(e, x, out);
    case FRONT_EXPR_LIST:
        return eval_list(e, x, out);
    case FRONT_EXPR_EACH:
        return eval_each(e, x, out);
    case FRONT_EXPR_MEMBER:
        return eval_member(e, x, want, out);
    case FRONT_EXPR_INDEX:
        return eval_index(e, x, want, out);
    case FRONT_EXPR_CALL:
        return front_eval_call(e, x, want, out);
    case FRONT_EXPR_UNARY:
        return eval_unary(e, x, want, out);
    case FRONT_EXPR_BINARY:
        return front_eval_binary(e, x, want, out);
    case FRONT_EXPR_CHOICE:
        return eval_choice(e, x, want, out);
    case FRONT_EXPR_WEIGHT:
        return front_eval_weight(e, x, out);
    }
    return false;
}

bool front_eval_expr(FrontEval *e, const FrontExpr *x, FrontWant want, FrontValue *out)
{
    if (!front_step(e, x->span))
        return false;
    e->depth++;
    bool ok = eval_kind(e, x, want, out);
    e->depth--;
    return ok;
}

bool front_eval_plain(FrontEval *e, const FrontExpr *x, FrontValue *out)
{
    return front_eval_expr(e, x, (FrontWant){0}, out);
}

bool front_eval_bool(FrontEval *e, const FrontExpr *x, const char *what, bool *out)
{
    FrontValue v;
    if (!front_eval_plain(e, x, &v))
        return false;
    if (v.kind != FRONT_VALUE_BOOL)
        return front_type_mismatch(e, x->span, what, "a bool", &v);
    *out = v.u.b;
    return true;
}

bool front_eval_int(FrontEval *e, const FrontExpr *x, const char *what, int64_t *out)
{
    FrontValue v;
    if (!front_eval_plain(e, x, &v))
        return false;
    return front_value_int(&v, out) || front_type_mismatch(e, x->span, what, "a whole number", &v);
}

/* -- dims and types -- */

bool front_eval_dim(FrontEval *e, const FrontExpr *x, IrDim *out)
{
    FrontValue v;
    int64_t size;
    if (!front_eval_plain(e, x, &v))
        return false;
    if (v.kind == FRONT_VALUE_DIM) {
        *out = *v.u.dim;
        return true;
    }
    if (!front_value_int(&v, &size) || size < 1) {
        diag(e->s, x->span, front_dim, front_value_describe(e->s, e->g, &v));
        return false;
    }
    *out = ir_dim_number(size);
    return true;
}

bool front_eval_type(FrontEval *e, DType dtype, const FrontExprs *dims, Span span, IrType *out)
{
    const int64_t most_elements = (int64_t)1 << 40;
    IrTypeInfo info = {.dtype = dtype, .rank = dims->n};
    int64_t numel = 1;
    if (dims->n > IR_MAX_RANK) {
        diag(e->s, span, front_rank, (int)IR_MAX_RANK, dims->n);
        return false;
    }
    for (uint32_t i = 0; i < dims->n; i++) {
        if (!front_eval_dim(e, dims->at[i], &info.dim[i]))
            return false;
        if (__builtin_mul_overflow(numel, ir_dim_size(&info.dim[i]), &numel) ||
            numel > most_elements) {
            diag(e->s, span, front_tensor_size, 40);
            return false;
        }
    }
    *out = ir_type(e->m, &info);
    return true;
}
