#include "driver/settings.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "driver/paths.h"

enum { MAX_SKIPS = 10 }; /* updates skipped in a row that end a run */

static void add_text(cJSON *object, const char *key, const char *text)
{
    cJSON_AddItemToObject(object, key, text ? cJSON_CreateString(text) : cJSON_CreateNull());
}

/* cJSON's own numbers are doubles of 15 digits: these are whole. */
static void add_int(cJSON *object, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    cJSON_AddItemToObject(object, key, cJSON_CreateRaw(text));
}

static void add_float(cJSON *object, const char *key, double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.17g", value);
    cJSON_AddItemToObject(object, key, cJSON_CreateRaw(text));
}

static void add_int_or_null(cJSON *object, const char *key, const FrontInt *value)
{
    if (value->given)
        add_int(object, key, value->v);
    else
        cJSON_AddNullToObject(object, key);
}

/* The step executable may be run from another folder than the compiler. */
static const char *absolute(Session *s, const char *path)
{
    return path ? driver_path_absolute(s, path) : NULL;
}

static void add_data(Session *s, cJSON *root, const FrontRecipe *r, int64_t seed)
{
    cJSON *data = cJSON_AddObjectToObject(root, "data");
    add_text(data, "path", absolute(s, r->data_path.v));
    add_text(data, "eval_path", absolute(s, r->eval_path.v));
    add_text(data, "dataset", r->data_path.given ? NULL : r->dataset_name.v);
    add_int(data, "seed", r->dataset_seed.given ? r->dataset_seed.v : seed);
}

static void add_lr(cJSON *root, const DriverCompiled *c)
{
    const FrontRecipe *r = &c->recipe;
    cJSON *lr = cJSON_AddObjectToObject(root, "lr");
    add_text(lr, "style", r->has_schedule ? r->lr_style.v : "constant");
    add_float(lr, "max", c->schedule.max);
    add_float(lr, "min", c->schedule.min);
    add_float(lr, "init", c->schedule.init);
    if (r->has_schedule)
        add_int_or_null(lr, "warmup_steps", &r->lr_warmup);
    else
        add_int(lr, "warmup_steps", 0);
    add_int_or_null(lr, "decay_steps", &r->lr_decay);
    add_int_or_null(lr, "wsd_decay_steps", &r->wsd_decay);
    add_text(lr, "wsd_style", r->wsd_style.v);
}

static void add_optimizer(cJSON *root, const DriverCompiled *c)
{
    const PassOptions *o = &c->options;
    cJSON *optimizer = cJSON_AddObjectToObject(root, "optimizer");
    add_text(optimizer, "name", o->optimizer);
    add_float(optimizer, "beta1", o->beta1);
    add_float(optimizer, "beta2", o->beta2);
    add_float(optimizer, "eps", o->eps);
    add_float(optimizer, "weight_decay", c->optimizer.weight_decay);
    add_float(optimizer, "momentum", o->momentum);
    cJSON_AddBoolToObject(optimizer, "nesterov", o->nesterov);
}

const char *driver_settings_json(Session *s, const DriverCompiled *c)
{
    const FrontRecipe *r = &c->recipe;
    int64_t seed = r->seed.given ? r->seed.v : r->rng_seed.v;
    cJSON *root = cJSON_CreateObject();
    add_text(root, "recipe", r->path);
    add_int(root, "seed", seed);
    add_int_or_null(root, "max_steps", &r->max_steps);
    add_int_or_null(root, "num_epochs", &r->num_epochs);
    add_int(root, "ckpt_every_steps", r->ckpt_every_steps.v);
    add_int(root, "val_every_steps", r->val_every_steps.v);
    add_text(root, "save_dir", r->checkpoint_enabled.v ? r->checkpoint_dir.v : NULL);
    add_text(root, "weights_dir",
             front_recipe_calls(r, "from_config") ? NULL : absolute(s, c->model.weights_dir));
    add_data(s, root, r, seed);
    cJSON *labels = cJSON_AddObjectToObject(root, "labels");
    add_int(labels, "ignore_index", r->ignore_index.v);
    add_lr(root, c);
    add_optimizer(root, c);
    add_float(root, "max_norm", r->max_norm.v);
    cJSON *tied = cJSON_AddObjectToObject(root, "tied");
    if (c->tied)
        add_text(tied, "lm_head.weight", c->tied);
    add_int(root, "max_skips", MAX_SKIPS);
    cJSON_AddNumberToObject(root, "timeout_minutes", r->timeout_minutes.v);
    char *text = cJSON_PrintUnformatted(root);
    const char *copy = arena_strndup(s->arena, text, strlen(text));
    cJSON_free(text);
    cJSON_Delete(root);
    return copy;
}
