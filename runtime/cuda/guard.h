/* guard: ends the process when a call into a library has not come back in time: NCCL's calls wait
 * for other ranks, which may be gone. */
#ifndef RUNTIME_CUDA_GUARD_H
#define RUNTIME_CUDA_GUARD_H

#include <pthread.h>

#include "runtime/comm.h"

typedef struct RtGuard {
    RtWorld *world;
    pthread_t thread;
    bool running;
    /* shared with the thread */
    const char *what;
    double seconds;
    int64_t until_ns; /* 0: nothing is under way */
    int stop;
} RtGuard;

Status rt_guard_open(RtWorld *world, RtGuard *out_guard);
void rt_guard_close(RtGuard *guard);
/* what: "meeting the other ranks' devices"; said if `end` does not come in so many seconds. */
void rt_guard_begin(RtGuard *guard, const char *what, double seconds);
/* What is under way has come on: it has as long again. */
void rt_guard_again(RtGuard *guard);
void rt_guard_end(RtGuard *guard);

#endif
