/* Statements, and the model as a whole. */
#include "frontend/model_eval.h"

/* -- names -- */

void front_frame_push(FrontEval *e, FrontFrame *frame, FrontFrame *up)
{
    *frame = (FrontFrame){.up = up};
    e->frame = frame;
}

static FrontVar *find_in(FrontFrame *frame, Sym name)
{
    for (uint32_t i = 0; i < frame->vars.n; i++)
        if (frame->vars.at[i].name == name)
            return &frame->vars.at[i];
    return NULL;
}

FrontVar *front_lookup(FrontEval *e, Sym name)
{
    for (FrontFrame *frame = e->frame; frame; frame = frame->up) {
        FrontVar *var = find_in(frame, name);
        if (var)
            return var;
    }
    return NULL;
}

/* A parameter may hide a name of the model's; any other second meaning is an error. */
bool front_define(FrontEval *e, FrontFrame *frame, FrontName name, FrontBinding binding,
                  FrontValue value)
{
    const FrontVar *old =
        binding == FRONT_BOUND_PARAM ? find_in(frame, name.name) : front_lookup(e, name.name);
    if (old) {
        diag(e->s, name.span, front_defined_twice, "name", name.name);
        if (old->span.line)
            diag(e->s, old->span, front_defined_here, name.name);
        return false;
    }
    vec_push(e->s->arena, &frame->vars, ((FrontVar){name.name, binding, value, name.span}));
    return true;
}

static bool assign(FrontEval *e, FrontName name, FrontValue value)
{
    static const char *const words[] = {
        [FRONT_BOUND_VARIABLE] = "a variable", [FRONT_BOUND_LET] = "a `let`",
        [FRONT_BOUND_PARAM] = "a parameter",   [FRONT_BOUND_LOOP] = "the number of a `for`",
        [FRONT_BOUND_CONFIG] = "a config key", [FRONT_BOUND_AXIS] = "an axis",
        [FRONT_BOUND_INPUT] = "an input",
    };
    FrontVar *var = front_lookup(e, name.name);
    if (!var)
        return front_define(e, e->frame, name, FRONT_BOUND_VARIABLE, value);
    if (var->binding == FRONT_BOUND_VARIABLE || var->binding == FRONT_BOUND_PARAM) {
        var->value = value;
        return true;
    }
    diag(e->s, name.span, front_assign_fixed, name.name, words[var->binding]);
    if (var->span.line)
        diag(e->s, var->span, front_defined_here, name.name);
    return false;
}

/* -- statements -- */

static FrontFrame *frame_of_let(FrontEval *e)
{
    /* the model's own constants are seen from every block */
    return e->frame->up == e->global && !e->block_depth ? e->global : e->frame;
}

static bool bind(FrontEval *e, const FrontStmt *stmt, FrontName name, FrontValue value)
{
    if (stmt->kind == FRONT_STMT_LET)
        return front_define(e, frame_of_let(e), name, FRONT_BOUND_LET, value);
    return assign(e, name, value);
}

static bool eval_assign(FrontEval *e, const FrontStmt *stmt)
{
    const FrontNames *names = &stmt->u.assign.names;
    FrontValue v;
    FrontWant want = {.name = names->at[0].name, .names = names};
    if (!front_eval_expr(e, stmt->u.assign.value, want, &v))
        return false;
    if (names->n == 1)
        return bind(e, stmt, names->at[0], v);
    bool has_items = v.kind == FRONT_VALUE_TUPLE || v.kind == FRONT_VALUE_LIST;
    if (!has_items || v.u.list.n != names->n) {
        diag(e->s, stmt->u.assign.value->span, front_take_apart, names->n,
             front_value_describe(e->s, e->g, &v));
        return false;
    }
    for (uint32_t i = 0; i < names->n; i++)
        if (!bind(e, stmt, names->at[i], v.u.list.at[i]))
            return false;
    return true;
}

static bool eval_for(FrontEval *e, const FrontStmt *stmt)
{
    int64_t from, to;
    if (!front_eval_int(e, stmt->u.loop.from, "the start of `for`", &from) ||
        !front_eval_int(e, stmt->u.loop.to, "the end of `for`", &to))
        return false;
    for (int64_t i = from; i < to && !e->returned; i++) {
        FrontFrame frame;
        if (!front_step(e, stmt->span))
            return false;
        front_frame_push(e, &frame, e->frame);
        bool ok = front_define(e, &frame, stmt->u.loop.name, FRONT_BOUND_LOOP, front_int(i)) &&
                  front_eval_stmts(e, &stmt->u.loop.body);
        e->frame = frame.up;
        if (!ok)
            return false;
    }
    return true;
}

static bool eval_if(FrontEval *e, const FrontStmt *stmt)
{
    bool yes;
    return front_eval_bool(e, stmt->u.choice.condition, "the condition of `if`", &yes) &&
           front_eval_stmts(e, yes ? &stmt->u.choice.yes : &stmt->u.choice.no);
}

/* A role that stands twice in a block is two parts: `post_norm`, `post_norm.2`. */
static bool eval_part(FrontEval *e, const FrontStmt *stmt)
{
    Sym role = stmt->u.part.role.name, above = ir_scope_rec(e->m, e->b.scope)->name;
    Sym name = intern_printf(&e->s->interner, "%s/%s", above, role);
    for (uint32_t n = 2; ir_scope_find(e->m, name).i; n++)
        name = intern_printf(&e->s->interner, "%s/%s.%u", above, role, n);
    IrScope outer = e->b.scope;
    e->b.scope = ir_scope(e->m, (IrScopeRec){.name = name,
                                             .kind = IR_SCOPE_PART,
                                             .parent = outer,
                                             .role = role,
                                             .span = stmt->span});
    bool ok = front_eval_stmts(e, &stmt->u.part.body);
    e->b.scope = outer;
    return ok;
}

static bool eval_return(FrontEval *e, const FrontStmt *stmt)
{
    const FrontExprs *results = &stmt->u.results;
    FrontValue v = {.kind = FRONT_VALUE_TUPLE};
    if (!e->block_depth) {
        diag(e->s, stmt->span, front_return_place);
        return false;
    }
    if (results->n == 1) {
        FrontWant want = {.fallback = e->return_name};
        if (!front_eval_expr(e, results->at[0], want, &e->result))
            return false;
        e->returned = true;
        return true;
    }
    v.u.list.at = ARENA_ARRAY(e->s->arena, FrontValue, results->n);
    for (; v.u.list.n < results->n; v.u.list.n++)
        if (!front_eval_plain(e, results->at[v.u.list.n], &v.u.list.at[v.u.list.n]))
            return false;
    e->result = v;
    e->returned = true;
    return true;
}

static bool eval_require(FrontEval *e, const FrontStmt *stmt)
{
    bool holds;
    const char *message;
    if (!front_eval_bool(e, stmt->u.require.condition, "what `require` asks for", &holds))
        return false;
    if (holds)
        return true;
    if (front_eval_string(e, stmt->u.require.message, &message))
        diag(e->s, stmt->span, front_require, e->model->name.name, message);
    return false;
}

/* Declarations stand in the model itself, not in its blocks or loops. */
static bool model_only(FrontEval *e, const FrontStmt *stmt)
{
    if (!e->block_depth && e->frame->up == e->global)
        return true;
    diag(e->s, stmt->span, front_model_only);
    return false;
}

static bool eval_stmt(FrontEval *e, const FrontStmt *stmt)
{
    switch (stmt->kind) {
    case FRONT_STMT_LET:
    case FRONT_STMT_ASSIGN:
        return eval_assign(e, stmt);
    case FRONT_STMT_FOR:
        return eval_for(e, stmt);
    case FRONT_STMT_IF:
        return eval_if(e, stmt);
    case FRONT_STMT_PART:
        return eval_part(e, stmt);
    case FRONT_STMT_RETURN:
        return eval_return(e, stmt);
    case FRONT_STMT_REQUIRE:
        return eval_require(e, stmt);
    case FRONT_STMT_AXIS:
        return model_only(e, stmt) && front_eval_axes(e, &stmt->u.axes);
    case FRONT_STMT_CONFIG:
        return model_only(e, stmt) && front_eval_config(e, &stmt->u.keys);
    case FRONT_STMT_INPUT:
        return model_only(e, stmt) && front_eval_inputs(e, &stmt->u.inputs);
    case FRONT_STMT_INIT:
        e->init = stmt->u.init;
        return model_only(e, stmt) && front_eval_init(e, &e->init, &e->init_value);
    }
    return false;
}

bool front_eval_stmts(FrontEval *e, const FrontStmts *stmts)
{
    bool ok = true;
    e->depth++;
    for (uint32_t i = 0; i < stmts->n && ok && !e->returned; i++) {
        ok = front_step(e, stmts->at[i]->span) && eval_stmt(e, stmts->at[i]);
        if (ok && stmts->at[i]->kind == FRONT_STMT_RETURN && i + 1 < stmts->n) {
            diag(e->s, stmts->at[i + 1]->span, front_after_return);
            ok = false;
        }
    }
    e->depth--;
    return ok;
}

/* -- the model -- */

/* A block with an op's or a function's name would change what that name means elsewhere. */
static bool check_block_names(FrontEval *e)
{
    for (uint32_t i = 0; i < e->defs->blocks.n; i++) {
        FrontName name = e->defs->blocks.at[i]->name;
        bool is_op = ir_op_find(name.name) != IR_OP_none;
        if (!is_op && !front_builtin_find(name.name))
            continue;
        diag(e->s, name.span, front_block_name, name.name, is_op ? "an op" : "a function");
        return false;
    }
    return true;
}

static bool check_inputs(FrontEval *e)
{
    static const char *const names[] = {"input_ids", "targets"};
    for (uint32_t i = 0; i < 2; i++) {
        if (ir_value_find(e->g, sym(e->s, names[i])).i)
            continue;
        diag(e->s, e->model->name.span, front_no_input, e->model->name.name, names[i]);
        return false;
    }
    return true;
}

static bool give_loss(FrontEval *e)
{
    FrontVar *loss = find_in(e->frame, sym(e->s, "loss"));
    if (!loss) {
        diag(e->s, e->model->name.span, front_no_loss, e->model->name.name);
        return false;
    }
    const FrontValue *v = &loss->value;
    if (v->kind != FRONT_VALUE_TENSOR ||
        ir_type_info(e->m, ir_value_type(e->g, v->u.tensor))->rank ||
        ir_value(e->g, v->u.tensor)->def != IR_DEF_RESULT)
        return front_type_mismatch(e, loss->span, "`loss`", "a scalar that ops compute", v);
    vec_push(e->s->arena, &e->g->results, v->u.tensor);
    return true;
}

static bool model_axes(FrontEval *e)
{
    const int64_t sizes[2] = {e->request->batch, e->request->seq};
    static const char *const names[2] = {"batch", "seq"};
    for (uint32_t i = 0; i < 2; i++) {
        IrDim *dim = ARENA_NEW(e->s->arena, IrDim);
        if (sizes[i] < 1) {
            diag(e->s, e->request->span, front_batch_size, names[i], (long long)sizes[i]);
            return false;
        }
        *dim = ir_dim_axis(sym(e->s, names[i]), sizes[i]);
        ir_axis_set(e->m, sym(e->s, names[i]), sizes[i]);
        if (!front_define(e, e->global, (FrontName){sym(e->s, names[i]), no_span}, FRONT_BOUND_AXIS,
                          (FrontValue){.kind = FRONT_VALUE_DIM, .u.dim = dim}))
            return false;
    }
    return true;
}

Status front_eval_model(FrontEval *e)
{
    FrontFrame global, own;
    front_frame_push(e, &global, NULL);
    e->global = &global;
    map_init(&e->keys, e->s->arena);
    e->m = ir_module_new(e->s);
    e->m->level = IR_MODEL;
    e->m->model = e->model->name.name;
    ir_scope(e->m, (IrScopeRec){.name = e->m->model,
                                .kind = IR_SCOPE_MODEL,
                                .def = e->m->model,
                                .span = e->model->name.span});
    e->g = ir_graph_new(e->m, sym(e->s, "fwd"));
    e->b = ir_builder(e->g);
    e->prefix = sym(e->s, "");
    e->init = (FrontInit){.kind = FRONT_INIT_NORMAL};
    e->init_value = 0.02;
    bool ok = check_block_names(e) && model_axes(e);
    front_frame_push(e, &own, &global);
    ok = ok && front_eval_stmts(e, &e->model->body) && check_inputs(e) && give_loss(e);
    e->frame = e->global = NULL;
    return ok ? STATUS_OK : STATUS_USER;
}
