#include "frontend/recipe.h"

#include <string.h>

#include "base/diag.h"

static Sym integer(Session *s, int64_t value)
{
    return intern_printf(&s->interner, "%lld", (long long)value);
}

/* Two keys that mean the same are both given and say different things. */
static Status differ(Session *s, const char *a, Span a_span, const char *a_value, const char *b,
                     Span b_span, const char *b_value)
{
    diag(s, b_span, recipe_differ, b, b_value, a, a_value);
    diag(s, a_span, recipe_other_here);
    return STATUS_USER;
}

/* -- world and batch -- */

static Status world_of(Session *s, const FrontRecipe *r, int64_t world, FrontBatch *b)
{
    b->tp = r->tp_size.v;
    b->pp = r->pp_size.v;
    enum { MOST_RANKS = 1 << 20 };
    if (b->tp > MOST_RANKS || b->pp > MOST_RANKS || r->dp_size.v > MOST_RANKS) {
        const FrontInt *size = b->tp > MOST_RANKS   ? &r->tp_size
                               : b->pp > MOST_RANKS ? &r->pp_size
                                                    : &r->dp_size;
        diag(s, size->span, recipe_unsupported, "distributed",
             "more than 2^20 ranks along one axis");
        return STATUS_USER;
    }
    b->world = world ? world : r->world_size.given ? r->world_size.v : 0;
    if (!b->world) {
        int64_t dp = r->dp_size.given ? r->dp_size.v : 1;
        b->world = b->tp * b->pp * dp;
        Span whole = {.file = sym(s, r->path)};
        diag(s, r->dp_size.given ? r->dp_size.span : whole, recipe_world_default,
             (long long)b->world, (long long)b->tp, (long long)b->pp, (long long)dp);
    }
    Span span = !world ? r->world_size.span : b->tp > 1 ? r->tp_size.span : r->pp_size.span;
    if (b->world % (b->tp * b->pp)) {
        diag(s, span, recipe_world, (long long)b->world, (long long)b->tp, (long long)b->pp);
        return STATUS_USER;
    }
    b->dp = b->world / (b->tp * b->pp);
    if (r->dp_size.given && r->dp_size.v != b->dp) {
        diag(s, r->dp_size.span, recipe_dp, (long long)r->dp_size.v, (long long)b->world,
             (long long)b->tp, (long long)b->pp, (long long)b->dp);
        return STATUS_USER;
    }
    if (b->dp % r->dp_replicate.v) {
        diag(s, r->dp_replicate.span, recipe_dp_replicate, (long long)r->dp_replicate.v,
             (long long)b->dp);
        return STATUS_USER;
    }
    return STATUS_OK;
}

static Status sequence_of(Session *s, const FrontRecipe *r, FrontBatch *b)
{
    b->seq = r->seq_length.given ? r->seq_length.v : r->max_length.v;
    if (!r->seq_length.given && !r->max_length.given) {
        diag(s, ((Span){sym(s, r->path), 0, 0, 0}), recipe_no_length);
        return STATUS_USER;
    }
    if (r->seq_length.given && r->max_length.given && r->seq_length.v != r->max_length.v)
        return differ(s, "dataset.max_length", r->max_length.span, integer(s, r->max_length.v),
                      "dataset.seq_length", r->seq_length.span, integer(s, r->seq_length.v));
    return STATUS_OK;
}

/* A plan lists the ops of each. */
enum { MOST_MICRO_BATCHES = 4096 };

Status front_recipe_batch(Session *s, const FrontRecipe *r, int64_t world, FrontBatch *out)
{
    FrontBatch b = {0};
    bool pipelined = r->pp_size.v > 1;
    TRY(world_of(s, r, world, &b));
    TRY(sequence_of(s, r, &b));
    const FrontInt *rows = pipelined ? &r->pp_microbatch : &r->local_batch;
    b.rows = rows->v;
    if (b.rows > INT32_MAX / b.seq || b.rows * b.dp > INT32_MAX) {
        diag(s, rows->span, recipe_batch_large, (long long)b.rows, (long long)b.seq);
        return STATUS_USER;
    }
    b.global_rows = r->global_batch.given ? r->global_batch.v : b.rows * b.dp;
    b.micro_batches = b.global_rows / (b.rows * b.dp);
    if (b.micro_batches * b.rows * b.dp != b.global_rows) {
        diag(s, r->global_batch.span, recipe_accumulation, (long long)b.global_rows,
             pipelined ? "pp_microbatch_size" : "local_batch_size", (long long)b.rows,
             (long long)b.dp);
        return STATUS_USER;
    }
    if (b.micro_batches > MOST_MICRO_BATCHES) {
        diag(s, r->global_batch.span, recipe_micro_batches, (long long)b.global_rows,
             (long long)b.micro_batches, MOST_MICRO_BATCHES);
        return STATUS_USER;
    }
    *out = b;
    return STATUS_OK;
}

/* -- recompute -- */

static const char *policy_of(const char *checkpointing)
{
    if (!strcmp(checkpointing, "false"))
        return "none";
    return strcmp(checkpointing, "selective") ? "block" : "selective";
}

static Status only_with(Session *s, Span span, const char *key, const char *policy,
                        const char *have)
{
    diag(s, span, recipe_recompute_only, key, policy, have);
    return STATUS_USER;
}

Status front_recipe_recompute(Session *s, const FrontRecipe *r, FrontRecompute *out)
{
    *out = (FrontRecompute){sym(s, "none"), no_span};
    if (r->checkpointing.given)
        *out = (FrontRecompute){sym(s, policy_of(r->checkpointing.v)), r->checkpointing.span};
    if (r->recompute_policy.given) {
        if (r->checkpointing.given && out->policy != r->recompute_policy.v) {
            diag(s, r->recompute_policy.span, recipe_recompute_both, r->checkpointing.v,
                 out->policy, r->recompute_policy.v);
            diag(s, r->checkpointing.span, recipe_other_here);
            return STATUS_USER;
        }
        *out = (FrontRecompute){r->recompute_policy.v, r->recompute_policy.span};
    }
    if (r->recompute_parts.given && strcmp(out->policy, "submodule"))
        return only_with(s, r->recompute_parts.span, "parts", "submodule", out->policy);
    if (r->keep_last.given && r->keep_last.v && strcmp(out->policy, "block"))
        return only_with(s, r->keep_last.span, "keep_last", "block", out->policy);
    return STATUS_OK;
}

bool front_recipe_recomputes(const FrontRecipe *r)
{
    if (r->recompute_policy.given)
        return strcmp(r->recompute_policy.v, "none");
    return r->checkpointing.given && strcmp(r->checkpointing.v, "false");
}

bool front_recipe_scope_remains(const FrontWord *word)
{
    return !strcmp(word->v, "all") || !strcmp(word->v, "language");
}

static Status scope_remains(Session *s, const FrontRecipe *r)
{
    const FrontWords *scope = &r->checkpointing_scope;
    if (!scope->given || !front_recipe_recomputes(r))
        return STATUS_OK;
    for (uint32_t i = 0; i < scope->v.n; i++)
        if (front_recipe_scope_remains(&scope->v.at[i]))
            return STATUS_OK;
    diag(s, scope->span, recipe_unsupported, "distributed.activation_checkpointing_scope",
         "nothing of it remains: towers are left out, and it has neither `all` nor `language`");
    return STATUS_USER;
}

/* -- precision -- */

static DType or_default(const FrontDtype *key, DType otherwise)
{
    return key->given ? key->v : otherwise;
}

Status front_recipe_precision(Session *s, const FrontRecipe *r, FrontPrecision *out)
{
    if (r->torch_dtype.given && r->param.given && r->torch_dtype.v != r->param.v)
        return differ(s, "model.torch_dtype", r->torch_dtype.span, dtype_name(r->torch_dtype.v),
                      "stepc.precision.param", r->param.span, dtype_name(r->param.v));
    DType param = or_default(&r->param, or_default(&r->torch_dtype, DTYPE_F32));
    DType compute = or_default(&r->compute, param);
    DType sums = param == DTYPE_F64 || compute == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
    *out = (FrontPrecision){
        .param = param,
        .compute = compute,
        .grad = or_default(&r->grad, param),
        .accumulate = or_default(&r->accumulate, sums),
        .reduce = or_default(&r->reduce, sums),
        .moments = or_default(&r->moments, param),
        .master = or_default(&r->master, DTYPE_NONE),
    };
    return STATUS_OK;
}

/* -- optimizer and learning rate -- */

/* The class's or function's own name: what follows the last dot. */
static const char *class_name(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

static Status optimizer_class(Session *s, const FrontRecipe *r, FrontOptimizer *out)
{
    static const struct {
        const char *path, *name;
        double weight_decay;
    } classes[] = {
        {"torch.optim.AdamW", "adamw", 0.01},
        {"torch.optim.adamw.AdamW", "adamw", 0.01},
        {"torch.optim.SGD", "sgd", 0},
        {"torch.optim.sgd.SGD", "sgd", 0},
        {"adamw", "adamw", 0.01},
        {"sgd", "sgd", 0},
    };
    for (unsigned i = 0; i < sizeof classes / sizeof *classes; i++) {
        if (strcmp(classes[i].path, r->optimizer_target.v))
            continue;
        *out = (FrontOptimizer){sym(s, classes[i].name), classes[i].weight_decay};
        return STATUS_OK;
    }
    diag(s, r->optimizer_target.span, recipe_class, "optimizer._target_", r->optimizer_target.v,
         "torch.optim.AdamW, torch.optim.SGD");
    return STATUS_USER;
}

static Status belongs_to(Session *s, bool given, Span span, const char *key, const char *owner,
                         const FrontOptimizer *o)
{
    if (!given || !strcmp(o->name, owner))
        return STATUS_OK;
    diag(s, span, recipe_unsupported, key,
         !strcmp(owner, "sgd") ? "only SGD has it" : "only AdamW has it");
    return STATUS_USER;
}

Status front_recipe_optimizer(Session *s, const FrontRecipe *r, FrontOptimizer *out)
{
    TRY(optimizer_class(s, r, out));
    TRY(belongs_to(s, r->betas.given, r->betas.span, "optimizer.betas", "adamw", out));
    TRY(belongs_to(s, r->eps.given, r->eps.span, "optimizer.eps", "adamw", out));
    TRY(belongs_to(s, r->momentum.given, r->momentum.span, "optimizer.momentum", "sgd", out));
    TRY(belongs_to(s, r->nesterov.given && r->nesterov.v, r->nesterov.span, "optimizer.nesterov",
                   "sgd", out));
    if (r->nesterov.v && r->momentum.v == 0) {
        diag(s, r->nesterov.span, recipe_needs, "optimizer.nesterov", "true", "optimizer.momentum");
        return STATUS_USER;
    }
    if (r->weight_decay.given)
        out->weight_decay = r->weight_decay.v;
    return STATUS_OK;
}

static Status at_most(Session *s, const FrontFloat *key, const char *name, double value,
                      double most)
{
    if (value <= most)
        return STATUS_OK;
    diag(s, key->span, recipe_schedule, name, value, "at most", most);
    return STATUS_USER;
}

static Status schedule_steps(Session *s, const FrontRecipe *r)
{
    if (r->lr_warmup.given && r->lr_decay.given && r->lr_warmup.v >= r->lr_decay.v) {
        diag(s, r->lr_warmup.span, recipe_schedule, "lr_warmup_steps", (double)r->lr_warmup.v,
             "less than lr_decay_steps", (double)r->lr_decay.v);
        return STATUS_USER;
    }
    if (strcmp(r->lr_style.v, "WSD"))
        return STATUS_OK;
    if (!r->wsd_decay.given) {
        diag(s, r->lr_style.span, recipe_needs, "lr_scheduler.lr_decay_style", "WSD",
             "lr_scheduler.wsd_decay_steps");
        return STATUS_USER;
    }
    if (r->lr_decay.given && r->wsd_decay.v > r->lr_decay.v) {
        diag(s, r->wsd_decay.span, recipe_schedule, "wsd_decay_steps", (double)r->wsd_decay.v,
             "at most lr_decay_steps", (double)r->lr_decay.v);
        return STATUS_USER;
    }
    return STATUS_OK;
}

Status front_recipe_schedule(Session *s, const FrontRecipe *r, FrontSchedule *out)
{
    double lr = r->lr.v;
    if (!r->has_schedule) {
        *out = (FrontSchedule){lr, lr, lr};
        return STATUS_OK;
    }
    if (r->max_lr.given && r->lr.given && r->max_lr.v != lr)
        return differ(s, "optimizer.lr", r->lr.span, arena_printf(s->arena, "%g", lr),
                      "lr_scheduler.max_lr", r->max_lr.span,
                      arena_printf(s->arena, "%g", r->max_lr.v));
    out->max = r->max_lr.given ? r->max_lr.v : lr;
    out->min = r->min_lr.given ? r->min_lr.v : out->max * 0.01;
    out->init = r->init_lr.given ? r->init_lr.v : out->max * 0.1;
    TRY(at_most(s, &r->min_lr, "min_lr", out->min, out->max));
    TRY(at_most(s, &r->init_lr, "init_lr", out->init, out->max));
    return schedule_steps(s, r);
}

/* -- what a step cannot do -- */

static Status loss_class(Session *s, const FrontRecipe *r)
{
    static const char *const known[] = {
        "MaskedCrossEntropy",     "ChunkedCrossEntropy", "FusedLinearCrossEntropy",
        "TEParallelCrossEntropy", "CrossEntropyLoss",
    };
    if (!r->loss_target.given)
        return STATUS_OK;
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(class_name(r->loss_target.v), known[i]))
            return STATUS_OK;
    diag(
        s, r->loss_target.span, recipe_class, "loss_fn._target_", r->loss_target.v,
        "MaskedCrossEntropy, ChunkedCrossEntropy, FusedLinearCrossEntropy, TEParallelCrossEntropy, "
        "CrossEntropyLoss");
    return STATUS_USER;
}

bool front_recipe_calls(const FrontRecipe *r, const char *function)
{
    return r->model_target.given && !strcmp(class_name(r->model_target.v), function);
}

static Status model_function(Session *s, const FrontRecipe *r)
{
    if (!r->model_target.given || front_recipe_calls(r, "from_pretrained") ||
        front_recipe_calls(r, "from_config"))
        return STATUS_OK;
    diag(s, r->model_target.span, recipe_class, "model._target_", r->model_target.v,
         "CLASS.from_pretrained, CLASS.from_config");
    return STATUS_USER;
}

Status front_recipe_supported(Session *s, const FrontRecipe *r)
{
    TRY(model_function(s, r));
    TRY(loss_class(s, r));
    if (r->cp_size.v > 1) {
        diag(s, r->cp_size.span, recipe_unsupported, "distributed.cp_size",
             "context parallelism is not supported");
        return STATUS_USER;
    }
    if (r->ep_size.v > 1) {
        diag(s, r->ep_size.span, recipe_unsupported, "distributed.ep_size",
             "expert parallelism is not supported");
        return STATUS_USER;
    }
    TRY(scope_remains(s, r));
    if (r->peft.given) {
        diag(s, r->peft.span, recipe_unsupported, "peft", "adapters (LoRA) are not supported");
        return STATUS_USER;
    }
    if (r->recompute_budget.given) {
        diag(s, r->recompute_budget.span, recipe_unsupported, "stepc.recompute.budget",
             "recompute by budget is not supported; give a policy");
        return STATUS_USER;
    }
    if (r->seed.given && r->rng_seed.given && r->seed.v != r->rng_seed.v)
        return differ(s, "seed", r->seed.span, integer(s, r->seed.v), "rng.seed", r->rng_seed.span,
                      integer(s, r->rng_seed.v));
    return STATUS_OK;
}
