/* verify-memory: on the final order and places, with code of its own:
 *   - every operand is written before it is read, kernels are one run of ops, and what sums over
 * rows is not read within;
 *   - a state is read on the right side of the op that changes it;
 *   - every operand has memory, or never leaves its kernel; a view lies where its op says;
 *   - nothing lies outside the arena or unaligned, and nothing alive shares a byte with anything
 * else alive. */
#include "passes/verify_memory.h"

#include "base/diag.h"
#include "passes/fuse_space.h"

/* A concat of which some part lies in the result: then all must. Zeros have to be written. */
static bool joins_in_place(const IrGraph *g, IrOp op)
{
    bool in_place = false;
    for (uint32_t i = 0; ir_op_kind(g, op) == IR_OP_concat && i < ir_op(g, op)->n_in; i++) {
        IrValue part = ir_in(g, op, i);
        if (!part.i)
            return false;
        in_place |= ir_value(g, part)->place.base.i == ir_out(g, op, 0).i;
    }
    return in_place;
}

bool verify_memory_runs(const IrGraph *g, IrOp op)
{
    bool has_code = !(ir_op_info(ir_op_kind(g, op))->traits & IR_VIEW) && !joins_in_place(g, op);
    return ir_in_kernel(g, op) || has_code;
}

const char *verify_memory_name(const MemoryVerifier *v, IrValue value)
{
    const IrValueRec *rec = ir_value(v->g, value);
    return arena_printf(v->c->scratch, "%c%s", rec->def == IR_DEF_STATE ? '$' : '%', rec->name);
}

/* Its first result, or its kind and the state that it updates. */
const char *verify_memory_op_name(const MemoryVerifier *v, IrOp op)
{
    const IrOpRec *rec = ir_op(v->g, op);
    if (rec->n_out)
        return verify_memory_name(v, ir_out(v->g, op, 0));
    return arena_printf(v->c->scratch, "%s %s", ir_op_info((IrOpKind)rec->kind)->name,
                        rec->n_in ? verify_memory_name(v, ir_in(v->g, op, 0)) : "");
}

/* -- moments -- */

static void number_moments(MemoryVerifier *v)
{
    const IrGraph *g = v->g;
    unsigned char *closed = ARENA_ARRAY(v->c->scratch, unsigned char, g->regions.n + 1);
    uint32_t now = 0, open = 0;
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        uint32_t region = ir_in_kernel(g, op) ? ir_op(g, op)->region.i : 0;
        if (region && region != open && closed[region]) {
            diag(v->c->s, ir_op(g, op)->span, memory_scattered, g->regions.at[region].policy,
                 verify_memory_op_name(v, op));
            v->status = STATUS_BUG;
        }
        closed[open] = 1;
        if (verify_memory_runs(g, op) && (!region || region != open)) {
            now = v->n_moments++;
            v->first_at[now] = op;
        }
        open = region;
        v->when[op.i] = now;
    }
}

/* -- values -- */

static void fail_early(MemoryVerifier *v, IrOp op, IrValue in)
{
    diag(v->c->s, ir_op(v->g, op)->span, memory_early, verify_memory_op_name(v, op),
         verify_memory_name(v, in));
    diag(v->c->s, ir_value(v->g, in)->span, memory_made_here, verify_memory_name(v, in));
    v->status = STATUS_BUG;
}

static bool has_memory(const IrGraph *g, IrValue value)
{
    IrValue base = ir_value(g, value)->place.base;
    return ir_value(g, base.i ? base : value)->place.offset >= 0;
}

/* `reader` reads it, or the host behind the last op. */
static void fail_no_memory(MemoryVerifier *v, Span span, const char *reader, IrValue value)
{
    IrValue base = ir_value(v->g, value)->place.base;
    diag(v->c->s, span, memory_no_place, reader, verify_memory_name(v, value));
    if (base.i)
        diag(v->c->s, ir_value(v->g, base)->span, memory_made_here, verify_memory_name(v, base));
    v->status = STATUS_BUG;
}

static void check_operand(MemoryVerifier *v, IrOp op, IrValue in)
{
    const IrGraph *g = v->g;
    const IrValueRec *rec = ir_value(g, in);
    if (rec->def == IR_DEF_RESULT) {
        bool together =
            ir_in_kernel(g, op) && ir_in_kernel(g, rec->op) && v->when[op.i] == v->when[rec->op.i];
        bool incomplete = together && pass_result_sums(g, rec->op, rec->result);
        if (!v->seen[rec->op.i] || incomplete) {
            fail_early(v, op, in);
            return;
        }
        if (together)
            return;
    }
    if (verify_memory_runs(g, op) && !has_memory(g, in))
        fail_no_memory(v, ir_op(g, op)->span, verify_memory_op_name(v, op), in);
}

static int64_t numel(const IrGraph *g, IrValue value)
{
    return ir_type_numel(g->m, ir_value_type(g, value));
}

/* Element e of a value, as an element of `*out_base`. */
static int64_t locate(const IrGraph *g, IrValue value, int64_t e, IrValue *out_base)
{
    const IrPlace *place = &ir_value(g, value)->place;
    *out_base = place->base.i ? place->base : value;
    if (!place->base.i || place->run < 1)
        return e;
    return place->view_offset + e / place->run * place->pitch + e % place->run;
}

/* Which element of `whole` the element e of part `index` of its last dim is. */
static int64_t element_of_part(const IrGraph *g, IrValue part, IrValue whole, int64_t index,
                               int64_t e)
{
    int64_t width = ir_type_last(g->m, ir_value_type(g, part));
    return e / width * ir_type_last(g->m, ir_value_type(g, whole)) + index * width + e % width;
}

/* Which element of its operand (of its result, if it puts parts together) the element e of a view
 * op's result (of its operand `index`) is. */
static int64_t viewed_element(const IrGraph *g, IrOp op, uint32_t index, int64_t e)
{
    if (ir_op_kind(g, op) == IR_OP_flat_piece)
        return e + ir_attr_i64(g, op, "offset");
    if (ir_op_kind(g, op) == IR_OP_concat)
        return element_of_part(g, ir_in(g, op, index), ir_out(g, op, 0), index, e);
    if (ir_op_kind(g, op) == IR_OP_slice)
        return element_of_part(g, ir_out(g, op, 0), ir_in(g, op, 0), ir_attr_i64(g, op, "index"),
                               e);
    return e;
}

/* `view` must lie where the op says that its elements are in `whole`. Checked where runs begin and
 * end. */
static void check_view(MemoryVerifier *v, IrOp op, IrValue view, IrValue whole, uint32_t index)
{
    const IrGraph *g = v->g;
    int64_t n = numel(g, view), run = ir_value(g, view)->place.run;
    int64_t probes[] = {0, n - 1, run - 1, run, n / 2, ir_value(g, whole)->place.run};
    for (uint32_t i = 0; i < sizeof probes / sizeof *probes; i++) {
        if (probes[i] < 0 || probes[i] >= n)
            continue;
        IrValue view_base, whole_base;
        int64_t at = locate(g, view, probes[i], &view_base);
        int64_t of = locate(g, whole, viewed_element(g, op, index, probes[i]), &whole_base);
        bool inside = at < numel(g, view_base);
        if (inside && view_base.i == whole_base.i && at == of)
            continue;
        diag(v->c->s, ir_op(g, op)->span, memory_view, verify_memory_name(v, view),
             (long long)probes[i], (long long)at, verify_memory_name(v, view_base), (long long)of,
             verify_memory_name(v, whole_base));
        v->status = STATUS_BUG;
        return;
    }
}

/* An op without code: its result must lie where its operands are. */
static void check_views(MemoryVerifier *v, IrOp op)
{
    const IrGraph *g = v->g;
    IrValue out = ir_out(g, op, 0);
    if (ir_op_kind(g, op) != IR_OP_concat) {
        check_view(v, op, out, ir_in(g, op, 0), 0);
        return;
    }
    for (uint32_t i = 0; i < ir_op(g, op)->n_in; i++)
        check_view(v, op, ir_in(g, op, i), out, i);
}

/* By value: the result of the concat behind that has it as a part in place, but for its dims. */
static IrValue *find_wholes(const IrGraph *g, Arena *scratch)
{
    IrValue *whole = ARENA_ARRAY(scratch, IrValue, g->values.n);
    for (uint32_t i = g->order.n; i-- > 0;) {
        IrOp op = g->order.at[i];
        bool joins = joins_in_place(g, op), same = ir_op_kind(g, op) == IR_OP_reshape;
        for (uint32_t k = 0; (joins || same) && k < ir_op(g, op)->n_in; k++)
            whole[ir_in(g, op, k).i] = joins ? ir_out(g, op, 0) : whole[ir_out(g, op, 0).i];
    }
    return whole;
}

/* What an op writes has memory of its own, or is a part of a whole and the op can write that; what
 * an op without code gives is no view of a view. */
static void check_base(MemoryVerifier *v, IrOp op, IrValue out, const IrValue *whole)
{
    const IrGraph *g = v->g;
    IrValue base = ir_value(g, out)->place.base;
    bool is_view = base.i && ir_value(g, base)->place.base.i;
    bool is_part = whole[out.i].i == base.i && !ir_in_kernel(g, op) &&
                   ir_op_info(ir_op_kind(g, op))->traits & IR_STRIDED;
    if (!base.i || (!is_view && (is_part || !verify_memory_runs(g, op))))
        return;
    diag(v->c->s, ir_op(g, op)->span, memory_view_base, verify_memory_name(v, out),
         verify_memory_name(v, base));
    v->status = STATUS_BUG;
}

static void check_values(MemoryVerifier *v)
{
    const IrGraph *g = v->g;
    const IrValue *whole = find_wholes(g, v->c->scratch);
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        for (uint32_t k = 0; k < ir_op(g, op)->n_in; k++)
            if (ir_in(g, op, k).i)
                check_operand(v, op, ir_in(g, op, k));
        for (uint32_t r = 0; r < ir_op(g, op)->n_out; r++)
            check_base(v, op, ir_out(g, op, r), whole);
        if (!verify_memory_runs(g, op))
            check_views(v, op);
        v->seen[op.i] = i + 1;
    }
    for (uint32_t i = 0; i < g->results.n; i++)
        if (!has_memory(g, g->results.at[i]))
            fail_no_memory(v, ir_value(g, g->results.at[i])->span,
                           arena_printf(v->c->scratch, "@%s", g->name), g->results.at[i]);
}

/* -- states -- */

/* These end a state's value in this step: who else reads it comes before. The others make what
 * readers wait for. */
static const bool retires[IR_OP_COUNT] = {
    [IR_OP_adamw] = true,
    [IR_OP_sgd] = true,
    [IR_OP_advance] = true,
    [IR_OP_all_gather_state] = true,
};

typedef struct StateUse {
    IrOp last_writer, last_reader; /* readers that do not write it */
} StateUse;

static bool writes(const IrGraph *g, IrOp op, uint32_t operand)
{
    const IrOpInfo *info = ir_op_info(ir_op_kind(g, op));
    return info->in[operand < info->n_in ? operand : info->n_in - 1].written;
}

static void fail_state(MemoryVerifier *v, IrOp reader, IrValue state, IrOp writer, bool late)
{
    const char *name = ir_value(v->g, state)->name;
    Span span = ir_op(v->g, reader)->span;
    if (late)
        diag(v->c->s, span, memory_state_late, verify_memory_op_name(v, reader), name,
             verify_memory_op_name(v, writer));
    else
        diag(v->c->s, span, memory_state_early, verify_memory_op_name(v, reader), name,
             verify_memory_op_name(v, writer));
    v->status = STATUS_BUG;
}

static bool starts_afresh(const IrGraph *g, IrOp op)
{
    IrOpKind kind = ir_op_kind(g, op);
    return (kind == IR_OP_accumulate || kind == IR_OP_count_targets) &&
           ir_attr_bool(g, op, "first");
}

static void check_state(MemoryVerifier *v, StateUse *use, IrOp op, IrValue state, bool is_write)
{
    const IrGraph *g = v->g;
    if (!is_write) {
        use->last_reader = op;
        if (use->last_writer.i && retires[ir_op_kind(g, use->last_writer)])
            fail_state(v, op, state, use->last_writer, true);
        return;
    }
    if (use->last_reader.i && !retires[ir_op_kind(g, op)])
        fail_state(v, use->last_reader, state, op, false);
    bool out_of_turn =
        use->last_writer.i &&
        (starts_afresh(g, op) || ir_op(g, use->last_writer)->instance > ir_op(g, op)->instance);
    if (out_of_turn)
        fail_state(v, use->last_writer, state, op, false);
    use->last_writer = op;
}

static void check_states(MemoryVerifier *v)
{
    const IrGraph *g = v->g;
    StateUse *uses = ARENA_ARRAY(v->c->scratch, StateUse, g->values.n);
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        for (uint32_t k = 0; k < ir_op(g, op)->n_in; k++) {
            IrValue in = ir_in(g, op, k);
            if (in.i && ir_value(g, in)->def == IR_DEF_STATE)
                check_state(v, &uses[in.i], op, in, writes(g, op, k));
        }
    }
}

static void verify_graph(PassContext *c, const IrGraph *g, Status *status)
{
    MemoryVerifier v = {.c = c, .g = g, .status = *status};
    v.when = ARENA_ARRAY(c->scratch, uint32_t, g->ops.n + 1);
    v.seen = ARENA_ARRAY(c->scratch, uint32_t, g->ops.n + 1);
    v.first_at = ARENA_ARRAY(c->scratch, IrOp, g->order.n + 1);
    number_moments(&v);
    check_values(&v);
    check_states(&v);
    verify_memory_overlap(&v);
    pass_stat(c, "moments", v.n_moments);
    *status = v.status;
}

Status pass_verify_memory(PassContext *c)
{
    Status status = STATUS_OK;
    for (uint32_t i = 0; i < c->m->graphs.n; i++)
        verify_graph(c, c->m->graphs.at[i], &status);
    return status;
}
