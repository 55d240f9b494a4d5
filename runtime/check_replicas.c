#include "runtime/check_replicas.h"

#include "base/diag.h"
#include "base/dtype.h"
#include "base/map.h"
#include "runtime/pieces.h"

typedef struct Replicas {
    Session *s;
    RtWorld *world;
    RtTensors tensors;
    const unsigned char *arena;
    bool found;
} Replicas;

/* All members of each group of the communicator hold the same bits of their share. */
static Status compare(Replicas *r, const RtTensor *tensor, PlanComm comm)
{
    RtGroup group;
    rt_group_open(r->world, &comm, "replicas", &group);
    if (group.n == 1)
        return STATUS_OK;
    RtShare share = rt_share(&r->tensors, tensor, r->world->rank);
    uint64_t size = dtype_bytes(tensor->dtype);
    const unsigned char *at = rt_tensor_at(&r->tensors, tensor, r->arena);
    uint64_t own = map_hash(at + (uint64_t)share.at * size, (uint64_t)share.n * size, 0);
    uint64_t *all = ARENA_ARRAY(r->s->arena, uint64_t, group.n);
    if (!rt_all_gather(&group, all, &own, sizeof own))
        return rt_world_lost(r->world, "comparing what ranks hold");
    for (uint32_t i = 1; i < group.n && !r->found; i++) {
        if (all[i] == all[0])
            continue;
        diag(r->s, no_span, check_replica, tensor->name, group.ranks[0], group.ranks[i]);
        r->found = true;
    }
    return STATUS_OK;
}

static bool is_kept(const RtTensor *tensor)
{
    return tensor->kind != PLAN_STATE_SCALAR && tensor->kind != PLAN_STATE_ACC;
}

/* A tensor is the same along the axes that neither divide nor cut it; where tp has more ranks than
 * the tensor has parts, neighbours have the same part. */
static Status compare_tensor(Replicas *r, const RtTensor *tensor)
{
    const uint32_t tp = r->world->mesh.tp;
    const PlanPiece *piece =
        rt_tensor_part(tensor, rt_mesh_at(&r->world->mesh, r->world->rank).pp)->piece;
    uint32_t axes = PLAN_AXIS_TP | PLAN_AXIS_DP | PLAN_AXIS_DPR;
    if (piece)
        axes &= ~piece->flat;
    if (!piece || piece->split == PLAN_WHOLE)
        return compare(r, tensor, (PlanComm){.axes = axes});
    TRY(compare(r, tensor, (PlanComm){.axes = axes & ~(uint32_t)PLAN_AXIS_TP}));
    if (piece->parts >= tp)
        return STATUS_OK;
    return compare(r, tensor,
                   (PlanComm){.axes = PLAN_AXIS_TP, .group = tp / (uint32_t)piece->parts});
}

Status rt_check_replicas(Session *s, RtWorld *world, const RtPlan *plan,
                         const unsigned char *arena)
{
    Replicas r = {.s = s, .world = world, .arena = arena};
    if (!world)
        return STATUS_OK;
    rt_tensors_list(s, world, plan, &r.tensors);
    for (uint32_t i = 0; i < r.tensors.n; i++) {
        const RtTensor *tensor = &r.tensors.at[i];
        if (is_kept(tensor) && rt_tensor_at(&r.tensors, tensor, arena))
            TRY(compare_tensor(&r, tensor));
    }
    return rt_world_agree(world, r.found ? STATUS_CHECK : STATUS_OK);
}
