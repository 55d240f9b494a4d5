#include "runtime/exec.h"

#include "base/diag.h"
#include "runtime/comm.h"

RtGroup *rt_instr_group(const RtPlan *plan, RtGroup *groups, const PlanInstr *instr)
{
#define COMM(kernel) [PLAN_KERNEL_##kernel] = 1 + PLAN_##kernel##_comm
    static const uint32_t comm[PLAN_KERNEL_COUNT] = {
        COMM(all_gather),      COMM(reduce_scatter),    COMM(all_reduce), COMM(embed_part),
        COMM(send),            COMM(recv),
        COMM(embed_part_grad), COMM(norm_sq),           COMM(adamw),      COMM(sgd),
        COMM(lm_loss_part),    COMM(lm_loss_part_grad), COMM(take_part),
    };
#undef COMM
    uint32_t param = comm[instr->kernel];
    return param && groups ? &groups[plan->params[instr->first_param + param - 1].i] : NULL;
}

static void resolve_call(const RtExecRequest *q, const PlanInstr *instr, void **at, RtCall *call)
{
    const RtPlan *plan = q->plan;
    const PlanTensor *tensors = plan->tensors + instr->first_tensor;
    for (uint32_t i = 0; i < instr->n_tensors; i++)
        at[i] = tensors[i].offset == PLAN_ABSENT ? NULL : q->arena->base + tensors[i].offset;
    RtGroup *group = rt_instr_group(plan, q->groups, instr);
    *call = (RtCall){
        .instr = instr,
        .tensor = tensors,
        .param = plan->params + instr->first_param,
        .at = at,
        .workspace = instr->workspace == PLAN_ABSENT ? NULL : q->arena->base + instr->workspace,
        .code = instr->kernel == PLAN_KERNEL_fused ? &q->program->kernels[instr->code] : NULL,
        .group = group,
        .member = group ? group->self : 0,
        .random = q->random,
        .fault = q->fault,
    };
}

/* What plan_map could not check, because it does not see the native code. */
static const char *native_fault(const RtCall *call)
{
    const StepKernel *code = call->code;
    if (!code)
        return NULL;
    if (!code->rows_fn || code->rows < 0 || code->rows_per_chunk < 1 || code->cols < 0 ||
        code->partial_bytes < 0)
        return "its native code has an impossible shape";
    int64_t chunks = (code->rows + code->rows_per_chunk - 1) / code->rows_per_chunk;
    uint64_t bytes;
    if (__builtin_mul_overflow((uint64_t)chunks, (uint64_t)code->partial_bytes, &bytes) ||
        call->instr->workspace_bytes < bytes)
        return "the workspace is smaller than its native code needs";
    return NULL;
}

static uint32_t phases_of(const RtKernel *kernel, const RtCall *call)
{
    return kernel->phases ? kernel->phases(call) : 1;
}

static Status prepare_calls(Session *s, const RtExecRequest *q, void **at, RtExec *exec,
                            uint64_t *out_jobs)
{
    uint64_t n_jobs = 0;
    for (uint64_t i = 0; i < q->n_instrs; i++) {
        const PlanInstr *instr = &q->instrs[i];
        RtCall *call = &exec->calls[i];
        resolve_call(q, instr, at, call);
        at += instr->n_tensors;
        const char *fault = native_fault(call);
        if (fault) {
            diag(s, no_span, plan_record, "instruction", (unsigned long long)i, fault);
            return STATUS_ENV;
        }
        n_jobs += phases_of(&q->kernels[instr->kernel], call);
    }
    *out_jobs = n_jobs;
    return STATUS_OK;
}

static void prepare_jobs(const RtExecRequest *q, RtExec *exec)
{
    uint32_t n = 0;
    for (uint64_t i = 0; i < q->n_instrs; i++) {
        const RtKernel *kernel = &q->kernels[q->instrs[i].kernel];
        const RtCall *call = &exec->calls[i];
        uint32_t phases = phases_of(kernel, call);
        exec->first_job[i] = n;
        for (uint32_t phase = 0; phase < phases; phase++)
            exec->jobs[n++] =
                (RtJob){kernel->run, call, kernel->chunks ? kernel->chunks(call, phase) : 1, phase};
    }
    exec->first_job[q->n_instrs] = n;
}

Status rt_exec_prepare(Session *s, const RtExecRequest *request, RtExec *out_exec)
{
    uint64_t n = request->n_instrs, n_at = 0, n_jobs;
    for (uint64_t i = 0; i < n; i++)
        n_at += request->instrs[i].n_tensors;
    *out_exec = (RtExec){.instrs = request->instrs, .n_instrs = n, .fault = request->fault};
    out_exec->calls = ARENA_ARRAY(s->arena, RtCall, n);
    out_exec->first_job = ARENA_ARRAY(s->arena, uint32_t, n + 1);
    void **at = ARENA_ARRAY(s->arena, void *, n_at);
    TRY(prepare_calls(s, request, at, out_exec, &n_jobs));
    out_exec->jobs = ARENA_ARRAY(s->arena, RtJob, n_jobs);
    prepare_jobs(request, out_exec);
    out_exec->table_bytes =
        n * (sizeof(RtCall) + sizeof(uint32_t)) + n_at * sizeof(void *) + n_jobs * sizeof(RtJob);
    return STATUS_OK;
}

static void run_chunk(const void *context, uint32_t phase, uint64_t chunk, void *scratch)
{
    const RtJob *job = context;
    job->run(job->call, phase, chunk, scratch);
}

static bool raised(const RtFault *fault)
{
    return __atomic_load_n(&fault->raised, __ATOMIC_ACQUIRE);
}

static void run_job(const RtJob *job, RtPool *pool, void *scratch)
{
    if (job->chunks == 1)
        job->run(job->call, job->phase, 0, scratch);
    else
        rt_pool_run(pool, run_chunk, job, job->phase, job->chunks);
}

bool rt_exec_run(const RtExec *exec, uint64_t from, uint64_t to, RtPool *pool, uint64_t *out_instr)
{
    void *scratch = rt_pool_scratch(pool);
    const RtJob *end = exec->jobs + exec->first_job[to];
    for (const RtJob *job = exec->jobs + exec->first_job[from]; job < end; job++) {
        run_job(job, pool, scratch);
        if (__builtin_expect(raised(exec->fault), 0)) {
            *out_instr = (uint64_t)(job->call->instr - exec->instrs);
            return false;
        }
    }
    return true;
}

bool rt_exec_run_watched(const RtExec *exec, uint64_t from, uint64_t to, RtPool *pool,
                         RtWatchFn watch, void *context, uint64_t *out_instr)
{
    for (uint64_t i = from; i < to; i++) {
        if (!rt_exec_run(exec, i, i + 1, pool, out_instr))
            return false;
        watch(context, i);
    }
    return true;
}
