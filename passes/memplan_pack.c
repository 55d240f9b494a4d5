#include "passes/memplan_pack.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Greedy: items are placed one by one, each as low as it fits beside those already placed and alive
 * with it. The order decides; several are tried, and the best one is then repaired: what stands
 * highest is placed earlier. */

enum {
    ORDERS_LIMIT = 1000000000, /* comparisons behind which no other order is tried */
    WORK_LIMIT = 40000000,     /* those that repair may cost */
};

typedef struct Placed {
    uint64_t offset, top;
    uint32_t begin, end;
} Placed;

typedef struct Packer {
    const PackItem *items;
    uint32_t n;
    uint64_t bound;
    uint64_t *load;    /* by item: the most that is alive at any moment of its life */
    Placed *placed;    /* by offset */
    uint64_t *offsets; /* by item, of the order being tried */
    uint32_t *order, *best_order;
    uint64_t *best_offsets;
    uint64_t best;
    uint64_t work;
    uint32_t stuck; /* place in the order of the item that made the last try's height */
} Packer;

/* Where the item goes among those placed: into the lowest gap that holds it, or the tightest. */
static uint64_t find_gap(const Packer *p, uint32_t n_placed, const PackItem *item, bool tightest)
{
    uint64_t at = 0, best = UINT64_MAX, best_room = UINT64_MAX;
    for (uint32_t i = 0; i < n_placed; i++) {
        const Placed *other = &p->placed[i];
        if (other->begin > item->end || other->end < item->begin)
            continue;
        if (other->offset >= at && other->offset - at >= item->bytes) {
            if (!tightest)
                return at;
            if (other->offset - at < best_room) {
                best_room = other->offset - at;
                best = at;
            }
        }
        if (other->top > at)
            at = other->top;
    }
    return best == UINT64_MAX ? at : best;
}

static void insert_placed(Packer *p, uint32_t n_placed, Placed placed)
{
    uint32_t low = 0, high = n_placed;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (p->placed[middle].offset < placed.offset)
            low = middle + 1;
        else
            high = middle;
    }
    memmove(&p->placed[low + 1], &p->placed[low], (n_placed - low) * sizeof placed);
    p->placed[low] = placed;
}

/* Places all in the current order; gives up once the height reaches `limit`. */
static uint64_t place_all(Packer *p, uint64_t limit, bool tightest)
{
    uint64_t height = 0;
    for (uint32_t i = 0; i < p->n && height < limit; i++) {
        const PackItem *item = &p->items[p->order[i]];
        uint64_t at = find_gap(p, i, item, tightest);
        p->offsets[p->order[i]] = at;
        insert_placed(p, i, (Placed){at, at + item->bytes, item->begin, item->end});
        if (at + item->bytes > height) {
            height = at + item->bytes;
            p->stuck = i;
        }
        p->work += i;
    }
    return height;
}

static bool try_order(Packer *p, bool tightest)
{
    uint64_t height = place_all(p, p->best, tightest);
    if (height >= p->best)
        return false;
    p->best = height;
    memcpy(p->best_order, p->order, p->n * sizeof *p->order);
    memcpy(p->best_offsets, p->offsets, p->n * sizeof *p->offsets);
    return true;
}

/* -- orders -- */

/* The largest sum of live bytes within each item's life: maxima over powers of two of moments, then
 * two of them. */
static uint64_t *find_loads(const PackItem *items, uint32_t n, Arena *scratch)
{
    uint32_t n_times = 0, levels = 1;
    for (uint32_t i = 0; i < n; i++)
        n_times = items[i].end + 1 > n_times ? items[i].end + 1 : n_times;
    while (1u << levels <= n_times)
        levels++;
    uint64_t *most = ARENA_ARRAY(scratch, uint64_t, (uint64_t)levels * n_times + 1);
    for (uint32_t i = 0; i < n; i++) {
        most[items[i].begin] += items[i].bytes;
        if (items[i].end + 1 < n_times)
            most[items[i].end + 1] -= items[i].bytes; /* wraps; the running sum does not */
    }
    for (uint32_t t = 1; t < n_times; t++)
        most[t] += most[t - 1];
    for (uint32_t level = 1; level < levels; level++) {
        const uint64_t *half = &most[(uint64_t)(level - 1) * n_times];
        uint32_t step = 1u << (level - 1);
        for (uint32_t t = 0; t + 2 * step <= n_times; t++)
            most[(uint64_t)level * n_times + t] =
                half[t] > half[t + step] ? half[t] : half[t + step];
    }
    uint64_t *load = ARENA_ARRAY(scratch, uint64_t, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t length = items[i].end - items[i].begin + 1;
        uint32_t level = 31 - (uint32_t)__builtin_clz(length);
        const uint64_t *row = &most[(uint64_t)level * n_times];
        uint64_t a = row[items[i].begin], b = row[items[i].end + 1 - (1u << level)];
        load[i] = a > b ? a : b;
    }
    return load;
}

typedef enum Rank { BY_LOAD, BY_BYTES, BY_LENGTH, BY_AREA, BY_BEGIN, BY_END, BY_ROOT_AREA } Rank;

static double rank_of(const Packer *p, uint32_t i, Rank rank)
{
    const PackItem *item = &p->items[i];
    double bytes = (double)item->bytes, length = (double)(item->end - item->begin) + 1;
    switch (rank) {
    case BY_LOAD:
        return (double)p->load[i];
    case BY_BYTES:
        return bytes;
    case BY_LENGTH:
        return length;
    case BY_AREA:
        return bytes * length;
    case BY_BEGIN:
        return -(double)item->begin;
    case BY_END:
        return (double)item->end;
    case BY_ROOT_AREA:
        return bytes * sqrt(length);
    }
    return 0;
}

typedef struct SortKey {
    double first, second;
    uint32_t item;
} SortKey;

static int compare_keys(const void *a, const void *b)
{
    const SortKey *x = a, *y = b;
    if (x->first != y->first)
        return x->first > y->first ? -1 : 1;
    if (x->second != y->second)
        return x->second > y->second ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

static void sort_order(Packer *p, Rank first, Rank second, SortKey *keys)
{
    for (uint32_t i = 0; i < p->n; i++)
        keys[i] = (SortKey){rank_of(p, i, first), rank_of(p, i, second), i};
    qsort(keys, p->n, sizeof *keys, compare_keys);
    for (uint32_t i = 0; i < p->n; i++)
        p->order[i] = keys[i].item;
}

static bool good_enough(const Packer *p)
{
    return p->best <= p->bound + p->bound / 200;
}

static void try_orders(Packer *p, Arena *scratch)
{
    static const Rank orders[][2] = {
        {BY_LOAD, BY_BYTES},   {BY_LOAD, BY_END},    {BY_LOAD, BY_AREA},    {BY_ROOT_AREA, BY_END},
        {BY_BYTES, BY_LENGTH}, {BY_BYTES, BY_BEGIN}, {BY_LENGTH, BY_END},   {BY_LENGTH, BY_BYTES},
        {BY_AREA, BY_END},     {BY_BYTES, BY_END},   {BY_BEGIN, BY_LENGTH}, {BY_END, BY_BYTES},
    };
    SortKey *keys = ARENA_ARRAY(scratch, SortKey, p->n);
    for (uint32_t i = 0; i < 2 * sizeof orders / sizeof *orders; i++) {
        bool tightest = i % 2;
        if (good_enough(p) || p->work > ORDERS_LIMIT)
            break;
        if (!tightest)
            sort_order(p, orders[i / 2][0], orders[i / 2][1], keys);
        try_order(p, tightest);
    }
}

/* -- repair -- */

static uint32_t random_below(uint32_t *state, uint32_t n)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return (uint32_t)((uint64_t)*state * n >> 32);
}

/* The order's place of an item that reaches the top; ties by chance. */
static uint32_t find_highest(const Packer *p, uint32_t *state)
{
    uint32_t found = 0, n = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t item = p->best_order[i];
        bool top = p->best_offsets[item] + p->items[item].bytes == p->best;
        if (top && random_below(state, ++n) == 0)
            found = i;
    }
    return found;
}

static void move_earlier(Packer *p, uint32_t from, uint32_t to)
{
    uint32_t item = p->order[from];
    memmove(&p->order[to + 1], &p->order[to], (from - to) * sizeof *p->order);
    p->order[to] = item;
}

/* The item at which the last try gave up goes to a place before, and the try is repeated: items
 * that are hard to place find their way to the front. Now and then it starts again from the best
 * order. */
static void repair(Packer *p)
{
    enum { PATIENCE = 16 };
    uint32_t state = 0x9e3779b9;
    uint32_t since = PATIENCE;
    for (p->work = 0; p->work < WORK_LIMIT && !good_enough(p); since++) {
        if (since >= PATIENCE) {
            memcpy(p->order, p->best_order, p->n * sizeof *p->order);
            p->stuck = find_highest(p, &state);
            since = 0;
        }
        move_earlier(p, p->stuck, random_below(&state, p->stuck + 1));
        if (try_order(p, random_below(&state, 2)))
            since = PATIENCE;
        p->work += p->n;
    }
}

uint64_t memplan_pack(PackItem *items, uint32_t n, uint64_t bound, Arena *scratch)
{
    Packer p = {.items = items, .n = n, .bound = bound, .best = UINT64_MAX};
    p.placed = ARENA_ARRAY(scratch, Placed, n + 1);
    p.offsets = ARENA_ARRAY(scratch, uint64_t, n + 1);
    p.best_offsets = ARENA_ARRAY(scratch, uint64_t, n + 1);
    p.order = ARENA_ARRAY(scratch, uint32_t, n + 1);
    p.best_order = ARENA_ARRAY(scratch, uint32_t, n + 1);
    if (!n)
        return 0;
    p.load = find_loads(items, n, scratch);
    try_orders(&p, scratch);
    repair(&p);
    for (uint32_t i = 0; i < n; i++)
        items[i].offset = p.best_offsets[i];
    return p.best;
}
