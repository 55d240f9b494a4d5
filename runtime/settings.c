#include "runtime/settings.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stddef.h>

#include "base/diag.h"

typedef enum FieldType {
    FIELD_INT,
    FIELD_NUMBER,
    FIELD_TEXT,
    FIELD_LR_STYLE,
    FIELD_WSD_STYLE,
    FIELD_UNREAD
} FieldType;

typedef struct Field {
    const char *section, *key; /* section NULL: the object itself */
    FieldType type;
    size_t offset;
    bool nullable;
} Field;

#define AT(member) offsetof(RtSettings, member)

/* Every key of docs/recipes.md; an UNREAD one is for whoever reads the plan. */
static const Field fields[] = {
    {NULL, "recipe", FIELD_TEXT, AT(recipe), true},
    {NULL, "seed", FIELD_INT, AT(seed), false},
    {NULL, "max_steps", FIELD_INT, AT(max_steps), true},
    {NULL, "num_epochs", FIELD_INT, AT(num_epochs), true},
    {NULL, "ckpt_every_steps", FIELD_INT, AT(ckpt_every_steps), false},
    {NULL, "val_every_steps", FIELD_INT, AT(val_every_steps), false},
    {NULL, "save_dir", FIELD_TEXT, AT(save_dir), true},
    {NULL, "weights_dir", FIELD_TEXT, AT(weights_dir), true},
    {NULL, "max_norm", FIELD_UNREAD, 0, true},
    {NULL, "max_skips", FIELD_INT, AT(max_skips), false},
    {"data", "path", FIELD_TEXT, AT(data_path), true},
    {"data", "eval_path", FIELD_TEXT, AT(eval_path), true},
    {"data", "dataset", FIELD_TEXT, AT(dataset), true},
    {"data", "seed", FIELD_INT, AT(data_seed), false},
    {"labels", "ignore_index", FIELD_INT, AT(ignore_index), false},
    {"lr", "style", FIELD_LR_STYLE, AT(lr.style), false},
    {"lr", "max", FIELD_NUMBER, AT(lr.max), false},
    {"lr", "min", FIELD_NUMBER, AT(lr.min), false},
    {"lr", "init", FIELD_NUMBER, AT(lr.init), false},
    {"lr", "warmup_steps", FIELD_INT, AT(lr.warmup_steps), true},
    {"lr", "decay_steps", FIELD_INT, AT(lr.decay_steps), true},
    {"lr", "wsd_decay_steps", FIELD_INT, AT(lr.wsd_decay_steps), true},
    {"lr", "wsd_style", FIELD_WSD_STYLE, AT(lr.wsd_style), true},
    {"optimizer", NULL, FIELD_UNREAD, 0, true},
    {"tied", NULL, FIELD_UNREAD, 0, true}, /* runtime/weights_names.c */
};

enum { N_FIELDS = sizeof fields / sizeof *fields };

static const char *const lr_styles[] = {
#define STYLE_NAME(id, name) name,
    RT_LR_STYLES(STYLE_NAME)};
static const char *const wsd_styles[] = {RT_WSD_STYLES(STYLE_NAME)};
#undef STYLE_NAME

static int find_word(const char *word, const char *const *words, int n)
{
    for (int i = 0; word && i < n; i++)
        if (!strcmp(word, words[i]))
            return i;
    return -1;
}

static bool read_int(const cJSON *item, int64_t *out)
{
    /* beyond 2^53 a JSON number no longer says which integer it was */
    if (!cJSON_IsNumber(item) || item->valuedouble != floor(item->valuedouble) ||
        fabs(item->valuedouble) > 9007199254740992.0)
        return false;
    *out = (int64_t)item->valuedouble;
    return true;
}

static bool read_field(Session *s, const Field *field, const cJSON *item, RtSettings *settings)
{
    char *at = (char *)settings + field->offset;
    if (field->type == FIELD_UNREAD || (field->nullable && cJSON_IsNull(item)))
        return true;
    int word;
    switch (field->type) {
    case FIELD_INT:
        return read_int(item, (int64_t *)(void *)at);
    case FIELD_NUMBER:
        if (cJSON_IsNumber(item))
            *(double *)(void *)at = item->valuedouble;
        return cJSON_IsNumber(item);
    case FIELD_TEXT:
        if (cJSON_IsString(item))
            *(const char **)(void *)at = sym(s, item->valuestring);
        return cJSON_IsString(item);
    case FIELD_LR_STYLE:
        word = find_word(cJSON_GetStringValue(item), lr_styles, RT_LR_STYLE_COUNT);
        if (word >= 0)
            *(RtLrStyle *)(void *)at = (RtLrStyle)word;
        return word >= 0;
    default:
        word = find_word(cJSON_GetStringValue(item), wsd_styles, RT_WSD_STYLE_COUNT);
        if (word >= 0)
            *(RtWsdStyle *)(void *)at = (RtWsdStyle)word;
        return word >= 0;
    }
}

static bool same_section(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

static Status read_object(Session *s, const cJSON *object, const char *section, bool *seen,
                          RtSettings *settings);

static Status read_item(Session *s, const cJSON *item, const char *section, bool *seen,
                        RtSettings *settings)
{
    for (int i = 0; i < N_FIELDS; i++) {
        const Field *field = &fields[i];
        if (!section && field->section && cJSON_IsObject(item) &&
            !strcmp(field->section, item->string)) {
            if (field->key)
                return read_object(s, item, field->section, seen, settings);
            return STATUS_OK;
        }
        if (!same_section(field->section, section) || !field->key ||
            strcmp(field->key, item->string))
            continue;
        seen[i] = true;
        if (read_field(s, field, item, settings))
            return STATUS_OK;
        diag(s, no_span, settings_type, section ? section : "", section ? "." : "", item->string);
        return STATUS_ENV;
    }
    diag(s, no_span, settings_unknown, section ? section : "", section ? "." : "", item->string);
    return STATUS_ENV;
}

static Status read_object(Session *s, const cJSON *object, const char *section, bool *seen,
                          RtSettings *settings)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, object)
    {
        TRY(read_item(s, item, section, seen, settings));
    }
    return STATUS_OK;
}

static Status check_ranges(Session *s, const RtSettings *settings)
{
    const char *bad = NULL;
    if (settings->ckpt_every_steps < 0)
        bad = "ckpt_every_steps";
    else if (settings->val_every_steps < 0)
        bad = "val_every_steps";
    else if (settings->max_skips < 1)
        bad = "max_skips";
    if (!bad)
        return STATUS_OK;
    diag(s, no_span, settings_type, "", "", bad);
    return STATUS_ENV;
}

Status rt_settings_read(Session *s, const char *json, RtSettings *out_settings)
{
    Status status = STATUS_ENV;
    bool seen[N_FIELDS] = {false};
    *out_settings = (RtSettings){
        .max_steps = -1,
        .num_epochs = -1,
        .lr = {.warmup_steps = -1, .decay_steps = -1, .wsd_decay_steps = -1},
    };
    cJSON *root = cJSON_Parse(json);
    if (!cJSON_IsObject(root)) {
        diag(s, no_span, plan_bad, "the settings are no JSON object");
        goto out_root;
    }
    status = read_object(s, root, NULL, seen, out_settings);
    for (int i = 0; i < N_FIELDS && status == STATUS_OK; i++)
        if (!seen[i] && !fields[i].nullable) {
            diag(s, no_span, settings_missing, fields[i].section ? fields[i].section : "",
                 fields[i].section ? "." : "", fields[i].key);
            status = STATUS_ENV;
        }
    if (status == STATUS_OK)
        status = check_ranges(s, out_settings);
out_root:
    cJSON_Delete(root);
    return status;
}
