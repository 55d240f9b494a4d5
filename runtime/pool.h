/* pool: worker threads that take the chunks of one phase after another. The caller of rt_pool_run
 * is a worker, too. */
#ifndef RUNTIME_POOL_H
#define RUNTIME_POOL_H

#include "base/session.h"

typedef struct RtPool RtPool;

/* One chunk of work. scratch: the worker's own, 64-byte aligned. */
typedef void (*RtChunkFn)(const void *context, uint32_t phase, uint64_t chunk, void *scratch);

enum { RT_POOL_STACK_BYTES = 1 << 20, RT_POOL_MAX_THREADS = 1024 };

/* threads: workers in all, the caller included. scratch_bytes: for each of them. */
Status rt_pool_new(Session *s, uint32_t threads, uint64_t scratch_bytes, RtPool **out_pool);
void rt_pool_free(RtPool *pool);

uint32_t rt_pool_threads(const RtPool *pool);
void *rt_pool_scratch(const RtPool *pool);          /* the caller's own */
uint64_t rt_pool_scratch_bytes(const RtPool *pool); /* of all workers */

/* Runs fn for every chunk in [0, n_chunks) once, in any order, and returns when all are done. */
void rt_pool_run(RtPool *pool, RtChunkFn fn, const void *context, uint32_t phase,
                 uint64_t n_chunks);

/* CPUs that this process may use. */
uint32_t rt_cpus(void);

#endif
