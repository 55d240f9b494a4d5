/* model_value: what an expression of the model language is worth at compile time. */
#ifndef FRONTEND_MODEL_VALUE_H
#define FRONTEND_MODEL_VALUE_H

#include <cjson/cJSON.h>

#include "frontend/model_ast.h"
#include "ir/ir.h"

typedef enum FrontValueKind {
    FRONT_VALUE_NONE,
    FRONT_VALUE_BOOL,
    FRONT_VALUE_INT,
    FRONT_VALUE_FLOAT,
    FRONT_VALUE_STRING,
    FRONT_VALUE_LIST,
    FRONT_VALUE_DICT,
    FRONT_VALUE_DIM,  /* a product with an axis in it */
    FRONT_VALUE_MASK, /* `window(n)`: a causal mask of n keys */
    FRONT_VALUE_TENSOR,
    FRONT_VALUE_TUPLE /* several tensors: an op's or a block's results */
} FrontValueKind;

typedef struct FrontValue FrontValue;
struct FrontValue {
    FrontValueKind kind;
    bool read; /* as a member of a dict of the config: what nobody reads is reported */
    union {
        bool b;
        int64_t i; /* INT; MASK: the window */
        double f;
        Sym s;
        IrValue tensor;
        const IrDim *dim;
        struct {
            FrontValue *at; /* LIST, DICT, TUPLE */
            Sym *keys;      /* DICT */
            uint32_t n;
        } list;
    } u;
};

/* JSON to values; whole numbers become ints. */
FrontValue front_value_from_json(Session *s, const cJSON *json);

/* INT, FLOAT or DIM as a number. */
bool front_value_number(const FrontValue *v, double *out);
/* INT or DIM, or a FLOAT without a fraction. */
bool front_value_int(const FrontValue *v, int64_t *out);
bool front_value_equal(const FrontValue *a, const FrontValue *b);

/* Does a dict's key spell the number, with or without leading zeros? */
bool front_key_is_number(const char *key, int64_t number);

/* "int 3", "a list of 4", "a tensor f32[batch,seq,hidden]": for messages. `g` may be NULL. */
const char *front_value_describe(Session *s, IrGraph *g, const FrontValue *v);
/* The value as text pieces of strings take it; false for what has none. */
bool front_value_text(Session *s, const FrontValue *v, const char **out);
const char *front_type_describe(FrontTypeKind kind);

static inline FrontValue front_int(int64_t i)
{
    return (FrontValue){.kind = FRONT_VALUE_INT, .u.i = i};
}
static inline FrontValue front_float(double f)
{
    return (FrontValue){.kind = FRONT_VALUE_FLOAT, .u.f = f};
}
static inline FrontValue front_bool(bool b)
{
    return (FrontValue){.kind = FRONT_VALUE_BOOL, .u.b = b};
}
static inline FrontValue front_string(Sym s)
{
    return (FrontValue){.kind = FRONT_VALUE_STRING, .u.s = s};
}
static inline FrontValue front_tensor(IrValue tensor)
{
    return (FrontValue){.kind = FRONT_VALUE_TENSOR, .u.tensor = tensor};
}

#endif
