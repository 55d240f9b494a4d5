/* progress: how far long work is, on a terminal alone, and only once it has taken a second. */
#ifndef RUNTIME_PROGRESS_H
#define RUNTIME_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct RtProgress {
    bool on, shown;
    int64_t next_ns; /* when to say something next */
    char what[64];
} RtProgress;

void rt_progress_init(RtProgress *progress); /* on where standard error is a terminal */
void rt_progress_begin(RtProgress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void rt_progress_at(RtProgress *progress, uint64_t done,
                    uint64_t total);        /* cheap: for inner loops */
void rt_progress_end(RtProgress *progress); /* the line is clean again */

#endif
