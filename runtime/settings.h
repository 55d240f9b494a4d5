/* settings: what the runtime needs of the recipe, read from the JSON that the plan carries
 * (docs/recipes.md). */
#ifndef RUNTIME_SETTINGS_H
#define RUNTIME_SETTINGS_H

#include "base/session.h"
#include "runtime/schedule.h"

typedef struct RtSettings { /* strings live in the session; NULL where the recipe gives none */
    const char *recipe;
    int64_t seed;
    int64_t max_steps, num_epochs;             /* -1: not given */
    int64_t ckpt_every_steps, val_every_steps; /* 0: never */
    const char *save_dir, *weights_dir;
    const char *data_path, *eval_path;
    const char
        *dataset; /* named by the recipe and not read: the run draws mock tokens and says so */
    int64_t data_seed, ignore_index;
    RtSchedule lr;
    double timeout_minutes; /* how long a rank waits for another */
    int64_t max_skips; /* skipped updates in a row that end the run */
} RtSettings;

/* `json` is the plan's own: a wrong type or an unknown key is a bad plan, one diagnostic and
 * STATUS_ENV. */
Status rt_settings_read(Session *s, const char *json, RtSettings *out_settings);

#endif
