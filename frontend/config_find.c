/* Folders, published names, and the definition that fits a model_type. */
#include "frontend/config.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

typedef VEC(const char *) Paths;

static bool is_file(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISREG(st.st_mode);
}

static bool is_folder(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Paths of a folder's entries whose names end in `ending`, sorted: the same order everywhere. */
static void list_folder(Session *s, const char *folder, const char *ending, Paths *out)
{
    DIR *dir = opendir(folder);
    if (!dir)
        return;
    uint32_t first = out->n;
    const struct dirent *entry;
    size_t end = strlen(ending);
    while ((entry = readdir(dir))) {
        size_t length = strlen(entry->d_name);
        if (entry->d_name[0] != '.' && length > end &&
            !strcmp(entry->d_name + length - end, ending))
            vec_push(s->arena, out, arena_printf(s->arena, "%s/%s", folder, entry->d_name));
    }
    closedir(dir);
    if (out->n > first)
        qsort(out->at + first, out->n - first, sizeof *out->at, by_name);
}

/* Files in each family's folder, or in its `sub` folder. */
static void list_families(Session *s, const char *models_dir, const char *sub, const char *ending,
                          Paths *out)
{
    Paths families = {0};
    list_folder(s, models_dir, "", &families);
    for (uint32_t i = 0; i < families.n; i++) {
        const char *folder = arena_printf(s->arena, "%s%s", families.at[i], sub);
        if (is_folder(folder))
            list_folder(s, folder, ending, out);
    }
}

/* -- published names: ORG/NAME is models/FAMILY/configs/ORG--NAME.json -- */

static const char *published_name(Session *s, const char *path)
{
    const char *file = strrchr(path, '/') + 1;
    char *name = arena_strndup(s->arena, file, strlen(file) - strlen(".json"));
    char *dashes = strstr(name, "--");
    if (dashes) {
        *dashes = '/';
        memmove(dashes + 1, dashes + 2, strlen(dashes + 2) + 1);
    }
    return name;
}

static bool name_fits(const char *published, const char *asked)
{
    const char *slash = strchr(published, '/');
    return !strcmp(published, asked) || (slash && !strcmp(slash + 1, asked));
}

/* Sizes and versions: with others it is another model. */
static bool same_digits(const char *a, const char *b)
{
    static const char digits[] = "0123456789";
    for (;; a++, b++) {
        a += strcspn(a, digits);
        b += strcspn(b, digits);
        if (*a != *b || !*a)
            return *a == *b;
    }
}

static void suggest(Session *s, const char *asked, const Paths *published)
{
    enum { MOST_EDITS = 2 };
    Paths names = {0};
    for (uint32_t i = 0; i < published->n; i++) {
        const char *name = published->at[i], *slash = strchr(name, '/');
        if (same_digits(asked, name))
            vec_push(s->arena, &names, slash && !strchr(asked, '/') ? slash + 1 : name);
    }
    const char *near = diag_nearest_within(asked, names.at, names.n, MOST_EDITS);
    if (near)
        diag(s, no_span, did_you_mean, near);
}

static Status find_published(Session *s, const FrontModelRequest *request, FrontConfigPlace *out)
{
    Paths paths = {0}, names = {0};
    list_families(s, request->models_dir, "/configs", ".json", &paths);
    for (uint32_t i = 0; i < paths.n; i++) {
        const char *name = published_name(s, paths.at[i]);
        vec_push(s->arena, &names, name);
        if (name_fits(name, request->pretrained)) {
            *out = (FrontConfigPlace){.path = paths.at[i]};
            return STATUS_OK;
        }
    }
    diag(s, request->span, config_unknown_name, request->pretrained);
    suggest(s, request->pretrained, &names);
    return STATUS_USER;
}

static bool holds_weights(Session *s, const char *folder)
{
    return is_file(arena_printf(s->arena, "%s/model.safetensors", folder)) ||
           is_file(arena_printf(s->arena, "%s/model.safetensors.index.json", folder));
}

Status front_config_find(Session *s, const FrontModelRequest *request, FrontConfigPlace *out)
{
    const char *asked = request->pretrained;
    *out = (FrontConfigPlace){0};
    if (is_file(asked)) {
        out->path = arena_strndup(s->arena, asked, strlen(asked));
        return STATUS_OK;
    }
    if (!is_folder(asked))
        return find_published(s, request, out);
    out->path = arena_printf(s->arena, "%s/config.json", asked);
    if (!is_file(out->path)) {
        diag(s, request->span, config_no_file, asked);
        return STATUS_USER;
    }
    if (holds_weights(s, asked))
        out->weights_dir = arena_strndup(s->arena, asked, strlen(asked));
    return STATUS_OK;
}

/* -- definitions -- */

static const char *read_quietly(Session *s, const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    if (!file)
        return NULL;
    if (!fseek(file, 0, SEEK_END)) {
        long size = ftell(file);
        rewind(file);
        text = arena_alloc(s->arena, (size_t)(size < 0 ? 0 : size) + 1);
        text[size < 0 ? 0 : fread(text, 1, (size_t)size, file)] = 0;
    }
    fclose(file);
    return text;
}

/* The quoted words behind a `for` are the types that a file defines: enough to choose the file. */
static bool collect_types(Session *s, const char *text, Sym wanted, Paths *known)
{
    bool found = false;
    for (const char *at = strstr(text, " for \""); at; at = strstr(at + 1, " for \"")) {
        const char *open = at + 5;
        while (*open == '"') {
            const char *close = strchr(open + 1, '"');
            if (!close)
                return found;
            Sym type = intern_n(&s->interner, open + 1, (size_t)(close - open - 1));
            found |= type == wanted;
            vec_push(s->arena, known, type);
            open = close + 1 + strspn(close + 1, ", \n");
        }
    }
    return found;
}

Status front_definition_find(Session *s, const FrontModelRequest *request,
                             const FrontConfig *config, const char **out_path)
{
    Paths paths = {0}, known = {0};
    if (request->definition) {
        *out_path = request->definition;
        return STATUS_OK;
    }
    list_families(s, request->models_dir, "", ".model", &paths);
    for (uint32_t i = 0; i < paths.n; i++) {
        const char *text = read_quietly(s, paths.at[i]);
        if (text && collect_types(s, text, config->model_type, &known)) {
            *out_path = paths.at[i];
            return STATUS_OK;
        }
    }
    const char *list = known.n ? "" : "none";
    for (uint32_t i = 0; i < known.n; i++)
        list = arena_printf(s->arena, "%s%s`%s`", list, i ? ", " : "", known.at[i]);
    diag(s, front_config_span(config, sym(s, "model_type")), config_unknown_type,
         config->model_type, list);
    return STATUS_USER;
}
