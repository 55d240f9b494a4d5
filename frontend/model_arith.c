/* Operators: numbers, dims, and tensors, where `+ - * /` become ops. */
#include "frontend/model_eval.h"

#include <math.h>

static bool bad_operands(FrontEval *e, const FrontExpr *x, const FrontValue *a, const FrontValue *b)
{
    diag(e->s, x->u.binary.op_span, front_operands, front_binary_text(x->u.binary.op),
         front_value_describe(e->s, e->g, a), front_value_describe(e->s, e->g, b));
    return false;
}

static bool overflow(FrontEval *e, const FrontExpr *x)
{
    diag(e->s, x->u.binary.op_span, front_overflow, front_binary_text(x->u.binary.op));
    return false;
}

/* -- tensors -- */

static bool build_two(FrontEval *e, const FrontExpr *x, IrOpKind kind, IrValue a, IrValue b,
                      FrontWant want, FrontValue *out)
{
    IrValue in[2] = {a, b};
    IrOpArgs args = {.kind = kind, .in = in, .n_in = 2};
    return front_op(e, x->span, &args, want, out);
}

static bool scale(FrontEval *e, Span span, IrValue a, double factor, FrontWant want,
                  FrontValue *out)
{
    IrOpArgs args = {.kind = IR_OP_scale, .in = &a, .n_in = 1};
    args.attrs[0] = "factor";
    args.values[0].f = factor;
    return front_op(e, span, &args, want, out);
}

static bool tensor_and_number(FrontEval *e, const FrontExpr *x, const FrontValue *a,
                              const FrontValue *b, FrontWant want, FrontValue *out)
{
    double number;
    FrontBinaryOp op = x->u.binary.op;
    bool swapped = a->kind != FRONT_VALUE_TENSOR;
    IrValue tensor = swapped ? b->u.tensor : a->u.tensor;
    if (!front_value_number(swapped ? a : b, &number))
        return bad_operands(e, x, a, b);
    if (op == FRONT_MUL)
        return scale(e, x->span, tensor, number, want, out);
    if (op != FRONT_DIV || swapped)
        return bad_operands(e, x, a, b);
    if (number == 0) {
        diag(e->s, x->u.binary.op_span, front_divide_zero);
        return false;
    }
    if (!isfinite(1 / number))
        return overflow(e, x);
    return scale(e, x->span, tensor, 1 / number, want, out);
}

static bool tensor_arith(FrontEval *e, const FrontExpr *x, const FrontValue *a, const FrontValue *b,
                         FrontWant want, FrontValue *out)
{
    if (a->kind != FRONT_VALUE_TENSOR || b->kind != FRONT_VALUE_TENSOR)
        return tensor_and_number(e, x, a, b, want, out);
    IrValue l = a->u.tensor, r = b->u.tensor;
    IrType lt = ir_value_type(e->g, l), rt = ir_value_type(e->g, r);
    bool smaller = ir_type_info(e->m, lt)->rank < ir_type_info(e->m, rt)->rank;
    switch (x->u.binary.op) {
    case FRONT_ADD:
        return build_two(e, x, IR_OP_add, smaller ? r : l, smaller ? l : r, want, out);
    case FRONT_MUL:
        return build_two(e, x, IR_OP_mul, smaller ? r : l, smaller ? l : r, want, out);
    case FRONT_SUB:
        return build_two(e, x, IR_OP_sub, l, r, want, out);
    default:
        return bad_operands(e, x, a, b);
    }
}

/* -- numbers -- */

/* A product with an axis in it stays one, so that `3 * heads * D` keeps its factors. */
static bool dim_product(FrontEval *e, const FrontExpr *x, const FrontValue *a, const FrontValue *b,
                        FrontValue *out)
{
    int64_t size, sizes[2];
    front_value_int(a, &sizes[0]);
    front_value_int(b, &sizes[1]);
    if (sizes[0] < 1 || sizes[1] < 1 || __builtin_mul_overflow(sizes[0], sizes[1], &size))
        return overflow(e, x);
    IrDim *dim = ARENA_NEW(e->s->arena, IrDim);
    *dim = ir_dim_product(a->kind == FRONT_VALUE_DIM ? *a->u.dim : ir_dim_number(sizes[0]),
                          b->kind == FRONT_VALUE_DIM ? *b->u.dim : ir_dim_number(sizes[1]));
    *out = (FrontValue){.kind = FRONT_VALUE_DIM, .u.dim = dim};
    return true;
}

static bool int_arith(FrontEval *e, const FrontExpr *x, int64_t a, int64_t b, FrontValue *out)
{
    int64_t r = 0;
    bool bad = false;
    switch (x->u.binary.op) {
    case FRONT_ADD:
        bad = __builtin_add_overflow(a, b, &r);
        break;
    case FRONT_SUB:
        bad = __builtin_sub_overflow(a, b, &r);
        break;
    case FRONT_MUL:
        bad = __builtin_mul_overflow(a, b, &r);
        break;
    default:
        if (b == 0) {
            diag(e->s, x->u.binary.op_span, front_divide_zero);
            return false;
        }
        if (b == -1) {
            bad = x->u.binary.op == FRONT_DIV && __builtin_sub_overflow(0, a, &r);
        } else if (x->u.binary.op == FRONT_MOD) {
            r = a % b;
            r += r && (r < 0) != (b < 0) ? b : 0;
        } else if (a % b) {
            *out = front_float((double)a / (double)b);
            return true;
        } else {
            r = a / b;
        }
    }
    *out = front_int(r);
    return bad ? overflow(e, x) : true;
}

static bool float_arith(FrontEval *e, const FrontExpr *x, double a, double b, FrontValue *out)
{
    double r;
    switch (x->u.binary.op) {
    case FRONT_ADD:
        r = a + b;
        break;
    case FRONT_SUB:
        r = a - b;
        break;
    case FRONT_MUL:
        r = a * b;
        break;
    default:
        if (b == 0) {
            diag(e->s, x->u.binary.op_span, front_divide_zero);
            return false;
        }
        r = x->u.binary.op == FRONT_MOD ? a - b * floor(a / b) : a / b;
    }
    *out = front_float(r);
    return isfinite(r) ? true : overflow(e, x);
}

static bool is_whole(const FrontValue *v)
{
    return v->kind == FRONT_VALUE_INT || v->kind == FRONT_VALUE_DIM;
}

static bool arith(FrontEval *e, const FrontExpr *x, const FrontValue *a, const FrontValue *b,
                  FrontWant want, FrontValue *out)
{
    double fa, fb;
    int64_t ia, ib;
    if (a->kind == FRONT_VALUE_TENSOR || b->kind == FRONT_VALUE_TENSOR)
        return tensor_arith(e, x, a, b, want, out);
    if (x->u.binary.op == FRONT_MUL && is_whole(a) && is_whole(b) &&
        (a->kind == FRONT_VALUE_DIM || b->kind == FRONT_VALUE_DIM))
        return dim_product(e, x, a, b, out);
    if (is_whole(a) && is_whole(b) && front_value_int(a, &ia) && front_value_int(b, &ib))
        return int_arith(e, x, ia, ib, out);
    if (front_value_number(a, &fa) && front_value_number(b, &fb))
        return float_arith(e, x, fa, fb, out);
    return bad_operands(e, x, a, b);
}

static bool compare(FrontEval *e, const FrontExpr *x, const FrontValue *a, const FrontValue *b,
                    FrontValue *out)
{
    double fa, fb;
    FrontBinaryOp op = x->u.binary.op;
    if (!front_value_number(a, &fa) || !front_value_number(b, &fb))
        return bad_operands(e, x, a, b);
    *out = front_bool(op == FRONT_LT   ? fa < fb
                      : op == FRONT_LE ? fa <= fb
                      : op == FRONT_GT ? fa > fb
                                       : fa >= fb);
    return true;
}

/* -- and, or, ?? look at the right side only where they must -- */

static bool logic(FrontEval *e, const FrontExpr *x, FrontValue *out)
{
    bool a, b, is_and = x->u.binary.op == FRONT_AND;
    const char *what = is_and ? "a side of `and`" : "a side of `or`";
    if (!front_eval_bool(e, x->u.binary.a, what, &a))
        return false;
    *out = front_bool(a);
    if (a != is_and)
        return true;
    if (!front_eval_bool(e, x->u.binary.b, what, &b))
        return false;
    *out = front_bool(b);
    return true;
}

static bool or_else(FrontEval *e, const FrontExpr *x, FrontWant want, FrontValue *out)
{
    FrontWant left = want;
    left.lenient = true;
    if (!front_eval_expr(e, x->u.binary.a, left, out))
        return false;
    return out->kind != FRONT_VALUE_NONE || front_eval_expr(e, x->u.binary.b, want, out);
}

bool front_eval_binary(FrontEval *e, const FrontExpr *x, FrontWant want, FrontValue *out)
{
    FrontValue a, b;
    FrontBinaryOp op = x->u.binary.op;
    if (op == FRONT_AND || op == FRONT_OR)
        return logic(e, x, out);
    if (op == FRONT_ELSE)
        return or_else(e, x, want, out);
    if (!front_eval_plain(e, x->u.binary.a, &a) || !front_eval_plain(e, x->u.binary.b, &b))
        return false;
    if (op == FRONT_EQ || op == FRONT_NE) {
        *out = front_bool(front_value_equal(&a, &b) == (op == FRONT_EQ));
        return true;
    }
    if (op == FRONT_LT || op == FRONT_LE || op == FRONT_GT || op == FRONT_GE)
        return compare(e, x, &a, &b, out);
    return arith(e, x, &a, &b, want, out);
}

bool front_eval_negate(FrontEval *e, const FrontExpr *x, FrontWant want, FrontValue *out)
{
    FrontValue a;
    double number;
    int64_t whole;
    if (!front_eval_plain(e, x->u.unary.a, &a))
        return false;
    if (a.kind == FRONT_VALUE_TENSOR)
        return scale(e, x->span, a.u.tensor, -1, want, out);
    if (is_whole(&a) && front_value_int(&a, &whole) && whole != INT64_MIN)
        *out = front_int(-whole);
    else if (front_value_number(&a, &number))
        *out = front_float(-number);
    else
        return front_type_mismatch(e, x->u.unary.a->span, "what stands behind `-`",
                                   "a number or a tensor", &a);
    return true;
}
