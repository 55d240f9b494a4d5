/* Memory plans and facts of real models: what must hold of the full sizes, and single faults in
 * sound plans, each of which the verifier has to refuse and name. */
#include "passes_support.h"

#include "passes/cost.h"
#include "passes/facts.h"
#include "passes/lifetime.h"

static const double GIB = 1073741824.0;

static PassFacts plan_facts(Bench *bench, const char *config, const char *policy,
                            int64_t micro_batches)
{
    PassOptions o = passes_options(bench->s, policy, micro_batches, DTYPE_BF16);
    IrModule *m = passes_load(bench, config, 1, 2048, DTYPE_BF16);
    PassFacts f;
    passes_plan(bench, m, &o);
    assert_int_equal(pass_facts(bench->s, m, &o, &f), STATUS_OK);
    assert_true((double)f.transient_bytes <= 1.02 * (double)f.lower_bound);
    assert_true(f.transient_bytes >= f.lower_bound);
    uint64_t sum = 0, live = 0;
    for (uint32_t i = 0; i < PASS_BYTE_CLASS_COUNT; i++)
        sum += f.breakdown[i];
    for (uint32_t i = 0; i < f.live.n; i++)
        live += f.live.at[i].bytes;
    assert_int_equal(sum, live);
    assert_true(sum <= f.arena_bytes);
    return f;
}

static void test_full_size(void **state)
{
    (void)state;
    static const char *const models[] = {"google/gemma-4-E4B-it", "google/gemma-4-31B-it",
                                         "google/gemma-4-E2B-it"};
    static const uint32_t blocks[] = {42, 60, 35};
    for (uint32_t i = 0; i < 3; i++) {
        Bench *bench = bench_new();
        PassFacts none = plan_facts(bench, models[i], "none", 1);
        PassFacts sub = plan_facts(bench, models[i], "submodule", 1);
        PassFacts block = plan_facts(bench, models[i], "block", 1);
        plan_facts(bench, models[i], "selective", 1);
        assert_int_equal(block.blocks_total, blocks[i]);
        assert_int_equal(block.blocks_covered, blocks[i]);
        assert_int_equal(block.uncovered.n, 0);
        assert_int_equal(none.blocks_covered, 0);
        assert_true(block.saved_bytes < sub.saved_bytes && sub.saved_bytes < none.saved_bytes);
        assert_true(block.replayed_flops > sub.replayed_flops &&
                    sub.replayed_flops > none.replayed_flops);
        assert_true(none.flops_per_step == block.flops_per_step);
        if (i == 0) {
            assert_true((double)none.flops_per_step > 5.597e13 * 0.99);
            assert_true((double)none.flops_per_step < 5.597e13 * 1.01);
            assert_true((double)none.arena_bytes <= 40 * GIB);
            assert_true((double)block.arena_bytes <= 37.5 * GIB);
        }
        bench_free(bench);
    }
}

static void test_eight_micro_batches(void **state)
{
    (void)state;
    static const char *const models[] = {"google/gemma-4-E4B-it", "google/gemma-4-31B-it"};
    for (uint32_t i = 0; i < 2; i++) {
        Bench *bench = bench_new();
        PassFacts none = plan_facts(bench, models[i], "none", 8);
        PassFacts sub = plan_facts(bench, models[i], "submodule", 8);
        PassFacts block = plan_facts(bench, models[i], "block", 8);
        assert_true(block.arena_bytes < sub.arena_bytes && sub.arena_bytes < none.arena_bytes);
        if (i == 0)
            assert_true((double)none.arena_bytes >= 1.1 * (double)block.arena_bytes);
        bench_free(bench);
    }
}

/* -- a block that escapes -- */

static void run_all(Bench *bench, IrModule *m, const PassOptions *o, const PassId *ids, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        passes_must_run(bench, m, o, ids[i]);
}

static void test_escaped_block(void **state)
{
    (void)state;
    static const PassId before[] = {PASS_kv_share, PASS_freeze, PASS_precision, PASS_recompute};
    static const PassId after[] = {
        PASS_autodiff, PASS_optimizer, PASS_localize,         PASS_fuse,
        PASS_schedule, PASS_memplan,   PASS_verify_recompute, PASS_verify_memory};
    Bench *bench = bench_new();
    PassOptions o = passes_options(bench->s, "block", 2, DTYPE_F32);
    IrModule *m = passes_load(bench, "tests/fixtures/gemma4_e4b/config.json", 2, 32, DTYPE_F32);
    run_all(bench, m, &o, before, sizeof before / sizeof *before);
    IrGraph *fwd = ir_graph_find(m, "fwd");
    Sym victim = NULL;
    for (uint32_t i = 0; i < fwd->order.n; i++) {
        IrOpRec *rec = ir_op(fwd, fwd->order.at[i]);
        IrScope block = ir_scope_block(m, rec->scope);
        if (block.i && !victim)
            victim = ir_scope_rec(m, block)->name;
        if (block.i && ir_scope_rec(m, block)->name == victim)
            rec->region = (IrRegion){0};
    }
    run_all(bench, m, &o, after, sizeof after / sizeof *after);
    PassFacts f;
    assert_int_equal(pass_facts(bench->s, m, &o, &f), STATUS_OK);
    assert_int_equal(f.blocks_covered, f.blocks_total - 1);
    assert_true(f.uncovered.n > 0);
    for (uint32_t i = 0; i < f.uncovered.n; i++) {
        assert_ptr_equal(f.uncovered.at[i].block, victim);
        assert_non_null(f.uncovered.at[i].read_by);
    }
    assert_int_equal(pass_facts_record(bench->s, &o, &f), STATUS_OK);
    assert_int_equal(bench->s->records.n, 1);
    assert_string_equal(bench->s->records.at[0].code, "recompute_blocks_left_out");
    assert_non_null(strstr(bench->s->records.at[0].message, victim));
    bench_free(bench);
}

/* Sub-module recompute that leaves attention out: named, with blocks and bytes. */
static void test_roles_left_out(void **state)
{
    (void)state;
    Bench *bench = bench_new();
    PassOptions o = passes_options(bench->s, "submodule", 1, DTYPE_F32);
    static const char *const roles[] = {"mlp", "pre_norm", "post_norm", "ple"};
    for (uint32_t i = 0; i < sizeof roles / sizeof *roles; i++)
        vec_push(bench->s->arena, &o.recompute_parts, sym(bench->s, roles[i]));
    IrModule *m = passes_load(bench, "tests/fixtures/gemma4_e4b/config.json", 2, 32, DTYPE_F32);
    passes_plan(bench, m, &o);
    PassFacts f;
    assert_int_equal(pass_facts(bench->s, m, &o, &f), STATUS_OK);
    uint64_t kept = 0;
    for (uint32_t i = 0; i < f.roles.n; i++) {
        const PassRole *role = &f.roles.at[i];
        bool attention = !strcmp(role->name, "attention");
        assert_int_equal(role->recomputed, attention ? 0 : role->total);
        kept += attention ? role->saved_bytes : 0;
    }
    assert_true(kept > 0);
    assert_int_equal(pass_facts_record(bench->s, &o, &f), STATUS_OK);
    assert_int_equal(bench->s->records.n, 1);
    char bytes[32];
    snprintf(bytes, sizeof bytes, "%llu bytes", (unsigned long long)kept);
    assert_non_null(strstr(bench->s->records.at[0].message, "`attention`"));
    assert_non_null(strstr(bench->s->records.at[0].message, bytes));
    bench_free(bench);
}

/* -- single faults -- */

typedef struct Faults {
    Bench *bench;
    IrModule *m;
    IrGraph *g;
    PassOptions o;
    PassLifetimes l;
    uint32_t seed;
} Faults;

static uint32_t pick(Faults *f, uint32_t n)
{
    f->seed = f->seed * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(f->seed >> 8) * n >> 24);
}

/* What the verifier says of the plan as it is now; `sound`: nothing is wrong. */
static const char *verify(Faults *f, bool *out_sound)
{
    size_t before = strlen(bench_said(f->bench));
    *out_sound = passes_run(f->bench, f->m, &f->o, PASS_verify_memory) == STATUS_OK;
    return bench_said(f->bench) + before;
}

static const char *buffer_name(const Faults *f, const PassBuffer *b)
{
    IrValue v = b->value.i ? b->value : ir_out(f->g, b->op, 0);
    return ir_value(f->g, v)->name;
}

static IrPlace *buffer_place(const Faults *f, const PassBuffer *b)
{
    return b->value.i ? &ir_value(f->g, b->value)->place : &f->g->workspaces.at[b->op.i];
}

static bool move_offset(Faults *f)
{
    const PassBuffer *a = &f->l.buffers.at[pick(f, f->l.buffers.n)];
    const PassBuffer *b = &f->l.buffers.at[pick(f, f->l.buffers.n)];
    if (a == b || a->end < b->begin || b->end < a->begin)
        return false;
    IrPlace *place = buffer_place(f, a);
    int64_t offset = place->offset;
    place->offset = buffer_place(f, b)->offset;
    bool sound;
    const char *said = verify(f, &sound);
    place->offset = offset;
    if (sound || !strstr(said, buffer_name(f, a))) /* it may lie on many more than b */
        fail_msg("%%%s onto %%%s: %s", buffer_name(f, a), buffer_name(f, b),
                 sound ? "passed" : said);
    return true;
}

static bool break_order(Faults *f)
{
    IrGraph *g = f->g;
    uint32_t at = pick(f, g->order.n);
    IrOp op = g->order.at[at];
    if (!ir_op(g, op)->n_in)
        return false;
    IrValue in = ir_in(g, op, pick(f, ir_op(g, op)->n_in));
    if (!in.i || ir_value(g, in)->def != IR_DEF_RESULT)
        return false;
    uint32_t to = 0;
    while (g->order.at[to].i != ir_value(g, in)->op.i)
        to++;
    memmove(&g->order.at[to + 1], &g->order.at[to], (at - to) * sizeof op);
    g->order.at[to] = op;
    bool sound;
    const char *said = verify(f, &sound);
    memmove(&g->order.at[to], &g->order.at[to + 1], (at - to) * sizeof op);
    g->order.at[at] = op;
    if (sound || !strstr(said, ir_value(g, in)->name))
        fail_msg("a reader of %%%s ahead of it: %s", ir_value(g, in)->name,
                 sound ? "passed" : said);
    return true;
}

static void expect_refused(const char *config, const char *policy, int64_t micro_batches,
                           uint32_t times)
{
    Faults f = {.bench = bench_new(), .seed = 17};
    f.o = passes_options(f.bench->s, policy, micro_batches, DTYPE_BF16);
    f.m = passes_load(f.bench, config, 2, 32, DTYPE_BF16);
    passes_plan(f.bench, f.m, &f.o);
    f.g = ir_graph_find(f.m, "step");
    f.l = pass_lifetimes(f.g, f.bench->s->arena);
    for (uint32_t n = 0; n < times;)
        n += move_offset(&f);
    for (uint32_t n = 0; n < times;)
        n += break_order(&f);
    bool sound;
    verify(&f, &sound);
    assert_true(sound);
    bench_free(f.bench);
}

static void test_faults(void **state)
{
    (void)state;
    expect_refused("tests/fixtures/gemma4_e4b/config.json", "block", 2, 150);
    expect_refused("tests/fixtures/gemma4_31b/config.json", "submodule", 1, 150);
    expect_refused("tests/fixtures/gpt2/config.json", "none", 3, 200);
}

/* -- cost -- */

static void test_visible_pairs(void **state)
{
    (void)state;
    assert_int_equal(pass_cost_visible_pairs(32, 32, true, 0), 32 * 33 / 2);
    assert_int_equal(pass_cost_visible_pairs(32, 32, true, 4), 122);
    assert_int_equal(pass_cost_visible_pairs(32, 32, false, 0), 1024);
    assert_int_equal(pass_cost_visible_pairs(8, 8, true, 100), 36);
    assert_int_equal(pass_cost_visible_pairs(1, 1, true, 1), 1);
    assert_int_equal(pass_cost_visible_pairs(8, 3, true, 2), 6);
    assert_int_equal(pass_cost_visible_pairs(8, 3, false, 2), 9);
    assert_int_equal(pass_cost_visible_pairs((int64_t)1 << 31, (int64_t)1 << 31, true, 2),
                     ((uint64_t)1 << 32) - 1);
}

/* The sums over windows, lm_loss with and without dw, and a replay. */
static void test_op_costs(void **state)
{
    (void)state;
    Bench *bench = bench_new();
    IrModule *m = bench_parse(
        bench, "module level=step\n"
               "param $w : f32[10,4]\n"
               "scalar $inverse : f32[]\n"
               "graph @bwd {\n"
               "  param %q : f32[2,8,4,16]\n"
               "  param %k : f32[2,8,2,16]\n"
               "  param %h : f32[6,4]\n"
               "  param %t : i32[6]\n"
               "  %o, %lse = attention %q, %k, %k window=3 : f32[2,8,4,16], f32[2,4,8]\n"
               "  %y = linear %h, $w : f32[6,10]\n"
               "  %y.re = linear %h, $w : f32[6,10] re=%y\n"
               "  %loss, %l = lm_loss %h, $w, %t : f32[], f32[6]\n"
               "  %dh, %dw = lm_loss_grad $inverse, %h, $w, %t, %l : f32[6,4], f32[10,4]\n"
               "  result %dh\n"
               "}\n");
    const IrGraph *g = m->graphs.at[0];
    IrUses uses = ir_uses(g, bench->s->arena);
    PassCost attention = pass_cost_op(g, &uses, g->order.at[0]);
    assert_int_equal(attention.products, 4 * (1 + 2 + 6 * 3) * 2 * 4 * 16);
    PassCost linear = pass_cost_op(g, &uses, g->order.at[1]);
    assert_int_equal(linear.products, 2 * 6 * 10 * 4);
    assert_int_equal(linear.bytes, 4 * (6 * 4 + 10 * 4));
    PassCost replay = pass_cost_op(g, &uses, g->order.at[2]);
    assert_int_equal(replay.products, 0);
    assert_int_equal(replay.replayed, linear.flops);
    assert_int_equal(pass_cost_op(g, &uses, g->order.at[3]).products, 2 * 6 * 10 * 4);
    PassCost grad = pass_cost_op(g, &uses, g->order.at[4]);
    assert_int_equal(grad.products, 2 * 6 * 10 * 4); /* dh alone: nobody reads dw */
    assert_int_equal(grad.flops, 2 * grad.products);
    assert_int_equal(grad.replayed, grad.products);
    bench_free(bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_visible_pairs), cmocka_unit_test(test_op_costs),
        cmocka_unit_test(test_full_size),     cmocka_unit_test(test_eight_micro_batches),
        cmocka_unit_test(test_escaped_block), cmocka_unit_test(test_roles_left_out),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
