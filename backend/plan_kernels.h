/* plan_kernels: the distinct fused kernels of a module. Regions with equal keys share one. */
#ifndef BACKEND_PLAN_KERNELS_H
#define BACKEND_PLAN_KERNELS_H

#include "backend/emit_region.h"

typedef struct PlanKernelRec { /* the first region of its kind */
    const IrGraph *g;
    const IrOp *ops;
    uint32_t n_ops;
    const uint64_t *key;
    uint32_t key_words, next; /* next with the same hash; UINT32_MAX: none */
} PlanKernelRec;

typedef struct PlanKernels {
    Arena *arena;
    VEC(PlanKernelRec) kernels;
    Map by_hash;
} PlanKernels;

void plan_kernels_init(PlanKernels *kernels, Arena *arena);
uint32_t plan_kernel_of(PlanKernels *kernels, const EmitRegion *region);

#endif
