/* fsdp: shares a step between data-parallel ranks, as the strategy says:
 *
 *   ddp    every rank has all; gradients are summed
 *
 *   zero1  moments and masters are cut over the ranks; each updates its part of the weights,
 *          which are then gathered
 *
 *   zero2  gradients too: they are scattered as they are summed
 *
 *   fsdp2  weights too: gathered for the forward pass, dropped, gathered again for the backward
 *          pass
 *
 * What is cut is cut in units (passes/units.h): one gather and one scatter each. */
#include "passes/fsdp.h"

#include <string.h>

#include "base/diag.h"

IrBuilder fsdp_builder(IrGraph *g, const FlatUnit *u, uint32_t at)
{
    IrBuilder b = ir_builder(g);
    b.at = at;
    b.scope = u->scope;
    b.span = u->span;
    return b;
}

IrValue fsdp_piece(IrBuilder *b, IrValue flat, const FlatMember *member, Sym name, IrType type)
{
    IrOpArgs args = {.kind = IR_OP_flat_piece, .in = &flat, .n_in = 1, .name = name, .out = {type}};
    args.attrs[0] = "offset";
    args.values[0].i = member->begin;
    return ir_out(b->g, ir_build(b, &args), 0);
}

IrValue fsdp_collective(IrBuilder *b, IrOpKind kind, IrValue in, Sym name, IrType out, Sym comm,
                        int64_t ranks)
{
    IrOpArgs args = {.kind = kind, .in = &in, .n_in = 1, .name = name, .out = {out}};
    flat_give_comm(&args, comm, ranks);
    return ir_out(b->g, ir_build(b, &args), 0);
}

static void drop_old_states(Fsdp *x)
{
    IrModule *m = x->c->m;
    bool *drop = ARENA_ARRAY(x->c->scratch, bool, m->states.n);
    for (uint32_t i = 1; i < m->states.n; i++) {
        IrState of = m->states.at[i].of.i ? m->states.at[i].of : (IrState){i};
        drop[i] = !m->states.at[i].n_pieces && m->states.at[of.i].kind == IR_STATE_PARAM &&
                  fsdp_unit(x, of);
    }
    ir_states_drop(m, drop);
}

/* Has every update a moment or a master, which zero1 and zero2 cut? */
static bool has_states_to_cut(const IrGraph *update)
{
    for (uint32_t i = 0; update && i < update->order.n; i++) {
        IrOp op = update->order.at[i];
        bool found = ir_op_kind(update, op) != IR_OP_sgd;
        for (uint32_t k = 2; !found && k < ir_op(update, op)->n_in; k++) {
            IrValue in = ir_in(update, op, k);
            found = in.i && ir_value(update, in)->def == IR_DEF_STATE &&
                    ir_state_rec(update->m, ir_value(update, in)->state)->kind != IR_STATE_SCALAR;
        }
        if (!found)
            return false;
    }
    return true;
}

Status pass_fsdp(PassContext *c)
{
    if (flat_data_ranks(c) == 1 || !ir_graph_find(c->m, "fwd"))
        return STATUS_OK;
    Sym strategy = c->options->strategy;
    Fsdp x = {.c = c, .ranks = c->m->mesh.dp, .cut = sym(c->s, "dp")};
    x.weights = !strcmp(strategy, "fsdp2");
    x.grads = x.weights || !strcmp(strategy, "zero2");
    x.moments = x.grads || !strcmp(strategy, "zero1");
    if (x.moments && !x.weights && !has_states_to_cut(ir_graph_find(c->m, "update"))) {
        diag(c->s, c->options->strategy_span, zero_stateless, strategy);
        return STATUS_USER;
    }
    if (c->options->defer_sync && c->options->micro_batches > 1)
        x.grads = false; /* whole until the step's end */
    x.f = flat_units(c, x.ranks);
    pass_stat(c, "units", x.f.units.n);
    if (x.moments)
        fsdp_make_states(&x);
    fsdp_reduce_grads(&x);
    fsdp_rewrite_update(&x);
    fsdp_sum_scalars(&x);
    if (!x.moments)
        return STATUS_OK;
    static const char *const readers[] = {"fwd", "bwd", "eval"};
    for (uint32_t i = 0; i < sizeof readers / sizeof *readers; i++)
        if (ir_graph_find(c->m, readers[i]))
            fsdp_gather_weights(&x, ir_graph_find(c->m, readers[i]));
    drop_old_states(&x);
    return STATUS_OK;
}
