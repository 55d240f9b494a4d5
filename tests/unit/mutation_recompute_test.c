/* verify-recompute against random single faults in the replays of real plans: each one rejected,
 * and the replay named. */
#include "mutation_support.h"

static IrOp pick_op(Plan *plan, Random *random)
{
    return plan->g->order.at[random_below(random, plan->g->order.n)];
}

static IrOp pick_replay(Plan *plan, Random *random, Mutation *out)
{
    IrOp op = pick_op(plan, random);
    if (!ir_op(plan->g, op)->re)
        return (IrOp){0};
    out->n_names = 0;
    mutation_name(plan, out, "replay `%%%s`", op_name(plan, op));
    return op;
}

static IrOp original_of(Plan *plan, IrOp replay)
{
    return ir_value(plan->g, ir_value_find(plan->g, ir_op(plan->g, replay)->re))->op;
}

static IrValue pick_value(Plan *plan, Random *random)
{
    return (IrValue){1 + random_below(random, plan->g->values.n - 1)};
}

static bool other_type(Plan *plan, Random *random, Mutation *out)
{
    static const DType dtypes[] = {DTYPE_BF16, DTYPE_F64, DTYPE_I32, DTYPE_F32};
    out->what = "a replay's result of another dtype or other dims";
    IrOp op = pick_replay(plan, random, out);
    if (!op.i)
        return false;
    IrType *type =
        &ir_value(plan->g, ir_out(plan->g, op, random_below(random, ir_op(plan->g, op)->n_out)))
             ->type;
    IrType before = *type, of_other = ir_value_type(plan->g, pick_value(plan, random));
    *type = random_below(random, 2)
                ? ir_type_with_dtype(plan->m, before, dtypes[random_below(random, 4)])
                : of_other;
    return type->i != before.i;
}

/* Another choice than the word that is there. */
static Sym other_word(Plan *plan, Random *random, const char *choices, Sym now)
{
    Sym words[16];
    uint32_t n = 0;
    for (const char *at = choices; *at && n < 16; at += strcspn(at, "|"), at += *at == '|')
        words[n++] = intern_n(&plan->bench->s->interner, at, strcspn(at, "|"));
    return n ? words[random_below(random, n)] : sym(plan->bench->s, now ? "" : "other");
}

static bool other_attribute(Plan *plan, Random *random, Mutation *out)
{
    out->what = "a replay with another attribute or random key";
    IrOp op = pick_replay(plan, random, out);
    const IrOpInfo *info = op.i ? ir_op_info(ir_op_kind(plan->g, op)) : NULL;
    if (!op.i || !info->n_attr)
        return false;
    uint32_t i = random_below(random, info->n_attr);
    IrAttr *attr = &plan->g->attrs.at[ir_op(plan->g, op)->first_attr + i], before = *attr;
    switch (info->attr[i].type) {
    case IR_ATTR_I64:
        attr->i ^= (int64_t)1 << random_below(random, 63);
        return true;
    case IR_ATTR_F64: /* one bit is enough, its sign or its last digit */
        attr->i ^= (int64_t)1 << random_below(random, 63);
        return true;
    case IR_ATTR_BOOL:
        attr->b = !attr->b;
        return true;
    default:
        attr->sym = other_word(plan, random, info->attr[i].text, before.sym);
        return attr->sym != before.sym;
    }
}

/* Would v stand for the original's operand? Then reading it is no fault: the same value, or its
 * replay. */
static bool stands_for(Plan *plan, IrValue v, IrValue original)
{
    const IrValueRec *rec = ir_value(plan->g, v), *of = ir_value(plan->g, original);
    return v.i == original.i ||
           (rec->def == IR_DEF_RESULT && ir_op(plan->g, rec->op)->re && of->def == IR_DEF_RESULT &&
            original_of(plan, rec->op).i == of->op.i && rec->result == of->result);
}

static bool other_operand(Plan *plan, Random *random, Mutation *out)
{
    out->what = "a replay that reads another, or a later, value";
    IrOp op = pick_replay(plan, random, out);
    uint32_t n = op.i ? ir_op(plan->g, op)->n_in : 0;
    if (!n)
        return false;
    uint32_t k = random_below(random, n);
    IrValue with = random_below(random, 8) ? pick_value(plan, random) : (IrValue){0};
    IrValue original = ir_in(plan->g, original_of(plan, op), k);
    if (with.i ? stands_for(plan, with, original) : !original.i)
        return false;
    ir_set_in(plan->g, op, k, with);
    return true;
}

/* Two operands of the same op, the wrong way round. */
static bool swapped_operands(Plan *plan, Random *random, Mutation *out)
{
    out->what = "a replay whose operands have changed sides";
    IrOp op = pick_replay(plan, random, out);
    uint32_t n = op.i ? ir_op(plan->g, op)->n_in : 0;
    if (n < 2)
        return false;
    IrValue a = ir_in(plan->g, op, 0), b = ir_in(plan->g, op, 1);
    if (a.i == b.i || stands_for(plan, b, ir_in(plan->g, original_of(plan, op), 0)))
        return false;
    ir_set_in(plan->g, op, 0, b);
    ir_set_in(plan->g, op, 1, a);
    return true;
}

static bool other_original(Plan *plan, Random *random, Mutation *out)
{
    out->what = "a replay of another op";
    IrOp op = pick_replay(plan, random, out);
    IrValue v = pick_value(plan, random);
    if (!op.i || ir_value(plan->g, v)->name == ir_op(plan->g, op)->re)
        return false;
    ir_op(plan->g, op)->re =
        random_below(random, 16) ? ir_value(plan->g, v)->name : sym(plan->bench->s, "nothing");
    return true;
}

static bool other_kind(Plan *plan, Random *random, Mutation *out)
{
    out->what = "a replay of another kind, or one that updates state";
    IrOp op = pick_replay(plan, random, out);
    IrOpKind kind = (IrOpKind)(1 + random_below(random, IR_OP_COUNT - 1));
    if (!op.i || kind == ir_op_kind(plan->g, op))
        return false;
    ir_op(plan->g, op)->kind = (uint16_t)kind;
    return true;
}

static bool other_instance(Plan *plan, Random *random, Mutation *out)
{
    out->what = "a replay in another micro-batch than its original";
    IrOp op = pick_replay(plan, random, out);
    if (!op.i)
        return false;
    ir_op(plan->g, op)->instance += 1 + random_below(random, 3);
    return true;
}

/* -- order -- */

/* What a region covers: a block, or under `submodule` a part of it. */
static IrScope unit_of(const Plan *plan, IrOp op)
{
    const IrModule *m = plan->m;
    IrScope scope = ir_op(plan->g, op)->scope, block = ir_scope_block(m, scope);
    if (strcmp(plan->policy, "submodule"))
        return block;
    while (scope.i && scope.i != block.i && ir_scope_rec(m, scope)->kind != IR_SCOPE_PART)
        scope = ir_scope_rec(m, scope)->parent;
    return scope;
}

static bool is_gradient(const Plan *plan, IrOp op)
{
    return !strcmp(ir_op(plan->g, op)->graph, "bwd") && !ir_op(plan->g, op)->re;
}

/* A replay in front of an op outside of its unit, whose result a gradient op of the unit reads. */
static bool before_gradient(Plan *plan, Random *random, Mutation *out)
{
    out->what = "a replay before a gradient that flows into its block";
    IrOp op = pick_replay(plan, random, out), reader = pick_op(plan, random);
    if (!op.i || !is_gradient(plan, reader) || unit_of(plan, reader).i != unit_of(plan, op).i ||
        ir_op(plan->g, reader)->instance != ir_op(plan->g, op)->instance ||
        !ir_op(plan->g, reader)->n_in)
        return false;
    IrValue v = ir_in(plan->g, reader, random_below(random, ir_op(plan->g, reader)->n_in));
    if (!v.i || ir_value(plan->g, v)->def != IR_DEF_RESULT)
        return false;
    IrOp from = ir_value(plan->g, v)->op;
    if (!is_gradient(plan, from) || unit_of(plan, from).i == unit_of(plan, op).i)
        return false;
    order_move(plan->g, op, from, false);
    return true;
}

static void test_recompute(void **state)
{
    (void)state;
    Plan plans[] = {
        {.model = "tests/fixtures/gemma4_e4b", .policy = "block", .micro_batches = 1},
        {.model = "tests/fixtures/gemma4_e4b", .policy = "submodule", .micro_batches = 1},
        {.model = "tests/fixtures/gpt2", .policy = "block", .micro_batches = 2},
        {.model = "tests/fixtures/gpt2", .policy = "submodule", .micro_batches = 1},
        {.model = "tests/fixtures/llama3", .policy = "block", .micro_batches = 1},
        {.model = "tests/fixtures/llama3", .policy = "submodule", .micro_batches = 3},
        {.model = "tests/fixtures/llama3", .policy = "selective", .micro_batches = 1},
        {.model = "tests/cases/Inputs/dropout", .policy = "block", .micro_batches = 1},
    };
    static const Mutator mutators[] = {
        other_type,     other_attribute, other_operand,  swapped_operands, other_original,
        other_kind,     other_instance,  before_gradient,
    };
    mutate(plans, sizeof plans / sizeof *plans, mutators, sizeof mutators / sizeof *mutators,
           PASS_verify_recompute);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_recompute)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
