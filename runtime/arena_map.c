#include "runtime/arena_map.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/diag.h"

enum { ALIGNMENT = 2 << 20, TOUCH_BYTES = 16 << 20 };

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

Status rt_arena_map(Session *s, uint64_t bytes, RtArena *out_arena)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t mapped = round_up(bytes ? bytes : 1, page);
    unsigned char *memory = mmap(NULL, mapped + ALIGNMENT, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        diag(s, no_span, arena_memory, (unsigned long long)bytes, strerror(errno));
        return STATUS_ENV;
    }
    unsigned char *base = (unsigned char *)round_up((uintptr_t)memory, ALIGNMENT);
    if (base > memory)
        munmap(memory, (size_t)(base - memory));
    munmap(base + mapped, (size_t)(memory + ALIGNMENT - base));
    madvise(base, mapped, MADV_HUGEPAGE); /* a kernel without huge pages serves small ones */
    *out_arena = (RtArena){base, bytes, mapped};
    return STATUS_OK;
}

static void touch_chunk(const void *context, uint32_t phase, uint64_t chunk, void *scratch)
{
    (void)phase;
    (void)scratch;
    const RtArena *arena = context;
    uint64_t end =
        (chunk + 1) * TOUCH_BYTES < arena->mapped ? (chunk + 1) * TOUCH_BYTES : arena->mapped;
    for (uint64_t at = chunk * TOUCH_BYTES; at < end; at += 4096)
        *(volatile unsigned char *)(arena->base + at) = 0;
}

void rt_arena_touch(const RtArena *arena, RtPool *pool)
{
    rt_pool_run(pool, touch_chunk, arena, 0, (arena->mapped + TOUCH_BYTES - 1) / TOUCH_BYTES);
}

void rt_arena_unmap(RtArena *arena)
{
    if (arena->base)
        munmap(arena->base, arena->mapped);
    *arena = (RtArena){0};
}
