#include "runtime/comm.h"

static uint32_t at_least_1(uint32_t n)
{
    return n ? n : 1;
}

PlanMesh rt_mesh(const PlanHeader *header)
{
    const PlanMesh *m = &header->mesh;
    return (PlanMesh){at_least_1(m->tp), at_least_1(m->dp), at_least_1(m->dpr), at_least_1(m->pp)};
}

uint32_t rt_mesh_size(const PlanMesh *mesh)
{
    return mesh->tp * mesh->dp * mesh->dpr * mesh->pp;
}

RtCoordinates rt_mesh_at(const PlanMesh *mesh, uint32_t rank)
{
    uint32_t tp = rank % mesh->tp, rest = rank / mesh->tp;
    uint32_t dp = rest % mesh->dp;
    rest /= mesh->dp;
    return (RtCoordinates){tp, dp, rest % mesh->dpr, rest / mesh->dpr};
}

uint32_t rt_mesh_axes_size(const PlanMesh *mesh, uint32_t axes)
{
    return (axes & PLAN_AXIS_TP ? mesh->tp : 1) * (axes & PLAN_AXIS_DP ? mesh->dp : 1) *
           (axes & PLAN_AXIS_DPR ? mesh->dpr : 1) * (axes & PLAN_AXIS_PP ? mesh->pp : 1);
}

uint32_t rt_mesh_axes_place(const PlanMesh *mesh, uint32_t axes, uint32_t rank)
{
    RtCoordinates at = rt_mesh_at(mesh, rank);
    uint32_t place = axes & PLAN_AXIS_PP ? at.pp : 0;
    if (axes & PLAN_AXIS_DPR)
        place = place * mesh->dpr + at.dpr;
    if (axes & PLAN_AXIS_DP)
        place = place * mesh->dp + at.dp;
    if (axes & PLAN_AXIS_TP)
        place = place * mesh->tp + at.tp;
    return place;
}
