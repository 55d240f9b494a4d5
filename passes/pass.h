/* pass: the pass table, the manager, and the pipeline. A pass is one file with one function, and
 * one row of passes.def. */
#ifndef PASSES_PASS_H
#define PASSES_PASS_H

#include "ir/ir.h"
#include "passes/options.h"

typedef struct PassContext {
    Session *s;
    IrModule *m;
    const PassOptions *options;
    Arena *scratch; /* this pass's own; gone when it returns */
    VEC(struct PassStat { const char *name; int64_t value; }) stats;
} PassContext;

void pass_stat(PassContext *c, const char *name, int64_t add);
/* Where the first op of a kind is in the order; its length: there is none. */
uint32_t pass_find_op(const IrGraph *g, IrOpKind kind);

typedef enum PassId {
#define PASS(id, name, ...) PASS_##id,
#include "passes/passes.def"
#undef PASS
    PASS_COUNT
} PassId;

typedef struct PassInfo {
    const char *name, *doc;
    Status (*run)(PassContext *c);
    IrLevel from, to; /* the level it reads and the level it leaves */
    const char *needs; /* graphs, with blanks between */
    bool optional;    /* --disable may leave it out */
    bool is_verifier;
} PassInfo;

const PassInfo *pass_info(PassId id);
PassId pass_find(const char *name); /* PASS_COUNT if there is none */

typedef struct PassManager {
    Session *s;
    IrModule *m;
    const PassOptions *options;
    const char *dump_after; /* pass name, `all`, `changed`, or NULL */
    FILE *dump_out;
    bool stats, time;
    FILE *report_out; /* for stats and times */
    uint32_t bisect;  /* run only the first n optional passes; UINT32_MAX: all */
} PassManager;

Status pass_run(PassManager *manager, PassId id); /* verifies after it, dumps, times, counts */
/* The whole order, MODEL to PLANNED, with the reason wherever order matters. */
Status pass_pipeline(PassManager *manager);

#define PASS(id, name, ...) Status pass_##id(PassContext *c);
#include "passes/passes.def"
#undef PASS

#endif
