#include "backend/emit.h"

#include <llvm-c/Target.h>

#include "backend/backend.h"
#include "backend/emit_cpu.h"
#include "backend/emit_device.h"
#include "backend/emit_module.h"
#include "base/diag.h"
#include "runtime/abi/workspace.h"

struct EmitUnit {
    Session *s;
    EmitCode code;
    LLVMTargetMachineRef machine;
    LLVMTargetDataRef layout;
    EmitDeviceUnit *device;    /* target cuda; else NULL */
    VEC(LLVMValueRef) kernels; /* constants of plan.h's StepKernel, or StepCudaKernel */
};

/* -- the target -- */

static const char triple[] = "x86_64-unknown-linux-gnu";

/* Every one has AVX2 and FMA; an unknown name would make LLVM fall back to the oldest processor. */
static const char *const cpus[] = {
    "host",           "x86-64-v3",      "x86-64-v4",      "haswell",
    "skylake",        "alderlake",      "skylake-avx512", "cascadelake",
    "icelake-server", "sapphirerapids", "emeraldrapids",  "graniterapids",
    "znver1",         "znver2",         "znver3",         "znver4",
};

Status backend_check_cpu(Session *s, const char *cpu, Span span)
{
    char list[512] = "";
    uint32_t n = sizeof cpus / sizeof *cpus;
    for (uint32_t i = 0; i < n; i++) {
        if (!strcmp(cpu, cpus[i]))
            return STATUS_OK;
        strcat(strcat(list, i ? ", " : ""), cpus[i]);
    }
    diag(s, span, backend_cpu, cpu, list);
    const char *near = diag_nearest(cpu, cpus, n);
    if (near)
        diag(s, no_span, did_you_mean, near);
    return STATUS_USER;
}

static Status new_machine(EmitUnit *u, const char *cpu)
{
    LLVMTargetRef target;
    char *message = NULL;
    bool host = !strcmp(cpu, "host");
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    if (LLVMGetTargetFromTriple(triple, &target, &message)) {
        diag(u->s, no_span, backend_llvm, message);
        LLVMDisposeMessage(message);
        return STATUS_ENV;
    }
    char *name = host ? LLVMGetHostCPUName() : NULL,
         *features = host ? LLVMGetHostCPUFeatures() : NULL;
    Status status = STATUS_OK;
    if (host && !(strstr(features, "+avx2") && strstr(features, "+fma"))) {
        diag(u->s, no_span, backend_host_old, name);
        status = STATUS_ENV;
    } else {
        u->machine =
            LLVMCreateTargetMachine(target, triple, host ? name : cpu, host ? features : "",
                                    LLVMCodeGenLevelDefault, LLVMRelocPIC, LLVMCodeModelDefault);
    }
    LLVMDisposeMessage(name);
    LLVMDisposeMessage(features);
    return status;
}

Status emit_unit_new(Session *s, const char *cpu, EmitUnit **out_unit)
{
    TRY(backend_check_cpu(s, cpu, no_span));
    EmitUnit *u = ARENA_NEW(s->arena, EmitUnit);
    u->s = s;
    TRY(new_machine(u, cpu));
    u->layout = LLVMCreateTargetDataLayout(u->machine);
    u->code.context = emit_module_context(s);
    u->code.module = LLVMModuleCreateWithNameInContext("step", u->code.context);
    LLVMSetTarget(u->code.module, triple);
    LLVMSetModuleDataLayout(u->code.module, u->layout);
    u->code.b = LLVMCreateBuilderInContext(u->code.context);
    *out_unit = u;
    return STATUS_OK;
}

Status emit_unit_new_cuda(Session *s, EmitUnit **out_unit)
{
    TRY(emit_unit_new(s, "x86-64-v3", out_unit));
    return emit_device_new(s, false, &(*out_unit)->device);
}

void emit_unit_free(EmitUnit *u)
{
    if (!u)
        return;
    emit_device_free(u->device);
    LLVMDisposeBuilder(u->code.b);
    LLVMDisposeModule(u->code.module);
    LLVMContextDispose(u->code.context);
    LLVMDisposeTargetData(u->layout);
    LLVMDisposeTargetMachine(u->machine);
}

/* -- constants -- */

/* Constant bytes; their content (of the plan: megabytes) may come after optimising. */
static LLVMValueRef declare_bytes(EmitUnit *u, const char *name, uint64_t n, uint32_t align)
{
    LLVMTypeRef type = LLVMArrayType2(LLVMInt8TypeInContext(u->code.context), n);
    LLVMValueRef global = LLVMAddGlobal(u->code.module, type, name);
    LLVMSetGlobalConstant(global, true);
    LLVMSetAlignment(global, align);
    return global;
}

static void define_bytes(EmitUnit *u, LLVMValueRef global, const void *bytes, uint64_t n)
{
    LLVMSetInitializer(global, LLVMConstStringInContext2(u->code.context, bytes, n, true));
    LLVMSetLinkage(global, LLVMPrivateLinkage);
}

static LLVMValueRef constant_text(EmitUnit *u, const char *text)
{
    LLVMValueRef global = declare_bytes(u, "", strlen(text) + 1, 1);
    define_bytes(u, global, text, strlen(text) + 1);
    return global;
}

static LLVMValueRef constant_struct(EmitUnit *u, LLVMValueRef *fields, uint32_t n)
{
    return LLVMConstStructInContext(u->code.context, fields, n, false);
}

static LLVMValueRef null_pointer(EmitUnit *u)
{
    return LLVMConstNull(LLVMPointerTypeInContext(u->code.context, 0));
}

/* The distinct ops of the region, joined. */
static const char *kernel_name(const EmitRegion *region, const char *joint, Arena *arena)
{
    enum { MOST = 6 };
    const char *name = "";
    uint32_t seen[MOST], n = 0;
    for (uint32_t i = 0; i < region->n_ops; i++) {
        uint32_t kind = ir_op_kind(region->g, region->ops[i]), k = 0;
        while (k < n && seen[k] != kind)
            k++;
        if (k < n)
            continue;
        if (n == MOST)
            return arena_printf(arena, "%s%sothers", name, joint);
        seen[n++] = kind;
        name = arena_printf(arena, "%s%s%s", name, *name ? joint : "",
                            ir_op_info((IrOpKind)kind)->name);
    }
    return name;
}

uint32_t emit_unit_n_kernels(const EmitUnit *u)
{
    return u->kernels.n;
}

static LLVMValueRef native_kernel(EmitUnit *u, const EmitRegion *region, Arena *scratch)
{
    EmitFormula *f = emit_formula(region, scratch);
    EmitFunctions functions = emit_cpu_kernel(&u->code, f, scratch, u->kernels.n);
    int64_t per_chunk = plan_fused_rows_per_chunk(region->rows, region->cols, f->columns.n > 0);
    LLVMValueRef fields[] = {
        constant_text(u, kernel_name(region, "+", scratch)),
        functions.rows,
        functions.columns ? functions.columns : null_pointer(u),
        emit_i64(&u->code, region->rows),
        emit_i64(&u->code, per_chunk),
        emit_i64(&u->code, functions.columns ? region->cols : 0),
        emit_i64(&u->code, (int64_t)f->partial_bytes),
    };
    return constant_struct(u, fields, sizeof fields / sizeof *fields);
}

static LLVMValueRef device_kernel(EmitUnit *u, const EmitRegion *region, Arena *scratch)
{
    LLVMTypeRef i32 = LLVMInt32TypeInContext(u->code.context);
    const char *ops = kernel_name(region, "_", scratch);
    StepCudaKernel k =
        emit_device_kernel(u->device, region, arena_printf(scratch, "k%u_%s", u->kernels.n, ops));
    LLVMValueRef fields[] = {
        constant_text(u, k.name),
        k.cols_name ? constant_text(u, k.cols_name) : null_pointer(u),
        LLVMConstInt(i32, k.grid, false),
        LLVMConstInt(i32, k.threads, false),
        LLVMConstInt(i32, k.shared_bytes, false),
        LLVMConstInt(i32, k.cols_grid, false),
        LLVMConstInt(i32, k.cols_threads, false),
    };
    return constant_struct(u, fields, sizeof fields / sizeof *fields);
}

void emit_unit_kernel(EmitUnit *u, const EmitRegion *region)
{
    Arena *scratch = arena_new();
    LLVMValueRef kernel =
        u->device ? device_kernel(u, region, scratch) : native_kernel(u, region, scratch);
    vec_push(u->s->arena, &u->kernels, kernel);
    arena_free(scratch);
}

typedef struct UnitBytes { /* what stands behind a pointer of the program */
    LLVMValueRef global;
    const void *bytes;
    uint64_t n;
} UnitBytes;

static void define_program(EmitUnit *u, const UnitBytes *plan, const UnitBytes *image)
{
    LLVMValueRef kernels = null_pointer(u);
    if (u->kernels.n) {
        LLVMValueRef array =
            LLVMConstArray2(LLVMTypeOf(u->kernels.at[0]), u->kernels.at, u->kernels.n);
        kernels = LLVMAddGlobal(u->code.module, LLVMTypeOf(array), "step_kernels");
        LLVMSetInitializer(kernels, array);
        LLVMSetGlobalConstant(kernels, true);
        LLVMSetLinkage(kernels, LLVMInternalLinkage);
    }
    LLVMValueRef fields[] = {
        plan->global,
        emit_i64(&u->code, (int64_t)plan->n),
        u->device ? null_pointer(u) : kernels,
        u->device ? kernels : null_pointer(u),
        emit_i64(&u->code, u->kernels.n),
        image->n ? image->global : null_pointer(u),
        emit_i64(&u->code, (int64_t)image->n),
    };
    _Static_assert(sizeof fields / sizeof *fields * 8 == sizeof(StepProgram),
                   "plan.h: StepProgram");
    LLVMValueRef program = constant_struct(u, fields, sizeof fields / sizeof *fields);
    LLVMValueRef global = LLVMAddGlobal(u->code.module, LLVMTypeOf(program), "step_program");
    LLVMSetInitializer(global, program);
    LLVMSetGlobalConstant(global, true);
}

/* -- writing -- */

static Status device_image(EmitUnit *u, UnitBytes *image, const char *dump_dir)
{
    const char *ptx;
    uint64_t ptx_bytes;
    if (!u->device || !u->kernels.n)
        return STATUS_OK;
    TRY(emit_device_code(u->device, dump_dir, &ptx, &ptx_bytes));
    return emit_device_image(u->s, ptx, ptx_bytes, &image->bytes, &image->n);
}

Status emit_unit_ptx(EmitUnit *u, const char **out_text)
{
    uint64_t bytes;
    *out_text = "";
    return u->kernels.n ? emit_device_code(u->device, NULL, out_text, &bytes) : STATUS_OK;
}

Status emit_unit_write(EmitUnit *u, const void *plan, uint64_t plan_bytes, const char *object_path,
                       const char *dump_dir)
{
    UnitBytes plan_at = {.bytes = plan, .n = plan_bytes}, image = {0};
    TRY(device_image(u, &image, dump_dir));
    plan_at.global = declare_bytes(u, "step_plan", plan_bytes, 64);
    if (image.n)
        image.global = declare_bytes(u, "step_image", image.n, 64);
    define_program(u, &plan_at, &image);
    TRY(emit_module_finish(u->s, u->code.module, u->machine, dump_dir, "step"));
    define_bytes(u, plan_at.global, plan_at.bytes, plan_at.n);
    if (image.n)
        define_bytes(u, image.global, image.bytes, image.n);
    char *message = NULL, *path = arena_strndup(u->s->arena, object_path, strlen(object_path));
    if (!LLVMTargetMachineEmitToFile(u->machine, u->code.module, path, LLVMObjectFile, &message))
        return STATUS_OK;
    diag(u->s, no_span, file_write, object_path, message);
    LLVMDisposeMessage(message);
    return STATUS_ENV;
}
