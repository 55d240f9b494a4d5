#include "passes/memplan_views.h"

#include <stdlib.h>

#include "passes/fuse_space.h"
#include "passes/lifetime.h"

static int64_t numel(const IrGraph *g, IrValue v)
{
    return ir_type_numel(g->m, ir_value_type(g, v));
}

/* v as a view of itself, where it is none of another value. */
static IrPlace view_of(const IrGraph *g, const IrPlace *views, IrValue v)
{
    if (views[v.i].base.i)
        return views[v.i];
    int64_t n = numel(g, v);
    return (IrPlace){.offset = -1, .base = v, .run = n, .pitch = n};
}

/* Part `index` of the last dim, seen through x's own view; false where one run and pitch cannot say
 * it. */
static bool slice_view(const IrGraph *g, const IrPlace *views, IrOp op, IrPlace *out)
{
    IrValue x = ir_in(g, op, 0);
    int64_t width = ir_type_last(g->m, ir_value_type(g, x));
    int64_t part = ir_type_last(g->m, ir_value_type(g, ir_out(g, op, 0)));
    IrPlace of = view_of(g, views, x);
    if (of.run == of.pitch)
        of.run = of.pitch = width;
    if (of.run != width)
        return false;
    *out = (IrPlace){.offset = -1,
                     .base = of.base,
                     .view_offset = of.view_offset + ir_attr_i64(g, op, "index") * part,
                     .run = part,
                     .pitch = of.pitch};
    return true;
}

/* A piece of a flat buffer, which is no strided view. */
static IrPlace piece_view(const IrGraph *g, const IrPlace *views, IrOp op)
{
    IrPlace of = view_of(g, views, ir_in(g, op, 0));
    int64_t n = numel(g, ir_out(g, op, 0));
    return (IrPlace){.offset = -1,
                     .base = of.base,
                     .view_offset = of.view_offset + ir_attr_i64(g, op, "offset"),
                     .run = n,
                     .pitch = n};
}

/* Can this op walk a view with runs of `run` elements as operand or result v? Kernels walk any;
 * fused code walks whole rows, of values that span its space; ranks exchange what is dense. */
static bool can_walk(const IrGraph *g, IrOp op, IrValue v, int64_t run, PassTarget target)
{
    if (ir_op_info(ir_op_kind(g, op))->traits & IR_COLLECTIVE)
        return run >= numel(g, v);
    if (pass_op_class(target, ir_op_kind(g, op)) != PASS_CLASS_FUSED)
        return true;
    PassSpace space = pass_space_of_op(g, op);
    return numel(g, v) == space.numel && (!space.cols || run % space.cols == 0);
}

typedef struct Readers {
    const IrGraph *g, *next; /* next: reads g's results by name; NULL: none */
    IrUses uses, next_uses;
    PassTarget target;
} Readers;

static bool all_walk(const Readers *r, const IrGraph *g, const IrUses *uses, IrValue v, int64_t run)
{
    for (uint32_t i = uses->first[v.i]; i < uses->first[v.i + 1]; i++) {
        IrOp op = uses->at[i];
        if (ir_op_kind(g, op) == IR_OP_reshape) {
            if (!all_walk(r, g, uses, ir_out(g, op, 0), run))
                return false;
        } else if (!can_walk(g, op, v, run, r->target)) {
            return false;
        }
    }
    if (g != r->g || !uses->is_result[v.i] || !r->next)
        return true;
    IrValue there = ir_value_find(r->next, ir_value(g, v)->name);
    return !there.i || all_walk(r, r->next, &r->next_uses, there, run);
}

PassViews pass_views_local(const IrGraph *g, const IrGraph *params_of, PassViews params_views,
                           const IrGraph *readers, PassTarget target, Arena *arena)
{
    IrPlace *views = ARENA_ARRAY(arena, IrPlace, g->values.n);
    Readers r = {.g = g, .next = readers, .uses = ir_uses(g, arena), .target = target};
    if (readers)
        r.next_uses = ir_uses(readers, arena);
    for (uint32_t i = 0; params_of && i < g->params.n; i++) {
        IrValue from = ir_value_find(params_of, ir_value(g, g->params.at[i])->name);
        if (from.i && pass_view_strided(&params_views[from.i])) {
            views[g->params.at[i].i] = params_views[from.i];
            views[g->params.at[i].i].base = g->params.at[i]; /* only the layout is known here */
        }
    }
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        IrPlace view;
        if (ir_op_kind(g, op) == IR_OP_reshape)
            views[ir_out(g, op, 0).i] = view_of(g, views, ir_in(g, op, 0));
        else if (ir_op_kind(g, op) == IR_OP_flat_piece)
            views[ir_out(g, op, 0).i] = piece_view(g, views, op);
        else if (ir_op_kind(g, op) == IR_OP_slice && slice_view(g, views, op, &view) &&
                 all_walk(&r, g, &r.uses, ir_out(g, op, 0), view.run))
            views[ir_out(g, op, 0).i] = view;
    }
    return views;
}

/* -- parts of a concat -- */

/* The value that the part is, but for its dims; {0} where more than the concat reads it. */
static IrValue part_source(const IrGraph *g, const IrUses *uses, IrValue part)
{
    for (IrValue v = part;; v = ir_in(g, ir_value(g, v)->op, 0)) {
        const IrValueRec *rec = ir_value(g, v);
        if (rec->def != IR_DEF_RESULT || uses->is_result[v.i] ||
            uses->first[v.i + 1] - uses->first[v.i] != 1)
            return (IrValue){0};
        if (ir_op_kind(g, rec->op) != IR_OP_reshape)
            return v;
    }
}

/* Are rows of `run` elements whole trailing dims of v? */
static bool is_run_of_dims(const IrGraph *g, IrValue v, int64_t run)
{
    const IrTypeInfo *info = ir_type_info(g->m, ir_value_type(g, v));
    int64_t n = 1;
    for (uint32_t i = info->rank; i-- > 0 && n < run;)
        n *= ir_dim_size(&info->dim[i]);
    return n == run;
}

/* Are the parts results of one op that writes them where they belong? Of one, so that no part waits
 * for another in the room of all. */
static bool is_written_in_place(const IrGraph *g, const IrUses *uses, IrOp concat)
{
    IrOp writer = {0};
    for (uint32_t i = 0; i < ir_op(g, concat)->n_in; i++) {
        IrValue part = ir_in(g, concat, i), source = part_source(g, uses, part);
        if (!source.i || (i && ir_value(g, source)->op.i != writer.i) ||
            !is_run_of_dims(g, source, ir_type_last(g->m, ir_value_type(g, part))))
            return false;
        writer = ir_value(g, source)->op;
    }
    return ir_op_info(ir_op_kind(g, writer))->traits & IR_STRIDED;
}

static void place_parts(const IrGraph *g, IrPlace *views, IrOp concat)
{
    IrValue y = ir_out(g, concat, 0);
    int64_t n = ir_op(g, concat)->n_in, width = ir_type_last(g->m, ir_value_type(g, y));
    for (uint32_t i = 0; i < n; i++) {
        IrPlace place = {.offset = -1,
                         .base = y,
                         .view_offset = i * (width / n),
                         .run = width / n,
                         .pitch = width};
        IrValue v = ir_in(g, concat, i);
        for (; ir_op_kind(g, ir_value(g, v)->op) == IR_OP_reshape;
             v = ir_in(g, ir_value(g, v)->op, 0))
            views[v.i] = place;
        views[v.i] = place;
    }
}

PassViews pass_views_planned(const IrGraph *g, Arena *arena)
{
    IrPlace *views = ARENA_ARRAY(arena, IrPlace, g->values.n);
    IrUses uses = ir_uses(g, arena);
    for (uint32_t i = 0; i < g->order.n; i++) {
        IrOp op = g->order.at[i];
        if (ir_in_kernel(g, op) || !ir_op(g, op)->n_out)
            continue;
        IrPlace *view = &views[ir_out(g, op, 0).i];
        if (ir_op_kind(g, op) == IR_OP_reshape)
            *view = view_of(g, views, ir_in(g, op, 0));
        else if (ir_op_kind(g, op) == IR_OP_flat_piece)
            *view = piece_view(g, views, op);
        else if (ir_op_kind(g, op) == IR_OP_slice && !slice_view(g, views, op, view))
            abort(); /* fuse leaves slices alone only where they are views */
        else if (ir_op_kind(g, op) == IR_OP_concat && is_written_in_place(g, &uses, op))
            place_parts(g, views, op);
    }
    return views;
}
