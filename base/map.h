/* map: 64-bit keys to 64-bit values, open addressing in an arena. Interned strings are keys by
 * pointer. */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

typedef struct Map {
    Arena *arena;
    uint64_t *keys, *values;
    unsigned char *used;
    uint32_t n, cap;
} Map;

void map_init(Map *map, Arena *arena);
bool map_get(const Map *map, uint64_t key, uint64_t *out_value); /* out_value may be NULL */
void map_put(Map *map, uint64_t key, uint64_t value);            /* replaces */
uint64_t map_hash(const void *bytes, size_t length, uint64_t seed);

static inline uint64_t map_key(const void *pointer)
{
    return (uint64_t)(uintptr_t)pointer;
}

#endif
