#include "frontend/recipe.h"

#include <stddef.h>
#include <string.h>

#include "base/diag.h"
#include "frontend/recipe_read.h"
#include "frontend/recipe_yaml.h"

typedef struct Key {
    const char *path;
    FrontKeyType type;
    size_t offset; /* of the field in FrontRecipe */
    const char *preset, *rule, *doc;
    bool used;
} Key;

static const Key keys[] = {
#define KEY(path, type, field, preset, rule, doc)                                                  \
    {path, FRONT_KEY_##type, offsetof(FrontRecipe, field), preset, rule, doc, true},
#define UNUSED(path, doc) {path, FRONT_KEY_Int, 0, NULL, NULL, doc, false},
#include "frontend/recipe_keys.def"
#undef KEY
#undef UNUSED
};

enum { N_KEYS = sizeof keys / sizeof *keys };

typedef struct Loader {
    Session *s;
    FrontRecipe *recipe;
} Loader;

uint32_t front_recipe_n_keys(void)
{
    return N_KEYS;
}

FrontKeyInfo front_recipe_key(uint32_t i)
{
    static const char *const types[] = {
#define FRONT_KEY_NAME(id, name) name,
        FRONT_KEY_TYPES(FRONT_KEY_NAME)
#undef FRONT_KEY_NAME
    };
    const Key *key = &keys[i];
    return (FrontKeyInfo){
        key->path, key->used ? types[key->type] : "", key->preset, key->rule, key->doc, key->used};
}

/* -- looking up -- */

static bool is_wild(const char *path)
{
    size_t n = strlen(path);
    return n > 2 && !strcmp(path + n - 2, ".*");
}

static const Key *key_exact(const char *path)
{
    for (uint32_t i = 0; i < N_KEYS; i++)
        if (!strcmp(keys[i].path, path))
            return &keys[i];
    return NULL;
}

/* A row `SECTION.*` whose section is `path` itself. */
static bool is_unused_section(const char *path)
{
    size_t n = strlen(path);
    for (uint32_t i = 0; i < N_KEYS; i++)
        if (is_wild(keys[i].path) && strlen(keys[i].path) == n + 2 &&
            !strncmp(keys[i].path, path, n))
            return true;
    return false;
}

static bool is_section(const char *path)
{
    size_t n = strlen(path);
    for (uint32_t i = 0; i < N_KEYS; i++)
        if (!strncmp(keys[i].path, path, n) && keys[i].path[n] == '.')
            return true;
    return false;
}

/* The first word of a table's path behind `section.`, or NULL. */
static const char *word_below(Loader *l, const char *path, const char *section)
{
    size_t n = strlen(section);
    if (n && (strncmp(path, section, n) || path[n] != '.'))
        return NULL;
    const char *word = path + (n ? n + 1 : 0);
    size_t length = strcspn(word, ".");
    return *word == '*' ? NULL : intern_n(&l->s->interner, word, length);
}

/* The nearest key of the same section; else a key of another section that has the very name, or
 * nearly. */
static const char *suggest(Loader *l, const char *section, const char *name)
{
    const char *names[N_KEYS], *last[N_KEYS];
    uint32_t n = 0, n_last = 0;
    for (uint32_t i = 0; i < N_KEYS; i++) {
        const char *word = word_below(l, keys[i].path, section);
        if (word)
            names[n++] = word;
        const char *dot = strrchr(keys[i].path, '.');
        if (!dot || dot[1] != '*')
            last[n_last++] = dot ? dot + 1 : keys[i].path;
    }
    const char *near = diag_nearest(name, names, n);
    if (near)
        return *section ? arena_printf(l->s->arena, "%s.%s", section, near) : near;
    near = diag_nearest_within(name, last, n_last, (uint32_t)strlen(name) / 4);
    for (uint32_t i = 0; near && i < N_KEYS; i++) {
        const char *dot = strrchr(keys[i].path, '.');
        if (near == (dot ? dot + 1 : keys[i].path))
            return keys[i].path;
    }
    return NULL;
}

/* -- walking -- */

/* `path`: as far as a row of the table covers it. */
static void note_unused(Loader *l, const char *path, Span span)
{
    vec_push(l->s->arena, &l->recipe->unused.v, ((FrontWord){true, span, sym(l->s, path)}));
}

static void unknown_key(Loader *l, const char *section, const FrontEntry *entry, const char *path)
{
    diag(l->s, entry->span, recipe_unknown_key, path);
    const char *near = suggest(l, section, entry->key);
    if (near)
        diag(l->s, no_span, did_you_mean, near);
}

static FrontField value_of(Loader *l, const Key *key, Span span)
{
    void *field = (char *)l->recipe + key->offset;
    return (FrontField){l->s, key->path, key->type, key->rule, field, span};
}

/* Takes `use_cache` and the like out of a free section, so that only what has an effect is passed
 * on. */
static void drop_unused_below(Loader *l, const char *path, FrontNode *map)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < map->entries.n; i++) {
        const FrontEntry *entry = &map->entries.at[i];
        const char *below = arena_printf(l->s->arena, "%s.%s", path, entry->key);
        const Key *key = key_exact(below);
        if (key && !key->used)
            note_unused(l, below, entry->span);
        else
            map->entries.at[kept++] = *entry;
    }
    map->entries.n = kept;
}

static void walk(Loader *l, const char *section, const FrontNode *map);

static void walk_entry(Loader *l, const char *section, const FrontEntry *entry)
{
    const char *path =
        *section ? arena_printf(l->s->arena, "%s.%s", section, entry->key) : entry->key;
    const Key *key = key_exact(path);
    if (key && key->used) {
        if (key->type == FRONT_KEY_Json && entry->value->kind == FRONT_NODE_MAP)
            drop_unused_below(l, path, entry->value);
        FrontField value = value_of(l, key, entry->span);
        front_field_read(&value, entry->value);
    } else if (key || is_unused_section(path)) {
        if (!front_node_is_none(entry->value))
            note_unused(l, path, entry->span);
    } else if (!is_section(path)) {
        unknown_key(l, section, entry, path);
    } else if (entry->value->kind == FRONT_NODE_MAP) {
        walk(l, path, entry->value);
    } else if (!front_node_is_none(entry->value)) {
        diag(l->s, entry->value->span, recipe_type, path, "a section",
             front_node_what(entry->value));
    }
}

static void walk(Loader *l, const char *section, const FrontNode *map)
{
    for (uint32_t i = 0; i < map->entries.n; i++)
        walk_entry(l, section, &map->entries.at[i]);
}

static Status read_presets(Loader *l)
{
    for (uint32_t i = 0; i < N_KEYS; i++) {
        if (!keys[i].preset)
            continue;
        Source source = {sym(l->s, "default"), keys[i].preset, strlen(keys[i].preset)};
        FrontNode *node;
        TRY(front_yaml_parse(l->s, &source, &node));
        FrontField value = value_of(l, &keys[i], no_span);
        front_field_read(&value, node);
        front_field_mark_default(&value);
    }
    return STATUS_OK;
}

/* -- overrides -- */

/* Walks to the section that holds the last word of `path`, making sections on the way. */
static Status descend(Session *s, FrontNode *map, const char **path, Span span, FrontNode **out_map)
{
    const char *dot;
    while ((dot = strchr(*path, '.'))) {
        Sym word = intern_n(&s->interner, *path, (size_t)(dot - *path));
        FrontEntry *entry = front_node_find(map, word);
        if (!entry) {
            vec_push(s->arena, &map->entries, ((FrontEntry){word, span, front_node_map(s, span)}));
            entry = &map->entries.at[map->entries.n - 1];
        } else if (entry->value->kind != FRONT_NODE_MAP) {
            if (!front_node_is_none(entry->value)) {
                diag(s, span, recipe_set_through, word, front_node_what(entry->value));
                return STATUS_USER;
            }
            entry->value = front_node_map(s, span);
        }
        map = entry->value;
        *path = dot + 1;
    }
    *out_map = map;
    return STATUS_OK;
}

/* All overrides are one source, a line each. */
static Sym add_sets_source(Session *s, const char *const *sets, uint32_t n_sets)
{
    const char *text = "";
    for (uint32_t i = 0; i < n_sets; i++)
        text = arena_printf(s->arena, "%s%s\n", text, sets[i]);
    Sym name = sym(s, "--set");
    if (n_sets)
        session_add_source(s, (Source){name, text, strlen(text)});
    return name;
}

/* Nodes of an override keep their places: its value is parsed behind as much empty text as stands
 * before it. */
static Status parse_set_value(Session *s, Sym name, const char *set, uint32_t index,
                              size_t value_at, FrontNode **out_node)
{
    char *text =
        arena_printf(s->arena, "%*s%*s%s", (int)index, "", (int)value_at, "", set + value_at);
    memset(text, '\n', index);
    Source blanked = {name, text, strlen(text)};
    TRY(front_yaml_parse(s, &blanked, out_node));
    if (!*out_node) { /* nothing behind `=`: the key as if it were absent */
        *out_node = ARENA_NEW(s->arena, FrontNode);
        (*out_node)->text = "";
        (*out_node)->span = (Span){name, index + 1, (uint32_t)value_at + 1, 0};
    }
    return STATUS_OK;
}

static Status apply_set(Session *s, FrontNode *root, Sym name, const char *set, uint32_t index)
{
    const char *equals = strchr(set, '='), *empty_word = strstr(set, "..");
    Span span = {name, index + 1, 1, equals ? (uint32_t)(equals - set) : 0};
    if (!equals || equals == set || set[0] == '.' || equals[-1] == '.' ||
        (empty_word && empty_word < equals)) {
        diag(s, span, recipe_set_form, set);
        return STATUS_USER;
    }
    FrontNode *value, *map;
    TRY(parse_set_value(s, name, set, index, (size_t)(equals - set) + 1, &value));
    const char *path = arena_strndup(s->arena, set, (size_t)(equals - set));
    TRY(descend(s, root, &path, span, &map));
    Sym word = sym(s, path);
    FrontEntry *entry = front_node_find(map, word);
    if (entry)
        *entry = (FrontEntry){word, span, value};
    else
        vec_push(s->arena, &map->entries, ((FrontEntry){word, span, value}));
    return STATUS_OK;
}

Status front_recipe_parse(Session *s, const Source *source, const char *const *sets,
                          uint32_t n_sets, FrontRecipe *out_recipe)
{
    FrontNode *root;
    uint32_t errors = s->n_errors;
    *out_recipe = (FrontRecipe){.path = source->name};
    TRY(front_yaml_parse(s, source, &root));
    Span whole = {source->name, 0, 0, 0};
    if (!root || front_node_is_none(root))
        root = front_node_map(s, whole);
    if (root->kind != FRONT_NODE_MAP) {
        diag(s, root->span, recipe_root, front_node_what(root));
        return STATUS_USER;
    }
    Sym sets_name = add_sets_source(s, sets, n_sets);
    for (uint32_t i = 0; i < n_sets; i++)
        TRY(apply_set(s, root, sets_name, sets[i], i));
    Loader l = {.s = s, .recipe = out_recipe};
    TRY(read_presets(&l));
    const FrontEntry *schedule = front_node_find(root, sym(s, "lr_scheduler"));
    out_recipe->has_schedule = schedule && !front_node_is_none(schedule->value);
    walk(&l, "", root);
    if (!out_recipe->pretrained.given && s->n_errors == errors)
        diag(s, whole, recipe_missing, "model.pretrained_model_name_or_path");
    return s->n_errors > errors ? STATUS_USER : STATUS_OK;
}

Status front_recipe_load(Session *s, const char *path, const char *const *sets, uint32_t n_sets,
                         FrontRecipe *out_recipe)
{
    Source source;
    TRY(session_read_source(s, path, no_span, &source));
    return front_recipe_parse(s, &source, sets, n_sets, out_recipe);
}
