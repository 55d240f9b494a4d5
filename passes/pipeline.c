#include "passes/pass.h"

Status pass_pipeline(PassManager *p)
{
    /* MODEL. Cache ops become dataflow first: everything behind sees K/V sharing as plain edges.
     * Freezing comes before precision and autodiff, which ask what is trained. */
    TRY(pass_run(p, PASS_kv_share));
    TRY(pass_run(p, PASS_freeze));
    TRY(pass_run(p, PASS_canon));
    TRY(pass_run(p, PASS_cse));
    TRY(pass_run(p, PASS_dce));

    /* A pipeline's stages part here, where an op still is one of the model: what goes back between
     * them, and who keeps what for it, then follows from each one's own gradients. */
    TRY(pass_run(p, PASS_stages));

    /* MODEL to STEP. Casts are ops before regions are marked, so that a replay repeats them. No
     * cse may run between autodiff and the end: it would merge replays with their originals and
     * undo the recompute. Which pointwise ops have operands that are kept is known once the saved
     * set is. */
    TRY(pass_run(p, PASS_precision));
    TRY(pass_run(p, PASS_recompute));
    TRY(pass_run(p, PASS_autodiff));
    TRY(pass_run(p, PASS_pointwise));
    TRY(pass_run(p, PASS_optimizer));

    /* STEP to LOCAL. Tensor parallelism comes first: what data-parallel ranks share is what is
     * left of each tensor. */
    TRY(pass_run(p, PASS_localize));
    TRY(pass_run(p, PASS_partition));
    TRY(pass_run(p, PASS_elide));
    TRY(pass_run(p, PASS_bucket));
    TRY(pass_run(p, PASS_fsdp));
    TRY(pass_run(p, PASS_agree));

    /* LOCAL to PLANNED. Regions are fused once per graph, before the instances are unrolled, so
     * that all micro-batches share kernels. Losses meet their gradients in the unrolled step, and
     * gathers move once the order is known. Offsets come last: they follow the final order. */
    TRY(pass_run(p, PASS_fuse));
    TRY(pass_run(p, PASS_schedule));
    TRY(pass_run(p, PASS_head));
    TRY(pass_run(p, PASS_prefetch));
    TRY(pass_run(p, PASS_memplan));

    /* Nothing leaves unverified. */
    TRY(pass_run(p, PASS_verify_recompute));
    TRY(pass_run(p, PASS_verify_collectives));
    return pass_run(p, PASS_verify_memory);
}
