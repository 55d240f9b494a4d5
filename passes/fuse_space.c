#include "passes/fuse_space.h"

#include "runtime/abi/fused_cuda.h"

#include "ir/op_columns.h"
#undef CPU
#undef CUDA
#define CPU(class, f) [PASS_TARGET_CPU] = PASS_CLASS_##class,
#define CUDA(class, f) [PASS_TARGET_CUDA] = PASS_CLASS_##class,
#define OP(name, doc, ins, outs, attrs, columns) [IR_OP_##name] = {columns},
static const unsigned char classes[IR_OP_COUNT][2] = {
#include "ir/ops.def"
};
#undef OP

PassOpClass pass_op_class(PassTarget target, IrOpKind kind)
{
    return (PassOpClass)classes[kind][target];
}

/* Where an op is not pointwise: whose rows it works on. */
typedef enum SpaceRule {
    RULE_ANY,
    RULE_LAST,    /* rows are the first operand's last dim */
    RULE_COLUMNS, /* the same, and the first result sums over them */
    RULE_SUM,     /* rows are as long as the result, which sums over them */
    RULE_PART,    /* rows are the result's last dim: the operand is wider */
} SpaceRule;

static const unsigned char rules[IR_OP_COUNT] = {
    [IR_OP_rmsnorm] = RULE_LAST,
    [IR_OP_layernorm] = RULE_LAST,
    [IR_OP_rope] = RULE_LAST,
    [IR_OP_sum_rows] = RULE_SUM,
    [IR_OP_rmsnorm_grad_x] = RULE_LAST,
    [IR_OP_rmsnorm_grad_w] = RULE_COLUMNS,
    [IR_OP_layernorm_grad_x] = RULE_LAST,
    [IR_OP_layernorm_grad_w] = RULE_COLUMNS,
    [IR_OP_slice] = RULE_PART,
};

static int64_t numel(const IrGraph *g, IrValue v)
{
    return ir_type_numel(g->m, ir_value_type(g, v));
}

static int64_t last(const IrGraph *g, IrValue v)
{
    return ir_type_last(g->m, ir_value_type(g, v));
}

/* Operands of a pointwise op that are neither whole nor one element. */
static int64_t broadcast_period(const IrGraph *g, IrOp op, int64_t whole)
{
    int64_t period = 0;
    for (uint32_t i = 1; i < ir_op(g, op)->n_in; i++) {
        IrValue v = ir_in(g, op, i);
        int64_t n = v.i ? numel(g, v) : 0;
        if (n > 1 && n < whole && n > period)
            period = n;
    }
    return period;
}

PassSpace pass_space_of_op(const IrGraph *g, IrOp op)
{
    SpaceRule rule = (SpaceRule)rules[ir_op_kind(g, op)];
    IrValue x = rule == RULE_PART ? ir_out(g, op, 0) : ir_in(g, op, 0);
    PassSpace s = {.numel = numel(g, x)};
    if (rule == RULE_ANY)
        s.period = broadcast_period(g, op, s.numel);
    else
        s.cols = rule == RULE_SUM ? numel(g, ir_out(g, op, 0)) : last(g, x);
    s.sums = rule == RULE_SUM || rule == RULE_COLUMNS;
    return s;
}

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static bool is_regular(const PassSpace *s)
{
    if (!s->cols)
        return true;
    bool in_step = !s->period || s->period % s->cols == 0 || s->cols % s->period == 0;
    return in_step && s->run % s->cols == 0;
}

bool pass_space_join(const PassSpace *a, const PassSpace *b, PassSpace *out)
{
    bool same = a->numel == b->numel && (!a->cols || !b->cols || a->cols == b->cols) &&
                (!a->period || !b->period || a->period == b->period);
    *out = (PassSpace){.numel = a->numel,
                       .cols = a->cols ? a->cols : b->cols,
                       .period = a->period ? a->period : b->period,
                       .run = gcd(a->run, b->run),
                       .sums = a->sums || b->sums};
    return same && is_regular(out);
}

bool pass_result_sums(const IrGraph *g, IrOp op, uint32_t r)
{
    SpaceRule rule = (SpaceRule)rules[ir_op_kind(g, op)];
    return r == 0 && (rule == RULE_SUM || rule == RULE_COLUMNS);
}

static int64_t chunks_of(PassTarget target, int64_t rows, int64_t cols)
{
    if (target == PASS_TARGET_CUDA)
        return plan_cuda_sums(rows, cols).chunks;
    return plan_ceil_div(rows, plan_fused_rows_per_chunk(rows, cols, 1));
}

/* As the emitter lays them out: each result's partial sums begin at a multiple of 8 bytes. */
uint64_t pass_region_workspace(PassTarget target, const IrGraph *g, const IrOp *ops, uint32_t n)
{
    uint64_t partial = 0;
    int64_t rows = 0, cols = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!pass_result_sums(g, ops[i], 0))
            continue;
        PassSpace s = pass_space_of_op(g, ops[i]);
        DType in = ir_type_info(g->m, ir_value_type(g, ir_in(g, ops[i], 0)))->dtype;
        DType out = ir_type_info(g->m, ir_value_type(g, ir_out(g, ops[i], 0)))->dtype;
        cols = s.cols;
        rows = s.numel / s.cols;
        partial = (partial + 7) / 8 * 8;
        partial += (uint64_t)cols * (in == DTYPE_F64 || out == DTYPE_F64 ? 8 : 4);
    }
    if (!partial)
        return 0;
    return (partial + 7) / 8 * 8 * (uint64_t)chunks_of(target, rows, cols);
}
