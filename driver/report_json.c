#include "driver/report.h"

#include <stdio.h>
#include <string.h>

static void add_text(cJSON *object, const char *key, const char *text)
{
    cJSON_AddItemToObject(object, key, text ? cJSON_CreateString(text) : cJSON_CreateNull());
}

static void add_count(cJSON *object, const char *key, uint64_t count)
{
    cJSON_AddNumberToObject(object, key, (double)count);
}

static void add_place(Session *s, cJSON *object, Span span)
{
    const char *at =
        span.line ? arena_printf(s->arena, "%s:%u:%u", span.file, span.line, span.col) : span.file;
    add_text(object, "at", at);
}

static cJSON *add_item(cJSON *list)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddItemToArray(list, object);
    return object;
}

/* -- what was compiled -- */

static void add_parameters(cJSON *root, const DriverCompiled *c)
{
    const IrParameters *of = &c->m->parameters;
    cJSON *parameters = cJSON_AddObjectToObject(root, "parameters");
    add_count(parameters, "total", of->elements);
    add_count(parameters, "trained", of->trained);
    add_count(parameters, "tensors", of->tensors);
}

static void add_mesh(cJSON *root, const DriverCompiled *c)
{
    cJSON *mesh = cJSON_AddObjectToObject(root, "mesh");
    add_count(mesh, "dp", (uint64_t)c->batch.dp);
    add_count(mesh, "dp_replicate", (uint64_t)c->stages[0]->mesh.dpr);
    add_text(mesh, "strategy", c->batch.world > 1 ? c->options.strategy : NULL);
    add_count(mesh, "tp", (uint64_t)c->batch.tp);
    add_count(mesh, "pp", (uint64_t)c->batch.pp);
    add_count(mesh, "cp", 1);
    add_count(mesh, "ep", 1);
}

static void add_batch(cJSON *root, const FrontBatch *b)
{
    cJSON *batch = cJSON_AddObjectToObject(root, "batch");
    add_count(batch, "global", (uint64_t)b->global_rows);
    add_count(batch, "rows", (uint64_t)b->rows);
    add_count(batch, "seq", (uint64_t)b->seq);
    add_count(batch, "micro_batches", (uint64_t)b->micro_batches);
    add_count(batch, "tokens_per_step", (uint64_t)(b->global_rows * b->seq));
}

static void add_precision(cJSON *root, const FrontPrecision *p)
{
    cJSON *precision = cJSON_AddObjectToObject(root, "precision");
    add_text(precision, "param", dtype_name(p->param));
    add_text(precision, "compute", dtype_name(p->compute));
    add_text(precision, "grad", dtype_name(p->grad));
    add_text(precision, "accumulate", dtype_name(p->accumulate));
    add_text(precision, "reduce", dtype_name(p->reduce));
    add_text(precision, "moments", dtype_name(p->moments));
    add_text(precision, "master", dtype_name(p->master));
}

/* -- memory -- */

static void add_live(Session *s, cJSON *rank, const PassFacts *f)
{
    cJSON *list = cJSON_AddArrayToObject(rank, "live");
    for (uint32_t i = 0; i < f->live.n; i++) {
        const PassLive *live = &f->live.at[i];
        cJSON *item = add_item(list);
        add_text(item, "name", live->name);
        add_text(item, "type", live->type);
        add_count(item, "bytes", live->bytes);
        add_text(item, "class", pass_byte_class_name(live->cls));
        add_text(item, "scope", live->scope);
        cJSON_AddBoolToObject(item, "persistent", live->persistent);
        add_place(s, item, live->span);
    }
}

static void add_outside(cJSON *rank, const DriverCompiled *c)
{
    cJSON *list = cJSON_AddArrayToObject(rank, "outside_arena");
    for (uint32_t i = 0; i < c->outside.n; i++) {
        cJSON *item = add_item(list);
        add_text(item, "name", c->outside.at[i].name);
        add_count(item, "bytes", c->outside.at[i].bytes);
    }
}

/* A stage's ranks follow each other. */
static void add_rank(Session *s, cJSON *list, const DriverCompiled *c, uint32_t stage)
{
    const PassFacts *f = &c->stage_facts[stage];
    cJSON *rank = add_item(list);
    cJSON *members = cJSON_AddArrayToObject(rank, "ranks");
    int64_t n = c->batch.world / c->n_stages;
    for (int64_t i = 0; i < n; i++)
        cJSON_AddItemToArray(members, cJSON_CreateNumber((double)(stage * n + i)));
    add_count(rank, "stage", stage);
    add_count(rank, "blocks", f->blocks_total);
    add_count(rank, "flops_per_step", f->flops_per_step);
    cJSON_AddNumberToObject(rank, "seconds_per_step", f->seconds_per_step);
    add_count(rank, "arena_bytes", f->arena_bytes);
    add_count(rank, "persistent_bytes", f->persistent_bytes);
    add_count(rank, "transient_bytes", f->transient_bytes);
    add_count(rank, "lower_bound_bytes", f->lower_bound);
    add_count(rank, "gathered_peak_bytes", f->gathered_peak);
    add_count(rank, "gathered_unit_bytes", f->gathered_unit);
    cJSON *breakdown = cJSON_AddObjectToObject(rank, "breakdown");
    for (unsigned i = 0; i < PASS_BYTE_CLASS_COUNT; i++)
        add_count(breakdown, pass_byte_class_name((PassByteClass)i), f->breakdown[i]);
    add_text(rank, "peak_op", f->peak_op);
    add_text(rank, "peak_scope", f->peak_scope);
    cJSON *peak = cJSON_AddObjectToObject(rank, "peak");
    add_place(s, peak, f->peak_span);
    add_outside(rank, c);
    add_live(s, rank, f);
}

/* -- recompute -- */

static void add_roles(cJSON *recompute, const PassFacts *f)
{
    cJSON *parts = cJSON_AddObjectToObject(recompute, "parts");
    for (uint32_t i = 0; i < f->roles.n; i++) {
        const PassRole *role = &f->roles.at[i];
        cJSON *item = cJSON_AddObjectToObject(parts, role->name);
        add_count(item, "total", role->total);
        add_count(item, "recomputed", role->recomputed);
    }
}

static void add_uncovered(Session *s, cJSON *recompute, const PassFacts *f)
{
    cJSON *list = cJSON_AddArrayToObject(recompute, "uncovered");
    for (uint32_t i = 0; i < f->uncovered.n; i++) {
        const PassEscape *escape = &f->uncovered.at[i];
        cJSON *item = add_item(list);
        add_text(item, "name", escape->name);
        add_text(item, "type", escape->type);
        add_count(item, "bytes", escape->bytes);
        add_text(item, "block", escape->block);
        add_text(item, "part", escape->part);
        add_text(item, "role", escape->role);
        add_text(item, "read_by", escape->read_by);
        add_place(s, item, escape->span);
    }
}

static void add_blocks(Session *s, cJSON *recompute, const PassFacts *f)
{
    cJSON *list = cJSON_AddArrayToObject(recompute, "blocks");
    for (uint32_t i = 0; i < f->blocks.n; i++) {
        const PassBlock *block = &f->blocks.at[i];
        cJSON *item = add_item(list);
        add_text(item, "name", block->name);
        cJSON_AddBoolToObject(item, "covered", block->covered);
        add_count(item, "parts_total", block->parts_total);
        add_count(item, "parts_recomputed", block->parts_recomputed);
        add_count(item, "saved_bytes", block->saved_bytes);
        add_count(item, "replayed_flops", block->replayed_flops);
        add_place(s, item, block->span);
    }
}

static void add_saved(Session *s, cJSON *recompute, const PassFacts *f)
{
    cJSON *list = cJSON_AddArrayToObject(recompute, "saved");
    for (uint32_t i = 0; i < f->saved.n; i++) {
        cJSON *item = add_item(list);
        add_text(item, "name", f->saved.at[i].name);
        add_count(item, "bytes", f->saved.at[i].bytes);
        add_text(item, "scope", f->saved.at[i].scope);
        add_place(s, item, f->saved.at[i].span);
    }
}

static void add_dropped(Session *s, cJSON *recompute, const PassFacts *f)
{
    cJSON *list = cJSON_AddArrayToObject(recompute, "dropped");
    for (uint32_t i = 0; i < f->dropped.n; i++) {
        cJSON *item = add_item(list);
        add_text(item, "name", f->dropped.at[i].name);
        add_text(item, "op", f->dropped.at[i].op);
        add_text(item, "scope", f->dropped.at[i].scope);
        add_place(s, item, f->dropped.at[i].span);
    }
}

static void add_recompute(Session *s, cJSON *root, const DriverCompiled *c)
{
    const PassFacts *f = &c->facts;
    cJSON *recompute = cJSON_AddObjectToObject(root, "recompute");
    add_text(recompute, "policy", f->policy);
    if (c->options.recompute_pointwise)
        cJSON_AddTrueToObject(recompute, "pointwise");
    add_count(recompute, "blocks_total", f->blocks_total);
    add_count(recompute, "blocks_covered", f->blocks_covered);
    add_roles(recompute, f);
    add_uncovered(s, recompute, f);
    add_count(recompute, "saved_bytes", f->saved_bytes);
    add_count(recompute, "replayed_flops", f->replayed_flops);
    add_count(recompute, "replayed_ops", f->replayed_ops);
    add_count(recompute, "dropped_replays", f->dropped_replays);
    add_dropped(s, recompute, f);
    add_blocks(s, recompute, f);
    add_saved(s, recompute, f);
}

/* -- work and records -- */

static void add_kernels(cJSON *root, const PassFacts *f)
{
    cJSON *list = cJSON_AddArrayToObject(root, "kernels");
    for (uint32_t i = 0; i < f->kernels.n; i++) {
        cJSON *item = add_item(list);
        add_text(item, "name", f->kernels.at[i].name);
        add_count(item, "count", f->kernels.at[i].count);
        add_count(item, "replays", f->kernels.at[i].replays);
        add_count(item, "flops", f->kernels.at[i].flops);
    }
}

/* Of one step, on every rank: bytes are what one rank hands in. */
static void add_collectives(cJSON *root, const PassFacts *f)
{
    cJSON *list = cJSON_AddArrayToObject(root, "collectives");
    for (uint32_t i = 0; i < f->collectives.n; i++) {
        cJSON *item = add_item(list);
        add_text(item, "kind", f->collectives.at[i].kind);
        add_text(item, "communicator", f->collectives.at[i].comm);
        add_count(item, "ranks", f->collectives.at[i].ranks);
        add_count(item, "count", f->collectives.at[i].count);
        add_count(item, "bytes", f->collectives.at[i].bytes);
    }
}

static void add_pipeline(cJSON *root, const DriverCompiled *c)
{
    cJSON *pipeline = cJSON_AddObjectToObject(root, "pipeline");
    add_text(pipeline, "schedule", c->options.pp_schedule);
    add_count(pipeline, "stages", c->n_stages);
    add_count(pipeline, "chunks", (uint64_t)c->options.pp_chunks);
    cJSON_AddNumberToObject(pipeline, "bubble", c->facts.bubble);
}

static void add_records(Session *s, cJSON *root)
{
    cJSON *list = cJSON_AddArrayToObject(root, "records");
    for (uint32_t i = 0; i < s->records.n; i++) {
        cJSON *item = add_item(list);
        add_text(item, "code", s->records.at[i].code);
        add_text(item, "message", s->records.at[i].message);
        add_place(s, item, s->records.at[i].span);
    }
}

cJSON *driver_report_json(Session *s, const DriverCompiled *c)
{
    const PassFacts *f = &c->facts;
    cJSON *root = cJSON_CreateObject();
    add_text(root, "model", c->m->model);
    add_text(root, "pretrained", c->recipe.pretrained.v);
    add_text(root, "recipe", c->recipe.path);
    add_text(root, "target", c->target);
    add_count(root, "world", (uint64_t)c->batch.world);
    add_mesh(root, c);
    add_batch(root, &c->batch);
    add_precision(root, &c->precision);
    add_parameters(root, c);
    cJSON *ranks = cJSON_AddArrayToObject(root, "ranks");
    for (uint32_t i = 0; i < c->n_stages; i++)
        add_rank(s, ranks, c, i);
    add_recompute(s, root, c);
    add_count(root, "flops_per_step", f->flops_per_step);
    add_count(root, "bytes_per_step", f->bytes_per_step);
    cJSON_AddNumberToObject(root, "seconds_per_step", f->seconds_per_step);
    if (c->n_stages > 1)
        add_pipeline(root, c);
    add_collectives(root, f);
    add_count(root, "instructions", f->instructions);
    add_count(root, "eval_instructions", f->eval_instructions);
    add_kernels(root, f);
    add_records(s, root);
    return root;
}

const char *driver_report_print(Session *s, const cJSON *report, bool pretty)
{
    char *text = pretty ? cJSON_Print(report) : cJSON_PrintUnformatted(report);
    const char *copy = arena_strndup(s->arena, text, strlen(text));
    cJSON_free(text);
    return copy;
}

/* -- reading -- */

double driver_json_number(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

const char *driver_json_text(const cJSON *object, const char *key)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
    return text ? text : "";
}

const char *driver_bytes_text(char buffer[32], double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    unsigned unit = 0;
    while (bytes >= 1024 && unit < 4) {
        bytes /= 1024;
        unit++;
    }
    snprintf(buffer, 32, unit ? "%.2f %s" : "%.0f %s", bytes, units[unit]);
    return buffer;
}

const char *driver_count_text(char buffer[32], double count)
{
    static const char *const units[] = {"", " K", " M", " B", " T", " P", " E"};
    unsigned unit = 0;
    while (count >= 10000 && unit < 6) {
        count /= 1000;
        unit++;
    }
    if (unit && count >= 1000 && unit < 6) {
        count /= 1000;
        unit++;
    }
    snprintf(buffer, 32, unit ? "%.3g%s" : "%.0f%s", count, units[unit]);
    return buffer;
}
