#include "runtime/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "runtime/profile.h"

enum { FIRST_NS = 1000000000, EVERY_NS = 250000000 };

void rt_progress_init(RtProgress *progress)
{
    *progress = (RtProgress){.on = isatty(STDERR_FILENO)};
}

void rt_progress_begin(RtProgress *progress, const char *format, ...)
{
    if (!progress->on)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(progress->what, sizeof progress->what, format, args);
    va_end(args);
    progress->next_ns = rt_clock_ns() + FIRST_NS;
}

static void put(const char *text, int length)
{
    ssize_t wrote = write(STDERR_FILENO, text, (size_t)length);
    (void)wrote;
}

void rt_progress_at(RtProgress *progress, uint64_t done, uint64_t total)
{
    if (!progress->on)
        return;
    int64_t now = rt_clock_ns();
    if (now < progress->next_ns)
        return;
    char line[128];
    put(line, snprintf(line, sizeof line, "\r\033[K%s: %llu %%", progress->what,
                       (unsigned long long)(total ? done * 100 / total : 0)));
    progress->shown = true;
    progress->next_ns = now + EVERY_NS;
}

void rt_progress_end(RtProgress *progress)
{
    static const char clean[] = "\r\033[K";
    if (progress->shown)
        put(clean, sizeof clean - 1);
    progress->shown = false;
}
