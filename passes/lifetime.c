#include "passes/lifetime.h"

static bool is_written_in_place(const IrGraph *g, IrOp concat)
{
    IrValue part = ir_in(g, concat, 0);
    return part.i && ir_value(g, part)->place.base.i == ir_out(g, concat, 0).i;
}

bool pass_has_code(const IrGraph *g, IrOp op)
{
    if (ir_in_kernel(g, op))
        return true;
    if (ir_op_kind(g, op) == IR_OP_concat)
        return !is_written_in_place(g, op);
    return !(ir_op_info(ir_op_kind(g, op))->traits & IR_VIEW);
}

static void number_instructions(PassLifetimes *l, Arena *arena)
{
    const IrGraph *g = l->g;
    l->instr = ARENA_ARRAY(arena, uint32_t, g->ops.n + 1);
    l->first_op = ARENA_ARRAY(arena, IrOp, g->order.n + 1);
    for (uint32_t i = 0; i < g->ops.n; i++)
        l->instr[i] = PASS_NO_INSTR;
    IrRegion open = {0};
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        if (!pass_has_code(g, op)) {
            open = (IrRegion){0};
            continue;
        }
        IrRegion region = ir_in_kernel(g, op) ? ir_op(g, op)->region : (IrRegion){0};
        if (!region.i || region.i != open.i)
            l->first_op[l->n_instrs++] = op;
        l->instr[op.i] = l->n_instrs - 1;
        open = region;
    }
}

/* By value index: is it read outside the instruction that makes it, or a result of the graph? */
static unsigned char *find_read(const PassLifetimes *l, Arena *arena)
{
    const IrGraph *g = l->g;
    unsigned char *read = ARENA_ARRAY(arena, unsigned char, g->values.n + 1);
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        for (uint32_t k = 0; k < ir_op(g, op)->n_in; k++) {
            IrValue v = ir_in(g, op, k);
            const IrValueRec *rec = ir_value(g, v);
            if (v.i && (rec->def != IR_DEF_RESULT || l->instr[rec->op.i] != l->instr[op.i]))
                read[v.i] = 1;
        }
    }
    for (uint32_t i = 0; i < g->results.n; i++)
        read[g->results.at[i].i] = 1;
    return read;
}

static void touch(PassLifetimes *l, uint32_t buffer, uint32_t instr)
{
    if (buffer != PASS_NO_BUFFER && instr != PASS_NO_INSTR && l->buffers.at[buffer].end < instr)
        l->buffers.at[buffer].end = instr;
}

static void add_buffer(PassLifetimes *l, Arena *arena, IrOp op, IrValue v, uint64_t bytes)
{
    uint32_t t = l->instr[op.i];
    vec_push(arena, &l->buffers, ((PassBuffer){v, op, t, t, bytes}));
}

/* The op's results: each one's base has memory from its first writer on. */
static void define_results(PassLifetimes *l, Arena *arena, IrOp op, const unsigned char *read)
{
    const IrGraph *g = l->g;
    for (uint32_t r = 0; r < ir_op(g, op)->n_out; r++) {
        IrValue v = ir_out(g, op, r), base = pass_base(g, v);
        if (ir_value(g, base)->def != IR_DEF_RESULT || (!read[v.i] && base.i == v.i))
            continue;
        if (l->buffer[base.i] == PASS_NO_BUFFER && l->instr[op.i] != PASS_NO_INSTR) {
            l->buffer[base.i] = l->buffers.n;
            add_buffer(l, arena, op, base, (uint64_t)ir_type_bytes(g->m, ir_value_type(g, base)));
        }
        l->buffer[v.i] = l->buffer[base.i];
    }
}

/* -- sums that run beside what comes behind them -- */

static bool is_sum(const IrGraph *g, IrOp op)
{
    IrOpKind kind = ir_op_kind(g, op);
    return kind == IR_OP_reduce_scatter || kind == IR_OP_all_reduce;
}

/* The last instruction before the sum's result is read, the next sum, or the end of its part. */
static uint32_t sum_until(const PassLifetimes *l, uint32_t at)
{
    const IrGraph *g = l->g;
    const IrOpRec *sum = ir_op(g, g->order.at[at]);
    uint32_t last = l->instr[g->order.at[at].i];
    for (uint32_t i = at + 1; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        const IrOpRec *rec = ir_op(g, op);
        if (rec->graph != sum->graph || rec->instance != sum->instance || is_sum(g, op))
            break;
        for (uint32_t k = 0; k < rec->n_in; k++)
            if (pass_base(g, ir_in(g, op, k)).i == sum->first_out)
                return last;
        if (l->instr[op.i] != PASS_NO_INSTR)
            last = l->instr[op.i];
    }
    return last;
}

static void hold_sums(PassLifetimes *l, Arena *arena)
{
    const IrGraph *g = l->g;
    uint32_t *workspace = ARENA_ARRAY(arena, uint32_t, g->ops.n + 1);
    for (uint32_t i = 0; i < l->buffers.n; i++)
        if (!l->buffers.at[i].value.i)
            workspace[l->buffers.at[i].op.i] = i + 1;
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        if (!is_sum(g, op))
            continue;
        uint32_t until = sum_until(l, i);
        touch(l, l->buffer[ir_in(g, op, 0).i], until);
        touch(l, l->buffer[ir_out(g, op, 0).i], until);
        if (workspace[op.i])
            touch(l, workspace[op.i] - 1, until);
    }
}

PassLifetimes pass_lifetimes(const IrGraph *g, Arena *arena)
{
    PassLifetimes l = {.g = g};
    number_instructions(&l, arena);
    unsigned char *read = find_read(&l, arena);
    l.buffer = ARENA_ARRAY(arena, uint32_t, g->values.n + 1);
    for (uint32_t i = 0; i < g->values.n; i++)
        l.buffer[i] = PASS_NO_BUFFER;
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        for (uint32_t k = 0; k < ir_op(g, op)->n_in; k++)
            touch(&l, l.buffer[ir_in(g, op, k).i], l.instr[op.i]);
        define_results(&l, arena, op, read);
        if (op.i < g->workspaces.n && g->workspaces.at[op.i].run > 0)
            add_buffer(&l, arena, op, (IrValue){0}, (uint64_t)g->workspaces.at[op.i].run);
    }
    for (uint32_t i = 0; i < g->results.n; i++)
        touch(&l, l.buffer[g->results.at[i].i], l.n_instrs ? l.n_instrs - 1 : 0);
    if (g->m->exchanges_beside)
        hold_sums(&l, arena);
    return l;
}

uint64_t pass_lifetimes_peak(const PassLifetimes *l, uint64_t align, Arena *scratch,
                             uint32_t *out_instr)
{
    int64_t *change = ARENA_ARRAY(scratch, int64_t, l->n_instrs + 2);
    for (uint32_t i = 0; i < l->buffers.n; i++) {
        int64_t bytes = (int64_t)pass_align(l->buffers.at[i].bytes, align);
        change[l->buffers.at[i].begin] += bytes;
        change[l->buffers.at[i].end + 1] -= bytes;
    }
    int64_t live = 0, peak = 0;
    *out_instr = 0;
    for (uint32_t t = 0; t < l->n_instrs; t++) {
        live += change[t];
        if (live > peak) {
            peak = live;
            *out_instr = t;
        }
    }
    return (uint64_t)peak;
}
