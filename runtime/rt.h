/* rt: a step program made ready to run: its plan checked, its arena mapped, its workers started. */
#ifndef RUNTIME_RT_H
#define RUNTIME_RT_H

#include "runtime/check.h"
#include "runtime/comm.h"
#include "runtime/device.h"
#include "runtime/exec.h"
#include "runtime/profile.h"
#include "runtime/progress.h"
#include "runtime/settings.h"

typedef struct RtConfig {
    uint32_t threads;        /* 0: one per CPU */
    bool check;              /* see runtime/check.h */
    const int64_t *seed;     /* NULL: the recipe's */
    const RtKernel *kernels; /* rt_kernels, or a test's own; NULL with a device */
    const RtDeviceKind *device; /* NULL: the host runs the plan */
    bool no_graph;     /* device: instructions are launched one by one */
    bool no_copy_engines; /* device: all exchanges go over NCCL */
    const char *tune;  /* device: see RtDeviceConfig */
} RtConfig;

typedef struct Rt {
    Session *s;
    const StepProgram *program;
    RtPlan plan;
    RtSettings settings;
    RtWorld *world;   /* NULL: one rank */
    RtGroup *groups;  /* by the plan's comms */
    uint32_t n_data, data_rank; /* ranks that read different rows; this one among them */
    bool agreed;      /* all ranks are at the same place, with the same status */
    RtArena arena;
    RtPool *pool;
    RtExec train, eval;
    uint64_t update_from; /* the first instruction that changes a parameter */
    int64_t seed;
    bool seed_given;    /* on the command line: a resumed run does not replace it */
    int64_t steps_done; /* of the run, skipped ones included: what the schedule goes by */
    int64_t samples_done; /* by them, on all ranks: what random keys go by */
    int64_t skips;      /* updates skipped in a row */
    int64_t random[3];  /* step, seed, first sample, as kernels see them */
    RtFault fault;
    bool checking;
    RtCheck check;
    RtProfile *profile; /* while a step is recorded; else NULL */
    RtProgress progress;
    const RtDeviceKind *kind; /* NULL: the host runs the plan, and `arena` is not a shadow */
    RtDevice *device;
    bool resumed;   /* moments come from a checkpoint */
    bool staged;    /* the next step's inputs are on the device */
    float lr;       /* of the step under way */
} Rt;

typedef struct RtStepResult {
    int64_t step;      /* counted from 1 */
    double loss, norm; /* norm: of the gradients, before clipping */
    float lr;
    int64_t targets; /* of the global batch */
    bool skipped;
} RtStepResult;

Status rt_open(Session *s, const StepProgram *program, const RtConfig *config, Rt **out_rt);
/* status: how the run went; matters to the other ranks. */
void rt_close(Rt *rt, Status status);

/* What stands before the first step: gradients and kept values are all there when `before_update`
 * is called (it may be NULL), and neither clipped nor used. */
typedef Status (*RtHookFn)(void *context);

/* One step over what lies in the inputs. Allocates nothing. A kernel's fault is one diagnostic and
 * STATUS_USER. */
Status rt_step(Rt *rt, float lr, RtHookFn before_update, void *context, RtStepResult *out_result);
/* The same in two: between them a device may still be at work, and the next step's inputs may be
 * put into the arena and staged. */
Status rt_step_begin(Rt *rt, float lr, RtHookFn before_update, void *context);
Status rt_step_end(Rt *rt, RtStepResult *out_result);
/* The inputs in the arena are those of the next step. */
Status rt_stage(Rt *rt);
/* One forward pass over micro-batch 0's inputs: the sum of its losses. */
Status rt_eval(Rt *rt, double *out_sum);

/* A checkpoint's counters have been put into the arena: the run goes on from there. steps: done
 * until then; -1: as many as took the samples, had each been of this run's global batch. */
void rt_resumed(Rt *rt, int64_t steps);
/* On a device: brings the states over, and gives their memory on the host back. */
Status rt_fetch(Rt *rt);
void rt_forget(Rt *rt);
/* Brings the states over, and puts into the arena what the next rt_resumed will read. */
Status rt_before_save(Rt *rt);

/* Warns of states that are not finite; before the first step, where --check is on. */
void rt_check_loaded(Rt *rt);
/* The same, and takes the states over to the device: once they have been loaded. */
Status rt_loaded(Rt *rt);

/* All ranks come here with what they have done, and go on with the worst of their statuses. */
Status rt_agree(Rt *rt, Status status);

int64_t rt_global_batch(const Rt *rt); /* samples of a step, over all ranks */

int32_t *rt_input(const Rt *rt, const char *name,
                  int64_t micro_batch); /* NULL: the plan has no such input */

#endif
