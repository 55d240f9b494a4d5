/* facts: what a PLANNED module is worth, measured from its order, places and lifetimes, never from
 * intentions: bytes by class at the peak, what is live there, coverage by recompute, saved and
 * replayed work, kernels. The plan report, `--require` and `--diff` print these; nothing here
 * decides anything. */
#ifndef PASSES_FACTS_H
#define PASSES_FACTS_H

#include "ir/ir.h"
#include "passes/options.h"

/* Classes of bytes at the peak: X(id, name as in `plan --json`). */
#define PASS_BYTE_CLASSES(X)                                                                       \
    X(PARAMS, params)           /* weights and buffers */                                          \
    X(GRADS, grads)             /* gradients of weights, and their accumulators */                 \
    X(OPTIMIZER, optimizer)     /* moments and masters */                                          \
    X(ACTIVATIONS, activations) /* values of @fwd, gradients of activations */                     \
    X(RECOMPUTE, recompute)     /* replayed values */                                              \
    X(GATHERED, gathered)       /* weights gathered from their shards */                           \
    X(COMM, comm)               /* buffers of collectives */                                       \
    X(WORKSPACE, workspace)     /* what kernels need beside their tensors */                       \
    X(IO, io)                   /* inputs and scalars */

typedef enum PassByteClass {
#define PASS_BYTE_CLASS_ENUM(id, name) PASS_BYTES_##id,
    PASS_BYTE_CLASSES(PASS_BYTE_CLASS_ENUM)
#undef PASS_BYTE_CLASS_ENUM
        PASS_BYTE_CLASS_COUNT
} PassByteClass;

const char *pass_byte_class_name(PassByteClass cls);

/* One buffer with memory of its own that is live at the peak. Sorted by bytes, largest first. */
typedef struct PassLive {
    Sym name;         /* with its sigil: `%m0/h3`, `$model.norm.weight`, `workspace of %loss` */
    const char *type; /* `bf16[1,2048,2560]`; "" for a workspace */
    uint64_t bytes;   /* as it takes up the arena, alignment included */
    PassByteClass cls;
    Sym scope; /* full path of its scope; NULL at the model's own level */
    Span span;
    bool persistent; /* a state or an input */
} PassLive;

/* A value that @fwd keeps for @bwd although its part would have had to replay it. */
typedef struct PassEscape {
    Sym name; /* with sigil */
    const char *type;
    uint64_t bytes;
    Sym block, part, role; /* scope paths; part and role are NULL outside every part */
    Sym read_by;           /* name of the first @bwd result that reads it, with sigil */
    Span span;
} PassEscape;

/* An op of a recomputed part that has no replay, because the backward pass does not read its
 * result. */
typedef struct PassDropped {
    Sym name; /* of its first result, with sigil */
    Sym op, scope;
    Span span;
} PassDropped;

typedef struct PassBlock { /* one block of the model, in its order */
    Sym name, def;         /* scope path; the block definition's name */
    uint32_t parts_total, parts_recomputed;
    bool covered;         /* all parts recomputed */
    uint64_t saved_bytes; /* values made inside it that live across the border, per micro-batch */
    uint64_t replayed_flops; /* per step */
    Span span;
} PassBlock;

typedef struct PassRole { /* parts by role, over all blocks */
    Sym name;
    uint32_t total, recomputed;
    uint32_t blocks_left; /* blocks with a part of this role that is not recomputed */
    uint64_t saved_bytes; /* escaped from those parts, per micro-batch */
} PassRole;

typedef struct PassCollective { /* by kind and communicator */
    Sym kind, comm; /* all_gather, reduce_scatter, all_reduce; `dp`, `tp/2` */
    /* instructions of one step; bytes that a rank hands in, all together */
    uint64_t ranks, count, bytes;
} PassCollective;

typedef struct PassKernelCount { /* by op kind, or `fused`; sorted by FLOPs, then count */
    Sym name;
    uint32_t count, replays; /* instructions of one step; of these, replays */
    uint64_t flops;          /* of one step, replays included */
} PassKernelCount;

typedef struct PassSaved { /* a value kept for the backward passes of blocks, for --diff */
    Sym name;
    uint64_t bytes;
    Sym scope;
    Span span;
} PassSaved;

typedef struct PassFacts {
    uint64_t arena_bytes;
    uint64_t persistent_bytes; /* states and inputs, alignment included */
    uint64_t gathered_peak, gathered_unit; /* whole weights alive at once; of one unit, at most */
    uint64_t lower_bound;      /* largest sum of live transient bytes, over @step and @eval */
    uint64_t transient_bytes;  /* what the plan spends on them: at most 2 % above lower_bound */
    Sym peak_op;               /* name of the first result of the op at the peak, with sigil */
    Sym peak_scope;
    Span peak_span;
    uint64_t breakdown[PASS_BYTE_CLASS_COUNT]; /* at the peak; sums to at most arena_bytes */
    VEC(PassLive) live;                        /* at the peak */

    Sym policy; /* as asked for; `none` where nothing was */
    uint32_t blocks_total, blocks_covered;
    VEC(PassBlock) blocks;
    VEC(PassRole) roles;       /* in order of first appearance */
    VEC(PassEscape) uncovered; /* only under a policy other than `none` */
    /* What @fwd keeps for the blocks' backward passes, of the first micro-batch. Tables that depend
     * on no weight (angles of positions) are not counted: no policy could spare them. */
    VEC(PassSaved) saved;
    uint64_t saved_bytes;
    uint64_t replayed_flops;  /* per step */
    uint32_t replayed_ops;    /* per step */
    uint32_t dropped_replays; /* ops whose replay nobody would read, per micro-batch: */
    VEC(PassDropped) dropped;

    uint64_t flops_per_step; /* products, no replays, attention by visible pairs */
    uint64_t bytes_per_step; /* memory traffic of one step by the cost model */
    double seconds_per_step; /* by the cost model, on the target */
    /* of these, those of all forward passes, of all backward passes */
    double fwd_seconds, bwd_seconds;
    double send_seconds, send_back_seconds; /* of all messages to the next stage, and back */
    double bubble; /* share of a step that a pipeline's stages wait for each other, on average */
    VEC(PassKernelCount) kernels;
    VEC(PassCollective) collectives; /* in order of first appearance */
    uint32_t instructions, eval_instructions;

    const uint64_t *flops;      /* by op index of @step: FLOPs of each op, replays included */
    const uint64_t *eval_flops; /* by op index of @eval; NULL where there is none */
} PassFacts;

/* All memory is the session's. `options` says the policy that was asked for and the target. */
Status pass_facts(Session *s, IrModule *m, const PassOptions *options, PassFacts *out_facts);

/* The facts of a pipeline's stages as one: what adds up is added up, memory is that of the largest,
 * time that of the slowest with what it waits for the others. `facts` one per stage. */
void pass_facts_merge(Session *s, const PassOptions *options, const PassFacts *facts, uint32_t n,
                      PassFacts *out);

/* Records what should not stay silent: roles and blocks that the policy leaves out, in how many
 * blocks and at what cost in bytes. STATUS_USER under --strict if there is any. */
Status pass_facts_record(Session *s, const PassOptions *options, const PassFacts *facts);

#endif
