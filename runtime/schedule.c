#include "runtime/schedule.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

void rt_schedule_resolve(RtSchedule *schedule, int64_t run_steps)
{
    if (schedule->warmup_steps < 0)
        schedule->warmup_steps = run_steps / 10 < 1000 ? run_steps / 10 : 1000;
    if (schedule->decay_steps < 0)
        schedule->decay_steps = run_steps;
    if (schedule->wsd_decay_steps < 0)
        schedule->wsd_decay_steps = schedule->decay_steps / 10;
}

static double wsd_curve(RtWsdStyle style, double q)
{
    switch (style) {
    case RT_WSD_LINEAR:
        return 1 - q;
    case RT_WSD_COSINE:
        return (cos(pi * q) + 1) / 2;
    case RT_WSD_MINUS_SQRT:
        return 1 - sqrt(q);
    default:
        return 2 * pow(0.5, q) - 1;
    }
}

/* 1 at the end of the warm-up, 0 at decay_steps. */
static double decay_factor(const RtSchedule *schedule, int64_t n)
{
    int64_t warmup = schedule->warmup_steps, decay = schedule->decay_steps;
    double r = decay > warmup ? (double)(n - warmup) / (double)(decay - warmup) : 1;
    if (schedule->style == RT_LR_LINEAR)
        return 1 - r;
    if (schedule->style == RT_LR_COSINE)
        return (cos(pi * r) + 1) / 2;
    int64_t anneal = decay - schedule->wsd_decay_steps;
    if (n <= anneal)
        return 1;
    return wsd_curve(schedule->wsd_style, (double)(n - anneal) / (double)schedule->wsd_decay_steps);
}

double rt_schedule_lr(const RtSchedule *schedule, int64_t n)
{
    if (schedule->warmup_steps > 0 && n <= schedule->warmup_steps)
        return schedule->init +
               (schedule->max - schedule->init) * (double)n / (double)schedule->warmup_steps;
    if (schedule->style == RT_LR_CONSTANT)
        return schedule->max;
    if (n > schedule->decay_steps)
        return schedule->min;
    return schedule->min + decay_factor(schedule, n) * (schedule->max - schedule->min);
}
