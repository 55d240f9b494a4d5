#include "backend/plan_kernels.h"

void plan_kernels_init(PlanKernels *kernels, Arena *arena)
{
    *kernels = (PlanKernels){.arena = arena};
    map_init(&kernels->by_hash, arena);
}

uint32_t plan_kernel_of(PlanKernels *kernels, const EmitRegion *region)
{
    size_t bytes = region->key.n * sizeof *region->key.at;
    uint64_t hash = map_hash(region->key.at, bytes, 0), first = UINT32_MAX;
    map_get(&kernels->by_hash, hash, &first);
    for (uint32_t i = (uint32_t)first; i != UINT32_MAX; i = kernels->kernels.at[i].next) {
        const PlanKernelRec *rec = &kernels->kernels.at[i];
        if (rec->key_words == region->key.n && !memcmp(rec->key, region->key.at, bytes))
            return i;
    }
    uint64_t *key = ARENA_ARRAY(kernels->arena, uint64_t, region->key.n);
    memcpy(key, region->key.at, bytes);
    PlanKernelRec rec = {region->g, region->ops,   region->n_ops,
                         key,       region->key.n, (uint32_t)first};
    vec_push(kernels->arena, &kernels->kernels, rec);
    map_put(&kernels->by_hash, hash, kernels->kernels.n - 1);
    return kernels->kernels.n - 1;
}
