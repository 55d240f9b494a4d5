#include "passes/facts.h"

#include <stdlib.h>

#include "base/diag.h"
#include "passes/cost.h"
#include "passes/coverage.h"
#include "passes/lifetime.h"
#include "passes/memplan.h"

const char *pass_byte_class_name(PassByteClass cls)
{
    static const char *const names[] = {
#define PASS_BYTE_CLASS_NAME(id, name) #name,
        PASS_BYTE_CLASSES(PASS_BYTE_CLASS_NAME)
#undef PASS_BYTE_CLASS_NAME
    };
    return names[cls];
}

typedef struct Facts {
    Session *s;
    IrModule *m;
    const PassOptions *options;
    Arena *scratch;
    PassFacts *f;
} Facts;

static Sym value_name(const Facts *k, const IrGraph *g, IrValue v)
{
    char sigil = ir_value(g, v)->def == IR_DEF_STATE ? '$' : '%';
    return intern_printf(&k->s->interner, "%c%s", sigil, ir_value(g, v)->name);
}

static Sym op_name(const Facts *k, const IrGraph *g, IrOp op)
{
    const IrOpRec *rec = ir_op(g, op);
    if (rec->n_out)
        return value_name(k, g, ir_out(g, op, 0));
    const char *kind = ir_op_info((IrOpKind)rec->kind)->name;
    return rec->n_in
               ? intern_printf(&k->s->interner, "%s %s", kind, value_name(k, g, ir_in(g, op, 0)))
               : sym(k->s, kind);
}

static Sym scope_name(const Facts *k, IrScope scope)
{
    return scope.i > 1 ? ir_scope_rec(k->m, scope)->name : NULL;
}

/* -- bytes -- */

static PassByteClass state_class(IrStateKind kind)
{
    static const PassByteClass classes[IR_STATE_KIND_COUNT] = {
        [IR_STATE_PARAM] = PASS_BYTES_PARAMS,      [IR_STATE_BUFFER] = PASS_BYTES_PARAMS,
        [IR_STATE_MASTER] = PASS_BYTES_OPTIMIZER,  [IR_STATE_MOMENT1] = PASS_BYTES_OPTIMIZER,
        [IR_STATE_MOMENT2] = PASS_BYTES_OPTIMIZER, [IR_STATE_ACC] = PASS_BYTES_GRADS,
        [IR_STATE_SCALAR] = PASS_BYTES_IO,
    };
    return classes[kind];
}

/* By value: is it what an optimizer or an accumulator reads as a gradient? */
static unsigned char *find_gradients(const IrGraph *g, Arena *scratch)
{
    static const unsigned char operand[IR_OP_COUNT] = {
        /* 1 + which */
        [IR_OP_adamw] = 2,
        [IR_OP_sgd] = 2,
        [IR_OP_norm_sq] = 1,
        [IR_OP_accumulate] = 2,
    };
    unsigned char *gradients = ARENA_ARRAY(scratch, unsigned char, g->values.n);
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        uint32_t at = operand[ir_op_kind(g, op)];
        if (!at)
            continue;
        const IrValueRec *state = ir_value(g, ir_in(g, op, 0));
        bool sums_loss = ir_op_kind(g, op) == IR_OP_accumulate &&
                         ir_state_rec(g->m, state->state)->kind != IR_STATE_ACC;
        if (!sums_loss)
            gradients[pass_base(g, ir_in(g, op, at - 1)).i] = 1;
    }
    for (uint32_t i = g->order.n; i-- > 0;) { /* and what sums to one */
        IrOp op = g->order.at[i];
        IrOpKind kind = ir_op_kind(g, op);
        bool sums = kind == IR_OP_add || kind == IR_OP_cast;
        for (uint32_t k = 0; sums && k < ir_op(g, op)->n_in; k++)
            if (ir_op(g, op)->serves == IR_SERVES_WEIGHT)
                gradients[pass_base(g, ir_in(g, op, k)).i] = 1;
    }
    return gradients;
}

static bool is_gathered(const IrGraph *g, const PassBuffer *b)
{
    return b->value.i && ir_op_kind(g, b->op) == IR_OP_all_gather &&
           ir_value(g, ir_in(g, b->op, 0))->def == IR_DEF_STATE;
}

static PassByteClass buffer_class(const IrGraph *g, const PassBuffer *b,
                                  const unsigned char *gradients)
{
    const IrOpRec *rec = ir_op(g, b->op);
    if (!b->value.i)
        return PASS_BYTES_WORKSPACE;
    if (is_gathered(g, b))
        return PASS_BYTES_GATHERED;
    if (gradients[b->value.i] || rec->serves == IR_SERVES_WEIGHT)
        return PASS_BYTES_GRADS;
    return rec->re ? PASS_BYTES_RECOMPUTE : PASS_BYTES_ACTIVATIONS;
}

static void add_live(Facts *k, PassLive live)
{
    k->f->breakdown[live.cls] += live.bytes;
    vec_push(k->s->arena, &k->f->live, live);
}

static void add_persistent(Facts *k, const IrGraph *g)
{
    uint64_t top = 0;
    for (uint32_t i = 1; i < k->m->states.n; i++) {
        const IrStateRec *rec = &k->m->states.at[i];
        uint64_t bytes = (uint64_t)ir_type_bytes(k->m, rec->type);
        uint64_t end = (uint64_t)rec->offset + bytes;
        top = end > top ? end : top;
        add_live(k,
                 (PassLive){intern_printf(&k->s->interner, "$%s", rec->name),
                            ir_type_text(k->m, rec->type), pass_align(bytes, PASS_ALIGN_PERSISTENT),
                            state_class(rec->kind), scope_name(k, rec->scope), rec->span, true});
    }
    for (uint32_t n = 0; n < k->m->graphs.n; n++) {
        const IrGraph *other = k->m->graphs.at[n];
        for (uint32_t i = 0; i < other->params.n; i++) {
            const IrValueRec *rec = ir_value(other, other->params.at[i]);
            uint64_t bytes =
                pass_align((uint64_t)ir_type_bytes(k->m, rec->type), PASS_ALIGN_TRANSIENT);
            uint64_t end = (uint64_t)rec->place.offset + bytes;
            top = end > top ? end : top;
            if (other == g)
                add_live(k, (PassLive){value_name(k, g, g->params.at[i]),
                                       ir_type_text(k->m, rec->type), bytes, PASS_BYTES_IO, NULL,
                                       rec->span, true});
        }
    }
    k->f->persistent_bytes = pass_align(top, PASS_ALIGN_PERSISTENT);
}

static void add_transient(Facts *k, const PassLifetimes *l, uint32_t peak)
{
    const IrGraph *g = l->g;
    const unsigned char *gradients = find_gradients(g, k->scratch);
    for (uint32_t i = 0; i < l->buffers.n; i++) {
        const PassBuffer *b = &l->buffers.at[i];
        if (b->begin > peak || b->end < peak)
            continue;
        const IrOpRec *rec = ir_op(g, b->op);
        PassLive live = {.bytes = pass_align(b->bytes, PASS_ALIGN_TRANSIENT),
                         .cls = buffer_class(g, b, gradients),
                         .scope = scope_name(k, rec->scope),
                         .type = "",
                         .span = rec->span};
        if (b->value.i) {
            live.name = value_name(k, g, b->value);
            live.type = ir_type_text(k->m, ir_value_type(g, b->value));
        } else {
            live.name = intern_printf(&k->s->interner, "workspace of %s", op_name(k, g, b->op));
        }
        add_live(k, live);
    }
}

static void measure_gathered(Facts *k, const PassLifetimes *l)
{
    int64_t *more = ARENA_ARRAY(k->scratch, int64_t, l->n_instrs + 2), now = 0;
    for (uint32_t i = 0; i < l->buffers.n; i++) {
        const PassBuffer *b = &l->buffers.at[i];
        if (!is_gathered(l->g, b))
            continue;
        more[b->begin] += (int64_t)b->bytes;
        more[b->end + 1] -= (int64_t)b->bytes;
        if (b->bytes > k->f->gathered_unit)
            k->f->gathered_unit = b->bytes;
    }
    for (uint32_t t = 0; t < l->n_instrs; t++) {
        now += more[t];
        if ((uint64_t)now > k->f->gathered_peak)
            k->f->gathered_peak = (uint64_t)now;
    }
}

static int by_bytes(const void *a, const void *b)
{
    const PassLive *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* What matrix products share is there all the time. */
static void add_library_workspace(Facts *k)
{
    uint64_t bytes = pass_library_workspace(k->options ? k->options->target : PASS_TARGET_CPU);
    if (!bytes)
        return;
    k->f->lower_bound += bytes;
    add_live(k, (PassLive){.name = sym(k->s, "workspace of matrix products"),
                           .type = "",
                           .bytes = bytes,
                           .cls = PASS_BYTES_WORKSPACE});
}

/* The moment of most live bytes, of @step and @eval. */
static void measure_memory(Facts *k, const PassLifetimes *step, const PassLifetimes *eval)
{
    PassFacts *f = k->f;
    const PassLifetimes *most = step;
    uint32_t peak, eval_peak;
    f->lower_bound = pass_lifetimes_peak(step, PASS_ALIGN_TRANSIENT, k->scratch, &peak);
    measure_gathered(k, step);
    if (eval) {
        uint64_t bytes = pass_lifetimes_peak(eval, PASS_ALIGN_TRANSIENT, k->scratch, &eval_peak);
        if (bytes > f->lower_bound) {
            f->lower_bound = bytes;
            most = eval;
            peak = eval_peak;
        }
    }
    f->arena_bytes = k->m->arena_bytes;
    add_persistent(k, most->g);
    f->transient_bytes = f->arena_bytes - f->persistent_bytes;
    add_transient(k, most, peak);
    add_library_workspace(k);
    qsort(f->live.at, f->live.n, sizeof *f->live.at, by_bytes);
    if (!most->n_instrs)
        return;
    IrOp op = most->first_op[peak];
    f->peak_op = op_name(k, most->g, op);
    f->peak_scope = scope_name(k, ir_op(most->g, op)->scope);
    f->peak_span = ir_op(most->g, op)->span;
}

/* -- work -- */

typedef struct Instruction { /* its ops' costs together */
    PassWork work;
    bool replay, gradient; /* with ops that are replays, with others */
} Instruction;

/* Operands from elsewhere and results with memory, once per op: what reaches memory. */
static uint64_t traffic(const PassLifetimes *l, IrOp op, uint64_t bytes)
{
    const IrGraph *g = l->g;
    if (!ir_in_kernel(g, op))
        return bytes;
    uint64_t outside = 0;
    for (uint32_t i = 0; i < ir_op(g, op)->n_in; i++) {
        IrValue v = ir_in(g, op, i);
        const IrValueRec *rec = ir_value(g, v);
        if (v.i && (rec->def != IR_DEF_RESULT || l->instr[rec->op.i] != l->instr[op.i]))
            outside += (uint64_t)ir_type_bytes(g->m, rec->type);
    }
    for (uint32_t r = 0; r < ir_op(g, op)->n_out; r++)
        if (l->buffer[ir_out(g, op, r).i] != PASS_NO_BUFFER)
            outside += (uint64_t)ir_type_bytes(g->m, ir_value_type(g, ir_out(g, op, r)));
    return outside;
}

static void count_kernel(Facts *k, Sym name, const Instruction *instr)
{
    PassFacts *f = k->f;
    uint32_t i = 0;
    while (i < f->kernels.n && f->kernels.at[i].name != name)
        i++;
    if (i == f->kernels.n)
        vec_push(k->s->arena, &f->kernels, (PassKernelCount){.name = name});
    f->kernels.at[i].count++;
    f->kernels.at[i].replays += instr->replay && !instr->gradient;
    f->kernels.at[i].flops += instr->work.flops;
}

static int by_flops(const void *a, const void *b)
{
    const PassKernelCount *x = a, *y = b;
    if (x->flops != y->flops)
        return x->flops > y->flops ? -1 : 1;
    if (x->count != y->count)
        return x->count > y->count ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* FLOPs by op index; with `instrs`, the sums by instruction too. */
static uint64_t *cost_ops(Facts *k, const PassLifetimes *l, Instruction *instrs)
{
    const IrGraph *g = l->g;
    IrUses uses = ir_uses(g, k->scratch);
    uint64_t *flops = ARENA_ARRAY(k->s->arena, uint64_t, g->ops.n);
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        PassCost cost = pass_cost_op(g, &uses, op);
        flops[op.i] = cost.flops;
        if (!instrs || l->instr[op.i] == PASS_NO_INSTR)
            continue;
        Instruction *instr = &instrs[l->instr[op.i]];
        bool is_product = ir_op_info(ir_op_kind(g, op))->traits & IR_PRODUCT;
        instr->work.flops += cost.flops;
        instr->work.products += is_product ? cost.flops : 0;
        instr->work.attention += cost.attention;
        instr->work.bytes += traffic(l, op, cost.bytes);
        instr->replay |= ir_op(g, op)->re != NULL;
        instr->gradient |= !ir_op(g, op)->re;
        k->f->flops_per_step += cost.products;
        k->f->replayed_flops += cost.replayed;
    }
    return flops;
}

/* An op that works on a state in place is of its kind too. */
static Sym collective_kind(const Facts *k, IrOpKind kind)
{
    const char *name = ir_op_info(kind)->name;
    size_t n = strlen(name), tail = strlen("_state");
    bool in_place = n > tail && !strcmp(name + n - tail, "_state");
    return intern_n(&k->s->interner, name, in_place ? n - tail : n);
}

static void count_collectives(Facts *k, const IrGraph *g)
{
    PassFacts *f = k->f;
    for (uint32_t t = 0; t < g->order.n; t++) {
        IrOp op = g->order.at[t];
        if (!(ir_op_info(ir_op_kind(g, op))->traits & IR_COLLECTIVE))
            continue;
        int64_t group = ir_attr_i64(g, op, "group"), ranks = ir_attr_i64(g, op, "ranks");
        Sym kind = collective_kind(k, ir_op_kind(g, op)), comm = ir_attr_sym(g, op, "comm");
        if (group)
            comm = intern_printf(&k->s->interner, "%s/%lld", comm, (long long)group);
        uint32_t i = 0;
        while (i < f->collectives.n &&
               (f->collectives.at[i].kind != kind || f->collectives.at[i].comm != comm))
            i++;
        if (i == f->collectives.n)
            vec_push(k->s->arena, &f->collectives,
                     ((PassCollective){.kind = kind, .comm = comm, .ranks = (uint64_t)ranks}));
        IrValue moved = ir_op_kind(g, op) == IR_OP_recv ? ir_out(g, op, 0) : ir_in(g, op, 0);
        uint64_t bytes = (uint64_t)ir_type_bytes(g->m, ir_value_type(g, moved));
        f->collectives.at[i].count++;
        f->collectives.at[i].bytes +=
            ir_op_kind(g, op) == IR_OP_all_gather_state ? bytes / (uint64_t)ranks : bytes;
    }
}

static void add_seconds(Facts *k, IrOp op, double seconds)
{
    PassFacts *f = k->f;
    const IrGraph *g = ir_graph_find(k->m, "step");
    const char *graph = ir_op(g, op)->graph ? ir_op(g, op)->graph : "";
    PassTarget target = k->options ? k->options->target : PASS_TARGET_CPU;
    bool back = !strcmp(graph, "bwd");
    if (ir_op_info(ir_op_kind(g, op))->traits & IR_COLLECTIVE)
        seconds = pass_cost_exchange(target, g, op);
    if (ir_op_kind(g, op) == IR_OP_send) {
        *(back ? &f->send_back_seconds : &f->send_seconds) += seconds;
        return;
    }
    f->seconds_per_step += seconds;
    f->fwd_seconds += strcmp(graph, "fwd") ? 0 : seconds;
    f->bwd_seconds += back ? seconds : 0;
}

static void measure_work(Facts *k, const PassLifetimes *step, const PassLifetimes *eval)
{
    PassFacts *f = k->f;
    const IrGraph *g = step->g;
    PassTarget target = k->options ? k->options->target : PASS_TARGET_CPU;
    Instruction *instrs = ARENA_ARRAY(k->scratch, Instruction, step->n_instrs + 1);
    f->flops = cost_ops(k, step, instrs);
    f->instructions = step->n_instrs;
    Sym fused = sym(k->s, "fused");
    for (uint32_t t = 0; t < step->n_instrs; t++) {
        IrOp op = step->first_op[t];
        Sym name = ir_in_kernel(g, op) ? fused : sym(k->s, ir_op_info(ir_op_kind(g, op))->name);
        count_kernel(k, name, &instrs[t]);
        f->bytes_per_step += instrs[t].work.bytes;
        add_seconds(k, op, pass_cost_seconds(target, &instrs[t].work));
    }
    qsort(f->kernels.at, f->kernels.n, sizeof *f->kernels.at, by_flops);
    if (!eval)
        return;
    f->eval_flops = cost_ops(k, eval, NULL);
    f->eval_instructions = eval->n_instrs;
}

static void share_replays(Facts *k, const IrGraph *g)
{
    Map block_of;
    map_init(&block_of, k->scratch);
    for (uint32_t i = 0; i < k->f->blocks.n; i++)
        map_put(&block_of, map_key(k->f->blocks.at[i].name), i);
    for (uint32_t i = 0; i < g->order.n; i++) {
        const IrOpRec *rec = ir_op(g, g->order.at[i]);
        IrScope block = ir_scope_block(k->m, rec->scope);
        uint64_t at;
        if (rec->re && block.i && map_get(&block_of, map_key(ir_scope_rec(k->m, block)->name), &at))
            k->f->blocks.at[at].replayed_flops += k->f->flops[g->order.at[i].i];
    }
}

Status pass_facts(Session *s, IrModule *m, const PassOptions *options, PassFacts *out_facts)
{
    const IrGraph *step = ir_graph_find(m, "step"), *eval = ir_graph_find(m, "eval");
    *out_facts = (PassFacts){0};
    if (m->level != IR_PLANNED || !step) {
        diag(s, no_span, facts_level);
        return STATUS_USER;
    }
    Facts k = {.s = s, .m = m, .options = options, .f = out_facts};
    k.scratch = arena_new();
    PassLifetimes of_step = pass_lifetimes(step, k.scratch), of_eval;
    if (eval)
        of_eval = pass_lifetimes(eval, k.scratch);
    measure_memory(&k, &of_step, eval ? &of_eval : NULL);
    count_collectives(&k, step);
    measure_work(&k, &of_step, eval ? &of_eval : NULL);
    pass_coverage(&of_step, options, k.scratch, out_facts);
    share_replays(&k, step);
    arena_free(k.scratch);
    return STATUS_OK;
}

/* -- records -- */

/* Roles that a `submodule` policy left out, in one record. */
static void record_roles(Session *s, const PassFacts *f)
{
    const char *roles = "";
    uint64_t bytes = 0;
    uint32_t blocks = 0;
    for (uint32_t i = 0; i < f->roles.n; i++) {
        const PassRole *role = &f->roles.at[i];
        if (role->recomputed == role->total)
            continue;
        roles = arena_printf(s->arena, "%s%s`%s`", roles, *roles ? ", " : "", role->name);
        bytes += role->saved_bytes;
        blocks = role->blocks_left > blocks ? role->blocks_left : blocks;
    }
    if (*roles)
        diag(s, no_span, recompute_roles_left_out, roles, (long long)bytes, blocks);
}

static void record_blocks(Session *s, const PassFacts *f)
{
    enum { NAMED = 8 };
    const char *names = "";
    uint64_t bytes = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->blocks.n; i++) {
        if (f->blocks.at[i].covered)
            continue;
        if (n++ < NAMED)
            names =
                arena_printf(s->arena, "%s%s`%s`", names, *names ? ", " : "", f->blocks.at[i].name);
        bytes += f->blocks.at[i].saved_bytes;
    }
    if (n > NAMED)
        names = arena_printf(s->arena, "%s and %u more", names, n - NAMED);
    if (n)
        diag(s, no_span, recompute_blocks_left_out, n, f->blocks.n, names,
             (unsigned long long)bytes);
}

Status pass_facts_record(Session *s, const PassOptions *options, const PassFacts *facts)
{
    uint32_t before = s->n_errors;
    (void)options;
    if (!strcmp(facts->policy, "submodule"))
        record_roles(s, facts);
    else if (!strcmp(facts->policy, "block"))
        record_blocks(s, facts);
    return s->n_errors > before ? STATUS_USER : STATUS_OK;
}
