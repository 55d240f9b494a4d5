#include "runtime/weights.h"

#include "base/diag.h"
#include "runtime/init.h"
#include "runtime/weights_convert.h"
#include "runtime/weights_names.h"

enum { CHUNK = 1 << 18, PROBLEMS_SHOWN = 40 };

typedef struct Loader {
    Session *s;
    const RtPlan *plan;
    unsigned char *arena;
    RtWeights *weights;
    RtTensorSet *set;
    RtNames names;
    bool exact;
    const RtFileTensor **from; /* by state: where it is read from; NULL: init */
    Map used;                  /* tensor (pointer) -> 1 */
    uint32_t problems;
} Loader;

static bool is_weight(const PlanState *state)
{
    return state->kind == PLAN_STATE_PARAM || state->kind == PLAN_STATE_BUFFER;
}

/* Counts a problem; false where it is one too many to print. */
static bool shown(Loader *l)
{
    return l->problems++ < PROBLEMS_SHOWN;
}

static void check_tensor(Loader *l, const PlanState *state, const RtFileTensor *tensor)
{
    Session *s = l->s;
    const char *name = rt_plan_string(l->plan, state->name);
    bool same = tensor->rank == state->rank;
    for (uint32_t i = 0; same && i < state->rank; i++)
        same = tensor->dim[i] == state->dim[i];
    if (!same && shown(l)) {
        diag(s, rt_file_span(s, tensor->path), weights_shape, tensor->name,
             rt_shape_text(s->arena, tensor->rank, tensor->dim),
             rt_shape_text(s->arena, state->rank, state->dim));
        diag(s, rt_state_span(s, l->plan, state), weights_declared, name);
    }
    bool floats = tensor->dtype != DTYPE_NONE && dtype_is_float(tensor->dtype) &&
                  dtype_is_float((DType)state->dtype);
    if (tensor->dtype != (DType)state->dtype && (l->exact || !floats) && shown(l))
        diag(s, rt_file_span(s, tensor->path), weights_dtype, tensor->name, tensor->dtype_name,
             l->exact ? "restored to" : "converted to", dtype_name((DType)state->dtype));
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

static void report_missing(Loader *l, const PlanState *state, const char *name,
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
        diag(l->s, rt_state_span(l->s, l->plan, state), weights_declared, name);
}

/* Finds a weight under its own name or, if it is tied, its alias. */
static void find_weight(Loader *l, uint32_t index)
{
    const PlanState *state = &l->plan->states[index];
    const char *name = rt_plan_string(l->plan, state->name),
               *file_name = rt_names_in_file(l->s, &l->names, name);
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
    for (uint32_t i = 0; i < l->plan->n_states; i++)
        if (l->plan->states[i].kind == PLAN_STATE_BUFFER && !l->from[i])
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
    for (uint32_t i = 0; i < l->plan->n_states; i++) {
        if (!is_weight(&l->plan->states[i]))
            continue;
        weights++;
        found += l->from[i] != NULL;
        head |= !l->from[i] && strstr(rt_plan_string(l->plan, l->plan->states[i].name), "lm_head.");
    }
    if (weights && !found && l->set->tensors.n)
        diag(l->s, no_span, weights_other_names, l->set->tensors.at[0]->name);
    else if (head)
        diag(l->s, no_span, weights_tie_hint);
}

static Status check_all(Loader *l)
{
    TRY(rt_names_detect(l->s, l->plan, l->set, &l->names));
    for (uint32_t i = 0; i < l->plan->n_states; i++)
        if (is_weight(&l->plan->states[i]))
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

typedef struct Copy {
    const PlanState *state, *master;
    unsigned char *arena;
    const RtFileTensor *from;
} Copy;

static void copy_chunk(void *context, uint64_t chunk)
{
    const Copy *copy = context;
    uint64_t first = chunk * CHUNK,
             n = copy->from->numel - first < CHUNK ? copy->from->numel - first : CHUNK;
    DType dtype = (DType)copy->state->dtype, from_dtype = copy->from->dtype;
    const unsigned char *from = copy->from->data + first * copy->from->element_bytes;
    unsigned char *to = copy->arena + copy->state->offset + first * dtype_bytes(dtype);
    if (copy->master) {
        DType wide = (DType)copy->master->dtype;
        unsigned char *master = copy->arena + copy->master->offset + first * dtype_bytes(wide);
        rt_convert(master, wide, from, from_dtype, n);
        from = master;
        from_dtype = wide;
    }
    rt_convert(to, dtype, from, from_dtype, n);
}

static void copy_all(Loader *l)
{
    for (uint32_t i = 0; i < l->plan->n_states; i++) {
        if (!is_weight(&l->plan->states[i]))
            continue;
        if (!l->from[i]) {
            rt_init_state(l->plan, l->arena, i, 0);
            continue;
        }
        uint32_t master = rt_state_of(l->plan, i, PLAN_STATE_MASTER);
        Copy copy = {&l->plan->states[i], master == UINT32_MAX ? NULL : &l->plan->states[master],
                     l->arena, l->from[i]};
        rt_chunks_run((copy.from->numel + CHUNK - 1) / CHUNK, copy_chunk, &copy);
    }
}

/* `NAME.exp_avg` is `exp_avg.FILE_NAME` in files. */
static void name_the_rest(Session *s, const RtPlan *plan, RtWeights *weights)
{
    for (uint32_t i = 0; i < plan->n_states; i++) {
        const PlanState *state = &plan->states[i];
        if (state->kind != PLAN_STATE_MASTER && state->kind != PLAN_STATE_MOMENT1 &&
            state->kind != PLAN_STATE_MOMENT2)
            continue;
        const char *name = rt_plan_string(plan, state->name);
        const char *dot = strrchr(name, '.');
        weights->file_names[i] =
            arena_printf(s->arena, "%s.%s", dot ? dot + 1 : name, weights->file_names[state->of]);
    }
}

static Status load(Session *s, const RtPlan *plan, unsigned char *arena, const char *dir,
                   bool exact, RtWeights *out_weights)
{
    *out_weights =
        (RtWeights){.file_names = ARENA_ARRAY(s->arena, const char *, plan->n_states + 1)};
    Loader l = {
        .s = s, .plan = plan, .arena = arena, .weights = out_weights, .set = &out_weights->source};
    l.exact = exact;
    l.from = ARENA_ARRAY(s->arena, const RtFileTensor *, plan->n_states + 1);
    map_init(&l.used, s->arena);
    TRY(rt_tensor_set_open(s, dir, l.set));
    Status status = check_all(&l);
    if (status != STATUS_OK) {
        rt_weights_release(out_weights);
        return status;
    }
    copy_all(&l);
    name_the_rest(s, plan, out_weights);
    if (out_weights->carried.n)
        rt_tensor_set_forget_pages(l.set);
    else
        rt_tensor_set_close(l.set);
    return STATUS_OK;
}

Status rt_weights_load(Session *s, const RtPlan *plan, unsigned char *arena, const char *dir,
                       RtWeights *out_weights)
{
    return load(s, plan, arena, dir, false, out_weights);
}

Status rt_weights_restore(Session *s, const RtPlan *plan, unsigned char *arena, const char *dir,
                          RtWeights *out_weights)
{
    return load(s, plan, arena, dir, true, out_weights);
}

Status rt_weights_init(Session *s, const RtPlan *plan, unsigned char *arena, uint64_t seed,
                       RtWeights *out_weights)
{
    *out_weights =
        (RtWeights){.file_names = ARENA_ARRAY(s->arena, const char *, plan->n_states + 1)};
    for (uint32_t i = 0; i < plan->n_states; i++)
        if (is_weight(&plan->states[i]))
            out_weights->file_names[i] = rt_plan_string(plan, plan->states[i].name);
    name_the_rest(s, plan, out_weights);
    rt_init_all(plan, arena, seed);
    return STATUS_OK;
}

void rt_weights_release(RtWeights *weights)
{
    rt_tensor_set_close(&weights->source);
    weights->carried.n = 0;
}

RtOutTensor rt_weights_out(const RtPlan *plan, const unsigned char *arena, const RtWeights *weights,
                           uint32_t state)
{
    const PlanState *rec = &plan->states[state];
    return rt_out_tensor(weights->file_names[state], (DType)rec->dtype, rec->rank, rec->dim,
                         arena + rec->offset);
}
