/* Calls of ops: operands and attributes as the op table has them, results' names, random keys. */
#include "frontend/model_eval.h"

#include <ctype.h>
#include <stdlib.h>

/* -- the op table, seen from the language -- */

IrOpKind front_op_find(Sym name)
{
    IrOpKind kind = ir_op_find(name);
    const IrOpInfo *info = kind == IR_OP_none ? NULL : ir_op_info(kind);
    /* cache ops are spelled kv.update and kv.shared, which know the slots */
    return info && info->levels & 1u << IR_MODEL && !(info->traits & IR_CACHE) ? kind : IR_OP_none;
}

/* Is `word` one of `choices`, "a|b|c"? "" takes any. */
static bool word_among(const char *choices, const char *word)
{
    size_t length = strlen(word);
    if (!choices[0])
        return true;
    for (const char *at = choices; at; at = strchr(at, '|')) {
        at += *at == '|';
        if (!strncmp(at, word, length) && (at[length] == '|' || !at[length]))
            return true;
    }
    return false;
}

bool front_op_word(Sym name)
{
    for (uint32_t k = 1; k < IR_OP_COUNT; k++) {
        const IrOpInfo *info = ir_op_info((IrOpKind)k);
        for (uint32_t i = 0; i < info->n_attr; i++)
            if (info->attr[i].type == IR_ATTR_SYM && info->attr[i].text[0] &&
                word_among(info->attr[i].text, name))
                return true;
    }
    return false;
}

static void push_words(FrontEval *e, const char *choices, FrontHints *out)
{
    for (const char *at = choices; *at;) {
        size_t length = strcspn(at, "|");
        vec_push(e->s->arena, out, intern_n(&e->s->interner, at, length));
        at += length + (at[length] == '|');
    }
}

void front_op_words(FrontEval *e, FrontHints *out)
{
    for (uint32_t k = 1; k < IR_OP_COUNT; k++) {
        const IrOpInfo *info = ir_op_info((IrOpKind)k);
        for (uint32_t i = 0; i < info->n_attr && info->levels & 1u << IR_MODEL; i++)
            if (info->attr[i].type == IR_ATTR_SYM)
                push_words(e, info->attr[i].text, out);
    }
}

/* "x, w, b?, in_out=": operands, then what is given by name. */
static const char *signature_text(Session *s, const IrOpInfo *info)
{
    const char *text = "";
    for (uint32_t i = 0; i < info->n_in; i++)
        text = arena_printf(s->arena, "%s%s%s%s", text, text[0] ? ", " : "", info->in[i].name,
                            info->in[i].optional ? "?" : "");
    for (uint32_t i = 0; i < info->n_attr; i++)
        text = arena_printf(s->arena, "%s%s%s=", text, text[0] ? ", " : "", info->attr[i].name);
    return text;
}

/* -- names and keys -- */

Sym front_value_name(FrontEval *e, Sym name)
{
    size_t end = strlen(e->prefix), at = end;
    while (at && isdigit((unsigned char)e->prefix[at - 1]))
        at--;
    if (at == end || !at || e->prefix[at - 1] != '.')
        return name;
    bool apart = isdigit((unsigned char)name[strlen(name) - 1]); /* ln_1 in block 3 is ln_1.3 */
    return intern_printf(&e->s->interner, apart ? "%s.%s" : "%s%s", name, e->prefix + at);
}

/* `q_proj` of `...self_attn.q_proj.weight`, for what an op makes of a weight. */
static Sym name_of_weight(FrontEval *e, const IrOpArgs *args)
{
    bool plain = ir_op_info(args->kind)->traits & IR_COMMUTATIVE;
    for (uint32_t i = 0; i < args->n_in && !plain; i++) {
        if (!args->in[i].i || ir_value(e->g, args->in[i])->def != IR_DEF_STATE)
            continue;
        const char *name = ir_value(e->g, args->in[i])->name, *end = strrchr(name, '.');
        if (!end || (strcmp(end, ".weight") && strcmp(end, ".bias")))
            end = name + strlen(name);
        const char *at = end;
        while (at > name && at[-1] != '.')
            at--;
        if (at < end && !isdigit((unsigned char)*at))
            return intern_n(&e->s->interner, at, (size_t)(end - at));
    }
    return NULL;
}

static Sym result_name(FrontEval *e, const IrOpArgs *args, FrontWant want)
{
    Sym name = args->name ? args->name : want.name;
    if (!name)
        name = name_of_weight(e, args);
    if (!name)
        name = want.fallback;
    return front_value_name(e, name ? name : sym(e->s, ir_op_info(args->kind)->name));
}

/* A random op's key: from its place in the model and its name, whatever other ops there are. */
static int64_t random_key(FrontEval *e, Sym name)
{
    const char *path =
        arena_printf(e->s->arena, "%s %s", ir_scope_rec(e->m, e->b.scope)->name, name);
    uint64_t key = map_hash(path, strlen(path), 0) & 0xffffffffu;
    while (map_get(&e->keys, key, NULL))
        key = (key + 1) & 0xffffffffu;
    map_put(&e->keys, key, 1);
    return (int64_t)key;
}

/* Only an op that draws has a key: one whose probability (`p`, `dropout`) is not 0. */
static void set_random_key(FrontEval *e, const IrOpInfo *info, IrOpArgs *args)
{
    uint32_t n = 0;
    bool draws = false;
    if (!(info->traits & IR_RANDOM))
        return;
    for (; n < IR_MAX_ATTRS && args->attrs[n]; n++) {
        if (!strcmp(args->attrs[n], "key"))
            return;
        if (!strcmp(args->attrs[n], "p") || !strcmp(args->attrs[n], "dropout"))
            draws |= args->values[n].f > 0;
    }
    if (!draws || n == IR_MAX_ATTRS)
        return;
    args->attrs[n] = "key";
    args->values[n].i = random_key(e, args->name);
}

/* Errors are told where they are; the op keeps the line that a reader knows it by. */
static void mark_site(FrontEval *e, IrOp op)
{
    if (!e->site.line)
        return;
    ir_op(e->g, op)->span = e->site;
    for (uint32_t i = 0; i < ir_op(e->g, op)->n_out; i++)
        ir_value(e->g, ir_out(e->g, op, i))->span = e->site;
}

static bool check_size(FrontEval *e, IrOp op, Span span)
{
    const int64_t most_elements = (int64_t)1 << 48;
    for (uint32_t i = 0; i < ir_op(e->g, op)->n_out; i++) {
        const IrTypeInfo *info = ir_type_info(e->m, ir_value_type(e->g, ir_out(e->g, op, i)));
        int64_t numel = 1;
        for (uint32_t d = 0; d < info->rank; d++)
            if (__builtin_mul_overflow(numel, ir_dim_size(&info->dim[d]), &numel) ||
                numel > most_elements) {
                diag(e->s, span, front_tensor_size, 48);
                return false;
            }
    }
    return true;
}

bool front_op(FrontEval *e, Span span, IrOpArgs *args, FrontWant want, FrontValue *out)
{
    const IrOpInfo *info = ir_op_info(args->kind);
    args->name = result_name(e, args, want);
    set_random_key(e, info, args);
    e->b.span = span;
    IrOp op = ir_build(&e->b, args);
    if (!op.i)
        return false;
    mark_site(e, op);
    if (!check_size(e, op, span))
        return false;
    if (!(info->traits & IR_TUPLE)) {
        *out = front_tensor(ir_out(e->g, op, 0));
        return true;
    }
    *out = (FrontValue){.kind = FRONT_VALUE_TUPLE};
    out->u.list.at = ARENA_ARRAY(e->s->arena, FrontValue, info->n_out);
    for (uint32_t i = 0; i < info->n_out; i++)
        out->u.list.at[out->u.list.n++] = front_tensor(ir_out(e->g, op, i));
    return true;
}

/* -- arguments -- */

typedef struct OpCall {
    FrontEval *e;
    const IrOpInfo *info;
    IrValue in[64]; /* a variadic op's operands may be many */
    bool given[64];
    uint32_t n_in, n_attrs;
    IrOpArgs args;
} OpCall;

static bool set_operand(OpCall *c, uint32_t i, const FrontValue *v, Span span)
{
    FrontEval *e = c->e;
    bool variadic = c->info->traits & IR_VARIADIC;
    if (i >= (variadic ? 64 : c->info->n_in)) {
        diag(e->s, span, front_op_operands, c->info->name, c->info->n_in,
             signature_text(e->s, c->info));
        return false;
    }
    uint32_t declared = i < c->info->n_in ? i : c->info->n_in - 1;
    const char *name = c->info->in[declared].name;
    if (c->given[i]) {
        diag(e->s, span, front_given_twice, name);
        return false;
    }
    bool absent = v->kind == FRONT_VALUE_NONE && c->info->in[declared].optional;
    if (!absent && v->kind != FRONT_VALUE_TENSOR) {
        const char *what = arena_printf(e->s->arena, "operand `%s` of `%s`", name, c->info->name);
        return front_type_mismatch(e, span, what, "a tensor", v);
    }
    c->given[i] = true;
    c->in[i] = absent ? (IrValue){0} : v->u.tensor;
    if (i >= c->n_in)
        c->n_in = i + 1;
    return true;
}

static int find_attr(const IrOpInfo *info, const char *name)
{
    for (uint32_t i = 0; i < info->n_attr; i++)
        if (!strcmp(info->attr[i].name, name))
            return (int)i;
    return -1;
}

static IrAttr *new_attr(OpCall *c, const char *name, Span span)
{
    for (uint32_t i = 0; i < c->n_attrs; i++)
        if (!strcmp(c->args.attrs[i], name)) {
            diag(c->e->s, span, front_given_twice, name);
            return NULL;
        }
    c->args.attrs[c->n_attrs] = name;
    return &c->args.values[c->n_attrs++];
}

static bool set_word(OpCall *c, uint32_t i, const FrontValue *v, Span span, IrAttr *out)
{
    const char *choices = c->info->attr[i].text, *name = c->info->attr[i].name;
    out->sym = v->u.s;
    if (word_among(choices, v->u.s))
        return true;
    diag(c->e->s, span, front_attr_word, name, c->info->name, v->u.s, choices);
    return false;
}

static bool set_attr(OpCall *c, uint32_t i, const FrontValue *v, Span span)
{
    static const char *const wants[] = {"a whole number of 32 bits", "a number", "a bool",
                                        "a word"};
    FrontEval *e = c->e;
    const char *name = c->info->attr[i].name;
    if (v->kind == FRONT_VALUE_NONE)
        return true; /* the default */
    if (v->kind == FRONT_VALUE_MASK && !strcmp(name, "mask")) {
        int window = find_attr(c->info, "window");
        IrAttr *mask = window < 0 ? NULL : new_attr(c, name, span);
        IrAttr *size = mask ? new_attr(c, c->info->attr[window].name, span) : NULL;
        if (!size)
            return window < 0 ? front_type_mismatch(e, span, "`mask`", "a word", v) : false;
        mask->sym = sym(e->s, "causal");
        size->i = v->u.i;
        return true;
    }
    IrAttrType type = c->info->attr[i].type;
    IrAttr *attr = new_attr(c, name, span);
    if (!attr)
        return false;
    if (type == IR_ATTR_SYM && v->kind == FRONT_VALUE_STRING)
        return set_word(c, i, v, span, attr);
    bool ok = false;
    if (type == IR_ATTR_I64)
        ok = front_value_int(v, &attr->i) && attr->i >= INT32_MIN && attr->i <= UINT32_MAX;
    else if (type == IR_ATTR_F64)
        ok = front_value_number(v, &attr->f);
    else if (type == IR_ATTR_BOOL && v->kind == FRONT_VALUE_BOOL) {
        attr->b = v->u.b;
        ok = true;
    }
    const char *what = arena_printf(e->s->arena, "attribute `%s` of `%s`", name, c->info->name);
    return ok || front_type_mismatch(e, span, what, wants[type], v);
}

static bool set_named(OpCall *c, const FrontArg *arg, const FrontValue *v)
{
    Session *s = c->e->s;
    for (uint32_t i = 0; i < c->info->n_in; i++)
        if (!strcmp(c->info->in[i].name, arg->name))
            return set_operand(c, i, v, arg->value->span);
    int attr = find_attr(c->info, arg->name);
    if (attr >= 0)
        return set_attr(c, (uint32_t)attr, v, arg->value->span);
    diag(s, arg->span, front_op_keyword, c->info->name, arg->name, signature_text(s, c->info));
    const char *names[IR_MAX_INS + IR_MAX_ATTRS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->info->n_in; i++)
        names[n++] = c->info->in[i].name;
    for (uint32_t i = 0; i < c->info->n_attr; i++)
        names[n++] = c->info->attr[i].name;
    const char *near = diag_nearest(arg->name, names, n);
    if (near)
        diag(s, no_span, did_you_mean, near);
    return false;
}

/* Arguments by position are operands; a tuple there stands for its tensors. */
static bool set_args(OpCall *c, const FrontExpr *call)
{
    uint32_t next = 0;
    for (uint32_t i = 0; i < call->u.call.args.n; i++) {
        const FrontArg *arg = &call->u.call.args.at[i];
        FrontValue v;
        if (!front_eval_plain(c->e, arg->value, &v))
            return false;
        if (arg->name) {
            if (!set_named(c, arg, &v))
                return false;
            continue;
        }
        bool is_tuple = v.kind == FRONT_VALUE_TUPLE;
        for (uint32_t k = 0; k < (is_tuple ? v.u.list.n : 1); k++)
            if (!set_operand(c, next++, is_tuple ? &v.u.list.at[k] : &v, arg->value->span))
                return false;
    }
    for (uint32_t i = 0; i < c->info->n_in; i++) {
        if (c->given[i] || c->info->in[i].optional)
            continue;
        diag(c->e->s, call->span, front_op_missing, c->info->name, c->info->in[i].name,
             signature_text(c->e->s, c->info));
        return false;
    }
    return true;
}

/* Names of a tuple's results: those on the left of `=`, else the op's own. */
static void set_names(OpCall *c, FrontWant want)
{
    FrontEval *e = c->e;
    if (!(c->info->traits & IR_TUPLE))
        return;
    for (uint32_t i = 0; i < c->info->n_out; i++) {
        bool given = want.names && want.names->n > 1 && i < want.names->n;
        Sym name = given ? want.names->at[i].name : sym(e->s, c->info->out[i].name);
        Sym wish = want.name ? want.name : want.fallback;
        if (!given && wish)
            name = intern_printf(&e->s->interner, "%s_%s", wish, name);
        if (i == 0)
            c->args.name = name;
        else
            c->args.out_names[i] = front_value_name(e, name);
    }
}

bool front_op_call(FrontEval *e, IrOpKind kind, const FrontExpr *call, FrontWant want,
                   FrontValue *out)
{
    OpCall c = {.e = e, .info = ir_op_info(kind), .args = {.kind = kind}};
    if (!set_args(&c, call))
        return false;
    c.args.in = c.in;
    c.args.n_in = c.n_in;
    set_names(&c, want);
    return front_op(e, call->span, &c.args, want, out);
}
