/* schedule: the learning rate of each update, computed on the host (formulas: docs/recipes.md). */
#ifndef RUNTIME_SCHEDULE_H
#define RUNTIME_SCHEDULE_H

#include <stdint.h>

#define RT_LR_STYLES(X)                                                                            \
    X(CONSTANT, "constant") X(LINEAR, "linear") X(COSINE, "cosine") X(WSD, "WSD")

typedef enum RtLrStyle {
#define RT_LR_ENUM(id, name) RT_LR_##id,
    RT_LR_STYLES(RT_LR_ENUM)
#undef RT_LR_ENUM
        RT_LR_STYLE_COUNT
} RtLrStyle;

#define RT_WSD_STYLES(X)                                                                           \
    X(EXPONENTIAL, "exponential") X(LINEAR, "linear") X(COSINE, "cosine")                          \
    X(MINUS_SQRT, "minus_sqrt")

typedef enum RtWsdStyle { /* the curve of WSD's last phase */
#define RT_WSD_ENUM(id, name) RT_WSD_##id,
    RT_WSD_STYLES(RT_WSD_ENUM)
#undef RT_WSD_ENUM
        RT_WSD_STYLE_COUNT
} RtWsdStyle;

typedef struct RtSchedule {
    RtLrStyle style;
    RtWsdStyle wsd_style;
    double max, min, init;
    int64_t warmup_steps, decay_steps, wsd_decay_steps; /* -1: not given; see rt_schedule_resolve */
} RtSchedule;

/* Fills in what depends on the run's length in steps: warm-up, decay and WSD's last phase. */
void rt_schedule_resolve(RtSchedule *schedule, int64_t run_steps);
/* Of update n, counted from 0. */
double rt_schedule_lr(const RtSchedule *schedule, int64_t n);

#endif
