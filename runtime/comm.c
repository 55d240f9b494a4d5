#include "runtime/comm.h"

#include <sched.h>
#include <time.h>

#include "runtime/abi/workspace.h"
#include "runtime/profile.h"

enum {
    ROUND_BYTES = 64 << 20, /* of one message */
    SUM_BLOCK = 512,        /* elements summed at a time, on the stack */
};

/* -- a round of messages -- */

/* A rank that waits looks again at once for a while, and then sleeps between looks. */
void rt_world_rest(const RtWorld *world, uint64_t polls)
{
    struct timespec a_little = {0, polls < 10 * world->eager_polls ? 20000 : 200000};
    if (polls < world->eager_polls)
        sched_yield();
    else
        nanosleep(&a_little, NULL);
}

static bool lost(RtWorld *world, uint32_t peer, const char *how)
{
    snprintf(world->lost, sizeof world->lost, "rank %u %s", peer, how);
    return false;
}

static bool exchange(RtWorld *world, const RtTransfer *transfers, uint32_t n)
{
    int64_t begin = rt_clock_ns();
    double limit_s = world->timeout_s + world->files_s;
    uint32_t peer = 0;
    if (world->lost[0])
        return false;
    if (!n)
        return true;
    if (!world->transport->start(world->link, transfers, n))
        return lost(world, transfers[0].peer, "cannot be reached");
    for (uint64_t polls = 0;; polls++) {
        RtTransferState state = world->transport->poll(world->link, &peer);
        if (state == RT_TRANSFER_DONE)
            return true;
        if (state == RT_TRANSFER_LOST)
            return lost(world, peer, "has gone");
        if ((double)(rt_clock_ns() - begin) > limit_s * 1e9) {
            char how[64];
            snprintf(how, sizeof how, "has not answered for %g s", limit_s);
            return lost(world, peer, how);
        }
        rt_world_rest(world, polls);
    }
}

bool rt_send(RtGroup *group, uint32_t to, const void *bytes, uint64_t n)
{
    for (uint64_t at = 0; at < n; at += ROUND_BYTES) {
        uint64_t size = n - at < ROUND_BYTES ? n - at : ROUND_BYTES;
        RtTransfer transfer = {group->ranks[to], (const char *)bytes + at, NULL, size, 0};
        if (!exchange(group->world, &transfer, 1))
            return false;
    }
    return true;
}

bool rt_receive(RtGroup *group, uint32_t from, void *bytes, uint64_t n)
{
    for (uint64_t at = 0; at < n; at += ROUND_BYTES) {
        uint64_t size = n - at < ROUND_BYTES ? n - at : ROUND_BYTES;
        RtTransfer transfer = {group->ranks[from], NULL, (char *)bytes + at, 0, size};
        if (!exchange(group->world, &transfer, 1))
            return false;
    }
    return true;
}

/* -- gather -- */

bool rt_all_gather(RtGroup *group, void *to, const void *from, uint64_t bytes)
{
    unsigned char *own = (unsigned char *)to + group->self * bytes;
    if (own != from)
        memmove(own, from, bytes);
    for (uint64_t at = 0; at < bytes; at += ROUND_BYTES) {
        uint64_t size = bytes - at < ROUND_BYTES ? bytes - at : ROUND_BYTES;
        uint32_t n = 0;
        for (uint32_t i = 1; i < group->n; i++) {
            uint32_t r = (group->self + i) % group->n;
            group->transfers[n++] = (RtTransfer){
                group->ranks[r], own + at, (unsigned char *)to + r * bytes + at, size, size};
        }
        if (!exchange(group->world, group->transfers, n))
            return false;
    }
    return true;
}

/* -- sums, in the order of the ranks -- */

static double real_at(const void *from, uint32_t dtype, int64_t i)
{
    switch (dtype) {
    case DTYPE_F64:
        return ((const double *)from)[i];
    case DTYPE_F32:
        return (double)((const float *)from)[i];
    default:
        return (double)bf16_to_f32(((const uint16_t *)from)[i]);
    }
}

static void add_f32(float *sum, const void *from, uint32_t dtype, int64_t first, int64_t n,
                    PlanReduce op)
{
    for (int64_t i = 0; i < n; i++) {
        float x = dtype == DTYPE_F32 ? ((const float *)from)[first + i]
                                     : bf16_to_f32(((const uint16_t *)from)[first + i]);
        sum[i] = op == PLAN_SUM ? sum[i] + x : x > sum[i] || x != x ? x : sum[i];
    }
}

static void add_f64(double *sum, const void *from, uint32_t dtype, int64_t first, int64_t n,
                    PlanReduce op)
{
    for (int64_t i = 0; i < n; i++) {
        double x = real_at(from, dtype, first + i);
        sum[i] = op == PLAN_SUM ? sum[i] + x : x > sum[i] || x != x ? x : sum[i];
    }
}

static void put_real(void *to, uint32_t dtype, int64_t at, double value)
{
    if (dtype == DTYPE_F64)
        ((double *)to)[at] = value;
    else if (dtype == DTYPE_F32)
        ((float *)to)[at] = (float)value;
    else
        ((uint16_t *)to)[at] = f32_to_bf16((float)value);
}

static void sum_i64(const RtReduction *x, const unsigned char *const *parts, uint32_t n, int64_t at,
                    int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t sum = ((const int64_t *)(const void *)parts[0])[i];
        for (uint32_t r = 1; r < n; r++) {
            int64_t y = ((const int64_t *)(const void *)parts[r])[i];
            sum = x->op == PLAN_SUM ? sum + y : y > sum ? y : sum;
        }
        ((int64_t *)x->to)[at + i] = sum;
    }
}

/* to[at ..] = parts[0] + parts[1] + ...: `count` elements each. f32 unless an operand or the
 * result is f64. */
static void sum_parts(const RtReduction *x, const unsigned char *const *parts, uint32_t n,
                      int64_t at, int64_t count)
{
    bool wide = x->from_dtype == DTYPE_F64;
    if (x->from_dtype == DTYPE_I64) {
        sum_i64(x, parts, n, at, count);
        return;
    }
    for (int64_t first = 0; first < count; first += SUM_BLOCK) {
        int64_t block = plan_min(SUM_BLOCK, count - first);
        union {
            float f32[SUM_BLOCK];
            double f64[SUM_BLOCK];
        } sum;
        for (int64_t i = 0; i < block; i++) {
            double value = real_at(parts[0], x->from_dtype, first + i);
            if (wide)
                sum.f64[i] = value;
            else
                sum.f32[i] = (float)value;
        }
        for (uint32_t r = 1; r < n; r++) {
            if (wide)
                add_f64(sum.f64, parts[r], x->from_dtype, first, block, x->op);
            else
                add_f32(sum.f32, parts[r], x->from_dtype, first, block, x->op);
        }
        for (int64_t i = 0; i < block; i++)
            put_real(x->to, x->to_dtype, at + first + i, wide ? sum.f64[i] : (double)sum.f32[i]);
    }
}

/* Member r's elements of the round are at from[first(r)], counts[r] of them; this member's own
 * sum goes to `at`. */
static bool sum_round(RtGroup *group, const RtReduction *x, const int64_t *first,
                      const int64_t *counts, int64_t at)
{
    const unsigned char *parts[PLAN_MOST_RANKS];
    uint64_t size = dtype_bytes((DType)x->from_dtype);
    int64_t own = counts[group->self];
    uint32_t n = 0;
    for (uint32_t i = 0; i < group->n; i++) {
        uint32_t r = (group->self + i) % group->n;
        const unsigned char *mine = (const unsigned char *)x->from + (uint64_t)first[r] * size;
        unsigned char *theirs = (unsigned char *)x->workspace + r * (uint64_t)own * size;
        parts[r] = i ? theirs : mine;
        if (i && (counts[r] || own))
            group->transfers[n++] = (RtTransfer){group->ranks[r], mine, theirs,
                                                 (uint64_t)counts[r] * size, (uint64_t)own * size};
    }
    if (!exchange(group->world, group->transfers, n))
        return false;
    sum_parts(x, parts, group->n, at, own);
    return true;
}

bool rt_reduce_scatter(RtGroup *group, const RtReduction *x)
{
    int64_t first[PLAN_MOST_RANKS], counts[PLAN_MOST_RANKS];
    for (int64_t at = 0; at < x->count; at += COMM_CHUNK) {
        int64_t n = plan_min(COMM_CHUNK, x->count - at);
        for (uint32_t r = 0; r < group->n; r++) {
            first[r] = r * x->count + at;
            counts[r] = n;
        }
        if (!sum_round(group, x, first, counts, at))
            return false;
    }
    return true;
}

/* Small: everybody sums everything. The order, and so the bits, are those of the other way. */
static bool all_reduce_whole(RtGroup *group, const RtReduction *x)
{
    int64_t first[PLAN_MOST_RANKS], counts[PLAN_MOST_RANKS];
    for (uint32_t r = 0; r < group->n; r++) {
        first[r] = 0;
        counts[r] = x->count;
    }
    return sum_round(group, x, first, counts, 0);
}

static bool gather_round(RtGroup *group, const RtReduction *x, const int64_t *first,
                         const int64_t *counts)
{
    uint64_t size = dtype_bytes((DType)x->to_dtype);
    unsigned char *to = x->to;
    uint32_t n = 0;
    for (uint32_t i = 1; i < group->n; i++) {
        uint32_t r = (group->self + i) % group->n;
        if (counts[r] || counts[group->self])
            group->transfers[n++] =
                (RtTransfer){group->ranks[r], to + (uint64_t)first[group->self] * size,
                             to + (uint64_t)first[r] * size, (uint64_t)counts[group->self] * size,
                             (uint64_t)counts[r] * size};
    }
    return exchange(group->world, group->transfers, n);
}

bool rt_all_reduce(RtGroup *group, const RtReduction *x)
{
    enum { SMALL = 4096 };
    int64_t first[PLAN_MOST_RANKS], counts[PLAN_MOST_RANKS];
    if (x->count <= SMALL)
        return all_reduce_whole(group, x);
    for (int64_t at = 0, n; at < x->count; at += n) {
        n = plan_min(x->count - at, (int64_t)group->n * plan_min(COMM_CHUNK, x->count));
        int64_t piece = plan_ceil_div(n, group->n);
        for (uint32_t r = 0; r < group->n; r++) {
            int64_t begin = plan_min(r * piece, n);
            first[r] = at + begin;
            counts[r] = plan_min(begin + piece, n) - begin;
        }
        if (!sum_round(group, x, first, counts, first[group->self]) ||
            !gather_round(group, x, first, counts))
            return false;
    }
    return true;
}
