#include "base/map.h"

#include <string.h>

static uint64_t mix(uint64_t x)
{
    x ^= x >> 32;
    x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    return x ^ (x >> 32);
}

uint64_t map_hash(const void *bytes, size_t length, uint64_t seed)
{
    const unsigned char *p = bytes;
    uint64_t hash = mix(seed ^ length);
    for (; length >= 8; p += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        hash = mix(hash ^ word);
    }
    uint64_t tail = 0;
    memcpy(&tail, p, length);
    return mix(hash ^ tail);
}

void map_init(Map *map, Arena *arena)
{
    *map = (Map){.arena = arena};
}

static uint32_t slot_of(const Map *map, uint64_t key)
{
    uint32_t slot = (uint32_t)mix(key) & (map->cap - 1);
    while (map->used[slot] && map->keys[slot] != key)
        slot = (slot + 1) & (map->cap - 1);
    return slot;
}

bool map_get(const Map *map, uint64_t key, uint64_t *out_value)
{
    if (!map->cap)
        return false;
    uint32_t slot = slot_of(map, key);
    if (!map->used[slot])
        return false;
    if (out_value)
        *out_value = map->values[slot];
    return true;
}

static void grow(Map *map)
{
    Map old = *map;
    map->cap = old.cap ? old.cap * 2 : 16;
    map->keys = ARENA_ARRAY(map->arena, uint64_t, map->cap);
    map->values = ARENA_ARRAY(map->arena, uint64_t, map->cap);
    map->used = ARENA_ARRAY(map->arena, unsigned char, map->cap);
    map->n = 0;
    for (uint32_t i = 0; i < old.cap; i++)
        if (old.used[i])
            map_put(map, old.keys[i], old.values[i]);
}

void map_put(Map *map, uint64_t key, uint64_t value)
{
    if (map->n * 2 >= map->cap)
        grow(map);
    uint32_t slot = slot_of(map, key);
    map->n += !map->used[slot];
    map->used[slot] = 1;
    map->keys[slot] = key;
    map->values[slot] = value;
}
