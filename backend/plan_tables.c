#include "backend/plan_write.h"

#include <stdlib.h>

#include "runtime/abi/workspace_cuda.h"

/* -- strings -- */

uint32_t plan_string(PlanWriter *w, Sym text)
{
    uint64_t at;
    if (!text || !*text)
        return 0;
    if (map_get(&w->string_at, map_key(text), &at))
        return (uint32_t)at;
    uint32_t length = (uint32_t)strlen(text) + 1;
    at = w->strings.n;
    vec_reserve(w->arena, &w->strings, w->strings.n + length);
    memcpy(w->strings.at + at, text, length);
    w->strings.n += length;
    map_put(&w->string_at, map_key(text), at);
    return (uint32_t)at;
}

uint32_t plan_string_format(PlanWriter *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *text = arena_vprintf(w->arena, format, args);
    va_end(args);
    return plan_string(w, sym(w->s, text));
}

PlanTensor plan_tensor(PlanWriter *w, const IrGraph *g, IrValue v)
{
    const IrValueRec *rec = ir_value(g, v);
    EmitTensor t;
    int64_t numel = ir_type_numel(g->m, rec->type);
    PlanTensor tensor = {PLAN_ABSENT, numel, numel, numel, ir_type_info(g->m, rec->type)->dtype, 0};
    tensor.name = plan_string_format(w, "%c%s", rec->def == IR_DEF_STATE ? '$' : '%', rec->name);
    if (emit_tensor(g, v, &t)) {
        tensor.offset = t.offset;
        tensor.run = t.run;
        tensor.pitch = t.pitch;
    }
    return tensor;
}

/* `dp+dpr`: the mesh axes, as bits. */
static uint32_t comm_axes(const char *word)
{
    static const struct {
        const char *name;
        uint32_t axis;
    } axes[] = {
        {"tp", PLAN_AXIS_TP}, {"dp", PLAN_AXIS_DP}, {"dpr", PLAN_AXIS_DPR}, {"pp", PLAN_AXIS_PP}};
    uint32_t bits = 0;
    for (; *word; word += *word == '+') {
        size_t n = strcspn(word, "+");
        bits |= n > 3 && !strncmp(word, "pp:", 3) ? (uint32_t)PLAN_AXIS_PP : 0;
        for (uint32_t i = 0; i < sizeof axes / sizeof *axes; i++)
            if (strlen(axes[i].name) == n && !strncmp(axes[i].name, word, n))
                bits |= axes[i].axis;
        word += n;
    }
    return bits;
}

/* `pp:0,3`: of the stages only these, a bit each. */
static uint64_t comm_stages(const char *word)
{
    uint64_t bits = 0;
    if (strncmp(word, "pp:", 3))
        return 0;
    for (const char *at = word + 2; *at;) {
        char *end;
        bits |= (uint64_t)1 << (strtoul(at + 1, &end, 10) & 63);
        at = end;
    }
    return bits;
}

uint32_t plan_comm(PlanWriter *w, const IrGraph *g, IrOp op)
{
    Sym word = ir_attr_sym(g, op, "comm");
    bool grouped = ir_op_info(ir_op_kind(g, op))->traits & IR_COLLECTIVE;
    uint32_t axes = comm_axes(word), group = grouped ? (uint32_t)ir_attr_i64(g, op, "group") : 0;
    uint64_t stages = comm_stages(word);
    for (uint32_t i = 0; i < w->comms.n; i++)
        if (w->comms.at[i].axes == axes && w->comms.at[i].group == group &&
            w->comms.at[i].stages == stages)
            return i;
    PlanComm comm = {.axes = axes, .group = group, .stages = stages};
    comm.name = group ? plan_string_format(w, "%s/%u", word, group) : plan_string(w, word);
    vec_push(w->arena, &w->comms, comm);
    return w->comms.n - 1;
}

static uint32_t copy_dims(const IrModule *m, IrType type, int64_t *dims)
{
    const IrTypeInfo *info = ir_type_info(m, type);
    for (uint32_t i = 0; i < info->rank; i++)
        dims[i] = ir_dim_size(&info->dim[i]);
    return info->rank;
}

/* -- states -- */

static void write_states(PlanWriter *w)
{
    IrModule *m = w->m;
    for (uint32_t i = 1; i < m->states.n; i++) {
        const IrStateRec *rec = &m->states.at[i];
        PlanState state = {.kind = (uint32_t)rec->kind,
                           .trainable = rec->trainable,
                           .init = (uint32_t)rec->init,
                           .init_value = rec->init_value};
        state.name = plan_string(w, rec->name);
        state.dtype = ir_type_info(m, rec->type)->dtype;
        state.rank = copy_dims(m, rec->type, state.dim);
        state.offset = (uint64_t)rec->offset;
        state.bytes = (uint64_t)ir_type_bytes(m, rec->type);
        state.of = (rec->of.i ? rec->of.i : i) - 1;
        state.file = plan_string(w, rec->span.file);
        state.line = rec->span.line;
        vec_push(w->arena, &w->states, state);
    }
}

/* Where a rank's part of a tensor lies in the whole: the divided factor with what stands before
 * and behind it. */
static void write_split(const IrTypeInfo *info, PlanPiece *piece)
{
    piece->split = PLAN_WHOLE;
    piece->outer = piece->parts = piece->chunk = piece->inner = 1;
    piece->rank = info->rank;
    for (uint32_t i = 0; i < info->rank; i++) {
        const IrDim *dim = &info->dim[i];
        piece->dim[i] = 1;
        int64_t inner = 1;
        for (uint32_t k = dim->n; k-- > 0;) {
            const IrFactor *f = &dim->f[k];
            if (f->mesh == IR_MESH_TP && f->parts > 1) {
                piece->split = i;
                piece->parts = f->parts;
                piece->chunk = (f->size + f->parts - 1) / f->parts;
                piece->inner = inner;
            }
            inner *= f->size;
        }
        piece->dim[i] = inner;
        if (piece->split == i)
            for (uint32_t k = 0; dim->f[k].mesh != IR_MESH_TP || dim->f[k].parts == 1; k++)
                piece->outer *= dim->f[k].size;
    }
}

/* A stage's run of a dim that is longer in the whole. */
static void write_narrow(const IrNarrow *narrow, PlanPiece *piece)
{
    piece->narrow = PLAN_WHOLE;
    if (!narrow->whole)
        return;
    piece->narrow = narrow->dim;
    piece->narrow_begin = narrow->begin;
    piece->narrow_size = piece->dim[narrow->dim];
    piece->dim[narrow->dim] = narrow->whole;
}

static uint32_t cut_axes(const IrStateRec *rec)
{
    return rec->cut ? comm_axes(rec->cut) : 0;
}

static void push_piece(PlanWriter *w, uint32_t state, const IrStateRec *rec, const IrPiece *from)
{
    PlanPiece piece = {.state = state, .flat = cut_axes(rec), .begin = from->begin};
    piece.name = plan_string(w, from->name);
    piece.numel = ir_type_numel(w->m, from->type);
    piece.init = (uint32_t)from->init;
    piece.init_value = from->init_value;
    piece.kind = rec->kind == IR_STATE_BUFFER ? PLAN_STATE_BUFFER : PLAN_STATE_PARAM;
    piece.file = plan_string(w, from->span.file);
    piece.line = from->span.line;
    write_split(ir_type_info(w->m, from->type), &piece);
    write_narrow(&from->narrow, &piece);
    vec_push(w->arena, &w->pieces, piece);
}

static bool is_divided(const IrModule *m, IrType type)
{
    const IrTypeInfo *info = ir_type_info(m, type);
    for (uint32_t i = 0; i < info->rank; i++)
        for (uint32_t k = 0; k < info->dim[i].n; k++)
            if (info->dim[i].f[k].mesh == IR_MESH_TP && info->dim[i].f[k].parts > 1)
                return true;
    return false;
}

/* A tensor of its own needs a piece only where tensor parallelism divides it. */
static void write_pieces(PlanWriter *w)
{
    const IrModule *m = w->m;
    for (uint32_t i = 1; i < m->states.n; i++) {
        const IrStateRec *rec = &m->states.at[i],
                         *of = ir_state_rec(m, rec->of.i ? rec->of : (IrState){i});
        IrPiece self = {
            .name = of->name, .type = rec->type, .init = of->init, .init_value = of->init_value};
        self.span = of->span;
        for (uint32_t k = 0; k < rec->n_pieces; k++)
            push_piece(w, i - 1, rec, &m->pieces.at[rec->first_piece + k]);
        self.narrow = of->narrow;
        if (!rec->n_pieces && (is_divided(m, rec->type) || of->narrow.whole))
            push_piece(w, i - 1, rec, &self);
    }
}

static void write_mesh(PlanWriter *w)
{
    const IrMeshSizes *mesh = &w->m->mesh;
    w->header.mesh =
        (PlanMesh){(uint32_t)mesh->tp, (uint32_t)mesh->dp, (uint32_t)mesh->dpr, (uint32_t)mesh->pp};
    w->header.stage = w->m->stage;
}

static void write_scalars(PlanWriter *w)
{
    PlanScalars *s = &w->header.scalars;
    const struct {
        const char *name;
        uint64_t *offset;
    } scalars[] = {
        {"lr", &s->lr},           {"step", &s->step},         {"seed", &s->seed},
        {"count", &s->count},     {"inverse", &s->inverse},   {"loss_sum", &s->loss_sum},
        {"loss", &s->loss},       {"norm", &s->norm},         {"coef", &s->coef},
        {"skipped", &s->skipped}, {"eval_sum", &s->eval_sum}, {"sample0", &s->sample0},
    };
    for (uint32_t i = 0; i < sizeof scalars / sizeof *scalars; i++) {
        IrState state = ir_state_find(w->m, sym(w->s, scalars[i].name));
        *scalars[i].offset = state.i ? (uint64_t)ir_state_rec(w->m, state)->offset : PLAN_ABSENT;
    }
}

/* -- inputs -- */

/* `m3/targets` is micro-batch 3's piece of `targets`. */
static const char *split_input(const IrModule *m, const char *name, uint32_t *out_instance)
{
    int length = 0;
    *out_instance = 0;
    if (m->micro_batches > 1 && sscanf(name, "m%u/%n", out_instance, &length) == 1 && length)
        return name + length;
    return name;
}

static PlanInput *input_of(PlanWriter *w, Sym name)
{
    uint32_t text = plan_string(w, name);
    for (uint32_t i = 0; i < w->inputs.n; i++)
        if (w->inputs.at[i].name == text)
            return &w->inputs.at[i];
    vec_push(w->arena, &w->inputs, ((PlanInput){.name = text, .offset = PLAN_ABSENT}));
    return &w->inputs.at[w->inputs.n - 1];
}

static void write_inputs(PlanWriter *w, const IrGraph *g, bool eval)
{
    for (uint32_t i = 0; i < g->params.n; i++) {
        const IrValueRec *rec = ir_value(g, g->params.at[i]);
        uint32_t instance;
        PlanInput *input = input_of(w, sym(w->s, split_input(w->m, rec->name, &instance)));
        uint64_t offset = (uint64_t)rec->place.offset;
        if (!input->rank) {
            input->dtype = ir_type_info(w->m, rec->type)->dtype;
            input->rank = copy_dims(w->m, rec->type, input->dim);
            input->stride_bytes = (uint32_t)ir_type_bytes(w->m, rec->type);
        }
        if (instance == 0)
            input->offset = offset;
        else if (instance == 1)
            input->stride_bytes = (uint32_t)(offset - input->offset);
        input->eval |= eval;
    }
}

static void write_batch(PlanWriter *w)
{
    PlanInput *ids = input_of(w, sym(w->s, "input_ids"));
    w->header.micro_batches = w->m->micro_batches > 1 ? w->m->micro_batches : 1;
    w->header.batch = ids->rank > 0 ? ids->dim[0] : 1;
    w->header.seq = ids->rank > 1 ? ids->dim[1] : 1;
}

/* -- what the run can hand out -- */

/* The state of an update that is cut as its gradient is, if any is cut apart from the weights: a
 * moment, or the master. */
static IrState cut_state(const PlanWriter *w, const IrGraph *g, IrOp update)
{
    for (uint32_t i = 2; i < ir_op(g, update)->n_in; i++) {
        const IrValueRec *rec = ir_value(g, ir_in(g, update, i));
        if (rec->def == IR_DEF_STATE && ir_state_rec(w->m, rec->state)->n_pieces)
            return rec->state;
    }
    return (IrState){0};
}

static void write_grads(PlanWriter *w, const IrGraph *g)
{
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        if (ir_op_kind(g, op) != IR_OP_adamw && ir_op_kind(g, op) != IR_OP_sgd)
            continue;
        uint32_t state = ir_value(g, ir_in(g, op, 0))->state.i - 1, n = w->grads.n;
        IrState cut = cut_state(w, g, op);
        if (n && w->grads.at[n - 1].state == state)
            continue; /* another range of the same buffer */
        PlanGrad grad = {state, cut.i ? cut.i - 1 : state, plan_tensor(w, g, ir_in(g, op, 1))};
        vec_push(w->arena, &w->grads, grad);
    }
}

static void write_kept(PlanWriter *w, const IrGraph *g)
{
    for (uint32_t i = 0; i < g->results.n; i++) {
        PlanKept kept = {.tensor = plan_tensor(w, g, g->results.at[i])};
        kept.rank = copy_dims(w->m, ir_value_type(g, g->results.at[i]), kept.dim);
        if (kept.tensor.offset != PLAN_ABSENT)
            vec_push(w->arena, &w->kept, kept);
    }
}

static void add_outside(PlanWriter *w, const char *name, uint64_t bytes)
{
    vec_push(w->arena, &w->outside, ((PlanOutside){plan_string(w, sym(w->s, name)), 0, bytes}));
}

/* First the plan's own bytes, which are known at the end. */
static void write_outside(PlanWriter *w)
{
    add_outside(w, "the plan itself", 0);
    if (w->options->target != PLAN_TARGET_CUDA)
        return;
    const IrMeshSizes *mesh = &w->m->mesh;
    bool ranks = mesh->tp * mesh->dp * mesh->dpr * mesh->pp > 1;
#define OUTSIDE(id, name, bytes)                                                                   \
    if (ranks || strcmp(#id, "NCCL"))                                                             \
        add_outside(w, name, bytes);
#include "runtime/abi/outside_cuda.def"
#undef OUTSIDE
}

static void write_target(PlanWriter *w)
{
    PlanHeader *h = &w->header;
    h->target = w->options->target;
    h->arena_bytes = w->m->arena_bytes;
    if (h->target != PLAN_TARGET_CUDA)
        return;
    h->thread_scratch_bytes = 0;
    h->library_workspace_bytes = PLAN_CUDA_LIBRARY_WORKSPACE;
    h->library_workspace = h->arena_bytes - h->library_workspace_bytes;
}

Status plan_write_tables(PlanWriter *w)
{
    const BackendOptions *o = w->options;
    const IrGraph *step = ir_graph_find(w->m, "step"), *eval = ir_graph_find(w->m, "eval");
    write_mesh(w);
    write_states(w);
    write_pieces(w);
    write_scalars(w);
    write_inputs(w, step, false);
    if (eval)
        write_inputs(w, eval, true);
    write_batch(w);
    write_grads(w, step);
    write_kept(w, step);
    write_outside(w);
    write_target(w);
    w->header.flops_per_step = o->flops_per_step;
    w->header.model = plan_string(w, w->m->model);
    w->header.model_config = plan_string(w, sym(w->s, o->config_json ? o->config_json : ""));
    w->header.settings = plan_string(w, sym(w->s, o->settings_json ? o->settings_json : ""));
    w->header.report =
        plan_string(w, sym(w->s, o->report_json && !w->m->stage ? o->report_json : ""));
    return STATUS_OK;
}
