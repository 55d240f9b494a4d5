#include "runtime/signals.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/diag.h"

/* A thread that waits, instead of handlers: handlers would need a writable global. */
struct RtSignals {
    pthread_t thread;
    sigset_t set, before;
    _Atomic bool stop, quit;
};

static void say(const char *text)
{
    ssize_t wrote = write(STDERR_FILENO, text, strlen(text));
    (void)wrote;
}

/* The next signal's number, or 0 when the run is over. */
static int next_signal(RtSignals *signals)
{
    int number;
    while (sigwait(&signals->set, &number))
        ;
    return atomic_load(&signals->quit) ? 0 : number;
}

static void *wait_for_signals(void *argument)
{
    RtSignals *signals = argument;
    if (!next_signal(signals))
        return NULL;
    atomic_store(&signals->stop, true);
    say("\nfinishing this step; once more to stop at once\n");
    int number = next_signal(signals);
    if (number)
        _exit(128 + number);
    return NULL;
}

Status rt_signals_new(Session *s, RtSignals **out_signals)
{
    enum { STACK_BYTES = 64 << 10 };
    RtSignals *signals = ARENA_NEW(s->arena, RtSignals);
    sigemptyset(&signals->set);
    sigaddset(&signals->set, SIGINT);
    sigaddset(&signals->set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals->set, &signals->before);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    int error = pthread_create(&signals->thread, &attributes, wait_for_signals, signals);
    pthread_attr_destroy(&attributes);
    if (error) {
        diag(s, no_span, environment, strerror(error));
        return STATUS_ENV;
    }
    *out_signals = signals;
    return STATUS_OK;
}

void rt_signals_free(RtSignals *signals)
{
    if (!signals)
        return;
    atomic_store(&signals->quit, true);
    pthread_kill(signals->thread, SIGTERM);
    pthread_join(signals->thread, NULL);
    pthread_sigmask(SIG_SETMASK, &signals->before, NULL);
}

bool rt_signals_stop(const RtSignals *signals)
{
    return signals && atomic_load(&signals->stop);
}
