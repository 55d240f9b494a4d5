#include "runtime/rt.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/diag.h"

/* -- scalars in the arena -- */

static void *scalar_at(const Rt *rt, uint64_t offset)
{
    return offset == PLAN_ABSENT ? NULL : rt->arena.base + offset;
}

static void put_i64(const Rt *rt, uint64_t offset, int64_t value)
{
    int64_t *at = scalar_at(rt, offset);
    if (at)
        *at = value;
}

static double get_f64(const Rt *rt, uint64_t offset)
{
    const double *at = scalar_at(rt, offset);
    return at ? *at : 0;
}

/* -- opening -- */

/* Behind the norm, which has read all gradients; a plan without one: the first instruction that
 * changes a parameter. */
static uint64_t first_update(const RtPlan *plan)
{
    uint64_t i = plan->n_instrs;
    while (i && plan->instrs[i - 1].kernel != PLAN_KERNEL_grad_norm)
        i--;
    if (i)
        return i;
    while (i < plan->n_instrs && plan->instrs[i].kernel != PLAN_KERNEL_adamw &&
           plan->instrs[i].kernel != PLAN_KERNEL_sgd)
        i++;
    return i;
}

static Status prepare(Rt *rt, const RtKernel *kernels)
{
    const RtPlan *plan = &rt->plan;
    RtExecRequest request = {
        .plan = plan,
        .instrs = plan->instrs,
        .n_instrs = plan->n_instrs,
        .program = rt->program,
        .kernels = kernels,
        .arena = &rt->arena,
        .groups = rt->groups,
        .random = rt->random,
        .fault = &rt->fault,
    };
    TRY(rt_exec_prepare(rt->s, &request, &rt->train));
    request.instrs = plan->eval_instrs;
    request.n_instrs = plan->n_eval_instrs;
    TRY(rt_exec_prepare(rt->s, &request, &rt->eval));
    rt->update_from = first_update(plan);
    return STATUS_OK;
}

/* The host's arena is where the plan runs: all of it is taken now. */
static Status prepare_host(Rt *rt, const RtConfig *config)
{
    rt_arena_touch(&rt->arena, rt->pool);
    TRY(prepare(rt, config->kernels));
    for (uint32_t i = 0; i < PLAN_KERNEL_COUNT; i++)
        if (config->kernels[i].start)
            config->kernels[i].start(rt_pool_threads(rt->pool));
    if (rt->checking)
        rt_check_poison(&rt->check);
    return STATUS_OK;
}

/* The host's arena is a shadow, of which only what is read and written is ever there. */
static Status prepare_device(Rt *rt, const RtConfig *config)
{
    const RtPlan *plan = &rt->plan;
    rt->train = (RtExec){.instrs = plan->instrs, .n_instrs = plan->n_instrs};
    rt->eval = (RtExec){.instrs = plan->eval_instrs, .n_instrs = plan->n_eval_instrs};
    rt->update_from = first_update(plan);
    RtDeviceConfig device = {
        .plan = plan,
        .program = rt->program,
        .shadow = &rt->arena,
        .check = config->check,
        .graph = !config->no_graph,
        .copy_engines = !config->no_copy_engines,
        .tune = config->tune,
        .world = rt->world,
        .groups = rt->groups,
    };
    return rt->kind->prepare(rt->device, &device);
}

enum { DATA_AXES = PLAN_AXIS_DP | PLAN_AXIS_DPR };

static Status open_world(Rt *rt)
{
    const RtPlan *plan = &rt->plan;
    PlanMesh mesh = rt_mesh(plan->header);
    rt->n_data = rt_mesh_axes_size(&mesh, DATA_AXES);
    rt->agreed = true;
    TRY(rt_world_open(rt->s, plan->header, rt_plans_hash(plan->all),
                      rt->settings.timeout_minutes * 60, &rt->world));
    if (!rt->world)
        return STATUS_OK;
    rt->plan = plan->all[rt_mesh_at(&mesh, rt->world->rank).pp];
    rt->data_rank = rt_mesh_axes_place(&mesh, DATA_AXES, rt->world->rank);
    rt->groups = ARENA_ARRAY(rt->s->arena, RtGroup, plan->n_comms);
    for (uint64_t i = 0; i < plan->n_comms; i++)
        rt_group_open(rt->world, &plan->comms[i], rt_plan_string(plan, plan->comms[i].name),
                      &rt->groups[i]);
    return STATUS_OK;
}

/* One per processor; ranks of one machine share its processors. */
static uint32_t threads_of(const Rt *rt, const RtConfig *config)
{
    uint32_t cpus = rt_cpus(), share = cpus;
    if (rt->kind || config->threads)
        return rt->kind ? 1 : config->threads;
    if (rt->world)
        share = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN) / rt->world->local;
    share = share < cpus ? share : cpus;
    return share ? share : 1;
}

static Status open_all(Rt *rt, const RtConfig *config)
{
    Session *s = rt->s;
    const StepProgram *program = rt->program;
    rt->kind = config->device;
    Status opened = rt->kind ? rt->kind->open(s, &rt->device) : STATUS_OK;
    if (opened != STATUS_OK && !rt_is_launched())
        return opened;
    if (!rt->kind && program->n_kernels && !program->kernels) {
        diag(s, no_span, run_target);
        return STATUS_ENV;
    }
    const RtPlan *plans;
    TRY(rt_plans_map(s, program, &plans));
    rt->plan = plans[0];
    TRY(rt_settings_read(s, rt_plan_string(&rt->plan, rt->plan.header->settings), &rt->settings));
    TRY(open_world(rt));
    TRY(opened); /* the other ranks, which may have a device, are told */
    const PlanHeader *header = rt->plan.header;
    TRY(rt_pool_new(s, threads_of(rt, config), header->thread_scratch_bytes, &rt->pool));
    TRY(rt_arena_map(s, header->arena_bytes, &rt->arena));
    rt->seed_given = config->seed != NULL;
    rt->seed = config->seed ? *config->seed : rt->settings.seed;
    rt->checking = config->check;
    rt_progress_init(&rt->progress);
    rt->progress.on &= rt_is_first(rt->world);
    rt->check = (RtCheck){
        .s = s, .world = rt->world, .plan = &rt->plan, .arena = &rt->arena, .exec = &rt->train};
    return rt->kind ? prepare_device(rt, config) : prepare_host(rt, config);
}

Status rt_open(Session *s, const StepProgram *program, const RtConfig *config, Rt **out_rt)
{
    Rt *rt = ARENA_NEW(s->arena, Rt);
    rt->s = s;
    rt->program = program;
    Status status = rt_agree(rt, open_all(rt, config));
    if (status == STATUS_OK && rt->kind && rt->world)
        status = rt_agree(rt, rt->kind->join(rt->device));
    if (status == STATUS_OK)
        *out_rt = rt;
    else
        rt_close(rt, status);
    return status;
}

Status rt_agree(Rt *rt, Status status)
{
    status = rt_world_agree(rt->world, status);
    rt->agreed = !rt->world || !rt->world->lost[0];
    return status;
}

void rt_close(Rt *rt, Status status)
{
    if (!rt)
        return;
    if (rt->kind)
        rt->kind->close(rt->device);
    rt->device = NULL;
    rt_pool_free(rt->pool);
    rt->pool = NULL;
    rt_arena_unmap(&rt->arena);
    rt_world_close(rt->world, status, rt->agreed);
    rt->world = NULL;
}

int64_t rt_global_batch(const Rt *rt)
{
    const PlanHeader *header = rt->plan.header;
    return header->micro_batches * header->batch * (int64_t)rt->n_data;
}

void rt_resumed(Rt *rt, int64_t steps)
{
    const PlanScalars *scalars = &rt->plan.header->scalars;
    const int64_t *sample0 = scalar_at(rt, scalars->sample0);
    const int64_t *seed = scalar_at(rt, scalars->seed), *skipped = scalar_at(rt, scalars->skipped);
    rt->samples_done = sample0 ? *sample0 : 0;
    rt->steps_done = steps >= 0 ? steps : rt->samples_done / rt_global_batch(rt);
    if (rt->world)
        rt->world->steps_done = rt->steps_done;
    rt->skips = skipped ? *skipped : 0;
    rt->resumed = true;
    if (seed && !rt->seed_given)
        rt->seed = *seed;
}

Status rt_fetch(Rt *rt)
{
    for (uint64_t i = 0; rt->kind && i < rt->plan.n_states; i++)
        if (rt->plan.states[i].kind != PLAN_STATE_ACC)
            TRY(rt->kind->get(rt->device, rt->plan.states[i].offset, rt->plan.states[i].bytes));
    return STATUS_OK;
}

void rt_forget(Rt *rt)
{
    for (uint64_t i = 0; rt->kind && i < rt->plan.n_states; i++)
        rt->kind->forget(rt->device, rt->plan.states[i].offset, rt->plan.states[i].bytes);
}

Status rt_before_save(Rt *rt)
{
    const PlanHeader *header = rt->plan.header;
    TRY(rt_fetch(rt));
    put_i64(rt, header->scalars.seed, rt->seed);
    put_i64(rt, header->scalars.sample0, rt->samples_done);
    return STATUS_OK;
}

void rt_check_loaded(Rt *rt)
{
    if (rt->checking)
        rt_check_states(&rt->check);
}

static bool is_loaded(const Rt *rt, const PlanState *state)
{
    bool moment = state->kind == PLAN_STATE_MOMENT1 || state->kind == PLAN_STATE_MOMENT2;
    return state->kind != PLAN_STATE_ACC && (rt->resumed || !moment);
}

Status rt_loaded(Rt *rt)
{
    rt_check_loaded(rt);
    for (uint64_t i = 0; rt->kind && i < rt->plan.n_states; i++)
        if (is_loaded(rt, &rt->plan.states[i]))
            TRY(rt->kind->put(rt->device, rt->plan.states[i].offset, rt->plan.states[i].bytes));
    return STATUS_OK;
}

int32_t *rt_input(const Rt *rt, const char *name, int64_t micro_batch)
{
    for (uint64_t i = 0; i < rt->plan.n_inputs; i++) {
        const PlanInput *input = &rt->plan.inputs[i];
        if (!strcmp(rt_plan_string(&rt->plan, input->name), name))
            return (int32_t *)(void *)(rt->arena.base + input->offset +
                                       (uint64_t)micro_batch * input->stride_bytes);
    }
    return NULL;
}

/* -- running -- */

static void watch(void *context, uint64_t instr)
{
    Rt *rt = context;
    if (rt->profile)
        rt_profile_mark(rt->profile, instr);
    rt_progress_at(&rt->progress, instr, rt->check.exec->n_instrs);
    if (!rt->checking)
        return;
    rt_check_after(&rt->check, instr);
    if (rt->profile)
        rt->profile->last = rt_clock_ns();
}

static Status run_device(Rt *rt, const RtExec *exec, uint64_t from, uint64_t to)
{
    RtDeviceRun piece = {
        .eval = exec == &rt->eval,
        .from = from,
        .to = to,
        .step = rt->check.step,
        .profile = rt->profile,
    };
    memcpy(piece.random, rt->random, sizeof piece.random);
    return rt->kind->launch(rt->device, &piece);
}

static Status run(Rt *rt, const RtExec *exec, uint64_t from, uint64_t to)
{
    if (rt->kind)
        return run_device(rt, exec, from, to);
    uint64_t at;
    bool watched = rt->checking || rt->profile || rt->progress.on;
    if (watched ? rt_exec_run_watched(exec, from, to, rt->pool, watch, rt, &at)
                : rt_exec_run(exec, from, to, rt->pool, &at))
        return STATUS_OK;
    const PlanInstr *instr = &exec->instrs[at];
    rt_progress_end(&rt->progress);
    rt->agreed = false;
    if (rt->world && rt->world->lost[0]) {
        diag(rt->s, no_span, run_lost, (long long)(rt->steps_done + 1),
             rt_plan_string(&rt->plan, instr->name), rt_plan_file(&rt->plan, instr->file),
             instr->line, rt->fault.message, (long long)rt->steps_done);
        return STATUS_ENV;
    }
    diag(rt->s, no_span, run_fault, (long long)(rt->steps_done + 1),
         rt_plan_string(&rt->plan, instr->name), rt_plan_file(&rt->plan, instr->file), instr->line,
         rt->fault.message);
    return STATUS_USER;
}

static void set_scalars(Rt *rt, float lr)
{
    const PlanHeader *header = rt->plan.header;
    const PlanScalars *scalars = &header->scalars;
    float *lr_at = scalar_at(rt, scalars->lr);
    if (lr_at)
        *lr_at = lr;
    rt->random[0] = rt->steps_done;
    rt->random[1] = rt->seed;
    rt->random[2] = rt->samples_done + rt->data_rank * header->micro_batches * header->batch;
    put_i64(rt, scalars->seed, rt->seed);
    put_i64(rt, scalars->sample0, rt->random[2]);
}

static void read_scalars(Rt *rt, float lr, RtStepResult *result)
{
    const PlanScalars *scalars = &rt->plan.header->scalars;
    const int64_t *count = scalar_at(rt, scalars->count);
    const float *coef = scalar_at(rt, scalars->coef);
    *result = (RtStepResult){
        .step = rt->steps_done,
        .loss = get_f64(rt, scalars->loss),
        .norm = get_f64(rt, scalars->norm),
        .lr = lr,
        .targets = count ? *count : 0,
        .skipped = coef && *coef == 0,
    };
}

static Status get_tensor(Rt *rt, const PlanTensor *tensor)
{
    return rt->kind->get(rt->device, tensor->offset, rt_tensor_bytes(tensor));
}

/* What the hook reads of the arena comes over from the device. */
static Status fetch_for_hook(Rt *rt)
{
    const RtPlan *plan = &rt->plan;
    if (!rt->kind)
        return STATUS_OK;
    TRY(rt->kind->finish(rt->device));
    for (uint64_t i = 0; i < plan->n_grads; i++)
        TRY(get_tensor(rt, &plan->grads[i].tensor));
    for (uint64_t i = 0; i < plan->n_kept; i++)
        TRY(get_tensor(rt, &plan->kept[i].tensor));
    return STATUS_OK;
}

Status rt_stage(Rt *rt)
{
    rt->staged = true;
    return rt->kind ? rt->kind->stage(rt->device, false) : STATUS_OK;
}

Status rt_step_begin(Rt *rt, float lr, RtHookFn before_update, void *context)
{
    rt->lr = lr;
    set_scalars(rt, lr);
    if (!rt->staged)
        TRY(rt_stage(rt));
    rt->staged = false;
    rt->check.exec = &rt->train;
    rt->check.step = rt->steps_done + 1;
    rt_progress_begin(&rt->progress, "step %lld", (long long)(rt->steps_done + 1));
    if (rt->profile)
        rt_profile_begin(rt->profile, rt->steps_done + 1);
    if (!before_update)
        return run(rt, &rt->train, 0, rt->train.n_instrs);
    TRY(run(rt, &rt->train, 0, rt->update_from));
    TRY(fetch_for_hook(rt));
    TRY(before_update(context));
    if (rt->profile)
        rt->profile->last = rt_clock_ns();
    return run(rt, &rt->train, rt->update_from, rt->train.n_instrs);
}

Status rt_step_end(Rt *rt, RtStepResult *out_result)
{
    if (rt->kind)
        TRY(rt->kind->finish(rt->device));
    if (rt->profile)
        rt_profile_end(rt->profile);
    rt_progress_end(&rt->progress);
    rt->steps_done++;
    rt->samples_done += rt_global_batch(rt);
    if (rt->world)
        rt->world->steps_done = rt->steps_done;
    read_scalars(rt, rt->lr, out_result);
    rt->skips = out_result->skipped ? rt->skips + 1 : 0;
    return STATUS_OK;
}

Status rt_step(Rt *rt, float lr, RtHookFn before_update, void *context, RtStepResult *out_result)
{
    TRY(rt_step_begin(rt, lr, before_update, context));
    return rt_step_end(rt, out_result);
}

Status rt_eval(Rt *rt, double *out_sum)
{
    double *sum = scalar_at(rt, rt->plan.header->scalars.eval_sum);
    if (sum)
        *sum = 0;
    rt->check.exec = &rt->eval;
    rt->check.step = rt->steps_done;
    RtProfile *profile = rt->profile;
    rt->profile = NULL;
    Status status = rt->kind ? rt->kind->stage(rt->device, true) : STATUS_OK;
    if (status == STATUS_OK)
        status = run(rt, &rt->eval, 0, rt->eval.n_instrs);
    if (status == STATUS_OK && rt->kind)
        status = rt->kind->finish(rt->device);
    rt->profile = profile;
    *out_sum = sum ? *sum : 0;
    return status;
}
