#include "runtime/run.h"

#include <errno.h>

#include "base/diag.h"
#include "runtime/memory.h"

static Status need(Session *s, const char *option, uint64_t have, const char *what, const char *how)
{
    if (!option || have)
        return STATUS_OK;
    diag(s, no_span, option_plan, option, what, how);
    return STATUS_USER;
}

/* What the options ask of the plan. */
static Status check_plan(RtRun *run)
{
    const RtOptions *o = run->options;
    const RtPlan *plan = &run->rt->plan;
    uint64_t n_grads = 0; /* of all stages */
    for (uint32_t i = 0; i < plan->n_all; i++)
        n_grads += plan->all[i].n_grads;
    TRY(need(run->s, o->dump_values ? "--dump-values" : NULL, plan->n_kept, "values",
             "build with `--keep=GLOB`"));
    TRY(need(run->s, o->dump_grads ? "--dump-grads" : NULL, n_grads, "gradients",
             "every parameter is frozen"));
    TRY(need(run->s, o->tune ? "--tune" : NULL, run->rt->kind != NULL, "a device",
             "build with `--target cuda`"));
    TRY(need(run->s, o->no_graph ? "--no-graph" : NULL, run->rt->kind != NULL, "a device",
             "build with `--target cuda`"));
    TRY(need(run->s, o->no_copy_engines ? "--no-copy-engines" : NULL, run->rt->kind != NULL,
             "a device", "build with `--target cuda`"));
    if (run->rt->world && o->dump_values) {
        diag(run->s, no_span, ranks_option, "--dump-values", run->rt->world->size);
        return STATUS_USER;
    }
    return need(run->s, o->eval ? "--eval" : NULL, plan->n_eval_instrs, "an evaluation",
                "the recipe it was built from has none");
}

/* -- data -- */

/* --seed's, else that of the run that goes on, else the recipe's. */
static Status find_data_seed(const RtRun *run, int64_t *out_seed)
{
    const RtOptions *o = run->options;
    *out_seed = o->seed != RT_OPTION_ABSENT ? o->seed : run->rt->settings.data_seed;
    if (!o->resume || o->seed != RT_OPTION_ABSENT)
        return STATUS_OK;
    RtReached reached;
    TRY(rt_checkpoint_reached(run->s, &run->rt->plan, o->resume, &reached));
    if (reached.data_seed >= 0)
        *out_seed = reached.data_seed;
    return STATUS_OK;
}

static Status open_data(RtRun *run)
{
    const RtOptions *o = run->options;
    const RtSettings *settings = &run->rt->settings;
    const char *path = o->data ? o->data : o->batch ? NULL : settings->data_path;
    int64_t seed;
    TRY(find_data_seed(run, &seed));
    RtDataOptions options = {
        .batch = o->batch,
        .path = path,
        .seed = (uint64_t)seed,
        .ignore_index = &settings->ignore_index,
        .n_ranks = run->rt->n_data,
        .rank = run->rt->data_rank,
    };
    TRY(rt_data_open(run->s, &run->rt->plan, &options, &run->data));
    if (settings->dataset && !path && !o->batch)
        rt_log_note(&run->log, "note: dataset `%s` is not read: tokens are drawn from seed %lld",
                    settings->dataset, (long long)seed);
    return STATUS_OK;
}

static Status open_eval(RtRun *run)
{
    const RtSettings *settings = &run->rt->settings;
    const char *path = run->options->eval ? run->options->eval : settings->eval_path;
    bool bench = run->options->bench != RT_OPTION_ABSENT;
    if (bench || !run->rt->plan.n_eval_instrs)
        return STATUS_OK;
    if (!path && settings->val_every_steps)
        rt_log_note(
            &run->log,
            "note: nothing is evaluated: `val_every_steps` is %lld, but there are no data to "
            "evaluate on (`--eval PATH`)",
            (long long)settings->val_every_steps);
    if (!path)
        return STATUS_OK;
    RtDataOptions options = {.path = path, .eval = true, .ignore_index = &settings->ignore_index,
                             .n_ranks = run->rt->n_data, .rank = run->rt->data_rank};
    return rt_data_open(run->s, &run->rt->plan, &options, &run->eval_data);
}

/* -- weights -- */

/* A place in the data is a number of samples: of other samples it is another place. */
static void compare_data(RtRun *run, const RtReached *before)
{
    const char *kind = rt_data_kind(run->data);
    uint64_t seq = (uint64_t)run->rt->plan.header->seq, samples = rt_data_samples(run->data);
    if (before->data && strcmp(before->data, kind))
        rt_log_note(&run->log, "note: the run before read `%s` data, this one reads `%s` data",
                    before->data, kind);
    else if (before->data_seq && before->data_seq != seq)
        rt_log_note(&run->log,
                    "note: the run before read samples of %llu tokens, this one reads samples of "
                    "%llu and goes on at sample %llu",
                    (unsigned long long)before->data_seq, (unsigned long long)seq,
                    (unsigned long long)before->data_position);
    else if (before->data_seq && before->data_samples != samples)
        rt_log_note(&run->log,
                    "note: the run before read data of %llu samples, this one reads data of %llu",
                    (unsigned long long)before->data_samples, (unsigned long long)samples);
}

static Status load_weights(RtRun *run)
{
    Rt *rt = run->rt;
    const RtOptions *o = run->options;
    const char *dir = o->weights ? o->weights : rt->settings.weights_dir;
    if (o->resume) {
        RtReached reached;
        TRY(rt_checkpoint_resume(run->s, rt->world, &rt->plan, rt->arena.base, o->resume,
                                 &run->weights, &reached));
        rt_data_seek(run->data, reached.data_position);
        rt_resumed(rt, reached.steps);
        rt_log_note(&run->log, "resumed | step %lld | %s", (long long)rt->steps_done, o->resume);
        compare_data(run, &reached);
    } else if (dir) {
        TRY(rt_weights_load(run->s, rt->world, &rt->plan, rt->arena.base, dir, &run->weights));
        rt_log_note(&run->log, "weights | %s", dir);
    } else {
        TRY(rt_weights_init(run->s, rt->world, &rt->plan, rt->arena.base, (uint64_t)rt->seed,
                            &run->weights));
        rt_log_note(&run->log, "weights | from seed %lld", (long long)rt->seed);
    }
    return rt_loaded(rt);
}

/* -- how long -- */

/* The recipe's length of the whole run in steps; -1: it says none. Epochs are counted in samples:
 * the steps before a resume may have taken more or fewer of them than a step does now. */
static int64_t recipe_steps(const RtRun *run)
{
    const Rt *rt = run->rt;
    const RtSettings *settings = &rt->settings;
    uint64_t batches = rt_data_batches(run->data);
    if (settings->max_steps >= 0)
        return settings->max_steps;
    int64_t steps;
    if (settings->num_epochs < 0 || !batches)
        return -1;
    if (__builtin_mul_overflow(settings->num_epochs, batches, &steps) ||
        __builtin_add_overflow(steps, rt->steps_done - rt->samples_done / rt_global_batch(rt),
                               &steps))
        return INT64_MAX;
    return steps > 0 ? steps : 0;
}

static Status length_error(const RtRun *run)
{
    uint64_t samples = rt_data_samples(run->data);
    if (run->rt->settings.num_epochs < 0)
        diag(run->s, no_span, run_length);
    else if (samples)
        diag(run->s, no_span, run_epochs_short, (unsigned long long)samples,
             (long long)rt_global_batch(run->rt));
    else
        diag(run->s, no_span, run_epochs);
    return STATUS_USER;
}

/* What is written of the first step, or of a few, needs one. */
static Status check_steps(const RtRun *run, int64_t whole)
{
    const RtOptions *o = run->options;
    const char *option = o->dump_grads    ? "--dump-grads"
                         : o->dump_values ? "--dump-values"
                         : o->profile     ? "--profile"
                                          : NULL;
    if (run->n_steps || !option)
        return STATUS_OK;
    diag(run->s, no_span, run_done, option, (long long)whole);
    return STATUS_USER;
}

static Status set_length(RtRun *run)
{
    const RtOptions *o = run->options;
    int64_t whole = recipe_steps(run), done = run->rt->steps_done;
    if (o->bench != RT_OPTION_ABSENT)
        run->n_steps = o->bench;
    else if (o->steps != RT_OPTION_ABSENT)
        run->n_steps = o->steps;
    else if (whole >= 0)
        run->n_steps = whole > done ? whole - done : 0;
    else
        return length_error(run);
    TRY(check_steps(run, whole));
    run->schedule = run->rt->settings.lr;
    rt_schedule_resolve(&run->schedule, whole >= 0 ? whole : done + run->n_steps);
    return STATUS_OK;
}

/* -- the whole -- */

static void say_plan(RtRun *run)
{
    const Rt *rt = run->rt;
    const PlanHeader *h = rt->plan.header;
    char text[32];
    rt_log_note(&run->log,
                "arena | %llu B (%s) planned, %llu B allocated | %u threads | %lld micro-batches "
                "of %lld x %lld%s",
                (unsigned long long)h->arena_bytes, rt_bytes_text(h->arena_bytes, text),
                (unsigned long long)rt->arena.bytes, rt_pool_threads(rt->pool),
                (long long)h->micro_batches, (long long)h->batch, (long long)h->seq,
                rt->world ? " on each rank" : "");
    if (rt->world)
        rt_log_note(&run->log, "ranks | %u: tp %u, dp %u, dpr %u, pp %u | over %s", rt->world->size,
                    rt->world->mesh.tp, rt->world->mesh.dp, rt->world->mesh.dpr, rt->world->mesh.pp,
                    rt->world->transport->name);
}

/* What must not stay silent of the data and the weights, once both are there. */
static void say_records(const Session *s)
{
    for (uint32_t i = 0; i < s->records.n; i++)
        fprintf(s->diag_out, "record: %s\n", s->records.at[i].message);
}

/* What is written at the end, or after a step: that it can be is found out before. */
static Status check_outputs(const RtRun *run)
{
    const RtOptions *o = run->options;
    const char *const files[] = {o->profile, o->dump_grads, o->dump_values};
    for (uint32_t i = 0; i < sizeof files / sizeof *files; i++)
        if (files[i])
            TRY(rt_file_check(run->s, files[i]));
    return run->save_dir ? rt_checkpoint_check(run->s, run->save_dir) : STATUS_OK;
}

static Status prepare(RtRun *run)
{
    const RtOptions *o = run->options;
    Rt *rt = run->rt;
    bool bench = o->bench != RT_OPTION_ABSENT;
    TRY(check_plan(run));
    TRY(rt_log_open(run->s, rt, o->log, o->resume != NULL, &run->log));
    say_plan(run);
    run->saved_at = -1;
    run->save_dir = bench ? NULL : o->save ? o->save : rt->settings.save_dir;
    if (rt_is_first(rt->world))
        TRY(check_outputs(run));
    TRY(open_data(run));
    TRY(open_eval(run));
    int64_t begin = rt_clock_ns();
    TRY(load_weights(run));
    run->weights_seconds = (double)(rt_clock_ns() - begin) / 1e9;
    say_records(run->s);
    TRY(set_length(run));
    if (bench || o->profile)
        rt_profile_init(run->s, rt->plan.n_instrs, &run->profile);
    return STATUS_OK;
}

/* Ranks on several machines read their own copies of files. */
static Status compare_ranks(RtRun *run)
{
    const Rt *rt = run->rt;
    const RtWord words[] = {{"seed", (uint64_t)rt->seed},
                            {"fingerprint of the weights", run->weights.fingerprint},
                            {"count of steps done", (uint64_t)rt->steps_done},
                            {"count of steps to do", (uint64_t)run->n_steps},
                            {"seed of the data", rt_data_seed(run->data)},
                            {"place in the data", rt_data_position(run->data)},
                            {"count of batches in the data", rt_data_batches(run->data)}};
    return rt_world_same(rt->world, words, sizeof words / sizeof *words);
}

/* All ranks come here, whatever became of their `prepare`. */
static Status prepare_all(RtRun *run)
{
    RtWorld *world = run->rt->world;
    Status status = prepare(run);
    rt_world_allow(world, rt_tensors_bytes(&run->weights.tensors));
    status = rt_agree(run->rt, status);
    rt_world_allow(world, 0);
    TRY(status);
    TRY(rt_agree(run->rt, compare_ranks(run)));
    rt_log_begin(&run->log);
    return STATUS_OK;
}

static void close_run(RtRun *run, Status status)
{
    rt_weights_release(&run->weights);
    rt_data_close(run->eval_data);
    rt_data_close(run->data);
    rt_log_close(&run->log);
    rt_close(run->rt, status);
    rt_signals_free(run->signals);
}

/* What the device would do with the plan, where there is one: that there is none is said, and no
 * error here. */
static Status describe_device(Session *s, const StepProgram *program, const RtPlan *plan,
                              const RtDeviceKind *kind)
{
    RtDevice *device = NULL;
    fflush(stdout);
    Status status = kind->open(s, &device);
    if (status == STATUS_OK)
        status = kind->describe(device, plan, program, stdout);
    else
        status = STATUS_OK;
    kind->close(device);
    return status;
}

static Status describe(Session *s, const StepProgram *program, const RtDeviceKind *device,
                       const RtOptions *o)
{
    const RtPlan *plans;
    TRY(rt_plans_map(s, program, &plans));
    for (uint32_t i = 0; i < plans->n_all; i++) {
        if (plans->n_all > 1)
            printf("stage | %u of %u\n", i, plans->n_all);
        rt_describe(&plans[i], o->threads != RT_OPTION_ABSENT ? (uint32_t)o->threads : rt_cpus(),
                    stdout);
    }
    return device ? describe_device(s, program, plans, device) : STATUS_OK;
}

Status rt_run_program(Session *s, const StepProgram *program, const RtKernel *kernels, int argc,
                      char **argv)
{
    return rt_run_program_on(s, program, kernels, NULL, argc, argv);
}

static Status run_program(Session *s, const StepProgram *program, const RtKernel *kernels,
                          const RtDeviceKind *device, int argc, char **argv)
{
    RtOptions options;
    TRY(rt_options_parse(s, argc, argv, &options));
    if (options.help) {
        rt_options_help(stdout, argv[0]);
        return STATUS_OK;
    }
    if (options.describe)
        return describe(s, program, device, &options);
    RtRun run = {.s = s,
                 .options = &options,
                 .log = {.out = -1, .fd = -1},
                 .begin_ns = rt_clock_ns()};
    RtConfig config = {
        .threads = options.threads != RT_OPTION_ABSENT ? (uint32_t)options.threads : 0,
        .check = options.check,
        .seed = options.seed != RT_OPTION_ABSENT ? &options.seed : NULL,
        .kernels = kernels,
        .device = device,
        .no_graph = options.no_graph,
        .no_copy_engines = options.no_copy_engines,
        .tune = options.tune,
    };
    Status status = rt_signals_new(s, &run.signals);
    if (status == STATUS_OK)
        status = rt_open(s, program, &config, &run.rt);
    if (status == STATUS_OK)
        status = prepare_all(&run);
    if (status == STATUS_OK)
        status = options.bench != RT_OPTION_ABSENT ? rt_bench(&run) : rt_train(&run);
    if (status == STATUS_OK)
        status = rt_agree(run.rt, rt_log_close(&run.log));
    close_run(&run, status);
    return status;
}

/* What describes and measures is printed through stdio. */
static Status flush_output(Session *s)
{
    int error = fflush(stdout) ? errno : ferror(stdout) ? EIO : 0;
    if (!error)
        return STATUS_OK;
    diag(s, no_span, file_write, "standard output", strerror(error));
    return STATUS_ENV;
}

Status rt_run_program_on(Session *s, const StepProgram *program, const RtKernel *kernels,
                         const RtDeviceKind *device, int argc, char **argv)
{
    Status status = run_program(s, program, kernels, device, argc, argv);
    return status == STATUS_OK ? flush_output(s) : status;
}
