/* autodiff: writes @bwd, the reverse of @fwd. What a rule reads of the forward pass is, by its
 * definition in @fwd, outside every region, or a region's result, or on its `saves` list:  saved
 * (a result of @fwd, a param of @bwd); inside a region: replayed: its op is cloned with `re`.
 * Replays are made on demand, when the region's first gradient op asks, so they stand behind the
 * incoming gradient, and replays that nobody reads are never made. A value's contributions are
 * added as they come, in reverse order of use. */
#include <string.h>

#include "base/diag.h"
#include "passes/grad.h"
#include "passes/step_states.h"

typedef struct Adjoint {
    IrValue sum;
    IrValue *parts; /* of its last dim, from `slice` */
    uint32_t n_parts;
} Adjoint;

typedef struct Autodiff {
    PassContext *c;
    IrGraph *fwd, *bwd;
    IrBuilder b;
    /* by value of @fwd */
    Adjoint *adjoints;
    IrValue *here; /* the same value in @bwd, once asked for */
    unsigned char *wants, *leaves_region, *saved;
    uint32_t *uses_left; /* of a state: gradients still to come */
} Autodiff;

/* -- facts about @fwd -- */

static bool is_saved_by_region(const Autodiff *ad, IrRegion region, IrValue v)
{
    const IrRegionRec *rec = &ad->fwd->regions.at[region.i];
    for (uint32_t i = 0; i < rec->saves.n; i++)
        if (rec->saves.at[i].i == v.i)
            return true;
    return false;
}

static void find_region_results(Autodiff *ad)
{
    const IrGraph *g = ad->fwd;
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        for (uint32_t n = 0; n < ir_op(g, op)->n_in; n++) {
            IrValue v = ir_in(g, op, n);
            const IrValueRec *rec = ir_value(g, v);
            if (rec->def == IR_DEF_RESULT && ir_op(g, rec->op)->region.i != ir_op(g, op)->region.i)
                ad->leaves_region[v.i] = 1;
        }
    }
}

static void find_wants(Autodiff *ad)
{
    const IrGraph *g = ad->fwd;
    for (uint32_t v = 1; v < g->values.n; v++) {
        const IrValueRec *rec = &g->values.at[v];
        ad->wants[v] = rec->def == IR_DEF_STATE && ir_state_rec(g->m, rec->state)->trainable;
    }
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        const IrOpRec *rec = ir_op(g, op);
        bool any = false;
        for (uint32_t n = 0; n < rec->n_in; n++) {
            IrValue v = ir_in(g, op, n);
            any |= ad->wants[v.i] != 0;
            ad->uses_left[v.i] += ir_value(g, v)->def == IR_DEF_STATE;
        }
        any |= rec->kind == IR_OP_recv && ir_attr_bool(g, op, "grad");
        for (uint32_t r = 0; any && r < rec->n_out; r++)
            ad->wants[rec->first_out + r] =
                dtype_is_float(ir_type_info(g->m, ir_value_type(g, ir_out(g, op, r)))->dtype);
    }
}

/* -- values of @fwd in @bwd -- */

static IrValue here(Autodiff *ad, IrValue v);

static IrValue map_here(void *context, IrValue old)
{
    return here(context, old);
}

static void replay(Autodiff *ad, IrOp op)
{
    const IrOpRec *rec = ir_op(ad->fwd, op);
    for (uint32_t i = 0; i < rec->n_in; i++)
        if (ir_in(ad->fwd, op, i).i)
            here(ad, ir_in(ad->fwd, op, i));
    IrBuilder around = ad->b;
    ad->b.scope = rec->scope;
    ad->b.span = rec->span;
    ad->b.serves = IR_SERVES_NONE;
    ad->b.re = ir_value(ad->fwd, ir_out(ad->fwd, op, 0))->name;
    IrOp copy = ir_clone(&ad->b, ad->fwd, op, map_here, ad, "", ".re");
    around.at = ad->b.at;
    ad->b = around;
    for (uint32_t r = 0; r < rec->n_out; r++)
        ad->here[rec->first_out + r] = ir_out(ad->bwd, copy, r);
    pass_stat(ad->c, "replays", 1);
}

static IrValue here(Autodiff *ad, IrValue v)
{
    if (!v.i || ad->here[v.i].i)
        return ad->here[v.i];
    const IrValueRec *rec = ir_value(ad->fwd, v);
    if (rec->def == IR_DEF_STATE)
        return ad->here[v.i] = ir_graph_state(ad->bwd, rec->state);
    if (rec->def == IR_DEF_RESULT) {
        IrRegion region = ir_op(ad->fwd, rec->op)->region;
        if (region.i && !ad->leaves_region[v.i] && !is_saved_by_region(ad, region, v)) {
            replay(ad, rec->op);
            return ad->here[v.i];
        }
        ad->saved[v.i] = 1;
        pass_stat(ad->c, "values saved", 1);
    }
    return ad->here[v.i] = ir_graph_param(ad->bwd, rec->name, rec->type, rec->span);
}

/* -- adjoints -- */

static bool is_weight(const IrGraph *g, IrValue v)
{
    const IrValueRec *rec = ir_value(g, v);
    if (rec->def == IR_DEF_RESULT && ir_op_kind(g, rec->op) == IR_OP_cast)
        rec = ir_value(g, ir_in(g, rec->op, 0));
    return rec->def == IR_DEF_STATE;
}

static IrServes serves(const Autodiff *ad, IrValue of)
{
    return is_weight(ad->fwd, of) ? IR_SERVES_WEIGHT : IR_SERVES_INPUT;
}

/* A weight's gradient, through its cast too, is made in the grad dtype at once; every other
 * value's in its own. */
static IrType adjoint_type(const Autodiff *ad, IrValue v)
{
    IrType type = ir_value_type(ad->fwd, v);
    return is_weight(ad->fwd, v) ? ir_type_with_dtype(ad->fwd->m, type, ad->c->options->grad)
                                 : type;
}

static IrValue build_named(Autodiff *ad, IrOpKind kind, IrType out, uint32_t n, const IrValue *in,
                           IrValue of)
{
    IrOpArgs args = {.kind = kind, .in = in, .n_in = n, .out = {out}};
    args.name = intern_printf(&ad->c->s->interner, "%s.grad", ir_value(ad->fwd, of)->name);
    ad->b.serves = serves(ad, of);
    return ir_out(ad->bwd, ir_build(&ad->b, &args), 0);
}

static void name_gradient(Autodiff *ad, IrValue v, IrValue of)
{
    const IrValueRec *rec = ir_value(ad->bwd, v);
    size_t length = strlen(rec->name);
    if (rec->def == IR_DEF_RESULT && (length < 5 || strcmp(rec->name + length - 5, ".grad"))) {
        Sym wish = intern_printf(&ad->c->s->interner, "%s.grad", ir_value(ad->fwd, of)->name);
        ir_value_rename(ad->bwd, v, ir_value_fresh_name(ad->bwd, wish));
    }
}

static void contribute(Autodiff *ad, IrValue of, IrValue v)
{
    IrType want = adjoint_type(ad, of);
    name_gradient(ad, v, of);
    if (ir_value_type(ad->bwd, v).i != want.i)
        v = build_named(ad, IR_OP_cast, want, 1, &v, of);
    Adjoint *adjoint = &ad->adjoints[of.i];
    adjoint->sum =
        adjoint->sum.i ? build_named(ad, IR_OP_add, want, 2, (IrValue[]){adjoint->sum, v}, of) : v;
}

/* The whole gradient of a value, once all its uses have contributed; {0} if none has. */
static IrValue adjoint_of(Autodiff *ad, IrValue v)
{
    Adjoint *adjoint = &ad->adjoints[v.i];
    if (adjoint->n_parts) {
        IrValue whole =
            build_named(ad, IR_OP_concat, adjoint_type(ad, v), adjoint->n_parts, adjoint->parts, v);
        adjoint->n_parts = 0;
        contribute(ad, v, whole);
    }
    return adjoint->sum;
}

IrValue grad_dy(GradCall *c, uint32_t result)
{
    return adjoint_of(c->ad, ir_out(c->fwd, c->op, result));
}

IrValue grad_in(GradCall *c, uint32_t operand)
{
    return here(c->ad, ir_in(c->fwd, c->op, operand));
}

IrValue grad_out(GradCall *c, uint32_t result)
{
    return here(c->ad, ir_out(c->fwd, c->op, result));
}

bool grad_wants(const GradCall *c, uint32_t operand)
{
    return c->ad->wants[ir_in(c->fwd, c->op, operand).i];
}

IrType grad_type(const GradCall *c, uint32_t operand)
{
    return adjoint_type(c->ad, ir_in(c->fwd, c->op, operand));
}

IrServes grad_serves(const GradCall *c, uint32_t operand)
{
    return serves(c->ad, ir_in(c->fwd, c->op, operand));
}

void grad_give(GradCall *c, uint32_t operand, IrValue v)
{
    contribute(c->ad, ir_in(c->fwd, c->op, operand), v);
}

void grad_give_part(GradCall *c, uint32_t operand, uint32_t part, uint32_t parts, IrValue v)
{
    Autodiff *ad = c->ad;
    IrValue of = ir_in(c->fwd, c->op, operand);
    Adjoint *adjoint = &ad->adjoints[of.i];
    if (adjoint->n_parts && adjoint->n_parts != parts)
        adjoint_of(ad, of); /* cut another way before: that concat first */
    if (!adjoint->n_parts) {
        adjoint->parts = ARENA_ARRAY(ad->c->scratch, IrValue, parts);
        adjoint->n_parts = parts;
    }
    name_gradient(ad, v, ir_out(c->fwd, c->op, 0));
    IrValue *slot = &adjoint->parts[part];
    *slot = slot->i ? build_named(ad, IR_OP_add, ir_value_type(ad->bwd, v), 2,
                                  (IrValue[]){*slot, v}, of)
                    : v;
}

/* -- parameters' gradients -- */

/* The finished gradient has the plain name; a contribution that had it before gives way. */
static void take_name(Autodiff *ad, IrValue v, Sym name)
{
    IrValue holder = ir_value_find(ad->bwd, name);
    if (holder.i == v.i)
        return;
    if (holder.i)
        ir_value_rename(ad->bwd, holder, ir_value_fresh_name(ad->bwd, name));
    ir_value_rename(ad->bwd, v, name);
}

static void finish_state(Autodiff *ad, IrValue v)
{
    IrState state = ir_value(ad->fwd, v)->state;
    IrValue g = adjoint_of(ad, v);
    if (!g.i)
        return;
    IrModule *m = ad->fwd->m;
    Sym name = intern_printf(&ad->c->s->interner, "%s.grad", ir_state_rec(m, state)->name);
    take_name(ad, g, name);
    if (ad->c->options->micro_batches == 1) {
        vec_push(ad->c->s->arena, &ad->bwd->results, g);
        return;
    }
    IrState acc = step_companion(m, state, "acc", IR_STATE_ACC, ad->c->options->accumulate);
    ad->b.serves = IR_SERVES_WEIGHT;
    ir_build(&ad->b, &(IrOpArgs){.kind = IR_OP_accumulate,
                                 .in = (IrValue[]){ir_graph_state(ad->bwd, acc), g},
                                 .n_in = 2});
}

static void release_states(Autodiff *ad, IrOp op)
{
    for (uint32_t i = 0; i < ir_op(ad->fwd, op)->n_in; i++) {
        IrValue v = ir_in(ad->fwd, op, i);
        if (ir_value(ad->fwd, v)->def == IR_DEF_STATE && --ad->uses_left[v.i] == 0 &&
            ad->wants[v.i])
            finish_state(ad, v);
    }
}

/* -- the walk -- */

static Status reverse_op(Autodiff *ad, IrOp op)
{
    const IrOpRec *rec = ir_op(ad->fwd, op);
    ad->b.scope = rec->scope;
    ad->b.span = rec->span;
    GradCall call = {.ad = ad, .b = &ad->b, .fwd = ad->fwd, .op = op};
    bool any_in = !rec->n_in, any_out = !rec->n_out; /* a message has only one end here */
    for (uint32_t i = 0; i < rec->n_in; i++)
        any_in |= ad->wants[ir_in(ad->fwd, op, i).i] != 0;
    for (uint32_t r = 0; any_in && r < rec->n_out; r++)
        any_out |= grad_dy(&call, r).i != 0;
    if (any_in && any_out) {
        GradRule rule = grad_rule(ir_op_kind(ad->fwd, op));
        if (!rule) {
            diag(ad->c->s, rec->span, grad_missing, ir_op_info(ir_op_kind(ad->fwd, op))->name);
            return STATUS_USER;
        }
        rule(&call);
    }
    release_states(ad, op);
    return STATUS_OK;
}

static void record_lost_parameters(PassContext *c, const IrGraph *bwd)
{
    Map has;
    map_init(&has, c->scratch);
    for (uint32_t i = 0; i < bwd->results.n; i++)
        map_put(&has, map_key(ir_value(bwd, bwd->results.at[i])->name), 1);
    for (uint32_t i = 1; i < c->m->states.n; i++) {
        const IrStateRec *rec = &c->m->states.at[i];
        if (rec->kind != IR_STATE_PARAM || !rec->trainable)
            continue;
        Sym grad = intern_printf(&c->s->interner, "%s.grad", rec->name);
        Sym acc = intern_printf(&c->s->interner, "%s.acc", rec->name);
        if (!map_get(&has, map_key(grad), NULL) && !ir_state_find(c->m, acc).i)
            diag(c->s, rec->span, no_gradient, rec->name);
    }
}

/* -- @eval: the forward pass without dropout -- */

static IrValue map_eval(void *context, IrValue old)
{
    return old.i ? ((IrValue *)context)[old.i] : old;
}

static void write_eval(PassContext *c, const IrGraph *fwd)
{
    IrGraph *eval = ir_graph_new(c->m, sym(c->s, "eval"));
    IrValue *map = ARENA_ARRAY(c->scratch, IrValue, fwd->values.n);
    for (uint32_t v = 1; v < fwd->values.n; v++) {
        const IrValueRec *rec = &fwd->values.at[v];
        if (rec->def == IR_DEF_PARAM)
            map[v] = ir_graph_param(eval, rec->name, rec->type, rec->span);
        else if (rec->def == IR_DEF_STATE)
            map[v] = ir_graph_state(eval, rec->state);
    }
    IrBuilder b = ir_builder(eval);
    for (uint32_t i = 0; i < fwd->order.n; i++) {
        IrOp op = fwd->order.at[i];
        const IrOpRec *rec = ir_op(fwd, op);
        if (rec->kind == IR_OP_dropout) {
            map[rec->first_out] = map[ir_in(fwd, op, 0).i];
            continue;
        }
        b.scope = rec->scope;
        b.span = rec->span;
        IrOp copy = ir_clone(&b, fwd, op, map_eval, map, "", "");
        if (rec->kind == IR_OP_attention)
            ir_attr_at(eval, copy, "dropout")->f = 0;
        for (uint32_t r = 0; r < rec->n_out; r++)
            map[rec->first_out + r] = ir_out(eval, copy, r);
    }
    IrValue sum = ir_graph_state(eval, step_scalar(c->m, "eval_sum", DTYPE_F64));
    if (!ir_module_has_loss(c->m))
        return;
    b.scope = (IrScope){1};
    ir_build(&b, &(IrOpArgs){.kind = IR_OP_accumulate,
                             .in = (IrValue[]){sum, map[fwd->results.at[0].i]},
                             .n_in = 2});
    vec_push(c->s->arena, &eval->results, map[fwd->results.at[0].i]);
}

/* -- the pass -- */

static Status check_loss(PassContext *c, const IrGraph *fwd, IrValue *out_loss)
{
    IrValue loss = fwd->results.n ? fwd->results.at[0] : (IrValue){0};
    *out_loss = (IrValue){0};
    if (!ir_module_has_loss(c->m))
        return STATUS_OK;
    if (!loss.i || ir_type_info(c->m, ir_value_type(fwd, loss))->rank != 0) {
        const char *what = loss.i ? ir_type_text(c->m, ir_value_type(fwd, loss)) : "none";
        diag(c->s, loss.i ? ir_value(fwd, loss)->span : no_span, no_loss, what);
        return STATUS_USER;
    }
    *out_loss = loss;
    return STATUS_OK;
}

static void sum_loss(PassContext *c, IrGraph *fwd, IrValue loss)
{
    IrBuilder b = ir_builder(fwd);
    b.scope = (IrScope){1};
    b.span = ir_value(fwd, loss)->span;
    IrValue sum = ir_graph_state(fwd, step_scalar(c->m, "loss_sum", DTYPE_F64));
    ir_build(&b, &(IrOpArgs){.kind = IR_OP_accumulate, .in = (IrValue[]){sum, loss}, .n_in = 2});
}

static void init(Autodiff *ad, PassContext *c, IrGraph *fwd)
{
    uint32_t n = fwd->values.n;
    *ad = (Autodiff){.c = c, .fwd = fwd, .bwd = ir_graph_new(c->m, sym(c->s, "bwd"))};
    ad->b = ir_builder(ad->bwd);
    ad->adjoints = ARENA_ARRAY(c->scratch, Adjoint, n);
    ad->here = ARENA_ARRAY(c->scratch, IrValue, n);
    ad->wants = ARENA_ARRAY(c->scratch, unsigned char, n);
    ad->leaves_region = ARENA_ARRAY(c->scratch, unsigned char, n);
    ad->saved = ARENA_ARRAY(c->scratch, unsigned char, n);
    ad->uses_left = ARENA_ARRAY(c->scratch, uint32_t, n);
    find_region_results(ad);
    find_wants(ad);
}

Status pass_autodiff(PassContext *c)
{
    IrGraph *fwd = ir_graph_find(c->m, "fwd");
    IrValue loss;
    TRY(check_loss(c, fwd, &loss));
    Autodiff ad;
    init(&ad, c, fwd);
    if (c->options->eval)
        write_eval(c, fwd);
    if (loss.i) {
        DType dtype = ir_type_info(c->m, ir_value_type(fwd, loss))->dtype;
        ad.adjoints[loss.i].sum = ir_graph_state(ad.bwd, step_scalar(c->m, "inverse", dtype));
    }
    uint32_t n_order = fwd->order.n;
    for (uint32_t i = n_order; i-- > 0;)
        TRY(reverse_op(&ad, fwd->order.at[i]));
    for (uint32_t i = 0; i < n_order; i++)
        for (uint32_t r = 0; r < ir_op(fwd, fwd->order.at[i])->n_out; r++) {
            IrValue v = ir_out(fwd, fwd->order.at[i], r);
            if (ad.saved[v.i] && v.i != loss.i)
                vec_push(c->s->arena, &fwd->results, v);
        }
    if (loss.i)
        sum_loss(c, fwd, loss);
    record_lost_parameters(c, ad.bwd);
    return STATUS_OK;
}
