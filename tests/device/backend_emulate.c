#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "tests/device/emulate_host.h"
#include "tests/device/harness.h"

enum { PAGE = 4096 };

bool device_open(char *out_name, size_t name_bytes, int *out_multiprocessors)
{
    snprintf(out_name, name_bytes, "the emulator");
    *out_multiprocessors = 3;
    return true;
}

bool device_is_emulated(void)
{
    return true;
}

/* Up to a page that nobody may touch. */
typedef struct Mapping {
    unsigned char *at, *pages;
    size_t bytes;
} Mapping;

static Mapping mappings[4096];

static Mapping *mapping_of(const void *at)
{
    for (size_t i = 0; i < sizeof mappings / sizeof *mappings; i++)
        if (mappings[i].at == at)
            return &mappings[i];
    abort();
}

void *device_alloc(size_t bytes)
{
    size_t round = (bytes + 15) / 16 * 16, all = (round + PAGE - 1) / PAGE * PAGE + PAGE;
    Mapping *m = mapping_of(NULL);
    m->pages = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m->pages == MAP_FAILED || mprotect(m->pages + all - PAGE, PAGE, PROT_NONE))
        abort();
    m->bytes = all;
    m->at = m->pages + all - PAGE - round;
    return m->at;
}

void device_free(void *at)
{
    Mapping *m = mapping_of(at);
    munmap(m->pages, m->bytes);
    *m = (Mapping){0};
}

void device_write(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

void device_read(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

void device_fill(void *at, unsigned char byte, size_t bytes)
{
    memset(at, byte, bytes);
}

void device_wait(void)
{
}

double device_seconds(void (*run)(void *context), void *context)
{
    (void)run;
    (void)context;
    return 0;
}

Status rt_cuda_start_named(RtCuda *cuda, const char *name, RtCudaShape shape, void **args)
{
    (void)cuda;
    const uint32_t grid[3] = {shape.grid, shape.grid_y ? shape.grid_y : 1,
                              shape.grid_z ? shape.grid_z : 1};
    if (emulate_launch(name, grid, shape.threads, shape.shared_bytes, args[0]))
        return STATUS_OK;
    fprintf(stderr, "no kernel `%s` with %u threads and %u bytes\n", name, shape.threads,
            shape.shared_bytes);
    abort();
}
