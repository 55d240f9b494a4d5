/* NCCL between processes of one machine, for tests: a message is a file. $FAKE_NCCL: `old`, an old
 * version; `fails`: exchanges do. $FAKE_NCCL_SECONDS: for so long a message is waited for, and then
 * the device hangs. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fake_cuda.h"

enum { SUCCESS, INVALID_USAGE = 5, MOST_RANKS = 64, MOST_OPS = 128, ID_BYTES = 128 };

typedef struct Id {
    char folder[ID_BYTES];
} Id;

typedef struct Comm {
    Id id;
    int n, self;
    uint64_t sent[MOST_RANKS], received[MOST_RANKS]; /* messages, by peer */
} Comm;

typedef struct Transfer { /* one side of one */
    Comm *comm;
    const void *from; /* NULL: comes to `to` */
    void *to;
    size_t bytes;
    int peer;
} Transfer;

typedef struct Group {
    Transfer transfer[MOST_OPS];
    int n;
} Group;

static Group group;
static const void *group_stream;
static int depth;

static int is_mode(const char *name)
{
    const char *mode = getenv("FAKE_NCCL");
    return mode && !strcmp(mode, name);
}

static void path_of(const Comm *comm, int from, int to, uint64_t number, char *out, size_t n)
{
    snprintf(out, n, "%s/%d.%d.%llu", comm->id.folder, from, to, (unsigned long long)number);
}

static void put(const Transfer *t)
{
    char path[256], part[272];
    path_of(t->comm, t->comm->self, t->peer, t->comm->sent[t->peer]++, path, sizeof path);
    snprintf(part, sizeof part, "%s.part", path);
    FILE *file = fopen(part, "w");
    if (!file || fwrite(t->from, 1, t->bytes, file) != t->bytes || fclose(file) ||
        rename(part, path))
        abort();
}

static FILE *wait_for(const char *path)
{
    const char *seconds = getenv("FAKE_NCCL_SECONDS");
    struct timespec a_little = {0, 200000};
    double left = seconds ? atof(seconds) : 60;
    FILE *file;
    while (!(file = fopen(path, "r")) && left > 0) {
        nanosleep(&a_little, NULL);
        left -= 0.0003;
    }
    return file;
}

static void take(const Transfer *t)
{
    char path[256];
    path_of(t->comm, t->peer, t->comm->self, t->comm->received[t->peer]++, path, sizeof path);
    FILE *file = wait_for(path);
    if (!file) {
        fake_cuda_hang(true);
        return;
    }
    if (fread(t->to, 1, t->bytes, file) != t->bytes || fgetc(file) != EOF) {
        fprintf(stderr, "fake NCCL: a message of another length\n");
        abort();
    }
    fclose(file);
    unlink(path);
}

static void exchange(const void *data)
{
    const Group *g = data;
    for (int i = 0; i < g->n; i++)
        if (g->transfer[i].from)
            put(&g->transfer[i]);
    for (int i = 0; i < g->n; i++)
        if (!g->transfer[i].from)
            take(&g->transfer[i]);
}

static void flush(void)
{
    if (group.n)
        fake_cuda_enqueue(exchange, &group, sizeof group, group_stream);
    group.n = 0;
}

static int add(Transfer t, const void *stream)
{
    if (group.n == MOST_OPS || t.peer < 0 || t.peer >= t.comm->n || t.peer == t.comm->self ||
        is_mode("fails"))
        return INVALID_USAGE;
    group.transfer[group.n++] = t;
    group_stream = stream;
    if (!depth)
        flush();
    return SUCCESS;
}

int ncclGetVersion(int *version);
int ncclGetUniqueId(Id *id);
int ncclCommInitRank(Comm **comm, int n, Id id, int self);
int ncclCommAbort(Comm *comm);
int ncclCommGetAsyncError(Comm *comm, int *error);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclSend(const void *from, size_t n, int type, int peer, Comm *comm, const void *stream);
int ncclRecv(void *to, size_t n, int type, int peer, Comm *comm, const void *stream);
int ncclAllGather(const void *from, void *to, size_t n, int type, Comm *comm, const void *stream);
const char *ncclGetErrorString(int result);

int ncclGetVersion(int *version)
{
    *version = is_mode("old") ? 20705 : 22809;
    return SUCCESS;
}

int ncclGetUniqueId(Id *id)
{
    snprintf(id->folder, sizeof id->folder, "/tmp/fake_nccl.XXXXXX");
    return mkdtemp(id->folder) ? SUCCESS : INVALID_USAGE;
}

int ncclCommInitRank(Comm **out_comm, int n, Id id, int self)
{
    Comm *comm = calloc(1, sizeof *comm);
    char byte = 0;
    *comm = (Comm){.id = id, .n = n, .self = self};
    *out_comm = comm;
    if (n > MOST_RANKS)
        return INVALID_USAGE;
    for (int r = 0; r < n; r++)
        if (r != self)
            put(&(Transfer){comm, &byte, NULL, 1, r});
    for (int r = 0; r < n; r++)
        if (r != self)
            take(&(Transfer){comm, NULL, &byte, 1, r});
    return SUCCESS;
}

int ncclCommAbort(Comm *comm)
{
    fake_cuda_hang(false);
    rmdir(comm->id.folder); /* the last one, once all messages are taken */
    free(comm);
    return SUCCESS;
}

int ncclCommGetAsyncError(Comm *comm, int *error)
{
    (void)comm;
    *error = SUCCESS;
    return SUCCESS;
}

int ncclGroupStart(void)
{
    depth++;
    return SUCCESS;
}

int ncclGroupEnd(void)
{
    if (!--depth)
        flush();
    return SUCCESS;
}

int ncclSend(const void *from, size_t n, int type, int peer, Comm *comm, const void *stream)
{
    return type ? INVALID_USAGE : add((Transfer){comm, from, NULL, n, peer}, stream);
}

int ncclRecv(void *to, size_t n, int type, int peer, Comm *comm, const void *stream)
{
    return type ? INVALID_USAGE : add((Transfer){comm, NULL, to, n, peer}, stream);
}

typedef struct Copy {
    void *to;
    const void *from;
    size_t bytes;
} Copy;

static void copy(const void *data)
{
    const Copy *c = data;
    memmove(c->to, c->from, c->bytes);
}

int ncclAllGather(const void *from, void *to, size_t n, int type, Comm *comm, const void *stream)
{
    char *own = (char *)to + (size_t)comm->self * n;
    if (type || is_mode("fails"))
        return INVALID_USAGE;
    if (own != from)
        fake_cuda_enqueue(copy, &(Copy){own, from, n}, sizeof(Copy), stream);
    ncclGroupStart();
    for (int r = 0; r < comm->n; r++)
        if (r != comm->self) {
            add((Transfer){comm, own, NULL, n, r}, stream);
            add((Transfer){comm, NULL, (char *)to + (size_t)r * n, n, r}, stream);
        }
    return ncclGroupEnd();
}

const char *ncclGetErrorString(int result)
{
    return result == INVALID_USAGE ? "invalid usage" : "no error";
}
