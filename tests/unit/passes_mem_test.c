/* fuse, schedule, memplan and verify-memory on small modules written by hand. */
#include "passes_support.h"

#include "passes/lifetime.h"
#include "passes/memplan_pack.h"

/* A residual block with a gated part, its backward pass and an update. */
static const char local[] =
    "module level=local micro_batches=1\n"
    "axis rows = 8\n"
    "axis d = 16\n"
    "scope @b.0 block def=layer\n"
    "param $n : f32[d] in=@b.0\n"
    "param $w : f32[d,d] in=@b.0\n"
    "param $e : f32[d,2*d] in=@b.0 frozen\n"
    "moment1 $n.exp_avg : f32[d] of=$n\n"
    "moment2 $n.exp_avg_sq : f32[d] of=$n\n"
    "acc $w.acc : f32[d,d] of=$w\n"
    "scalar $coef : f32[]\n"
    "scalar $norm : f64[]\n"
    "scalar $lr : f32[]\n"
    "scalar $step : i64[]\n"
    "scalar $sum : f64[]\n"
    "graph @fwd {\n"
    "  param %x : f32[rows,d]\n"
    "  param %y : f32[rows,2*d]\n"
    "  file \"m.model\"\n"
    "  in @b.0\n"
    "  recompute @b.0 policy=block {\n"
    "    %h, %h.rstd = rmsnorm %x, $n : f32[rows,d], f32[rows] !1:1\n"
    "    %a = linear %h, $w : f32[rows,d] !2:1\n"
    "    %s0 = slice %y parts=2 : f32[rows,d] !3:1\n"
    "    %g = mul %a, %s0 : f32[rows,d] !4:1\n"
    "    %r = add %x, %g : f32[rows,d] !5:1\n"
    "    %k, %k.rstd = rmsnorm %r, $n : f32[rows,d], f32[rows] !6:1\n"
    "    %o = linear %k, $w : f32[rows,d] !7:1\n"
    "  }\n"
    "  %loss = sum_rows %o : f32[] !8:1\n"
    "  accumulate $sum, %loss\n"
    "  result %loss\n"
    "}\n"
    "graph @bwd {\n"
    "  param %x : f32[rows,d]\n"
    "  file \"m.model\"\n"
    "  in @b.0\n"
    "  %h, %h.rstd = rmsnorm %x, $n : f32[rows,d], f32[rows] !1:1\n"
    "  %dx = rmsnorm_grad_x %x, %x, %h.rstd, $n : f32[rows,d] serves=input !10:1\n"
    "  %n.grad = rmsnorm_grad_w %x, %x, %h.rstd : f32[d] serves=weight !11:1\n"
    "  %dr = add %dx, %x : f32[rows,d] serves=input !12:1\n"
    "  %late = scale %n.grad factor=2 : f32[d] serves=weight !13:1\n"
    "  %w.grad = linear_grad_w %dr, %h : f32[d,d] serves=weight !14:1\n"
    "  accumulate $w.acc, %w.grad !15:1\n"
    "  result %late\n"
    "}\n"
    "graph @update {\n"
    "  param %late : f32[d]\n"
    "  %sq = norm_sq %late : f64[] !20:1\n"
    "  grad_norm $norm, $coef, %sq\n"
    "  adamw $n, %late, $n.exp_avg, $n.exp_avg_sq, _, $coef, $lr, $step !21:1\n"
    "}\n";

static IrModule *parse_local(Bench *bench)
{
    return bench_parse(bench, local);
}

static IrModule *planned(Bench *bench, const PassOptions *o, int64_t micro_batches)
{
    IrModule *m = parse_local(bench);
    m->micro_batches = micro_batches;
    if (micro_batches > 1) { /* gradients do not cross graphs then */
        ir_graph_find(m, "bwd")->results.n = 0;
        IrGraph *update = ir_graph_find(m, "update");
        update->order.n = 0;
        update->params.n = 0;
    }
    passes_must_run(bench, m, o, PASS_fuse);
    passes_must_run(bench, m, o, PASS_schedule);
    passes_must_run(bench, m, o, PASS_memplan);
    return m;
}

static IrOp op_of(const IrGraph *g, Session *s, const char *value)
{
    IrValue v = ir_value_find(g, sym(s, value));
    if (!v.i)
        fail_msg("no value %%%s in @%s", value, g->name);
    return ir_value(g, v)->op;
}

static bool together(const IrGraph *g, Session *s, const char *a, const char *b)
{
    uint32_t x = ir_op(g, op_of(g, s, a))->region.i, y = ir_op(g, op_of(g, s, b))->region.i;
    return x && x == y;
}

static void test_fuse(void **state)
{
    (void)state;
    Bench *bench = bench_new();
    Session *s = bench->s;
    PassOptions o = passes_options(s, "block", 1, DTYPE_F32);
    IrModule *m = parse_local(bench);
    passes_must_run(bench, m, &o, PASS_fuse);
    const IrGraph *fwd = ir_graph_find(m, "fwd"), *bwd = ir_graph_find(m, "bwd");
    assert_true(together(fwd, s, "g", "r"));
    assert_true(together(fwd, s, "g", "k"));
    assert_false(together(fwd, s, "h", "g"));                       /* a product stands between */
    assert_int_equal(ir_op(fwd, op_of(fwd, s, "s0"))->region.i, 0); /* a view: no code */
    assert_int_equal(ir_op(fwd, op_of(fwd, s, "a"))->region.i, 0);
    assert_true(together(bwd, s, "dx", "n.grad"));
    assert_true(together(bwd, s, "dx", "dr"));
    assert_false(
        together(bwd, s, "n.grad", "late")); /* the sum is complete behind the region only */
    for (uint32_t k = 0; k < 2; k++) {       /* regions are runs, every fused op is in one */
        const IrGraph *g = k ? bwd : fwd;
        for (uint32_t i = 0; i < g->order.n; i++)
            if (ir_op_kind(g, g->order.at[i]) == IR_OP_rmsnorm)
                assert_true(ir_in_kernel(g, g->order.at[i]));
    }
    bench_free(bench);
}

static void test_fuse_disabled(void **state)
{
    (void)state;
    Bench *bench = bench_new();
    Session *s = bench->s;
    PassOptions o = passes_options(s, "block", 1, DTYPE_F32);
    vec_push(s->arena, &o.disable, sym(s, "fuse"));
    IrModule *m = planned(bench, &o, 1);
    const IrGraph *g = ir_graph_find(m, "step");
    assert_false(together(g, s, "g", "r"));
    assert_true(ir_in_kernel(g, op_of(g, s, "g")));
    assert_true(ir_in_kernel(g, op_of(g, s, "r")));
    passes_must_run(bench, m, &o, PASS_verify_memory);
    bench_free(bench);
}

static void test_schedule(void **state)
{
    (void)state;
    Bench *bench = bench_new();
    Session *s = bench->s;
    PassOptions o = passes_options(s, "block", 3, DTYPE_F32);
    IrModule *m = planned(bench, &o, 3);
    const IrGraph *g = ir_graph_find(m, "step");
    assert_int_equal(m->graphs.n, 1);
    assert_int_equal(g->params.n, 6); /* x and y of each micro-batch */
    assert_true(ir_value_find(g, sym(s, "m2/x")).i);
    uint32_t first = 0, later = 0, last_instance = 0;
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        assert_true(ir_op(g, op)->instance >= last_instance);
        last_instance = ir_op(g, op)->instance;
        if (ir_op_kind(g, op) != IR_OP_accumulate)
            continue;
        assert_int_equal(ir_attr_bool(g, op, "first"), last_instance == 0);
        first += last_instance == 0;
        later += last_instance != 0;
    }
    assert_int_equal(first, 2);
    assert_int_equal(later, 4);
    IrOp grad = op_of(g, s, "m1/dx");
    assert_string_equal(ir_op(g, grad)->graph, "bwd");
    assert_int_equal(ir_in(g, grad, 0).i, ir_value_find(g, sym(s, "m1/x")).i);
    bench_free(bench);
}

static void test_schedule_links(void **state)
{
    (void)state;
    Bench *bench = bench_new();
    Session *s = bench->s;
    PassOptions o = passes_options(s, "block", 1, DTYPE_F32);
    vec_push(s->arena, &o.keep, ((PassPattern){sym(s, "r*"), no_span}));
    IrModule *m = planned(bench, &o, 1);
    const IrGraph *g = ir_graph_find(m, "step");
    assert_int_equal(ir_in(g, op_of(g, s, "sq"), 0).i, ir_value_find(g, sym(s, "late")).i);
    assert_int_equal(g->results.n, 1);
    assert_int_equal(g->results.at[0].i, ir_value_find(g, sym(s, "r")).i);
    PassLifetimes l = pass_lifetimes(g, s->arena);
    uint32_t kept = l.buffer[g->results.at[0].i];
    assert_true(kept != PASS_NO_BUFFER);
    assert_int_equal(l.buffers.at[kept].end, l.n_instrs - 1);
    bench_free(bench);
}

static void test_keep_nothing(void **state)
{
    (void)state;
    Bench *bench = bench_new();
    PassOptions o = passes_options(bench->s, "block", 1, DTYPE_F32);
    vec_push(bench->s->arena, &o.keep, ((PassPattern){sym(bench->s, "nothing*"), no_span}));
    IrModule *m = parse_local(bench);
    assert_int_equal(passes_run(bench, m, &o, PASS_schedule), STATUS_USER);
    assert_says(bench, "nothing to keep: no value of the forward pass matches `nothing*`");
    bench_free(bench);
}

static void test_places(void **state)
{
    (void)state;
    Bench *bench = bench_new();
    Session *s = bench->s;
    PassOptions o = passes_options(s, "block", 1, DTYPE_F32);
    IrModule *m = planned(bench, &o, 1);
    const IrGraph *g = ir_graph_find(m, "step");
    const IrPlace *slice = &ir_value(g, ir_value_find(g, sym(s, "s0")))->place;
    assert_int_equal(slice->base.i, ir_value_find(g, sym(s, "y")).i);
    assert_int_equal(slice->run, 16);
    assert_int_equal(slice->pitch, 32);
    /* read within its kernel only: no memory */
    assert_int_equal(ir_value(g, ir_value_find(g, sym(s, "g")))->place.offset, -1);
    assert_true(ir_value(g, ir_value_find(g, sym(s, "k")))->place.offset >= 0);
    /* column sums have a workspace: 8 rows in one chunk of 16 f32 */
    IrOp grad = op_of(g, s, "n.grad");
    assert_int_equal(g->regions.at[ir_op(g, grad)->region.i].workspace, 16 * 4);
    for (uint32_t i = 1; i < m->states.n; i++)
        assert_int_equal(m->states.at[i].offset % 256, 0);
    passes_must_run(bench, m, &o, PASS_verify_memory);
    bench_free(bench);
}

/* -- faults -- */

typedef void (*Fault)(Session *s, IrGraph *g);

static void expect_fault(Fault fault, const char *const *says)
{
    Bench *bench = bench_new();
    PassOptions o = passes_options(bench->s, "block", 1, DTYPE_F32);
    IrModule *m = planned(bench, &o, 1);
    fault(bench->s, ir_graph_find(m, "step"));
    assert_int_equal(passes_run(bench, m, &o, PASS_verify_memory), STATUS_BUG);
    for (; *says; says++)
        assert_says(bench, *says);
    bench_free(bench);
}

static IrPlace *place_of(Session *s, IrGraph *g, const char *name)
{
    return &ir_value(g, ir_value_find(g, sym(s, name)))->place;
}

static void fault_overlap(Session *s, IrGraph *g)
{
    place_of(s, g, "k")->offset = place_of(s, g, "x")->offset + 64;
}

static void fault_outside(Session *s, IrGraph *g)
{
    place_of(s, g, "k")->offset = (int64_t)g->m->arena_bytes - 64;
}

static void fault_unaligned(Session *s, IrGraph *g)
{
    place_of(s, g, "k")->offset += 4;
}

static void fault_no_place(Session *s, IrGraph *g)
{
    place_of(s, g, "k")->offset = -1;
}

static void fault_view(Session *s, IrGraph *g)
{
    place_of(s, g, "s0")->view_offset = 16;
}

static void fault_state_overlap(Session *s, IrGraph *g)
{
    ir_state_rec(g->m, ir_state_find(g->m, sym(s, "w")))->offset =
        ir_state_rec(g->m, ir_state_find(g->m, sym(s, "n")))->offset;
}

static void swap_ops(IrGraph *g, IrOp a, IrOp b)
{
    uint32_t x = 0, y = 0;
    for (uint32_t i = 0; i < g->order.n; i++) {
        x = g->order.at[i].i == a.i ? i : x;
        y = g->order.at[i].i == b.i ? i : y;
    }
    g->order.at[x] = b;
    g->order.at[y] = a;
}

static void fault_order(Session *s, IrGraph *g)
{
    swap_ops(g, op_of(g, s, "a"), op_of(g, s, "o"));
}

/* The update ahead of the coefficient that it reads. */
static void fault_state_order(Session *s, IrGraph *g)
{
    (void)s;
    uint32_t n = g->order.n;
    swap_ops(g, g->order.at[n - 1], g->order.at[n - 2]);
}

static void fault_scattered(Session *s, IrGraph *g)
{
    swap_ops(g, op_of(g, s, "dr"), op_of(g, s, "w.grad"));
}

static void test_faults(void **state)
{
    (void)state;
    expect_fault(fault_overlap,
                 (const char *[]){"`%k`", "`%x`", "both are alive at", "m.model:6:1", NULL});
    expect_fault(fault_outside, (const char *[]){"`%k`", "lies outside the arena", NULL});
    expect_fault(fault_unaligned, (const char *[]){"`%k`", "is not aligned to 64 bytes", NULL});
    expect_fault(fault_no_place, (const char *[]){"`%o` reads `%k`, which has no memory", NULL});
    expect_fault(fault_view, (const char *[]){"view `%s0`", NULL});
    expect_fault(fault_state_overlap, (const char *[]){"`$n`", "`$w`", NULL});
    expect_fault(fault_order, (const char *[]){"`%o` reads `%k` before it is written", NULL});
    expect_fault(
        fault_state_order,
        (const char *[]){"`adamw $n` reads `$coef` before `grad_norm $norm` has written it", NULL});
    expect_fault(fault_scattered, (const char *[]){"is not one run of ops", NULL});
}

/* -- packing -- */

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void test_pack(void **state)
{
    (void)state;
    enum { N = 400, T = 200 };
    uint32_t seed = 7;
    for (uint32_t round = 0; round < 20; round++) {
        Arena *arena = arena_new();
        PackItem items[N], again[N];
        uint64_t live[T] = {0}, bound = 0;
        for (uint32_t i = 0; i < N; i++) {
            uint32_t begin = next_random(&seed) % T, length = next_random(&seed) % (i % 8 ? 12 : T);
            uint32_t end = begin + length < T ? begin + length : T - 1;
            items[i] = (PackItem){begin, end, 64 * (1 + next_random(&seed) % 500), 0};
            for (uint32_t t = begin; t <= end; t++)
                live[t] += items[i].bytes;
        }
        for (uint32_t t = 0; t < T; t++)
            bound = live[t] > bound ? live[t] : bound;
        memcpy(again, items, sizeof items);
        uint64_t height = memplan_pack(items, N, bound, arena);
        assert_true(height >= bound && height <= bound + bound / 20);
        assert_int_equal(memplan_pack(again, N, bound, arena), height);
        assert_memory_equal(items, again, sizeof items);
        for (uint32_t i = 0; i < N; i++)
            for (uint32_t k = 0; k < i; k++) {
                bool in_time = items[i].begin <= items[k].end && items[k].begin <= items[i].end;
                bool in_space = items[i].offset < items[k].offset + items[k].bytes &&
                                items[k].offset < items[i].offset + items[i].bytes;
                assert_false(in_time && in_space);
            }
        arena_free(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fuse),         cmocka_unit_test(test_fuse_disabled),
        cmocka_unit_test(test_schedule),     cmocka_unit_test(test_schedule_links),
        cmocka_unit_test(test_keep_nothing), cmocka_unit_test(test_places),
        cmocka_unit_test(test_faults),       cmocka_unit_test(test_pack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
