/* recipe: a recipe's keys as typed values that know whether and where they were given, and the
 * rules between keys. */
#ifndef FRONTEND_RECIPE_H
#define FRONTEND_RECIPE_H

#include "base/dtype.h"
#include "base/session.h"

/* -- values: `given` is false where `v` is the default, or 0 or NULL where there is none -- */

typedef struct FrontInt { bool given; Span span; int64_t v; } FrontInt;
typedef struct FrontFloat { bool given; Span span; double v; } FrontFloat;
typedef struct FrontBool { bool given; Span span; bool v; } FrontBool;
typedef struct FrontWord { bool given; Span span; Sym v; } FrontWord;
typedef struct FrontWords { bool given; Span span; VEC(FrontWord) v; } FrontWords;
typedef struct FrontDtype { bool given; Span span; DType v; } FrontDtype; /* `none` is DTYPE_NONE */
typedef struct FrontBytes { bool given; Span span; int64_t v; } FrontBytes;
typedef struct FrontPair { bool given; Span span; double v[2]; } FrontPair;
typedef struct FrontJson { bool given; Span span; const char *v; } FrontJson; /* an object's text */

typedef struct FrontGroup { /* optimizer parameter group */
    VEC(FrontWord) match;   /* globs over weight names */
    double weight_decay;
    Span span;
} FrontGroup;
typedef struct FrontGroups { bool given; Span span; VEC(FrontGroup) v; } FrontGroups;

typedef struct FrontRecipe {
    const char *path;  /* as given */
    bool has_schedule; /* there is a section `lr_scheduler` */
    FrontWords unused; /* keys given that the table says are not used */
#define KEY(path, type, field, preset, rule, doc) Front##type field;
#define UNUSED(path, doc)
#include "frontend/recipe_keys.def"
#undef KEY
#undef UNUSED
} FrontRecipe;

/* Reads `path`, lays `sets` (`key.path=value`, the value YAML) over it, and checks every key.
 * Errors are reported all at once where they are independent. */
Status front_recipe_load(Session *s, const char *path, const char *const *sets, uint32_t n_sets,
                         FrontRecipe *out_recipe);

/* The same from memory. */
Status front_recipe_parse(Session *s, const Source *source, const char *const *sets,
                          uint32_t n_sets, FrontRecipe *out_recipe);

/* -- rules between keys -- */

typedef struct FrontBatch {
    int64_t world, dp, tp, pp;
    int64_t rows, seq;      /* of one micro-batch on one rank */
    int64_t micro_batches;  /* per step and rank */
    int64_t global_rows;
} FrontBatch;

/* `world`: what `--world` says, 0 where it is absent. */
Status front_recipe_batch(Session *s, const FrontRecipe *recipe, int64_t world,
                          FrontBatch *out_batch);

typedef struct FrontRecompute {
    Sym policy; /* none, block, submodule, selective */
    Span span;  /* of the key that says so */
} FrontRecompute;

Status front_recipe_recompute(Session *s, const FrontRecipe *recipe, FrontRecompute *out_recompute);

typedef struct FrontPrecision {
    DType param, compute, grad, accumulate, reduce, moments, master;
} FrontPrecision;

Status front_recipe_precision(Session *s, const FrontRecipe *recipe, FrontPrecision *out_precision);

typedef struct FrontOptimizer {
    Sym name; /* adamw, sgd */
    double weight_decay;
} FrontOptimizer;

Status front_recipe_optimizer(Session *s, const FrontRecipe *recipe, FrontOptimizer *out_optimizer);

typedef struct FrontSchedule {
    double max, min, init;
} FrontSchedule;

Status front_recipe_schedule(Session *s, const FrontRecipe *recipe, FrontSchedule *out_schedule);

/* Is `function` what `model._target_` calls? */
bool front_recipe_calls(const FrontRecipe *recipe, const char *function);

/* Does the policy, or does activation checkpointing, replay anything? */
bool front_recipe_recomputes(const FrontRecipe *recipe);
/* Does a word of activation_checkpointing_scope mean layers of the text model? */
bool front_recipe_scope_remains(const FrontWord *word);

/* Keys that ask for what a step cannot do, each an error. */
Status front_recipe_supported(Session *s, const FrontRecipe *recipe);

/* Keys without effect are one record: of the table, and those that have none beside the recipe's
 * other keys, on so many ranks or on this target (recipe_unused.c). */
void front_recipe_record_unused(Session *s, const FrontRecipe *recipe, const FrontBatch *batch,
                                bool cuda);

/* -- the table itself, for documents -- */

typedef struct FrontKeyInfo {
    const char *path, *type, *preset, *rule, *doc;
    bool used;
} FrontKeyInfo;

uint32_t front_recipe_n_keys(void);
FrontKeyInfo front_recipe_key(uint32_t i);

/* `139GiB`, `512 MB`, `1024`: false where it is no number of bytes. */
bool front_parse_bytes(const char *text, int64_t *out_bytes);

#endif
