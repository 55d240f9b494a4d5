/* options: what the passes read from a recipe, in their own terms; the driver fills it in. */
#ifndef PASSES_OPTIONS_H
#define PASSES_OPTIONS_H

#include "ir/ir.h"

typedef enum PassTarget { PASS_TARGET_CPU, PASS_TARGET_CUDA } PassTarget;

typedef struct PassPattern {
    Sym glob;
    Span span;
} PassPattern;

typedef VEC(PassPattern) PassPatterns;

/* an optimizer parameter group: the first whose pattern matches a weight's name */
typedef struct PassGroup {
    Sym pattern; /* glob; the last group's is "*" */
    double decay;
    Span span;
} PassGroup;

typedef struct PassOptions {
    PassTarget target;
    int64_t micro_batches;
    /* mesh; 0 is 1 */
    int64_t tp, dp, dpr, pp; /* dp: ranks that share, dpr: groups of such ranks */
    Sym strategy;            /* ddp, zero1, zero2, fsdp2 */
    bool defer_sync;         /* whole accumulators, summed over ranks once a step */
    Span tp_span, strategy_span;
    bool sequence_parallel; /* tp divides tokens where it divides nothing else */
    /* pipeline */
    Sym pp_schedule;       /* gpipe, 1f1b, interleaved_1f1b, zero_bubble */
    int64_t pp_chunks;     /* of each stage; 0 is 1 */
    VEC(int64_t) pp_cuts;  /* the blocks with which all cuts but the first begin; empty: balanced */
    Span pp_span, pp_schedule_span, pp_cuts_span;
    /* precision */
    DType param, compute, grad, accumulate, moments;
    DType master; /* DTYPE_NONE: no master copy */
    /* freezing */
    bool freeze_embeddings, freeze_all;
    PassPatterns freeze; /* globs over weight names; each must match */
    Span freeze_span;    /* of what freezes most */
    /* recompute */
    Sym recompute_policy; /* none, block, submodule, selective */
    VEC(Sym) recompute_parts; /* roles; empty: every role of the model */
    int64_t recompute_keep_last;
    bool recompute_pointwise; /* what pointwise ops make of kept values is replayed too */
    /* of the policy, the parts, keep_last */
    Span recompute_span, recompute_parts_span, recompute_keep_span;
    /* optimizer */
    Sym optimizer; /* adamw, sgd */
    double beta1, beta2, eps, momentum;
    bool nesterov;
    VEC(PassGroup) groups;
    double max_norm; /* 0: no clipping */
    /* whether there is an @eval graph, and values kept for --dump-values */
    bool eval;
    PassPatterns keep; /* globs over value names of @fwd */
    VEC(Sym) disable; /* passes that make things fast and are to be left out: cse, fuse, ... */
} PassOptions;

#endif
