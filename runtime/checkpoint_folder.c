#include "runtime/checkpoint_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/diag.h"
#include "runtime/safetensors.h"

/* Beside a folder, while it is saved, and a process's number behind them. */
#define SAVING ".saving-"
#define REPLACED ".old-"

static Status failed(Session *s, const char *path)
{
    diag(s, no_span, file_write, path, strerror(errno));
    return STATUS_ENV;
}

/* `dir` without slashes at its end, and, where it exists, without links: the folder itself is
 * replaced. */
static const char *real_path(Arena *arena, const char *dir)
{
    char real[PATH_MAX];
    size_t n = strlen(dir);
    if (realpath(dir, real))
        return arena_strndup(arena, real, strlen(real));
    while (n > 1 && dir[n - 1] == '/')
        n--;
    return arena_strndup(arena, dir, n);
}

static const char *parent_of(Arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return ".";
    return slash == path ? "/" : arena_strndup(arena, path, (size_t)(slash - path));
}

static Status make_parents(Session *s, Arena *arena, const char *path)
{
    const char *parent = parent_of(arena, path);
    struct stat info;
    if (!stat(parent, &info))
        return STATUS_OK;
    TRY(make_parents(s, arena, parent));
    return mkdir(parent, 0777) && errno != EEXIST ? failed(s, parent) : STATUS_OK;
}

/* What a folder is that another cannot take the place of; else NULL. Mounts within one file system
 * share its device. */
static const char *lasting(Arena *arena, const char *path, const struct stat *info)
{
    struct stat other;
    struct statx more = {0};
    bool mounted =
        !statx(AT_FDCWD, path, 0, STATX_TYPE, &more) && more.stx_attributes & STATX_ATTR_MOUNT_ROOT;
    if (mounted || (!stat(parent_of(arena, path), &other) && other.st_dev != info->st_dev))
        return "a mount point";
    bool here = !stat(".", &other) && other.st_dev == info->st_dev && other.st_ino == info->st_ino;
    return here ? "the working directory" : NULL;
}

static Status check(Session *s, Arena *arena, const char *path)
{
    struct stat info;
    TRY(make_parents(s, arena, path));
    bool exists = !stat(path, &info);
    if (exists && !S_ISDIR(info.st_mode)) {
        errno = ENOTDIR;
        return failed(s, path);
    }
    const char *what = exists ? lasting(arena, path, &info) : NULL;
    if (what) {
        diag(s, no_span, checkpoint_place, path, what);
        diag(s, no_span, checkpoint_place_hint);
        return STATUS_ENV;
    }
    return access(parent_of(arena, path), W_OK | X_OK) ? failed(s, path) : STATUS_OK;
}

/* The process that made the folder `name` beside a checkpoint's folder `base`; 0: none did. */
static long saver_of(const char *name, const char *base)
{
    static const char *const marks[] = {SAVING, REPLACED};
    size_t n = strlen(base);
    if (strncmp(name, base, n))
        return 0;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        char *end;
        size_t m = strlen(marks[i]);
        bool marked = !strncmp(name + n, marks[i], m) && name[n + m] >= '1' && name[n + m] <= '9';
        long pid = marked ? strtol(name + n + m, &end, 10) : 0;
        if (pid && !*end)
            return pid;
    }
    return 0;
}

/* They may hold what was the user's, moved there and not yet back, and a process of their number
 * may run on another machine: they are named, and stay. */
static void say_leftovers(Session *s, Arena *arena, const char *path)
{
    const char *parent = parent_of(arena, path), *slash = strrchr(path, '/');
    DIR *dir = opendir(parent);
    if (!dir)
        return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        long pid = saver_of(entry->d_name, slash ? slash + 1 : path);
        if (pid && kill((pid_t)pid, 0) && errno == ESRCH)
            diag(s, no_span, checkpoint_earlier, parent, entry->d_name, path);
    }
    closedir(dir);
}

Status rt_folder_check(Session *s, const char *dir)
{
    Arena *scratch = arena_new();
    const char *path = real_path(scratch, dir);
    Status status = check(s, scratch, path);
    if (status == STATUS_OK)
        say_leftovers(s, scratch, path);
    arena_free(scratch);
    return status;
}

/* `0` stands for any digit. */
static bool is_shard(const char *name)
{
    static const char form[] = "model-00000-of-00000.safetensors";
    if (strlen(name) != sizeof form - 1)
        return false;
    for (size_t i = 0; form[i]; i++)
        if (form[i] == '0' ? name[i] < '0' || name[i] > '9' : name[i] != form[i])
            return false;
    return true;
}

/* Files that a checkpoint is made of; the rest of a folder is its owner's. */
static bool is_ours(const char *name, bool in_state)
{
    if (in_state)
        return !strcmp(name, "optimizer.safetensors") || !strcmp(name, "trainer.json");
    return !strcmp(name, "config.json") || !strcmp(name, "model.safetensors") ||
           !strcmp(name, "model.safetensors.index.json") || is_shard(name);
}

/* The same, or one that was being written; only in a folder that was being saved. */
static bool is_ours_or_partial(Arena *arena, const char *name, bool in_state)
{
    const char *mark = strstr(name, RT_PARTIAL_FILE);
    return is_ours(mark ? arena_strndup(arena, name, (size_t)(mark - name)) : name, in_state);
}

/* Deletes a checkpoint's own files in `from` and moves what else is there to `to` (NULL: leaves
 * it), then removes the folder if it is empty. */
static void clear(Arena *arena, const char *from, const char *to, bool in_state)
{
    DIR *dir = opendir(from);
    if (!dir)
        return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        const char *name = entry->d_name;
        const char *path = arena_printf(arena, "%s/%s", from, name);
        if (!strcmp(name, ".") || !strcmp(name, ".."))
            continue;
        if (to ? is_ours(name, in_state) : is_ours_or_partial(arena, name, in_state))
            unlink(path);
        else if (!in_state && !strcmp(name, "state"))
            clear(arena, path, to ? arena_printf(arena, "%s/state", to) : NULL, true);
        else if (to)
            rename(path, arena_printf(arena, "%s/%s", to, name));
    }
    closedir(dir);
    rmdir(from);
}

/* A folder that an ended process of the same number has left is emptied of its checkpoint first. */
Status rt_folder_begin(Session *s, Arena *scratch, const char *dir, RtFolder *out_folder)
{
    out_folder->path = real_path(scratch, dir);
    out_folder->temp = arena_printf(scratch, "%s" SAVING "%ld", out_folder->path, (long)getpid());
    TRY(check(s, scratch, out_folder->path));
    clear(scratch, out_folder->temp, NULL, false);
    if (mkdir(out_folder->temp, 0777) && errno != EEXIST)
        return failed(s, out_folder->temp);
    const char *state = arena_printf(scratch, "%s/state", out_folder->temp);
    return mkdir(state, 0777) && errno != EEXIST ? failed(s, state) : STATUS_OK;
}

void rt_folder_abandon(Arena *scratch, const RtFolder *folder)
{
    clear(scratch, folder->temp, NULL, false);
}

static void sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    fsync(fd);
    close(fd);
}

/* Puts temp in path's place and returns where the old folder is now, or NULL with errno. */
static const char *swap(Arena *arena, const RtFolder *folder)
{
    if (!renameat2(AT_FDCWD, folder->temp, AT_FDCWD, folder->path, RENAME_EXCHANGE))
        return folder->temp;
    if (errno != ENOSYS && errno != EINVAL && errno != EOPNOTSUPP)
        return NULL;
    const char *old = arena_printf(arena, "%s" REPLACED "%ld", folder->path, (long)getpid());
    if (rename(folder->path, old))
        return NULL;
    if (!rename(folder->temp, folder->path))
        return old;
    int error = errno;
    rename(old, folder->path);
    errno = error;
    return NULL;
}

Status rt_folder_commit(Session *s, Arena *scratch, const RtFolder *folder)
{
    sync_folder(arena_printf(scratch, "%s/state", folder->temp));
    sync_folder(folder->temp);
    if (access(folder->path, F_OK)) {
        if (rename(folder->temp, folder->path))
            return failed(s, folder->path);
    } else {
        const char *old = swap(scratch, folder);
        if (!old)
            return failed(s, folder->path);
        clear(scratch, old, folder->path, false);
        if (!access(old, F_OK))
            diag(s, no_span, checkpoint_leftover, old, folder->path);
    }
    sync_folder(parent_of(scratch, folder->path));
    return STATUS_OK;
}
