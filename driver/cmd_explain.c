#include <string.h>

#include "base/diag.h"
#include "driver/commands.h"
#include "frontend/recipe.h"
#include "ir/doc.h"
#include "passes/pass.h"

static const char *level_name(IrLevel level)
{
    static const char *const names[] = {"MODEL", "STEP", "LOCAL", "PLANNED"};
    return names[level];
}

static void explain_pass(FILE *out, const PassInfo *info)
{
    fprintf(out, "pass %s: %s\n  reads level %s, leaves level %s%s%s\n", info->name, info->doc,
            level_name(info->from), level_name(info->to),
            info->optional ? "; --disable may leave it out" : "",
            info->is_verifier ? "; a verifier" : "");
    if (*info->needs)
        fprintf(out, "  needs graphs: %s\n", info->needs);
}

static const char *severity_name(DiagSeverity severity)
{
    static const char *const names[] = {"error", "warning", "note", "hint", "record"};
    return names[severity];
}

static void explain_diag(FILE *out, const DiagInfo *info)
{
    fprintf(out, "%s %s: %s\n", severity_name(info->severity), info->name, info->format);
}

static void explain_key(FILE *out, const FrontKeyInfo *key)
{
    if (!key->used) {
        fprintf(out, "key %s: not used: %s\n", key->path, key->doc);
        return;
    }
    fprintf(out, "key %s (%s): %s\n", key->path, key->type, key->doc);
    if (key->preset)
        fprintf(out, "  default: %s\n", key->preset);
    if (key->rule)
        fprintf(out, "  %s: %s\n", strchr("[(", key->rule[0]) ? "range" : "one of", key->rule);
}

/* -- whole tables, as the documents hold them -- */

static void put_escaped(FILE *out, const char *text)
{
    for (; *text; text++)
        fprintf(out, *text == '|' ? "\\|" : "%c", *text);
}

static void recipe_markdown(FILE *out)
{
    fprintf(out, "| key | type | default | values | effect |\n|---|---|---|---|---|\n");
    for (uint32_t i = 0; i < front_recipe_n_keys(); i++) {
        FrontKeyInfo key = front_recipe_key(i);
        if (!key.used)
            continue;
        fprintf(out, "| `%s` | %s | %s | ", key.path, key.type, key.preset ? key.preset : "");
        put_escaped(out, key.rule ? key.rule : "");
        fprintf(out, " | %s |\n", key.doc);
    }
    fprintf(out, "\nKeys that are accepted and not used, listed once in a record:\n\n| key | why "
                 "|\n|---|---|\n");
    for (uint32_t i = 0; i < front_recipe_n_keys(); i++) {
        FrontKeyInfo key = front_recipe_key(i);
        if (!key.used)
            fprintf(out, "| `%s` | %s |\n", key.path, key.doc);
    }
}

static void passes_markdown(FILE *out)
{
    fprintf(out, "# Passes\n\n| pass | what it does | levels | |\n|---|---|---|---|\n");
    for (unsigned id = 0; id < PASS_COUNT; id++) {
        const PassInfo *info = pass_info((PassId)id);
        fprintf(out, "| `%s` | %s | %s to %s | %s |\n", info->name, info->doc,
                level_name(info->from), level_name(info->to),
                info->is_verifier ? "verifier"
                : info->optional  ? "optional"
                                  : "");
    }
}

static void diagnostics_markdown(FILE *out)
{
    fprintf(out, "# Diagnostics\n\n| name | kind | message |\n|---|---|---|\n");
    for (unsigned id = 0; id < DIAG_ID_COUNT; id++) {
        const DiagInfo *info = diag_info((DiagId)id);
        fprintf(out, "| `%s` | %s | ", info->name, severity_name(info->severity));
        put_escaped(out, info->format);
        fprintf(out, " |\n");
    }
}

static bool explain_table(FILE *out, const char *name)
{
    static const struct {
        const char *name;
        void (*print)(FILE *out);
    } tables[] = {
        {"ops", ir_ops_markdown},
        {"passes", passes_markdown},
        {"diagnostics", diagnostics_markdown},
        {"recipe", recipe_markdown},
    };
    for (unsigned i = 0; i < sizeof tables / sizeof *tables; i++) {
        if (strcmp(tables[i].name, name))
            continue;
        tables[i].print(out);
        return true;
    }
    return false;
}

/* -- one name -- */

static bool explain_one(FILE *out, const char *name)
{
    bool found = false;
    IrOpKind op = ir_op_find(name);
    if (op != IR_OP_none) {
        ir_explain_op(out, op);
        found = true;
    }
    PassId pass = pass_find(name);
    if (pass != PASS_COUNT) {
        explain_pass(out, pass_info(pass));
        found = true;
    }
    for (unsigned id = 0; id < DIAG_ID_COUNT; id++) {
        if (strcmp(diag_info((DiagId)id)->name, name))
            continue;
        explain_diag(out, diag_info((DiagId)id));
        found = true;
    }
    for (uint32_t i = 0; i < front_recipe_n_keys(); i++) {
        FrontKeyInfo key = front_recipe_key(i);
        if (strcmp(key.path, name))
            continue;
        explain_key(out, &key);
        found = true;
    }
    return found;
}

static const char *nearest(Session *s, const char *name)
{
    VEC(const char *) names = {0};
    for (unsigned kind = 1; kind < IR_OP_COUNT; kind++)
        vec_push(s->arena, &names, ir_op_info((IrOpKind)kind)->name);
    for (unsigned id = 0; id < PASS_COUNT; id++)
        vec_push(s->arena, &names, pass_info((PassId)id)->name);
    for (unsigned id = 0; id < DIAG_ID_COUNT; id++)
        vec_push(s->arena, &names, diag_info((DiagId)id)->name);
    for (uint32_t i = 0; i < front_recipe_n_keys(); i++)
        vec_push(s->arena, &names, front_recipe_key(i).path);
    return diag_nearest(name, names.at, names.n);
}

Status driver_cmd_explain(Session *s, const DriverArgs *args)
{
    const char *name = args->operands.at[0];
    bool table = explain_table(stdout, name);
    if (table || explain_one(stdout, name))
        return STATUS_OK;
    diag(s, no_span, driver_explain, name);
    const char *near = nearest(s, name);
    if (near)
        diag(s, no_span, did_you_mean, near);
    return STATUS_USER;
}
