#include "runtime/cuda/launch_fused.h"

/* Parameters of a fused kernel: a pointer per tensor, the workspace, the random words, then the
 * instruction's own. */
Status rt_cuda_launch_fused(RtCuda *cuda, const RtCall *call)
{
    const PlanInstr *instr = call->instr;
    const StepCudaKernel *code = &cuda->program->cuda_kernels[instr->code];
    const RtCudaFused *fused = &cuda->fused[instr->code];
    void *args[RT_CUDA_FUSED_ARGS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < instr->n_tensors; i++)
        args[n++] = (void *)&call->at[i];
    args[n++] = (void *)&call->workspace;
    args[n++] = (void *)&call->random;
    for (uint32_t i = 0; i < instr->n_params; i++)
        args[n++] = (void *)&call->param[i];
    TRY(rt_cuda_start(cuda, fused->rows,
                      (RtCudaShape){.grid = code->grid,
                                    .threads = code->threads,
                                    .shared_bytes = code->shared_bytes},
                      args));
    if (!code->cols_name)
        return STATUS_OK;
    return rt_cuda_start(cuda, fused->cols,
                         (RtCudaShape){.grid = code->cols_grid, .threads = code->cols_threads},
                         args);
}

const char *rt_cuda_fused_fault(const StepCudaKernel *code, const PlanInstr *instr)
{
    if (instr->n_tensors + 2u + instr->n_params > RT_CUDA_FUSED_ARGS)
        return "its native code has too many parameters";
    if (!code->name || !code->grid || !code->threads || code->threads > 1024 ||
        code->shared_bytes > 227u << 10)
        return "its native code has an impossible shape";
    if (code->cols_name && (!code->cols_grid || !code->cols_threads || code->cols_threads > 1024))
        return "its native code has an impossible shape";
    return NULL;
}
