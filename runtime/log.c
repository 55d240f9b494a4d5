#include "runtime/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/diag.h"
#include "runtime/json.h"

/* Of one GPU in bf16: what `mfu` is a share of, on any target. */
static const double peak_flops = 989.4e12;
static const double gib = 1024.0 * 1024.0 * 1024.0;

Status rt_log_open(Session *s, const Rt *rt, const char *path, bool append, RtLog *out_log)
{
    const PlanHeader *header = rt->plan.header;
    bool first = rt_is_first(rt->world);
    *out_log = (RtLog){
        .s = s,
        .path = path,
        .out = first ? STDOUT_FILENO : -1,
        .fd = -1,
        .tokens = (double)(rt_global_batch(rt) * header->seq),
        .ranks = rt->world ? rt->world->size : 1,
        .flops = (double)header->flops_per_step,
        .arena_bytes = header->arena_bytes,
        .append = append,
    };
    if (!path || !first)
        return STATUS_OK;
    out_log->fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (append ? O_APPEND : 0), 0666);
    if (out_log->fd >= 0)
        return STATUS_OK;
    diag(s, no_span, file_open, path, strerror(errno));
    return STATUS_ENV;
}

static void failed(const RtLog *log, const char *path, bool *said)
{
    if (!*said)
        diag(log->s, no_span, file_write, path, strerror(errno));
    *said = true;
}

void rt_log_begin(RtLog *log)
{
    struct stat info;
    bool empties = log->fd >= 0 && !log->append && !fstat(log->fd, &info) && S_ISREG(info.st_mode);
    if (empties && ftruncate(log->fd, 0))
        failed(log, log->path, &log->file_failed);
}

Status rt_log_close(RtLog *log)
{
    if (log->fd >= 0 && close(log->fd))
        failed(log, log->path, &log->file_failed);
    log->fd = -1;
    return log->file_failed || log->out_failed ? STATUS_ENV : STATUS_OK;
}

static bool write_all(int fd, const char *text, int length)
{
    while (length > 0) {
        ssize_t wrote = write(fd, text, (size_t)length);
        if (wrote < 0 && errno != EINTR)
            return false;
        text += wrote > 0 ? wrote : 0;
        length -= wrote > 0 ? (int)wrote : 0;
    }
    return true;
}

static void put_line(RtLog *log, const char *text, int length)
{
    if (log->out >= 0 && !log->out_failed && !write_all(log->out, text, length))
        failed(log, "standard output", &log->out_failed);
}

static void put_json(RtLog *log, const char *text, int length)
{
    if (log->fd >= 0 && !log->file_failed && !write_all(log->fd, text, length))
        failed(log, log->path, &log->file_failed);
}

static int clipped(int length)
{
    return length < RT_LOG_LINE ? length : RT_LOG_LINE - 1;
}

int rt_log_step_line(const RtLog *log, const RtStepResult *r, double seconds, char *out_line)
{
    return clipped(snprintf(
        out_line, RT_LOG_LINE,
        "step %lld | loss %.4f | grad_norm %.4f | lr %.2e | mem %.2f GiB | tps %.2f | "
        "num_label_tokens %lld%s\n",
        (long long)r->step, r->loss, r->norm, (double)r->lr, (double)log->arena_bytes / gib,
        log->tokens / seconds, (long long)r->targets, r->skipped ? " | skipped" : ""));
}

int rt_log_step_json(const RtLog *log, const RtStepResult *r, double seconds, char *out_line)
{
    double tps = log->tokens / seconds;
    return clipped(snprintf(
        out_line, RT_LOG_LINE,
        "{\"step\": %lld, \"loss\": %s, \"grad_norm\": %s, \"lr\": %s, "
        "\"mem_bytes\": %llu, \"tps\": %s, \"tps_per_gpu\": %s, \"mfu\": %s, "
        "\"num_label_tokens\": %lld, \"step_time_s\": %s, \"skipped\": %s}\n",
        (long long)r->step, rt_json_f64(r->loss).text, rt_json_f64(r->norm).text,
        rt_json_f32(r->lr).text, (unsigned long long)log->arena_bytes, rt_json_f64(tps).text,
        rt_json_f64(tps / log->ranks).text, rt_json_f64(log->flops / seconds / peak_flops).text,
        (long long)r->targets, rt_json_f64(seconds).text, r->skipped ? "true" : "false"));
}

void rt_log_step(RtLog *log, const RtStepResult *result, double seconds)
{
    char line[RT_LOG_LINE];
    put_line(log, line, rt_log_step_line(log, result, seconds, line));
    if (log->fd >= 0)
        put_json(log, line, rt_log_step_json(log, result, seconds, line));
}

void rt_log_eval(RtLog *log, int64_t step, double loss, int64_t targets, int64_t batches)
{
    char line[RT_LOG_LINE];
    int length = snprintf(line, sizeof line,
                          "eval | loss %.4f | step %lld | batches %lld | num_label_tokens %lld\n",
                          loss, (long long)step, (long long)batches, (long long)targets);
    put_line(log, line, clipped(length));
    length = snprintf(
        line, sizeof line,
        "{\"step\": %lld, \"eval_loss\": %s, \"eval_batches\": %lld, \"num_label_tokens\": %lld}\n",
        (long long)step, rt_json_f64(loss).text, (long long)batches, (long long)targets);
    put_json(log, line, clipped(length));
}

void rt_log_note(RtLog *log, const char *format, ...)
{
    char line[RT_LOG_LINE];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    length = length < RT_LOG_LINE - 1 ? length : RT_LOG_LINE - 2;
    line[length] = '\n';
    put_line(log, line, length + 1);
}
