#include "base/diag.h"
#include "runtime/cuda/launch_view.h"

Status rt_cuda_refuse(RtCuda *cuda, const RtCall *call, const char *why)
{
    const PlanInstr *instr = call->instr;
    diag(cuda->s, no_span, cuda_instr, (unsigned long long)rt_cuda_number(cuda, call),
         rt_plan_string(cuda->plan, instr->name), rt_plan_file(cuda->plan, instr->file),
         instr->line, why);
    return STATUS_ENV;
}
