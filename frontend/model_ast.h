/* model_ast: the syntax tree of the model language (docs/language.md), and its parser. */
#ifndef FRONTEND_MODEL_AST_H
#define FRONTEND_MODEL_AST_H

#include "base/diag.h"
#include "base/session.h"

typedef struct FrontExpr FrontExpr;
typedef struct FrontStmt FrontStmt;

typedef VEC(FrontExpr *) FrontExprs;
typedef VEC(FrontStmt *) FrontStmts;

typedef struct FrontName {
    Sym name;
    Span span;
} FrontName;
typedef VEC(FrontName) FrontNames;

typedef enum FrontUnaryOp { FRONT_NEGATE, FRONT_NOT } FrontUnaryOp;

#define FRONT_BINARY_OPS(X)   \
    X(ADD, "+")               \
    X(SUB, "-")               \
    X(MUL, "*")               \
    X(DIV, "/")               \
    X(MOD, "%")               \
    X(EQ, "==")               \
    X(NE, "!=")               \
    X(LT, "<")                \
    X(LE, "<=")               \
    X(GT, ">")                \
    X(GE, ">=")               \
    X(AND, "and")             \
    X(OR, "or")               \
    X(ELSE, "??")

typedef enum FrontBinaryOp {
#define FRONT_BINARY_ENUM(id, text) FRONT_##id,
    FRONT_BINARY_OPS(FRONT_BINARY_ENUM)
#undef FRONT_BINARY_ENUM
} FrontBinaryOp;

typedef enum FrontExprKind {
    FRONT_EXPR_NONE,
    FRONT_EXPR_INT,
    FRONT_EXPR_FLOAT,
    FRONT_EXPR_BOOL,
    FRONT_EXPR_STRING, /* with {name} pieces that are filled in */
    FRONT_EXPR_NAME,
    FRONT_EXPR_LIST,
    FRONT_EXPR_EACH, /* [item for name in from .. to] */
    FRONT_EXPR_MEMBER,
    FRONT_EXPR_INDEX,
    FRONT_EXPR_CALL,
    FRONT_EXPR_UNARY,
    FRONT_EXPR_BINARY,
    FRONT_EXPR_CHOICE, /* condition ? a : b */
    FRONT_EXPR_WEIGHT, /* weight or buffer */
} FrontExprKind;

typedef struct FrontArg {
    Sym name; /* `name = value`; NULL: by position */
    FrontExpr *value;
    Span span;
} FrontArg;
typedef VEC(FrontArg) FrontArgs;

typedef enum FrontInitKind {
    FRONT_INIT_DEFAULT,
    FRONT_INIT_NORMAL,
    FRONT_INIT_ONE,
    FRONT_INIT_ZERO
} FrontInitKind;

typedef struct FrontInit {
    FrontInitKind kind;
    FrontExpr *deviation; /* NORMAL */
    Span span;
} FrontInit;

struct FrontExpr {
    FrontExprKind kind;
    Span span;
    union {
        int64_t i;
        double f;
        bool b;
        Sym s;            /* STRING, NAME */
        FrontExprs list;
        struct { FrontExpr *item, *from, *to; FrontName name; } each;
        struct { FrontExpr *of; FrontName name; } member;
        struct { FrontExpr *of, *at; } index;
        struct {
            Sym name; /* `rope`, or with its namespace: `kv.update` */
            FrontArgs args;
            FrontExpr *at; /* `at "path"`, or NULL */
        } call;
        struct { FrontUnaryOp op; FrontExpr *a; } unary;
        struct { FrontBinaryOp op; FrontExpr *a, *b; Span op_span; } binary;
        struct { FrontExpr *condition, *yes, *no; } choice;
        struct {
            FrontExpr *name;
            FrontExprs dims;
            Span dims_span;
            FrontInit init;
            bool is_buffer;
        } weight;
    } u;
};

/* -- declarations -- */

typedef enum FrontTypeKind {
    FRONT_TYPE_ANY,
    FRONT_TYPE_INT,
    FRONT_TYPE_FLOAT,
    FRONT_TYPE_BOOL,
    FRONT_TYPE_STRING,
    FRONT_TYPE_LIST,
    FRONT_TYPE_DICT,
    FRONT_TYPE_DIM,
    FRONT_TYPE_TUPLE,
    FRONT_TYPE_TENSOR
} FrontTypeKind;

typedef struct FrontTypeExpr {
    FrontTypeKind kind;
    bool nullable;  /* `type?` */
    bool any_shape; /* TENSOR: `tensor` */
    Sym dtype;      /* TENSOR: NULL is any float */
    FrontExprs dims; /* TENSOR: a NULL element is `_` */
    Span span;
} FrontTypeExpr;

typedef struct FrontParam {
    FrontName name;
    FrontTypeExpr type;
    FrontExpr *fallback; /* NULL: required */
} FrontParam;
typedef VEC(FrontParam) FrontParams;

typedef struct FrontConfigKey {
    FrontName name;
    FrontTypeKind type;
    FrontExpr *fallback; /* NULL: the key is required */
    bool nullable;       /* `type?`: null is none, and not the fallback */
    bool ignored;        /* `ignore`: known, and read by nobody on purpose */
} FrontConfigKey;
typedef VEC(FrontConfigKey) FrontConfigKeys;

typedef struct FrontInputDecl {
    FrontName name;
    FrontTypeExpr type;
    bool optional;
} FrontInputDecl;
typedef VEC(FrontInputDecl) FrontInputDecls;

typedef struct FrontAxisDecl {
    FrontName name;
    FrontExpr *size;
} FrontAxisDecl;
typedef VEC(FrontAxisDecl) FrontAxisDecls;

typedef enum FrontStmtKind {
    FRONT_STMT_LET,
    FRONT_STMT_ASSIGN,
    FRONT_STMT_FOR,
    FRONT_STMT_IF,
    FRONT_STMT_PART,
    FRONT_STMT_RETURN,
    FRONT_STMT_REQUIRE,
    FRONT_STMT_AXIS,
    FRONT_STMT_CONFIG,
    FRONT_STMT_INPUT,
    FRONT_STMT_INIT, /* `weights init ...` */
} FrontStmtKind;

struct FrontStmt {
    FrontStmtKind kind;
    Span span;
    union {
        struct { FrontNames names; FrontExpr *value; } assign; /* LET, ASSIGN */
        struct { FrontName name; FrontExpr *from, *to; FrontStmts body; } loop;
        struct { FrontExpr *condition; FrontStmts yes, no; } choice;
        struct { FrontName role; FrontStmts body; } part;
        FrontExprs results; /* RETURN */
        struct { FrontExpr *condition; FrontExpr *message; } require;
        FrontAxisDecls axes;
        FrontConfigKeys keys;
        FrontInputDecls inputs;
        FrontInit init;
    } u;
};

typedef struct FrontBlockDef {
    FrontName name;
    FrontParams params;
    FrontStmts body;
} FrontBlockDef;

typedef struct FrontModelDef {
    FrontName name;
    FrontNames types; /* model_type of config.json */
    FrontStmts body;
} FrontModelDef;

typedef struct FrontDefs { /* what a file and the files that it includes define */
    VEC(FrontModelDef *) models;
    VEC(FrontBlockDef *) blocks;
    VEC(FrontName) files; /* paths, each read once; the span is the include's */
} FrontDefs;

/* -- parsing -- */

/* Parses one text into `defs`; `path` names it in messages, and its includes are relative to it.
 * A text with an error gets one diagnostic and STATUS_USER. */
Status front_model_parse(Session *s, const char *path, const char *text, size_t length,
                         FrontDefs *defs);
Status front_model_parse_file(Session *s, const char *path, Span from, FrontDefs *defs);

const FrontBlockDef *front_defs_block(const FrontDefs *defs, Sym name);

/* What one run of the generated parser works on. */
typedef struct FrontParse {
    Session *s;
    Sym file;
    FrontDefs *defs;
    FrontNames includes; /* paths as written */
    uint32_t line, col;  /* of the next character */
    bool failed;
} FrontParse;

FrontExpr *front_expr_new(FrontParse *p, FrontExprKind kind, Span span);
FrontExpr *front_expr_unary(FrontParse *p, FrontUnaryOp op, FrontExpr *a, Span span);
FrontExpr *front_expr_binary(FrontParse *p, FrontBinaryOp op, FrontExpr *a, FrontExpr *b,
                             Span op_span);
FrontExpr *front_expr_weight(FrontParse *p, FrontExpr *name, FrontExprs dims, Span dims_span,
                             FrontInit init, bool is_buffer, Span span);
/* These report what is wrong with what they are given: NULL, or false. */
FrontExpr *front_call_new(FrontParse *p, FrontExpr *callee, FrontArgs args, Span span);
bool front_call_set_at(FrontParse *p, FrontExpr *call, FrontExpr *at, Span span);
bool front_init_new(FrontParse *p, FrontName word, FrontExpr *deviation, Span span, FrontInit *out);
bool front_type_new(FrontParse *p, FrontName word, FrontTypeExpr *out);
bool front_block_add(FrontParse *p, FrontName name, FrontParams params, FrontStmts body);
bool front_model_add(FrontParse *p, FrontName name, FrontNames types, FrontStmts body);
FrontStmt *front_stmt_new(FrontParse *p, FrontStmtKind kind, Span span);
Span front_span_join(Span a, Span b);
const char *front_binary_text(FrontBinaryOp op);

#endif
