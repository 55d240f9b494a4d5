/* model_eval: writes a model definition out into IR of level MODEL. Inside the frontend only. */
#ifndef FRONTEND_MODEL_EVAL_H
#define FRONTEND_MODEL_EVAL_H

#include "frontend/config.h"
#include "frontend/frontend.h"
#include "frontend/model_value.h"

/* Where a name came from: what it may be used for, and how messages call it. */
typedef enum FrontBinding {
    FRONT_BOUND_VARIABLE,
    FRONT_BOUND_LET,
    FRONT_BOUND_PARAM,
    FRONT_BOUND_LOOP,
    FRONT_BOUND_CONFIG,
    FRONT_BOUND_AXIS,
    FRONT_BOUND_INPUT
} FrontBinding;

typedef struct FrontVar {
    Sym name;
    FrontBinding binding;
    FrontValue value;
    Span span;
} FrontVar;

typedef struct FrontFrame { /* one region of names: the model's own, a block's, a loop's body */
    struct FrontFrame *up;
    VEC(FrontVar) vars;
} FrontFrame;

typedef struct FrontSlot { /* what a K/V slot holds now */
    Sym name;
    IrType keys, values;
} FrontSlot;

typedef struct FrontEval {
    Session *s;
    const FrontDefs *defs;
    const FrontModelDef *model;
    const FrontConfig *config;
    const FrontModelRequest *request;
    IrModule *m;
    IrGraph *g;
    IrBuilder b;
    FrontFrame *global; /* config keys, axes, inputs, the model's `let`s: seen from every block */
    FrontFrame *frame;  /* innermost */
    Sym prefix;         /* path of the enclosing `at`, "" in the model itself */
    FrontInit init;     /* `weights init`: of matrices that say nothing */
    double init_value;
    VEC(FrontSlot) slots;
    VEC(Sym) config_read; /* keys that the model declares */
    bool has_optional_input[3];
    Map keys;             /* random keys given out */
    uint32_t depth;       /* of expressions and blocks in each other */
    uint64_t steps;       /* statements and expressions so far */
    uint32_t block_depth;
    Span site;        /* of the call of an abbreviation: what its ops are marked with */
    Sym return_name;  /* wish for the name of what the block returns */
    bool returned;
    FrontValue result; /* of the block that returned */
} FrontEval;

/* How an expression is used. */
typedef struct FrontWant {
    Sym name;                /* wish for the value's name */
    Sym fallback;            /* the same, where the op has no better name of its own */
    const FrontNames *names; /* wishes for a tuple's names, or NULL */
    bool lenient;            /* left of `??`: a missing key or element is `none` */
} FrontWant;

typedef VEC(const char *) FrontHints; /* names that a misspelt one may have meant */

/* Each reports what is wrong and gives false. */
bool front_step(FrontEval *e, Span span); /* bounds the work: depth and number of steps */
bool front_eval_expr(FrontEval *e, const FrontExpr *x, FrontWant want, FrontValue *out);
bool front_eval_plain(FrontEval *e, const FrontExpr *x, FrontValue *out);
bool front_eval_bool(FrontEval *e, const FrontExpr *x, const char *what, bool *out);
bool front_eval_int(FrontEval *e, const FrontExpr *x, const char *what, int64_t *out);
bool front_eval_dim(FrontEval *e, const FrontExpr *x, IrDim *out);
bool front_eval_string(FrontEval *e, const FrontExpr *x, const char **out);
bool front_eval_type(FrontEval *e, DType dtype, const FrontExprs *dims, Span span, IrType *out);
bool front_eval_binary(FrontEval *e, const FrontExpr *x, FrontWant want, FrontValue *out);
bool front_eval_negate(FrontEval *e, const FrontExpr *x, FrontWant want, FrontValue *out);
bool front_eval_weight(FrontEval *e, const FrontExpr *x, FrontValue *out);
bool front_eval_call(FrontEval *e, const FrontExpr *x, FrontWant want, FrontValue *out);
bool front_eval_block(FrontEval *e, const FrontBlockDef *block, const FrontExpr *call,
                      FrontWant want, FrontValue *out);
bool front_eval_stmts(FrontEval *e, const FrontStmts *stmts);
bool front_eval_init(FrontEval *e, const FrontInit *init, double *out_value);

/* `what` must be of `kind`; ints become floats, and axes ints, where asked for. */
bool front_convert(FrontEval *e, Span span, const char *what, FrontTypeKind kind, FrontValue *v);
bool front_type_mismatch(FrontEval *e, Span span, const char *what, const char *want,
                         const FrontValue *v);

FrontVar *front_lookup(FrontEval *e, Sym name);
bool front_define(FrontEval *e, FrontFrame *frame, FrontName name, FrontBinding binding,
                  FrontValue value);
void front_frame_push(FrontEval *e, FrontFrame *frame, FrontFrame *up);
/* A weight's name or an `at` path: letters, digits, `_`, with single dots between. */
bool front_check_path(FrontEval *e, Span span, const char *path);
bool front_eval_config(FrontEval *e, const FrontConfigKeys *keys);
bool front_eval_inputs(FrontEval *e, const FrontInputDecls *inputs);
bool front_eval_axes(FrontEval *e, const FrontAxisDecls *axes);

/* Writes the model out as graph @fwd of a new module. */
Status front_eval_model(FrontEval *e);

/* -- ops -- */

/* Is it one of the words that an op's attribute takes (`causal`, `silu`)? */
bool front_op_word(Sym name);
void front_op_words(FrontEval *e, FrontHints *out);
/* The model op of that name, or IR_OP_none. */
IrOpKind front_op_find(Sym name);
/* Builds one op at `span` and gives its result, or a tuple of its results. The result is called
 * args->name, else as is wanted, else after the op's weight, else after the op. */
bool front_op(FrontEval *e, Span span, IrOpArgs *args, FrontWant want, FrontValue *out);
bool front_op_call(FrontEval *e, IrOpKind kind, const FrontExpr *call, FrontWant want,
                   FrontValue *out);
/* `name` with the number of the block that it is in: `h` in `model.layers.3` is `h3`. */
Sym front_value_name(FrontEval *e, Sym name);

/* -- functions of the language -- */

typedef struct FrontCall { /* a function's call: all arguments by position */
    const FrontExpr *x;
    const FrontValue *args;
    uint32_t n;
    FrontWant want;
} FrontCall;

typedef struct FrontBuiltin {
    const char *name, *signature;
    uint32_t least, most; /* arguments */
    bool (*call)(FrontEval *e, const FrontCall *call, FrontValue *out);
} FrontBuiltin;

extern const FrontBuiltin front_builtins[]; /* ends with a NULL name */
const FrontBuiltin *front_builtin_find(Sym name);

/* Functions that build ops (model_sugar.c). */
bool front_sugar_heads(FrontEval *e, const FrontCall *call, FrontValue *out);
bool front_sugar_merge(FrontEval *e, const FrontCall *call, FrontValue *out);
bool front_sugar_split(FrontEval *e, const FrontCall *call, FrontValue *out);
bool front_sugar_reshape(FrontEval *e, const FrontCall *call, FrontValue *out);
bool front_sugar_kv_update(FrontEval *e, const FrontCall *call, FrontValue *out);
bool front_sugar_kv_shared(FrontEval *e, const FrontCall *call, FrontValue *out);
/* Argument i, which must be a tensor; `what` says whose. */
bool front_arg_tensor(FrontEval *e, const FrontCall *call, uint32_t i, IrValue *out);

#endif
