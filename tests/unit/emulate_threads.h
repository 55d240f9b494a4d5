/* emulate_threads: runs what emit_device makes with `emulated`: block after block, a fiber per
 * thread. Warps run ahead of each other, and shared memory begins as NaN, so that a missing barrier
 * shows. */
#ifndef TESTS_UNIT_EMULATE_THREADS_H
#define TESTS_UNIT_EMULATE_THREADS_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "tests/unit/emulate_switch.h"

enum {
    EMULATED_THREADS = 1024,
    EMULATED_WARP = 32,
    EMULATED_SHARED = 227 << 10,
    EMULATED_STACK = 1 << 18,
    EMULATED_ARGS = 24
};

typedef void (*EmulatedEntry)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                              uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                              uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                              uint64_t, uint64_t, uint64_t);

typedef struct EmulatedThread {
    void *sp;
    uint32_t exchanges; /* done so far */
    uint32_t barriers;
    const uint32_t *until; /* waits for this count to reach `target`; NULL: runs */
    uint32_t target;
    int done;
} EmulatedThread;

static EmulatedThread emulated_threads[EMULATED_THREADS];
static char *emulated_stacks;
static uint32_t emulated_current, emulated_block, emulated_n, emulated_left, emulated_state = 1,
                                                                             emulated_shared_bytes;
static uint32_t emulated_arrived, emulated_in_warp[EMULATED_THREADS / EMULATED_WARP];
static float emulated_slot[EMULATED_THREADS][2];
static void *emulated_scheduler;
static EmulatedEntry emulated_entry;
static const uint64_t *emulated_args;

/* What the code under test refers to. */
_Alignas(128) unsigned char step_shared[EMULATED_SHARED];
int32_t emulated_read_ptx_sreg_tid_x(void);
int32_t emulated_read_ptx_sreg_ctaid_x(void);
void emulated_barrier0(void);
float emulated_shfl_sync_bfly_f32(int32_t mask, float x, int32_t distance, int32_t clamp);
int32_t emulated_ff2bf16x2_rn(float high, float low);
int16_t emulated_f2bf16_rn(float x);
float emulated_rcp_approx_ftz_f(float x);

static void emulated_wait(const uint32_t *count, uint32_t target)
{
    EmulatedThread *t = &emulated_threads[emulated_current];
    t->until = count;
    t->target = target;
    emulate_switch(&t->sp, emulated_scheduler);
}

int32_t emulated_read_ptx_sreg_tid_x(void)
{
    return (int32_t)emulated_current;
}

int32_t emulated_read_ptx_sreg_ctaid_x(void)
{
    return (int32_t)emulated_block;
}

void emulated_barrier0(void)
{
    EmulatedThread *t = &emulated_threads[emulated_current];
    emulated_arrived++;
    emulated_wait(&emulated_arrived, ++t->barriers * emulated_n);
}

float emulated_shfl_sync_bfly_f32(int32_t mask, float x, int32_t distance, int32_t clamp)
{
    uint32_t me = emulated_current, warp = me / EMULATED_WARP;
    EmulatedThread *t = &emulated_threads[me];
    uint32_t turn = t->exchanges++ % 2;
    if (mask != -1 || clamp != EMULATED_WARP - 1)
        abort();
    emulated_slot[me][turn] = x;
    emulated_in_warp[warp]++;
    emulated_wait(&emulated_in_warp[warp], t->exchanges * EMULATED_WARP);
    return emulated_slot[me ^ (uint32_t)distance][turn];
}

int16_t emulated_f2bf16_rn(float x)
{
    return (int16_t)f32_to_bf16(x);
}

int32_t emulated_ff2bf16x2_rn(float high, float low)
{
    return (int32_t)((uint32_t)f32_to_bf16(high) << 16 | f32_to_bf16(low));
}

/* 1 / x or, in half of the cases, the neighbour on the other side of the exact value, so that it is
 * off by less than a unit in the last place. A mantissa of ones has to be exact: it is the one that
 * a step of Newton's does not mend, so a device whose `rcp.rn` is exact has it exact, too. */
float emulated_rcp_approx_ftz_f(float x)
{
    uint32_t x_bits, y_bits;
    float y = 1 / x, error = fmaf(-x, y, 1);
    memcpy(&x_bits, &x, 4);
    memcpy(&y_bits, &y, 4);
    if (x_bits * 0x9e3779b1u >> 31 && error != 0 && (x_bits & 0x7fffff) != 0x7fffff)
        y_bits += error > 0 ? 1u : -1u;
    memcpy(&y, &y_bits, 4);
    return y;
}

static void emulated_start(void)
{
    const uint64_t *a = emulated_args;
    emulated_entry(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12],
                   a[13], a[14], a[15], a[16], a[17], a[18], a[19], a[20], a[21], a[22], a[23]);
    emulated_threads[emulated_current].done = 1;
    emulate_switch(&emulated_threads[emulated_current].sp, emulated_scheduler);
    abort();
}

static uint32_t emulated_random(void)
{
    emulated_state = emulated_state * 1664525u + 1013904223u;
    return emulated_state >> 8;
}

/* A warp runs as far as it can, ahead of the others. */
static uint32_t emulated_run_warp(uint32_t warp, const uint32_t *order)
{
    uint32_t ran = 0;
    for (uint32_t again = 1; again;) {
        again = 0;
        for (uint32_t i = 0; i < EMULATED_WARP; i++) {
            uint32_t index = warp * EMULATED_WARP + order[i];
            EmulatedThread *t = &emulated_threads[index];
            if (t->done || (t->until && *t->until < t->target))
                continue;
            emulated_current = index;
            again = 1;
            ran++;
            emulate_switch(&emulated_scheduler, t->sp);
            emulated_left -= (uint32_t)t->done;
        }
    }
    return ran;
}

static void emulated_prepare(EmulatedThread *t, char *stack)
{
    *t = (EmulatedThread){.sp = emulate_begin(stack + EMULATED_STACK, emulated_start)};
}

static void emulated_run_block(uint32_t threads)
{
    uint32_t order[EMULATED_WARP], warps = threads / EMULATED_WARP;
    memset(step_shared, 0xff, emulated_shared_bytes);
    memset(emulated_in_warp, 0, sizeof emulated_in_warp);
    emulated_arrived = 0;
    emulated_n = emulated_left = threads;
    for (uint32_t i = 0; i < threads; i++)
        emulated_prepare(&emulated_threads[i], emulated_stacks + (size_t)i * EMULATED_STACK);
    for (uint32_t i = 0; i < EMULATED_WARP; i++) {
        uint32_t k = emulated_random() % (i + 1);
        order[i] = order[k];
        order[k] = i;
    }
    while (emulated_left) {
        uint32_t ran = 0, first = emulated_random() % warps;
        for (uint32_t i = 0; i < warps; i++)
            ran += emulated_run_warp((first + i) % warps, order);
        if (!ran)
            abort(); /* a thread waits for one that never comes */
    }
}

static inline void emulate_threads(void *entry, uint32_t grid, uint32_t threads,
                                   uint32_t shared_bytes, const uint64_t *args)
{
    if (!emulated_stacks)
        emulated_stacks = malloc((size_t)EMULATED_THREADS * EMULATED_STACK);
    memcpy(&emulated_entry, &entry, sizeof entry);
    emulated_args = args;
    emulated_shared_bytes = shared_bytes;
    for (uint32_t i = 0; i < grid; i++) {
        emulated_block = grid - 1 - i;
        emulated_run_block(threads);
    }
}

#endif
