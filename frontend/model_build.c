/* What the grammar's rules build where a rule alone cannot say what is right. */
#include "frontend/model_ast.h"

FrontExpr *front_call_new(FrontParse *p, FrontExpr *callee, FrontArgs args, Span span)
{
    FrontExpr *call = front_expr_new(p, FRONT_EXPR_CALL, span);
    call->u.call.args = args;
    if (callee->kind == FRONT_EXPR_NAME) {
        call->u.call.name = callee->u.s;
        return call;
    }
    if (callee->kind == FRONT_EXPR_MEMBER && callee->u.member.of->kind == FRONT_EXPR_NAME) {
        call->u.call.name = intern_printf(&p->s->interner, "%s.%s", callee->u.member.of->u.s,
                                          callee->u.member.name.name);
        return call;
    }
    diag(p->s, callee->span, front_not_callable);
    p->failed = true;
    return NULL;
}

bool front_call_set_at(FrontParse *p, FrontExpr *call, FrontExpr *at, Span span)
{
    if (call->kind != FRONT_EXPR_CALL || call->u.call.at) {
        diag(p->s, span, front_at_place);
        p->failed = true;
        return false;
    }
    call->u.call.at = at;
    call->span = span;
    return true;
}

bool front_init_new(FrontParse *p, FrontName word, FrontExpr *deviation, Span span, FrontInit *out)
{
    *out = (FrontInit){.deviation = deviation, .span = span};
    if (!strcmp(word.name, "normal") && deviation)
        out->kind = FRONT_INIT_NORMAL;
    else if (!strcmp(word.name, "one") && !deviation)
        out->kind = FRONT_INIT_ONE;
    else if (!strcmp(word.name, "zero") && !deviation)
        out->kind = FRONT_INIT_ZERO;
    else {
        diag(p->s, span, front_init_word, word.name, deviation ? "(...)" : "");
        p->failed = true;
        return false;
    }
    return true;
}

bool front_type_new(FrontParse *p, FrontName word, FrontTypeExpr *out)
{
    static const char *const names[] = {"any",  "int",  "float", "bool",  "string",
                                        "list", "dict", "dim",   "tuple", "tensor"};
    enum { N = sizeof names / sizeof names[0] };
    for (uint32_t i = 0; i < N; i++)
        if (!strcmp(word.name, names[i])) {
            *out = (FrontTypeExpr){.kind = (FrontTypeKind)i, .span = word.span};
            out->any_shape = out->kind == FRONT_TYPE_TENSOR;
            return true;
        }
    diag(p->s, word.span, front_type_word, word.name);
    const char *near = diag_nearest(word.name, names, N);
    if (near)
        diag(p->s, no_span, did_you_mean, near);
    p->failed = true;
    return false;
}

bool front_block_add(FrontParse *p, FrontName name, FrontParams params, FrontStmts body)
{
    const FrontBlockDef *old = front_defs_block(p->defs, name.name);
    if (old) {
        diag(p->s, name.span, front_defined_twice, "block", name.name);
        diag(p->s, old->name.span, front_defined_here, name.name);
        p->failed = true;
        return false;
    }
    FrontBlockDef *block = ARENA_NEW(p->s->arena, FrontBlockDef);
    *block = (FrontBlockDef){name, params, body};
    vec_push(p->s->arena, &p->defs->blocks, block);
    return true;
}

bool front_model_add(FrontParse *p, FrontName name, FrontNames types, FrontStmts body)
{
    for (uint32_t i = 0; i < p->defs->models.n; i++) {
        const FrontModelDef *old = p->defs->models.at[i];
        if (old->name.name != name.name)
            continue;
        diag(p->s, name.span, front_defined_twice, "model", name.name);
        diag(p->s, old->name.span, front_defined_here, name.name);
        p->failed = true;
        return false;
    }
    FrontModelDef *model = ARENA_NEW(p->s->arena, FrontModelDef);
    *model = (FrontModelDef){name, types, body};
    vec_push(p->s->arena, &p->defs->models, model);
    return true;
}
