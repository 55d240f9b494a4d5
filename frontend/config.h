/* config: a model's config.json, found, brought into one layout, and read by key. */
#ifndef FRONTEND_CONFIG_H
#define FRONTEND_CONFIG_H

#include "frontend/frontend.h"
#include "frontend/model_value.h"

typedef struct FrontConfig {
    Sym path;         /* of config.json; where there is none, what stands for it in messages */
    const char *text; /* as read */
    Sym model_type;   /* of the text model */
    const char *weights_dir;
    FrontValue keys;  /* DICT: text_config, or the whole, under the overrides; in one layout */
    FrontValue outer; /* DICT: what stands around text_config; empty where there is none */
    FrontValue laid;  /* DICT: the overrides, which have no place in the file */
    Span span;        /* of the recipe's key that lays values over */
} FrontConfig;

/* Each tower that is left out becomes a record. */
Status front_config_load(Session *s, const FrontModelRequest *request, FrontConfig *out);
/* From memory: for tests and fuzzing. */
Status front_config_parse(Session *s, const char *path, const char *text, size_t length,
                          const char *overrides_json, Span span, FrontConfig *out);

/* false: absent or null; *out is none. */
bool front_config_get(const FrontConfig *c, Sym key, FrontValue *out);
/* Is it there, and null? */
bool front_config_is_null(const FrontConfig *c, Sym key);
/* Where the key stands; NULL: the file as a whole. */
Span front_config_span(const FrontConfig *c, Sym key);
/* A record for every key that neither the model (`read`) nor the table of idle keys knows; an
 * error for one that only the overrides have. */
void front_config_report_unread(Session *s, const FrontConfig *c, const Sym *read, uint32_t n_read,
                                Sym model);

/* Overrides go where the key stands; `text_config: {...}` and plain keys mean the text model, which
 * is `body` in (or is itself) `root`. */
void front_config_override(cJSON *root, cJSON *body, const cJSON *over);
/* The config.json that a save writes (config_text.c). */
const char *front_config_settled(Session *s, const FrontConfig *c, const char *overrides_json,
                                 DType dtype);

/* -- finding it (config_find.c) -- */

typedef struct FrontConfigPlace {
    const char *path;        /* of config.json */
    const char *weights_dir; /* or NULL */
} FrontConfigPlace;

Status front_config_find(Session *s, const FrontModelRequest *request, FrontConfigPlace *out);
/* The .model file whose `for` names the type. */
Status front_definition_find(Session *s, const FrontModelRequest *request,
                             const FrontConfig *config, const char **out_path);

/* -- layouts (config_layout.c): the file's own spellings become one -- */

/* rope_theta with rope_scaling become rope_parameters; `type` in it becomes rope_type. */
void front_config_unify_rope(cJSON *keys);
/* Before that: what of these keys would get lost in it; NULL if all is well. */
const char *front_config_rope_fault(const cJSON *keys, const char **out_key);
/* Object members of `over` replace those of `under`, objects within objects member by member. */
void front_config_lay_over(cJSON *under, const cJSON *over);
/* A key that stands twice in one object, or a number out of range; NULL if all is well. */
const char *front_config_fault(const cJSON *json, const char **out_key);
/* Every number of the file gets its text beside its value. */
void front_config_keep_numbers(const char *text, cJSON *root);
/* Line, column and length of the key at `path` (`text_config`, `hidden_size`), or line 0. */
Span front_config_locate(Sym file, const char *text, const char *const *path, uint32_t depth);

#endif
