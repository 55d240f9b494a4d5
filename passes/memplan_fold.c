#include "passes/memplan.h"

/* Micro-batches of one step do the same work: where instance m's buffers are instance 0's, moved in
 * time, one packing serves all. What lives across instances is taken to live through all of them.
 */

typedef struct Fold {
    const PassLifetimes *l;
    uint32_t n_instances;
    uint32_t *first, *last; /* by instance: its instructions */
    uint32_t *instance;     /* by buffer: whose it is; UINT32_MAX: nobody's alone */
} Fold;

static bool is_instanced(const IrGraph *g, IrOp op)
{
    const char *graph = ir_op(g, op)->graph;
    return graph && (!strcmp(graph, "fwd") || !strcmp(graph, "bwd"));
}

/* The range of each instance's instructions; false unless they follow each other. */
static bool find_ranges(Fold *f, Arena *scratch)
{
    const PassLifetimes *l = f->l;
    f->first = ARENA_ARRAY(scratch, uint32_t, l->n_instrs + 1);
    f->last = ARENA_ARRAY(scratch, uint32_t, l->n_instrs + 1);
    for (uint32_t t = 0; t < l->n_instrs; t++) {
        if (!is_instanced(l->g, l->first_op[t]))
            continue;
        uint32_t i = ir_op(l->g, l->first_op[t])->instance;
        if (i == f->n_instances) {
            f->first[f->n_instances++] = t;
        } else if (i + 1 != f->n_instances || f->last[i] + 1 != t) {
            return false;
        }
        f->last[i] = t;
    }
    for (uint32_t i = 1; i < f->n_instances; i++)
        if (f->first[i] != f->last[i - 1] + 1)
            return false;
    return f->n_instances > 1;
}

static void find_owners(Fold *f, Arena *scratch)
{
    const PassLifetimes *l = f->l;
    f->instance = ARENA_ARRAY(scratch, uint32_t, l->buffers.n + 1);
    uint32_t i = 0;
    for (uint32_t b = 0; b < l->buffers.n; b++) { /* buffers are in order of `begin` */
        const PassBuffer *buffer = &l->buffers.at[b];
        while (i < f->n_instances && f->last[i] < buffer->begin)
            i++;
        bool own = i < f->n_instances && buffer->begin >= f->first[i] && buffer->end <= f->last[i];
        f->instance[b] = own ? i : UINT32_MAX;
    }
}

/* Is every instance's list of buffers instance 0's? out_twin: by buffer, the one of instance 0
 * (itself, if nobody's). */
static bool find_twins(const Fold *f, uint32_t *out_twin, Arena *scratch)
{
    const PassLifetimes *l = f->l;
    uint32_t *first_list = ARENA_ARRAY(scratch, uint32_t, l->buffers.n + 1);
    uint32_t *count = ARENA_ARRAY(scratch, uint32_t, f->n_instances);
    for (uint32_t b = 0; b < l->buffers.n; b++) {
        uint32_t i = f->instance[b];
        out_twin[b] = b;
        if (i == UINT32_MAX)
            continue;
        uint32_t k = count[i]++;
        if (i == 0) {
            first_list[k] = b;
            continue;
        }
        if (k >= count[0])
            return false;
        const PassBuffer *x = &l->buffers.at[b], *y = &l->buffers.at[first_list[k]];
        if (x->bytes != y->bytes || x->begin - f->first[i] != y->begin - f->first[0] ||
            x->end - f->first[i] != y->end - f->first[0])
            return false;
        out_twin[b] = first_list[k];
    }
    for (uint32_t i = 1; i < f->n_instances; i++)
        if (count[i] != count[0])
            return false;
    return true;
}

static uint32_t fold_time(const Fold *f, uint32_t t, bool is_end)
{
    uint32_t first = f->first[0], length = f->last[0] - first + 1,
             last = f->last[f->n_instances - 1];
    if (t < first)
        return t;
    if (t > last)
        return t - (last - f->last[0]);
    return is_end ? first + length - 1 : first;
}

static PackItem item_of(const PassBuffer *b)
{
    return (PackItem){b->begin, b->end, pass_align(b->bytes, PASS_ALIGN_TRANSIENT), 0};
}

static uint64_t pack_folded(const Fold *f, const uint32_t *twin, uint64_t bound, Arena *scratch,
                            uint64_t *out)
{
    const PassLifetimes *l = f->l;
    PackItem *items = ARENA_ARRAY(scratch, PackItem, l->buffers.n + 1);
    uint32_t *item = ARENA_ARRAY(scratch, uint32_t, l->buffers.n + 1), n = 0;
    for (uint32_t b = 0; b < l->buffers.n; b++) {
        if (twin[b] != b)
            continue;
        items[n] = item_of(&l->buffers.at[b]);
        if (f->instance[b] == UINT32_MAX) {
            items[n].begin = fold_time(f, items[n].begin, false);
            items[n].end = fold_time(f, items[n].end, true);
        }
        item[b] = n++;
    }
    uint64_t height = memplan_pack(items, n, bound, scratch);
    for (uint32_t b = 0; b < l->buffers.n; b++)
        out[b] = items[item[twin[b]]].offset;
    return height;
}

static uint64_t pack_plain(const PassLifetimes *l, uint64_t bound, Arena *scratch, uint64_t *out)
{
    PackItem *items = ARENA_ARRAY(scratch, PackItem, l->buffers.n + 1);
    for (uint32_t b = 0; b < l->buffers.n; b++)
        items[b] = item_of(&l->buffers.at[b]);
    uint64_t height = memplan_pack(items, l->buffers.n, bound, scratch);
    for (uint32_t b = 0; b < l->buffers.n; b++)
        out[b] = items[b].offset;
    return height;
}

uint64_t memplan_pack_buffers(const PassLifetimes *l, uint64_t bound, Arena *scratch,
                              uint64_t *out_offsets)
{
    Fold f = {.l = l};
    uint32_t *twin = ARENA_ARRAY(scratch, uint32_t, l->buffers.n + 1);
    if (find_ranges(&f, scratch)) {
        find_owners(&f, scratch);
        if (find_twins(&f, twin, scratch)) {
            uint64_t height = pack_folded(&f, twin, bound, scratch, out_offsets);
            if (height <= bound + bound / 100)
                return height;
        }
    }
    return pack_plain(l, bound, scratch, out_offsets);
}
