/* config.json and definition to a module: what the driver calls. */
#include "frontend/model_eval.h"

#include <inttypes.h>

static const FrontModelDef *find_model(const FrontDefs *defs, Sym type)
{
    for (uint32_t i = 0; i < defs->models.n; i++)
        for (uint32_t k = 0; k < defs->models.at[i]->types.n; k++)
            if (defs->models.at[i]->types.at[k].name == type)
                return defs->models.at[i];
    return NULL;
}

static Status choose_model(Session *s, const FrontDefs *defs, const FrontConfig *config,
                           const char *path, const FrontModelDef **out)
{
    const char *known = "";
    *out = find_model(defs, config->model_type);
    if (*out)
        return STATUS_OK;
    for (uint32_t i = 0; i < defs->models.n; i++)
        for (uint32_t k = 0; k < defs->models.at[i]->types.n; k++)
            known = arena_printf(s->arena, "%s%s`%s`", known, known[0] ? ", " : "",
                                 defs->models.at[i]->types.at[k].name);
    diag(s, front_config_span(config, sym(s, "model_type")), front_no_model, path,
         config->model_type, known[0] ? known : "none");
    return STATUS_USER;
}

/* A model that is named by nothing but its overrides still has a config. */
static Status load_config(Session *s, const FrontModelRequest *request, FrontConfig *out)
{
    if (request->pretrained)
        return front_config_load(s, request, out);
    const char *text = request->overrides_json ? request->overrides_json : "{}";
    session_add_source(s, (Source){sym(s, "model config"), text, strlen(text)});
    return front_config_parse(s, "model config", text, strlen(text), NULL, request->overrides_span,
                              out);
}

static Status write_out(Session *s, const FrontModelRequest *request, const FrontConfig *config,
                        const FrontDefs *defs, const char *definition, FrontEval *e)
{
    uint32_t errors = s->n_errors;
    *e = (FrontEval){.s = s, .defs = defs, .config = config, .request = request};
    TRY(choose_model(s, defs, config, definition, &e->model));
    TRY(front_eval_model(e));
    front_config_report_unread(s, config, e->config_read.at, e->config_read.n, e->model->name.name);
    return s->n_errors > errors ? STATUS_USER : STATUS_OK;
}

static Status load(Session *s, const FrontModelRequest *request, FrontConfig *config,
                   FrontDefs *defs, FrontEval *e)
{
    const char *definition;
    TRY(load_config(s, request, config));
    TRY(front_definition_find(s, request, config, &definition));
    TRY(front_model_parse_file(s, definition, request->definition_span, defs));
    return write_out(s, request, config, defs, definition, e);
}

static void give(const FrontEval *e, const FrontConfig *config, const char *overrides_json,
                 FrontModel *out_model)
{
    const char *text =
        front_config_settled(e->s, config, overrides_json, e->request->param_dtype);
    *out_model = (FrontModel){.m = e->m,
                              .config_text = text,
                              .config_path = config->path,
                              .weights_dir = config->weights_dir};
    memcpy(out_model->has_optional_input, e->has_optional_input, sizeof e->has_optional_input);
}

Status front_model_load(Session *s, const FrontModelRequest *request, FrontModel *out_model)
{
    FrontConfig config;
    FrontDefs defs = {0};
    FrontEval e;
    TRY(load(s, request, &config, &defs, &e));
    give(&e, &config, request->pretrained ? request->overrides_json : NULL, out_model);
    return STATUS_OK;
}

Status front_model_from_text(Session *s, const FrontModelRequest *request, const char *definition,
                             const char *config_json, FrontModel *out_model)
{
    FrontConfig config;
    FrontDefs defs = {0};
    FrontEval e;
    session_add_source(s, (Source){sym(s, "config.json"), config_json, strlen(config_json)});
    TRY(front_config_parse(s, "config.json", config_json, strlen(config_json),
                           request->overrides_json, request->overrides_span, &config));
    TRY(front_model_parse(s, "text.model", definition, strlen(definition), &defs));
    TRY(write_out(s, request, &config, &defs, "text.model", &e));
    give(&e, &config, request->overrides_json, out_model);
    return STATUS_OK;
}

/* -- stepc import -- */

static void describe_counts(const IrModule *m, FILE *out)
{
    int64_t parameters = 0, tables = 0, buffers = 0;
    uint32_t tensors = 0, blocks = 0;
    const IrGraph *g = ir_graph_find(m, "fwd");
    for (uint32_t i = 1; i < m->states.n; i++) {
        const IrStateRec *rec = &m->states.at[i];
        int64_t *count = rec->kind == IR_STATE_PARAM ? &parameters : &buffers;
        *count += ir_type_numel(m, rec->type);
        tensors += rec->kind == IR_STATE_PARAM;
    }
    Map seen;
    map_init(&seen, m->s->arena);
    for (uint32_t i = 0; i < g->order.n; i++) {
        if (ir_op_kind(g, g->order.at[i]) != IR_OP_embed)
            continue;
        IrValue table = ir_in(g, g->order.at[i], 0);
        if (!map_get(&seen, table.i, NULL))
            tables += ir_type_numel(m, ir_value_type(g, table));
        map_put(&seen, table.i, 1);
    }
    for (uint32_t i = 1; i < m->scopes.n; i++)
        blocks += m->scopes.at[i].kind == IR_SCOPE_BLOCK;
    fprintf(out, "parameters   %" PRId64 " (%.3f B) in %u tensors", parameters,
            (double)parameters / 1e9, tensors);
    fprintf(out, ", %" PRId64 " of them (%.3f B) in embedding tables\n", tables,
            (double)tables / 1e9);
    if (buffers)
        fprintf(out, "buffers      %" PRId64 " elements\n", buffers);
    fprintf(out, "blocks       %u\n", blocks);
}

static void describe_axes(const IrModule *m, FILE *out)
{
    fprintf(out, "axes        ");
    for (uint32_t i = 0; i < m->axes.n; i++)
        if (strcmp(m->axes.at[i].name, "batch") && strcmp(m->axes.at[i].name, "seq"))
            fprintf(out, " %s=%" PRId64, m->axes.at[i].name, m->axes.at[i].size);
    fputc('\n', out);
}

static void describe_roles(const IrModule *m, FILE *out)
{
    VEC(Sym) roles = {0};
    VEC(uint32_t) counts = {0};
    for (uint32_t i = 1; i < m->scopes.n; i++) {
        if (m->scopes.at[i].kind != IR_SCOPE_PART)
            continue;
        uint32_t k = 0;
        while (k < roles.n && roles.at[k] != m->scopes.at[i].role)
            k++;
        if (k == roles.n) {
            vec_push(m->s->arena, &roles, m->scopes.at[i].role);
            vec_push(m->s->arena, &counts, 0);
        }
        counts.at[k]++;
    }
    fprintf(out, "parts       ");
    for (uint32_t k = 0; k < roles.n; k++)
        fprintf(out, " %s=%u", roles.at[k], counts.at[k]);
    fputc('\n', out);
}

static void describe_records(const Session *s, FILE *out)
{
    for (uint32_t i = 0; i < s->records.n; i++)
        fprintf(out, "record       %s\n", s->records.at[i].message);
}

Status front_config_describe(Session *s, const FrontModelRequest *request, FILE *out)
{
    FrontConfig config;
    FrontDefs defs = {0};
    FrontEval e;
    TRY(load(s, request, &config, &defs, &e));
    fprintf(out, "model        %s, for model_type `%s`\n", e.model->name.name, config.model_type);
    fprintf(out, "definition   %s\n", e.model->name.span.file);
    fprintf(out, "config       %s\n", config.path);
    fprintf(out, "weights      %s\n", config.weights_dir ? config.weights_dir : "none here");
    describe_axes(e.m, out);
    describe_counts(e.m, out);
    describe_roles(e.m, out);
    describe_records(s, out);
    return STATUS_OK;
}
