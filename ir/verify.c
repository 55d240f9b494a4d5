/* The verifier's invariants.
 *
 * Module (ir/verify_module.c)
 *   axes      sizes are at least 1, names unique
 *   scopes    parents stand before their children; a part has a role
 *   states    typed; a master, moment or accumulator belongs to a parameter of its dims; nothing
 * else belongs to one; only parameters are trainable; with an arena, each lies inside it graphs
 * names are unique saved set (STEP, LOCAL) each param of @bwd is a result or param of @fwd of its
 * name and type; each result of @fwd behind the loss is a param of @bwd; each param of @update is a
 * result of
 *             @bwd or a param of @fwd, of its type
 *
 * Graph, per op in order (this file)
 *   order     each op stands once and is alive
 *   table     kind, counts of operands, results and attributes are the row's; required operands are
 * there; the op may stand at the module's level; words are among the attribute's choices operands
 * defined before: a param, a state, or a result of an earlier op results   belong to their op;
 * names are unique in the graph and found under it types     are what the row's shape function
 * answers scopes    exist regions   are contiguous; a recompute region has no state update and no
 * cache op, a kernel only pure ops; saves are results of ops inside effects   an op writes states
 * only, by the operands that its row says; @fwd, @bwd and @eval (ops unrolled from them, too) never
 * write parameters, buffers, masters or moments replays   `re` names the first result of an op of
 * the same kind, itself no replay, above in the graph or in @fwd; a replay has no state update, no
 * cache and no discrete choice places    a view's base is no view; with an arena, each lies inside
 * it results   of the graph are defined */
#include "ir/verify.h"

#include "ir/verify_state.h"

/* `%y = rmsnorm`, or `accumulate $w.acc`, for messages. */
static const char *op_text(const Verifier *v, IrOp op)
{
    const IrGraph *g = v->g;
    const IrOpRec *rec = ir_op(g, op);
    const char *name = ir_op_info((IrOpKind)rec->kind)->name;
    if (rec->n_out)
        return arena_printf(v->s->arena, "%%%s = %s", ir_value(g, ir_out(g, op, 0))->name, name);
    IrValue first = ir_in(g, op, 0);
    if (!first.i || first.i >= g->values.n)
        return name;
    return arena_printf(v->s->arena, "%s %s", name, ir_verify_value_text(v, first));
}

const char *ir_verify_value_text(const Verifier *v, IrValue value)
{
    const IrValueRec *rec = ir_value(v->g, value);
    return arena_printf(v->s->arena, "%c%s", rec->def == IR_DEF_STATE ? '$' : '%', rec->name);
}

#define OP_FAULT(v, op, id, ...)                                                                   \
    diag((v)->s, ir_op((v)->g, op)->span, id, (v)->g->name, op_text((v), (op)), ##__VA_ARGS__)

static bool within(uint32_t first, uint32_t n, uint32_t size)
{
    return first <= size && n <= size - first;
}

/* Whether the record can be read at all. */
static bool check_record(Verifier *v, IrOp op)
{
    const IrGraph *g = v->g;
    if (!op.i || op.i >= g->ops.n) {
        diag(v->s, no_span, ir_bad_record, g->name, "the order names an op that does not exist");
        return false;
    }
    const IrOpRec *rec = ir_op(g, op);
    const char *why = NULL;
    if (!rec->kind || rec->kind >= IR_OP_COUNT)
        why = "an op has no kind";
    else if (v->seen[op.i]++)
        why = "an op stands in the order twice";
    else if (rec->dead)
        why = "a dead op is in the order";
    else if (!within(rec->first_in, rec->n_in, g->operands.n) ||
             !within(rec->first_out, rec->n_out, g->values.n) ||
             !within(rec->first_attr, ir_op_info((IrOpKind)rec->kind)->n_attr, g->attrs.n))
        why = "an op's operands, results or attributes lie outside the graph";
    else if (rec->scope.i >= v->m->scopes.n)
        why = "an op's scope does not exist";
    else if (rec->region.i >= g->regions.n)
        why = "an op's region does not exist";
    if (why)
        diag(v->s, rec->span, ir_bad_record, g->name, why);
    return !why;
}

static bool check_table(Verifier *v, IrOp op)
{
    static const char *const levels[] = {"model", "step", "local", "planned"};
    const IrGraph *g = v->g;
    const IrOpRec *rec = ir_op(g, op);
    const IrOpInfo *info = ir_op_info((IrOpKind)rec->kind);
    bool variadic = info->traits & IR_VARIADIC;
    if (rec->n_out != info->n_out) {
        OP_FAULT(v, op, ir_count_fault, "results", info->n_out, rec->n_out);
        return false;
    }
    if (variadic ? rec->n_in < info->n_in : rec->n_in != info->n_in) {
        OP_FAULT(v, op, ir_count_fault, "operands", info->n_in, rec->n_in);
        return false;
    }
    if (!(info->levels >> v->m->level & 1))
        OP_FAULT(v, op, ir_level_fault, levels[v->m->level]);
    for (uint32_t i = 0; i < info->n_attr; i++) {
        Sym word = g->attrs.at[rec->first_attr + i].sym;
        if (info->attr[i].type == IR_ATTR_SYM &&
            (!word || !ir_attr_is_choice(info->attr[i].text, word)))
            OP_FAULT(v, op, ir_attr_fault, info->attr[i].name, word ? word : "");
    }
    return true;
}

static bool is_fixed_state(IrStateKind kind)
{
    return kind != IR_STATE_ACC && kind != IR_STATE_SCALAR;
}

/* A state that an op writes: is it one, and may this graph write it? */
static void check_write(Verifier *v, IrOp op, IrValue operand, const char *name)
{
    const IrOpRec *rec = ir_op(v->g, op);
    const IrValueRec *value = ir_value(v->g, operand);
    if (value->def != IR_DEF_STATE) {
        OP_FAULT(v, op, ir_write_fault, name, ir_verify_value_text(v, operand));
        return;
    }
    const char *graph = rec->graph ? rec->graph : v->g->name;
    bool passes_over = !strcmp(graph, "fwd") || !strcmp(graph, "bwd") || !strcmp(graph, "eval");
    if (passes_over && is_fixed_state(ir_state_rec(v->m, value->state)->kind))
        OP_FAULT(v, op, ir_early_write, value->name, graph);
}

static bool check_operands(Verifier *v, IrOp op)
{
    const IrGraph *g = v->g;
    const IrOpRec *rec = ir_op(g, op);
    const IrOpInfo *info = ir_op_info((IrOpKind)rec->kind);
    bool good = true;
    for (uint32_t i = 0; i < rec->n_in; i++) {
        IrValue operand = ir_in(g, op, i);
        uint32_t row = i < info->n_in ? i : info->n_in - 1;
        if (operand.i >= g->values.n || (!operand.i && !info->in[row].optional)) {
            OP_FAULT(v, op, ir_operand_fault, info->in[row].name);
            good = false;
        } else if (operand.i && !v->defined[operand.i]) {
            OP_FAULT(v, op, ir_use_fault, ir_verify_value_text(v, operand));
            good = false;
        } else if (operand.i && info->in[row].written) {
            check_write(v, op, operand, info->in[row].name);
        }
    }
    return good;
}

const char *ir_verify_types(const IrGraph *g, IrOp op, Arena *scratch)
{
    const IrOpRec *rec = ir_op(g, op);
    const IrOpInfo *info = ir_op_info((IrOpKind)rec->kind);
    IrModule *m = g->m;
    IrType small[16], out[IR_MAX_OUTS] = {{0}};
    IrType *in = rec->n_in <= 16 ? small : ARENA_ARRAY(scratch, IrType, rec->n_in);
    for (uint32_t i = 0; i < rec->n_in; i++)
        in[i] = ir_value_type(g, ir_in(g, op, i));
    for (uint32_t i = 0; i < rec->n_out; i++) {
        out[i] = ir_value_type(g, ir_out(g, op, i));
        if (!out[i].i || out[i].i >= m->types.n)
            return "a result has no type";
    }
    IrShapeCall call = {
        .m = m, .in = in, .n_in = rec->n_in, .attr = &g->attrs.at[rec->first_attr], .out = out};
    if (!info->shape(&call))
        return call.why ? call.why : "the operands do not fit";
    for (uint32_t i = 0; i < rec->n_out; i++) {
        IrType is = ir_value_type(g, ir_out(g, op, i));
        if (!ir_type_agree(m, is, out[i]))
            return arena_printf(m->s->arena, "result `%s` is %s but must be %s", info->out[i].name,
                                ir_type_text(m, is), ir_type_text(m, out[i]));
    }
    return NULL;
}

static void check_types(Verifier *v, IrOp op)
{
    const char *why = ir_verify_types(v->g, op, v->scratch);
    if (why)
        OP_FAULT(v, op, ir_type_fault, why);
}

/* What an op writes may lie in the result of a concat behind it. */
static bool is_base(const Verifier *v, IrValue base)
{
    if (base.i >= v->g->values.n)
        return false;
    const IrValueRec *rec = ir_value(v->g, base);
    return v->defined[base.i] ||
           (rec->def == IR_DEF_RESULT && ir_op_kind(v->g, rec->op) == IR_OP_concat);
}

static void check_place(Verifier *v, const IrValueRec *rec)
{
    const IrPlace *place = &rec->place;
    const char *why = NULL;
    uint64_t bytes = (uint64_t)ir_type_bytes(v->m, rec->type);
    if (place->base.i && !is_base(v, place->base))
        why = "the view's base is not defined above";
    else if (place->base.i && ir_value(v->g, place->base)->place.base.i)
        why = "the view's base is itself a view";
    else if (place->offset >= 0 && v->m->arena_bytes &&
             ((uint64_t)place->offset > v->m->arena_bytes ||
              bytes > v->m->arena_bytes - (uint64_t)place->offset))
        why = "it lies outside the arena";
    if (why)
        diag(v->s, rec->span, ir_place_fault, v->g->name, rec->name, why);
}

/* Names a value: unique, and found. */
static void define(Verifier *v, IrValue value)
{
    const IrValueRec *rec = ir_value(v->g, value);
    if (map_get(&v->names, map_key(rec->name), NULL))
        diag(v->s, rec->span, ir_name_fault, v->g->name, rec->name, "is defined twice");
    else if (ir_value_find(v->g, rec->name).i != value.i)
        diag(v->s, rec->span, ir_name_fault, v->g->name, rec->name, "is not found by its name");
    map_put(&v->names, map_key(rec->name), value.i);
    check_place(v, rec);
    v->defined[value.i] = 1;
}

static void check_results(Verifier *v, IrOp op)
{
    for (uint32_t i = 0; i < ir_op(v->g, op)->n_out; i++) {
        IrValue out = ir_out(v->g, op, i);
        const IrValueRec *rec = ir_value(v->g, out);
        if (rec->def != IR_DEF_RESULT || rec->op.i != op.i || rec->result != i)
            OP_FAULT(v, op, ir_owner_fault, rec->name);
        define(v, out);
    }
}

/* -- regions -- */

static void check_region(Verifier *v, IrOp op)
{
    const IrOpRec *rec = ir_op(v->g, op);
    uint32_t traits = ir_op_info((IrOpKind)rec->kind)->traits;
    if (rec->region.i != v->region) {
        if (v->region)
            v->closed[v->region] = 1;
        v->region = rec->region.i;
        if (v->region && v->closed[v->region])
            OP_FAULT(v, op, ir_region_split);
    }
    if (!rec->region.i)
        return;
    bool kernel = v->g->regions.at[rec->region.i].kind == IR_REGION_KERNEL;
    if (kernel ? !(traits & IR_PURE) : (traits & (IR_STATE_UPDATE | IR_CACHE)) != 0)
        OP_FAULT(v, op, ir_region_effect,
                 kernel ? "a kernel holds pure ops only"
                        : "a replay would repeat its effect; it cannot be in a recompute region");
}

static void check_saves(Verifier *v)
{
    const IrGraph *g = v->g;
    for (uint32_t r = 1; r < g->regions.n; r++) {
        const IrRegionRec *region = &g->regions.at[r];
        for (uint32_t i = 0; i < region->saves.n; i++) {
            IrValue save = region->saves.at[i];
            bool inside = save.i && save.i < g->values.n && v->defined[save.i] &&
                          ir_value(g, save)->def == IR_DEF_RESULT &&
                          ir_op(g, ir_value(g, save)->op)->region.i == r;
            if (!inside)
                diag(v->s, no_span, ir_saves_fault, g->name,
                     save.i < g->values.n ? ir_value(g, save)->name : "?",
                     region->scope.i < v->m->scopes.n ? ir_scope_rec(v->m, region->scope)->name
                                                      : "?");
        }
    }
}

/* -- replays -- */

static void check_replay(Verifier *v, IrOp op)
{
    const IrOpRec *rec = ir_op(v->g, op);
    const IrOpInfo *info = ir_op_info((IrOpKind)rec->kind);
    if (!rec->re)
        return;
    if (info->traits & (IR_STATE_UPDATE | IR_CACHE | IR_DISCRETE)) {
        OP_FAULT(v, op, ir_replay_fault, rec->re, "an op with this effect is never replayed");
        return;
    }
    const IrGraph *in = v->g;
    IrValue original = ir_value_find(in, rec->re);
    bool here = original.i && v->defined[original.i];
    if (!here ||
        ir_value(in, original)->def != IR_DEF_RESULT) { /* a param of @bwd is @fwd's value */
        in = ir_graph_find(v->m, "fwd");
        original = in && in != v->g ? ir_value_find(in, rec->re) : (IrValue){0};
    }
    if (!original.i || ir_value(in, original)->def != IR_DEF_RESULT) {
        OP_FAULT(v, op, ir_replay_fault, rec->re, "no op above or in @fwd has that result");
        return;
    }
    const IrValueRec *value = ir_value(in, original);
    const IrOpRec *first = ir_op(in, value->op);
    if (first->kind != rec->kind)
        OP_FAULT(v, op, ir_replay_fault, rec->re, "its original is another op");
    else if (value->result)
        OP_FAULT(v, op, ir_replay_fault, rec->re, "that is not its original's first result");
    else if (first->re)
        OP_FAULT(v, op, ir_replay_fault, rec->re, "that is a replay itself");
}

/* -- a graph -- */

static void check_op(Verifier *v, IrOp op)
{
    if (!check_record(v, op) || !check_table(v, op))
        return;
    check_region(v, op);
    if (check_operands(v, op))
        check_types(v, op);
    check_replay(v, op);
    check_results(v, op);
}

static void define_params(Verifier *v)
{
    const IrGraph *g = v->g;
    for (uint32_t i = 0; i < g->params.n; i++) {
        IrValue param = g->params.at[i];
        bool known = param.i && param.i < g->values.n && ir_value(g, param)->def == IR_DEF_PARAM;
        if (!known || !ir_value_type(g, param).i)
            diag(v->s, no_span, ir_bad_record, g->name, "a param is no typed value of the graph");
        else
            define(v, param);
    }
    for (uint32_t i = 1; i < g->values.n; i++) {
        const IrValueRec *rec = &g->values.at[i];
        if (rec->def != IR_DEF_STATE)
            continue;
        bool known = rec->state.i && rec->state.i < v->m->states.n;
        if (!known || rec->type.i != ir_state_rec(v->m, rec->state)->type.i)
            diag(v->s, rec->span, ir_name_fault, g->name, rec->name,
                 "is not the state of that name");
        v->defined[i] = known;
    }
}

void ir_verify_graph(Verifier *v, const IrGraph *g)
{
    v->g = g;
    v->region = 0;
    v->seen = ARENA_ARRAY(v->scratch, unsigned char, g->ops.n);
    v->defined = ARENA_ARRAY(v->scratch, unsigned char, g->values.n);
    v->closed = ARENA_ARRAY(v->scratch, unsigned char, g->regions.n);
    map_init(&v->names, v->scratch);
    define_params(v);
    for (uint32_t i = 0; i < g->order.n; i++)
        check_op(v, g->order.at[i]);
    check_saves(v);
    for (uint32_t i = 0; i < g->results.n; i++) {
        IrValue result = g->results.at[i];
        if (!result.i || result.i >= g->values.n || !v->defined[result.i])
            diag(v->s, no_span, ir_result_fault, g->name,
                 result.i < g->values.n && result.i ? ir_value(g, result)->name : "?");
    }
}

Status ir_verify(Session *s, const IrModule *m)
{
    uint32_t before = s->n_errors;
    Verifier v = {.s = s, .m = m, .scratch = arena_new()};
    ir_verify_module(&v);
    for (uint32_t i = 0; i < m->graphs.n; i++)
        ir_verify_graph(&v, m->graphs.at[i]);
    ir_verify_saved_set(&v);
    arena_free(v.scratch);
    return s->n_errors == before ? STATUS_OK : STATUS_USER;
}
