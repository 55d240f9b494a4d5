/* run: what OUT.step does when it is started: options, data, weights, then training, a benchmark or
 * a description. */
#ifndef RUNTIME_RUN_H
#define RUNTIME_RUN_H

#include "runtime/checkpoint.h"
#include "runtime/data.h"
#include "runtime/log.h"
#include "runtime/options.h"
#include "runtime/rt.h"
#include "runtime/signals.h"
#include "runtime/weights.h"

typedef struct RtRun {
    Session *s;
    const RtOptions *options;
    Rt *rt;
    RtData *data, *eval_data; /* eval_data: NULL where nothing is evaluated */
    RtWeights weights;
    RtLog log;
    RtSignals *signals;
    RtSchedule schedule;
    RtProfile profile;
    int64_t begin_ns;        /* of the program */
    double weights_seconds;  /* that loading or making the weights took */
    double host_seconds;     /* of the last step, when its device had nothing to do */
    const char *save_dir; /* NULL: nothing is saved */
    int64_t n_steps;      /* to run now */
    int64_t saved_at;     /* steps_done at the last save; -1: none */
    bool said_no_targets;
    bool more;              /* a step follows the next one: a device's batch is fetched ahead */
    bool ahead;             /* the next step's batch has been fetched */
    Status ahead_status;    /* whether that went well: said when the step comes */
    uint64_t ahead_position; /* of the data, before it */
    bool asked;             /* `stops` is known: it was exchanged while a device was at work */
    int64_t stops;          /* ranks that have got a signal */
} RtRun;

/* The whole program; returns the process's exit status. kernels: rt_kernels. */
Status rt_run_program(Session *s, const StepProgram *program, const RtKernel *kernels, int argc,
                      char **argv);
/* The same for a plan that a device runs; kernels: NULL. */
Status rt_run_program_on(Session *s, const StepProgram *program, const RtKernel *kernels,
                         const RtDeviceKind *device, int argc, char **argv);

Status rt_train(RtRun *run);
/* Whether to end, after a signal. */
Status rt_run_stops(RtRun *run, bool *out_stops);
Status rt_bench(RtRun *run);
/* What the executable is, without mapping its arena. */
void rt_describe(const RtPlan *plan, uint32_t threads, FILE *out);

/* Fetches data and runs one step; *out_seconds: both together. */
Status rt_run_step(RtRun *run, RtHookFn before_update, RtStepResult *out_result,
                   double *out_seconds);

#endif
