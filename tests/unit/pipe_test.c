/* The order of a pipeline's stages, for every schedule on many sizes; and what verify-collectives
 * says of a whole model's stages, and of lists in which one message is wrong.
 * diag: collective_missing */
#include "passes_support.h"

#include "passes/pipe.h"
#include "passes/verify_collectives.h"

/* -- orders -- */

typedef struct Size {
    const char *schedule;
    uint32_t stages, chunks, micro;
} Size;

static bool is_legal(const Size *z)
{
    if (!strcmp(z->schedule, "interleaved_1f1b"))
        return z->micro % z->stages == 0;
    return z->chunks == 1 && (strcmp(z->schedule, "zero_bubble") || z->micro >= z->stages);
}

/* Every instance once, its gradients in the order of the micro-batches, what it needs before it. */
static void check_stage(const PipeOrder *order, uint32_t stage, bool is_1f1b)
{
    uint32_t n = order->n_micro, open = 0, most = 0, last = order->n_stages - 1;
    uint32_t *done = calloc((size_t)order->n_chunks * n * 3, sizeof *done);
    for (uint32_t i = 0; i < order->stages[stage].n; i++) {
        const PipeAction *a = &order->stages[stage].at[i];
        if (a->kind >= PIPE_SEND)
            continue;
        uint32_t *at = &done[(a->chunk * n + a->micro) * 3];
        assert_int_equal(at[a->kind]++, 0);
        assert_true(a->kind == PIPE_FWD || at[PIPE_FWD]);
        assert_true(a->kind != PIPE_WEIGHT || at[PIPE_BWD]);
        assert_true(a->kind == PIPE_FWD || !a->micro || at[(int)a->kind - 3]);
        open += a->kind == PIPE_FWD;
        most = open > most ? open : most;
        open -= a->kind == PIPE_BWD;
    }
    for (uint32_t i = 0; i < order->n_chunks * n; i++)
        assert_true(done[3 * i] && done[3 * i + 1] && done[3 * i + 2] == order->splits);
    if (is_1f1b)
        assert_int_equal(most, last - stage + 1 < n ? last - stage + 1 : n);
    free(done);
}

/* Each stage stands before its next action until the other end does: all get through. */
static void check_waits(const PipeOrder *order)
{
    uint32_t *at = calloc(order->n_stages, sizeof *at), left = order->n_stages;
    for (bool moved = true; moved && left;) {
        moved = false;
        left = 0;
        for (uint32_t s = 0; s < order->n_stages; s++) {
            const PipeActions *mine = &order->stages[s];
            while (at[s] < mine->n && mine->at[at[s]].kind < PIPE_SEND) {
                at[s]++;
                moved = true;
            }
            left += at[s] < mine->n;
            if (at[s] == mine->n || mine->at[at[s]].kind != PIPE_SEND)
                continue;
            const PipeAction *send = &mine->at[at[s]];
            const PipeActions *theirs = &order->stages[send->peer];
            const PipeAction *receive =
                at[send->peer] < theirs->n ? &theirs->at[at[send->peer]] : NULL;
            if (!receive || receive->kind != PIPE_RECV || receive->peer != s)
                continue;
            assert_int_equal(receive->micro, send->micro);
            assert_int_equal(receive->backward, send->backward);
            at[s]++;
            at[send->peer]++;
            moved = true;
        }
    }
    assert_int_equal(left, 0);
    free(at);
}

static void orders(void **state)
{
    static const char *const schedules[] = {"gpipe", "1f1b", "interleaved_1f1b", "zero_bubble"};
    Bench *bench = bench_new();
    (void)state;
    for (uint32_t k = 0; k < 4; k++)
        for (uint32_t stages = 2; stages <= 8; stages++)
            for (uint32_t chunks = 1; chunks <= 3; chunks++)
                for (uint32_t micro = 1; micro <= 17; micro++) {
                    Size z = {schedules[k], stages, chunks, micro};
                    if (!is_legal(&z))
                        continue;
                    PipeOrder order = pipe_order(sym(bench->s, z.schedule), stages, chunks, micro,
                                                 bench->s->arena);
                    for (uint32_t s = 0; s < stages; s++)
                        check_stage(&order, s, k == 1);
                    check_waits(&order);
                }
    bench_free(bench);
}

/* All stages alike, nothing to move: gpipe and 1f1b wait (stages - 1) of (stages - 1 + micro). */
static void bubbles(void **state)
{
    Bench *bench = bench_new();
    PipeCosts costs[4];
    double one, zero, chunks, gpipe;
    (void)state;
    for (uint32_t i = 0; i < 4; i++)
        costs[i] = (PipeCosts){.fwd = 1, .bwd = 1, .weight = 1};
    Arena *arena = bench->s->arena;
    PipeOrder order = pipe_order(sym(bench->s, "gpipe"), 4, 1, 8, arena);
    pipe_seconds(&order, costs, arena, &gpipe);
    order = pipe_order(sym(bench->s, "1f1b"), 4, 1, 8, arena);
    double seconds = pipe_seconds(&order, costs, arena, &one);
    order = pipe_order(sym(bench->s, "interleaved_1f1b"), 4, 2, 8, arena);
    pipe_seconds(&order, costs, arena, &chunks);
    order = pipe_order(sym(bench->s, "zero_bubble"), 4, 1, 8, arena);
    pipe_seconds(&order, costs, arena, &zero);
    assert_float_equal(gpipe, 3.0 / 11, 1e-9);
    assert_float_equal(one, 3.0 / 11, 1e-9);
    assert_float_equal(seconds, 33, 1e-9);
    assert_true(chunks < one);
    assert_true(zero < one);
    bench_free(bench);
}

/* -- lists of whole models -- */

static IrModule *staged(Bench *bench, PassOptions *o, const char *schedule, int64_t stages)
{
    *o = passes_options(bench->s, "block", 4, DTYPE_F32);
    o->freeze_embeddings = false;
    o->pp = stages;
    o->pp_schedule = sym(bench->s, schedule);
    o->strategy = sym(bench->s, "fsdp2");
    IrModule *m = passes_load(bench, "tests/fixtures/gemma4_e4b", 2, 8, DTYPE_F32);
    m->micro_batches = 4;
    PassManager manager = passes_manager(bench, m, o);
    if (pass_pipeline(&manager) != STATUS_OK)
        fail_msg("%s", bench_said(bench));
    return m;
}

static CollectiveClass *classes_of(Bench *bench, const IrModule *m)
{
    CollectiveClass *classes = ARENA_ARRAY(bench->s->arena, CollectiveClass, m->stages.n);
    for (uint32_t i = 0; i < m->stages.n; i++) {
        const IrGraph *step = ir_graph_find(m->stages.at[i], "step");
        classes[i] = (CollectiveClass){arena_printf(bench->s->arena, "stage %u", i),
                                       collective_events(bench->s, step, bench->s->arena)};
    }
    return classes;
}

static Status verify(Bench *bench, const CollectiveClass *classes, uint32_t n)
{
    Arena *scratch = arena_new();
    Status status = verify_collective_classes(bench->s, classes, n, scratch);
    arena_free(scratch);
    return status;
}

static uint32_t draw(uint64_t *seed, uint32_t n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % n;
}

/* Another event on the same link behind this one; or the end. */
static uint32_t next_on_link(const CollectiveEvents *e, uint32_t i)
{
    uint32_t k = i + 1;
    while (k < e->n && e->at[k].comm != e->at[i].comm)
        k++;
    return k;
}

/* One event of one class is dropped, resized, of another dtype, or changes places with the next on
 * its link. False: nothing to change here. */
static bool mutate(CollectiveEvents *e, uint64_t *seed)
{
    uint32_t i = draw(seed, e->n), k = next_on_link(e, i);
    if (!strstr(e->at[i].comm, "pp"))
        return false;
    switch (draw(seed, 4)) {
    case 0:
        memmove(&e->at[i], &e->at[i + 1], (e->n - i - 1) * sizeof *e->at);
        e->n--;
        return true;
    case 1:
        e->at[i].count += 1 + draw(seed, 7);
        return true;
    case 2:
        e->at[i].dtype = e->at[i].dtype == DTYPE_BF16 ? DTYPE_F32 : DTYPE_BF16;
        return true;
    default:
        if (k == e->n)
            return false;
        CollectiveEvent x = e->at[i];
        e->at[i] = e->at[k];
        e->at[k] = x;
        return true;
    }
}

static void mutations(void **state)
{
    static const char *const schedules[] = {"gpipe", "1f1b", "zero_bubble"};
    (void)state;
    for (uint32_t k = 0; k < 3; k++) {
        Bench *bench = bench_new();
        PassOptions o;
        uint32_t n = 2 + k % 2;
        IrModule *m = staged(bench, &o, schedules[k], n);
        CollectiveClass *classes = classes_of(bench, m);
        uint64_t seed = k;
        assert_int_equal(verify(bench, classes, n), STATUS_OK);
        for (uint32_t tried = 0; tried < 340;) {
            CollectiveClass *changed = ARENA_ARRAY(bench->s->arena, CollectiveClass, n);
            memcpy(changed, classes, n * sizeof *changed);
            CollectiveEvents *e = &changed[draw(&seed, n)].events;
            CollectiveEvent *copy = ARENA_ARRAY(bench->s->arena, CollectiveEvent, e->n);
            memcpy(copy, e->at, e->n * sizeof *copy);
            e->at = copy;
            if (!mutate(e, &seed))
                continue;
            tried++;
            assert_int_not_equal(verify(bench, changed, n), STATUS_OK);
        }
        bench_free(bench);
    }
}

/* Sends that both wait for the other's receive, which stands behind. */
static void circle(void **state)
{
    Bench *bench = bench_new();
    Sym link = sym(bench->s, "pp:0-1"), x = sym(bench->s, "x");
    CollectiveEvent send = {.kind = sym(bench->s, "send"), .comm = link, .count = 4,
                            .dtype = DTYPE_F32, .message = true, .name = x};
    CollectiveEvent receive = send;
    receive.kind = sym(bench->s, "recv");
    CollectiveEvent first[] = {send, receive}, second[] = {send, receive};
    CollectiveClass classes[] = {{"stage 0", {first, 2, 2}}, {"stage 1", {second, 2, 2}}};
    (void)state;
    assert_int_equal(verify(bench, classes, 2), STATUS_BUG);
    second[0] = receive;
    second[1] = send;
    assert_int_equal(verify(bench, classes, 2), STATUS_OK);
    bench_free(bench);
}

/* A stage that never comes to a sum which another waits for. */
static void missing(void **state)
{
    Bench *bench = bench_new();
    CollectiveEvent sum = {.kind = sym(bench->s, "all_reduce"), .comm = sym(bench->s, "pp:0,2"),
                           .count = 4, .dtype = DTYPE_F32, .classes = 2,
                           .name = sym(bench->s, "table.grad")};
    CollectiveClass classes[] = {{"stage 0", {&sum, 1, 1}}, {"stage 1", {0}}, {"stage 2", {0}}};
    (void)state;
    assert_int_equal(verify(bench, classes, 3), STATUS_BUG);
    assert_non_null(strstr(bench_said(bench),
                           "verify-collectives: stage 0 comes to `all_reduce` `table.grad` over "
                           "`pp:0,2`, which is of 2 stages, but 1 come to it"));
    bench_free(bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders),
        cmocka_unit_test(bubbles),
        cmocka_unit_test(mutations),
        cmocka_unit_test(circle),
        cmocka_unit_test(missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
