#include "runtime/weights.h"

#include "base/diag.h"
#include "runtime/init.h"
#include "runtime/weights_convert.h"
#include "runtime/weights_names.h"

enum { CHUNK = 1 << 18, BLOCK = 512, PROBLEMS_SHOWN = 40 };

typedef struct Loader {
    Session *s;
    const RtTensors *tensors;
    unsigned char *arena;
    RtWeights *weights;
    RtTensorSet *set;
    RtNames names;
    bool exact;
    const RtFileTensor **from; /* by tensor: where it is read from; NULL: init */
    Map used;                  /* tensor (pointer) -> 1 */
    uint32_t problems;
} Loader;

/* Counts a problem; false where it is one too many to print. */
static bool shown(Loader *l)
{
    return l->problems++ < PROBLEMS_SHOWN;
}

static void check_tensor(Loader *l, const RtTensor *state, const RtFileTensor *tensor)
{
    Session *s = l->s;
    bool same = tensor->rank == state->rank;
    for (uint32_t i = 0; same && i < state->rank; i++)
        same = tensor->dim[i] == state->dim[i];
    if (!same && shown(l)) {
        diag(s, rt_file_span(s, tensor->path), weights_shape, tensor->name,
             rt_shape_text(s->arena, tensor->rank, tensor->dim),
             rt_shape_text(s->arena, state->rank, state->dim));
        diag(s, rt_tensor_span(s, state), weights_declared, state->name);
    }
    bool floats = tensor->dtype != DTYPE_NONE && dtype_is_float(tensor->dtype) &&
                  dtype_is_float(state->dtype);
    if (tensor->dtype != state->dtype && (l->exact || !floats) && shown(l))
        diag(s, rt_file_span(s, tensor->path), weights_dtype, tensor->name, tensor->dtype_name,
             l->exact ? "restored to" : "converted to", dtype_name(state->dtype));
}

/* Bits, or, where the two have different dtypes, values. */
static bool same_values(const RtFileTensor *a, const RtFileTensor *b)
{
    if (a->numel != b->numel || a->rank != b->rank ||
        memcmp(a->dim, b->dim, sizeof *a->dim * a->rank))
        return false;
    if (!strcmp(a->dtype_name, b->dtype_name))
        return !memcmp(a->data, b->data, a->bytes);
    if (a->dtype == DTYPE_NONE || b->dtype == DTYPE_NONE || !dtype_is_float(a->dtype) ||
        !dtype_is_float(b->dtype))
        return false;
    Arena *scratch = arena_new();
    double *x = ARENA_ARRAY(scratch, double, CHUNK), *y = ARENA_ARRAY(scratch, double, CHUNK);
    bool same = true;
    for (uint64_t at = 0; same && at < a->numel; at += CHUNK) {
        uint64_t n = a->numel - at < CHUNK ? a->numel - at : CHUNK;
        rt_convert(x, DTYPE_F64, a->data + at * a->element_bytes, a->dtype, n);
        rt_convert(y, DTYPE_F64, b->data + at * b->element_bytes, b->dtype, n);
        same = !memcmp(x, y, n * sizeof *x);
    }
    arena_free(scratch);
    return same;
}

static void report_missing(Loader *l, const RtTensor *state, const char *name,
                           const char *file_name)
{
    const char *alias = NULL;
    if (!shown(l))
        return;
    for (uint32_t i = 0; i < l->names.ties.n && !alias; i++)
        if (!strcmp(l->names.ties.at[i].name, name))
            alias = rt_names_in_file(l->s, &l->names, l->names.ties.at[i].alias);
    if (alias)
        diag(l->s, rt_file_span(l->s, l->set->path), weights_missing_tied, file_name, alias);
    else
        diag(l->s, rt_file_span(l->s, l->set->path), weights_missing, file_name);
    if (state->line)
        diag(l->s, rt_tensor_span(l->s, state), weights_declared, name);
}

/* Finds a weight under its own name or, if it is tied, its alias. */
static void find_weight(Loader *l, uint32_t index)
{
    const RtTensor *state = &l->tensors->at[index];
    const char *name = state->name, *file_name = rt_names_in_file(l->s, &l->names, name);
    const RtFileTensor *own = rt_tensor_set_find(l->s, l->set, file_name);
    const RtFileTensor *alias = rt_names_alias(l->s, &l->names, l->set, name);
    const RtFileTensor *tensor = own ? own : alias;
    l->weights->file_names[index] = tensor ? tensor->name : file_name;
    l->from[index] = tensor;
    if (own && alias && !same_values(own, alias) && shown(l))
        diag(l->s, rt_file_span(l->s, l->set->path), weights_tied_differ, own->name, alias->name);
    if (own)
        map_put(&l->used, map_key(own), 1);
    if (alias)
        map_put(&l->used, map_key(alias), 1);
    if (tensor)
        check_tensor(l, state, tensor);
    else if (state->kind == PLAN_STATE_PARAM)
        report_missing(l, state, name, file_name);
}

/* Buffers without a tensor, and tensors without a reader: records, one each. */
static void report_rest(Loader *l)
{
    VEC(const char *) unset = {0}, unread = {0};
    Session *s = l->s;
    for (uint32_t i = 0; i < l->tensors->n; i++)
        if (l->tensors->at[i].kind == PLAN_STATE_BUFFER && !l->from[i])
            vec_push(s->arena, &unset, l->weights->file_names[i]);
    for (uint32_t i = 0; i < l->set->tensors.n; i++) {
        const RtFileTensor *tensor = l->set->tensors.at[i];
        if (map_get(&l->used, map_key(tensor), NULL) || rt_names_ignorable(&l->names, tensor->name))
            continue;
        vec_push(s->arena, &l->weights->carried, tensor);
        vec_push(s->arena, &unread, tensor->name);
    }
    if (unset.n)
        diag(s, rt_file_span(s, l->set->path), weights_default, unset.n,
             rt_names_summary(s, unset.at, unset.n));
    if (unread.n)
        diag(s, rt_file_span(s, l->set->path), weights_unused, unread.n,
             rt_names_summary(s, unread.at, unread.n));
}

/* A head that the plan has and the file lacks, or no name in common: say what the reason most
 * likely is. */
static void hint(Loader *l)
{
    uint32_t weights = 0, found = 0;
    bool head = false;
    for (uint32_t i = 0; i < l->tensors->n; i++) {
        if (!rt_is_weight(&l->tensors->at[i]))
            continue;
        weights++;
        found += l->from[i] != NULL;
        head |= !l->from[i] && strstr(l->tensors->at[i].name, "lm_head.");
    }
    if (weights && !found && l->set->tensors.n)
        diag(l->s, no_span, weights_other_names, l->set->tensors.at[0]->name);
    else if (head)
        diag(l->s, no_span, weights_tie_hint);
}

static Status check_all(Loader *l)
{
    TRY(rt_names_detect(l->s, l->tensors, l->set, &l->names));
    for (uint32_t i = 0; i < l->tensors->n; i++)
        if (rt_is_weight(&l->tensors->at[i]))
            find_weight(l, i);
    if (l->problems) {
        if (l->problems > PROBLEMS_SHOWN)
            diag(l->s, no_span, weights_more, l->problems - PROBLEMS_SHOWN);
        hint(l);
        return STATUS_USER;
    }
    report_rest(l);
    return l->s->strict && l->s->n_errors ? STATUS_USER : STATUS_OK;
}

/* -- copying -- */

typedef struct Copy {
    RtShare share;
    DType dtype, wide; /* wide: of the master that rounds first; DTYPE_NONE: none does */
    unsigned char *to;
    const RtFileTensor *from;
} Copy;

static void copy_run(const Copy *copy, unsigned char *to, const unsigned char *from, uint64_t n)
{
    unsigned char wide[BLOCK * 8];
    uint64_t size = dtype_bytes(copy->dtype);
    if (copy->wide == DTYPE_NONE || copy->wide == copy->dtype) {
        rt_convert(to, copy->dtype, from, copy->from->dtype, n);
        return;
    }
    for (uint64_t i = 0; i < n; i += BLOCK) {
        uint64_t block = n - i < BLOCK ? n - i : BLOCK;
        rt_convert(wide, copy->wide, from + i * copy->from->element_bytes, copy->from->dtype,
                   block);
        rt_convert(to + i * size, copy->dtype, wide, copy->wide, block);
    }
}

static void copy_chunk(void *context, uint64_t chunk)
{
    const Copy *copy = context;
    int64_t begin = (int64_t)chunk * CHUNK, n,
            end = begin + CHUNK < copy->share.n ? begin + CHUNK : copy->share.n;
    for (int64_t i = begin; i < end; i += n) {
        int64_t whole = rt_share_at(&copy->share, i, &n);
        n = n < end - i ? n : end - i;
        if (whole >= 0)
            copy_run(copy, copy->to + i * dtype_bytes(copy->dtype),
                     copy->from->data + whole * copy->from->element_bytes, (uint64_t)n);
    }
}

void rt_tensor_fill(const RtTensors *tensors, uint32_t i, unsigned char *arena,
                    const RtFileTensor *from)
{
    const RtTensor *tensor = &tensors->at[i];
    uint32_t master =
        rt_is_weight(tensor) ? rt_tensor_of(tensors, i, PLAN_STATE_MASTER) : UINT32_MAX;
    Copy copy = {.share = rt_share(tensors, tensor, tensors->self),
                 .dtype = tensor->dtype,
                 .wide = master == UINT32_MAX ? DTYPE_NONE : tensors->at[master].dtype,
                 .from = from};
    if (!copy.share.n)
        return;
    copy.to = rt_tensor_at(tensors, tensor, arena) +
              copy.share.at * (int64_t)dtype_bytes(tensor->dtype);
    rt_chunks_run((uint64_t)(copy.share.n + CHUNK - 1) / CHUNK, copy_chunk, &copy);
}

static void copy_all(Loader *l)
{
    for (uint32_t i = 0; i < l->tensors->n; i++) {
        const RtTensor *tensor = &l->tensors->at[i];
        if (!rt_is_weight(tensor) && tensor->kind != PLAN_STATE_MASTER)
            continue;
        if (l->from[tensor->of])
            rt_tensor_fill(l->tensors, i, l->arena, l->from[tensor->of]);
        else
            rt_init_tensor(l->tensors, l->arena, i, 0);
    }
}

/* `NAME.exp_avg` is `exp_avg.FILE_NAME` in files. */
static void name_the_rest(Session *s, RtWeights *weights)
{
    const RtTensors *tensors = &weights->tensors;
    for (uint32_t i = 0; i < tensors->n; i++) {
        const RtTensor *tensor = &tensors->at[i];
        if (tensor->kind != PLAN_STATE_MASTER && tensor->kind != PLAN_STATE_MOMENT1 &&
            tensor->kind != PLAN_STATE_MOMENT2)
            continue;
        const char *name = tensor->state_name;
        const char *dot = strrchr(name, '.');
        weights->file_names[i] =
            arena_printf(s->arena, "%s.%s", dot ? dot + 1 : name, weights->file_names[tensor->of]);
    }
}

/* Names, types, shapes, and each tensor's ends: enough to tell one checkpoint from another. */
static uint64_t fingerprint_of(const RtTensorSet *set)
{
    enum { END_BYTES = 64 };
    uint64_t hash = 1;
    for (uint32_t i = 0; i < set->tensors.n; i++) {
        const RtFileTensor *t = set->tensors.at[i];
        uint64_t end = t->bytes < END_BYTES ? t->bytes : END_BYTES;
        hash = map_hash(t->name, strlen(t->name), hash);
        hash = map_hash(t->dtype_name, strlen(t->dtype_name), hash);
        hash = map_hash(t->dim, t->rank * sizeof *t->dim, hash);
        hash = map_hash(t->data, end, hash);
        hash = map_hash(t->data + t->bytes - end, end, hash);
    }
    return hash;
}

static void begin(Session *s, const RtWorld *world, const RtPlan *plan, RtWeights *weights)
{
    *weights = (RtWeights){0};
    rt_tensors_list(s, world, plan, &weights->tensors);
    weights->file_names = ARENA_ARRAY(s->arena, const char *, weights->tensors.n + 1);
}

static Status load(Session *s, const RtWorld *world, const RtPlan *plan, unsigned char *arena,
                   const char *dir, bool exact, RtWeights *out_weights)
{
    begin(s, world, plan, out_weights);
    Loader l = {.s = s,
                .tensors = &out_weights->tensors,
                .arena = arena,
                .weights = out_weights,
                .set = &out_weights->source};
    l.exact = exact;
    l.from = ARENA_ARRAY(s->arena, const RtFileTensor *, l.tensors->n + 1);
    map_init(&l.used, s->arena);
    TRY(rt_tensor_set_open(s, dir, l.set));
    Status status = check_all(&l);
    if (status != STATUS_OK) {
        rt_weights_release(out_weights);
        return status;
    }
    out_weights->fingerprint = fingerprint_of(l.set);
    copy_all(&l);
    name_the_rest(s, out_weights);
    if (out_weights->carried.n)
        rt_tensor_set_forget_pages(l.set);
    else
        rt_tensor_set_close(l.set);
    return STATUS_OK;
}

Status rt_weights_load(Session *s, const RtWorld *world, const RtPlan *plan, unsigned char *arena,
                       const char *dir, RtWeights *out_weights)
{
    return load(s, world, plan, arena, dir, false, out_weights);
}

Status rt_weights_restore(Session *s, const RtWorld *world, const RtPlan *plan,
                          unsigned char *arena, const char *dir, RtWeights *out_weights)
{
    return load(s, world, plan, arena, dir, true, out_weights);
}

Status rt_weights_init(Session *s, const RtWorld *world, const RtPlan *plan, unsigned char *arena,
                       uint64_t seed, RtWeights *out_weights)
{
    begin(s, world, plan, out_weights);
    const RtTensors *tensors = &out_weights->tensors;
    for (uint32_t i = 0; i < tensors->n; i++)
        if (rt_is_weight(&tensors->at[i]))
            out_weights->file_names[i] = tensors->at[i].name;
    name_the_rest(s, out_weights);
    rt_init_all(tensors, arena, seed);
    return STATUS_OK;
}

void rt_weights_release(RtWeights *weights)
{
    rt_tensor_set_close(&weights->source);
    weights->carried.n = 0;
}

/* -- writing -- */

static bool fetch(const void *context, unsigned char *to)
{
    return rt_gather(context, to);
}

RtOutTensor rt_tensor_out(Arena *scratch, RtWorld *world, const RtTensors *tensors, uint32_t i,
                          DType dtype, const char *name, const unsigned char *base)
{
    const RtTensor *tensor = &tensors->at[i];
    RtOutTensor out = rt_out_tensor(name, dtype, tensor->rank, tensor->dim, base);
    if (rt_tensor_is_whole(tensor))
        return out;
    RtGather *gather = ARENA_NEW(scratch, RtGather);
    *gather = (RtGather){world, tensors, tensor, base, out.element_bytes};
    out.data = NULL;
    out.fetch = fetch;
    out.context = gather;
    return out;
}

RtOutTensor rt_weights_out(Arena *scratch, RtWorld *world, const unsigned char *arena,
                           const RtWeights *weights, uint32_t i)
{
    const RtTensors *tensors = &weights->tensors;
    const RtTensor *tensor = &tensors->at[i];
    return rt_tensor_out(scratch, world, tensors, i, tensor->dtype, weights->file_names[i],
                         rt_tensor_at(tensors, tensor, arena));
}
