#include "runtime/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/diag.h"
#include "runtime/json_read.h"

enum { ALIGNMENT = 64, BUFFER_BYTES = 1 << 20 };

/* A file that grows beside its final name. */
typedef struct Sink {
    Session *s;
    const char *path, *target; /* what the user named, and the same without links */
    char *temp;
    unsigned char *buffer;
    size_t used;
    int fd, error; /* errno of the first failure */
    bool lost;     /* a rank that holds a part is */
} Sink;

static void sink_open(Sink *sink, Arena *scratch)
{
    char real[PATH_MAX];
    sink->fd = -1;
    if (!sink->path)
        return;
    sink->target =
        realpath(sink->path, real) ? arena_strndup(scratch, real, strlen(real)) : sink->path;
    sink->temp = arena_printf(scratch, "%s" RT_PARTIAL_FILE "%ld", sink->target, (long)getpid());
    sink->buffer = arena_alloc(scratch, BUFFER_BYTES);
    sink->fd = open(sink->temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    sink->error = sink->fd < 0 ? errno : 0;
}

static void sink_push(Sink *sink, const unsigned char *bytes, uint64_t n)
{
    while (n && !sink->error) {
        ssize_t wrote = write(sink->fd, bytes, n < 1u << 30 ? n : 1u << 30);
        if (wrote < 0 && errno != EINTR)
            sink->error = errno;
        if (wrote > 0) {
            bytes += wrote;
            n -= (uint64_t)wrote;
        }
    }
}

static void sink_flush(Sink *sink)
{
    sink_push(sink, sink->buffer, sink->used);
    sink->used = 0;
}

/* Large pieces go straight to the file, small ones (rows of a view) through the buffer. */
static void sink_write(Sink *sink, const void *bytes, uint64_t n)
{
    if (!sink->path)
        return;
    if (n > BUFFER_BYTES - sink->used)
        sink_flush(sink);
    if (n > BUFFER_BYTES) {
        sink_push(sink, bytes, n);
        return;
    }
    memcpy(sink->buffer + sink->used, bytes, n);
    sink->used += n;
}

/* Everything on disk under the final name, or nothing. */
static Status sink_close(Sink *sink)
{
    if (!sink->path)
        return sink->lost ? STATUS_ENV : STATUS_OK;
    sink_flush(sink);
    if (sink->lost && !sink->error)
        sink->error = ECONNRESET;
    if (!sink->error && fsync(sink->fd))
        sink->error = errno;
    if (sink->fd >= 0 && close(sink->fd) && !sink->error)
        sink->error = errno;
    if (!sink->error && rename(sink->temp, sink->target))
        sink->error = errno;
    if (!sink->error)
        return STATUS_OK;
    if (sink->fd >= 0)
        unlink(sink->temp);
    diag(sink->s, no_span, file_write, sink->path, strerror(sink->error));
    return STATUS_ENV;
}

RtOutTensor rt_out_tensor(const char *name, DType dtype, uint32_t rank, const int64_t *dim,
                          const void *data)
{
    RtOutTensor tensor = {.name = name,
                          .dtype_name = dtype_file_name(dtype),
                          .element_bytes = dtype_bytes(dtype),
                          .rank = rank,
                          .data = data,
                          .bytes = dtype_bytes(dtype)};
    for (uint32_t i = 0; i < rank; i++) {
        tensor.dim[i] = dim[i];
        tensor.bytes *= (uint64_t)dim[i];
    }
    return tensor;
}

static int in_file_order(const void *a, const void *b)
{
    const RtOutTensor *x = *(const RtOutTensor *const *)a, *y = *(const RtOutTensor *const *)b;
    if (x->element_bytes != y->element_bytes)
        return x->element_bytes > y->element_bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

typedef VEC(char) Text;

static void text_add(Arena *arena, Text *text, const char *more)
{
    uint32_t n = (uint32_t)strlen(more);
    vec_reserve(arena, text, text->n + n + 1);
    memcpy(text->at + text->n, more, n + 1);
    text->n += n;
}

/* The JSON header, padded so that the data begin at a multiple of ALIGNMENT. */
static Text header_of(Arena *arena, const RtOutTensor *const *order, uint32_t n)
{
    Text text = {0};
    uint64_t at = 0;
    text_add(arena, &text, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (uint32_t i = 0; i < n; i++) {
        const RtOutTensor *t = order[i];
        text_add(arena, &text, ",");
        text_add(arena, &text, rt_json_quote(arena, t->name));
        text_add(arena, &text,
                 arena_printf(arena,
                              ":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%llu,%llu]}",
                              t->dtype_name, rt_shape_text(arena, t->rank, t->dim),
                              (unsigned long long)at, (unsigned long long)(at + t->bytes)));
        at += t->bytes;
    }
    text_add(arena, &text, "}");
    while ((text.n + 8) % ALIGNMENT)
        text_add(arena, &text, " ");
    return text;
}

static void write_fetched(Sink *sink, const RtOutTensor *tensor)
{
    unsigned char *whole = sink->path ? malloc(tensor->bytes) : NULL;
    if (sink->path && !whole)
        sink->error = sink->error ? sink->error : ENOMEM;
    sink->lost |= (!sink->path || whole) && !tensor->fetch(tensor->context, whole);
    if (whole && !sink->lost)
        sink_write(sink, whole, tensor->bytes);
    free(whole);
}

static void write_data(Sink *sink, const RtOutTensor *tensor)
{
    if (tensor->fetch) {
        write_fetched(sink, tensor);
        return;
    }
    if (!sink->path)
        return;
    if (!tensor->run_bytes || tensor->run_bytes == tensor->pitch_bytes) {
        sink_write(sink, tensor->data, tensor->bytes);
        return;
    }
    const unsigned char *run = tensor->data;
    for (uint64_t left = tensor->bytes; left; run += tensor->pitch_bytes) {
        uint64_t n = left < tensor->run_bytes ? left : tensor->run_bytes;
        sink_write(sink, run, n);
        left -= n;
    }
}

static Status write_file(Session *s, Arena *scratch, const char *path,
                         const RtOutTensor *const *tensors, uint32_t n)
{
    Sink sink = {.s = s, .path = path};
    const RtOutTensor **order = ARENA_ARRAY(scratch, const RtOutTensor *, n + 1);
    unsigned char length[8];
    memcpy(order, tensors, sizeof *order * n);
    qsort(order, n, sizeof *order, in_file_order);
    Text header = header_of(scratch, order, n);
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)header.n >> (8 * i));
    sink_open(&sink, scratch);
    sink_write(&sink, length, 8);
    sink_write(&sink, header.at, header.n);
    for (uint32_t i = 0; i < n; i++)
        write_data(&sink, order[i]);
    return sink_close(&sink);
}

static const RtOutTensor **pointers_to(Arena *scratch, const RtOutTensor *tensors, uint32_t n)
{
    const RtOutTensor **to = ARENA_ARRAY(scratch, const RtOutTensor *, n + 1);
    for (uint32_t i = 0; i < n; i++)
        to[i] = &tensors[i];
    return to;
}

Status rt_tensors_write(Session *s, const char *path, const RtOutTensor *tensors, uint32_t n)
{
    Arena *scratch = arena_new();
    Status status = write_file(s, scratch, path, pointers_to(scratch, tensors, n), n);
    arena_free(scratch);
    return status;
}

Status rt_text_write(Session *s, const char *path, const char *text)
{
    Arena *scratch = arena_new();
    Sink sink = {.s = s, .path = path};
    sink_open(&sink, scratch);
    sink_write(&sink, text, strlen(text));
    Status status = sink_close(&sink);
    arena_free(scratch);
    return status;
}

const char *rt_file_fault(const char *path)
{
    struct stat info;
    if (stat(path, &info) || S_ISREG(info.st_mode))
        return NULL;
    return S_ISDIR(info.st_mode) ? strerror(EISDIR) : "it is no regular file";
}

/* A rename would put a file in a device's place, or in a link's whose target is not there. */
static const char *place_fault(const char *path)
{
    struct stat info;
    bool dangling = access(path, F_OK) && !lstat(path, &info) && S_ISLNK(info.st_mode);
    return dangling ? "it is a link to nothing" : rt_file_fault(path);
}

Status rt_file_check(Session *s, const char *path)
{
    Arena *scratch = arena_new();
    Sink sink = {.s = s, .path = path};
    const char *fault = place_fault(path);
    if (!fault) {
        sink_open(&sink, scratch);
        fault = sink.error ? strerror(sink.error) : NULL;
    }
    if (!fault) {
        close(sink.fd);
        unlink(sink.temp);
    }
    if (fault)
        diag(s, no_span, file_write, path, fault);
    arena_free(scratch);
    return fault ? STATUS_ENV : STATUS_OK;
}

/* first[k] is where shard k begins; returns how many there are. */
static uint32_t cut_shards(const RtOutTensor *tensors, uint32_t n, uint64_t shard_bytes,
                           uint32_t *first)
{
    uint32_t shards = 0;
    uint64_t used = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!i || (used && used + tensors[i].bytes > shard_bytes)) {
            first[shards++] = i;
            used = 0;
        }
        used += tensors[i].bytes;
    }
    first[shards] = n;
    return shards;
}

static Status write_index(Session *s, Arena *scratch, const char *dir, const RtOutTensor *tensors,
                          const char *const *shard_of, uint32_t n)
{
    Text text = {0};
    uint64_t total = 0;
    for (uint32_t i = 0; i < n; i++)
        total += tensors[i].bytes;
    text_add(scratch, &text,
             arena_printf(scratch,
                          "{\n  \"metadata\": {\n    \"total_size\": %llu\n  },\n"
                          "  \"weight_map\": {",
                          (unsigned long long)total));
    for (uint32_t i = 0; i < n; i++)
        text_add(scratch, &text,
                 arena_printf(scratch, "%s\n    %s: \"%s\"", i ? "," : "",
                              rt_json_quote(scratch, tensors[i].name), shard_of[i]));
    text_add(scratch, &text, "\n  }\n}\n");
    return rt_text_write(s, arena_printf(scratch, "%s/model.safetensors.index.json", dir), text.at);
}

static const char *in_dir(Arena *scratch, const char *dir, const char *name)
{
    return dir ? arena_printf(scratch, "%s/%s", dir, name) : NULL;
}

Status rt_tensor_set_write(Session *s, const char *dir, const RtOutTensor *tensors, uint32_t n,
                           uint64_t shard_bytes)
{
    Arena *scratch = arena_new();
    const RtOutTensor **all = pointers_to(scratch, tensors, n);
    const char **shard_of = ARENA_ARRAY(scratch, const char *, n + 1);
    uint32_t *first = ARENA_ARRAY(scratch, uint32_t, n + 2);
    uint32_t shards = cut_shards(tensors, n, shard_bytes, first);
    Status status = STATUS_OK;
    if (shards <= 1) {
        status = write_file(s, scratch, in_dir(scratch, dir, "model.safetensors"), all, n);
        goto out;
    }
    /* all of them: other ranks wait to hand over what they have */
    for (uint32_t k = 0; k < shards; k++) {
        const char *name = arena_printf(scratch, "model-%05u-of-%05u.safetensors", k + 1, shards);
        for (uint32_t i = first[k]; i < first[k + 1]; i++)
            shard_of[i] = name;
        Status written = write_file(s, scratch, in_dir(scratch, dir, name), all + first[k],
                                    first[k + 1] - first[k]);
        status = status == STATUS_OK ? written : status;
    }
    if (status == STATUS_OK && dir)
        status = write_index(s, scratch, dir, tensors, shard_of, n);
out:
    arena_free(scratch);
    return status;
}
