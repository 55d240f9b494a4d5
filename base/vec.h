/* vec: growing arrays whose memory is an arena's. `VEC(T)` is a type; its elements are v.at[0] to
 * v.at[v.n - 1]. */
#ifndef BASE_VEC_H
#define BASE_VEC_H

#include <stdint.h>
#include <string.h>

#include "base/arena.h"

#define VEC(T)              \
    struct {                \
        T *at;              \
        uint32_t n, cap;    \
    }

#define vec_push(arena, v, x) \
    (vec_reserve((arena), (v), (v)->n + 1), (v)->at[(v)->n++] = (x))

#define vec_reserve(arena, v, want)                                                                \
    ((v)->cap >= (want) ? (void)0                                                                  \
                        : vec_grow_((arena), (void **)(void *)&(v)->at, &(v)->cap, (v)->n, (want), \
                                    sizeof *(v)->at))

static inline void vec_grow_(Arena *arena, void **at, uint32_t *cap, uint32_t n, uint32_t want,
                             size_t item)
{
    uint32_t next = *cap ? *cap * 2 : 8;
    while (next < want)
        next *= 2;
    void *fresh = arena_alloc(arena, (size_t)next * item);
    if (n)
        memcpy(fresh, *at, (size_t)n * item);
    *at = fresh;
    *cap = next;
}

#endif
