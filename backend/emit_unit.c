#include "backend/emit.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/ErrorHandling.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <stdlib.h>

#include "backend/emit_cpu.h"
#include "base/diag.h"
#include "runtime/abi/workspace.h"

struct EmitUnit {
    Session *s;
    EmitCode code;
    LLVMTargetMachineRef machine;
    LLVMTargetDataRef layout;
    VEC(LLVMValueRef) kernels; /* constants of plan.h's StepKernel */
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

static Status find_cpu(Session *s, const char *cpu)
{
    char list[512] = "";
    uint32_t n = sizeof cpus / sizeof *cpus;
    for (uint32_t i = 0; i < n; i++) {
        if (!strcmp(cpu, cpus[i]))
            return STATUS_OK;
        strcat(strcat(list, i ? ", " : ""), cpus[i]);
    }
    diag(s, no_span, backend_cpu, cpu, list);
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

/* -- LLVM's errors -- */

static void on_fatal(const char *reason)
{
    fprintf(stderr, "error: internal error: LLVM: %s\n", reason);
    exit(STATUS_BUG);
}

static void on_diagnostic(LLVMDiagnosticInfoRef info, void *session)
{
    if (LLVMGetDiagInfoSeverity(info) != LLVMDSError)
        return;
    char *text = LLVMGetDiagInfoDescription(info);
    diag((Session *)session, no_span, backend_llvm, text);
    LLVMDisposeMessage(text);
}

Status emit_unit_new(Session *s, const char *cpu, EmitUnit **out_unit)
{
    TRY(find_cpu(s, cpu));
    EmitUnit *u = ARENA_NEW(s->arena, EmitUnit);
    u->s = s;
    LLVMResetFatalErrorHandler();
    LLVMInstallFatalErrorHandler(on_fatal);
    TRY(new_machine(u, cpu));
    u->layout = LLVMCreateTargetDataLayout(u->machine);
    u->code.context = LLVMContextCreate();
    LLVMContextSetDiagnosticHandler(u->code.context, on_diagnostic, s);
    u->code.module = LLVMModuleCreateWithNameInContext("step", u->code.context);
    LLVMSetTarget(u->code.module, triple);
    LLVMSetModuleDataLayout(u->code.module, u->layout);
    u->code.b = LLVMCreateBuilderInContext(u->code.context);
    *out_unit = u;
    return STATUS_OK;
}

void emit_unit_free(EmitUnit *u)
{
    if (!u)
        return;
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

/* The distinct ops of the region: `add+rmsnorm+mul`. */
static const char *kernel_name(const EmitRegion *region, Arena *arena)
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
            return arena_printf(arena, "%s+...", name);
        seen[n++] = kind;
        name =
            arena_printf(arena, "%s%s%s", name, *name ? "+" : "", ir_op_info((IrOpKind)kind)->name);
    }
    return name;
}

uint32_t emit_unit_n_kernels(const EmitUnit *u)
{
    return u->kernels.n;
}

void emit_unit_kernel(EmitUnit *u, const EmitRegion *region)
{
    Arena *scratch = arena_new();
    EmitFormula *f = emit_formula(region, scratch);
    EmitFunctions functions = emit_cpu_kernel(&u->code, f, scratch, u->kernels.n);
    const char *name = kernel_name(region, scratch);
    int64_t per_chunk = plan_fused_rows_per_chunk(region->rows, region->cols, f->columns.n > 0);
    LLVMValueRef fields[] = {
        constant_text(u, name),
        functions.rows,
        functions.columns ? functions.columns : null_pointer(u),
        emit_i64(&u->code, region->rows),
        emit_i64(&u->code, per_chunk),
        emit_i64(&u->code, functions.columns ? region->cols : 0),
        emit_i64(&u->code, (int64_t)f->partial_bytes),
    };
    vec_push(u->s->arena, &u->kernels, constant_struct(u, fields, sizeof fields / sizeof *fields));
    arena_free(scratch);
}

static void define_program(EmitUnit *u, LLVMValueRef plan, uint64_t plan_bytes)
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
        plan,
        emit_i64(&u->code, (int64_t)plan_bytes),
        kernels,
        null_pointer(u),
        emit_i64(&u->code, u->kernels.n),
        null_pointer(u),
        emit_i64(&u->code, 0), /* no device image */
    };
    _Static_assert(sizeof fields / sizeof *fields * 8 == sizeof(StepProgram),
                   "plan.h: StepProgram");
    LLVMValueRef program = constant_struct(u, fields, sizeof fields / sizeof *fields);
    LLVMValueRef global = LLVMAddGlobal(u->code.module, LLVMTypeOf(program), "step_program");
    LLVMSetInitializer(global, program);
    LLVMSetGlobalConstant(global, true);
}

/* -- writing -- */

static Status dump(EmitUnit *u, const char *dir, const char *file)
{
    char *message = NULL;
    const char *path = arena_printf(u->s->arena, "%s/%s", dir, file);
    if (!LLVMPrintModuleToFile(u->code.module, path, &message))
        return STATUS_OK;
    diag(u->s, no_span, file_write, path, message);
    LLVMDisposeMessage(message);
    return STATUS_ENV;
}

static Status verify(EmitUnit *u)
{
    char *message = NULL;
    bool broken = LLVMVerifyModule(u->code.module, LLVMReturnStatusAction, &message);
    if (broken)
        diag(u->s, no_span, backend_llvm, message);
    LLVMDisposeMessage(message);
    return broken ? STATUS_BUG : STATUS_OK;
}

/* The code is explicit vectors in simple loops: vectorisers and unrollers would find nothing to
 * gain, and the whole of O2 takes six times as long for the same speed. */
static const char passes[] = "function(early-cse<memssa>,instcombine,simplifycfg,loop-mssa(licm),"
                             "gvn,instcombine,simplifycfg)";

static Status optimise(EmitUnit *u)
{
    LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
    LLVMErrorRef error = LLVMRunPasses(u->code.module, passes, u->machine, options);
    LLVMDisposePassBuilderOptions(options);
    if (!error)
        return STATUS_OK;
    char *message = LLVMGetErrorMessage(error);
    diag(u->s, no_span, backend_llvm, message);
    LLVMDisposeErrorMessage(message);
    return STATUS_BUG;
}

Status emit_unit_write(EmitUnit *u, const void *plan, uint64_t plan_bytes, const char *object_path,
                       const char *dump_dir)
{
    LLVMValueRef bytes = declare_bytes(u, "step_plan", plan_bytes, 64);
    define_program(u, bytes, plan_bytes);
    if (dump_dir)
        TRY(dump(u, dump_dir, "step.ll"));
    TRY(verify(u));
    TRY(optimise(u));
    if (dump_dir)
        TRY(dump(u, dump_dir, "step.opt.ll"));
    define_bytes(u, bytes, plan, plan_bytes);
    char *message = NULL, *path = arena_strndup(u->s->arena, object_path, strlen(object_path));
    if (!LLVMTargetMachineEmitToFile(u->machine, u->code.module, path, LLVMObjectFile, &message))
        return STATUS_OK;
    diag(u->s, no_span, file_write, object_path, message);
    LLVMDisposeMessage(message);
    return STATUS_ENV;
}
