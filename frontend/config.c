#include "frontend/config.h"

#include <stdlib.h>

enum { MAX_DEPTH = 4 }; /* of dicts in each other whose members are looked at */

/* Keys that concern no compiled training step: tokens, generation, bookkeeping. */
static const char *const idle_keys[] = {
    "_name_or_path",
    "architectures",
    "auto_map",
    "bos_token_id",
    "chunk_size_feed_forward",
    "dtype",
    "eos_token_id",
    "finetuning_task",
    "id2label",
    "is_decoder",
    "is_encoder_decoder",
    "label2id",
    "max_position_embeddings",
    "model_type",
    "output_attentions",
    "output_hidden_states",
    "pretraining_tp",
    "problem_type",
    "return_dict",
    "task_specific_params",
    "torch_dtype",
    "transformers_version",
    "use_cache",
    "_attn_implementation",
    "attn_implementation",
};

static Status bad_json(Session *s, Sym path, const char *text, const char *end)
{
    Span span = {path, 1, 1, 1};
    for (const char *c = text; c < end; c++) {
        span.col++;
        if (*c == '\n') {
            span.line++;
            span.col = 1;
        }
    }
    diag(s, span, config_json);
    return STATUS_USER;
}

static Status parse_json(Session *s, Sym path, const char *text, size_t length, cJSON **out)
{
    const char *end = text;
    *out = cJSON_ParseWithLengthOpts(text, length + 1, &end, 1);
    if (!*out)
        return bad_json(s, path, text, end);
    const char *key = NULL;
    const char *fault = cJSON_IsObject(*out) ? front_config_fault(*out, &key) : "";
    if (!fault)
        return STATUS_OK;
    if (key)
        diag(s, front_config_locate(path, text, &key, 1), config_fault, key, fault);
    else
        diag(s, ((Span){.file = path}), config_object);
    return STATUS_USER;
}

/* -- the text model inside -- */

static bool ends_with(const char *key, const char *end)
{
    size_t n = strlen(key), m = strlen(end);
    return n > m && !strcmp(key + n - m, end);
}

static bool is_tower(const char *key)
{
    return ends_with(key, "_config") && strcmp(key, "text_config") &&
           strcmp(key, "quantization_config") && strcmp(key, "generation_config");
}

static void record_towers(Session *s, const FrontConfig *c, const cJSON *root)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, root)
    {
        if (!cJSON_IsObject(item) || !is_tower(item->string))
            continue;
        const cJSON *type = cJSON_GetObjectItemCaseSensitive(item, "model_type");
        const char *key = item->string;
        diag(s, front_config_locate(c->path, c->text, &key, 1), config_tower, key,
             cJSON_IsString(type) ? type->valuestring : "no model_type");
    }
}

void front_config_override(cJSON *root, cJSON *body, const cJSON *over)
{
    const cJSON *nested = cJSON_GetObjectItemCaseSensitive(over, "text_config");
    const cJSON *item;
    cJSON_ArrayForEach(item, over)
    {
        bool outside = root != body && !cJSON_GetObjectItemCaseSensitive(body, item->string) &&
                       cJSON_GetObjectItemCaseSensitive(root, item->string);
        cJSON *one = item == nested ? NULL : cJSON_CreateObject();
        if (!one)
            continue;
        cJSON_AddItemToObject(one, item->string, cJSON_Duplicate(item, 1));
        front_config_lay_over(outside ? root : body, one);
        cJSON_Delete(one);
    }
    if (cJSON_IsObject(nested))
        front_config_lay_over(body, nested);
}

/* `keys` of the file or, under a span of their own, of the overrides. */
static Status unify(Session *s, const FrontConfig *c, const Span *laid, cJSON *keys)
{
    const char *key;
    const char *fault = front_config_rope_fault(keys, &key);
    if (fault) {
        diag(s, laid ? *laid : front_config_span(c, sym(s, key)), config_fault, key, fault);
        return STATUS_USER;
    }
    front_config_unify_rope(keys);
    return STATUS_OK;
}

static Status settle(Session *s, cJSON *root, cJSON *over, FrontConfig *out)
{
    cJSON *body = cJSON_GetObjectItemCaseSensitive(root, "text_config");
    if (body && !cJSON_IsObject(body)) {
        diag(s, front_config_locate(out->path, out->text, (const char *[]){"text_config"}, 1),
             config_object);
        return STATUS_USER;
    }
    if (body)
        record_towers(s, out, root);
    else
        body = root;
    TRY(unify(s, out, NULL, body));
    if (over) {
        cJSON *nested = cJSON_GetObjectItemCaseSensitive(over, "text_config");
        out->laid = front_value_from_json(s, over);
        TRY(unify(s, out, &out->span, over));
        TRY(unify(s, out, &out->span, nested));
        front_config_override(root, body, over);
    }
    out->keys = front_value_from_json(s, body);
    if (body != root) {
        cJSON_DeleteItemFromObjectCaseSensitive(root, "text_config");
        out->outer = front_value_from_json(s, root);
    }
    return STATUS_OK;
}

static Status set_model_type(Session *s, FrontConfig *out)
{
    FrontValue type;
    Sym key = sym(s, "model_type");
    if (!front_config_get(out, key, &type)) {
        diag(s, front_config_span(out, NULL), config_no_type);
        return STATUS_USER;
    }
    if (type.kind != FRONT_VALUE_STRING) {
        diag(s, front_config_span(out, key), front_type, "`model_type`", "a string",
             front_value_describe(s, NULL, &type));
        return STATUS_USER;
    }
    out->model_type = type.u.s;
    return STATUS_OK;
}

Status front_config_parse(Session *s, const char *path, const char *text, size_t length,
                          const char *overrides_json, Span span, FrontConfig *out)
{
    cJSON *root = NULL, *over = NULL;
    *out = (FrontConfig){.path = sym(s, path), .text = text, .span = span};
    Status status = parse_json(s, out->path, text, length, &root);
    if (status != STATUS_OK)
        goto out_root;
    if (overrides_json) {
        session_add_source(
            s, (Source){sym(s, "model overrides"), overrides_json, strlen(overrides_json)});
        status =
            parse_json(s, sym(s, "model overrides"), overrides_json, strlen(overrides_json), &over);
        if (status != STATUS_OK)
            goto out_over;
    }
    status = settle(s, root, over, out);
    if (status == STATUS_OK)
        status = set_model_type(s, out);
out_over:
    cJSON_Delete(over);
out_root:
    cJSON_Delete(root);
    return status;
}

Status front_config_load(Session *s, const FrontModelRequest *request, FrontConfig *out)
{
    FrontConfigPlace place;
    Source source;
    TRY(front_config_find(s, request, &place));
    TRY(session_read_source(s, place.path, request->span, &source));
    TRY(front_config_parse(s, place.path, source.text, source.length, request->overrides_json,
                           request->overrides_span, out));
    out->weights_dir = place.weights_dir;
    return STATUS_OK;
}

/* -- reading -- */

static FrontValue *find(const FrontValue *dict, Sym key)
{
    for (uint32_t i = 0; i < dict->u.list.n; i++)
        if (dict->u.list.keys[i] == key)
            return &dict->u.list.at[i];
    return NULL;
}

/* What the text model does not say, the whole may (`tie_word_embeddings`), but not who it is. */
static FrontValue *find_anywhere(const FrontConfig *c, Sym key)
{
    FrontValue *v = find(&c->keys, key);
    return v || !strcmp(key, "model_type") ? v : find(&c->outer, key);
}

bool front_config_is_null(const FrontConfig *c, Sym key)
{
    const FrontValue *v = find_anywhere(c, key);
    return v && v->kind == FRONT_VALUE_NONE;
}

bool front_config_get(const FrontConfig *c, Sym key, FrontValue *out)
{
    FrontValue *v = find_anywhere(c, key);
    *out = (FrontValue){0};
    if (!v || v->kind == FRONT_VALUE_NONE)
        return false;
    v->read = true;
    *out = *v;
    return true;
}

static bool was_laid(const FrontConfig *c, Sym key)
{
    if (find(&c->laid, key))
        return true;
    for (uint32_t i = 0; i < c->laid.u.list.n; i++)
        if (!strcmp(c->laid.u.list.keys[i], "text_config") &&
            c->laid.u.list.at[i].kind == FRONT_VALUE_DICT && find(&c->laid.u.list.at[i], key))
            return true;
    return false;
}

Span front_config_span(const FrontConfig *c, Sym key)
{
    Span whole = {.file = c->path};
    if (!key)
        return whole;
    if (was_laid(c, key))
        return c->span.file ? c->span : whole;
    Span span = front_config_locate(c->path, c->text, (const char *[]){"text_config", key}, 2);
    return span.line ? span : front_config_locate(c->path, c->text, &key, 1);
}

static bool is_known(const char *key, const Sym *read, uint32_t n_read)
{
    static const char *const spellings[] = {"rope_scaling", "text_config"};
    for (uint32_t i = 0; i < n_read; i++)
        if (!strcmp(key, read[i]))
            return true;
    for (uint32_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++)
        if (!strcmp(key, spellings[i]))
            return true;
    for (uint32_t i = 0; i < sizeof idle_keys / sizeof idle_keys[0]; i++)
        if (!strcmp(key, idle_keys[i]))
            return true;
    return false;
}

/* rope_theta beside rope_parameters that have one for the whole model. */
static bool is_moved(const FrontConfig *c, Sym key)
{
    const FrontValue *rope = NULL;
    for (uint32_t i = 0; i < c->keys.u.list.n; i++)
        if (!strcmp(c->keys.u.list.keys[i], "rope_parameters"))
            rope = &c->keys.u.list.at[i];
    return rope && rope->kind == FRONT_VALUE_DICT && find(rope, key);
}

/* A member's place, under any spelling of what it is in; else that of the whole. */
static Span member_span(const FrontConfig *c, const char *const *path, uint32_t depth)
{
    const char *full[MAX_DEPTH + 1] = {"text_config"};
    bool rope = !strcmp(path[0], "rope_parameters");
    memcpy(full + 1, path, depth * sizeof *path);
    for (uint32_t spelling = 0; spelling < (rope ? 2 : 1); spelling++) {
        if (spelling)
            full[1] = "rope_scaling";
        if (was_laid(c, full[1]))
            return front_config_span(c, full[1]);
        for (uint32_t from = 0; from < 2; from++) {
            Span span = front_config_locate(c->path, c->text, full + from, depth + 1 - from);
            if (span.line)
                return span;
        }
    }
    return front_config_span(c, path[0]);
}

/* Members of a dict that the model has read in part; `path` ends with the dict. */
static void report_members(Session *s, const FrontConfig *c, const FrontValue *dict,
                           const char **path, uint32_t depth, Sym model)
{
    for (uint32_t i = 0; i < dict->u.list.n && depth < MAX_DEPTH; i++) {
        const FrontValue *v = &dict->u.list.at[i];
        path[depth] = dict->u.list.keys[i];
        if (v->kind == FRONT_VALUE_NONE)
            continue;
        if (v->read && v->kind == FRONT_VALUE_DICT) {
            report_members(s, c, v, path, depth + 1, model);
        } else if (!v->read) {
            const char *name = path[0];
            for (uint32_t k = 1; k <= depth; k++)
                name = arena_printf(s->arena, "%s.%s", name, path[k]);
            diag(s, member_span(c, path, depth + 1), config_unread, name, model);
        }
    }
}

/* What stands around the text model: beside towers, ids of the tokens that theirs replace. */
static void report_outer(Session *s, const FrontConfig *c, const Sym *read, uint32_t n_read,
                         Sym model)
{
    static const char *const of_towers[] = {"_token_id", "_token_index", "_soft_tokens_per_image"};
    for (uint32_t i = 0; i < c->outer.u.list.n; i++) {
        Sym key = c->outer.u.list.keys[i];
        FrontValueKind kind = c->outer.u.list.at[i].kind;
        bool known = kind == FRONT_VALUE_NONE || (kind == FRONT_VALUE_DICT && is_tower(key)) ||
                     is_known(key, read, n_read) || find(&c->keys, key);
        for (uint32_t k = 0; k < sizeof of_towers / sizeof of_towers[0]; k++)
            known |= ends_with(key, of_towers[k]);
        if (!known)
            diag(s, front_config_span(c, key), config_unread, key, model);
    }
}

/* A key of the overrides that neither the file nor any list knows: a misspelt one. */
static bool is_unknown(const FrontConfig *c, Sym key)
{
    static const char *const spellings[] = {"rope_parameters", "rope_theta",
                                            "partial_rotary_factor"};
    for (uint32_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++)
        if (!strcmp(key, spellings[i]))
            return false;
    return was_laid(c, key) &&
           !front_config_locate(c->path, c->text, (const char *[]){"text_config", key}, 2).line &&
           !front_config_locate(c->path, c->text, &key, 1).line;
}

static void refuse_laid(Session *s, const FrontConfig *c, Sym key, const Sym *read,
                        uint32_t n_read, Sym model)
{
    diag(s, front_config_span(c, key), config_laid_unknown, key, model);
    const char *near = diag_nearest(key, read, n_read);
    if (near)
        diag(s, no_span, did_you_mean, arena_printf(s->arena, "model.text_config.%s", near));
}

void front_config_report_unread(Session *s, const FrontConfig *c, const Sym *read, uint32_t n_read,
                                Sym model)
{
    for (uint32_t i = 0; i < c->keys.u.list.n; i++) {
        Sym key = c->keys.u.list.keys[i];
        const FrontValue *v = &c->keys.u.list.at[i];
        const char *path[MAX_DEPTH] = {key};
        bool known = is_known(key, read, n_read) || is_moved(c, key);
        if (!known && is_unknown(c, key))
            refuse_laid(s, c, key, read, n_read, model);
        else if (!known)
            diag(s, front_config_span(c, key), config_unread, key, model);
        else if (v->kind == FRONT_VALUE_DICT && v->read)
            report_members(s, c, v, path, 1, model);
    }
    report_outer(s, c, read, n_read, model);
}
