#include "runtime/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/diag.h"
#include "runtime/json_read.h"

enum { HEADER_MOST = 100000000 /* as the format's own library has it */, FIELD_COUNT = 3 };

typedef enum Field { FIELD_DTYPE, FIELD_SHAPE, FIELD_OFFSETS } Field;

static const char *const field_names[FIELD_COUNT] = {"dtype", "shape", "data_offsets"};

typedef struct FileDType {
    const char *name;
    uint32_t bytes;
    DType dtype;
} FileDType;

static const FileDType file_dtypes[] = {
#define FILE_DTYPE(id, name, file_name, bytes, is_float) {file_name, bytes, DTYPE_##id},
    DTYPES(FILE_DTYPE)
#undef FILE_DTYPE
        {"I8", 1, DTYPE_NONE},
    {"I16", 2, DTYPE_NONE},
    {"U16", 2, DTYPE_NONE},
    {"U32", 4, DTYPE_NONE},
    {"U64", 8, DTYPE_NONE},
    {"F8_E4M3", 1, DTYPE_NONE},
    {"F8_E5M2", 1, DTYPE_NONE},
    {"F8_E8M0", 1, DTYPE_NONE},
    {"C64", 8, DTYPE_NONE},
};

typedef struct Reader {
    Session *s;
    RtTensorFile *file;
    RtJson json;
    uint64_t data_at, data_bytes;
    VEC(RtFileTensor) tensors;
} Reader;

#define header_error(r, ...)                                                                       \
    (diag((r)->s, rt_file_span((r)->s, (r)->file->path), tensors_header,                           \
          arena_printf((r)->s->arena, __VA_ARGS__)),                                               \
     STATUS_USER)

#define field_error(r, tensor, field, ...)                                                         \
    (diag((r)->s, rt_file_span((r)->s, (r)->file->path), tensors_field, (tensor)->name,            \
          field_names[field], arena_printf((r)->s->arena, __VA_ARGS__)),                           \
     STATUS_USER)

static Status json_error(Reader *r)
{
    return header_error(r, "%s at byte %zu", r->json.why, r->json.at);
}

/* Where a bad element belongs to a tensor's field, the message says so. */
static Status json_field_error(Reader *r, const RtFileTensor *tensor, Field field)
{
    return field_error(r, tensor, field, "%s at byte %zu of the header", r->json.why, r->json.at);
}

const char *rt_shape_text(Arena *arena, uint32_t rank, const int64_t *dim)
{
    char text[RT_FILE_MAX_RANK * 22 + 3] = "[";
    size_t at = 1;
    for (uint32_t i = 0; i < rank; i++)
        at +=
            (size_t)snprintf(text + at, sizeof text - at, i ? ", %lld" : "%lld", (long long)dim[i]);
    text[at] = ']';
    return arena_strndup(arena, text, at + 1);
}

static Status read_dtype(Reader *r, RtFileTensor *tensor)
{
    if (!rt_json_string(&r->json, &tensor->dtype_name))
        return json_field_error(r, tensor, FIELD_DTYPE);
    for (size_t i = 0; i < sizeof file_dtypes / sizeof *file_dtypes; i++) {
        if (strcmp(file_dtypes[i].name, tensor->dtype_name))
            continue;
        tensor->dtype_name = file_dtypes[i].name;
        tensor->dtype = file_dtypes[i].dtype;
        tensor->element_bytes = file_dtypes[i].bytes;
        return STATUS_OK;
    }
    return field_error(r, tensor, FIELD_DTYPE, "unknown dtype `%s`", tensor->dtype_name);
}

static Status read_shape(Reader *r, RtFileTensor *tensor)
{
    uint32_t n = 0;
    rt_json_open(&r->json, '[');
    while (rt_json_next(&r->json, ']', &n)) {
        uint64_t size;
        if (!rt_json_u64(&r->json, &size))
            break;
        if (n > RT_FILE_MAX_RANK)
            return field_error(r, tensor, FIELD_SHAPE, "more than %d dims", RT_FILE_MAX_RANK);
        if (size > INT64_MAX)
            return field_error(r, tensor, FIELD_SHAPE, "a dim of %llu is too large",
                               (unsigned long long)size);
        tensor->dim[n - 1] = (int64_t)size;
    }
    tensor->rank = n;
    return r->json.why ? json_field_error(r, tensor, FIELD_SHAPE) : STATUS_OK;
}

static Status read_offsets(Reader *r, RtFileTensor *tensor)
{
    uint64_t at[2] = {0};
    uint32_t n = 0;
    rt_json_open(&r->json, '[');
    while (rt_json_next(&r->json, ']', &n))
        if (n > 2 || !rt_json_u64(&r->json, &at[n - 1]))
            break;
    if (r->json.why)
        return json_field_error(r, tensor, FIELD_OFFSETS);
    if (n != 2)
        return field_error(r, tensor, FIELD_OFFSETS, "expected a begin and an end");
    if (at[0] > at[1])
        return field_error(r, tensor, FIELD_OFFSETS, "the end %llu is before the begin %llu",
                           (unsigned long long)at[1], (unsigned long long)at[0]);
    if (at[1] > r->data_bytes)
        return field_error(r, tensor, FIELD_OFFSETS,
                           "the end %llu is past the file's %llu bytes of data",
                           (unsigned long long)at[1], (unsigned long long)r->data_bytes);
    tensor->begin = at[0];
    tensor->bytes = at[1] - at[0];
    tensor->data = r->file->bytes + r->data_at + at[0];
    return STATUS_OK;
}

static Status check_size(Reader *r, RtFileTensor *tensor)
{
    uint64_t numel = 1, bytes;
    bool overflow = false, empty = false;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        empty |= !tensor->dim[i];
        overflow |= __builtin_mul_overflow(numel, (uint64_t)tensor->dim[i], &numel);
    }
    if (empty)
        numel = 0;
    overflow = (overflow && !empty) || __builtin_mul_overflow(numel, tensor->element_bytes, &bytes);
    if (overflow || bytes != tensor->bytes)
        return field_error(r, tensor, FIELD_SHAPE,
                           "%s of %s does not make the %llu bytes of `data_offsets`",
                           rt_shape_text(r->s->arena, tensor->rank, tensor->dim),
                           tensor->dtype_name, (unsigned long long)tensor->bytes);
    tensor->numel = numel;
    return STATUS_OK;
}

static Status read_field(Reader *r, RtFileTensor *tensor, const char *key, bool seen[FIELD_COUNT])
{
    static Status (*const readers[FIELD_COUNT])(Reader *, RtFileTensor *) = {read_dtype, read_shape,
                                                                             read_offsets};
    for (uint32_t field = 0; field < FIELD_COUNT; field++) {
        if (strcmp(key, field_names[field]))
            continue;
        if (seen[field])
            return field_error(r, tensor, field, "given twice");
        seen[field] = true;
        return readers[field](r, tensor);
    }
    return header_error(r, "tensor `%s` has an unknown field `%s`", tensor->name, key);
}

static Status read_tensor(Reader *r, const char *name)
{
    RtFileTensor tensor = {.name = sym(r->s, name), .path = r->file->path};
    bool seen[FIELD_COUNT] = {false};
    uint32_t n = 0;
    const char *key;
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return header_error(r, "a tensor's name has control characters, at byte %zu",
                                r->json.at);
    if (map_get(&r->file->by_name, map_key(tensor.name), NULL))
        return header_error(r, "tensor `%s` is there twice", name);
    rt_json_open(&r->json, '{');
    while (rt_json_next(&r->json, '}', &n)) {
        if (!rt_json_key(&r->json, &key))
            break;
        TRY(read_field(r, &tensor, key, seen));
    }
    if (r->json.why)
        return header_error(r, "tensor `%s`: %s at byte %zu", name, r->json.why, r->json.at);
    for (uint32_t field = 0; field < FIELD_COUNT; field++)
        if (!seen[field])
            return field_error(r, &tensor, field, "missing");
    TRY(check_size(r, &tensor));
    vec_push(r->s->arena, &r->tensors, tensor);
    map_put(&r->file->by_name, map_key(tensor.name), 0);
    return STATUS_OK;
}

static Status read_metadata(Reader *r, bool *seen)
{
    uint32_t n = 0;
    const char *key, *text;
    if (*seen)
        return header_error(r, "`__metadata__` is there twice");
    *seen = true;
    rt_json_open(&r->json, '{');
    while (rt_json_next(&r->json, '}', &n))
        if (!rt_json_key(&r->json, &key) || !rt_json_string(&r->json, &text))
            break;
    return r->json.why ? header_error(r, "`__metadata__`: %s at byte %zu", r->json.why, r->json.at)
                       : STATUS_OK;
}

static Status read_header(Reader *r)
{
    uint32_t n = 0;
    bool metadata = false;
    const char *name;
    rt_json_open(&r->json, '{');
    while (rt_json_next(&r->json, '}', &n)) {
        if (!rt_json_key(&r->json, &name))
            break;
        TRY(!strcmp(name, "__metadata__") ? read_metadata(r, &metadata) : read_tensor(r, name));
    }
    return rt_json_end(&r->json) ? STATUS_OK : json_error(r);
}

static int by_offset(const void *a, const void *b)
{
    const RtFileTensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? -1 : 1) : strcmp(x->name, y->name);
}

/* The tensors must tile the data: no byte in two of them, none in no tensor. */
static Status check_tiling(Reader *r)
{
    uint64_t at = 0;
    if (r->tensors.n)
        qsort(r->tensors.at, r->tensors.n, sizeof *r->tensors.at, by_offset);
    for (uint32_t i = 0; i < r->tensors.n; i++) {
        const RtFileTensor *tensor = &r->tensors.at[i];
        if (tensor->begin < at)
            return field_error(r, tensor, FIELD_OFFSETS,
                               "[%llu, %llu] overlaps tensor `%s`, which ends at %llu",
                               (unsigned long long)tensor->begin,
                               (unsigned long long)(tensor->begin + tensor->bytes), tensor[-1].name,
                               (unsigned long long)at);
        if (tensor->begin > at)
            return field_error(r, tensor, FIELD_OFFSETS,
                               "bytes %llu to %llu in front of it belong to no tensor",
                               (unsigned long long)at, (unsigned long long)tensor->begin);
        at += tensor->bytes;
        map_put(&r->file->by_name, map_key(tensor->name), i);
    }
    if (at != r->data_bytes)
        return header_error(r, "the file has %llu bytes of data, and its tensors %llu",
                            (unsigned long long)r->data_bytes, (unsigned long long)at);
    return STATUS_OK;
}

Status rt_tensors_parse(Session *s, const char *path, const void *bytes, uint64_t length,
                        RtTensorFile *out_file)
{
    *out_file = (RtTensorFile){.path = sym(s, path), .bytes = bytes, .length = length};
    map_init(&out_file->by_name, s->arena);
    Reader r = {.s = s, .file = out_file};
    uint64_t header = 0;
    if (length < 8)
        return header_error(&r, "the file has %llu bytes, too few for a header length",
                            (unsigned long long)length);
    for (int i = 8; i-- > 0;)
        header = header << 8 | out_file->bytes[i];
    if (header > length - 8 || header > HEADER_MOST)
        return header_error(
            &r, "header length %llu is past the end of the file of %llu bytes, or above %d",
            (unsigned long long)header, (unsigned long long)length, HEADER_MOST);
    r.json = rt_json(s->arena, (const char *)bytes + 8, header);
    r.data_at = 8 + header;
    r.data_bytes = length - r.data_at;
    if (!header || r.json.text[0] != '{')
        return header_error(&r, "the header does not begin with `{`");
    TRY(read_header(&r));
    TRY(check_tiling(&r));
    out_file->tensors = r.tensors.at;
    out_file->n_tensors = r.tensors.n;
    return STATUS_OK;
}

Status rt_tensors_open(Session *s, const char *path, RtTensorFile *out_file)
{
    struct stat info;
    Status status = STATUS_ENV;
    void *bytes = NULL;
    *out_file = (RtTensorFile){.path = path};
    const char *fault = rt_file_fault(path); /* to open a pipe would wait for its other end */
    int fd = fault ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info)) {
        diag(s, no_span, file_open, path, fault ? fault : strerror(errno));
        goto out_fd;
    }
    if (info.st_size > 0)
        bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED) {
        diag(s, no_span, file_read, path, strerror(errno));
        goto out_fd;
    }
    status = rt_tensors_parse(s, path, bytes, (uint64_t)info.st_size, out_file);
    out_file->mapped = bytes != NULL;
    if (status != STATUS_OK)
        rt_tensors_close(out_file);
out_fd:
    if (fd >= 0)
        close(fd);
    return status;
}

void rt_tensors_close(RtTensorFile *file)
{
    if (file->mapped)
        munmap((void *)(uintptr_t)file->bytes, file->length);
    file->mapped = false;
    file->bytes = NULL;
    file->n_tensors = 0;
}

const RtFileTensor *rt_tensors_find(Session *s, const RtTensorFile *file, const char *name)
{
    uint64_t index;
    return map_get(&file->by_name, map_key(sym(s, name)), &index) ? &file->tensors[index] : NULL;
}
