#include <string.h>

#include "base/diag.h"
#include "driver/commands.h"
#include "driver/compile.h"
#include "driver/report.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"

typedef VEC(PassId) PassList;

static Status add_pass(Session *s, const char *name, size_t length, PassId *out_id)
{
    Sym word = intern_n(&s->interner, name, length);
    *out_id = pass_find(word);
    return *out_id == PASS_COUNT ? driver_unknown_pass(s, word) : STATUS_OK;
}

/* `a,b,c..e`: a range is of the table's order. */
static Status parse_passes(Session *s, const char *text, PassList *list)
{
    while (text && *text) {
        size_t length = strcspn(text, ",");
        const char *dots = strstr(text, "..");
        PassId first, last;
        bool range = dots && dots < text + length;
        TRY(add_pass(s, text, range ? (size_t)(dots - text) : length, &first));
        last = first;
        if (range)
            TRY(add_pass(s, dots + 2, (size_t)(text + length - dots - 2), &last));
        if (last < first) {
            const char *later = pass_info(first)->name, *earlier = pass_info(last)->name;
            diag(s, no_span, driver_range, later, earlier, earlier);
            return STATUS_USER;
        }
        for (unsigned id = first; id <= (unsigned)last; id++)
            vec_push(s->arena, list, (PassId)id);
        text += length + (text[length] == ',');
    }
    return STATUS_OK;
}

/* What a module's own regions say, where no recipe does. */
static Sym policy_of(Session *s, const IrModule *m)
{
    const IrGraph *fwd = ir_graph_find(m, "fwd");
    for (uint32_t i = 1; fwd && i < fwd->regions.n; i++)
        if (fwd->regions.at[i].kind == IR_REGION_RECOMPUTE)
            return fwd->regions.at[i].policy;
    return sym(s, "none");
}

static DType dtype_of_params(const IrModule *m)
{
    for (uint32_t i = 1; i < m->states.n; i++)
        if (m->states.at[i].kind == IR_STATE_PARAM)
            return ir_type_info(m, m->states.at[i].type)->dtype;
    return DTYPE_F32;
}

static PassOptions default_options(Session *s, const DriverArgs *args, const IrModule *m)
{
    DType dtype = dtype_of_params(m);
    PassOptions o = {
        .target = args->target && !strcmp(args->target, "cuda") ? PASS_TARGET_CUDA
                                                                 : PASS_TARGET_CPU,
        .micro_batches = m->micro_batches ? m->micro_batches : 1,
        .param = dtype,
        .compute = dtype,
        .grad = dtype,
        .accumulate = dtype == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32,
        .moments = dtype,
        .master = DTYPE_NONE,
        .recompute_policy = policy_of(s, m),
        .strategy = sym(s, "fsdp2"),
        .optimizer = sym(s, "adamw"),
        .beta1 = 0.9,
        .beta2 = 0.999,
        .eps = 1e-8,
        .max_norm = 1,
        .eval = true,
    };
    vec_push(s->arena, &o.groups, ((PassGroup){sym(s, "*"), 0.01, no_span}));
    return o;
}

static Status read_module(Session *s, const char *path, IrModule **out)
{
    Source source;
    TRY(session_read_source(s, path, no_span, &source));
    TRY(ir_parse(s, &source, out));
    return ir_verify(s, *out);
}

/* What recompute came to, once it can be measured. */
static Status tell_coverage(Session *s, IrModule *m, const PassOptions *options)
{
    PassFacts facts;
    char bytes[32];
    if (m->level != IR_PLANNED || !m->arena_bytes || !ir_graph_find(m, "step"))
        return STATUS_OK;
    TRY(pass_facts(s, m, options, &facts));
    TRY(pass_facts_record(s, options, &facts));
    if (!strcmp(facts.policy, "none") || facts.blocks_covered == facts.blocks_total)
        return STATUS_OK;
    diag(s, no_span, driver_coverage, facts.blocks_covered, facts.blocks_total);
    for (uint32_t i = 0; i < facts.uncovered.n; i++) {
        const PassEscape *e = &facts.uncovered.at[i];
        diag(s, e->span, driver_escape, e->name, e->type,
             driver_bytes_text(bytes, (double)e->bytes),
             e->part    ? e->part
             : e->block ? e->block
                        : "the model",
             e->read_by ? e->read_by : "nothing");
    }
    return STATUS_OK;
}

/* What a verifier finds is a fault of the text, unless a pass has changed it before. */
static Status run_passes(PassManager *manager, const PassList *list)
{
    bool changed = false;
    for (uint32_t i = 0; i < list->n; i++) {
        Status status = pass_run(manager, list->at[i]);
        changed |= !pass_info(list->at[i])->is_verifier;
        if (status != STATUS_OK)
            return status == STATUS_BUG && !changed ? STATUS_USER : status;
    }
    return STATUS_OK;
}

Status driver_cmd_opt(Session *s, const DriverArgs *args)
{
    IrModule *m;
    PassList list = {0};
    PassManager manager;
    DriverCompiled compiled = {0};
    TRY(driver_args_choice(s, "--target", args->target, "cpu", "cuda"));
    TRY(driver_args_choice(s, "--emit", args->emit, "ir", "ptx"));
    TRY(parse_passes(s, args->passes, &list));
    TRY(read_module(s, args->operands.at[0], &m));
    if (args->recipe)
        TRY(driver_read_recipe(s, args->recipe, args, &compiled));
    else
        compiled.options = default_options(s, args, m);
    if (args->target)
        compiled.options.target = strcmp(args->target, "cuda") ? PASS_TARGET_CPU : PASS_TARGET_CUDA;
    if (!args->recipe)
        TRY(driver_disable_passes(s, args, &compiled.options));
    TRY(driver_pass_manager(s, args, m, &compiled.options, &manager));
    TRY(run_passes(&manager, &list));
    TRY(driver_emit(s, m, args->emit));
    Status status = tell_coverage(s, m, &compiled.options);
    for (uint32_t i = 0; !s->strict && i < s->records.n; i++)
        fprintf(stderr, "record: %s\n", s->records.at[i].message);
    return status;
}
