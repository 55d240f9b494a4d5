/* fused_cuda: how a fused region's [rows, cols] is cut for target cuda, and with it the order of
 * its sums: from the shape alone, so that an op gives the same bits whatever it is fused with.
 * The compiler plans and emits by it. */
#ifndef RUNTIME_ABI_FUSED_CUDA_H
#define RUNTIME_ABI_FUSED_CUDA_H

#include "runtime/abi/workspace.h"

enum {
    CUDA_FUSED_LANES = 8,     /* neighbouring elements that a thread handles together, at most */
    CUDA_FUSED_THREADS = 256, /* of a block, where rows do not say otherwise */
    CUDA_FUSED_ROW_THREADS = 1024,
    CUDA_FUSED_WARP = 32,
    /* elements of a row that a thread holds, where that is enough threads */
    CUDA_FUSED_HELD = 32,
    CUDA_FUSED_BLOCKS = 512,   /* that sums over rows are spread over */
    CUDA_FUSED_WIDE = 16384,   /* longer rows are summed by blocks beside each other */
    CUDA_FUSED_ROWS_LEAST = 4, /* rows of a block that sums over them */
    CUDA_FUSED_STRIPS = 32,    /* runs of chunks that are summed apart, at most */
};

static inline int64_t plan_cuda_fused_lanes(int64_t cols)
{
    int64_t lanes = CUDA_FUSED_LANES;
    while (lanes > 1 && cols % (2 * lanes)) /* half a row is whole groups of lanes, too */
        lanes /= 2;
    return lanes;
}

/* A row of a block: thread t holds the groups of lanes t, t + threads, ...: `steps` of them. */
typedef struct PlanCudaRow {
    int64_t lanes, threads, steps;
    int64_t rows; /* of one block at a time */
} PlanCudaRow;

/* The less the better: threads without work, then a count of elements per thread far from 16. */
static inline int64_t plan_cuda_row_cost(int64_t groups, int64_t lanes, int64_t threads,
                                         int64_t steps)
{
    int64_t held = lanes * steps, cost = 1000 * (threads * steps - groups) / (threads * steps);
    for (int64_t n = held; n < 16; n *= 2)
        cost += 60;
    if (held > 16)
        cost += 4 * (held - 16);
    return cost + (steps > 1 && steps % 2 ? 30 : 0) + (threads > CUDA_FUSED_WARP ? 20 : 0);
}

static inline PlanCudaRow plan_cuda_row(int64_t cols)
{
    PlanCudaRow best = {.lanes = plan_cuda_fused_lanes(cols)};
    int64_t groups = cols / best.lanes, least = INT64_MAX;
    for (int64_t threads = 1; threads <= CUDA_FUSED_ROW_THREADS;
         threads = threads < CUDA_FUSED_WARP ? 2 * threads : threads + CUDA_FUSED_WARP) {
        int64_t steps = plan_ceil_div(groups, threads);
        if (steps * best.lanes > CUDA_FUSED_HELD && threads < CUDA_FUSED_ROW_THREADS)
            continue;
        int64_t cost = plan_cuda_row_cost(groups, best.lanes, threads, steps);
        if (cost < least) {
            least = cost;
            best.threads = threads;
            best.steps = steps;
        }
    }
    best.rows = best.threads <= CUDA_FUSED_WARP ? CUDA_FUSED_THREADS / best.threads : 1;
    return best;
}

/* Sums over rows. A chunk of rows belongs to one block; row i of it is added by the block's
 * group i % rows, each in order of i, then the groups in order. Runs of `chunks_per_strip`
 * chunks are added in order, then the strips. */
typedef struct PlanCudaSums {
    PlanCudaRow row;
    int64_t tiles; /* blocks beside each other, where nothing but sums is computed */
    int64_t rows_per_chunk, chunks;
    int64_t strips, chunks_per_strip;
} PlanCudaSums;

static inline PlanCudaSums plan_cuda_sums(int64_t rows, int64_t cols)
{
    PlanCudaSums s = {.row = plan_cuda_row(cols), .tiles = 1, .strips = 1};
    if (cols > CUDA_FUSED_WIDE)
        s.tiles = plan_ceil_div(cols, s.row.lanes * CUDA_FUSED_THREADS);
    int64_t blocks = s.tiles < CUDA_FUSED_BLOCKS ? CUDA_FUSED_BLOCKS / s.tiles : 1;
    int64_t per = plan_ceil_div(rows, blocks), least = CUDA_FUSED_ROWS_LEAST;
    if (least < 2 * s.row.rows && s.row.rows > 1)
        least = 2 * s.row.rows;
    s.rows_per_chunk = plan_round_up(per < least ? least : per, s.row.rows);
    s.chunks = plan_ceil_div(rows, s.rows_per_chunk);
    while (s.strips < CUDA_FUSED_STRIPS && 8 * s.strips <= s.chunks)
        s.strips *= 2;
    s.chunks_per_strip = plan_ceil_div(s.chunks, s.strips);
    return s;
}

#endif
