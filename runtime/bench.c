#include <stdlib.h>

#include "base/diag.h"
#include "runtime/memory.h"
#include "runtime/run.h"

enum { WARM_UP_STEPS = 2 }; /* not more than RT_PROFILE_STEPS */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

typedef struct Times {
    int64_t n;
    double *seconds, *host; /* of each step; host: in which the device waited for its host */
    double start;           /* from the program's start to the end of its first step */
    bool stopped;           /* by a signal, on all ranks: the times are not all there */
} Times;

/* host: NULL: unread. A step whose update is skipped has not done its work: an error. */
static Status time_steps(RtRun *run, int64_t n, double *seconds, double *host, bool *out_stopped)
{
    RtStepResult result;
    TRY(rt_run_stops(run, out_stopped));
    for (int64_t i = 0; i < n && !*out_stopped; i++) {
        TRY(rt_run_step(run, NULL, &result, &seconds[i]));
        if (result.skipped) {
            diag(run->s, no_span, bench_skipped, (long long)result.step);
            return rt_agree(run->rt, STATUS_USER);
        }
        if (host)
            host[i] = run->host_seconds;
        TRY(rt_run_stops(run, out_stopped));
    }
    return STATUS_OK;
}

static Status time_all(RtRun *run, Times *t)
{
    double unread[RT_PROFILE_STEPS];
    TRY(time_steps(run, 1, unread, NULL, &t->stopped));
    t->start = (double)(rt_clock_ns() - run->begin_ns) / 1e9;
    if (!t->stopped)
        TRY(time_steps(run, WARM_UP_STEPS - 1, unread, NULL, &t->stopped));
    if (!t->stopped)
        TRY(time_steps(run, t->n, t->seconds, t->host, &t->stopped));
    run->rt->profile = &run->profile;
    if (!t->stopped)
        TRY(time_steps(run, RT_PROFILE_STEPS, unread, NULL, &t->stopped));
    run->rt->profile = NULL;
    return STATUS_OK;
}

/* Sorts them. */
static double median_of(double *seconds, int64_t n)
{
    qsort(seconds, (size_t)n, sizeof *seconds, by_value);
    return n % 2 ? seconds[n / 2] : (seconds[n / 2 - 1] + seconds[n / 2]) / 2;
}

static void print_speed(const RtRun *run, const Times *t, double median, FILE *out)
{
    const double *seconds = t->seconds; /* sorted */
    const PlanHeader *header = run->rt->plan.header;
    fprintf(out, "bench | steps %lld | threads %u | ms_per_step median %.4f min %.4f max %.4f\n",
            (long long)t->n, rt_pool_threads(run->rt->pool), median * 1e3, seconds[0] * 1e3,
            seconds[t->n - 1] * 1e3);
    fprintf(out, "bench | tokens_per_s %.2f | gflop_per_s %.2f | arena_bytes %llu\n",
            run->log.tokens / median, (double)header->flops_per_step / median / 1e9,
            (unsigned long long)header->arena_bytes);
}

static void print_start(const RtRun *run, double start, FILE *out)
{
    fprintf(out, "bench | seconds_to_first_step %.2f | of them weights %.2f\n", start,
            run->weights_seconds);
}

/* The share of a pipeline's forward and backward time in which its stages wait for each other: from
 * the times of their instructions, launched one by one. All ranks come here. */
static Status measure_bubble(const RtRun *run, double median, double *out_bubble)
{
    RtWorld *world = run->rt->world;
    int64_t work, update;
    rt_profile_work(&run->rt->plan, &run->profile, &work, &update);
    TRY(rt_world_sum_i64(world, UINT32_MAX, &work));
    TRY(rt_world_sum_i64(world, UINT32_MAX, &update));
    *out_bubble = 1 - (double)work / (median * 1e9 * world->size - (double)update);
    return STATUS_OK;
}

static Status print_memory(const RtRun *run, double median, FILE *out)
{
    const Rt *rt = run->rt;
    if (rt->kind)
        return rt->kind->report(rt->device, median, out);
    RtMemory memory;
    rt_memory_measure(rt, &memory);
    rt_memory_print(&memory, out);
    return STATUS_OK;
}

Status rt_bench(RtRun *run)
{
    Rt *rt = run->rt;
    Times t = {.n = run->options->bench};
    t.seconds = ARENA_ARRAY(run->s->arena, double, t.n);
    t.host = ARENA_ARRAY(run->s->arena, double, t.n);
    run->more = true;
    TRY(time_all(run, &t));
    if (t.stopped) {
        rt_log_note(&run->log, "interrupted | step %lld", (long long)rt->steps_done);
        return STATUS_OK;
    }
    double bubble = 0, median = median_of(t.seconds, t.n);
    bool is_pipeline = rt->world && rt->world->mesh.pp > 1;
    if (is_pipeline)
        TRY(measure_bubble(run, median, &bubble));
    if (!rt_is_first(rt->world))
        return STATUS_OK;
    print_speed(run, &t, median, stdout);
    print_start(run, t.start, stdout);
    if (rt->kind)
        printf("bench | host_ms_per_step median %.4f\n", median_of(t.host, t.n) * 1e3);
    if (is_pipeline)
        printf("bench | bubble %.1f %%\n", bubble * 100);
    rt_profile_kernels(&rt->plan, &run->profile, stdout);
    TRY(print_memory(run, median, stdout));
    if (run->options->profile)
        TRY(rt_profile_write(run->s, &rt->plan, &run->profile, run->options->profile));
    return STATUS_OK;
}
