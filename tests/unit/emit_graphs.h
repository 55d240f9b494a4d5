/* emit_graphs: small graphs over every fused op, for every target's emitter. */
#ifndef TESTS_UNIT_EMIT_GRAPHS_H
#define TESTS_UNIT_EMIT_GRAPHS_H

#include "tests/unit/emit_harness.h"

/* -- graphs: each with rows of d elements -- */

static inline void build_norms(Program *p, DType t, int64_t d)
{
    int64_t full[] = {2, 3, d};
    IrValue x = operand(p, "x", t, 3, full), r = operand(p, "r", t, 3, full),
            w = operand(p, "w", t, 1, &d);
    IrValue h = want(p, one(p, OP(p, add, x, r)));
    IrOp norm = OP(p, rmsnorm, h, w);
    want(p, ir_out(p->g, norm, 1));
    IrOpArgs before = {.kind = IR_OP_rmsnorm,
                       .in = (IrValue[]){h, w},
                       .n_in = 2,
                       .attrs = {"round"},
                       .values = {{.sym = sym(p->s, "before_weight")}}};
    want(p, one(p, OP(p, mul, one(p, norm), one(p, op(p, before)))));
    IrValue b = operand(p, "b", t, 1, &d);
    IrOp layer = OP(p, layernorm, one(p, norm), w, b);
    want(p, ir_out(p->g, layer, 0));
    want(p, ir_out(p->g, layer, 1));
    want(p, ir_out(p->g, layer, 2));
}

static inline void build_norm_grads(Program *p, DType t, int64_t d)
{
    int64_t full[] = {2, 3, d};
    DType real = t == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
    IrValue dy = operand(p, "dy", t, 3, full), x = operand(p, "x", t, 3, full),
            w = operand(p, "w", t, 1, &d);
    IrValue mean = operand(p, "mean", real, 2, full), rstd = operand(p, "rstd", real, 2, full);
    IrValue g = one(p, OP(p, add, dy, x));
    want(p, one(p, OP(p, rmsnorm_grad_x, g, x, rstd, w)));
    want(p, one(p, OP(p, layernorm_grad_x, g, x, mean, rstd, w)));
    IrType column = ir_value_type(p->g, w);
    IrOpArgs grads[] = {
        {.kind = IR_OP_rmsnorm_grad_w, .in = (IrValue[]){g, x, rstd}, .n_in = 3, .out = {column}},
        {.kind = IR_OP_layernorm_grad_w,
         .in = (IrValue[]){g, x, mean, rstd},
         .n_in = 4,
         .out = {column}},
        {.kind = IR_OP_sum_rows, .in = &g, .n_in = 1, .out = {column}},
    };
    for (uint32_t i = 0; i < 3; i++)
        want(p, one(p, op(p, grads[i])));
}

static inline void build_rope(Program *p, DType t, int64_t d)
{
    if (d % 2)
        d++;
    DType real = t == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
    int64_t full[] = {2, 3, 5, d}, table[] = {2, 3, d / 2};
    IrValue x = operand(p, "x", t, 4, full), w = operand(p, "w", t, 1, &d);
    IrValue cosine = operand(p, "cos", real, 3, table), sine = operand(p, "sin", real, 3, table);
    IrValue norm = one(p, OP(p, rmsnorm, x, w));
    want(p, one(p, OP(p, rope, norm, cosine, sine)));
    IrOpArgs other = {.kind = IR_OP_rope,
                      .in = (IrValue[]){norm, cosine, sine},
                      .n_in = 3,
                      .attrs = {"pairing", "inverse"},
                      .values = {{.sym = sym(p->s, "interleaved")}, {.b = true}}};
    want(p, one(p, op(p, other)));
    want(p, one(p, OP(p, rope, x, cosine, sine)));
}

static inline void build_pointwise(Program *p, DType t, int64_t d)
{
    static const char *const fns[] = {"gelu_tanh", "gelu_erf", "quick_gelu", "silu",
                                      "sigmoid",   "tanh",     "relu"};
    int64_t full[] = {2, 3, d}, part[] = {3, d};
    IrValue gate = operand(p, "gate", t, 3, full), up = operand(p, "up", t, 3, full);
    IrValue bias = operand(p, "bias", t, 1, &d), table = operand(p, "table", t, 2, part);
    IrValue scalar = operand(p, "scalar", t, 0, NULL);
    IrValue x = one(p, OP(p, add, one(p, OP(p, add, gate, bias)), table));
    x = one(p, OP(p, mul, x, scalar));
    for (uint32_t i = 0; i < sizeof fns / sizeof *fns; i++) {
        IrOpArgs glu = {.kind = IR_OP_glu,
                        .in = (IrValue[]){x, up},
                        .n_in = 2,
                        .attrs = {"fn"},
                        .values = {{.sym = sym(p->s, fns[i])}}};
        x = one(p, op(p, glu));
        glu.kind = IR_OP_glu_grad;
        glu.in = (IrValue[]){x, gate, up};
        glu.n_in = 3;
        IrOp grad = op(p, glu);
        x = one(p, OP(p, sub, ir_out(p->g, grad, 0), ir_out(p->g, grad, 1)));
        if (i % 3 == 0)
            want(p, x);
    }
    IrOpArgs cap = {
        .kind = IR_OP_softcap, .in = &x, .n_in = 1, .attrs = {"cap"}, .values = {{.f = 3}}};
    want(p, one(p, op(p, cap)));
    want(p, to(p, to(p, x, DTYPE_BF16), t));
}

static inline void build_dropout(Program *p, DType t, int64_t d)
{
    int64_t full[] = {2, 3, d};
    IrValue x = operand(p, "x", t, 3, full);
    for (int64_t key = 7; key < 9; key++) {
        IrOpArgs args = {.kind = IR_OP_dropout,
                         .in = &x,
                         .n_in = 1,
                         .attrs = {"p", "key"},
                         .values = {{.f = 0.25}, {.i = key}}};
        x = one(p, op(p, args));
    }
    want(p, x);
    int64_t shape[] = {d};
    want(p, one(p, OP(p, rmsnorm, x, operand(p, "w", t, 1, shape))));
}

typedef void (*Build)(Program *p, DType t, int64_t d);
static const Build builds[] = {build_norms, build_norm_grads, build_rope, build_pointwise,
                               build_dropout};

static inline void check_equal(const Program *a, const Program *b, const char *what)
{
    for (uint32_t k = 0; k < a->n_wanted; k++) {
        int64_t n = numel_of(a, a->wanted[k]);
        size_t bytes = (size_t)n * dtype_bytes(dtype_of(a, a->wanted[k]));
        double sum = 0;
        for (int64_t e = 0; e < n; e++)
            sum += fabs(read_at(a, a->wanted[k], e));
        if (!(sum > 0) || !isfinite(sum))
            fail_msg("%s, result %u: the sum of its elements is %g", what, k, sum);
        if (memcmp(address(a, a->wanted[k]), address(b, b->wanted[k]), bytes))
            fail_msg("%s, result %u: bits differ", what, k);
    }
}

#endif
