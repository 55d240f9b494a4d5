#include "driver/paths.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/diag.h"

/* What the build knows: the fallback where the executable was moved out of its build folder. */
#ifndef STEPC_MODELS_DIR
#define STEPC_MODELS_DIR "/usr/share/stepc/models"
#endif
#ifndef STEPC_CUDA_LIB
#define STEPC_CUDA_LIB "/usr/lib/stepc/libsteprt_cuda.a"
#endif
#ifndef STEPC_RUNTIME_LIB
#define STEPC_RUNTIME_LIB "/usr/lib/stepc/libsteprt.a"
#endif

bool driver_path_exists(const char *path)
{
    return access(path, R_OK) == 0;
}

const char *driver_path_dir(Session *s, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return ".";
    return intern_n(&s->interner, path, slash == path ? 1 : (size_t)(slash - path));
}

const char *driver_path_absolute(Session *s, const char *path)
{
    char absolute[PATH_MAX];
    return realpath(path, absolute) ? sym(s, absolute) : path;
}

static const char *executable_dir(Session *s)
{
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0)
        return ".";
    path[length] = 0;
    return driver_path_dir(s, path);
}

/* The first of `places` (relative to the executable, NULL-terminated) that exists, else the
 * fallback. */
static const char *locate(Session *s, const char *what, const char *const *places,
                          const char *fallback)
{
    const char *dir = executable_dir(s);
    for (; *places; places++) {
        const char *path = arena_printf(s->arena, "%s/%s", dir, *places);
        if (driver_path_exists(path))
            return driver_path_absolute(s, path);
    }
    if (driver_path_exists(fallback))
        return fallback;
    diag(s, no_span, driver_not_found, what, dir, fallback);
    return NULL;
}

/* Short where the command runs above it: messages then say `models/gpt2/gpt2.model:3:1`. */
static const char *from_here(Session *s, const char *path)
{
    char here[PATH_MAX];
    size_t length = getcwd(here, sizeof here) ? strlen(here) : 0;
    bool below = length > 1 && path && !strncmp(path, here, length) && path[length] == '/';
    return below ? sym(s, path + length + 1) : path;
}

const char *driver_models_dir(Session *s)
{
    static const char *const places[] = {"../models", "models", "../share/stepc/models", NULL};
    return from_here(s, locate(s, "the folder `models`", places, STEPC_MODELS_DIR));
}

const char *driver_runtime_lib(Session *s)
{
    static const char *const places[] = {"lib/libsteprt.a", "../lib/stepc/libsteprt.a", NULL};
    return locate(s, "the runtime `libsteprt.a`", places, STEPC_RUNTIME_LIB);
}

const char *driver_cuda_lib(Session *s)
{
    static const char *const places[] = {"lib/libsteprt_cuda.a", "../lib/stepc/libsteprt_cuda.a",
                                         NULL};
    return locate(s, "the runtime `libsteprt_cuda.a` (built where the CUDA toolkit is)", places,
                  STEPC_CUDA_LIB);
}

Status driver_write_file(Session *s, const char *path, const char *text, size_t length)
{
    const char *part = arena_printf(s->arena, "%s.part%ld", path, (long)getpid());
    FILE *file = fopen(part, "wb");
    bool wrote = file && fwrite(text, 1, length, file) == length;
    int error = errno;
    if (file && fclose(file)) {
        wrote = false;
        error = errno;
    }
    if (wrote && rename(part, path) == 0)
        return STATUS_OK;
    if (wrote)
        error = errno;
    unlink(part);
    diag(s, no_span, file_write, path, strerror(error));
    return STATUS_ENV;
}
