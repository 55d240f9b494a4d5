#include "runtime/checkpoint.h"

#include <stddef.h>
#include <unistd.h>

#include "base/diag.h"
#include "runtime/checkpoint_folder.h"
#include "runtime/json_read.h"

enum { FORMAT = 1 };

static const uint64_t shard_bytes = 5000000000u;

typedef struct Counters { /* trainer.json */
    uint64_t format, step, seed, skipped, steps_done, sample0, data_position, data_seed, data_seq,
        data_samples;
    const char *model, *optimizer, *data;
} Counters;

typedef struct CounterField {
    const char *name;
    size_t at; /* in Counters */
    bool text, optional;
} CounterField;

static const CounterField counter_fields[] = {
    {"format", offsetof(Counters, format), false, false},
    {"model", offsetof(Counters, model), true, false},
    {"optimizer", offsetof(Counters, optimizer), true, false},
    {"step", offsetof(Counters, step), false, false},
    {"seed", offsetof(Counters, seed), false, false},
    {"skipped", offsetof(Counters, skipped), false, false},
    {"steps_done", offsetof(Counters, steps_done), false, true},
    {"sample0", offsetof(Counters, sample0), false, false},
    {"data", offsetof(Counters, data), true, true},
    {"data_position", offsetof(Counters, data_position), false, false},
    {"data_seed", offsetof(Counters, data_seed), false, true},
    {"data_seq", offsetof(Counters, data_seq), false, true},
    {"data_samples", offsetof(Counters, data_samples), false, true},
};

enum { COUNTER_FIELDS = sizeof counter_fields / sizeof *counter_fields };

static bool is_training_state(const RtTensor *state)
{
    return state->kind == PLAN_STATE_MASTER || state->kind == PLAN_STATE_MOMENT1 ||
           state->kind == PLAN_STATE_MOMENT2;
}

static const char *optimizer_of(const RtPlan *plan)
{
    for (uint32_t stage = 0; stage < plan->n_all; stage++)
        for (uint64_t i = 0; i < plan->all[stage].n_instrs; i++) {
            if (plan->all[stage].instrs[i].kernel == PLAN_KERNEL_adamw)
                return "adamw";
            if (plan->all[stage].instrs[i].kernel == PLAN_KERNEL_sgd)
                return "sgd";
        }
    return "none";
}

static uint64_t scalar(const unsigned char *arena, uint64_t offset)
{
    uint64_t value = 0;
    if (offset != PLAN_ABSENT)
        memcpy(&value, arena + offset, sizeof value);
    return value;
}

static void set_scalar(unsigned char *arena, uint64_t offset, uint64_t value)
{
    if (offset != PLAN_ABSENT)
        memcpy(arena + offset, &value, sizeof value);
}

Status rt_checkpoint_check(Session *s, const char *dir)
{
    return rt_folder_check(s, dir);
}

/* -- save -- */

static RtOutTensor carried_tensor(const RtFileTensor *tensor)
{
    RtOutTensor out = {.name = tensor->name,
                       .dtype_name = tensor->dtype_name,
                       .element_bytes = tensor->element_bytes,
                       .rank = tensor->rank,
                       .data = tensor->data,
                       .bytes = tensor->bytes};
    memcpy(out.dim, tensor->dim, sizeof out.dim);
    return out;
}

static Status save_weights(Session *s, Arena *scratch, RtWorld *world, const unsigned char *arena,
                           const RtWeights *weights, const char *dir)
{
    VEC(RtOutTensor) out = {0};
    for (uint32_t i = 0; i < weights->tensors.n; i++)
        if (rt_is_weight(&weights->tensors.at[i]))
            vec_push(scratch, &out, rt_weights_out(scratch, world, arena, weights, i));
    for (uint32_t i = 0; i < weights->carried.n; i++)
        vec_push(scratch, &out, carried_tensor(weights->carried.at[i]));
    Status status = rt_tensor_set_write(s, dir, out.at, out.n, shard_bytes);
    if (weights->carried.n)
        rt_tensor_set_forget_pages(&weights->source);
    return status;
}

static Status save_optimizer(Session *s, Arena *scratch, RtWorld *world, const unsigned char *arena,
                             const RtWeights *weights, const char *dir)
{
    VEC(RtOutTensor) out = {0};
    for (uint32_t i = 0; i < weights->tensors.n; i++)
        if (is_training_state(&weights->tensors.at[i]))
            vec_push(scratch, &out, rt_weights_out(scratch, world, arena, weights, i));
    const char *path = dir ? arena_printf(scratch, "%s/state/optimizer.safetensors", dir) : NULL;
    return rt_tensors_write(s, path, out.at, out.n);
}

static Status save_counters(Session *s, Arena *scratch, const Counters *counters, const char *dir)
{
    const char *text = "{\n";
    for (uint32_t i = 0; i < COUNTER_FIELDS; i++) {
        const CounterField *field = &counter_fields[i];
        const char *at = (const char *)counters + field->at,
                   *comma = i + 1 < COUNTER_FIELDS ? "," : "";
        const char *value;
        if (field->text)
            value = rt_json_quote(scratch, *(const char *const *)(const void *)at);
        else
            value = arena_printf(scratch, "%llu",
                                 (unsigned long long)*(const uint64_t *)(const void *)at);
        text = arena_printf(scratch, "%s  \"%s\": %s%s\n", text, field->name, value, comma);
    }
    return rt_text_write(s, arena_printf(scratch, "%s/state/trainer.json", dir),
                         arena_printf(scratch, "%s}\n", text));
}

static Counters counters_now(const RtPlan *plan, const unsigned char *arena,
                             const RtReached *reached)
{
    const PlanScalars *at = &plan->header->scalars;
    return (Counters){.format = FORMAT,
                      .model = rt_plan_string(plan, plan->header->model),
                      .optimizer = optimizer_of(plan),
                      .step = scalar(arena, at->step),
                      .seed = scalar(arena, at->seed),
                      .skipped = scalar(arena, at->skipped),
                      .steps_done = (uint64_t)reached->steps,
                      .sample0 = scalar(arena, at->sample0),
                      .data = reached->data,
                      .data_position = reached->data_position,
                      .data_seed = (uint64_t)reached->data_seed,
                      .data_seq = reached->data_seq,
                      .data_samples = reached->data_samples};
}

/* What all ranks take part in; a failure of the writing one does not keep the others waiting. */
static Status write_tensors(Session *s, Arena *scratch, RtWorld *world, const unsigned char *arena,
                            const RtWeights *weights, const char *dir)
{
    Status first = save_weights(s, scratch, world, arena, weights, dir);
    Status second = save_optimizer(s, scratch, world, arena, weights, dir);
    return rt_world_agree(world, first != STATUS_OK ? first : second);
}

static Status write_texts(Session *s, Arena *scratch, const RtPlan *plan, const Counters *counters,
                          const char *dir)
{
    const char *config = rt_plan_string(plan, plan->header->model_config);
    if (*config)
        TRY(rt_text_write(s, arena_printf(scratch, "%s/config.json", dir), config));
    return save_counters(s, scratch, counters, dir);
}

Status rt_checkpoint_save(Session *s, RtWorld *world, const RtPlan *plan,
                          const unsigned char *arena, const RtWeights *weights,
                          const RtReached *reached, const char *dir)
{
    Arena *scratch = arena_new();
    RtFolder folder = {0};
    Counters counters = counters_now(plan, arena, reached);
    bool first = rt_is_first(world);
    rt_world_allow(world, rt_tensors_bytes(&weights->tensors));
    Status status =
        rt_world_agree(world, first ? rt_folder_begin(s, scratch, dir, &folder) : STATUS_OK);
    if (status != STATUS_OK)
        goto out_scratch;
    status = write_tensors(s, scratch, world, arena, weights, folder.temp);
    if (first && status == STATUS_OK)
        status = write_texts(s, scratch, plan, &counters, folder.temp);
    if (first && status == STATUS_OK)
        status = rt_folder_commit(s, scratch, &folder);
    if (first && status != STATUS_OK)
        rt_folder_abandon(scratch, &folder);
    status = rt_world_agree(world, status);
out_scratch:
    rt_world_allow(world, 0);
    arena_free(scratch);
    return status;
}

/* -- resume -- */

static Status counters_error(Session *s, const char *path, const char *what)
{
    diag(s, rt_file_span(s, path), checkpoint_counters, what);
    return STATUS_USER;
}

static Status read_counters(Session *s, const char *path, Counters *out_counters)
{
    Source source;
    bool seen[COUNTER_FIELDS] = {false};
    uint32_t n = 0;
    const char *key;
    TRY(session_read_source(s, path, no_span, &source));
    RtJson json = rt_json(s->arena, source.text, source.length);
    rt_json_open(&json, '{');
    while (rt_json_next(&json, '}', &n) && rt_json_key(&json, &key)) {
        uint32_t i = 0;
        while (i < COUNTER_FIELDS && strcmp(counter_fields[i].name, key))
            i++;
        if (i == COUNTER_FIELDS || seen[i])
            return counters_error(s, path,
                                  arena_printf(s->arena, "key `%s` is %s", key,
                                               i == COUNTER_FIELDS ? "unknown" : "there twice"));
        void *at = (char *)out_counters + counter_fields[i].at;
        seen[i] = counter_fields[i].text ? rt_json_string(&json, at) : rt_json_u64(&json, at);
    }
    if (!rt_json_end(&json))
        return counters_error(s, path, arena_printf(s->arena, "%s at byte %zu", json.why, json.at));
    for (uint32_t i = 0; i < COUNTER_FIELDS; i++)
        if (!seen[i] && !counter_fields[i].optional)
            return counters_error(
                s, path, arena_printf(s->arena, "key `%s` is missing", counter_fields[i].name));
    if (out_counters->format != FORMAT)
        return counters_error(s, path,
                              arena_printf(s->arena,
                                           "`format` is %llu, and this executable knows %d",
                                           (unsigned long long)out_counters->format, FORMAT));
    return STATUS_OK;
}

static Status check_counters(Session *s, const RtPlan *plan, const char *path,
                             const Counters *counters)
{
    const char *model = rt_plan_string(plan, plan->header->model), *optimizer = optimizer_of(plan);
    bool same_model = !strcmp(model, counters->model),
         same_optimizer = !strcmp(optimizer, counters->optimizer);
    if (!same_model)
        diag(s, rt_file_span(s, path), checkpoint_other, "model", counters->model, model);
    if (!same_optimizer)
        diag(s, rt_file_span(s, path), checkpoint_other, "optimizer", counters->optimizer,
             optimizer);
    return same_model && same_optimizer ? STATUS_OK : STATUS_USER;
}

static bool fits(const RtTensor *state, const RtFileTensor *tensor)
{
    bool same = tensor->dtype == state->dtype && tensor->rank == state->rank;
    for (uint32_t i = 0; same && i < state->rank; i++)
        same = tensor->dim[i] == state->dim[i];
    return same;
}

/* Both ways: every moment and master has its tensor, and every tensor its state. */
static Status check_optimizer(Session *s, const RtWeights *weights, const RtTensorFile *file)
{
    uint32_t errors = 0, found = 0;
    Map wanted;
    map_init(&wanted, s->arena);
    for (uint32_t i = 0; i < weights->tensors.n; i++) {
        const RtTensor *state = &weights->tensors.at[i];
        if (!is_training_state(state))
            continue;
        const char *name = sym(s, weights->file_names[i]);
        const RtFileTensor *tensor = rt_tensors_find(s, file, name);
        map_put(&wanted, map_key(name), 1);
        found += tensor != NULL;
        if (tensor && fits(state, tensor))
            continue;
        if (tensor)
            diag(s, rt_file_span(s, file->path), checkpoint_tensor, name, tensor->dtype_name,
                 rt_shape_text(s->arena, tensor->rank, tensor->dim),
                 dtype_file_name(state->dtype),
                 rt_shape_text(s->arena, state->rank, state->dim));
        else
            diag(s, rt_file_span(s, file->path), checkpoint_missing, name);
        errors++;
    }
    for (uint32_t i = 0; found != file->n_tensors && i < file->n_tensors; i++) {
        if (map_get(&wanted, map_key(file->tensors[i].name), NULL))
            continue;
        diag(s, rt_file_span(s, file->path), checkpoint_unread, file->tensors[i].name);
        errors++;
    }
    return errors ? STATUS_USER : STATUS_OK;
}

static Status resume_optimizer(Session *s, unsigned char *arena, const RtWeights *weights,
                               const char *path)
{
    RtTensorFile file;
    TRY(rt_tensors_open(s, path, &file));
    Status status = check_optimizer(s, weights, &file);
    for (uint32_t i = 0; status == STATUS_OK && i < weights->tensors.n; i++)
        if (is_training_state(&weights->tensors.at[i]))
            rt_tensor_fill(&weights->tensors, i, arena,
                           rt_tensors_find(s, &file, weights->file_names[i]));
    rt_tensors_close(&file);
    return status;
}

static Status open_counters(Session *s, const RtPlan *plan, const char *dir, Counters *out_counters)
{
    const char *path = arena_printf(s->arena, "%s/state/trainer.json", dir);
    *out_counters = (Counters){.steps_done = (uint64_t)-1, .data_seed = (uint64_t)-1};
    if (access(path, F_OK)) {
        diag(s, no_span, checkpoint_none, dir, path);
        diag(s, no_span, checkpoint_none_hint);
        return STATUS_ENV;
    }
    TRY(read_counters(s, path, out_counters));
    return check_counters(s, plan, path, out_counters);
}

static RtReached reached_by(const Counters *counters)
{
    return (RtReached){.data_position = counters->data_position,
                       .steps = (int64_t)counters->steps_done,
                       .data = counters->data,
                       .data_seed = (int64_t)counters->data_seed,
                       .data_seq = counters->data_seq,
                       .data_samples = counters->data_samples};
}

Status rt_checkpoint_reached(Session *s, const RtPlan *plan, const char *dir,
                             RtReached *out_reached)
{
    Counters counters;
    TRY(open_counters(s, plan, dir, &counters));
    *out_reached = reached_by(&counters);
    return STATUS_OK;
}

Status rt_checkpoint_resume(Session *s, const RtWorld *world, const RtPlan *plan,
                            unsigned char *arena, const char *dir, RtWeights *out_weights,
                            RtReached *out_reached)
{
    Counters counters;
    *out_weights = (RtWeights){0};
    TRY(open_counters(s, plan, dir, &counters));
    TRY(rt_weights_restore(s, world, plan, arena, dir, out_weights));
    Status status = resume_optimizer(s, arena, out_weights,
                                     arena_printf(s->arena, "%s/state/optimizer.safetensors", dir));
    if (status != STATUS_OK) {
        rt_weights_release(out_weights);
        return status;
    }
    const PlanScalars *at = &plan->header->scalars;
    set_scalar(arena, at->step, counters.step);
    set_scalar(arena, at->seed, counters.seed);
    set_scalar(arena, at->skipped, counters.skipped);
    set_scalar(arena, at->sample0, counters.sample0);
    *out_reached = reached_by(&counters);
    return STATUS_OK;
}
