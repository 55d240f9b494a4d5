/* verify-collectives against random single faults in the lists of one class of ranks: each one
 * rejected, with the classes and what was changed named; the lists as they are accepted.
 * diag: collective_differs, collective_other_here */
#include "mutation_support.h"

#include "passes/verify_collectives.h"

enum { CLASSES = 3, MUTATIONS = 1000 };

typedef struct Lists { /* of one plan, the same in every class */
    Bench *bench;
    CollectiveEvents base;
    CollectiveClass classes[CLASSES];
    Sym renamed; /* no communicator of the plan */
} Lists;

typedef struct Fault {
    const char *what;
    uint32_t class;
    Sym name; /* of an event that was changed, or moved */
} Fault;

typedef bool (*ListMutator)(Lists *lists, Random *random, CollectiveEvents *list, Fault *out);

static void lists_reset(Lists *lists)
{
    static const char *const names[CLASSES] = {"stage 0", "stage 1", "stage 2"};
    for (uint32_t i = 0; i < CLASSES; i++) {
        CollectiveEvents *list = &lists->classes[i].events;
        list->n = 0;
        lists->classes[i].name = names[i];
        for (uint32_t k = 0; k < lists->base.n; k++)
            vec_push(lists->bench->s->arena, list, lists->base.at[k]);
    }
}

/* The same plan whose classes also hand something on, each to the next. */
static void add_sends(Lists *lists)
{
    Session *s = lists->bench->s;
    for (uint32_t i = 0; i + 1 < CLASSES; i++) {
        CollectiveEvent event = {.kind = sym(s, "send"), .count = 64, .dtype = DTYPE_F32};
        event.comm = intern_printf(&s->interner, "pp %u", i);
        event.name = intern_printf(&s->interner, "m0/h.%u", i);
        vec_push(s->arena, &lists->classes[i].events, event);
        event.kind = sym(s, "recv");
        CollectiveEvents *next = &lists->classes[i + 1].events;
        vec_push(s->arena, next, event);
    }
}

static Status lists_verify(const Lists *lists, Bench *bench)
{
    Arena *scratch = arena_new();
    Status status = verify_collective_classes(bench->s, lists->classes, CLASSES, scratch);
    arena_free(scratch);
    return status;
}

/* -- faults -- */

/* Between two classes alone: such two may change places, and where one does not come to its
 * communicator at all nothing says that it should. */
static bool is_send(const CollectiveEvent *event)
{
    return !strcmp(event->kind, "send") || !strcmp(event->kind, "recv");
}

static bool swapped(Lists *lists, Random *random, CollectiveEvents *list, Fault *out)
{
    (void)lists;
    uint32_t a = random_below(random, list->n), b = random_below(random, list->n);
    CollectiveEvent event = list->at[a];
    if (a == b || (event.name == list->at[b].name && event.kind == list->at[b].kind) ||
        (is_send(&event) && is_send(&list->at[b])))
        return false;
    *out = (Fault){.what = "two collectives that change places", .name = event.name};
    list->at[a] = list->at[b];
    list->at[b] = event;
    return true;
}

/* Neighbours over two communicators: each class waits on another one. */
static bool circle(Lists *lists, Random *random, CollectiveEvents *list, Fault *out)
{
    (void)lists;
    uint32_t a = random_below(random, list->n - 1);
    CollectiveEvent event = list->at[a];
    if (event.comm == list->at[a + 1].comm || (is_send(&event) && is_send(&list->at[a + 1])))
        return false;
    *out = (Fault){.what = "a circle over two communicators", .name = event.name};
    list->at[a] = list->at[a + 1];
    list->at[a + 1] = event;
    return true;
}

static bool dropped(Lists *lists, Random *random, CollectiveEvents *list, Fault *out)
{
    (void)lists;
    uint32_t a = random_below(random, list->n);
    if (is_send(&list->at[a]))
        return false;
    *out = (Fault){.what = "a collective that is left out", .name = list->at[a].name};
    memmove(&list->at[a], &list->at[a + 1], (list->n - a - 1) * sizeof *list->at);
    list->n--;
    return true;
}

static bool repeated(Lists *lists, Random *random, CollectiveEvents *list, Fault *out)
{
    uint32_t a = random_below(random, list->n);
    *out = (Fault){.what = "a collective that comes twice", .name = list->at[a].name};
    vec_push(lists->bench->s->arena, list, list->at[a]);
    memmove(&list->at[a + 1], &list->at[a], (list->n - a - 1) * sizeof *list->at);
    return true;
}

static bool resized(Lists *lists, Random *random, CollectiveEvents *list, Fault *out)
{
    (void)lists;
    CollectiveEvent *event = &list->at[random_below(random, list->n)];
    *out = (Fault){.what = "a collective of another size", .name = event->name};
    event->count += random_below(random, 2) ? 1 : event->count;
    return true;
}

static bool retyped(Lists *lists, Random *random, CollectiveEvents *list, Fault *out)
{
    (void)lists;
    CollectiveEvent *event = &list->at[random_below(random, list->n)];
    *out = (Fault){.what = "a collective of another dtype", .name = event->name};
    event->dtype = event->dtype == DTYPE_BF16 ? DTYPE_F16 : DTYPE_BF16;
    return true;
}

static bool other_kind(Lists *lists, Random *random, CollectiveEvents *list, Fault *out)
{
    CollectiveEvent *event = &list->at[random_below(random, list->n)];
    Sym gather = sym(lists->bench->s, "all_gather"), sum = sym(lists->bench->s, "all_reduce");
    *out = (Fault){.what = "a collective of another kind", .name = event->name};
    event->kind = event->kind == gather ? sum : gather;
    return true;
}

static bool elsewhere(Lists *lists, Random *random, CollectiveEvents *list, Fault *out)
{
    CollectiveEvent *event = &list->at[random_below(random, list->n)];
    Sym other = list->at[random_below(random, list->n)].comm;
    if (is_send(event))
        return false;
    *out = (Fault){.what = "a collective over another communicator", .name = event->name};
    event->comm = other == event->comm ? lists->renamed : other;
    return true;
}

/* -- all of them -- */

static void must_reject(Lists *lists, const Fault *fault)
{
    Bench *heard = bench_new();
    if (lists_verify(lists, heard) == STATUS_OK)
        fail_msg("accepted: %s, `%s`, in stage %u", fault->what, fault->name, fault->class);
    if (!strstr(bench_said(heard), "verify-collectives: stage ") || heard->s->n_errors != 1)
        fail_msg("%s, `%s`: %s", fault->what, fault->name, bench_said(heard));
    bench_free(heard);
}

static void mutate_lists(Lists *lists, Random *random, uint32_t n, bool sends)
{
    static const ListMutator mutators[] = {swapped, circle,  dropped,    repeated,
                                           resized, retyped, other_kind, elsewhere};
    enum { N = sizeof mutators / sizeof *mutators };
    Bench *heard = bench_new();
    lists_reset(lists);
    if (sends)
        add_sends(lists);
    if (lists_verify(lists, heard) != STATUS_OK)
        fail_msg("unchanged: %s", bench_said(heard));
    bench_free(heard);
    for (uint32_t done = 0; done < n;) {
        Fault fault;
        uint32_t class = random_below(random, CLASSES);
        lists_reset(lists);
        if (sends)
            add_sends(lists);
        if (!mutators[done % N](lists, random, &lists->classes[class].events, &fault))
            continue;
        fault.class = class;
        must_reject(lists, &fault);
        done++;
    }
}

static Lists lists_of(const char *model, const char *strategy, int64_t tp, int64_t dp,
                      int64_t dpr)
{
    Plan plan = {.model = model, .policy = "block", .micro_batches = 2};
    plan.mesh = (IrMeshSizes){tp, dp, dpr, 1};
    plan.strategy = strategy;
    plan_make(&plan);
    Lists lists = {.bench = plan.bench};
    Session *s = plan.bench->s;
    lists.base = collective_events(s, plan.g, s->arena);
    for (uint32_t i = 0; i < lists.base.n; i++)
        lists.base.at[i].classes = 0; /* each class has all of them */
    lists.renamed = sym(s, "elsewhere");
    return lists;
}

static void test_lists(void **state)
{
    static const struct {
        const char *model, *strategy;
        int64_t tp, dp, dpr;
    } plans[] = {
        {"tests/fixtures/llama3", "fsdp2", 2, 2, 1},
        {"tests/fixtures/gemma4_e4b", "zero1", 2, 2, 1},
        {"tests/fixtures/llama3", "fsdp2", 4, 2, 2},
        {"tests/fixtures/gpt2", "fsdp2", 2, 2, 2},
    };
    enum { N = sizeof plans / sizeof *plans };
    Random random = {0x9e3779b97f4a7c15u};
    (void)state;
    for (uint32_t i = 0; i < N; i++) {
        Lists lists =
            lists_of(plans[i].model, plans[i].strategy, plans[i].tp, plans[i].dp, plans[i].dpr);
        for (uint32_t sends = 0; sends < 2; sends++)
            mutate_lists(&lists, &random, MUTATIONS / N / 2, sends);
        bench_free(lists.bench);
    }
}

/* Two classes that each wait for the other, and who is named. */
static void test_circle(void **state)
{
    Bench *bench = bench_new();
    Session *s = bench->s;
    CollectiveClass classes[2] = {{.name = "stage 0"}, {.name = "stage 1"}};
    CollectiveEvent gather = {.kind = sym(s, "all_gather"), .comm = sym(s, "dp"), .count = 8};
    gather.dtype = DTYPE_F32;
    gather.name = sym(s, "flat.h.0.whole");
    gather.span = (Span){sym(s, "tiny.model"), 4, 2, 0};
    CollectiveEvent sum = {.kind = sym(s, "all_reduce"), .comm = sym(s, "tp"), .count = 64};
    sum.dtype = DTYPE_BF16;
    sum.name = sym(s, "h.3");
    sum.span = (Span){sym(s, "tiny.model"), 9, 5, 0};
    (void)state;
    vec_push(s->arena, &classes[0].events, gather);
    vec_push(s->arena, &classes[0].events, sum);
    vec_push(s->arena, &classes[1].events, sum);
    vec_push(s->arena, &classes[1].events, gather);
    assert_int_equal(verify_collective_classes(s, classes, 2, s->arena), STATUS_BUG);
    assert_says(bench, "tiny.model:4:2: error: verify-collectives: stage 0 comes to `all_gather` "
                       "`flat.h.0.whole` over `dp` with 8 elements, stage 1 to `all_reduce` "
                       "`h.3`: each waits for the other");
    assert_says(bench, "tiny.model:9:5: note: `h.3` is made here");
    bench_free(bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lists), cmocka_unit_test(test_circle)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
