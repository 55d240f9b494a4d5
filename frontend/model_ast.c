#include "frontend/model_ast.h"

FrontExpr *front_expr_new(FrontParse *p, FrontExprKind kind, Span span)
{
    FrontExpr *expr = ARENA_NEW(p->s->arena, FrontExpr);
    expr->kind = kind;
    expr->span = span;
    return expr;
}

FrontExpr *front_expr_unary(FrontParse *p, FrontUnaryOp op, FrontExpr *a, Span span)
{
    FrontExpr *expr = front_expr_new(p, FRONT_EXPR_UNARY, span);
    expr->u.unary.op = op;
    expr->u.unary.a = a;
    return expr;
}

FrontExpr *front_expr_binary(FrontParse *p, FrontBinaryOp op, FrontExpr *a, FrontExpr *b,
                             Span op_span)
{
    FrontExpr *expr = front_expr_new(p, FRONT_EXPR_BINARY, front_span_join(a->span, b->span));
    expr->u.binary.op = op;
    expr->u.binary.a = a;
    expr->u.binary.b = b;
    expr->u.binary.op_span = op_span;
    return expr;
}

FrontExpr *front_expr_weight(FrontParse *p, FrontExpr *name, FrontExprs dims, Span dims_span,
                             FrontInit init, bool is_buffer, Span span)
{
    FrontExpr *expr = front_expr_new(p, FRONT_EXPR_WEIGHT, span);
    expr->u.weight.name = name;
    expr->u.weight.dims = dims;
    expr->u.weight.dims_span = dims_span;
    expr->u.weight.init = init;
    expr->u.weight.is_buffer = is_buffer;
    return expr;
}

FrontStmt *front_stmt_new(FrontParse *p, FrontStmtKind kind, Span span)
{
    FrontStmt *stmt = ARENA_NEW(p->s->arena, FrontStmt);
    stmt->kind = kind;
    stmt->span = span;
    return stmt;
}

/* What spans lines is marked in its first one: the underline never leaves a line. */
Span front_span_join(Span a, Span b)
{
    a.length = a.line == b.line && b.col + b.length > a.col ? b.col + b.length - a.col : a.length;
    return a;
}

const char *front_binary_text(FrontBinaryOp op)
{
    static const char *const texts[] = {
#define FRONT_BINARY_TEXT(id, text) text,
        FRONT_BINARY_OPS(FRONT_BINARY_TEXT)
#undef FRONT_BINARY_TEXT
    };
    return texts[op];
}

const FrontBlockDef *front_defs_block(const FrontDefs *defs, Sym name)
{
    for (uint32_t i = 0; i < defs->blocks.n; i++)
        if (defs->blocks.at[i]->name.name == name)
            return defs->blocks.at[i];
    return NULL;
}
