#include "runtime/check_replicas.h"

#include "base/diag.h"

typedef struct Replicas {
    Session *s;
    RtWorld *world;
    const RtPlan *plan;
    const unsigned char *arena;
    bool found;
} Replicas;

static uint64_t hash_of(const unsigned char *bytes, uint64_t n)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (uint64_t i = 0; i < n; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

/* All members of each group of the communicator hold the state's bits. */
static Status compare(Replicas *r, const PlanState *state, PlanComm comm)
{
    RtGroup group;
    rt_group_open(r->world, &comm, "replicas", &group);
    if (group.n == 1)
        return STATUS_OK;
    uint64_t own = hash_of(r->arena + state->offset, state->bytes);
    uint64_t *all = ARENA_ARRAY(r->s->arena, uint64_t, group.n);
    if (!rt_all_gather(&group, all, &own, sizeof own))
        return rt_world_lost(r->world, "comparing what ranks hold");
    for (uint32_t i = 1; i < group.n && !r->found; i++) {
        if (all[i] == all[0])
            continue;
        diag(r->s, no_span, check_replica, rt_plan_string(r->plan, state->name), group.ranks[0],
             group.ranks[i]);
        r->found = true;
    }
    return STATUS_OK;
}

static bool is_kept(const PlanState *state)
{
    return state->kind != PLAN_STATE_SCALAR && state->kind != PLAN_STATE_ACC;
}

/* A state is the same along the axes that neither divide nor cut it; where tp has more ranks than
 * the tensor has parts, neighbours have the same part. */
static Status compare_state(Replicas *r, uint32_t index)
{
    const PlanState *state = &r->plan->states[index];
    const uint32_t tp = r->world->mesh.tp;
    uint32_t cut = 0, divided = 0, parts = 1;
    for (uint64_t i = 0; i < r->plan->n_pieces; i++) {
        const PlanPiece *piece = &r->plan->pieces[i];
        if (piece->state != index)
            continue;
        cut |= piece->flat;
        if (piece->split != PLAN_WHOLE) {
            divided = PLAN_AXIS_TP;
            parts = (uint32_t)piece->parts;
        }
    }
    uint32_t axes = (PLAN_AXIS_TP | PLAN_AXIS_DP | PLAN_AXIS_DPR) & ~cut & ~divided;
    TRY(compare(r, state, (PlanComm){.axes = axes}));
    if (!divided || cut || parts >= tp)
        return STATUS_OK;
    return compare(r, state, (PlanComm){.axes = PLAN_AXIS_TP, .group = tp / parts});
}

Status rt_check_replicas(Session *s, RtWorld *world, const RtPlan *plan,
                         const unsigned char *arena)
{
    Replicas r = {.s = s, .world = world, .plan = plan, .arena = arena};
    for (uint32_t i = 0; world && i < plan->n_states; i++)
        if (is_kept(&plan->states[i]))
            TRY(compare_state(&r, i));
    return rt_world_agree(world, r.found ? STATUS_CHECK : STATUS_OK);
}
