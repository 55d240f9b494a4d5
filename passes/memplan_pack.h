/* memplan_pack: offline packing of buffers with known lifetimes into one range of bytes. */
#ifndef PASSES_MEMPLAN_PACK_H
#define PASSES_MEMPLAN_PACK_H

#include <stdint.h>

#include "base/arena.h"

typedef struct PackItem {
    uint32_t begin, end; /* both included */
    uint64_t bytes;      /* a multiple of the alignment */
    uint64_t offset;     /* out */
} PackItem;

/* Places all items so that no two that are alive at once overlap, and returns the height. `bound`:
 * no height can be below it; the search ends when it is reached. The same items give the same
 * offsets, always. */
uint64_t memplan_pack(PackItem *items, uint32_t n, uint64_t bound, Arena *scratch);

#endif
