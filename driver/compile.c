#include "driver/compile.h"

#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/diag.h"
#include "driver/paths.h"

/* A path as the recipe's author meant it: from where the command runs, else from the recipe's own
 * folder. */
static const char *recipe_path(Session *s, const FrontRecipe *r, const char *path)
{
    if (path[0] == '/' || driver_path_exists(path))
        return path;
    const char *beside = arena_printf(s->arena, "%s/%s", driver_path_dir(s, r->path), path);
    return driver_path_exists(beside) ? beside : path;
}

static Status choose_target(Session *s, const DriverArgs *args, DriverCompiled *c)
{
    const FrontRecipe *r = &c->recipe;
    const char *target = args->target ? args->target : r->target.v;
    if (!target) {
        target = "cpu";
        diag(s, ((Span){.file = sym(s, r->path)}), driver_target_default);
    }
    if (strcmp(target, "cpu") && strcmp(target, "cuda")) {
        diag(s, args->target ? no_span : r->target.span, driver_target, target,
             "it must be cpu or cuda");
        return STATUS_USER;
    }
    c->target = sym(s, target);
    return STATUS_OK;
}

/* Ranks that share and groups of them: ddp shares nothing. */
static void fill_mesh(const DriverCompiled *c, PassOptions *o)
{
    const FrontRecipe *r = &c->recipe;
    o->strategy = r->strategy.v;
    o->tp = c->batch.tp;
    o->pp = c->batch.pp;
    o->dpr = strcmp(r->strategy.v, "ddp") ? r->dp_replicate.v : 1;
    o->dp = c->batch.dp / o->dpr;
    o->defer_sync = r->defer_sync.v;
    o->tp_span = r->tp_size.span;
    o->strategy_span = r->strategy.span;
    o->sequence_parallel = o->tp > 1 && r->sequence_parallel.v;
}

static Status fill_pipeline(Session *s, const DriverCompiled *c, PassOptions *o)
{
    const FrontRecipe *r = &c->recipe;
    bool interleaved = !strcmp(r->pp_schedule.v, "interleaved_1f1b");
    o->pp_schedule = sym(s, r->pp_schedule.v);
    o->pp_chunks = r->pp_chunks.given ? r->pp_chunks.v : interleaved ? 2 : 1;
    o->pp_span = r->pp_size.span;
    o->pp_schedule_span = r->pp_chunks.given ? r->pp_chunks.span : r->pp_schedule.span;
    o->pp_cuts_span = r->pp_cuts.span;
    for (uint32_t i = 0; i < r->pp_cuts.v.n; i++) {
        const char *text = r->pp_cuts.v.at[i].v;
        char *end;
        long long block = strtoll(text, &end, 10);
        if (end == text || *end) {
            diag(s, r->pp_cuts.v.at[i].span, driver_cut, text);
            return STATUS_USER;
        }
        vec_push(s->arena, &o->pp_cuts, block);
    }
    return STATUS_OK;
}

/* -- the passes' options -- */

static void add_pattern(Session *s, const char *glob, Span span, PassPatterns *list)
{
    vec_push(s->arena, list, ((PassPattern){sym(s, glob), span}));
}

static void fill_groups(Session *s, const DriverCompiled *c, PassOptions *o)
{
    for (uint32_t i = 0; i < c->recipe.groups.v.n; i++) {
        const FrontGroup *group = &c->recipe.groups.v.at[i];
        for (uint32_t j = 0; j < group->match.n; j++)
            vec_push(
                s->arena, &o->groups,
                ((PassGroup){group->match.at[j].v, group->weight_decay, group->match.at[j].span}));
    }
    PassGroup rest = {sym(s, "*"), c->optimizer.weight_decay, c->recipe.weight_decay.span};
    vec_push(s->arena, &o->groups, rest);
}

static void fill_lists(Session *s, const DriverArgs *args, const FrontRecipe *r, PassOptions *o)
{
    for (uint32_t i = 0; i < r->freeze.v.n; i++)
        add_pattern(s, r->freeze.v.at[i].v, r->freeze.v.at[i].span, &o->freeze);
    for (uint32_t i = 0; i < r->keep.v.n; i++)
        add_pattern(s, r->keep.v.at[i].v, r->keep.v.at[i].span, &o->keep);
    for (uint32_t i = 0; i < args->keep.n; i++)
        add_pattern(s, args->keep.at[i], no_span, &o->keep);
    for (uint32_t i = 0; i < r->recompute_parts.v.n; i++)
        vec_push(s->arena, &o->recompute_parts, sym(s, r->recompute_parts.v.at[i].v));
}

static void fill_options(Session *s, const DriverArgs *args, DriverCompiled *c)
{
    const FrontRecipe *r = &c->recipe;
    c->options = (PassOptions){
        .target = strcmp(c->target, "cuda") ? PASS_TARGET_CPU : PASS_TARGET_CUDA,
        .micro_batches = c->batch.micro_batches,
        .param = c->precision.param,
        .compute = c->precision.compute,
        .grad = c->precision.grad,
        .accumulate = c->precision.accumulate,
        .moments = c->precision.moments,
        .master = c->precision.master,
        .freeze_embeddings = r->freeze_embeddings.v,
        .freeze_all = r->freeze_language.v,
        .freeze_span = r->freeze_language.v ? r->freeze_language.span
                       : r->freeze.given    ? r->freeze.span
                                            : r->freeze_embeddings.span,
        .recompute_policy = c->recompute.policy,
        .recompute_keep_last = r->keep_last.v,
        .recompute_pointwise = r->recompute_pointwise.v,
        .recompute_span = c->recompute.span,
        .recompute_parts_span = r->recompute_parts.span,
        .recompute_keep_span = r->keep_last.span,
        .optimizer = c->optimizer.name,
        .beta1 = r->betas.v[0],
        .beta2 = r->betas.v[1],
        .eps = r->eps.v,
        .momentum = r->momentum.v,
        .nesterov = r->nesterov.v,
        .max_norm = r->max_norm.v,
        .eval = true,
    };
    fill_mesh(c, &c->options);
    fill_lists(s, args, r, &c->options);
    fill_groups(s, c, &c->options);
}

static const char *optional_passes(Session *s)
{
    const char *list = "";
    for (unsigned id = 0; id < PASS_COUNT; id++)
        if (pass_info((PassId)id)->optional)
            list = arena_printf(s->arena, "%s%s%s", list, *list ? ", " : "",
                                pass_info((PassId)id)->name);
    return list;
}

Status driver_unknown_pass(Session *s, const char *name)
{
    const char *names[PASS_COUNT];
    for (unsigned id = 0; id < PASS_COUNT; id++)
        names[id] = pass_info((PassId)id)->name;
    diag(s, no_span, driver_pass, name);
    const char *near = diag_nearest(name, names, PASS_COUNT);
    if (near)
        diag(s, no_span, did_you_mean, near);
    return STATUS_USER;
}

Status driver_disable_passes(Session *s, const DriverArgs *args, PassOptions *o)
{
    for (uint32_t i = 0; i < args->disable.n; i++) {
        PassId id = pass_find(args->disable.at[i]);
        if (id == PASS_COUNT || !pass_info(id)->optional) {
            diag(s, no_span, driver_disable, args->disable.at[i], optional_passes(s));
            return STATUS_USER;
        }
        vec_push(s->arena, &o->disable, sym(s, args->disable.at[i]));
    }
    return STATUS_OK;
}

Status driver_read_recipe(Session *s, const char *path, const DriverArgs *args, DriverCompiled *out)
{
    int64_t world, fit;
    uint32_t errors = s->n_errors;
    TRY(driver_args_count(s, "--world", args->world, &world));
    TRY(driver_args_bytes(s, "--fit", args->fit, &fit));
    TRY(front_recipe_load(s, path, args->set.at, args->set.n, &out->recipe));
    const FrontRecipe *r = &out->recipe;
    TRY(front_recipe_supported(s, r));
    TRY(choose_target(s, args, out));
    TRY(front_recipe_batch(s, r, world, &out->batch));
    if (r->cpu.given && !strcmp(out->target, "cpu"))
        TRY(backend_check_cpu(s, r->cpu.v, r->cpu.span));
    front_recipe_record_unused(s, r, &out->batch, !strcmp(out->target, "cuda"));
    TRY(front_recipe_precision(s, r, &out->precision));
    TRY(front_recipe_recompute(s, r, &out->recompute));
    TRY(front_recipe_optimizer(s, r, &out->optimizer));
    TRY(front_recipe_schedule(s, r, &out->schedule));
    if (r->dataset_name.given && !r->data_path.given)
        diag(s, r->dataset_name.span, driver_dataset, r->dataset_name.v);
    fill_options(s, args, out);
    TRY(fill_pipeline(s, out, &out->options));
    TRY(driver_disable_passes(s, args, &out->options));
    return s->n_errors > errors ? STATUS_USER : STATUS_OK;
}

/* -- the model -- */

static bool has_input(const FrontRecipe *r, const char *name)
{
    for (uint32_t i = 0; i < r->inputs.v.n; i++)
        if (!strcmp(r->inputs.v.at[i].v, name))
            return true;
    return false;
}

static Status load_model(Session *s, DriverCompiled *c)
{
    const FrontRecipe *r = &c->recipe;
    FrontModelRequest request = {
        .models_dir = driver_models_dir(s),
        .pretrained = recipe_path(s, r, r->pretrained.v),
        .definition = r->definition.given ? recipe_path(s, r, r->definition.v) : NULL,
        .overrides_json = r->text_config.v,
        .batch = c->batch.rows,
        .seq = c->batch.seq,
        .positions = has_input(r, "positions"),
        .segments = has_input(r, "segments"),
        .keep = has_input(r, "keep"),
        .param_dtype = c->precision.param,
        .span = r->pretrained.span,
        .overrides_span = r->text_config.span,
        .definition_span = r->definition.span,
    };
    if (!request.models_dir)
        return STATUS_ENV;
    TRY(front_model_load(s, &request, &c->model));
    if (front_recipe_calls(r, "from_pretrained") && !c->model.weights_dir)
        diag(s, r->pretrained.span, driver_weights, r->pretrained.v);
    return STATUS_OK;
}

static IrState state_of(const IrGraph *g, IrValue v)
{
    const IrValueRec *rec = ir_value(g, v);
    return rec->def == IR_DEF_STATE ? rec->state : (IrState){0};
}

/* At MODEL, where both uses of a tied weight still are the state itself. */
static Sym tied_head(const IrModule *m)
{
    const IrGraph *g = ir_graph_find(m, "fwd");
    IrState head = {0};
    for (uint32_t i = 0; g && i < g->order.n; i++)
        if (ir_op_kind(g, g->order.at[i]) == IR_OP_lm_loss)
            head = state_of(g, ir_in(g, g->order.at[i], 1));
    for (uint32_t i = 0; head.i && i < g->order.n; i++)
        if (ir_op_kind(g, g->order.at[i]) == IR_OP_embed &&
            state_of(g, ir_in(g, g->order.at[i], 0)).i == head.i)
            return ir_state_rec(m, head)->name;
    return NULL;
}

Status driver_pass_manager(Session *s, const DriverArgs *args, IrModule *m,
                           const PassOptions *options, PassManager *out_manager)
{
    int64_t bisect;
    *out_manager = (PassManager){
        .s = s,
        .m = m,
        .options = options,
        .dump_after = args->dump_after,
        .dump_out = args->dump_out,
        .stats = args->stats,
        .time = args->time,
        .report_out = stderr,
        .bisect = UINT32_MAX,
    };
    const char *dump = args->dump_after;
    if (dump && strcmp(dump, "all") && strcmp(dump, "changed") && pass_find(dump) == PASS_COUNT)
        return driver_unknown_pass(s, dump);
    if (args->bisect && !strcmp(args->bisect, "0")) {
        out_manager->bisect = 0;
        return STATUS_OK;
    }
    TRY(driver_args_count(s, "--bisect", args->bisect, &bisect));
    if (bisect)
        out_manager->bisect = (uint32_t)bisect;
    return STATUS_OK;
}

static Status find_facts(Session *s, DriverCompiled *c)
{
    c->n_stages = c->m->stages.n ? c->m->stages.n : 1;
    c->stages = c->m->stages.n ? c->m->stages.at : &c->m;
    c->stage_facts = ARENA_ARRAY(s->arena, PassFacts, c->n_stages);
    for (uint32_t i = 0; i < c->n_stages; i++)
        TRY(pass_facts(s, c->stages[i], &c->options, &c->stage_facts[i]));
    pass_facts_merge(s, &c->options, c->stage_facts, c->n_stages, &c->facts);
    return STATUS_OK;
}

Status driver_compile(Session *s, const char *path, const DriverArgs *args, DriverCompiled *out)
{
    PassManager manager;
    *out = (DriverCompiled){0};
    TRY(driver_read_recipe(s, path, args, out));
    TRY(load_model(s, out));
    out->m = out->model.m;
    out->m->micro_batches = out->batch.micro_batches;
    out->tied = tied_head(out->m);
    TRY(driver_pass_manager(s, args, out->m, &out->options, &manager));
    TRY(pass_pipeline(&manager));
    TRY(find_facts(s, out));
    TRY(pass_facts_record(s, &out->options, &out->facts));
    TRY(driver_outside_arena(s, out));
    return s->n_errors ? STATUS_USER : STATUS_OK;
}
