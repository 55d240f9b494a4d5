/* log: step lines on standard output and JSON lines in a file. Lines are made in fixed buffers and
 * written whole. */
#ifndef RUNTIME_LOG_H
#define RUNTIME_LOG_H

#include "runtime/rt.h"

enum { RT_LOG_LINE = 1024 };

typedef struct RtLog {
    Session *s;
    const char *path;
    int out, fd;   /* standard output, or -1 for silence; the log file, or -1 */
    double tokens; /* of the global batch */
    double flops;  /* of a step of one rank, without replays */
    double ranks;
    uint64_t arena_bytes;
    bool append;                  /* a resumed run goes on in the file that is there */
    bool file_failed, out_failed; /* could not be written; said once */
} RtLog;

/* path NULL: no file; a rank other than 0 is silent. What the file holds stays until rt_log_begin.
 */
Status rt_log_open(Session *s, const Rt *rt, const char *path, bool append, RtLog *out_log);
/* The run is sure to begin: an older log makes room for its own. */
void rt_log_begin(RtLog *log);
/* STATUS_ENV where something of the log could not be written, which has been said. */
Status rt_log_close(RtLog *log);

void rt_log_step(RtLog *log, const RtStepResult *result, double seconds);
void rt_log_eval(RtLog *log, int64_t step, double loss, int64_t targets, int64_t batches);
/* A line for people, printf-like. */
void rt_log_note(RtLog *log, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The two forms of a step, for tests: text of at most RT_LOG_LINE bytes, its length returned. */
int rt_log_step_line(const RtLog *log, const RtStepResult *result, double seconds, char *out_line);
int rt_log_step_json(const RtLog *log, const RtStepResult *result, double seconds, char *out_line);

#endif
