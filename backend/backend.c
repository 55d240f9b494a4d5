#include "backend/backend.h"

#include "backend/emit.h"
#include "backend/link.h"
#include "backend/plan_write.h"

static Status emit_kernels(Session *s, const PlanKernels *kernels, EmitUnit *unit)
{
    Arena *scratch = arena_new();
    Status status = STATUS_OK;
    EmitScan scan = {0};
    for (uint32_t i = 0; i < kernels->kernels.n && status == STATUS_OK; i++) {
        const PlanKernelRec *rec = &kernels->kernels.at[i];
        EmitRegion region;
        if (scan.g != rec->g)
            emit_scan_init(&scan, s, rec->g, scratch);
        status = emit_scan_region(&scan, rec->ops, rec->n_ops, &region);
        if (status == STATUS_OK)
            emit_unit_kernel(unit, &region);
    }
    arena_free(scratch);
    return status;
}

static Status new_unit(Session *s, const BackendOptions *options, EmitUnit **out_unit)
{
    if (options->target == PLAN_TARGET_CUDA)
        return emit_unit_new_cuda(s, out_unit);
    return emit_unit_new(s, options->cpu ? options->cpu : "host", out_unit);
}

/* The object file of the plan and its kernels. */
static Status write_object(Session *s, IrModule *m, const BackendOptions *options,
                           const char *object)
{
    PlanKernels kernels;
    EmitUnit *unit;
    unsigned char *plan;
    uint64_t plan_bytes;
    plan_kernels_init(&kernels, s->arena);
    TRY(plan_write(s, m, options, &kernels, &plan, &plan_bytes));
    TRY(new_unit(s, options, &unit));
    Status status = emit_kernels(s, &kernels, unit);
    if (status == STATUS_OK)
        status = emit_unit_write(unit, plan, plan_bytes, object, options->dump_llvm);
    emit_unit_free(unit);
    return status;
}

Status backend_ptx(Session *s, IrModule *m, const char **out_text)
{
    BackendOptions options = {.target = PLAN_TARGET_CUDA};
    PlanKernels kernels;
    EmitUnit *unit;
    unsigned char *plan;
    uint64_t plan_bytes;
    plan_kernels_init(&kernels, s->arena);
    TRY(plan_write(s, m, &options, &kernels, &plan, &plan_bytes));
    TRY(new_unit(s, &options, &unit));
    Status status = emit_kernels(s, &kernels, unit);
    if (status == STATUS_OK)
        status = emit_unit_ptx(unit, out_text);
    emit_unit_free(unit);
    return status;
}

Status backend_build(Session *s, IrModule *m, const BackendOptions *options)
{
    const char *folder;
    TRY(link_folder_new(s, &folder));
    const char *object = arena_printf(s->arena, "%s/step.o", folder);
    Status status = write_object(s, m, options, object);
    if (status == STATUS_OK)
        status = options->target == PLAN_TARGET_CUDA
                     ? link_executable_cuda(s, folder, object, options->cuda_lib,
                                            options->runtime_lib, options->out_path)
                     : link_executable(s, folder, object, options->runtime_lib, options->out_path);
    link_folder_remove(folder, (const char *const[]){object, NULL});
    return status;
}
