/* Calls: of blocks, of functions, of ops. */
#include "frontend/model_eval.h"

/* -- what an argument or a config value must be -- */

bool front_convert(FrontEval *e, Span span, const char *what, FrontTypeKind kind, FrontValue *v)
{
    static const FrontValueKind kinds[] = {
        [FRONT_TYPE_INT] = FRONT_VALUE_INT,       [FRONT_TYPE_FLOAT] = FRONT_VALUE_FLOAT,
        [FRONT_TYPE_BOOL] = FRONT_VALUE_BOOL,     [FRONT_TYPE_STRING] = FRONT_VALUE_STRING,
        [FRONT_TYPE_LIST] = FRONT_VALUE_LIST,     [FRONT_TYPE_DICT] = FRONT_VALUE_DICT,
        [FRONT_TYPE_DIM] = FRONT_VALUE_DIM,       [FRONT_TYPE_TUPLE] = FRONT_VALUE_TUPLE,
        [FRONT_TYPE_TENSOR] = FRONT_VALUE_TENSOR,
    };
    int64_t i;
    double f;
    if (kind == FRONT_TYPE_ANY || v->kind == kinds[kind])
        return true;
    if (kind == FRONT_TYPE_INT && front_value_int(v, &i)) {
        *v = front_int(i);
        return true;
    }
    if (kind == FRONT_TYPE_FLOAT && front_value_number(v, &f)) {
        *v = front_float(f);
        return true;
    }
    if (kind == FRONT_TYPE_DIM && front_value_int(v, &i) && i > 0)
        return true;
    return front_type_mismatch(e, span, what, front_type_describe(kind), v);
}

/* "f32[batch,seq,_]" */
static const char *shape_text(FrontEval *e, DType dtype, const IrDim *dims, const bool *any,
                              uint32_t n)
{
    const char *text = "";
    for (uint32_t i = 0; i < n; i++) {
        IrTypeInfo info = {.dtype = dtype, .rank = 1, .dim = {dims[i]}};
        const char *dim = any[i] ? "[_]" : strchr(ir_type_text(e->m, ir_type(e->m, &info)), '[');
        text = arena_printf(e->s->arena, "%s%s%.*s", text, i ? "," : "", (int)strlen(dim) - 2,
                            dim + 1);
    }
    return arena_printf(e->s->arena, "a tensor %s[%s]", dtype_name(dtype), text);
}

static bool check_shape(FrontEval *e, Span span, const char *what, const FrontTypeExpr *type,
                        const FrontValue *v)
{
    IrDim dims[IR_MAX_RANK];
    bool any[IR_MAX_RANK] = {false};
    const IrTypeInfo *info = ir_type_info(e->m, ir_value_type(e->g, v->u.tensor));
    DType dtype = type->dtype ? dtype_parse(type->dtype) : DTYPE_F32;
    if (dtype == DTYPE_NONE || type->dims.n > IR_MAX_RANK) {
        diag(e->s, type->span, front_tensor_type, type->dtype ? type->dtype : "f32", type->dims.n,
             (int)IR_MAX_RANK);
        return false;
    }
    bool fits = info->dtype == dtype && info->rank == type->dims.n;
    for (uint32_t i = 0; i < type->dims.n; i++) {
        any[i] = !type->dims.at[i];
        if (any[i])
            continue;
        if (!front_eval_dim(e, type->dims.at[i], &dims[i]))
            return false;
        fits = fits && ir_dim_equal(&dims[i], &info->dim[i]);
    }
    return fits ||
           front_type_mismatch(e, span, what, shape_text(e, dtype, dims, any, type->dims.n), v);
}

static bool check_type(FrontEval *e, Span span, const char *what, const FrontTypeExpr *type,
                       FrontValue *v)
{
    if (v->kind == FRONT_VALUE_NONE && (type->nullable || type->kind == FRONT_TYPE_ANY))
        return true;
    if (!front_convert(e, span, what, type->kind, v))
        return false;
    return type->kind != FRONT_TYPE_TENSOR || type->any_shape ||
           check_shape(e, span, what, type, v);
}

/* -- blocks -- */

static const FrontArg *find_arg(const FrontExpr *call, const FrontParam *param, uint32_t i)
{
    const FrontArgs *args = &call->u.call.args;
    if (i < args->n && !args->at[i].name)
        return &args->at[i];
    for (uint32_t k = 0; k < args->n; k++)
        if (args->at[k].name == param->name.name)
            return &args->at[k];
    return NULL;
}

static bool check_args(FrontEval *e, const FrontBlockDef *block, const FrontExpr *call)
{
    const FrontArgs *args = &call->u.call.args;
    VEC(const char *) names = {0};
    for (uint32_t i = 0; i < block->params.n; i++)
        vec_push(e->s->arena, &names, block->params.at[i].name.name);
    bool named = false;
    for (uint32_t i = 0; i < args->n; i++) {
        const FrontArg *arg = &args->at[i];
        uint32_t at = 0, last = 0;
        named |= arg->name != NULL;
        if (named && !arg->name) {
            diag(e->s, arg->span, front_arg_order);
            return false;
        }
        while (arg->name && at < names.n && names.at[at] != arg->name)
            at++;
        for (uint32_t k = 0; k < i; k++)
            last |= args->at[k].name == arg->name && arg->name;
        if (last || (arg->name && at < i && !args->at[at].name)) {
            diag(e->s, arg->span, front_given_twice, arg->name);
            return false;
        }
        if (!arg->name && i < names.n)
            continue;
        if (arg->name && at < names.n)
            continue;
        diag(e->s, arg->span, front_block_args, block->name.name, block->params.n);
        const char *near = arg->name ? diag_nearest(arg->name, names.at, names.n) : NULL;
        if (near)
            diag(e->s, no_span, did_you_mean, near);
        else
            diag(e->s, block->name.span, front_defined_here, block->name.name);
        return false;
    }
    return true;
}

/* Arguments are evaluated among the caller's names, defaults among the parameters before them. */
static bool bind_params(FrontEval *e, const FrontBlockDef *block, const FrontExpr *call,
                        FrontFrame *frame, FrontFrame *caller)
{
    for (uint32_t i = 0; i < block->params.n; i++) {
        const FrontParam *param = &block->params.at[i];
        const FrontArg *arg = find_arg(call, param, i);
        FrontValue v;
        Span span = arg ? arg->value->span : call->span;
        if (!arg && !param->fallback) {
            diag(e->s, call->span, front_arg_missing, block->name.name, param->name.name);
            diag(e->s, param->name.span, front_defined_here, param->name.name);
            return false;
        }
        e->frame = arg ? caller : frame;
        bool ok = front_eval_plain(e, arg ? arg->value : param->fallback, &v);
        e->frame = frame;
        const char *what =
            arena_printf(e->s->arena, "`%s` of block `%s`", param->name.name, block->name.name);
        if (!ok || !check_type(e, span, what, &param->type, &v) ||
            !front_define(e, frame, param->name, FRONT_BOUND_PARAM, v))
            return false;
    }
    return true;
}

/* `at` opens a block of the model: its path goes before names of weights and further paths. */
static bool enter_scope(FrontEval *e, const FrontBlockDef *block, const FrontExpr *at)
{
    const char *path;
    if (!front_eval_string(e, at, &path) || !front_check_path(e, at->span, path))
        return false;
    Sym name =
        e->prefix[0] ? intern_printf(&e->s->interner, "%s.%s", e->prefix, path) : sym(e->s, path);
    if (ir_scope_find(e->m, name).i) {
        diag(e->s, at->span, front_scope_twice, name);
        return false;
    }
    e->b.scope = ir_scope(e->m, (IrScopeRec){.name = name,
                                             .kind = IR_SCOPE_BLOCK,
                                             .parent = e->b.scope,
                                             .def = block->name.name,
                                             .span = at->span});
    e->prefix = name;
    return true;
}

static bool run_body(FrontEval *e, const FrontBlockDef *block)
{
    e->returned = false;
    if (!front_eval_stmts(e, &block->body))
        return false;
    if (!e->returned) {
        diag(e->s, block->name.span, front_no_return, block->name.name);
        return false;
    }
    return true;
}

/* An abbreviation, a block that is one expression, is marked with its call: that tells more. */
static void set_site(FrontEval *e, const FrontBlockDef *block, const FrontExpr *call,
                     FrontWant want)
{
    bool one_expression = block->body.n == 1 && block->body.at[0]->kind == FRONT_STMT_RETURN;
    e->return_name = NULL;
    if (call->u.call.at) {
        e->site = no_span;
        return;
    }
    e->return_name = want.name ? want.name : want.fallback;
    if (!one_expression)
        e->site = no_span;
    else if (!e->site.line)
        e->site = call->span;
}

bool front_eval_block(FrontEval *e, const FrontBlockDef *block, const FrontExpr *call,
                      FrontWant want, FrontValue *out)
{
    enum { DEEPEST = 64 };
    FrontFrame frame, *caller = e->frame;
    Sym prefix = e->prefix, return_name = e->return_name;
    Span site = e->site;
    IrScope scope = e->b.scope;
    if (e->block_depth == DEEPEST) {
        diag(e->s, call->span, front_block_depth, block->name.name, DEEPEST);
        return false;
    }
    if (!check_args(e, block, call))
        return false;
    front_frame_push(e, &frame, e->global);
    if (!bind_params(e, block, call, &frame, caller))
        return false;
    e->frame = caller;
    if (call->u.call.at && !enter_scope(e, block, call->u.call.at))
        return false;
    e->frame = &frame;
    e->block_depth++;
    set_site(e, block, call, want);
    bool ok = run_body(e, block);
    e->block_depth--;
    e->returned = false;
    e->frame = caller;
    e->site = site;
    e->return_name = return_name;
    if (!ok && e->block_depth < 4)
        diag(e->s, call->span, front_called_here, block->name.name,
             e->prefix == prefix ? "" : " at ", e->prefix == prefix ? "" : e->prefix);
    e->prefix = prefix;
    e->b.scope = scope;
    *out = e->result;
    return ok;
}

/* -- functions -- */

static bool call_builtin(FrontEval *e, const FrontBuiltin *builtin, const FrontExpr *x,
                         FrontWant want, FrontValue *out)
{
    const FrontArgs *args = &x->u.call.args;
    bool fits = args->n >= builtin->least && args->n <= builtin->most;
    for (uint32_t i = 0; i < args->n; i++)
        fits = fits && !args->at[i].name;
    if (!fits) {
        diag(e->s, x->span, front_function_args, builtin->signature);
        return false;
    }
    FrontValue *values = ARENA_ARRAY(e->s->arena, FrontValue, args->n + 1);
    for (uint32_t i = 0; i < args->n; i++)
        if (!front_eval_plain(e, args->at[i].value, &values[i]))
            return false;
    FrontCall call = {x, values, args->n, want};
    return builtin->call(e, &call, out);
}

static bool unknown_call(FrontEval *e, const FrontExpr *x)
{
    VEC(const char *) names = {0};
    for (const FrontBuiltin *b = front_builtins; b->name; b++)
        vec_push(e->s->arena, &names, b->name);
    for (uint32_t i = 0; i < e->defs->blocks.n; i++)
        vec_push(e->s->arena, &names, e->defs->blocks.at[i]->name.name);
    for (uint32_t k = 1; k < IR_OP_COUNT; k++)
        if (front_op_find(sym(e->s, ir_op_info((IrOpKind)k)->name)) != IR_OP_none)
            vec_push(e->s->arena, &names, ir_op_info((IrOpKind)k)->name);
    diag(e->s, x->span, front_unknown_call, x->u.call.name);
    const char *near = diag_nearest(x->u.call.name, names.at, names.n);
    if (near)
        diag(e->s, no_span, did_you_mean, near);
    return false;
}

bool front_eval_call(FrontEval *e, const FrontExpr *x, FrontWant want, FrontValue *out)
{
    const FrontBlockDef *block = front_defs_block(e->defs, x->u.call.name);
    if (block)
        return front_eval_block(e, block, x, want, out);
    if (x->u.call.at) {
        diag(e->s, x->u.call.at->span, front_at_op, x->u.call.name);
        return false;
    }
    const FrontBuiltin *builtin = front_builtin_find(x->u.call.name);
    if (builtin)
        return call_builtin(e, builtin, x, want, out);
    IrOpKind kind = front_op_find(x->u.call.name);
    if (kind != IR_OP_none)
        return front_op_call(e, kind, x, want, out);
    return unknown_call(e, x);
}
