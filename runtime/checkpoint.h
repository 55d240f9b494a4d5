/* checkpoint: saving and resuming. A checkpoint is a Hugging Face folder (config.json, weights) and
 * a folder `state` in it with what training needs beside them: optimizer.safetensors (moments,
 * masters) and trainer.json (counters). */
#ifndef RUNTIME_CHECKPOINT_H
#define RUNTIME_CHECKPOINT_H

#include "runtime/weights.h"

/* Before a run that will save: `dir` is no file, mount point or working directory, and its parent
 * exists (made if need be) and can be written. */
Status rt_checkpoint_check(Session *s, const char *dir);

/* How far a run has come, beside what its scalars say. */
typedef struct RtReached {
    uint64_t data_position; /* samples taken from the data */
    int64_t steps;          /* done, skipped ones included; -1: an older checkpoint, without it */
    const char *data;       /* rt_data_kind; NULL: an older checkpoint */
    int64_t data_seed;      /* of drawn tokens; -1: an older checkpoint */
    uint64_t data_seq;      /* tokens of a sample; 0: an older checkpoint */
    uint64_t data_samples;  /* rt_data_samples */
} RtReached;

/* Written beside `dir` and put in its place at once. What else an existing folder holds (a
 * tokenizer) stays in it. */
Status rt_checkpoint_save(Session *s, RtWorld *world, const RtPlan *plan,
                          const unsigned char *arena, const RtWeights *weights,
                          const RtReached *reached, const char *dir);

/* What the folder says of that alone, before anything is loaded. */
Status rt_checkpoint_reached(Session *s, const RtPlan *plan, const char *dir,
                             RtReached *out_reached);

/* Restores weights, masters, moments and counters bit for bit; a folder of another model,
 * optimizer, shape or dtype, or one without training state, is an error. */
Status rt_checkpoint_resume(Session *s, const RtWorld *world, const RtPlan *plan,
                            unsigned char *arena, const char *dir, RtWeights *out_weights,
                            RtReached *out_reached);

/* Gradients in their stored dtypes, under the names that their weights have in files (weights NULL:
 * the plan's). */
Status rt_dump_grads(Session *s, RtWorld *world, const RtPlan *plan, const unsigned char *arena,
                     const RtWeights *weights, const char *path);
/* The values that were kept at build, under their names without the sigil. */
Status rt_dump_values(Session *s, const RtPlan *plan, const unsigned char *arena, const char *path);

#endif
