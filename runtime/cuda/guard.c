#include "runtime/cuda/guard.h"

#include <time.h>

#include "base/diag.h"
#include "runtime/profile.h"

static void *watch(void *context)
{
    static const struct timespec a_while = {0, 50000000};
    RtGuard *guard = context;
    while (!__atomic_load_n(&guard->stop, __ATOMIC_ACQUIRE)) {
        int64_t until = __atomic_load_n(&guard->until_ns, __ATOMIC_ACQUIRE);
        if (until && rt_clock_ns() > until) {
            RtWorld *world = guard->world; /* its thread is held up: nobody else says anything */
            diag(world->s, no_span, ranks_lost, guard->what, "it has not ended in time",
                 (long long)world->steps_done);
            rt_world_end(world, STATUS_ENV);
        }
        nanosleep(&a_while, NULL);
    }
    return NULL;
}

Status rt_guard_open(RtWorld *world, RtGuard *out_guard)
{
    *out_guard = (RtGuard){.world = world};
    out_guard->running = !pthread_create(&out_guard->thread, NULL, watch, out_guard);
    if (out_guard->running)
        return STATUS_OK;
    diag(world->s, no_span, environment, "cannot start a thread");
    return STATUS_ENV;
}

void rt_guard_close(RtGuard *guard)
{
    if (!guard->running)
        return;
    __atomic_store_n(&guard->stop, 1, __ATOMIC_RELEASE);
    pthread_join(guard->thread, NULL);
    guard->running = false;
}

void rt_guard_begin(RtGuard *guard, const char *what, double seconds)
{
    guard->what = what;
    guard->seconds = seconds;
    __atomic_store_n(&guard->until_ns, rt_clock_ns() + (int64_t)(seconds * 1e9), __ATOMIC_RELEASE);
}

void rt_guard_again(RtGuard *guard)
{
    if (guard->until_ns)
        rt_guard_begin(guard, guard->what, guard->seconds);
}

void rt_guard_end(RtGuard *guard)
{
    __atomic_store_n(&guard->until_ns, 0, __ATOMIC_RELEASE);
}
