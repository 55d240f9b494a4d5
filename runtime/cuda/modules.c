#include "runtime/cuda/modules.h"

#include "base/diag.h"

enum { LOG_BYTES = 4096 };

static const char *first_line(Session *s, const char *log, CUresult result, const RtCuda *cuda)
{
    const char *name = NULL;
    cuda->driver.GetErrorName(result, &name);
    size_t length = strcspn(log, "\n");
    return length ? arena_printf(s->arena, "%.*s (%s)", (int)length, log, name ? name : "?")
           : name ? name
                  : "?";
}

static Status load(RtCuda *cuda, const void *image, CUmodule *out_module)
{
    char log[LOG_BYTES] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)(uintptr_t)sizeof log};
    CUresult result = cuda->driver.ModuleLoadDataEx(out_module, image, 2, options, values);
    if (result == CUDA_SUCCESS)
        return STATUS_OK;
    diag(cuda->s, no_span, cuda_image, first_line(cuda->s, log, result, cuda));
    return STATUS_ENV;
}

/* PTX is text, which has to end with a NUL; cubins and fatbins say themselves how long they are. */
static const void *as_image(Session *s, const StepProgram *program)
{
    static const unsigned char elf[] = {0x7f, 'E', 'L', 'F'}, fatbin[] = {0x50, 0xed, 0x55, 0xba};
    const char *bytes = program->image;
    if (program->image_bytes >= 4 && (!memcmp(bytes, elf, 4) || !memcmp(bytes, fatbin, 4)))
        return bytes;
    return arena_strndup(s->arena, bytes, program->image_bytes);
}

static Status entry(RtCuda *cuda, const char *name, CUfunction *out_function)
{
    if (!name ||
        cuda->driver.ModuleGetFunction(out_function, cuda->program_module, name) == CUDA_SUCCESS)
        return STATUS_OK;
    diag(cuda->s, no_span, cuda_image,
         arena_printf(cuda->s->arena, "there is no entry `%s`", name));
    return STATUS_ENV;
}

static Status load_program(RtCuda *cuda)
{
    const StepProgram *program = cuda->program;
    if (!program->n_kernels)
        return STATUS_OK;
    TRY(load(cuda, as_image(cuda->s, program), &cuda->program_module));
    cuda->fused = ARENA_ARRAY(cuda->s->arena, RtCudaFused, program->n_kernels);
    for (uint64_t i = 0; i < program->n_kernels; i++) {
        TRY(entry(cuda, program->cuda_kernels[i].name, &cuda->fused[i].rows));
        TRY(entry(cuda, program->cuda_kernels[i].cols_name, &cuda->fused[i].cols));
    }
    return STATUS_OK;
}

Status rt_cuda_modules_load(RtCuda *cuda)
{
    for (const RtCudaImage *image = rt_cuda_images; image->name; image++) {
        CUmodule module;
        TRY(load(cuda, image->bytes, &module));
        vec_push(cuda->s->arena, &cuda->kernel_modules, module);
    }
    return load_program(cuda);
}

void rt_cuda_modules_unload(RtCuda *cuda)
{
    if (cuda->program_module)
        cuda->driver.ModuleUnload(cuda->program_module);
    for (uint32_t i = 0; i < cuda->kernel_modules.n; i++)
        cuda->driver.ModuleUnload(cuda->kernel_modules.at[i]);
    cuda->program_module = NULL;
    cuda->kernel_modules.n = 0;
}
