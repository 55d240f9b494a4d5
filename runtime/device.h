/* device: where a plan's instructions run when that is not the host, and what the runtime asks of
 * it. Weights, data and files are read and written in a shadow of the arena in the host's memory;
 * `put` and `get` move pieces over. */
#ifndef RUNTIME_DEVICE_H
#define RUNTIME_DEVICE_H

#include "runtime/arena_map.h"
#include "runtime/comm.h"
#include "runtime/plan_map.h"
#include "runtime/profile.h"

typedef struct RtDevice RtDevice;

typedef struct RtDeviceConfig {
    const RtPlan *plan;
    const StepProgram *program;
    const RtArena *shadow;
    bool check;        /* see runtime/check.h */
    bool graph;        /* a step is one launch; else its instructions are launched one by one */
    bool copy_engines; /* exchanges go by them where they can */
    const char *tune;  /* file of measured choices, read and written; NULL: none */
    RtWorld *world;    /* NULL: one rank */
    RtGroup *groups;   /* by the plan's comms */
} RtDeviceConfig;

typedef struct RtDeviceRun {
    bool eval;
    uint64_t from,
        to; /* instructions of the list; `from` 0 takes the inputs and the shadow's scalars over */
    int64_t step;       /* for messages, counted from 1 */
    int64_t random[3];  /* step, seed, first sample */
    RtProfile *profile; /* NULL, or where to mark instructions */
} RtDeviceRun;

typedef struct RtDeviceKind {
    const char *name; /* of the target */
    /* The device alone, with all that can be missing: before anything else is looked at. */
    Status (*open)(Session *s, RtDevice **out_device);
    /* Memory, code, choices of algorithms; the arena is zero, or NaN with `check`, and states are
     * zero. */
    Status (*prepare)(RtDevice *device, const RtDeviceConfig *config);
    /* All ranks come here once all are prepared: their devices meet. */
    Status (*join)(RtDevice *device);
    void (*close)(RtDevice *device); /* NULL does nothing */
    Status (*put)(RtDevice *device, uint64_t offset, uint64_t bytes);
    Status (*get)(RtDevice *device, uint64_t offset, uint64_t bytes);
    /* What `get` brought has been read: the host need not hold it any more. */
    void (*forget)(const RtDevice *device, uint64_t offset, uint64_t bytes);
    /* Takes the shadow's inputs for the list's next run; may be called while another run is under
     * way. */
    Status (*stage)(RtDevice *device, bool eval);
    /* Starts instructions and returns; the inputs have been staged. */
    Status (*launch)(RtDevice *device, const RtDeviceRun *run);
    /* Waits for what was launched; scalars come back into the shadow. What a kernel found wrong
     * with the data is one diagnostic and STATUS_USER. */
    Status (*finish)(RtDevice *device);
    /* From the first kernel of the last finished run to its last. */
    int64_t (*busy_ns)(const RtDevice *device);
    /* What it is, which choices were made. Without `prepare`, they are made for this plan as far as
     * that needs no memory. */
    Status (*describe)(RtDevice *device, const RtPlan *plan, const StepProgram *program, FILE *out);
    /* Memory line by line, and speed against the device's own measured limits. */
    Status (*report)(RtDevice *device, double seconds_per_step, FILE *out);
} RtDeviceKind;

#endif
