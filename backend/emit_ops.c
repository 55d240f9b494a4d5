/* The rule of every fused op: its formula, once, for every target. */
#include "backend/emit_formula.h"

#include "runtime/abi/random.h"

#define N1(name)                                                                                   \
    static EmitNode f_##name(EmitRule *r, EmitNode a)                                              \
    {                                                                                              \
        return emit_node(r->f, NODE_##name, r->elem, a, (EmitNode){0}, (EmitNode){0});             \
    }
#define N2(name)                                                                                   \
    static EmitNode f_##name(EmitRule *r, EmitNode a, EmitNode b)                                  \
    {                                                                                              \
        return emit_node(r->f, NODE_##name, r->elem, a, b, (EmitNode){0});                         \
    }
N1(sqrt)
N1(exp)
N1(sigmoid)
N1(tanh)
N1(erf)
N1(row_sum)
N2(add)
N2(sub)
N2(mul)
N2(div)
N2(row_dot)
#undef N1
#undef N2

static EmitNode f_fma(EmitRule *r, EmitNode a, EmitNode b, EmitNode c)
{
    return emit_node(r->f, NODE_fma, r->elem, a, b, c);
}

static EmitNode number(EmitRule *r, double value)
{
    return emit_number(r->f, r->elem, value);
}

static EmitNode attr(EmitRule *r, const char *name)
{
    return number(r, ir_attr_f64(r->g, r->op, name));
}

static bool attr_is(EmitRule *r, const char *name, const char *word)
{
    return !strcmp(ir_attr_sym(r->g, r->op, name), word);
}

static EmitNode columns(EmitRule *r)
{
    return number(r, (double)r->f->region->cols);
}

static EmitNode negate(EmitRule *r, EmitNode x)
{
    return f_mul(r, number(r, -1), x);
}

static EmitNode select_less(EmitRule *r, EmitNode a, EmitNode b, EmitNode yes, EmitNode no)
{
    EmitNode less = emit_node(r->f, NODE_less, ELEM_BIT, a, b, (EmitNode){0});
    return emit_node(r->f, NODE_select, (EmitElem)emit_rec(r->f, yes)->elem, less, yes, no);
}

static DType result_dtype(EmitRule *r, uint32_t out)
{
    return ir_type_info(r->g->m, ir_value_type(r->g, ir_out(r->g, r->op, out)))->dtype;
}

/* -- pointwise -- */

static void rule_add(EmitRule *r)
{
    emit_out(r, 0, f_add(r, emit_in(r, 0), emit_in(r, 1)));
}

static void rule_sub(EmitRule *r)
{
    emit_out(r, 0, f_sub(r, emit_in(r, 0), emit_in(r, 1)));
}

static void rule_mul(EmitRule *r)
{
    emit_out(r, 0, f_mul(r, emit_in(r, 0), emit_in(r, 1)));
}

static void rule_scale(EmitRule *r)
{
    emit_out(r, 0, f_mul(r, emit_in(r, 0), attr(r, "factor")));
}

static void rule_cast(EmitRule *r)
{
    emit_out(r, 0, emit_in(r, 0));
}

static void rule_slice(EmitRule *r)
{
    int64_t part = ir_attr_i64(r->g, r->op, "index"), parts = ir_attr_i64(r->g, r->op, "parts");
    emit_out(r, 0, emit_in_part(r, 0, part, parts));
}

/* -- activations: fn and its derivative -- */

static EmitNode sigmoid_grad(EmitRule *r, EmitNode x)
{
    EmitNode s = f_sigmoid(r, x);
    return f_mul(r, s, f_sub(r, number(r, 1), s));
}

static EmitNode tanh_grad(EmitRule *r, EmitNode x)
{
    EmitNode t = f_tanh(r, x);
    return f_fma(r, negate(r, t), t, number(r, 1));
}

static EmitNode relu(EmitRule *r, EmitNode x) /* NaN stays NaN */
{
    return select_less(r, x, number(r, 0), number(r, 0), x);
}

static EmitNode relu_grad(EmitRule *r, EmitNode x)
{
    return select_less(r, number(r, 0), x, number(r, 1), number(r, 0));
}

/* x sigmoid(k x), and its derivative s + k x s (1 - s). */
static EmitNode swish(EmitRule *r, EmitNode x, double k)
{
    return f_mul(r, x, f_sigmoid(r, f_mul(r, number(r, k), x)));
}

static EmitNode swish_grad(EmitRule *r, EmitNode x, double k)
{
    EmitNode kx = f_mul(r, number(r, k), x), s = f_sigmoid(r, kx);
    EmitNode slope = f_mul(r, s, f_sub(r, number(r, 1), s));
    return f_fma(r, kx, slope, s);
}

static EmitNode silu(EmitRule *r, EmitNode x)
{
    return swish(r, x, 1);
}

static EmitNode silu_grad(EmitRule *r, EmitNode x)
{
    return swish_grad(r, x, 1);
}

static EmitNode quick_gelu(EmitRule *r, EmitNode x)
{
    return swish(r, x, 1.702);
}

static EmitNode quick_gelu_grad(EmitRule *r, EmitNode x)
{
    return swish_grad(r, x, 1.702);
}

/* (1 + tanh u) / 2 = sigmoid(2u), with u = sqrt(2/pi) (x + 0.044715 x^3): exact in the tail, and
 * one exp. */
static const double gelu_2k = 1.5957691216057307117597842397375, gelu_cubic = 0.044715;

static EmitNode gelu_2u(EmitRule *r, EmitNode x)
{
    EmitNode xx = f_mul(r, x, x);
    EmitNode inner = f_fma(r, number(r, gelu_2k * gelu_cubic), xx, number(r, gelu_2k));
    return f_mul(r, x, inner);
}

static EmitNode gelu_tanh(EmitRule *r, EmitNode x)
{
    return f_mul(r, x, f_sigmoid(r, gelu_2u(r, x)));
}

static EmitNode gelu_tanh_grad(EmitRule *r, EmitNode x)
{
    EmitNode s = f_sigmoid(r, gelu_2u(r, x)), xx = f_mul(r, x, x);
    EmitNode du = f_fma(r, number(r, 3 * gelu_2k * gelu_cubic), xx, number(r, gelu_2k));
    EmitNode slope = f_mul(r, s, f_sub(r, number(r, 1), s));
    return f_fma(r, f_mul(r, x, du), slope, s);
}

/* Phi(x) = (1 + erf(x / sqrt 2)) / 2, and phi(x) = exp(-x^2 / 2) / sqrt(2 pi). */
static EmitNode normal_cdf(EmitRule *r, EmitNode x)
{
    EmitNode e = f_erf(r, f_mul(r, x, number(r, 0.70710678118654752440)));
    return f_fma(r, number(r, 0.5), e, number(r, 0.5));
}

static EmitNode gelu_erf(EmitRule *r, EmitNode x)
{
    return f_mul(r, x, normal_cdf(r, x));
}

static EmitNode gelu_erf_grad(EmitRule *r, EmitNode x)
{
    EmitNode half_square = f_mul(r, f_mul(r, number(r, -0.5), x), x);
    EmitNode density = f_mul(r, f_exp(r, half_square), number(r, 0.39894228040143267794));
    return f_fma(r, x, density, normal_cdf(r, x));
}

static EmitNode activation(EmitRule *r, EmitNode x, bool derivative)
{
    static const struct {
        const char *name;
        EmitNode (*value)(EmitRule *r, EmitNode x), (*grad)(EmitRule *r, EmitNode x);
    } functions[] = {
        {"gelu_tanh", gelu_tanh, gelu_tanh_grad},
        {"gelu_erf", gelu_erf, gelu_erf_grad},
        {"quick_gelu", quick_gelu, quick_gelu_grad},
        {"silu", silu, silu_grad},
        {"sigmoid", f_sigmoid, sigmoid_grad},
        {"tanh", f_tanh, tanh_grad},
        {"relu", relu, relu_grad},
    };
    uint32_t i = 0;
    while (!attr_is(r, "fn", functions[i].name))
        i++; /* the op table allows no other word */
    return derivative ? functions[i].grad(r, x) : functions[i].value(r, x);
}

static void rule_act(EmitRule *r)
{
    emit_out(r, 0, activation(r, emit_in(r, 0), false));
}

static void rule_act_grad(EmitRule *r)
{
    emit_out(r, 0, f_mul(r, emit_in(r, 0), activation(r, emit_in(r, 1), true)));
}

static void rule_glu(EmitRule *r)
{
    EmitNode gate = emit_round(r, activation(r, emit_in(r, 0), false), result_dtype(r, 0));
    emit_out(r, 0, f_mul(r, gate, emit_in(r, 1)));
}

static void rule_glu_grad(EmitRule *r)
{
    EmitNode dy = emit_in(r, 0), gate = emit_in(r, 1), up = emit_in(r, 2);
    emit_out(r, 0, f_mul(r, f_mul(r, dy, up), activation(r, gate, true)));
    emit_out(r, 1, f_mul(r, dy, emit_round(r, activation(r, gate, false), result_dtype(r, 1))));
}

static void rule_softcap(EmitRule *r)
{
    EmitNode cap = attr(r, "cap");
    emit_out(r, 0, f_mul(r, cap, f_tanh(r, f_div(r, emit_in(r, 0), cap))));
}

static void rule_softcap_grad(EmitRule *r)
{
    EmitNode slope = tanh_grad(r, f_div(r, emit_in(r, 1), attr(r, "cap")));
    emit_out(r, 0, f_mul(r, emit_in(r, 0), slope));
}

/* -- random: runtime/abi/random.h, node by node -- */

typedef struct Stream {
    EmitNode a, b;
} Stream;

static EmitNode word(EmitRule *r, EmitKind kind, EmitNode a, EmitNode b)
{
    return emit_node(r->f, kind, ELEM_I32, a, b, (EmitNode){0});
}

static EmitNode mix(EmitRule *r, EmitNode x)
{
    return word(r, NODE_mix, x, (EmitNode){0});
}

static Stream absorb(EmitRule *r, Stream s, EmitNode i64)
{
    for (uint32_t half = 0; half < 2; half++) {
        EmitNode w = word(r, half ? NODE_high : NODE_low, i64, (EmitNode){0});
        s.a = mix(r, word(r, NODE_ixor, s.a, w));
        s.b = mix(r, word(r, NODE_iadd, s.b, s.a));
    }
    return s;
}

static EmitNode wide(EmitRule *r, EmitKind kind, EmitNode a, EmitNode b)
{
    return emit_node(r->f, kind, ELEM_I64, a, b, (EmitNode){0});
}

/* Rows of a sample follow each other; an element's index in its sample has at most 32 bits. */
static EmitNode keep_bit(EmitRule *r, double p)
{
    enum { STEP, SEED, SAMPLE0 };
    EmitFormula *f = r->f;
    const IrTypeInfo *x = ir_type_info(r->g->m, ir_value_type(r->g, ir_in(r->g, r->op, 0)));
    int64_t batch = x->rank ? ir_dim_size(&x->dim[0]) : 1, rows = f->region->rows / batch;
    EmitNode row = emit_leaf(f, NODE_row, ELEM_I64, 0),
             per_sample = emit_integer(f, ELEM_I64, rows);
    EmitNode micro_batch = emit_leaf(f, NODE_param, ELEM_I64, 0);
    EmitNode first = wide(r, NODE_iadd, emit_leaf(f, NODE_random, ELEM_I64, SAMPLE0),
                          wide(r, NODE_imul, micro_batch, emit_integer(f, ELEM_I64, batch)));
    Stream s = {emit_integer(f, ELEM_I32, 0x243f6a88), emit_integer(f, ELEM_I32, 0x85a308d3)};
    s = absorb(r, s, emit_leaf(f, NODE_random, ELEM_I64, SEED));
    s = absorb(r, s, emit_leaf(f, NODE_random, ELEM_I64, STEP));
    s = absorb(r, s, emit_leaf(f, NODE_param, ELEM_I64, ++*r->n_random));
    s = absorb(r, s, wide(r, NODE_iadd, first, wide(r, NODE_idiv, row, per_sample)));
    EmitNode start = wide(r, NODE_imul, wide(r, NODE_irem, row, per_sample),
                          emit_integer(f, ELEM_I64, f->region->cols));
    EmitNode element = word(r, NODE_iadd, word(r, NODE_low, start, (EmitNode){0}),
                            emit_leaf(f, NODE_lane, ELEM_I32, 0));
    EmitNode draw = mix(r, word(r, NODE_iadd, mix(r, word(r, NODE_ixor, element, s.a)), s.b));
    return emit_node(f, NODE_less, ELEM_BIT, draw,
                     emit_integer(f, ELEM_I32, rt_random_threshold(p)), (EmitNode){0});
}

static void rule_dropout(EmitRule *r)
{
    double p = ir_attr_f64(r->g, r->op, "p");
    EmitNode kept = f_mul(r, emit_in(r, 0), number(r, 1 / (1 - p)));
    emit_out(r, 0, emit_node(r->f, NODE_select, r->elem, keep_bit(r, p), number(r, 0), kept));
}

/* -- row-wise -- */

static EmitNode mean(EmitRule *r, EmitNode row_sum)
{
    return f_div(r, row_sum, columns(r));
}

static EmitNode reciprocal_root(EmitRule *r, EmitNode x)
{
    return f_div(r, number(r, 1), f_sqrt(r, x));
}

static void rule_rmsnorm(EmitRule *r)
{
    EmitNode x = emit_in(r, 0), square = mean(r, f_row_dot(r, x, x));
    EmitNode rstd = emit_out_row(r, 1, reciprocal_root(r, f_add(r, square, attr(r, "eps"))));
    EmitNode y = f_mul(r, x, rstd);
    if (attr_is(r, "round", "before_weight"))
        y = emit_round(r, y, result_dtype(r, 0));
    if (emit_has(r, 1))
        y = f_mul(r, y, emit_in(r, 1));
    emit_out(r, 0, y);
}

static void rule_rmsnorm_grad_x(EmitRule *r)
{
    EmitNode g = emit_in(r, 0), x = emit_in(r, 1), rstd = emit_in_row(r, 2);
    if (emit_has(r, 3))
        g = f_mul(r, g, emit_in(r, 3));
    EmitNode along = f_mul(r, mean(r, f_row_dot(r, g, x)), f_mul(r, rstd, rstd));
    emit_out(r, 0, f_mul(r, rstd, f_fma(r, negate(r, x), along, g)));
}

static void rule_rmsnorm_grad_w(EmitRule *r)
{
    EmitNode xhat = f_mul(r, emit_in(r, 1), emit_in_row(r, 2));
    if (attr_is(r, "round", "before_weight")) {
        IrType x = ir_value_type(r->g, ir_in(r->g, r->op, 1));
        xhat = emit_round(r, xhat, ir_type_info(r->g->m, x)->dtype);
    }
    emit_out_column(r, 0, emit_in(r, 0), xhat);
}

static void rule_layernorm(EmitRule *r)
{
    EmitNode x = emit_in(r, 0);
    EmitNode centre = emit_out_row(r, 1, mean(r, f_row_sum(r, x)));
    EmitNode d = f_sub(r, x, centre), variance = mean(r, f_row_dot(r, d, d));
    EmitNode rstd = emit_out_row(r, 2, reciprocal_root(r, f_add(r, variance, attr(r, "eps"))));
    EmitNode xhat = f_mul(r, d, rstd), w = emit_in(r, 1);
    emit_out(r, 0, emit_has(r, 2) ? f_fma(r, xhat, w, emit_in(r, 2)) : f_mul(r, xhat, w));
}

static EmitNode normalised(EmitRule *r)
{
    return f_mul(r, f_sub(r, emit_in(r, 1), emit_in_row(r, 2)), emit_in_row(r, 3));
}

static void rule_layernorm_grad_x(EmitRule *r)
{
    EmitNode g = f_mul(r, emit_in(r, 0), emit_in(r, 4)), xhat = normalised(r);
    EmitNode flat = mean(r, f_row_sum(r, g)), along = mean(r, f_row_dot(r, g, xhat));
    EmitNode rest = f_fma(r, negate(r, xhat), along, f_sub(r, g, flat));
    emit_out(r, 0, f_mul(r, emit_in_row(r, 3), rest));
}

static void rule_layernorm_grad_w(EmitRule *r)
{
    emit_out_column(r, 0, emit_in(r, 0), normalised(r));
}

static void rule_sum_rows(EmitRule *r)
{
    emit_out_column(r, 0, emit_in(r, 0), (EmitNode){0});
}

/* y_j = x_j cos - x_p sin in the first half of each pair, x_j cos + x_p sin in the second. */
static void rule_rope(EmitRule *r)
{
    bool interleaved = attr_is(r, "pairing", "interleaved"),
         inverse = ir_attr_bool(r->g, r->op, "inverse");
    EmitNode along = f_mul(r, emit_in(r, 0), emit_in_angle(r, 1, interleaved));
    EmitNode across =
        f_mul(r, emit_in_partner(r, 0, interleaved), emit_in_angle(r, 2, interleaved));
    EmitNode minus = f_sub(r, along, across), plus = f_add(r, along, across);
    EmitNode lane = emit_leaf(r->f, NODE_lane, ELEM_I32, 0);
    EmitNode half = emit_integer(r->f, ELEM_I32, r->f->region->cols / 2);
    if (interleaved) { /* whether j is even, as j % 2 < 1 */
        lane = word(r, NODE_irem, lane, emit_integer(r->f, ELEM_I32, 2));
        half = emit_integer(r->f, ELEM_I32, 1);
    }
    emit_out(r, 0, select_less(r, lane, half, inverse ? plus : minus, inverse ? minus : plus));
}

/* -- the table -- */

#define FUSED(name, space) static const EmitOp emit_##name = {SPACE_##space, rule_##name};
FUSED(add, ANY)
FUSED(sub, ANY)
FUSED(mul, ANY)
FUSED(scale, ANY)
FUSED(cast, ANY)
FUSED(act, ANY)
FUSED(glu, ANY)
FUSED(softcap, ANY)
FUSED(dropout, ANY)
FUSED(slice, ANY)
FUSED(act_grad, ANY)
FUSED(glu_grad, ANY)
FUSED(softcap_grad, ANY)
FUSED(rmsnorm, LAST)
FUSED(rmsnorm_grad_x, LAST)
FUSED(rmsnorm_grad_w, COLUMNS)
FUSED(layernorm, LAST)
FUSED(layernorm_grad_x, LAST)
FUSED(layernorm_grad_w, COLUMNS)
FUSED(sum_rows, COLUMNS)
FUSED(rope, LAST)
#undef FUSED

static const EmitOp *const rules[IR_OP_COUNT] = {
#include "ir/op_columns.h"
#undef CPU
#define CPU_FUSED(f) &emit_##f
#define CPU_KERNEL(f) NULL
#define CPU_VIEW(f) NULL
#define CPU(class, f) CPU_##class(f)
#define OP(name, doc, ins, outs, attrs, columns) [IR_OP_##name] = columns,
#include "ir/ops.def"
#undef OP
};

const EmitOp *emit_op(IrOpKind kind)
{
    return rules[kind];
}
