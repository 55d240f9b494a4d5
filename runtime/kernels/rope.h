/* rope: frequencies of rotary embeddings from rope_table's parameters, in f64: one formula for all
 * targets. */
#ifndef RUNTIME_KERNELS_ROPE_H
#define RUNTIME_KERNELS_ROPE_H

#include <math.h>

#include "runtime/abi/plan.h"

enum { ROPE_DEFAULT, ROPE_PROPORTIONAL, ROPE_LLAMA3, ROPE_YARN };
#define ROPE_TWO_PI 6.283185307179586476925286766559

/* The pair at which a wave turns `turns` times within the original context. */
static inline double rope_yarn_pair(const PlanParam *p, double turns)
{
    double dims = (double)p[PLAN_rope_table_dims].i;
    return dims * log(p[PLAN_rope_table_original].f / (turns * ROPE_TWO_PI)) /
           (2 * log(p[PLAN_rope_table_base].f));
}

static inline double rope_yarn(const PlanParam *p, int64_t i, double frequency)
{
    double low = fmax(floor(rope_yarn_pair(p, p[PLAN_rope_table_beta_fast].f)), 0);
    double high = fmin(ceil(rope_yarn_pair(p, p[PLAN_rope_table_beta_slow].f)),
                       (double)p[PLAN_rope_table_dims].i - 1);
    double ramp = fmin(fmax(((double)i - low) / (low == high ? 0.001 : high - low), 0), 1);
    return frequency / p[PLAN_rope_table_factor].f * ramp + frequency * (1 - ramp);
}

/* Long waves are stretched by the factor, short ones are kept, those between are blended. */
static inline double rope_llama3(const PlanParam *p, double frequency)
{
    double factor = p[PLAN_rope_table_factor].f, low = p[PLAN_rope_table_low].f,
           high = p[PLAN_rope_table_high].f;
    double turns = p[PLAN_rope_table_original].f * frequency / ROPE_TWO_PI;
    if (turns > high || (turns >= high && low == high))
        return frequency;
    if (turns < low)
        return frequency / factor;
    double blend = (turns - low) / (high - low);
    return (1 - blend) * frequency / factor + blend * frequency;
}

static inline double rope_frequency(const PlanParam *p, int64_t i)
{
    int64_t dims = p[PLAN_rope_table_dims].i;
    double frequency = pow(p[PLAN_rope_table_base].f, -2 * (double)i / (double)dims);
    switch (p[PLAN_rope_table_kind].i) {
    case ROPE_PROPORTIONAL:
        return i < (int64_t)floor(p[PLAN_rope_table_partial].f * (double)(dims / 2))
                   ? frequency / p[PLAN_rope_table_factor].f
                   : 0;
    case ROPE_LLAMA3:
        return rope_llama3(p, frequency);
    case ROPE_YARN:
        return rope_yarn(p, i, frequency);
    default:
        return frequency;
    }
}

#endif
