#include "runtime/pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/diag.h"

/* About 20 us of looking before a thread sleeps: longer than the gap between two phases of a step,
 * shorter than what anybody else on the machine would miss. */
enum { SPINS = 1000 };

/* A phase on offer. `ticket` says how many of its chunks nobody has taken yet, with the phase's
 * number above that, so that a worker who comes late cannot take a chunk of a phase that it has not
 * seen. The other fields change only while no chunk is taken or on offer. */
struct RtPool {
    _Alignas(64) _Atomic uint64_t ticket; /* epoch << 32 | chunks left */
    RtChunkFn fn;
    const void *context;
    uint32_t phase, n_chunks;
    uint64_t first_chunk;
    _Alignas(64) _Atomic uint32_t epoch; /* workers sleep on it */
    _Atomic uint32_t sleepers;
    _Atomic bool quit;
    _Alignas(64) _Atomic uint32_t done; /* chunks done; the caller sleeps on it */
    _Atomic bool caller_sleeps;
    _Alignas(64) uint32_t threads, started;
    uint64_t scratch_bytes; /* of one worker: at least a page, and whole pages */
    unsigned char *scratch; /* threads * scratch_bytes */
    struct Worker {
        RtPool *pool;
        pthread_t thread;
        void *scratch;
    } * workers; /* threads - 1 */
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void sleep_on(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void wake(_Atomic uint32_t *word, uint32_t n)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

/* Takes and runs chunks until none is left. */
static void work(RtPool *pool, void *scratch)
{
    uint64_t ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
    while ((uint32_t)ticket) {
        if (!atomic_compare_exchange_weak_explicit(&pool->ticket, &ticket, ticket - 1,
                                                   memory_order_acquire, memory_order_acquire))
            continue;
        uint32_t n_chunks = pool->n_chunks;
        uint64_t chunk = pool->first_chunk + (n_chunks - (uint32_t)ticket);
        pool->fn(pool->context, pool->phase, chunk, scratch);
        uint32_t done = atomic_fetch_add_explicit(&pool->done, 1, memory_order_seq_cst) + 1;
        if (done == n_chunks && atomic_load_explicit(&pool->caller_sleeps, memory_order_seq_cst))
            wake(&pool->done, 1);
        ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
    }
}

static bool spin_for_epoch(RtPool *pool, uint32_t seen)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&pool->epoch, memory_order_acquire) != seen)
            return true;
        relax();
    }
    return false;
}

static void *worker_main(void *argument)
{
    struct Worker *worker = argument;
    RtPool *pool = worker->pool;
    memset(worker->scratch, 0,
           pool->scratch_bytes); /* its pages are there before the first step, near this CPU */
    for (;;) {
        uint32_t seen = atomic_load_explicit(&pool->epoch, memory_order_acquire);
        work(pool, worker->scratch);
        if (atomic_load_explicit(&pool->quit, memory_order_acquire))
            return NULL;
        if (spin_for_epoch(pool, seen))
            continue;
        atomic_fetch_add_explicit(&pool->sleepers, 1, memory_order_seq_cst);
        sleep_on(&pool->epoch, seen);
        atomic_fetch_sub_explicit(&pool->sleepers, 1, memory_order_seq_cst);
    }
}

/* Makes workers look again; up to n of those that sleep are woken. */
static void announce(RtPool *pool, uint32_t n)
{
    atomic_fetch_add_explicit(&pool->epoch, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&pool->sleepers, memory_order_seq_cst))
        wake(&pool->epoch, n);
}

static void wait_done(RtPool *pool, uint32_t n_chunks)
{
    uint32_t done;
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&pool->done, memory_order_acquire) == n_chunks)
            return;
        relax();
    }
    atomic_store_explicit(&pool->caller_sleeps, true, memory_order_seq_cst);
    while ((done = atomic_load_explicit(&pool->done, memory_order_seq_cst)) != n_chunks)
        sleep_on(&pool->done, done);
    atomic_store_explicit(&pool->caller_sleeps, false, memory_order_relaxed);
}

static void run_some(RtPool *pool, RtChunkFn fn, const void *context, uint32_t phase,
                     uint64_t first, uint32_t n)
{
    pool->fn = fn;
    pool->context = context;
    pool->phase = phase;
    pool->first_chunk = first;
    pool->n_chunks = n;
    atomic_store_explicit(&pool->done, 0, memory_order_relaxed);
    uint64_t epoch = atomic_load_explicit(&pool->epoch, memory_order_relaxed) + 1u;
    atomic_store_explicit(&pool->ticket, epoch << 32 | n, memory_order_release);
    announce(pool, n - 1);
    work(pool, pool->scratch);
    wait_done(pool, n);
}

void rt_pool_run(RtPool *pool, RtChunkFn fn, const void *context, uint32_t phase, uint64_t n_chunks)
{
    if (pool->threads == 1 || n_chunks == 1) {
        for (uint64_t chunk = 0; chunk < n_chunks; chunk++)
            fn(context, phase, chunk, pool->scratch);
        return;
    }
    for (uint64_t first = 0, n; first < n_chunks; first += n) {
        n = n_chunks - first < UINT32_MAX ? n_chunks - first : UINT32_MAX;
        run_some(pool, fn, context, phase, first, (uint32_t)n);
    }
}

uint32_t rt_pool_threads(const RtPool *pool)
{
    return pool->threads;
}

void *rt_pool_scratch(const RtPool *pool)
{
    return pool->scratch;
}

uint64_t rt_pool_scratch_bytes(const RtPool *pool)
{
    return pool->scratch_bytes * pool->threads;
}

static int start_workers(RtPool *pool)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, RT_POOL_STACK_BYTES);
    int error = 0;
    while (!error && pool->started + 1 < pool->threads) {
        struct Worker *worker = &pool->workers[pool->started];
        worker->pool = pool;
        worker->scratch = pool->scratch + (pool->started + 1) * pool->scratch_bytes;
        error = pthread_create(&worker->thread, &attributes, worker_main, worker);
        pool->started += !error;
    }
    pthread_attr_destroy(&attributes);
    return error;
}

Status rt_pool_new(Session *s, uint32_t threads, uint64_t scratch_bytes, RtPool **out_pool)
{
    RtPool *pool = aligned_alloc(64, sizeof *pool);
    if (!pool) {
        diag(s, no_span, environment, "out of memory");
        return STATUS_ENV;
    }
    memset(pool, 0, sizeof *pool);
    pool->threads = threads;
    pool->scratch_bytes = ((scratch_bytes ? scratch_bytes : 1) + 4095) & ~(uint64_t)4095;
    uint64_t all = pool->scratch_bytes * threads;
    void *scratch = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pool->scratch = scratch == MAP_FAILED ? NULL : scratch;
    pool->workers = calloc(threads, sizeof *pool->workers);
    int error = !pool->scratch || !pool->workers ? ENOMEM : start_workers(pool);
    if (error) {
        diag(s, no_span, pool_threads, pool->started + 1, threads - 1, strerror(error));
        rt_pool_free(pool);
        return STATUS_ENV;
    }
    memset(pool->scratch, 0, pool->scratch_bytes);
    *out_pool = pool;
    return STATUS_OK;
}

void rt_pool_free(RtPool *pool)
{
    if (!pool)
        return;
    atomic_store_explicit(&pool->quit, true, memory_order_release);
    announce(pool, pool->threads);
    for (uint32_t i = 0; i < pool->started; i++)
        pthread_join(pool->workers[i].thread, NULL);
    if (pool->scratch)
        munmap(pool->scratch, pool->scratch_bytes * pool->threads);
    free(pool->workers);
    free(pool);
}

uint32_t rt_cpus(void)
{
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set))
        return (uint32_t)CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (uint32_t)n : 1;
}
