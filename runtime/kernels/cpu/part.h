/* part: what a rank has of something that is divided over a communicator. */
#ifndef RUNTIME_KERNELS_CPU_PART_H
#define RUNTIME_KERNELS_CPU_PART_H

#include "runtime/kernel.h"

static inline int64_t rt_part_index(const RtCall *call)
{
    return call->member;
}

typedef struct RtSpan { /* elements [first, end) of this rank's n */
    int64_t first, end;
} RtSpan;

static inline int64_t rt_between(int64_t value, int64_t least, int64_t most)
{
    return value < least ? least : value > most ? most : value;
}

/* This rank's n elements of a flat buffer, as far as they lie in [begin, end) of the whole of
 * it; end 0: all of them. */
static inline RtSpan rt_part_span(const RtCall *call, int64_t n, int64_t begin, int64_t end)
{
    int64_t before = rt_part_index(call) * n;
    if (!end)
        return (RtSpan){0, n};
    return (RtSpan){rt_between(begin - before, 0, n), rt_between(end - before, 0, n)};
}

#endif
