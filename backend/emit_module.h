/* emit_module: what every LLVM module goes through: verified, optimised, printed. */
#ifndef BACKEND_EMIT_MODULE_H
#define BACKEND_EMIT_MODULE_H

#include <llvm-c/Core.h>
#include <llvm-c/TargetMachine.h>

#include "base/session.h"

/* A context whose errors become diagnostics of the session. */
LLVMContextRef emit_module_context(Session *s);
/* dump_dir: gets `NAME.ll` and, optimised, `NAME.opt.ll`; or NULL. */
Status emit_module_finish(Session *s, LLVMModuleRef module, LLVMTargetMachineRef machine,
                          const char *dump_dir, const char *name);

#endif
