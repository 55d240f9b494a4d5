#include "runtime/settings.h"

#include <stddef.h>

#include "base/diag.h"
#include "runtime/json_read.h"

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
    {NULL, "timeout_minutes", FIELD_NUMBER, AT(timeout_minutes), true},
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

enum { MOST_MINUTES = 525600 }; /* of a timeout: nanoseconds of any are an int64_t */

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

static bool read_text(Session *s, RtJson *json, const char **out)
{
    const char *text;
    if (!rt_json_string(json, &text))
        return false;
    *out = sym(s, text);
    return true;
}

static int read_word(RtJson *json, const char *const *words, int n)
{
    const char *word;
    return rt_json_string(json, &word) ? find_word(word, words, n) : -1;
}

static bool read_field(Session *s, const Field *field, RtJson *json, RtSettings *settings)
{
    void *at = (char *)settings + field->offset;
    int word;
    if (field->type == FIELD_UNREAD || (field->nullable && rt_json_peek(json) == 'n'))
        return rt_json_skip(json);
    switch (field->type) {
    case FIELD_INT:
        return rt_json_i64(json, at);
    case FIELD_NUMBER:
        return rt_json_number(json, at);
    case FIELD_TEXT:
        return read_text(s, json, at);
    case FIELD_LR_STYLE:
        word = read_word(json, lr_styles, RT_LR_STYLE_COUNT);
        *(RtLrStyle *)at = (RtLrStyle)(word < 0 ? 0 : word);
        return word >= 0;
    default:
        word = read_word(json, wsd_styles, RT_WSD_STYLE_COUNT);
        *(RtWsdStyle *)at = (RtWsdStyle)(word < 0 ? 0 : word);
        return word >= 0;
    }
}

typedef struct Reader {
    Session *s;
    RtJson json;
    RtSettings *settings;
    bool seen[N_FIELDS];
} Reader;

static bool same_section(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

static Status read_object(Reader *r, const char *section);

/* The field of a key; a key that begins a section with fields of its own has none. -1: unknown. */
static int find_field(const char *section, const char *key, bool *out_section)
{
    *out_section = false;
    for (int i = 0; i < N_FIELDS; i++) {
        const Field *field = &fields[i];
        if (!section && field->section && !strcmp(field->section, key)) {
            *out_section = field->key != NULL;
            return i;
        }
        if (field->key && same_section(field->section, section) && !strcmp(field->key, key))
            return i;
    }
    return -1;
}

static Status read_item(Reader *r, const char *section, const char *key)
{
    bool is_section;
    int i = find_field(section, key, &is_section);
    const char *before = section ? section : "", *dot = section ? "." : "";
    if (i < 0) {
        diag(r->s, no_span, settings_unknown, before, dot, key);
        return STATUS_ENV;
    }
    if (is_section && rt_json_peek(&r->json) == '{')
        return read_object(r, key);
    bool again = r->seen[i];
    r->seen[i] = true;
    if (!is_section && !again && read_field(r->s, &fields[i], &r->json, r->settings))
        return STATUS_OK;
    diag(r->s, no_span, settings_type, before, dot, key);
    return STATUS_ENV;
}

static Status read_object(Reader *r, const char *section)
{
    const char *key;
    uint32_t n = 0;
    rt_json_open(&r->json, '{');
    while (rt_json_next(&r->json, '}', &n) && rt_json_key(&r->json, &key))
        TRY(read_item(r, section, key));
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
    else if (!(settings->timeout_minutes > 0 && settings->timeout_minutes <= MOST_MINUTES))
        bad = "timeout_minutes";
    if (!bad)
        return STATUS_OK;
    diag(s, no_span, settings_type, "", "", bad);
    return STATUS_ENV;
}

static Status check_complete(Session *s, const bool *seen)
{
    for (int i = 0; i < N_FIELDS; i++) {
        const Field *field = &fields[i];
        if (seen[i] || field->nullable)
            continue;
        diag(s, no_span, settings_missing, field->section ? field->section : "",
             field->section ? "." : "", field->key);
        return STATUS_ENV;
    }
    return STATUS_OK;
}

Status rt_settings_read(Session *s, const char *json, RtSettings *out_settings)
{
    *out_settings = (RtSettings){
        .max_steps = -1,
        .num_epochs = -1,
        .timeout_minutes = 1,
        .lr = {.warmup_steps = -1, .decay_steps = -1, .wsd_decay_steps = -1},
    };
    Reader r = {.s = s, .json = rt_json(s->arena, json, strlen(json)), .settings = out_settings};
    TRY(read_object(&r, NULL));
    if (!rt_json_end(&r.json)) {
        diag(s, no_span, plan_bad,
             arena_printf(s->arena, "settings: %s at byte %zu", r.json.why, r.json.at));
        return STATUS_ENV;
    }
    TRY(check_complete(s, r.seen));
    return check_ranges(s, out_settings);
}
