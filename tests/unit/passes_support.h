/* passes_support: what the passes' unit tests share: options as a recipe would set them, one pass
 * or the whole pipeline, and models loaded from their configs. */
#ifndef TESTS_UNIT_PASSES_SUPPORT_H
#define TESTS_UNIT_PASSES_SUPPORT_H

#include "ir_support.h"

#include "base/diag.h"
#include "frontend/frontend.h"
#include "passes/pass.h"

static inline PassOptions passes_options(Session *s, const char *policy, int64_t micro_batches,
                                         DType dtype)
{
    PassOptions o = {.target = PASS_TARGET_CPU,
                     .micro_batches = micro_batches,
                     .param = dtype,
                     .compute = dtype,
                     .grad = dtype,
                     .accumulate = DTYPE_F32,
                     .moments = dtype,
                     .master = DTYPE_NONE,
                     .freeze_embeddings = true,
                     .recompute_policy = sym(s, policy),
                     .optimizer = sym(s, "adamw"),
                     .beta1 = 0.9,
                     .beta2 = 0.999,
                     .eps = 1e-8,
                     .max_norm = 1,
                     .eval = true};
    vec_push(s->arena, &o.groups, ((PassGroup){sym(s, "*"), 0.01, no_span}));
    return o;
}

static inline PassManager passes_manager(Bench *bench, IrModule *m, const PassOptions *o)
{
    return (PassManager){.s = bench->s, .m = m, .options = o, .bisect = UINT32_MAX};
}

static inline Status passes_run(Bench *bench, IrModule *m, const PassOptions *o, PassId id)
{
    PassManager manager = passes_manager(bench, m, o);
    return pass_run(&manager, id);
}

static inline void passes_must_run(Bench *bench, IrModule *m, const PassOptions *o, PassId id)
{
    if (passes_run(bench, m, o, id) != STATUS_OK)
        fail_msg("%s: %s", pass_info(id)->name, bench_said(bench));
}

/* A model of level MODEL from its config, or a published model's name. */
static inline IrModule *passes_load(Bench *bench, const char *config, int64_t batch, int64_t seq,
                                    DType dtype)
{
    FrontModelRequest request = {.models_dir = "models",
                                 .pretrained = config,
                                 .batch = batch,
                                 .seq = seq,
                                 .param_dtype = dtype};
    FrontModel model = {0};
    if (front_model_load(bench->s, &request, &model) != STATUS_OK)
        fail_msg("%s: %s", config, bench_said(bench));
    return model.m;
}

static inline void passes_plan(Bench *bench, IrModule *m, const PassOptions *o)
{
    PassManager manager = passes_manager(bench, m, o);
    if (pass_pipeline(&manager) != STATUS_OK)
        fail_msg("%s", bench_said(bench));
}

#endif
