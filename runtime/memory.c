#include "runtime/memory.h"

#include <fcntl.h>
#include <unistd.h>

const char *rt_bytes_text(uint64_t bytes, char out_text[32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 1024 && unit < 4; unit++)
        value /= 1024;
    snprintf(out_text, 32, unit ? "%.2f %s" : "%.0f %s", value, units[unit]);
    return out_text;
}

/* The number of a line `key: 123 kB` of /proc/self/status, in bytes; 0 if there is none. */
static uint64_t status_bytes(const char *status, const char *key)
{
    const char *line = strstr(status, key);
    unsigned long long kib;
    return line && sscanf(line + strlen(key), " %llu kB", &kib) == 1 ? kib * 1024u : 0;
}

static void read_status(char *text, size_t size)
{
    size_t n = 0;
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    for (ssize_t got; fd >= 0 && n + 1 < size && (got = read(fd, text + n, size - 1 - n)) > 0;)
        n += (size_t)got;
    text[n] = 0;
    if (fd >= 0)
        close(fd);
}

/* Measured: a block of each operand for every thread that calls it, 0.8 MiB for f32. */
enum { PRODUCT_BYTES_PER_THREAD = 1 << 20 };

uint64_t rt_product_buffer_bytes(const RtPlan *plan, uint32_t threads)
{
    for (uint64_t i = 0; i < plan->n_instrs; i++)
        if (plan->instrs[i].kernel == PLAN_KERNEL_gemm ||
            plan->instrs[i].kernel == PLAN_KERNEL_lm_loss ||
            plan->instrs[i].kernel == PLAN_KERNEL_lm_loss_with_grad)
            return (uint64_t)PRODUCT_BYTES_PER_THREAD * threads;
    return 0;
}

static void add(RtMemory *memory, const char *name, uint64_t bytes)
{
    memory->line[memory->n].name = name;
    memory->line[memory->n++].bytes = bytes;
}

void rt_memory_measure(const Rt *rt, RtMemory *out_memory)
{
    char status[8192];
    read_status(status, sizeof status);
    *out_memory = (RtMemory){0};
    add(out_memory, "arena", rt->arena.bytes);
    add(out_memory, "worker scratch", rt_pool_scratch_bytes(rt->pool));
    add(out_memory, "matrix-product buffers, about",
        rt_product_buffer_bytes(&rt->plan, rt_pool_threads(rt->pool)));
    add(out_memory, "instruction tables", arena_bytes(rt->s->arena));
    add(out_memory, "executable, libraries and mapped files", status_bytes(status, "RssFile:"));
    out_memory->process = status_bytes(status, "VmRSS:");
    out_memory->peak = status_bytes(status, "VmHWM:");
}

void rt_memory_print(const RtMemory *memory, FILE *out)
{
    char text[32];
    uint64_t listed = 0;
    for (uint32_t i = 0; i < memory->n; i++) {
        listed += memory->line[i].bytes;
        fprintf(out, "memory | %-40s %16llu B  %s\n", memory->line[i].name,
                (unsigned long long)memory->line[i].bytes,
                rt_bytes_text(memory->line[i].bytes, text));
    }
    if (!memory->process)
        return;
    fprintf(out, "memory | %-40s %16llu B  %s\n", "process, resident",
            (unsigned long long)memory->process, rt_bytes_text(memory->process, text));
    fprintf(out, "memory | %-40s %16lld B\n", "not listed", (long long)(memory->process - listed));
}
