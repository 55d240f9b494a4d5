#include "backend/emit_cuda.h"

static bool has_reductions(const EmitFormula *f)
{
    for (uint32_t i = 1; i < f->nodes.n; i++)
        if (emit_kind_info((EmitKind)f->nodes.at[i].kind)->class == EMIT_REDUCE)
            return true;
    return false;
}

static CudaWalk walk_of(EmitDevice *d, const EmitFormula *f, Arena *arena)
{
    CudaWalk w = {.d = d, .c = &d->code, .f = f, .arena = arena};
    w.rows = f->region->rows;
    w.cols = f->region->cols;
    w.lanes = (uint32_t)plan_cuda_fused_lanes(w.cols);
    w.groups = w.cols / w.lanes;
    return w;
}

StepCudaKernel emit_cuda_kernel(EmitDevice *d, const EmitFormula *f, const char *name, Arena *arena)
{
    StepCudaKernel kernel = {0};
    CudaWalk w = walk_of(d, f, arena);
    if (f->columns.n || has_reductions(f))
        cuda_emit_rows(&w, name, &kernel);
    else
        cuda_emit_flat(&w, name, &kernel);
    if (f->columns.n) {
        w = walk_of(d, f, arena);
        cuda_emit_columns(&w, arena_printf(arena, "%s_columns", name), &kernel);
    }
    return kernel;
}
