#include "runtime/weights_names.h"

#include <ctype.h>

#include "base/diag.h"
#include "runtime/json_read.h"

static const RtNaming namings[] = {
    {"model.", ""},       /* Llama, Mistral, Qwen2, Qwen2-VL as published, Gemma4ForCausalLM */
    {"", ""},             /* GPT-2 as published; a bare text model */
    {"transformer.", ""}, /* GPT-2 in memory */
    {"model.language_model.", ""},                /* Gemma4 as published; image models in memory */
    {"language_model.model.", "language_model."}, /* LLaVA-Next, Mistral3 as published */
};

enum { NAMINGS = sizeof namings / sizeof *namings };

static const char head_part[] = "lm_head.";

/* Embeddings that a tied head can be; behind the layout's prefix. */
static const char *const embeddings[] = {"embed_tokens.weight", "wte.weight"};

static const char *const ignorable[] = {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"};

/* What is behind the prefix, or NULL. */
static const char *behind(const char *name, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(name, prefix, n) ? NULL : name + n;
}

/* The longest prefix that more than half of the plan's weights have. */
static RtNaming plan_naming(const RtTensors *tensors)
{
    RtNaming best = {"", ""};
    for (uint32_t k = 0; k < NAMINGS; k++) {
        uint64_t with = 0, all = 0;
        for (uint64_t i = 0; i < tensors->n; i++) {
            if (!rt_is_weight(&tensors->at[i]))
                continue;
            all++;
            with += behind(tensors->at[i].name, namings[k].body) != NULL;
        }
        if (with * 2 > all && strlen(namings[k].body) > strlen(best.body))
            best = namings[k];
    }
    return best;
}

const char *rt_names_in_file(Session *s, const RtNames *names, const char *name)
{
    const char *head = behind(name, names->plan.head), *body = behind(name, names->plan.body);
    if (head && behind(head, head_part))
        return arena_printf(s->arena, "%s%s", names->file.head, head);
    return body ? arena_printf(s->arena, "%s%s", names->file.body, body) : name;
}

static uint64_t found_with(Session *s, const RtTensors *tensors, const RtTensorSet *set,
                           const RtNames *names)
{
    uint64_t found = 0;
    for (uint64_t i = 0; i < tensors->n; i++) {
        if (!rt_is_weight(&tensors->at[i]))
            continue;
        const char *name = rt_names_in_file(s, names, tensors->at[i].name);
        found += rt_tensor_set_find(s, set, name) != NULL;
    }
    return found;
}

static uint32_t state_named(const RtTensors *tensors, const char *name)
{
    for (uint32_t i = 0; i < tensors->n; i++)
        if (rt_is_weight(&tensors->at[i]) &&
            !strcmp(tensors->at[i].name, name))
            return i;
    return UINT32_MAX;
}

static Status read_ties(Session *s, const RtTensors *tensors, RtJson *json, RtNames *names)
{
    uint32_t n = 0;
    RtTie tie;
    rt_json_open(json, '{');
    while (rt_json_next(json, '}', &n) && rt_json_key(json, &tie.alias) &&
           rt_json_string(json, &tie.name)) {
        if (state_named(tensors, tie.name) == UINT32_MAX) {
            diag(s, no_span, plan_bad,
                 arena_printf(s->arena, "setting `tied` names `%s`, which is no weight", tie.name));
            return STATUS_ENV;
        }
        vec_push(s->arena, &names->ties, tie);
    }
    return STATUS_OK;
}

/* No word in the settings: a plan without a head uses its embedding. */
static void guess_tie(Session *s, const RtTensors *tensors, RtNames *names)
{
    const char *alias = arena_printf(s->arena, "%s%sweight", names->plan.head, head_part);
    if (state_named(tensors, alias) != UINT32_MAX)
        return;
    for (uint32_t k = 0; k < sizeof embeddings / sizeof *embeddings; k++) {
        const char *name = arena_printf(s->arena, "%s%s", names->plan.body, embeddings[k]);
        if (state_named(tensors, name) != UINT32_MAX)
            vec_push(s->arena, &names->ties, ((RtTie){alias, name}));
    }
}

static Status find_ties(Session *s, const RtTensors *tensors, RtNames *names)
{
    const char *settings = rt_plan_string(tensors->plan, tensors->plan->header->settings), *key;
    RtJson json = rt_json(s->arena, settings, strlen(settings));
    bool told = false;
    uint32_t n = 0;
    if (!*settings) {
        guess_tie(s, tensors, names);
        return STATUS_OK;
    }
    rt_json_open(&json, '{');
    while (rt_json_next(&json, '}', &n) && rt_json_key(&json, &key)) {
        if (strcmp(key, "tied")) {
            rt_json_skip(&json);
            continue;
        }
        told = true;
        TRY(read_ties(s, tensors, &json, names));
    }
    if (!rt_json_end(&json)) {
        diag(s, no_span, plan_bad,
             arena_printf(s->arena, "settings: %s at byte %zu", json.why, json.at));
        return STATUS_ENV;
    }
    if (!told)
        guess_tie(s, tensors, names);
    return STATUS_OK;
}

Status rt_names_detect(Session *s, const RtTensors *tensors, const RtTensorSet *set,
                       RtNames *out_names)
{
    *out_names = (RtNames){.plan = plan_naming(tensors)};
    RtNames candidate = *out_names;
    candidate.file = candidate.plan;
    uint64_t most = found_with(s, tensors, set, &candidate);
    out_names->file = candidate.plan;
    for (uint32_t k = 0; k < NAMINGS; k++) {
        candidate.file = namings[k];
        uint64_t found = found_with(s, tensors, set, &candidate);
        if (found > most) {
            most = found;
            out_names->file = namings[k];
        }
    }
    return find_ties(s, tensors, out_names);
}

const RtFileTensor *rt_names_alias(Session *s, const RtNames *names, const RtTensorSet *set,
                                   const char *name)
{
    for (uint32_t i = 0; i < names->ties.n; i++) {
        const RtTie *tie = &names->ties.at[i];
        if (strcmp(tie->name, name))
            continue;
        const RtFileTensor *tensor =
            rt_tensor_set_find(s, set, rt_names_in_file(s, names, tie->alias));
        if (!tensor)
            tensor = rt_tensor_set_find(s, set, tie->alias);
        if (tensor)
            return tensor;
    }
    return NULL;
}

bool rt_names_ignorable(const RtNames *names, const char *file_name)
{
    const char *rest = behind(file_name, names->file.body);
    for (uint32_t k = 0; rest && k < sizeof ignorable / sizeof *ignorable; k++) {
        size_t n = strlen(rest), suffix = strlen(ignorable[k]);
        if (n > suffix && !strcmp(rest + n - suffix, ignorable[k]))
            return true;
    }
    return false;
}

static const char *pattern_of(Session *s, const char *name)
{
    char *pattern = arena_alloc(s->arena, strlen(name) + 1), *to = pattern;
    for (const char *c = name; *c; c++) {
        bool number = isdigit((unsigned char)*c) && (c == name || c[-1] == '.' || to[-1] == '*');
        if (!number)
            *to++ = *c;
        else if (to == pattern || to[-1] != '*')
            *to++ = '*';
    }
    return sym(s, pattern);
}

const char *rt_names_summary(Session *s, const char *const *names, uint32_t n)
{
    enum { MOST = 12 };
    struct {
        const char *pattern, *first;
        uint32_t count;
    } lines[MOST];
    uint32_t n_lines = 0, others = 0;
    for (uint32_t i = 0; i < n; i++) {
        const char *pattern = pattern_of(s, names[i]);
        uint32_t k = 0;
        while (k < n_lines && lines[k].pattern != pattern)
            k++;
        if (k == MOST) {
            others++;
            continue;
        }
        if (k == n_lines) {
            lines[n_lines].pattern = pattern;
            lines[n_lines].first = names[i];
            lines[n_lines++].count = 0;
        }
        lines[k].count++;
    }
    const char *text = "";
    for (uint32_t k = 0; k < n_lines; k++) {
        const char *comma = k ? ", " : "";
        text = lines[k].count == 1 ? arena_printf(s->arena, "%s%s`%s`", text, comma, lines[k].first)
                                   : arena_printf(s->arena, "%s%s`%s` (%u)", text, comma,
                                                  lines[k].pattern, lines[k].count);
    }
    return others ? arena_printf(s->arena, "%s, and %u more", text, others) : text;
}
