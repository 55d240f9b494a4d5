#include "runtime/kernels/cpu/kernels.h"
#include "runtime/kernels/cpu/tile.h"

enum { ROPE_DEFAULT, ROPE_PROPORTIONAL, ROPE_LLAMA3, ROPE_YARN };
enum { FREQUENCIES = 64 }; /* computed at a time, for all tokens of a chunk */

static const double two_pi = 6.283185307179586476925286766559;

/* The pair at which a wave turns `turns` times within the original context. */
static double yarn_pair(const PlanParam *p, double turns)
{
    double dims = (double)p[PLAN_rope_table_dims].i;
    return dims * log(p[PLAN_rope_table_original].f / (turns * two_pi)) / (2 * log(p[PLAN_rope_table_base].f));
}

static double yarn(const PlanParam *p, int64_t i, double frequency)
{
    double low = fmax(floor(yarn_pair(p, p[PLAN_rope_table_beta_fast].f)), 0);
    double high = fmin(ceil(yarn_pair(p, p[PLAN_rope_table_beta_slow].f)), (double)p[PLAN_rope_table_dims].i - 1);
    double ramp = fmin(fmax(((double)i - low) / (low == high ? 0.001 : high - low), 0), 1);
    return frequency / p[PLAN_rope_table_factor].f * ramp + frequency * (1 - ramp);
}

/* Long waves are stretched by the factor, short ones are kept, those between are blended. */
static double llama3(const PlanParam *p, double frequency)
{
    double factor = p[PLAN_rope_table_factor].f, low = p[PLAN_rope_table_low].f, high = p[PLAN_rope_table_high].f;
    double turns = p[PLAN_rope_table_original].f * frequency / two_pi;
    if (turns > high || (turns >= high && low == high))
        return frequency;
    if (turns < low)
        return frequency / factor;
    double blend = (turns - low) / (high - low);
    return (1 - blend) * frequency / factor + blend * frequency;
}

static double rope_frequency(const PlanParam *p, int64_t i)
{
    int64_t dims = p[PLAN_rope_table_dims].i;
    double frequency = pow(p[PLAN_rope_table_base].f, -2 * (double)i / (double)dims);
    switch (p[PLAN_rope_table_kind].i) {
    case ROPE_PROPORTIONAL:
        return i < (int64_t)floor(p[PLAN_rope_table_partial].f * (double)(dims / 2))
                   ? frequency / p[PLAN_rope_table_factor].f
                   : 0;
    case ROPE_LLAMA3:
        return llama3(p, frequency);
    case ROPE_YARN:
        return yarn(p, i, frequency);
    default:
        return frequency;
    }
}

#define REAL_COS cosf
#define REAL_SIN sinf
#include "runtime/kernels/cpu/real_f32.h"
#include "runtime/kernels/cpu/rope_table.inc.h"
#undef REAL_COS
#undef REAL_SIN
#define REAL_COS cos
#define REAL_SIN sin
#include "runtime/kernels/cpu/real_f64.h"
#include "runtime/kernels/cpu/rope_table.inc.h"

static int64_t rows_per_chunk(const RtCall *call)
{
    return plan_ceil_div(rt_rows_per_chunk(call->param[PLAN_rope_table_dims].i), 16);
}

uint64_t rt_rope_table_chunks(const RtCall *call, uint32_t phase)
{
    (void)phase;
    return (uint64_t)plan_ceil_div(call->param[PLAN_rope_table_tokens].i, rows_per_chunk(call));
}

void rt_rope_table_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    (void)phase;
    (void)scratch;
    int64_t per = rows_per_chunk(call), first = rt_chunk_begin(chunk, per);
    int64_t end = rt_chunk_end(chunk, per, call->param[PLAN_rope_table_tokens].i);
    int given = call->at[PLAN_T_rope_table_cos] ? PLAN_T_rope_table_cos : PLAN_T_rope_table_sin;
    if (rt_is_f64(call, given))
        rope_table_rows_f64(call, first, end);
    else
        rope_table_rows_f32(call, first, end);
}
