#include "backend/emit_module.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/ErrorHandling.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <stdlib.h>

#include "base/diag.h"

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

LLVMContextRef emit_module_context(Session *s)
{
    LLVMResetFatalErrorHandler();
    LLVMInstallFatalErrorHandler(on_fatal);
    LLVMContextRef context = LLVMContextCreate();
    LLVMContextSetDiagnosticHandler(context, on_diagnostic, s);
    return context;
}

static Status dump(Session *s, LLVMModuleRef module, const char *dir, const char *name,
                   const char *suffix)
{
    char *message = NULL;
    const char *path = arena_printf(s->arena, "%s/%s%s", dir, name, suffix);
    if (!LLVMPrintModuleToFile(module, path, &message))
        return STATUS_OK;
    diag(s, no_span, file_write, path, message);
    LLVMDisposeMessage(message);
    return STATUS_ENV;
}

static Status verify(Session *s, LLVMModuleRef module)
{
    char *message = NULL;
    bool broken = LLVMVerifyModule(module, LLVMReturnStatusAction, &message);
    if (broken)
        diag(s, no_span, backend_llvm, message);
    LLVMDisposeMessage(message);
    return broken ? STATUS_BUG : STATUS_OK;
}

/* The code is straight or in simple loops, and its vectors are explicit: vectorisers and unrollers
 * would find nothing to gain, and the whole of O2 takes six times as long for the same speed. */
static const char passes[] =
    "function(early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg,"
    "loop-mssa(licm),gvn,instcombine<no-verify-fixpoint>,simplifycfg)";

static Status optimise(Session *s, LLVMModuleRef module, LLVMTargetMachineRef machine)
{
    LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
    LLVMErrorRef error = LLVMRunPasses(module, passes, machine, options);
    LLVMDisposePassBuilderOptions(options);
    if (!error)
        return STATUS_OK;
    char *message = LLVMGetErrorMessage(error);
    diag(s, no_span, backend_llvm, message);
    LLVMDisposeErrorMessage(message);
    return STATUS_BUG;
}

Status emit_module_finish(Session *s, LLVMModuleRef module, LLVMTargetMachineRef machine,
                          const char *dump_dir, const char *name)
{
    if (dump_dir)
        TRY(dump(s, module, dump_dir, name, ".ll"));
    TRY(verify(s, module));
    TRY(optimise(s, module, machine));
    return dump_dir ? dump(s, module, dump_dir, name, ".opt.ll") : STATUS_OK;
}
