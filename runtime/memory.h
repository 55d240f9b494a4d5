/* memory: what the process holds, line by line: the arena, and everything outside it. */
#ifndef RUNTIME_MEMORY_H
#define RUNTIME_MEMORY_H

#include "runtime/rt.h"

enum { RT_MEMORY_LINES = 8 };

typedef struct RtMemory {
    struct RtMemoryLine {
        const char *name;
        uint64_t bytes;
    } line[RT_MEMORY_LINES]; /* the first is the arena */
    uint32_t n;
    uint64_t process; /* resident now; 0 where the system does not say */
    uint64_t peak;    /* resident at most so far */
} RtMemory;

/* What the library of matrix products packs operands into, for all threads, about. */
uint64_t rt_product_buffer_bytes(const RtPlan *plan, uint32_t threads);

void rt_memory_measure(const Rt *rt, RtMemory *out_memory);
/* One line each, and what no line explains. */
void rt_memory_print(const RtMemory *memory, FILE *out);

const char *rt_bytes_text(uint64_t bytes, char out_text[32]); /* `70.06 GiB`, `512 B` */

#endif
