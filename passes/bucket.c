/* bucket: gradients of one block that tensor-parallel ranks sum one by one are packed and summed at
 * once. An exchange has its price whatever it carries, and under sequence parallelism every norm's
 * gradient is a sum of a few KiB. */
#include <string.h>

#include "passes/units.h"

enum {
    MOST = 1 << 20, /* elements; a copy of more takes as long as an exchange needs to begin */
    ALIGN = 32      /* elements; runtime/abi/plan.h: PLAN_FLAT_ALIGN */
};

typedef struct Bucket {
    PassContext *c;
    IrGraph *g;
    IrUses uses;
    VEC(IrOp) sums; /* of one block, alike */
} Bucket;

/* The op that reads a sum; {0}: none, or several. */
static IrOp reader_of(const Bucket *b, IrOp sum)
{
    IrValue v = ir_out(b->g, sum, 0);
    uint32_t first = b->uses.first[v.i];
    return b->uses.first[v.i + 1] == first + 1 ? b->uses.at[first] : (IrOp){0};
}

/* A small sum of a weight's gradient over all of tp, for which only an accumulation waits, or the
 * update. */
static bool may_wait(const Bucket *b, IrOp op)
{
    const IrGraph *g = b->g;
    const IrOpRec *rec = ir_op(g, op);
    if (ir_op_kind(g, op) != IR_OP_all_reduce || rec->serves != IR_SERVES_WEIGHT || rec->re ||
        rec->region.i || strcmp(ir_attr_sym(g, op, "comm"), "tp") || ir_attr_i64(g, op, "group"))
        return false;
    IrValue v = ir_out(g, op, 0);
    IrOp reader = reader_of(b, op);
    bool unread = b->uses.first[v.i] == b->uses.first[v.i + 1];
    return ir_type_numel(g->m, ir_value_type(g, v)) <= MOST &&
           (unread || (reader.i && ir_op_kind(g, reader) == IR_OP_accumulate));
}

static DType dtype_of(const IrGraph *g, IrValue v)
{
    return ir_type_info(g->m, ir_value_type(g, v))->dtype;
}

static bool are_alike(const IrGraph *g, IrOp a, IrOp b)
{
    return ir_scope_block(g->m, ir_op(g, a)->scope).i ==
               ir_scope_block(g->m, ir_op(g, b)->scope).i &&
           dtype_of(g, ir_in(g, a, 0)) == dtype_of(g, ir_in(g, b, 0)) &&
           dtype_of(g, ir_out(g, a, 0)) == dtype_of(g, ir_out(g, b, 0));
}

static uint32_t place_of(const IrGraph *g, IrOp op)
{
    uint32_t at = 0;
    while (g->order.at[at].i != op.i)
        at++;
    return at;
}

static void move_down(IrGraph *g, uint32_t from, uint32_t to)
{
    IrOp op = g->order.at[from];
    for (; from < to; from++)
        g->order.at[from] = g->order.at[from + 1];
    g->order.at[to] = op;
}

static IrBuilder builder_behind(IrGraph *g, uint32_t at)
{
    const IrOpRec *rec = ir_op(g, g->order.at[at]);
    IrBuilder b = ir_builder(g);
    b.at = at + 1;
    b.scope = ir_scope_block(g->m, rec->scope);
    b.serves = (IrServes)rec->serves;
    b.span = rec->span;
    return b;
}

/* The shares of all, packed, and their sum over ranks. */
static IrValue sum_packed(const Bucket *b, IrBuilder *at, int64_t *begin)
{
    IrGraph *g = b->g;
    Session *s = b->c->s;
    IrValue *shares = ARENA_ARRAY(b->c->scratch, IrValue, b->sums.n);
    int64_t end = 0;
    for (uint32_t i = 0; i < b->sums.n; i++) {
        shares[i] = ir_in(g, b->sums.at[i], 0);
        begin[i] = (end + ALIGN - 1) / ALIGN * ALIGN;
        end = begin[i] + ir_type_numel(g->m, ir_value_type(g, shares[i]));
    }
    Sym first = ir_value(g, ir_out(g, b->sums.at[0], 0))->name;
    IrOpArgs pack = {.kind = IR_OP_flat_pack, .in = shares, .n_in = b->sums.n};
    pack.name = intern_printf(&s->interner, "%s.parts", first);
    pack.out[0] = flat_type(g->m, dtype_of(g, shares[0]), end);
    IrValue packed = ir_out(g, ir_build(at, &pack), 0);
    IrOpArgs sum = {.kind = IR_OP_all_reduce, .in = &packed, .n_in = 1};
    sum.name = intern_printf(&s->interner, "%s.sums", first);
    sum.out[0] = flat_type(g->m, dtype_of(g, ir_out(g, b->sums.at[0], 0)), end);
    flat_give_comm(&sum, sym(s, "tp"), g->m->mesh.tp);
    return ir_out(g, ir_build(at, &sum), 0);
}

/* The piece takes the name, and the readers, of the sum that it stands for; it is the block's, not
 * its part's, as all of them have gone into it. */
static void take_piece(const Bucket *b, IrBuilder *at, IrValue sums, int64_t begin, IrOp old)
{
    IrGraph *g = b->g;
    IrValue was = ir_out(g, old, 0);
    IrOpArgs piece = {.kind = IR_OP_flat_piece, .in = &sums, .n_in = 1};
    piece.name = ir_value(g, was)->name;
    piece.out[0] = ir_value_type(g, was);
    piece.attrs[0] = "offset";
    piece.values[0].i = begin;
    ir_value_rename(g, was, ir_value_fresh_name(g, sym(b->c->s, "summed")));
    at->span = ir_op(g, old)->span;
    ir_replace_uses(g, was, ir_out(g, ir_build(at, &piece), 0));
}

/* Behind the last of the sums; returns how many ops the order has more. */
static uint32_t close_bucket(Bucket *b)
{
    IrGraph *g = b->g;
    uint32_t n = g->order.n;
    if (b->sums.n > 1) {
        IrBuilder at = builder_behind(g, place_of(g, b->sums.at[b->sums.n - 1]));
        int64_t *begin = ARENA_ARRAY(b->c->scratch, int64_t, b->sums.n);
        IrValue sums = sum_packed(b, &at, begin);
        for (uint32_t i = 0; i < b->sums.n; i++)
            take_piece(b, &at, sums, begin[i], b->sums.at[i]);
        for (uint32_t i = 0; i < b->sums.n; i++) {
            IrOp reader = reader_of(b, b->sums.at[i]);
            uint32_t from = reader.i ? place_of(g, reader) : at.at;
            if (from < at.at)
                move_down(g, from, at.at - 1);
            ir_op_remove(g, b->sums.at[i]);
        }
        pass_stat(b->c, "sums over ranks joined", b->sums.n);
    }
    b->sums.n = 0;
    return g->order.n - n;
}

Status pass_bucket(PassContext *c)
{
    IrGraph *g = ir_graph_find(c->m, "bwd");
    if (c->m->mesh.tp == 1 || !g)
        return STATUS_OK;
    Bucket b = {.c = c, .g = g, .uses = ir_uses(g, c->scratch)};
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        if (!may_wait(&b, op))
            continue;
        if (b.sums.n && !are_alike(g, b.sums.at[0], op))
            i += close_bucket(&b);
        vec_push(c->scratch, &b.sums, op);
    }
    close_bucket(&b);
    ir_graph_compact(g);
    return STATUS_OK;
}
