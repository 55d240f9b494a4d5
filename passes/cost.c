#include "passes/cost.h"

#include <string.h>

typedef struct CostCall {
    const IrGraph *g;
    const IrUses *uses;
    IrOp op;
} CostCall;

static uint64_t numel(const IrGraph *g, IrValue v)
{
    return v.i ? (uint64_t)ir_type_numel(g->m, ir_value_type(g, v)) : 0;
}

static uint64_t last_dim(const IrGraph *g, IrValue v)
{
    return (uint64_t)ir_type_last(g->m, ir_value_type(g, v));
}

static bool is_used(const CostCall *c, uint32_t result)
{
    IrValue v = ir_out(c->g, c->op, result);
    return c->uses->first[v.i + 1] > c->uses->first[v.i] || c->uses->is_result[v.i];
}

static uint64_t dim(const IrGraph *g, IrValue v, uint32_t i)
{
    return (uint64_t)ir_dim_size(&ir_type_info(g->m, ir_value_type(g, v))->dim[i]);
}

static uint64_t largest_operand(const CostCall *c)
{
    const IrOpRec *rec = ir_op(c->g, c->op);
    uint64_t most = 0;
    for (uint32_t i = 0; i < rec->n_in + rec->n_out; i++) {
        IrValue v = i < rec->n_in ? ir_in(c->g, c->op, i) : ir_out(c->g, c->op, i - rec->n_in);
        uint64_t n = numel(c->g, v);
        most = n > most ? n : most;
    }
    return most;
}

static PassCost cost_none(const CostCall *c)
{
    (void)c;
    return (PassCost){0};
}

static PassCost cost_pointwise(const CostCall *c)
{
    return (PassCost){.flops = largest_operand(c)};
}

/* A statistic, its use, and a weight: about four operations per element. */
static PassCost cost_rowwise(const CostCall *c)
{
    return (PassCost){.flops = 4 * largest_operand(c)};
}

/* 2 m n k: the numels of the three matrices are m k, n k and m n, whichever of them is the result.
 */
static PassCost cost_linear(const CostCall *c)
{
    IrValue a = ir_in(c->g, c->op, 0), b = ir_in(c->g, c->op, 1), y = ir_out(c->g, c->op, 0);
    uint64_t ka = last_dim(c->g, a), ky = last_dim(c->g, y);
    uint64_t products;
    if (ir_op_kind(c->g, c->op) == IR_OP_linear_grad_w)
        products = 2 * numel(c->g, a) * last_dim(c->g, b);
    else
        products = 2 * (numel(c->g, a) / (ka ? ka : 1)) * ka * ky;
    uint64_t bias = numel(c->g, ir_in(c->g, c->op, 2)) ? numel(c->g, y) : 0;
    return (PassCost){.flops = products + bias, .products = products};
}

static uint64_t triangle(int64_t n)
{
    return (uint64_t)n * ((uint64_t)n + 1) / 2;
}

/* Query i, counted from 1, sees the keys from i - window to i or to the last; the queries behind
 * the first n have left all keys behind. */
uint64_t pass_cost_visible_pairs(int64_t seq, int64_t keys, bool causal, int64_t window)
{
    bool windowed = window > 0 && window < seq;
    int64_t n = windowed && keys + window - 1 < seq ? keys + window - 1 : seq;
    int64_t rising = !causal ? 0 : n < keys ? n : keys;
    if (keys < 1 || seq < 1)
        return 0;
    uint64_t pairs = triangle(rising) + (uint64_t)(n - rising) * (uint64_t)keys;
    return windowed && n > window ? pairs - triangle(n - window) : pairs;
}

/* q [B,S,N,D], k and v [B,T,G,D]: `factor` FLOPs per visible pair, head and element of a head. */
static PassCost attention_cost(const CostCall *c, uint32_t q_at, uint64_t factor)
{
    const IrGraph *g = c->g;
    IrValue q = ir_in(g, c->op, q_at), k = ir_in(g, c->op, q_at + 1);
    bool causal = ir_attr_sym(g, c->op, "mask") == sym(g->m->s, "causal");
    uint64_t pairs = pass_cost_visible_pairs((int64_t)dim(g, q, 1), (int64_t)dim(g, k, 1), causal,
                                             ir_attr_i64(g, c->op, "window"));
    uint64_t products = factor * pairs * dim(g, q, 0) * dim(g, q, 2) * dim(g, q, 3);
    return (PassCost){.flops = products, .products = products, .attention = products};
}

static PassCost cost_attention(const CostCall *c)
{
    return attention_cost(c, 0, 4);
}

static PassCost cost_attention_grad(const CostCall *c)
{
    return attention_cost(c, 1, 10);
}

static PassCost cost_lm_loss(const CostCall *c)
{
    IrValue h = ir_in(c->g, c->op, 0), w = ir_in(c->g, c->op, 1);
    uint64_t products = 2 * numel(c->g, h) * dim(c->g, w, 0);
    return (PassCost){.flops = products, .products = products};
}

/* The logits are made again, then a product for each gradient that somebody reads. */
static PassCost cost_lm_loss_grad(const CostCall *c)
{
    IrValue h = ir_in(c->g, c->op, 1), w = ir_in(c->g, c->op, 2);
    uint64_t product = 2 * numel(c->g, h) * dim(c->g, w, 0);
    uint64_t n = (uint64_t)is_used(c, 0) + is_used(c, 1);
    return (PassCost){.flops = (n + 1) * product, .products = n * product, .replayed = product};
}

/* The logits, then a product for each gradient that somebody reads. */
static PassCost cost_lm_loss_with_grad(const CostCall *c)
{
    IrValue h = ir_in(c->g, c->op, 1), w = ir_in(c->g, c->op, 2);
    uint64_t product = 2 * numel(c->g, h) * dim(c->g, w, 0);
    uint64_t products = (1 + (uint64_t)is_used(c, 1) + is_used(c, 2)) * product;
    return (PassCost){.flops = products, .products = products};
}

static PassCost cost_adamw(const CostCall *c)
{
    return (PassCost){.flops = 16 * numel(c->g, ir_in(c->g, c->op, 0))};
}

typedef PassCost (*CostFn)(const CostCall *c);

#include "ir/op_columns.h"
#undef COST
#define COST(f) cost_##f
#define OP(name, doc, ins, outs, attrs, columns) [IR_OP_##name] = columns,
static const CostFn cost_fns[IR_OP_COUNT] = {
    [IR_OP_none] = cost_none,
#include "ir/ops.def"
};
#undef OP

static uint64_t op_bytes(const CostCall *c)
{
    const IrOpRec *rec = ir_op(c->g, c->op);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < rec->n_in; i++) {
        IrValue v = ir_in(c->g, c->op, i);
        if (v.i)
            bytes += (uint64_t)ir_type_bytes(c->g->m, ir_value_type(c->g, v));
    }
    for (uint32_t i = 0; i < rec->n_out; i++)
        if (is_used(c, i))
            bytes += (uint64_t)ir_type_bytes(c->g->m, ir_value_type(c->g, ir_out(c->g, c->op, i)));
    return bytes;
}

PassCost pass_cost_op(const IrGraph *g, const IrUses *uses, IrOp op)
{
    const IrOpRec *rec = ir_op(g, op);
    CostCall call = {g, uses, op};
    PassCost cost = cost_fns[rec->kind](&call);
    if (cost_fns[rec->kind] != cost_none)
        cost.bytes = op_bytes(&call);
    if (rec->re) {
        cost.replayed = cost.flops;
        cost.products = 0;
    }
    return cost;
}

static const struct {
    double products, attention, other, bandwidth, near, link, latency, launch, beside;
} rates[] = {
#define TARGET(id, ...) [PASS_TARGET_##id] = {__VA_ARGS__},
#include "passes/cost_model.def"
#undef TARGET
};

/* In a ring each member hands on all parts but one; a sum goes round twice, as operand and as
 * result. */
double pass_cost_exchange(PassTarget target, const IrGraph *g, IrOp op)
{
    IrOpKind kind = ir_op_kind(g, op);
    double ranks = (double)ir_attr_i64(g, op, "ranks"), rounds = (ranks - 1) / ranks;
    bool sends = kind == IR_OP_send, near = !strcmp(ir_attr_sym(g, op, "comm"), "tp");
    if (kind == IR_OP_recv)
        return 0; /* counted where it is sent */
    double bytes = (double)ir_type_bytes(g->m, ir_value_type(g, ir_in(g, op, 0)));
    if (kind == IR_OP_all_gather)
        bytes *= ranks;
    if (kind == IR_OP_all_reduce)
        bytes += (double)ir_type_bytes(g->m, ir_value_type(g, ir_out(g, op, 0)));
    if (kind == IR_OP_all_reduce_state)
        bytes *= 2;
    bool beside = g->m->exchanges_beside && !near && !sends;
    return rates[target].latency +
           bytes * (sends ? 1 : rounds) / (near ? rates[target].near : rates[target].link) *
               (beside ? rates[target].beside : 1);
}

double pass_cost_seconds(PassTarget target, const PassWork *of)
{
    double work = (double)(of->products - of->attention) / rates[target].products +
                  (double)of->attention / rates[target].attention +
                  (double)(of->flops - of->products) / rates[target].other;
    double memory = (double)of->bytes / rates[target].bandwidth;
    return rates[target].launch + (work > memory ? work : memory);
}
