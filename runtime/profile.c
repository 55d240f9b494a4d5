#include "runtime/profile.h"

#include <stdlib.h>
#include <time.h>

#include "base/diag.h"
#include "runtime/comm.h"
#include "runtime/json.h"
#include "runtime/plan_shapes.h"
#include "runtime/safetensors.h"

int64_t rt_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * (int64_t)1000000000 + now.tv_nsec;
}

void rt_profile_init(Session *s, uint64_t n_instrs, RtProfile *out_profile)
{
    *out_profile = (RtProfile){.n_instrs = n_instrs};
    out_profile->marks = ARENA_ARRAY(s->arena, RtMark, n_instrs * RT_PROFILE_STEPS);
}

void rt_profile_begin(RtProfile *profile, int64_t step)
{
    profile->steps[profile->n_steps] = step;
    profile->last = rt_clock_ns();
}

void rt_profile_mark(RtProfile *profile, uint64_t instr)
{
    int64_t now = rt_clock_ns();
    profile->marks[profile->n_steps * profile->n_instrs + instr] = (RtMark){profile->last, now};
    profile->last = now;
}

void rt_profile_end(RtProfile *profile)
{
    profile->n_steps++;
}

/* -- the trace -- */

static const char *phase_name(uint32_t phase)
{
    static const char *const names[] = {"begin", "fwd", "bwd", "update", "eval"};
    return names[phase];
}

typedef struct Trace {
    FILE *out;
    const RtPlan *plan;
    int64_t zero; /* of the trace's clock */
    bool any;
} Trace;

static void open_event(Trace *trace, const char *name, const char *category, RtMark mark)
{
    fputs(trace->any ? ",\n" : "\n", trace->out);
    trace->any = true;
    fputs("{\"name\": ", trace->out);
    rt_json_text(trace->out, name);
    fprintf(trace->out,
            ", \"cat\": \"%s\", \"ph\": \"X\", \"pid\": 1, \"tid\": 1, \"ts\": %.3f, \"dur\": %.3f",
            category, (double)(mark.begin - trace->zero) / 1e3,
            (double)(mark.end - mark.begin) / 1e3);
}

static void trace_instr(Trace *trace, const PlanInstr *instr, RtMark mark)
{
    double seconds = (double)(mark.end - mark.begin) / 1e9;
    open_event(trace, rt_plan_string(trace->plan, instr->name),
               rt_kernel_shape(instr->kernel)->name, mark);
    char source[512];
    snprintf(source, sizeof source, "%s:%u", rt_plan_file(trace->plan, instr->file), instr->line);
    fputs(", \"args\": {\"source\": ", trace->out);
    rt_json_text(trace->out, source);
    fprintf(trace->out, ", \"micro_batch\": %u, \"replay\": %s, \"gflop_per_s\": %.6g}}",
            instr->instance, instr->replay ? "true" : "false",
            seconds > 0 ? (double)instr->flops / seconds / 1e9 : 0.0);
}

/* A slice over each run of instructions of one phase and micro-batch, around theirs. */
static void trace_step(Trace *trace, const RtMark *marks, uint64_t n, int64_t step)
{
    const PlanInstr *instrs = trace->plan->instrs;
    char name[64];
    snprintf(name, sizeof name, "step %lld", (long long)step);
    open_event(trace, name, "step", (RtMark){marks[0].begin, marks[n - 1].end});
    fputc('}', trace->out);
    for (uint64_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && instrs[end].phase == instrs[i].phase &&
                          instrs[end].instance == instrs[i].instance;)
            end++;
        snprintf(name, sizeof name, "%s %u", phase_name(instrs[i].phase), instrs[i].instance);
        open_event(trace, name, "phase", (RtMark){marks[i].begin, marks[end - 1].end});
        fputc('}', trace->out);
        for (uint64_t j = i; j < end; j++)
            trace_instr(trace, &instrs[j], marks[j]);
    }
}

Status rt_profile_write(Session *s, const RtPlan *plan, const RtProfile *profile, const char *path)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (!out) {
        diag(s, no_span, environment, "out of memory");
        return STATUS_ENV;
    }
    uint64_t n = profile->n_instrs;
    Trace trace = {out, plan, profile->n_steps && n ? profile->marks[0].begin : 0, false};
    fputs("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [", out);
    for (uint32_t i = 0; n && i < profile->n_steps; i++)
        trace_step(&trace, profile->marks + i * n, n, profile->steps[i]);
    fputs("\n]}\n", out);
    fclose(out);
    Status status = rt_text_write(s, path, text);
    free(text);
    return status;
}

/* -- by phase -- */

static bool is_exchange(uint32_t kernel)
{
    return kernel == PLAN_KERNEL_send || kernel == PLAN_KERNEL_recv || rt_is_collective(kernel);
}

void rt_profile_work(const RtPlan *plan, const RtProfile *profile, int64_t *out_work,
                     int64_t *out_update)
{
    *out_work = *out_update = 0;
    for (uint32_t step = 0; step < profile->n_steps; step++)
        for (uint64_t i = 0; i < profile->n_instrs; i++) {
            const RtMark *mark = &profile->marks[step * profile->n_instrs + i];
            const PlanInstr *instr = &plan->instrs[i];
            if (!is_exchange(instr->kernel))
                *(instr->phase == PLAN_UPDATE ? out_update : out_work) += mark->end - mark->begin;
        }
    if (profile->n_steps) {
        *out_work /= profile->n_steps;
        *out_update /= profile->n_steps;
    }
}

/* -- by kernel -- */

typedef struct KernelTime {
    uint32_t kernel;
    int64_t ns;
    uint64_t flops, launches;
} KernelTime;

static int by_time(const void *a, const void *b)
{
    int64_t x = ((const KernelTime *)a)->ns, y = ((const KernelTime *)b)->ns;
    return x > y ? -1 : x < y;
}

void rt_profile_kernels(const RtPlan *plan, const RtProfile *profile, FILE *out)
{
    KernelTime times[PLAN_KERNEL_COUNT];
    int64_t all = 0;
    for (uint32_t k = 0; k < PLAN_KERNEL_COUNT; k++)
        times[k] = (KernelTime){.kernel = k};
    for (uint64_t i = 0; i < profile->n_instrs * profile->n_steps; i++) {
        const PlanInstr *instr = &plan->instrs[i % profile->n_instrs];
        KernelTime *time = &times[instr->kernel];
        time->ns += profile->marks[i].end - profile->marks[i].begin;
        time->flops += instr->flops;
        time->launches++;
        all += profile->marks[i].end - profile->marks[i].begin;
    }
    qsort(times, PLAN_KERNEL_COUNT, sizeof *times, by_time);
    fprintf(out, "%-16s %12s %8s %10s %10s\n", "kernel", "ms/step", "share", "GFLOP/s", "launches");
    for (uint32_t k = 0; k < PLAN_KERNEL_COUNT && times[k].launches; k++)
        fprintf(out, "%-16s %12.4f %7.1f%% %10.2f %10llu\n", rt_kernel_shape(times[k].kernel)->name,
                (double)times[k].ns / 1e6 / profile->n_steps,
                all ? 100.0 * (double)times[k].ns / (double)all : 0.0,
                times[k].ns ? (double)times[k].flops / (double)times[k].ns : 0.0,
                (unsigned long long)(times[k].launches / profile->n_steps));
}
