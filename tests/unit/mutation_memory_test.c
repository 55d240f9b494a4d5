/* verify-memory against random single faults in real plans: each one rejected, and what was
 * changed named. */
#include "mutation_support.h"

/* Alive at the same instruction, by the planner's lifetimes, which are none of the verifier's
 * code. */
static bool together(const PassBuffer *a, const PassBuffer *b)
{
    return a->begin <= b->end && b->begin <= a->end;
}

static IrPlace *place_of(Plan *plan, const PassBuffer *b)
{
    return b->value.i ? &ir_value(plan->g, b->value)->place : &plan->g->workspaces.at[b->op.i];
}

static void name_buffer(Plan *plan, const PassBuffer *b, Mutation *out)
{
    if (b->value.i)
        mutation_name(plan, out, "`%%%s`", value_name(plan, b->value));
    else
        mutation_name(plan, out, "`workspace of %%%s`", op_name(plan, b->op));
}

static PassBuffer *pick_buffer(Plan *plan, Random *random, bool workspace)
{
    PassBuffer *b = &plan->lifetimes.buffers.at[random_below(random, plan->lifetimes.buffers.n)];
    return !b->value.i == workspace ? b : NULL;
}

/* Its first or last bytes on some of [begin, begin + bytes). */
static bool put_onto(Plan *plan, Random *random, PassBuffer *a, uint64_t begin, uint64_t bytes)
{
    int64_t at = (int64_t)(begin + (uint64_t)random_below(random, (bytes + 63) / 64) * 64);
    if (random_below(random, 2))
        at = (int64_t)begin - (int64_t)random_below(random, (a->bytes + 63) / 64) * 64;
    IrPlace *place = place_of(plan, a);
    if (at < 0 || at == place->offset)
        return false;
    place->offset = at;
    return true;
}

static bool buffer_onto_buffer(Plan *plan, Random *random, PassBuffer *a, Mutation *out)
{
    PassBuffer *b = &plan->lifetimes.buffers.at[random_below(random, plan->lifetimes.buffers.n)];
    if (!a || a == b || !together(a, b) ||
        !put_onto(plan, random, a, (uint64_t)place_of(plan, b)->offset, b->bytes))
        return false;
    name_buffer(plan, a, out);
    return true;
}

static bool offset_onto_live(Plan *plan, Random *random, Mutation *out)
{
    out->what = "an offset onto a live buffer";
    return buffer_onto_buffer(plan, random, pick_buffer(plan, random, false), out);
}

static bool workspace_onto_live(Plan *plan, Random *random, Mutation *out)
{
    out->what = "a workspace onto a live buffer";
    return buffer_onto_buffer(plan, random, pick_buffer(plan, random, true), out);
}

static bool offset_onto_state(Plan *plan, Random *random, Mutation *out)
{
    out->what = "an offset onto a state or an input";
    PassBuffer *a = pick_buffer(plan, random, random_below(random, 2));
    const IrModule *m = plan->m;
    uint32_t i = random_below(random, m->states.n + plan->g->params.n);
    if (!a || !i)
        return false;
    IrValue param = i < m->states.n ? (IrValue){0} : plan->g->params.at[i - m->states.n];
    int64_t offset = param.i ? ir_value(plan->g, param)->place.offset : m->states.at[i].offset;
    IrType type = param.i ? ir_value_type(plan->g, param) : m->states.at[i].type;
    if (!put_onto(plan, random, a, (uint64_t)offset, (uint64_t)ir_type_bytes(m, type)))
        return false;
    name_buffer(plan, a, out);
    return true;
}

static bool state_onto_state(Plan *plan, Random *random, Mutation *out)
{
    out->what = "a state onto another";
    IrModule *m = plan->m;
    uint32_t a = 1 + random_below(random, m->states.n - 1),
             b = 1 + random_below(random, m->states.n - 1);
    if (a == b)
        return false;
    m->states.at[a].offset = m->states.at[b].offset;
    mutation_name(plan, out, "`$%s`", m->states.at[a].name);
    return true;
}

static bool bad_offset(Plan *plan, Random *random, Mutation *out)
{
    PassBuffer *a = pick_buffer(plan, random, random_below(random, 2));
    if (!a)
        return false;
    IrPlace *place = place_of(plan, a);
    switch (random_below(random, 3)) {
    case 0:
        out->what = "an offset without its alignment";
        place->offset += 1 + random_below(random, 63);
        break;
    case 1:
        out->what = "an offset outside the arena";
        place->offset = (int64_t)(plan->m->arena_bytes / 64 * 64) -
                        (int64_t)random_below(random, (a->bytes + 63) / 64) * 64;
        break;
    default:
        out->what = "a value without memory that is read";
        if (!a->value.i)
            return false;
        place->offset = -1;
    }
    name_buffer(plan, a, out);
    return true;
}

/* -- views -- */

static IrOp pick_view(Plan *plan, Random *random)
{
    IrOp op = plan->g->order.at[random_below(random, plan->g->order.n)];
    return pass_has_code(plan->g, op) ? (IrOp){0} : op;
}

/* The view that the op is; of a concat without code a part, or what its writer gave for that. */
static IrValue pick_viewed(Plan *plan, Random *random, IrOp op)
{
    if (ir_op_kind(plan->g, op) != IR_OP_concat)
        return ir_out(plan->g, op, 0);
    IrValue v = ir_in(plan->g, op, random_below(random, ir_op(plan->g, op)->n_in));
    IrOp maker = ir_value(plan->g, v)->op;
    bool is_reshape = ir_op_kind(plan->g, maker) == IR_OP_reshape;
    return is_reshape && random_below(random, 2) ? ir_in(plan->g, maker, 0) : v;
}

static void name_reshapes(Plan *plan, IrValue v, Mutation *out)
{
    for (uint32_t i = 0; i < plan->g->order.n; i++) {
        IrOp op = plan->g->order.at[i];
        if (ir_op_kind(plan->g, op) == IR_OP_reshape && ir_in(plan->g, op, 0).i == v.i)
            mutation_name_op(plan, out, op);
    }
}

static bool view_moved(Plan *plan, Random *random, Mutation *out)
{
    IrOp op = pick_view(plan, random);
    if (!op.i)
        return false;
    IrValue v = pick_viewed(plan, random, op);
    IrPlace *place = &ir_value(plan->g, v)->place;
    int64_t n = ir_type_numel(plan->m, ir_value_type(plan->g, v));
    bool strided = place->run != place->pitch && place->run < n;
    switch (random_below(random, strided ? 4 : 2)) {
    case 0:
        out->what = "a view that begins elsewhere, or out of its base";
        place->view_offset += 1 + random_below(random, (uint64_t)n);
        break;
    case 1:
        out->what = "a view of another base";
        do
            place->base = (IrValue){1 + random_below(random, plan->g->values.n - 1)};
        while (place->base.i == plan->saved.values[v.i].place.base.i);
        break;
    case 2: /* rows of another length: a row's end moves */
        out->what = "a view with other runs";
        place->run = 1 + random_below(random, (uint64_t)n);
        break;
    default: /* the second row moves */
        out->what = "a view with another pitch";
        place->pitch += 1 + random_below(random, 64);
    }
    mutation_name(plan, out, "`%%%s`", value_name(plan, v));
    if (ir_op_kind(plan->g, op) == IR_OP_concat)
        name_reshapes(plan, v, out);
    return memcmp(place, &plan->saved.values[v.i].place, sizeof *place) != 0;
}

/* -- order -- */

static IrOp pick_op(Plan *plan, Random *random)
{
    return plan->g->order.at[random_below(random, plan->g->order.n)];
}

/* An op and one that must come behind it change sides. */
static void part_order(Plan *plan, Random *random, IrOp first, IrOp second, Mutation *out)
{
    bool behind = random_below(random, 2);
    order_move(plan->g, behind ? first : second, behind ? second : first, behind);
    mutation_name_op(plan, out, behind ? first : second);
}

static bool read_before_write(Plan *plan, Random *random, Mutation *out)
{
    out->what = "an op before one that it reads";
    IrOp reader = pick_op(plan, random);
    uint32_t n = ir_op(plan->g, reader)->n_in;
    IrValue v = n ? ir_in(plan->g, reader, random_below(random, n)) : (IrValue){0};
    if (!v.i || ir_value(plan->g, v)->def != IR_DEF_RESULT)
        return false;
    part_order(plan, random, ir_value(plan->g, v)->op, reader, out);
    return true;
}

static bool touches(const Plan *plan, IrOp op, IrState state, bool *out_writes)
{
    const IrOpInfo *info = ir_op_info(ir_op_kind(plan->g, op));
    bool found = false;
    *out_writes = false;
    for (uint32_t k = 0; k < ir_op(plan->g, op)->n_in; k++) {
        const IrValueRec *rec = ir_value(plan->g, ir_in(plan->g, op, k));
        if (rec->def != IR_DEF_STATE || rec->state.i != state.i)
            continue;
        found = true;
        *out_writes |= info->in[k < info->n_in ? k : info->n_in - 1].written;
    }
    return found;
}

static bool state_out_of_turn(Plan *plan, Random *random, Mutation *out)
{
    out->what = "two ops over one state, one of which writes it, the wrong way round";
    IrOp a = pick_op(plan, random), b = pick_op(plan, random);
    if (plan->position[a.i] >= plan->position[b.i])
        return false;
    for (uint32_t k = 0; k < ir_op(plan->g, b)->n_in; k++) {
        const IrValueRec *rec = ir_value(plan->g, ir_in(plan->g, b, k));
        bool a_writes, b_writes;
        if (rec->def != IR_DEF_STATE || !touches(plan, a, rec->state, &a_writes) ||
            !touches(plan, b, rec->state, &b_writes) || (!a_writes && !b_writes))
            continue;
        part_order(plan, random, a, b, out);
        return true;
    }
    return false;
}

/* -- lifetimes -- */

/* Has any other buffer been where b is, behind b's life and up to the instruction? */
static bool is_reused(Plan *plan, const PassBuffer *b, uint32_t instr)
{
    const PassLifetimes *l = &plan->lifetimes;
    uint64_t begin = (uint64_t)place_of(plan, b)->offset, end = begin + b->bytes;
    for (uint32_t i = 0; i < l->buffers.n; i++) {
        const PassBuffer *other = &l->buffers.at[i];
        uint64_t at = (uint64_t)place_of(plan, other)->offset;
        if (other != b && other->end > b->end && other->begin <= instr && at < end &&
            begin < at + other->bytes)
            return true;
    }
    return false;
}

static bool read_after_death(Plan *plan, Random *random, Mutation *out)
{
    out->what = "a value read when its bytes are another's";
    const PassBuffer *b = pick_buffer(plan, random, false);
    IrOp op = pick_op(plan, random);
    uint32_t n = ir_op(plan->g, op)->n_in, instr = plan->lifetimes.instr[op.i];
    if (!b || !n || instr == PASS_NO_INSTR || instr <= b->end || !is_reused(plan, b, instr))
        return false;
    ir_set_in(plan->g, op, random_below(random, n), b->value);
    name_buffer(plan, b, out);
    return true;
}

static void test_memory(void **state)
{
    (void)state;
    Plan plans[] = {
        {.model = "tests/fixtures/gemma4_e4b", .policy = "block", .micro_batches = 1},
        {.model = "tests/fixtures/gemma4_e4b", .policy = "submodule", .micro_batches = 2},
        {.model = "tests/fixtures/gpt2", .policy = "block", .micro_batches = 2},
        {.model = "tests/fixtures/gpt2", .policy = "none", .keep = "*", .micro_batches = 1},
        {.model = "tests/fixtures/llama3", .policy = "submodule", .micro_batches = 1},
        {.model = "tests/fixtures/llama3", .policy = "selective", .micro_batches = 3},
    };
    static const Mutator mutators[] = {
        offset_onto_live, workspace_onto_live, offset_onto_state, state_onto_state,  bad_offset,
        view_moved,       read_before_write,   state_out_of_turn, read_after_death,
    };
    mutate(plans, sizeof plans / sizeof *plans, mutators, sizeof mutators / sizeof *mutators,
           PASS_verify_memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
