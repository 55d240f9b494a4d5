#include "runtime/run.h"

#include "base/diag.h"
#include "runtime/check_replicas.h"

/* A signal that one rank has got stops all of them after the same step. */
Status rt_run_stops(RtRun *run, bool *out_stops)
{
    int64_t stops = rt_signals_stop(run->signals);
    if (run->asked)
        stops = run->stops;
    else
        TRY(rt_world_sum_i64(run->rt->world, UINT32_MAX, &stops));
    run->asked = false;
    *out_stops = stops != 0;
    return STATUS_OK;
}

/* -- evaluation -- */

static Status eval_batches(RtRun *run, double *out_sum, int64_t *out_targets, uint64_t *out_batches)
{
    uint64_t n = rt_data_batches(run->eval_data);
    rt_data_seek(run->eval_data, 0);
    run->rt->agreed = false;
    *out_sum = 0;
    *out_targets = 0;
    for (*out_batches = 0; *out_batches < n; ++*out_batches) {
        double sum;
        bool stopped;
        TRY(rt_run_stops(run, &stopped));
        if (stopped)
            break;
        TRY(rt_data_next(run->eval_data, run->rt->arena.base));
        TRY(rt_eval(run->rt, &sum));
        *out_sum += sum; /* of all ranks: the plan has added them */
        *out_targets += rt_data_targets(run->eval_data);
        rt_progress_at(&run->rt->progress, *out_batches, n);
    }
    return rt_world_sum_i64(run->rt->world, PLAN_AXIS_DP | PLAN_AXIS_DPR, out_targets);
}

static Status evaluate(RtRun *run)
{
    double sum;
    int64_t targets;
    uint64_t batches;
    rt_progress_begin(&run->rt->progress, "evaluating");
    Status status = eval_batches(run, &sum, &targets, &batches);
    rt_progress_end(&run->rt->progress);
    if (status == STATUS_OK &&
        batches == rt_data_batches(run->eval_data)) /* a mean over a part would mislead */
        rt_log_eval(&run->log, run->rt->steps_done, sum / (double)(targets > 0 ? targets : 1),
                    targets, (int64_t)batches);
    return status;
}

/* -- saving -- */

static Status save(RtRun *run)
{
    Rt *rt = run->rt;
    if (run->saved_at == rt->steps_done)
        return STATUS_OK;
    RtReached reached = {
        .data_position = run->ahead ? run->ahead_position : rt_data_position(run->data),
        .steps = rt->steps_done,
        .data = rt_data_kind(run->data),
        .data_seed = (int64_t)rt_data_seed(run->data),
        .data_seq = (uint64_t)rt->plan.header->seq,
        .data_samples = rt_data_samples(run->data),
    };
    TRY(rt_before_save(rt));
    TRY(rt_checkpoint_save(run->s, rt->world, &rt->plan, rt->arena.base, &run->weights, &reached,
                           run->save_dir));
    rt_forget(rt);
    run->saved_at = rt->steps_done;
    rt_log_note(&run->log, "saved | step %lld | %s", (long long)rt->steps_done, run->save_dir);
    return STATUS_OK;
}

/* -- steps -- */

static Status dump(void *context)
{
    RtRun *run = context;
    const RtOptions *o = run->options;
    const Rt *rt = run->rt;
    if (o->dump_grads)
        TRY(rt_dump_grads(run->s, rt->world, &rt->plan, rt->arena.base, &run->weights,
                          o->dump_grads));
    if (o->dump_values)
        TRY(rt_dump_values(run->s, &rt->plan, rt->arena.base, o->dump_values));
    return STATUS_OK;
}

/* While a device works on a step, the host fetches the next one's batch and sends it ahead. */
static void fetch_ahead(RtRun *run)
{
    if (!run->more || !run->rt->kind)
        return;
    run->ahead = true;
    run->ahead_position = rt_data_position(run->data);
    run->ahead_status = rt_data_next(run->data, run->rt->arena.base);
    if (run->ahead_status == STATUS_OK)
        run->ahead_status = rt_stage(run->rt);
}

/* Whether all ranks go on after this step, too. A rank that is lost is said when the step ends. */
static void ask_ahead(RtRun *run)
{
    RtWorld *world = run->rt->world;
    run->stops = rt_signals_stop(run->signals);
    run->asked = world && run->rt->kind && rt_world_sum(world, UINT32_MAX, &run->stops);
}

Status rt_run_step(RtRun *run, RtHookFn before_update, RtStepResult *out_result,
                   double *out_seconds)
{
    Rt *rt = run->rt;
    int64_t begin = rt_clock_ns();
    rt->agreed = false;
    TRY(run->ahead ? run->ahead_status : rt_data_next(run->data, rt->arena.base));
    run->ahead = false;
    float lr = (float)rt_schedule_lr(&run->schedule, rt->steps_done);
    TRY(rt_step_begin(rt, lr, before_update, run));
    fetch_ahead(run);
    ask_ahead(run);
    TRY(rt_step_end(rt, out_result));
    int64_t ns = rt_clock_ns() - begin;
    *out_seconds = (double)ns / 1e9;
    if (rt->kind)
        run->host_seconds = (double)(ns - rt->kind->busy_ns(rt->device)) / 1e9;
    return STATUS_OK;
}

/* The second step is the first that is like all others; a run of one step has no other. */
static bool is_profiled(const RtRun *run, int64_t i)
{
    int64_t first = run->n_steps > 1 ? 1 : 0;
    return run->options->profile && rt_is_first(run->rt->world) && i >= first &&
           i < first + RT_PROFILE_STEPS;
}

static Status one_step(RtRun *run, int64_t i)
{
    Rt *rt = run->rt;
    const RtOptions *o = run->options;
    RtStepResult result;
    double seconds;
    rt->profile = is_profiled(run, i) ? &run->profile : NULL;
    bool dumps = i == 0 && (o->dump_grads || o->dump_values);
    run->more = i + 1 < run->n_steps;
    TRY(rt_run_step(run, dumps ? dump : NULL, &result, &seconds));
    rt_log_step(&run->log, &result, seconds);
    if (!result.targets && !run->said_no_targets) {
        run->said_no_targets = true;
        rt_log_note(&run->log,
                    "note: step %lld has 0 label tokens: every label is ignored, and the loss is 0",
                    (long long)result.step);
    }
    if (rt->skips < rt->settings.max_skips)
        return STATUS_OK;
    diag(run->s, no_span, run_skipped, (long long)rt->skips);
    return rt_agree(rt, STATUS_USER);
}

static bool is_due(int64_t every, int64_t step)
{
    return every > 0 && step % every == 0;
}

static Status between_steps(RtRun *run, bool last)
{
    const Rt *rt = run->rt;
    if (run->eval_data && (last || is_due(rt->settings.val_every_steps, rt->steps_done)))
        TRY(evaluate(run));
    if (run->save_dir && (last || is_due(rt->settings.ckpt_every_steps, rt->steps_done)))
        TRY(save(run));
    return STATUS_OK;
}

static Status check_replicas(RtRun *run)
{
    Rt *rt = run->rt;
    TRY(rt_agree(rt, rt_fetch(rt)));
    TRY(rt_check_replicas(run->s, rt->world, &rt->plan, rt->arena.base));
    rt_forget(rt);
    return STATUS_OK;
}

Status rt_train(RtRun *run)
{
    bool stopped;
    TRY(rt_run_stops(run, &stopped));
    for (int64_t i = 0; i < run->n_steps && !stopped; i++) {
        TRY(one_step(run, i));
        TRY(rt_run_stops(run, &stopped));
        if (!stopped && i + 1 < run->n_steps)
            TRY(between_steps(run, false));
    }
    if (stopped)
        rt_log_note(&run->log, "interrupted | step %lld", (long long)run->rt->steps_done);
    TRY(between_steps(run, true));
    if (run->options->check && run->rt->world)
        TRY(check_replicas(run));
    if (run->options->profile && rt_is_first(run->rt->world))
        TRY(rt_profile_write(run->s, &run->rt->plan, &run->profile, run->options->profile));
    return STATUS_OK;
}
