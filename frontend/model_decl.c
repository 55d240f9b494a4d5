/* Declarations: config keys, axes, inputs, weights. */
#include "frontend/model_eval.h"

#include <ctype.h>

/* -- config -- */

static bool missing_key(FrontEval *e, const FrontConfigKey *key)
{
    const FrontValue *keys = &e->config->keys;
    Sym name = key->name.name;
    const char *near = diag_nearest(name, keys->u.list.keys, keys->u.list.n);
    if (near == name)
        diag(e->s, front_config_span(e->config, name), config_null, name, e->model->name.name);
    else
        diag(e->s, front_config_span(e->config, NULL), config_missing, name, e->model->name.name);
    diag(e->s, key->name.span, config_declared, name);
    if (near && near != name)
        diag(e->s, no_span, did_you_mean, near);
    return false;
}

static bool config_key(FrontEval *e, const FrontConfigKey *key)
{
    FrontValue v;
    Sym name = key->name.name;
    for (uint32_t i = 0; i < e->config_read.n; i++)
        if (e->config_read.at[i] == name) {
            diag(e->s, key->name.span, front_defined_twice, "config key", name);
            return false;
        }
    vec_push(e->s->arena, &e->config_read, name);
    if (key->ignored)
        return true;
    bool present = front_config_get(e->config, name, &v);
    if (key->nullable && front_config_is_null(e->config, name))
        return front_define(e, e->global, key->name, FRONT_BOUND_CONFIG, v);
    if (!present && !key->fallback)
        return missing_key(e, key);
    if (!present && !front_eval_plain(e, key->fallback, &v))
        return false;
    Span span = present ? front_config_span(e->config, name) : key->fallback->span;
    const char *what = arena_printf(e->s->arena, "config key `%s`", name);
    bool is_default = !present && v.kind == FRONT_VALUE_NONE;
    if (!is_default && !front_convert(e, span, what, key->type, &v)) {
        diag(e->s, key->name.span, config_declared, name);
        return false;
    }
    return front_define(e, e->global, key->name, FRONT_BOUND_CONFIG, v);
}

bool front_eval_config(FrontEval *e, const FrontConfigKeys *keys)
{
    for (uint32_t i = 0; i < keys->n; i++)
        if (!config_key(e, &keys->at[i]))
            return false;
    return true;
}

/* -- axes and inputs -- */

static bool define_axis(FrontEval *e, FrontName name, int64_t size)
{
    IrDim *dim = ARENA_NEW(e->s->arena, IrDim);
    *dim = ir_dim_axis(name.name, size);
    ir_axis_set(e->m, name.name, size);
    return front_define(e, e->global, name, FRONT_BOUND_AXIS,
                        (FrontValue){.kind = FRONT_VALUE_DIM, .u.dim = dim});
}

/* Where a value that is wrong in the model was written in the config. */
static void note_config(FrontEval *e, const FrontExpr *x)
{
    const FrontVar *var = x->kind == FRONT_EXPR_NAME ? front_lookup(e, x->u.s) : NULL;
    if (var && var->binding == FRONT_BOUND_CONFIG)
        diag(e->s, front_config_span(e->config, x->u.s), config_stands, x->u.s);
}

bool front_eval_axes(FrontEval *e, const FrontAxisDecls *axes)
{
    const int64_t largest = (int64_t)1 << 32;
    for (uint32_t i = 0; i < axes->n; i++) {
        const FrontAxisDecl *axis = &axes->at[i];
        FrontValue v;
        int64_t size;
        if (!front_eval_plain(e, axis->size, &v))
            return false;
        if (!front_value_int(&v, &size) || size < 1 || size > largest) {
            diag(e->s, axis->size->span, front_axis_size, axis->name.name,
                 front_value_describe(e->s, e->g, &v));
            note_config(e, axis->size);
            return false;
        }
        if (!define_axis(e, axis->name, size))
            return false;
    }
    return true;
}

static bool input(FrontEval *e, const FrontInputDecl *decl)
{
    static const char *const names[] = {"positions", "segments", "keep", "input_ids", "targets"};
    enum { OPTIONAL = 3, N = sizeof names / sizeof names[0] };
    const bool has[OPTIONAL] = {e->request->positions, e->request->segments, e->request->keep};
    uint32_t i = 0;
    while (i < N && strcmp(names[i], decl->name.name))
        i++;
    if (i == N || (decl->optional && i >= OPTIONAL)) {
        diag(e->s, decl->name.span, front_input_name, decl->name.name);
        return false;
    }
    const FrontTypeExpr *type = &decl->type;
    if (type->kind != FRONT_TYPE_TENSOR || type->any_shape || type->nullable || !type->dtype ||
        dtype_parse(type->dtype) != DTYPE_I32) {
        diag(e->s, type->span, front_input_type, decl->name.name);
        return false;
    }
    for (uint32_t k = 0; k < type->dims.n; k++)
        if (!type->dims.at[k]) {
            diag(e->s, type->span, front_input_type, decl->name.name);
            return false;
        }
    IrType ir;
    if (!front_eval_type(e, DTYPE_I32, &type->dims, type->span, &ir))
        return false;
    const IrTypeInfo *info = ir_type_info(e->m, ir);
    if (info->rank != 2 || ir_dim_size(&info->dim[0]) != e->request->batch ||
        ir_dim_size(&info->dim[1]) != e->request->seq) {
        diag(e->s, type->span, front_input_type, decl->name.name);
        return false;
    }
    if (i < OPTIONAL)
        e->has_optional_input[i] = true;
    FrontValue v = {0};
    if (!decl->optional || has[i]) {
        if (ir_value_find(e->g, decl->name.name).i) {
            diag(e->s, decl->name.span, front_defined_twice, "input", decl->name.name);
            return false;
        }
        v = front_tensor(ir_graph_param(e->g, decl->name.name, ir, decl->name.span));
    }
    return front_define(e, e->global, decl->name, FRONT_BOUND_INPUT, v);
}

bool front_eval_inputs(FrontEval *e, const FrontInputDecls *inputs)
{
    for (uint32_t i = 0; i < inputs->n; i++)
        if (!input(e, &inputs->at[i]))
            return false;
    return true;
}

/* -- weights -- */

bool front_check_path(FrontEval *e, Span span, const char *path)
{
    bool ok = path[0] && path[0] != '.';
    for (const char *c = path; *c && ok; c++)
        ok = isalnum((unsigned char)*c) || *c == '_' || (*c == '.' && c[1] && c[1] != '.');
    if (!ok)
        diag(e->s, span, front_path, path);
    return ok;
}

/* The step keeps states of its own beside the model's; NULL, or the list of them. */
static const char *reserved_state(FrontEval *e, const char *name)
{
    static const char *const names[] = {"lr",   "step", "seed", "count",   "inverse",  "loss_sum",
                                        "loss", "norm", "coef", "skipped", "eval_sum", "sample0"};
    const char *list = "";
    bool found = false;
    for (uint32_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        found |= !strcmp(names[i], name);
        list = arena_printf(e->s->arena, "%s%s%s", list, i ? ", " : "", names[i]);
    }
    return found ? list : NULL;
}

bool front_eval_init(FrontEval *e, const FrontInit *init, double *out_value)
{
    FrontValue v;
    if (init->kind != FRONT_INIT_NORMAL)
        return true;
    if (!front_eval_plain(e, init->deviation, &v))
        return false;
    if (!front_value_number(&v, out_value) || *out_value < 0)
        return front_type_mismatch(e, init->deviation->span, "a standard deviation",
                                   "a number of 0 or more", &v);
    return true;
}

/* What says nothing: matrices as `weights init` has it, vectors one. */
static bool weight_init(FrontEval *e, const FrontInit *init, uint32_t rank, IrStateRec *rec)
{
    static const IrInitKind kinds[] = {[FRONT_INIT_DEFAULT] = IR_INIT_NORMAL,
                                       [FRONT_INIT_NORMAL] = IR_INIT_NORMAL,
                                       [FRONT_INIT_ONE] = IR_INIT_ONE,
                                       [FRONT_INIT_ZERO] = IR_INIT_ZERO};
    rec->init = kinds[init->kind];
    if (init->kind != FRONT_INIT_DEFAULT)
        return front_eval_init(e, init, &rec->init_value);
    rec->init = rank > 1 ? kinds[e->init.kind] : IR_INIT_ONE;
    rec->init_value = rank > 1 ? e->init_value : 0;
    return true;
}

bool front_eval_weight(FrontEval *e, const FrontExpr *x, FrontValue *out)
{
    const char *text;
    IrType type;
    if (!front_eval_string(e, x->u.weight.name, &text) ||
        !front_check_path(e, x->u.weight.name->span, text) ||
        !front_eval_type(e, DTYPE_F32, &x->u.weight.dims, x->u.weight.dims_span, &type))
        return false;
    Sym name =
        e->prefix[0] ? intern_printf(&e->s->interner, "%s.%s", e->prefix, text) : sym(e->s, text);
    const char *reserved = reserved_state(e, name);
    if (reserved) {
        diag(e->s, x->span, front_weight_name, name, reserved);
        return false;
    }
    IrState old = ir_state_find(e->m, name);
    if (old.i) {
        diag(e->s, x->span, front_defined_twice, "weight", name);
        diag(e->s, ir_state_rec(e->m, old)->span, front_defined_here, name);
        return false;
    }
    bool is_buffer = x->u.weight.is_buffer;
    IrStateRec rec = {.name = name,
                      .kind = is_buffer ? IR_STATE_BUFFER : IR_STATE_PARAM,
                      .type = type,
                      .trainable = !is_buffer,
                      .scope = e->b.scope,
                      .span = e->site.line ? e->site : x->span};
    if (!weight_init(e, &x->u.weight.init, x->u.weight.dims.n, &rec))
        return false;
    *out = front_tensor(ir_graph_state(e->g, ir_state_add(e->m, rec)));
    return true;
}
