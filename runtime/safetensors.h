/* safetensors: files of named tensors: reading with every index checked before it is used, sets of
 * shards, and writing. A file is an 8-byte little-endian header length, a JSON header, and the
 * tensors' bytes without gaps. */
#ifndef RUNTIME_SAFETENSORS_H
#define RUNTIME_SAFETENSORS_H

#include "base/dtype.h"
#include "base/session.h"

enum { RT_FILE_MAX_RANK = 8 };

typedef struct RtFileTensor {
    const char *name;
    const char *dtype_name; /* the file's: `BF16`, `F8_E4M3` ... */
    DType dtype;            /* DTYPE_NONE: one that we only carry from file to file */
    uint32_t element_bytes, rank;
    int64_t dim[RT_FILE_MAX_RANK];
    uint64_t numel, begin, bytes; /* begin: in the file's data */
    const unsigned char *data;    /* may be misaligned */
    const char *path;             /* of its file, for messages */
} RtFileTensor;

typedef struct RtTensorFile {
    const char *path;
    const unsigned char *bytes; /* the whole file, read-only */
    uint64_t length;
    bool mapped;
    RtFileTensor *tensors; /* in the order of their data */
    uint32_t n_tensors;
    Map by_name; /* interned name -> index */
} RtTensorFile;

/* A file that breaks the format is one diagnostic that names file, tensor and field, and
 * STATUS_USER; a file that cannot be read is STATUS_ENV. Records live in the session, the mapping
 * until close. */
Status rt_tensors_open(Session *s, const char *path, RtTensorFile *out_file);
/* The same over bytes in memory that outlive the file; `path` is for messages. */
Status rt_tensors_parse(Session *s, const char *path, const void *bytes, uint64_t length,
                        RtTensorFile *out_file);
void rt_tensors_close(RtTensorFile *file);
const RtFileTensor *rt_tensors_find(Session *s, const RtTensorFile *file, const char *name);

/* -- a folder's weights: `model.safetensors`, or the shards that `model.safetensors.index.json`
 * lists -- */

typedef struct RtTensorSet {
    const char *path; /* the single file or the index, for messages */
    VEC(RtTensorFile) files;
    VEC(const RtFileTensor *) tensors; /* of all files */
    Map by_name;
} RtTensorSet;

Status rt_tensor_set_open(Session *s, const char *dir, RtTensorSet *out_set);
void rt_tensor_set_close(RtTensorSet *set);
const RtFileTensor *rt_tensor_set_find(Session *s, const RtTensorSet *set, const char *name);
/* Gives back the memory of pages that were read; they are read again when touched. */
void rt_tensor_set_forget_pages(const RtTensorSet *set);

/* -- writing -- */

typedef struct RtOutTensor {
    const char *name, *dtype_name; /* dtype_name as the file spells it */
    uint32_t element_bytes, rank;
    int64_t dim[RT_FILE_MAX_RANK];
    const unsigned char *data;
    uint64_t bytes;
    uint64_t run_bytes,
        pitch_bytes; /* byte b of the tensor is data[b / run * pitch + b % run]; 0: contiguous */
    /* Brings a tensor that several ranks hold together; `to` is NULL on a rank that only hands
     * over what it has. False: a rank is lost. NULL: the tensor is `data`. */
    bool (*fetch)(const void *context, unsigned char *to);
    const void *context;
} RtOutTensor;

RtOutTensor rt_out_tensor(const char *name, DType dtype, uint32_t rank, const int64_t *dim,
                          const void *data);

/* Behind the name of a file that is being written, and a process's number behind that. */
#define RT_PARTIAL_FILE ".tmp-"

/* path and dir NULL: this rank writes nothing, and hands over what the writing one fetches.
 * Writes beside `path` (beside its target, where it is a link), syncs, and renames: the file is
 * there whole or not at all. The order in the file is by falling element size, then by name, so
 * that every tensor is aligned. */
Status rt_tensors_write(Session *s, const char *path, const RtOutTensor *tensors, uint32_t n);
/* `model.safetensors` in dir, or, above shard_bytes, shards of at most that (a larger tensor has
 * its own) and an index. */
Status rt_tensor_set_write(Session *s, const char *dir, const RtOutTensor *tensors, uint32_t n,
                           uint64_t shard_bytes);
/* A small text file, by the same route. */
Status rt_text_write(Session *s, const char *path, const char *text);
/* Before a run that will write `path`: a file can be there, and nothing but a file is. */
Status rt_file_check(Session *s, const char *path);
/* Why what is at `path` cannot be read or replaced as a file; NULL: it is one, or nothing is there.
 */
const char *rt_file_fault(const char *path);

/* -- for messages -- */

static inline Span rt_file_span(Session *s, const char *path)
{
    return (Span){.file = sym(s, path)};
}

const char *rt_shape_text(Arena *arena, uint32_t rank, const int64_t *dim); /* `[4, 20]` */

#endif
