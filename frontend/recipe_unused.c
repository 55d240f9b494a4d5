#include "frontend/recipe.h"

#include <string.h>

#include "base/diag.h"

typedef struct List {
    Session *s;
    const char *text; /* NULL: nothing yet */
    Span first;
} List;

static void add(List *list, const char *path, Span span)
{
    if (!list->text)
        list->first = span;
    list->text = list->text ? arena_printf(list->s->arena, "%s, %s", list->text, path) : path;
}

typedef struct Moot {
    bool holds;
    const char *path; /* and why, where the key's own text does not say it */
    Span span;
} Moot;

static void add_moot(List *list, const Moot *keys, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (keys[i].holds)
            add(list, keys[i].path, keys[i].span);
}

static void add_of_ranks(List *list, const FrontRecipe *r, const FrontBatch *b)
{
    bool pipelined = b->pp > 1, alone = b->dp == 1, once = b->micro_batches == 1;
    bool ddp = !strcmp(r->strategy.v, "ddp"), zero1 = !strcmp(r->strategy.v, "zero1");
    const Moot keys[] = {
        {pipelined && r->local_batch.given,
         "step_scheduler.local_batch_size (distributed.pipeline.pp_microbatch_size says how rows "
         "are cut)",
         r->local_batch.span},
        {!pipelined && r->pp_schedule.given, "distributed.pipeline.pp_schedule",
         r->pp_schedule.span},
        {!pipelined && r->pp_microbatch.given, "distributed.pipeline.pp_microbatch_size",
         r->pp_microbatch.span},
        {b->tp == 1 && r->sequence_parallel.v, "distributed.sequence_parallel",
         r->sequence_parallel.span},
        /* fsdp2 is what holds where nothing is said */
        {alone && strcmp(r->strategy.v, "fsdp2"), "distributed.strategy", r->strategy.span},
        {(alone || once || ddp || zero1) && r->defer_sync.v, "distributed.defer_fsdp_grad_sync",
         r->defer_sync.span},
        {ddp && r->dp_replicate.v > 1, "distributed.dp_replicate_size", r->dp_replicate.span},
        {b->world == 1 && r->timeout_minutes.given, "dist_env.timeout_minutes",
         r->timeout_minutes.span},
        {once && r->accumulate.given, "stepc.precision.accumulate", r->accumulate.span},
        {!pipelined && r->pp_cuts.given, "stepc.pipeline.cuts", r->pp_cuts.span},
        {!pipelined && r->pp_chunks.given, "stepc.pipeline.chunks", r->pp_chunks.span},
    };
    add_moot(list, keys, sizeof keys / sizeof *keys);
}

static void add_of_schedule(List *list, const FrontRecipe *r)
{
    bool wsd = !strcmp(r->lr_style.v, "WSD"), constant = !strcmp(r->lr_style.v, "constant");
    bool cold = r->lr_warmup.given && !r->lr_warmup.v;
    const Moot keys[] = {
        {!wsd && r->wsd_decay.given, "lr_scheduler.wsd_decay_steps", r->wsd_decay.span},
        {!wsd && r->wsd_style.given, "lr_scheduler.lr_wsd_decay_style", r->wsd_style.span},
        {constant && r->lr_decay.given, "lr_scheduler.lr_decay_steps", r->lr_decay.span},
        {constant && r->min_lr.given, "lr_scheduler.min_lr", r->min_lr.span},
        {cold && r->init_lr.given, "lr_scheduler.init_lr", r->init_lr.span},
    };
    add_moot(list, keys, sizeof keys / sizeof *keys);
}

/* Towers, which a scope may name beside the text model. */
static void add_of_scope(List *list, const FrontRecipe *r)
{
    const FrontWords *scope = &r->checkpointing_scope;
    const char *name = "distributed.activation_checkpointing_scope";
    if (scope->given && !front_recipe_recomputes(r)) {
        add(list, name, scope->span);
        return;
    }
    for (uint32_t i = 0; i < scope->v.n; i++)
        if (!front_recipe_scope_remains(&scope->v.at[i]))
            add(list,
                arena_printf(list->s->arena, "%s: %s (towers are left out)", name,
                             scope->v.at[i].v),
                scope->v.at[i].span);
}

static void add_of_rest(List *list, const FrontRecipe *r, bool cuda)
{
    const Moot keys[] = {
        {r->max_steps.given && r->num_epochs.given, "step_scheduler.num_epochs",
         r->num_epochs.span},
        {r->reduce.given, "stepc.precision.reduce (sums over ranks are f32, or f64)",
         r->reduce.span},
        {!r->checkpoint_enabled.v && r->checkpoint_dir.given, "checkpoint.checkpoint_dir",
         r->checkpoint_dir.span},
        {r->data_path.given && r->dataset_name.given, "dataset.path_or_dataset",
         r->dataset_name.span},
        {r->data_path.given && r->dataset_seed.given, "dataset.seed", r->dataset_seed.span},
        {cuda && r->cpu.given, "stepc.cpu", r->cpu.span},
    };
    add_moot(list, keys, sizeof keys / sizeof *keys);
}

void front_recipe_record_unused(Session *s, const FrontRecipe *r, const FrontBatch *b, bool cuda)
{
    List list = {.s = s};
    for (uint32_t i = 0; i < r->unused.v.n; i++)
        add(&list, r->unused.v.at[i].v, r->unused.v.at[i].span);
    add_of_ranks(&list, r, b);
    add_of_schedule(&list, r);
    add_of_scope(&list, r);
    add_of_rest(&list, r, cuda);
    if (list.text)
        diag(s, list.first, recipe_unused, list.text);
}
