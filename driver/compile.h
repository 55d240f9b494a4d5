/* compile: a recipe to a PLANNED module with its facts: what `build` and `plan` share. */
#ifndef DRIVER_COMPILE_H
#define DRIVER_COMPILE_H

#include "driver/args.h"
#include "frontend/frontend.h"
#include "frontend/recipe.h"
#include "passes/facts.h"
#include "passes/pass.h"

typedef struct DriverOutside { /* memory outside the arena */
    Sym name;
    uint64_t bytes;
} DriverOutside;

typedef struct DriverCompiled {
    FrontRecipe recipe;
    FrontBatch batch;
    FrontPrecision precision;
    FrontRecompute recompute;
    FrontOptimizer optimizer;
    FrontSchedule schedule;
    Sym target; /* cpu */
    FrontModel model;
    PassOptions options;
    IrModule *m;
    /* of a pipeline a module per stage, else the one; what all of them come to is `facts` */
    IrModule **stages;
    uint32_t n_stages;
    PassFacts *stage_facts, facts;
    VEC(DriverOutside) outside; /* the most of any stage */
    Sym tied; /* the embedding that the head uses, or NULL: the head has a weight of its own */
} DriverCompiled;

/* Reads the recipe and its rules, no model: fills in everything up to `options`. */
Status driver_read_recipe(Session *s, const char *path, const DriverArgs *args,
                          DriverCompiled *out);
Status driver_compile(Session *s, const char *path, const DriverArgs *args, DriverCompiled *out);

/* Fills in `outside`; driver_compile does. */
Status driver_outside_arena(Session *s, DriverCompiled *compiled);

/* Every --disable names a pass that may be left out. */
Status driver_unknown_pass(Session *s, const char *name); /* says so; STATUS_USER */
Status driver_disable_passes(Session *s, const DriverArgs *args, PassOptions *options);
/* What the command line says about running passes. */
Status driver_pass_manager(Session *s, const DriverArgs *args, IrModule *m,
                           const PassOptions *options, PassManager *out_manager);

/* Prints the module as `ir` (or NULL), or its kernels as `ptx`. */
Status driver_emit(Session *s, IrModule *m, const char *form);

#endif
