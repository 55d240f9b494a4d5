#include "backend/emit_device.h"

#include <llvm-c/Target.h>

#include "backend/emit_cuda.h"
#include "backend/emit_module.h"
#include "base/diag.h"

struct EmitDeviceUnit {
    Session *s;
    EmitDevice device;
    LLVMTargetMachineRef machine;
    LLVMTargetDataRef layout;
};

typedef struct DeviceTarget {
    const char *triple, *cpu, *features;
} DeviceTarget;

static const DeviceTarget nvptx = {"nvptx64-nvidia-cuda", "sm_90", "+ptx83"};
static const DeviceTarget host = {"x86_64-unknown-linux-gnu", "x86-64-v3", ""};

static Status new_machine(EmitDeviceUnit *u, const DeviceTarget *t)
{
    LLVMTargetRef target;
    char *message = NULL;
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    if (LLVMGetTargetFromTriple(t->triple, &target, &message)) {
        diag(u->s, no_span, backend_llvm, message);
        LLVMDisposeMessage(message);
        return STATUS_ENV;
    }
    u->machine =
        LLVMCreateTargetMachine(target, t->triple, t->cpu, t->features, LLVMCodeGenLevelDefault,
                                LLVMRelocPIC, LLVMCodeModelDefault);
    return STATUS_OK;
}

Status emit_device_new(Session *s, bool emulated, EmitDeviceUnit **out_unit)
{
    EmitDeviceUnit *u = ARENA_NEW(s->arena, EmitDeviceUnit);
    EmitCode *c = &u->device.code;
    const DeviceTarget *target = emulated ? &host : &nvptx;
    u->s = s;
    u->device.emulated = emulated;
    TRY(new_machine(u, target));
    u->layout = LLVMCreateTargetDataLayout(u->machine);
    c->context = emit_module_context(s);
    c->module = LLVMModuleCreateWithNameInContext("step", c->context);
    LLVMSetTarget(c->module, target->triple);
    LLVMSetModuleDataLayout(c->module, u->layout);
    c->b = LLVMCreateBuilderInContext(c->context);
    *out_unit = u;
    return STATUS_OK;
}

void emit_device_free(EmitDeviceUnit *u)
{
    if (!u)
        return;
    LLVMDisposeBuilder(u->device.code.b);
    LLVMDisposeModule(u->device.code.module);
    LLVMContextDispose(u->device.code.context);
    LLVMDisposeTargetData(u->layout);
    LLVMDisposeTargetMachine(u->machine);
}

StepCudaKernel emit_device_kernel(EmitDeviceUnit *u, const EmitRegion *region, const char *name)
{
    Arena *scratch = arena_new();
    const EmitFormula *f = emit_formula(region, scratch);
    StepCudaKernel kernel = emit_cuda_kernel(&u->device, f, name, scratch);
    kernel.name = sym(u->s, kernel.name);
    kernel.cols_name = kernel.cols_name ? sym(u->s, kernel.cols_name) : NULL;
    arena_free(scratch);
    return kernel;
}

static Status dump_text(Session *s, const char *dir, const char *text, uint64_t bytes)
{
    const char *path = arena_printf(s->arena, "%s/step.ptx", dir);
    FILE *file = fopen(path, "wb");
    bool wrote = file && fwrite(text, 1, bytes, file) == bytes;
    if (file && fclose(file))
        wrote = false;
    if (wrote)
        return STATUS_OK;
    diag(s, no_span, file_write, path, "cannot be written");
    return STATUS_ENV;
}

Status emit_device_code(EmitDeviceUnit *u, const char *dump_dir, const char **out_code,
                        uint64_t *out_bytes)
{
    LLVMModuleRef module = u->device.code.module;
    LLVMMemoryBufferRef buffer;
    char *message = NULL;
    bool emulated = u->device.emulated;
    TRY(emit_module_finish(u->s, module, u->machine, dump_dir, "device"));
    if (LLVMTargetMachineEmitToMemoryBuffer(
            u->machine, module, emulated ? LLVMObjectFile : LLVMAssemblyFile, &message, &buffer)) {
        diag(u->s, no_span, backend_llvm, message);
        LLVMDisposeMessage(message);
        return STATUS_BUG;
    }
    *out_bytes = LLVMGetBufferSize(buffer);
    *out_code = arena_strndup(u->s->arena, LLVMGetBufferStart(buffer), *out_bytes);
    LLVMDisposeMemoryBuffer(buffer);
    return dump_dir && !emulated ? dump_text(u->s, dump_dir, *out_code, *out_bytes) : STATUS_OK;
}
