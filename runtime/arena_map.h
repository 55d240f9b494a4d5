/* arena_map: the one piece of memory that a step works in: zeroed, aligned to 2 MiB, in huge pages
 * where there are. */
#ifndef RUNTIME_ARENA_MAP_H
#define RUNTIME_ARENA_MAP_H

#include "base/session.h"
#include "runtime/pool.h"

typedef struct RtArena {
    unsigned char *base; /* never NULL once mapped */
    uint64_t bytes;      /* as planned */
    uint64_t mapped;     /* the same in whole pages */
} RtArena;

Status rt_arena_map(Session *s, uint64_t bytes, RtArena *out_arena);
/* Takes every page from the system now, so that the first step is not slower than the others. */
void rt_arena_touch(const RtArena *arena, RtPool *pool);
void rt_arena_unmap(RtArena *arena);

#endif
