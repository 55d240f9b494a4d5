#include "passes/pass.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/diag.h"
#include "ir/print.h"
#include "ir/verify.h"

static const PassInfo infos[] = {
#define PASS(id, name, doc, from, to, optional, verifier, needs) \
    {name, doc, pass_##id, IR_##from, IR_##to, needs, optional, verifier},
#include "passes/passes.def"
#undef PASS
};

const PassInfo *pass_info(PassId id)
{
    return &infos[id];
}

PassId pass_find(const char *name)
{
    for (unsigned id = 0; id < PASS_COUNT; id++)
        if (!strcmp(infos[id].name, name))
            return (PassId)id;
    return PASS_COUNT;
}

void pass_stat(PassContext *c, const char *name, int64_t add)
{
    for (uint32_t i = 0; i < c->stats.n; i++) {
        if (!strcmp(c->stats.at[i].name, name)) {
            c->stats.at[i].value += add;
            return;
        }
    }
    vec_push(c->scratch, &c->stats, ((struct PassStat){name, add}));
}

uint32_t pass_find_op(const IrGraph *g, IrOpKind kind)
{
    uint32_t i = 0;
    while (i < g->order.n && ir_op_kind(g, g->order.at[i]) != kind)
        i++;
    return i;
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static bool disabled(const PassManager *manager, const PassInfo *info)
{
    for (uint32_t i = 0; i < manager->options->disable.n; i++)
        if (!strcmp(manager->options->disable.at[i], info->name))
            return true;
    return false;
}

static char *module_text(const IrModule *m, size_t *out_length)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, out_length);
    ir_print(out, m);
    fclose(out);
    return text;
}

/* What --dump-after asks for: one pass by name, all, or those that changed something. */
static void dump(PassManager *manager, const PassInfo *info, const char *before)
{
    const char *want = manager->dump_after;
    if (!want || info->is_verifier)
        return;
    bool changed = !strcmp(want, "changed");
    if (!changed && strcmp(want, "all") && strcmp(want, info->name))
        return;
    size_t length = 0;
    char *after = module_text(manager->m, &length);
    const IrModule *m = manager->m;
    fprintf(manager->dump_out, "# after %s", info->name);
    if (m->mesh.pp > 1 && !m->stages.n)
        fprintf(manager->dump_out, ", stage %u", m->stage);
    if (changed && before && !strcmp(before, after))
        fprintf(manager->dump_out, ": unchanged\n");
    else
        fprintf(manager->dump_out, "\n%s", after);
    fflush(manager->dump_out); /* whole, whatever the next pass does */
    free(after);
}

static void report(PassManager *manager, const PassContext *c, const PassInfo *info, double ms)
{
    if (manager->time)
        fprintf(manager->report_out, "%-18s %9.2f ms\n", info->name, ms);
    for (uint32_t i = 0; manager->stats && i < c->stats.n; i++)
        fprintf(manager->report_out, "%-18s %9lld %s\n", info->name,
                (long long)c->stats.at[i].value, c->stats.at[i].name);
}

/* A module that was not written by the passes before may be at another level, or lack a graph. */
static Status check_input(PassManager *manager, const PassInfo *info)
{
    static const char *const levels[] = {"model", "step", "local", "planned"};
    if (manager->m->level != info->from) {
        diag(manager->s, no_span, pass_level, info->name, levels[info->from],
             levels[manager->m->level]);
        return STATUS_USER;
    }
    for (const char *at = info->needs; *at;) {
        size_t length = strcspn(at, " ");
        Sym name = intern_n(&manager->s->interner, at, length);
        if (!ir_graph_find(manager->m, name)) {
            diag(manager->s, no_span, pass_graph, info->name, name);
            return STATUS_USER;
        }
        at += length + (at[length] == ' ');
    }
    return STATUS_OK;
}

static Status run_on_module(PassManager *manager, const PassInfo *info)
{
    TRY(check_input(manager, info));
    bool compare = manager->dump_after && !strcmp(manager->dump_after, "changed");
    size_t length = 0;
    char *before = compare ? module_text(manager->m, &length) : NULL;
    PassContext c = {.s = manager->s, .m = manager->m, .options = manager->options};
    c.scratch = arena_new();
    double start = now_ms();
    uint32_t errors = manager->s->n_errors;
    Status status = info->run(&c);
    if (status == STATUS_OK && manager->s->n_errors > errors)
        status = STATUS_USER; /* a record under --strict */
    if (status == STATUS_OK) {
        manager->m->level = info->to;
        report(manager, &c, info, now_ms() - start);
        dump(manager, info, before);
        if (!info->is_verifier && ir_verify(manager->s, manager->m) != STATUS_OK) {
            diag(manager->s, no_span, pass_broke, info->name);
            status = STATUS_BUG;
        }
    }
    free(before);
    arena_free(c.scratch);
    return status;
}

/* Of a pipeline, on every stage's module; what ranks exchange is checked over all of them. */
static Status run_on_stages(PassManager *manager, const PassInfo *info)
{
    IrModule *whole = manager->m;
    for (uint32_t i = 0; i < whole->stages.n; i++) {
        manager->m = whole->stages.at[i];
        Status status = run_on_module(manager, info);
        manager->m = whole;
        TRY(status);
    }
    whole->level = info->to;
    return STATUS_OK;
}

Status pass_run(PassManager *manager, PassId id)
{
    const PassInfo *info = &infos[id];
    if (info->optional) {
        if (disabled(manager, info) || manager->bisect == 0)
            return STATUS_OK;
        if (manager->bisect != UINT32_MAX)
            manager->bisect--;
    }
    if (manager->m->stages.n && id != PASS_verify_collectives)
        return run_on_stages(manager, info);
    return run_on_module(manager, info);
}
