/* The runtime's kernels and a step executable's fused ones, for the fake driver: on emulators.
 * $EMULATED_STEP names what `emit_cuda_test PLANNED.sir OUT.so` has written for the executable. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>

#include "tests/device/emulate_host.h"
#include "tests/unit/emulate_threads.h"
#include "tests/unit/fake_cuda/fake_cuda.h"

enum { STRUCT_BYTES = 4096 }; /* of the one argument of a kernel of the runtime, at most */

typedef struct Other {
    char name[80];
    void *fused;     /* NULL: a kernel of the runtime */
    uint32_t n_args; /* a runtime's: bytes of its one */
} Other;

typedef struct Launch {
    const Other *kernel;
    uint32_t grid[3], threads, shared_bytes;
    union {
        uint64_t args[EMULATED_ARGS];
        unsigned char structure[STRUCT_BYTES];
    };
} Launch;

static Other others[1024];
static uint32_t n_others;

static void *step_library(void)
{
    static void *library;
    const char *path = getenv("EMULATED_STEP");
    Dl_info self;
    if (library || !path)
        return library;
    /* what the library refers to is this one's */
    if (dladdr(others, &self) && dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL))
        library = dlopen(path, RTLD_NOW);
    if (!library) {
        fprintf(stderr, "emulated: %s\n", dlerror());
        abort();
    }
    return library;
}

/* `k12_add_rmsnorm` is k12 there, `k12_add_rmsnorm_columns` k12_columns; and its arguments. */
static bool find_fused(const char *name, Other *out)
{
    static const char tail[] = "_columns";
    char known[32], line[512];
    unsigned number, other, n_args;
    size_t length = strlen(name), tail_length = sizeof tail - 1;
    if (sscanf(name, "k%u_", &number) != 1 || !step_library())
        return false;
    bool columns = length > tail_length && !strcmp(name + length - tail_length, tail);
    snprintf(known, sizeof known, "k%u%s", number, columns ? tail : "");
    snprintf(line, sizeof line, "%s.args", getenv("EMULATED_STEP"));
    FILE *file = fopen(line, "r");
    out->fused = dlsym(step_library(), known);
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "k%u %u", &other, &n_args) == 2 && other == number)
            out->n_args = n_args;
    if (file)
        fclose(file);
    return out->fused && out->n_args && out->n_args <= EMULATED_ARGS;
}

const void *fake_cuda_other_kernel(const char *name)
{
    Other *other = &others[n_others];
    for (uint32_t i = 0; i < n_others; i++)
        if (!strcmp(others[i].name, name))
            return &others[i];
    *other = (Other){0};
    snprintf(other->name, sizeof other->name, "%s", name);
    other->n_args = (uint32_t)emulate_args_bytes(name);
    if (!other->n_args && !find_fused(name, other))
        return NULL;
    n_others++;
    return other;
}

static void run(const void *data)
{
    const Launch *l = data;
    if (l->kernel->fused) {
        emulate_threads(l->kernel->fused, l->grid[0], l->threads, l->shared_bytes, l->args);
        return;
    }
    if (emulate_launch(l->kernel->name, l->grid, l->threads, l->shared_bytes, l->structure))
        return;
    fprintf(stderr, "emulated: `%s` cannot be launched\n", l->kernel->name);
    abort();
}

void fake_cuda_other_launch(const void *kernel, const unsigned *grid, unsigned threads,
                            unsigned shared_bytes, void **args, const void *stream)
{
    Launch l = {.kernel = kernel, .threads = threads, .shared_bytes = shared_bytes};
    memcpy(l.grid, grid, sizeof l.grid);
    if (l.kernel->fused)
        for (uint32_t i = 0; i < l.kernel->n_args; i++)
            memcpy(&l.args[i], args[i], sizeof l.args[i]);
    else
        memcpy(l.structure, args[0], l.kernel->n_args);
    fake_cuda_enqueue(run, &l, sizeof l, stream);
}
