/* mutation_support: planned models, random single faults in them, and what a verifier must say
 * of each. A mutator changes one thing that is wrong by construction, and names what it changed;
 * the plan is put back from a copy. */
#ifndef TESTS_UNIT_MUTATION_SUPPORT_H
#define TESTS_UNIT_MUTATION_SUPPORT_H

#include "passes_support.h"

#include "passes/lifetime.h"

enum { MUTATION_NAMES = 4 };

typedef struct Plan {
    const char *model, *policy;
    const char *keep; /* glob over values that live to the end; NULL: none */
    int64_t micro_batches;
    IrMeshSizes mesh;     /* zeros: one rank */
    const char *strategy; /* NULL: fsdp2 */
    Bench *bench;
    IrModule *m;
    IrGraph *g; /* @step */
    PassOptions options;
    PassLifetimes lifetimes;
    uint32_t *position; /* by op */
    struct {            /* a copy of all that a mutator may change */
        IrOpRec *ops;
        IrValueRec *values;
        IrValue *operands;
        IrAttr *attrs;
        IrOp *order;
        IrPlace *workspaces;
        IrStateRec *states;
    } saved;
} Plan;

typedef struct Mutation {
    const char *what;                        /* the mutator's description of this fault */
    const char *names[MUTATION_NAMES]; /* the diagnostic must have one of these */
    uint32_t n_names;
} Mutation;

typedef struct Random {
    uint64_t state;
} Random;

static inline uint64_t random_next(Random *r)
{
    r->state ^= r->state << 13;
    r->state ^= r->state >> 7;
    r->state ^= r->state << 17;
    return r->state >> 11;
}

static inline uint32_t random_below(Random *r, uint64_t n)
{
    return (uint32_t)(random_next(r) % n);
}

/* False: what was drawn does not fit this mutator; nothing is changed. */
typedef bool (*Mutator)(Plan *plan, Random *random, Mutation *out);

#define MUTATION_COPY(plan, field, table)                                                          \
    ((plan)->saved.field =                                                                         \
         memcpy(arena_alloc((plan)->bench->s->arena, (table).n * sizeof *(table).at), (table).at,  \
                (table).n * sizeof *(table).at))
#define MUTATION_PUT_BACK(plan, field, table) \
    memcpy((table).at, (plan)->saved.field, (table).n * sizeof *(table).at)

static inline void plan_save(Plan *plan)
{
    IrGraph *g = plan->g;
    MUTATION_COPY(plan, ops, g->ops);
    MUTATION_COPY(plan, values, g->values);
    MUTATION_COPY(plan, operands, g->operands);
    MUTATION_COPY(plan, attrs, g->attrs);
    MUTATION_COPY(plan, order, g->order);
    MUTATION_COPY(plan, workspaces, g->workspaces);
    MUTATION_COPY(plan, states, plan->m->states);
}

static inline void plan_restore(Plan *plan)
{
    IrGraph *g = plan->g;
    MUTATION_PUT_BACK(plan, ops, g->ops);
    MUTATION_PUT_BACK(plan, values, g->values);
    MUTATION_PUT_BACK(plan, operands, g->operands);
    MUTATION_PUT_BACK(plan, attrs, g->attrs);
    MUTATION_PUT_BACK(plan, order, g->order);
    MUTATION_PUT_BACK(plan, workspaces, g->workspaces);
    MUTATION_PUT_BACK(plan, states, plan->m->states);
}

static inline void plan_make(Plan *plan)
{
    enum { BATCH = 2, SEQ = 8 };
    plan->bench = bench_new();
    Session *s = plan->bench->s;
    plan->m = passes_load(plan->bench, plan->model, BATCH, SEQ, DTYPE_F32);
    plan->m->micro_batches = plan->micro_batches;
    plan->options = passes_options(s, plan->policy, plan->micro_batches, DTYPE_F32);
    plan->options.freeze_embeddings = false;
    plan->options.tp = plan->mesh.tp;
    plan->options.dp = plan->mesh.dp;
    plan->options.dpr = plan->mesh.dpr;
    plan->options.strategy = sym(s, plan->strategy ? plan->strategy : "fsdp2");
    if (plan->keep)
        vec_push(s->arena, &plan->options.keep, ((PassPattern){sym(s, plan->keep), no_span}));
    passes_plan(plan->bench, plan->m, &plan->options);
    plan->g = ir_graph_find(plan->m, "step");
    plan->lifetimes = pass_lifetimes(plan->g, s->arena);
    plan->position = ir_positions(plan->g, s->arena);
    plan_save(plan);
}

/* The verifier over the plan as it is; its messages are `bench`'s. */
static inline Status plan_verify(Plan *plan, PassId verifier, Bench *bench)
{
    PassContext c = {
        .s = bench->s, .m = plan->m, .options = &plan->options, .scratch = arena_new()};
    Status status = pass_info(verifier)->run(&c);
    arena_free(c.scratch);
    return status;
}

static inline void mutation_name(Plan *plan, Mutation *out, const char *format, const char *name)
{
    if (out->n_names < MUTATION_NAMES)
        out->names[out->n_names++] = arena_printf(plan->bench->s->arena, format, name);
}

static inline const char *value_name(const Plan *plan, IrValue v)
{
    return ir_value(plan->g, v)->name;
}

static inline const char *op_name(const Plan *plan, IrOp op)
{
    return ir_op(plan->g, op)->n_out ? value_name(plan, ir_out(plan->g, op, 0))
                                     : ir_op_info(ir_op_kind(plan->g, op))->name;
}

/* As a result or, where it has none, by its kind and first operand. */
static inline void mutation_name_op(Plan *plan, Mutation *out, IrOp op)
{
    const IrOpRec *rec = ir_op(plan->g, op);
    for (uint32_t r = 0; r < rec->n_out; r++)
        mutation_name(plan, out, "`%%%s`", value_name(plan, ir_out(plan->g, op, r)));
    if (rec->n_out)
        return;
    IrValue first = ir_in(plan->g, op, 0);
    char sigil = ir_value(plan->g, first)->def == IR_DEF_STATE ? '$' : '%';
    mutation_name(plan, out, "`%s`",
                  arena_printf(plan->bench->s->arena, "%s %c%s",
                               ir_op_info((IrOpKind)rec->kind)->name, sigil,
                               value_name(plan, first)));
}

/* Moves the op in the order to just before or just behind another. */
static inline void order_move(IrGraph *g, IrOp op, IrOp other, bool behind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->order.n; i++)
        if (g->order.at[i].i != op.i)
            g->order.at[n++] = g->order.at[i];
    uint32_t at = 0;
    while (g->order.at[at].i != other.i)
        at++;
    at += behind;
    memmove(&g->order.at[at + 1], &g->order.at[at], (g->order.n - 1 - at) * sizeof *g->order.at);
    g->order.at[at] = op;
}

static inline bool mutation_is_named(const Mutation *mutation, const char *said)
{
    for (uint32_t i = 0; i < mutation->n_names; i++)
        if (strstr(said, mutation->names[i]))
            return true;
    return false;
}

static inline void mutation_check(Plan *plan, PassId verifier, const Mutation *mutation)
{
    Bench *bench = bench_new();
    Status status = plan_verify(plan, verifier, bench);
    const char *said = bench_said(bench);
    if (status == STATUS_OK)
        fail_msg("%s, %s, %lld micro-batches: not rejected: %s", plan->model, plan->policy,
                 (long long)plan->micro_batches, mutation->what);
    if (!mutation_is_named(mutation, said))
        fail_msg("%s, %s, %lld micro-batches: %s: %s is not named in: %s", plan->model,
                 plan->policy, (long long)plan->micro_batches, mutation->what, mutation->names[0],
                 said);
    bench_free(bench);
}

/* How many faults: 1,000, and under `test.sh --full` many more. */
static inline uint32_t mutants(void)
{
    const char *full = getenv("STEPC_TEST_FULL");
    return full && *full == '1' ? 50000 : 1000;
}

/* Faults in turn over mutators and plans. Each mutator must have had its share, or it tests
 * nothing. */
static inline void mutate(Plan *plans, uint32_t n_plans, const Mutator *mutators,
                          uint32_t n_mutators, PassId verifier)
{
    enum { TRIES = 5000 };
    Random random = {0x9e3779b97f4a7c15u};
    uint32_t made[16] = {0};
    for (uint32_t i = 0; i < n_plans; i++) {
        Bench *bench = bench_new();
        plan_make(&plans[i]);
        if (plan_verify(&plans[i], verifier, bench) != STATUS_OK || *bench_said(bench))
            fail_msg("%s, %s: the unmutated plan: %s", plans[i].model, plans[i].policy,
                     bench_said(bench));
        bench_free(bench);
    }
    for (uint32_t n = 0, turn = 0; n < mutants(); turn++) {
        Plan *plan = &plans[turn / n_mutators % n_plans];
        Mutation mutation = {0};
        bool fits = false;
        for (uint32_t i = 0; i < TRIES && !fits; i++)
            fits = mutators[turn % n_mutators](plan, &random, &mutation);
        if (!fits)
            continue;
        mutation_check(plan, verifier, &mutation);
        plan_restore(plan);
        made[turn % n_mutators]++;
        n++;
    }
    for (uint32_t i = 0; i < n_mutators; i++)
        if (made[i] < mutants() / n_mutators / 2)
            fail_msg("mutator %u made %u faults", i, made[i]);
    for (uint32_t i = 0; i < n_plans; i++) {
        Bench *bench = bench_new();
        assert_int_equal(plan_verify(&plans[i], verifier, bench), STATUS_OK);
        bench_free(bench);
        bench_free(plans[i].bench);
    }
}

#endif
