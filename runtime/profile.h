/* profile: when each instruction of a few steps ran; as a trace for Perfetto, and summed by
 * kernel. */
#ifndef RUNTIME_PROFILE_H
#define RUNTIME_PROFILE_H

#include "runtime/plan_map.h"

enum { RT_PROFILE_STEPS = 3 }; /* a trace holds this many */

typedef struct RtMark { /* nanoseconds of the monotonic clock */
    int64_t begin, end;
} RtMark;

typedef struct RtProfile {
    RtMark *marks; /* RT_PROFILE_STEPS * n_instrs; allocated before the first step */
    int64_t steps[RT_PROFILE_STEPS];
    uint64_t n_instrs;
    uint32_t n_steps; /* recorded so far */
    int64_t last;     /* where the next instruction begins */
} RtProfile;

int64_t rt_clock_ns(void);

void rt_profile_init(Session *s, uint64_t n_instrs, RtProfile *out_profile);
void rt_profile_begin(RtProfile *profile, int64_t step); /* opens the next step */
void rt_profile_mark(RtProfile *profile, uint64_t instr);
void rt_profile_end(RtProfile *profile);

Status rt_profile_write(Session *s, const RtPlan *plan, const RtProfile *profile, const char *path);
/* Nanoseconds per step of forward and backward instructions, and of the update's, without exchanges
 * between ranks. */
void rt_profile_work(const RtPlan *plan, const RtProfile *profile, int64_t *out_work,
                     int64_t *out_update);
/* A table of where the time went, by kernel: ms per step, share, GFLOP/s, launches. */
void rt_profile_kernels(const RtPlan *plan, const RtProfile *profile, FILE *out);

#endif
