#include "passes/facts.h"

#include "passes/pipe.h"

#define APPEND(s, to, from)                                                                        \
    for (uint32_t i_ = 0; i_ < (from)->n; i_++)                                                    \
    vec_push((s)->arena, (to), (from)->at[i_])

static void add_roles(Session *s, PassFacts *to, const PassFacts *from)
{
    for (uint32_t i = 0; i < from->roles.n; i++) {
        const PassRole *role = &from->roles.at[i];
        uint32_t k = 0;
        while (k < to->roles.n && to->roles.at[k].name != role->name)
            k++;
        if (k == to->roles.n)
            vec_push(s->arena, &to->roles, (PassRole){.name = role->name});
        to->roles.at[k].total += role->total;
        to->roles.at[k].recomputed += role->recomputed;
        to->roles.at[k].blocks_left += role->blocks_left;
        to->roles.at[k].saved_bytes += role->saved_bytes;
    }
}

static void add_kernels(Session *s, PassFacts *to, const PassFacts *from)
{
    for (uint32_t i = 0; i < from->kernels.n; i++) {
        const PassKernelCount *kernel = &from->kernels.at[i];
        uint32_t k = 0;
        while (k < to->kernels.n && to->kernels.at[k].name != kernel->name)
            k++;
        if (k == to->kernels.n)
            vec_push(s->arena, &to->kernels, (PassKernelCount){.name = kernel->name});
        to->kernels.at[k].count += kernel->count;
        to->kernels.at[k].replays += kernel->replays;
        to->kernels.at[k].flops += kernel->flops;
    }
}

static void add_collectives(Session *s, PassFacts *to, const PassFacts *from)
{
    for (uint32_t i = 0; i < from->collectives.n; i++) {
        const PassCollective *x = &from->collectives.at[i];
        uint32_t k = 0;
        while (k < to->collectives.n &&
               (to->collectives.at[k].kind != x->kind || to->collectives.at[k].comm != x->comm))
            k++;
        if (k == to->collectives.n)
            vec_push(s->arena, &to->collectives,
                     ((PassCollective){.kind = x->kind, .comm = x->comm, .ranks = x->ranks}));
        to->collectives.at[k].count += x->count;
        to->collectives.at[k].bytes += x->bytes;
    }
}

static void add_stage(Session *s, PassFacts *to, const PassFacts *from)
{
    to->blocks_total += from->blocks_total;
    to->blocks_covered += from->blocks_covered;
    APPEND(s, &to->blocks, &from->blocks);
    APPEND(s, &to->uncovered, &from->uncovered);
    APPEND(s, &to->saved, &from->saved);
    APPEND(s, &to->dropped, &from->dropped);
    to->saved_bytes += from->saved_bytes;
    to->replayed_flops += from->replayed_flops;
    to->replayed_ops += from->replayed_ops;
    to->dropped_replays += from->dropped_replays;
    to->flops_per_step += from->flops_per_step;
    to->bytes_per_step += from->bytes_per_step;
    to->instructions += from->instructions;
    to->eval_instructions += from->eval_instructions;
    add_roles(s, to, from);
    add_kernels(s, to, from);
    add_collectives(s, to, from);
}

static void add_time(const PassOptions *options, const PassFacts *facts, uint32_t n, PassFacts *out)
{
    Arena *scratch = arena_new();
    PipeOrder order = pipe_order_of(options, scratch);
    PipeCosts *costs = ARENA_ARRAY(scratch, PipeCosts, n);
    double micro = (double)order.n_micro, rest = 0;
    for (uint32_t i = 0; i < n; i++) {
        const PassFacts *f = &facts[i];
        double messages = micro * order.n_chunks;
        costs[i] = (PipeCosts){.fwd = f->fwd_seconds / micro,
                               .bwd = f->bwd_seconds / micro / 2,
                               .weight = f->bwd_seconds / micro / 2,
                               .send = f->send_seconds / messages,
                               .send_back = f->send_back_seconds / messages};
        double update = f->seconds_per_step - f->fwd_seconds - f->bwd_seconds;
        rest = update > rest ? update : rest;
    }
    out->seconds_per_step = pipe_seconds(&order, costs, scratch, &out->bubble) + rest;
    arena_free(scratch);
}

void pass_facts_merge(Session *s, const PassOptions *options, const PassFacts *facts, uint32_t n,
                      PassFacts *out)
{
    uint32_t most = 0;
    for (uint32_t i = 1; i < n; i++)
        if (facts[i].arena_bytes > facts[most].arena_bytes)
            most = i;
    *out = facts[most];
    if (n == 1)
        return;
    const PassFacts zero = {0};
    PassFacts sum = zero;
    for (uint32_t i = 0; i < n; i++)
        add_stage(s, &sum, &facts[i]);
    sum.policy = facts[0].policy;
    sum.arena_bytes = out->arena_bytes;
    sum.persistent_bytes = out->persistent_bytes;
    sum.lower_bound = out->lower_bound;
    sum.transient_bytes = out->transient_bytes;
    sum.peak_op = out->peak_op;
    sum.peak_scope = out->peak_scope;
    sum.peak_span = out->peak_span;
    memcpy(sum.breakdown, out->breakdown, sizeof sum.breakdown);
    sum.live.at = out->live.at;
    sum.live.n = out->live.n;
    add_time(options, facts, n, &sum);
    *out = sum;
}
