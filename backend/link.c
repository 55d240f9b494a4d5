#include "backend/link.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/diag.h"

extern char **environ;

/* The pthread flavour by its path: the serial one is not thread-safe, and -lopenblas may be it. */
static const char openblas[] = "/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.a";

Status link_folder_new(Session *s, const char **out_path)
{
    const char *base = getenv("TMPDIR");
    char *path = arena_printf(s->arena, "%s/stepc-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(path)) {
        diag(s, no_span, file_write, path, strerror(errno));
        return STATUS_ENV;
    }
    *out_path = path;
    return STATUS_OK;
}

void link_folder_remove(const char *path, const char *const *files)
{
    for (; *files; files++)
        unlink(*files);
    rmdir(path);
}

static const char *command_text(Session *s, char *const *argv)
{
    const char *text = argv[0];
    for (uint32_t i = 1; argv[i]; i++)
        text = arena_printf(s->arena, "%s %s", text, argv[i]);
    return text;
}

int link_run(char *const *argv, const char *log)
{
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status, error = posix_spawn_file_actions_init(&actions);
    if (!error) {
        posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        posix_spawn_file_actions_adddup2(&actions, 1, 2);
        error = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
        posix_spawn_file_actions_destroy(&actions);
    }
    if (error) {
        errno = error;
        return -1;
    }
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static Status run_linker(Session *s, char *const *argv, const char *log)
{
    int code = link_run(argv, log);
    if (code == 0)
        return STATUS_OK;
    if (code < 0) {
        diag(s, no_span, link_spawn, argv[0], strerror(errno));
        return STATUS_ENV;
    }
    Source output = {0};
    if (session_read_source(s, log, no_span, &output) != STATUS_OK)
        output.text = "";
    diag(s, no_span, link_failed, code, command_text(s, argv), output.text);
    return STATUS_ENV;
}

static bool is_missing(Session *s, const char *path, const char *what)
{
    if (!access(path, R_OK))
        return false;
    diag(s, no_span, link_missing, what, path, strerror(errno));
    return true;
}

/* Over OpenBLAS, gold takes a third of the default linker's time, and lld half of gold's. NULL:
 * the default. */
static const char *fast_linker(void)
{
    if (!access("/usr/bin/ld.lld", X_OK))
        return "-fuse-ld=lld";
    return access("/usr/bin/ld.gold", X_OK) ? NULL : "-fuse-ld=gold";
}

/* What the runtime's library was compiled with, where that is anything. */
static const char sanitizers[] = STEPC_LINK_OPTION;

/* `inputs`: the objects, archives and options of the link, up to a NULL. */
static Status link_inputs(Session *s, const char *folder, const char *const *inputs,
                          const char *out_path)
{
    enum { MOST = 16 };
    const char *log = arena_printf(s->arena, "%s/link.log", folder);
    const char *fresh = arena_printf(s->arena, "%s.%ld.tmp", out_path, (long)getpid());
    char *argv[MOST + 5] = {arena_strndup(s->arena, "cc", 2), arena_strndup(s->arena, "-o", 2),
                            arena_strndup(s->arena, fresh, strlen(fresh))};
    uint32_t n = 3;
    for (; *inputs && n < MOST + 3; inputs++)
        argv[n++] = arena_strndup(s->arena, *inputs, strlen(*inputs));
    if (*sanitizers)
        argv[n] = arena_strndup(s->arena, sanitizers, strlen(sanitizers));
    Status status = run_linker(s, argv, log);
    unlink(log);
    if (status == STATUS_OK && rename(fresh, out_path)) {
        diag(s, no_span, file_write, out_path, strerror(errno));
        status = STATUS_ENV;
    }
    if (status != STATUS_OK)
        unlink(fresh);
    return status;
}

Status link_executable(Session *s, const char *folder, const char *object, const char *runtime_lib,
                       const char *out_path)
{
    if (is_missing(s, runtime_lib, "the runtime's library") ||
        is_missing(s, openblas, "OpenBLAS (libopenblas-pthread-dev)"))
        return STATUS_ENV;
    const char *inputs[] = {object, runtime_lib, openblas, "-lpthread", "-lm", fast_linker(), NULL};
    return link_inputs(s, folder, inputs, out_path);
}

Status link_executable_cuda(Session *s, const char *folder, const char *object,
                            const char *cuda_lib, const char *runtime_lib, const char *out_path)
{
    if (is_missing(s, cuda_lib, "the runtime's library for CUDA") ||
        is_missing(s, runtime_lib, "the runtime's library"))
        return STATUS_ENV;
    const char *inputs[] = {object, cuda_lib, runtime_lib,   "-lpthread",
                            "-lm",  "-ldl",   fast_linker(), NULL};
    return link_inputs(s, folder, inputs, out_path);
}
