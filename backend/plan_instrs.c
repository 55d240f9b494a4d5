#include "base/diag.h"
#include "backend/plan_write.h"
#include "runtime/abi/workspace.h"

typedef struct Writer { /* one graph */
    PlanWriter *w;
    const IrGraph *g;
    EmitScan scan;
    uint32_t *last; /* by value that owns memory: 1 + the last instruction that touches it */
    uint32_t n_instrs;
    bool eval;
} Writer;

/* A run of the order that is one instruction: a kernel region, or one op. */
typedef struct Run {
    const IrOp *ops;
    uint32_t n;
} Run;

static Run run_at(const IrGraph *g, uint32_t at)
{
    const IrOp *ops = &g->order.at[at];
    Run run = {ops, 1};
    if (ir_in_kernel(g, ops[0]))
        while (at + run.n < g->order.n &&
               ir_op(g, ops[run.n])->region.i == ir_op(g, ops[0])->region.i)
            run.n++;
    return run;
}

/* Views have no code, nor has a concat whose parts are written in place. */
static bool has_code(const IrGraph *g, Run run)
{
    IrOp op = run.ops[0];
    if (ir_in_kernel(g, op))
        return true;
    if (ir_op_info(ir_op_kind(g, op))->traits & IR_VIEW)
        return false;
    IrValue part = ir_op_kind(g, op) == IR_OP_concat ? ir_in(g, op, 0) : (IrValue){0};
    return !part.i || ir_value(g, part)->place.base.i != ir_out(g, op, 0).i;
}

/* -- names -- */

static const char *scope_name(const IrGraph *g, IrOp op)
{
    IrScope scope = ir_op(g, op)->scope;
    return scope.i ? ir_scope_rec(g->m, scope)->name : "";
}

/* What stands for the instruction: its last op's first result, or the state that it updates. */
static uint32_t instr_name(PlanWriter *w, const IrGraph *g, Run run)
{
    IrOp op = run.ops[run.n - 1];
    const IrOpRec *rec = ir_op(g, op);
    const char *scope = scope_name(g, run.ops[0]), *space = *scope ? " " : "";
    if (rec->n_out)
        return plan_string_format(w, "%s%s%%%s", scope, space, ir_value(g, ir_out(g, op, 0))->name);
    const char *kind = ir_op_info((IrOpKind)rec->kind)->name;
    const IrValueRec *first = ir_value(g, ir_in(g, op, 0));
    return plan_string_format(w, "%s%s%s %c%s", scope, space, kind,
                              first->def == IR_DEF_STATE ? '$' : '%', first->name);
}

static PlanPhase phase_of(const Writer *x, IrOp op)
{
    static const struct {
        const char *graph;
        PlanPhase phase;
    } phases[] = {{"begin", PLAN_BEGIN},
                  {"count", PLAN_BEGIN},
                  {"fwd", PLAN_FWD},
                  {"bwd", PLAN_BWD},
                  {"update", PLAN_UPDATE}};
    Sym graph = ir_op(x->g, op)->graph;
    for (uint32_t i = 0; !x->eval && graph && i < sizeof phases / sizeof *phases; i++)
        if (!strcmp(graph, phases[i].graph))
            return phases[i].phase;
    return x->eval ? PLAN_EVAL : PLAN_FWD;
}

/* -- one instruction -- */

static PlanInstr start_instr(const Writer *x, Run run)
{
    PlanWriter *w = x->w;
    const IrOpRec *rec = ir_op(x->g, run.ops[0]);
    const BackendFlops *of = w->options->flops ? &w->options->flops[w->m->stage] : NULL;
    const uint64_t *flops = !of ? NULL : x->eval ? of->eval : of->step;
    PlanInstr instr = {.first_tensor = w->tensors.n,
                       .first_param = w->params.n,
                       .first_death = w->deaths.n,
                       .workspace = PLAN_ABSENT,
                       .instance = rec->instance,
                       .replay = 1};
    instr.name = instr_name(w, x->g, run);
    instr.phase = phase_of(x, run.ops[0]);
    for (uint32_t i = 0; i < run.n; i++) {
        Span span = ir_op(x->g, run.ops[i])->span;
        if (!instr.line && span.line) {
            instr.line = span.line;
            instr.file = plan_string(w, span.file);
        }
        instr.replay &= ir_op(x->g, run.ops[i])->re != NULL;
        instr.flops += flops ? flops[run.ops[i].i] : 0;
    }
    if (run.ops[0].i < x->g->workspaces.n) {
        IrPlace place = x->g->workspaces.at[run.ops[0].i];
        if (place.run > 0 && place.offset >= 0) {
            instr.workspace = (uint64_t)place.offset;
            instr.workspace_bytes = (uint64_t)place.run;
        }
    }
    return instr;
}

static void push_tensor(PlanWriter *w, PlanInstr *instr, PlanTensor tensor)
{
    vec_push(w->arena, &w->tensors, tensor);
    instr->n_tensors++;
}

static void push_param(PlanWriter *w, PlanInstr *instr, PlanParam param)
{
    vec_push(w->arena, &w->params, param);
    instr->n_params++;
}

static Status write_fused(Writer *x, Run run, PlanInstr *instr)
{
    PlanWriter *w = x->w;
    EmitRegion region;
    TRY(emit_scan_region(&x->scan, run.ops, run.n, &region));
    instr->kernel = PLAN_KERNEL_fused;
    instr->code = plan_kernel_of(w->kernels, &region);
    for (uint32_t i = 0; i < region.tensors.n; i++) {
        const EmitTensor *t = &region.tensors.at[i];
        PlanTensor tensor = plan_tensor(w, x->g, t->value);
        tensor.offset = t->offset; /* a part of the value, where the region slices it */
        tensor.numel = t->numel;
        tensor.run = t->run;
        tensor.pitch = t->pitch;
        push_tensor(w, instr, tensor);
    }
    if (region.random_keys.n)
        push_param(w, instr, (PlanParam){.i = instr->instance});
    for (uint32_t i = 0; i < region.random_keys.n; i++)
        push_param(w, instr, (PlanParam){.i = region.random_keys.at[i]});
    return STATUS_OK;
}

static Status write_call(Writer *x, IrOp op, PlanInstr *instr)
{
    PlanWriter *w = x->w;
    const IrOpRec *rec = ir_op(x->g, op);
    uint32_t room = rec->n_in + rec->n_out + PLAN_T_attention_grad_TENSORS;
    PlanCall call = {
        .w = w, .g = x->g, .op = op, .tensor = ARENA_ARRAY(w->arena, PlanTensor, room)};
    for (uint32_t i = 0; i < room; i++)
        call.tensor[i] = (PlanTensor){PLAN_ABSENT, 1, 1, 1, DTYPE_F32, 0};
    if (!plan_lower(&call)) {
        diag(w->s, rec->span, backend_no_kernel, ir_op_info((IrOpKind)rec->kind)->name);
        return STATUS_BUG;
    }
    instr->kernel = call.kernel;
    for (uint32_t i = 0; i < call.n_tensors; i++)
        push_tensor(w, instr, call.tensor[i]);
    for (uint32_t i = 0; i < call.n_params; i++)
        push_param(w, instr, call.param[i]);
    uint64_t scratch = plan_scratch_bytes(call.kernel, call.param, call.tensor);
    if (scratch > w->header.thread_scratch_bytes)
        w->header.thread_scratch_bytes = scratch;
    return STATUS_OK;
}

/* -- deaths -- */

static IrValue owner_of(const IrGraph *g, IrValue v)
{
    IrValue base = ir_value(g, v)->place.base;
    return base.i ? base : v;
}

static void touch(Writer *x, IrValue v, uint32_t instr)
{
    if (v.i)
        x->last[owner_of(x->g, v).i] = instr + 1;
}

/* What outlives the list is not listed: states, inputs, results of the graph. */
static void find_deaths(Writer *x)
{
    const IrGraph *g = x->g;
    x->last = ARENA_ARRAY(x->w->arena, uint32_t, g->values.n);
    for (uint32_t at = 0; at < g->order.n;) {
        Run run = run_at(g, at);
        for (uint32_t k = 0; has_code(g, run) && k < run.n; k++) {
            const IrOpRec *rec = ir_op(g, run.ops[k]);
            for (uint32_t i = 0; i < rec->n_in; i++)
                touch(x, ir_in(g, run.ops[k], i), x->n_instrs);
            for (uint32_t i = 0; i < rec->n_out; i++)
                touch(x, ir_out(g, run.ops[k], i), x->n_instrs);
        }
        x->n_instrs += has_code(g, run);
        at += run.n;
    }
    for (uint32_t i = 0; i < g->results.n; i++)
        x->last[owner_of(g, g->results.at[i]).i] = 0;
    for (uint32_t i = 1; i < g->values.n; i++)
        if (g->values.at[i].def != IR_DEF_RESULT || g->values.at[i].place.offset < 0)
            x->last[i] = 0;
}

/* By instruction: the values that die there, as lists linked through `next`. */
typedef struct Deaths {
    uint32_t *first, *next;
} Deaths;

static Deaths sort_deaths(const Writer *x)
{
    Deaths d = {ARENA_ARRAY(x->w->arena, uint32_t, x->n_instrs + 1),
                ARENA_ARRAY(x->w->arena, uint32_t, x->g->values.n)};
    for (uint32_t i = x->g->values.n; i-- > 1;)
        if (x->last[i]) {
            d.next[i] = d.first[x->last[i] - 1];
            d.first[x->last[i] - 1] = i;
        }
    return d;
}

static void write_deaths(Writer *x, const Deaths *deaths, uint32_t index, PlanInstr *instr)
{
    for (uint32_t i = deaths->first[index]; i; i = deaths->next[i]) {
        PlanTensor t = plan_tensor(x->w, x->g, (IrValue){i});
        uint64_t bytes = (uint64_t)ir_type_bytes(x->g->m, x->g->values.at[i].type);
        vec_push(x->w->arena, &x->w->deaths, ((PlanRange){t.offset, bytes, t.dtype, t.name}));
        instr->n_deaths++;
    }
}

Status plan_write_graph(PlanWriter *w, const IrGraph *g, bool eval)
{
    Writer x = {.w = w, .g = g, .eval = eval};
    emit_scan_init(&x.scan, w->s, g, w->arena);
    find_deaths(&x);
    Deaths deaths = sort_deaths(&x);
    for (uint32_t at = 0, index = 0; at < g->order.n;) {
        Run run = run_at(g, at);
        at += run.n;
        if (!has_code(g, run))
            continue;
        PlanInstr instr = start_instr(&x, run);
        bool fused = ir_in_kernel(g, run.ops[0]) || emit_op(ir_op_kind(g, run.ops[0]));
        TRY(fused ? write_fused(&x, run, &instr) : write_call(&x, run.ops[0], &instr));
        write_deaths(&x, &deaths, index++, &instr);
        if (eval)
            vec_push(w->arena, &w->eval_instrs, instr);
        else
            vec_push(w->arena, &w->instrs, instr);
    }
    return STATUS_OK;
}
