#include "runtime/safetensors.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/diag.h"
#include "runtime/json_read.h"

static const char single_name[] = "model.safetensors",
                  index_name[] = "model.safetensors.index.json";

typedef struct Listed { /* one line of the index */
    const char *tensor, *shard;
} Listed;

typedef struct Index {
    const char *path;
    VEC(Listed) lines;
    VEC(const char *) shards; /* each once */
    Map seen;                 /* interned tensor -> 1 + its line */
    Map seen_shards;
} Index;

static Status index_error(Session *s, const char *path, const char *what)
{
    diag(s, rt_file_span(s, path), tensors_index, what);
    return STATUS_USER;
}

static Status read_line(Session *s, RtJson *json, const char *tensor, Index *index)
{
    const char *shard;
    if (!rt_json_string(json, &shard))
        return STATUS_OK; /* the caller reports json->why */
    tensor = sym(s, tensor);
    shard = sym(s, shard);
    if (strchr(shard, '/') || !*shard || *shard == '.')
        return index_error(
            s, index->path,
            arena_printf(s->arena, "`%s` is not the name of a file beside it", shard));
    if (map_get(&index->seen, map_key(tensor), NULL))
        return index_error(s, index->path,
                           arena_printf(s->arena, "tensor `%s` is there twice", tensor));
    vec_push(s->arena, &index->lines, ((Listed){tensor, shard}));
    map_put(&index->seen, map_key(tensor), index->lines.n);
    if (!map_get(&index->seen_shards, map_key(shard), NULL)) {
        map_put(&index->seen_shards, map_key(shard), 1);
        vec_push(s->arena, &index->shards, shard);
    }
    return STATUS_OK;
}

static Status read_index(Session *s, const char *path, Index *out_index)
{
    Source source;
    uint32_t n = 0, n_maps = 0;
    const char *key;
    *out_index = (Index){.path = path};
    map_init(&out_index->seen, s->arena);
    map_init(&out_index->seen_shards, s->arena);
    TRY(session_read_source(s, path, no_span, &source));
    RtJson json = rt_json(s->arena, source.text, source.length);
    rt_json_open(&json, '{');
    while (rt_json_next(&json, '}', &n) && rt_json_key(&json, &key)) {
        uint32_t line = 0;
        if (strcmp(key, "weight_map")) {
            rt_json_skip(&json);
            continue;
        }
        if (n_maps++)
            return index_error(s, path, "`weight_map` is there twice");
        rt_json_open(&json, '{');
        while (rt_json_next(&json, '}', &line) && rt_json_key(&json, &key))
            TRY(read_line(s, &json, key, out_index));
    }
    if (!rt_json_end(&json))
        return index_error(s, path, arena_printf(s->arena, "%s at byte %zu", json.why, json.at));
    if (!out_index->lines.n)
        return index_error(s, path, "`weight_map` is missing or empty");
    return STATUS_OK;
}

/* Adds a file's tensors; one that another shard has too is an error. */
static Status add_tensors(Session *s, RtTensorSet *set, const RtTensorFile *file)
{
    for (uint32_t i = 0; i < file->n_tensors; i++) {
        const RtFileTensor *tensor = &file->tensors[i];
        uint64_t other;
        if (map_get(&set->by_name, map_key(tensor->name), &other)) {
            diag(s, rt_file_span(s, file->path), tensors_two_shards, tensor->name,
                 set->tensors.at[other]->path);
            return STATUS_USER;
        }
        map_put(&set->by_name, map_key(tensor->name), set->tensors.n);
        vec_push(s->arena, &set->tensors, tensor);
    }
    return STATUS_OK;
}

/* What the index says must be in the shards; what they have beside it is read too, and said. */
static Status check_index(Session *s, const char *dir, const Index *index, const RtTensorSet *set)
{
    for (uint32_t i = 0; i < index->lines.n; i++) {
        const Listed *line = &index->lines.at[i];
        const RtFileTensor *tensor = rt_tensor_set_find(s, set, line->tensor);
        const char *shard = arena_printf(s->arena, "%s/%s", dir, line->shard);
        if (!tensor || strcmp(tensor->path, shard))
            return index_error(s, index->path,
                               arena_printf(s->arena, "tensor `%s` is not in `%s`%s%s%s",
                                            line->tensor, shard, tensor ? ", but in `" : "",
                                            tensor ? tensor->path : "", tensor ? "`" : ""));
    }
    for (uint32_t i = 0; i < set->tensors.n; i++)
        if (!map_get(&index->seen, map_key(set->tensors.at[i]->name), NULL))
            diag(s, rt_file_span(s, index->path), tensors_unlisted, set->tensors.at[i]->name,
                 set->tensors.at[i]->path);
    return STATUS_OK;
}

static Status open_files(Session *s, const char *dir, const char *const *names, uint32_t n,
                         RtTensorSet *set)
{
    vec_reserve(s->arena, &set->files,
                n); /* tensors point into the files' tables, not to the files */
    for (uint32_t i = 0; i < n; i++) {
        RtTensorFile file;
        TRY(rt_tensors_open(s, arena_printf(s->arena, "%s/%s", dir, names[i]), &file));
        vec_push(s->arena, &set->files, file);
        TRY(add_tensors(s, set, &set->files.at[i]));
    }
    return STATUS_OK;
}

static Status open_sharded(Session *s, const char *dir, RtTensorSet *set)
{
    Index index;
    TRY(read_index(s, set->path, &index));
    TRY(open_files(s, dir, index.shards.at, index.shards.n, set));
    return check_index(s, dir, &index, set);
}

Status rt_tensor_set_open(Session *s, const char *dir, RtTensorSet *out_set)
{
    const char *single = arena_printf(s->arena, "%s/%s", dir, single_name);
    const char *index = arena_printf(s->arena, "%s/%s", dir, index_name);
    const char *only = single_name;
    bool has_single = !access(single, F_OK), has_index = !access(index, F_OK);
    *out_set = (RtTensorSet){.path = has_single ? single : index};
    map_init(&out_set->by_name, s->arena);
    if (!has_single && !has_index) {
        struct stat info;
        if (stat(dir, &info) || !S_ISDIR(info.st_mode))
            diag(s, no_span, weights_no_folder, dir);
        else
            diag(s, no_span, weights_no_files, dir, single_name, index_name);
        return STATUS_ENV;
    }
    if (has_single && has_index)
        diag(s, no_span, weights_both_layouts, dir, single_name, index_name);
    Status status =
        has_single ? open_files(s, dir, &only, 1, out_set) : open_sharded(s, dir, out_set);
    if (status != STATUS_OK)
        rt_tensor_set_close(out_set);
    return status;
}

void rt_tensor_set_close(RtTensorSet *set)
{
    for (uint32_t i = 0; i < set->files.n; i++)
        rt_tensors_close(&set->files.at[i]);
    set->files.n = set->tensors.n = 0;
}

const RtFileTensor *rt_tensor_set_find(Session *s, const RtTensorSet *set, const char *name)
{
    uint64_t index;
    return map_get(&set->by_name, map_key(sym(s, name)), &index) ? set->tensors.at[index] : NULL;
}

void rt_tensor_set_forget_pages(const RtTensorSet *set)
{
    for (uint32_t i = 0; i < set->files.n; i++)
        if (set->files.at[i].mapped)
            madvise((void *)(uintptr_t)set->files.at[i].bytes, set->files.at[i].length,
                    MADV_DONTNEED);
}
