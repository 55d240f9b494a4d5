/* Shape functions of attention, losses, backward and optimizer ops. */
#include "ir/shape.h"

static bool attention_operands(IrShapeCall *call, uint32_t at)
{
    const IrTypeInfo *q = ir_shape_in(call, at), *k = ir_shape_in(call, at + 1);
    const IrTypeInfo *v = ir_shape_in(call, at + 2);
    if (q->rank != 4 || k->rank != 4 || v->rank != 4)
        return ir_shape_fail(call, "q, k and v must be [batch, seq, heads, D], not %s, %s, %s",
                             ir_shape_text(call, at), ir_shape_text(call, at + 1),
                             ir_shape_text(call, at + 2));
    if (!ir_shape_float(call, at, "q"))
        return false;
    if (!ir_shape_same_dims(k, v) || k->dtype != v->dtype || q->dtype != k->dtype)
        return ir_shape_fail(call, "q is %s, so k, %s, and v, %s, must be alike and of its dtype",
                             ir_shape_text(call, at), ir_shape_text(call, at + 1),
                             ir_shape_text(call, at + 2));
    int64_t heads = ir_dim_size(&q->dim[2]), kv_heads = ir_dim_size(&k->dim[2]);
    if (!ir_dim_equal(&q->dim[0], &k->dim[0]) || !ir_dim_equal(&q->dim[3], &k->dim[3]) ||
        kv_heads < 1 || heads % kv_heads)
        return ir_shape_fail(call,
                             "q, %s, and k, %s, must have one batch and head size, and the kv "
                             "heads must divide the heads",
                             ir_shape_text(call, at), ir_shape_text(call, at + 1));
    return true;
}

/* An optional mask operand: integers over [batch, seq of `side`]. */
static bool attention_mask(IrShapeCall *call, uint32_t i, const char *name, uint32_t side)
{
    if (i >= call->n_in || !call->in[i].i)
        return true;
    const IrTypeInfo *mask = ir_shape_in(call, i);
    if (mask->rank == 2 && ir_shape_is_int(mask) &&
        ir_shape_same_leading(mask, ir_shape_in(call, side), 2))
        return true;
    return ir_shape_fail(call, "`%s` is %s but must be integers over [batch, seq] of %s", name,
                         ir_shape_text(call, i), ir_shape_text(call, side));
}

/* [batch, heads, seq] of q's rows. */
static IrTypeInfo lse_of(const IrTypeInfo *q)
{
    IrTypeInfo lse = {.dtype = ir_shape_statistics(q->dtype), .rank = 3};
    lse.dim[0] = q->dim[0];
    lse.dim[1] = q->dim[2];
    lse.dim[2] = q->dim[1];
    return lse;
}

bool ir_shape_attention(IrShapeCall *call)
{
    enum { Q, K, V, SEGMENTS, KEEP };
    if (!attention_operands(call, Q) || !attention_mask(call, SEGMENTS, "segments", Q) ||
        !attention_mask(call, KEEP, "keep", K))
        return false;
    IrTypeInfo q = *ir_shape_in(call, Q);
    ir_shape_out(call, 0, q, false);
    ir_shape_out(call, 1, lse_of(&q), false);
    return true;
}

bool ir_shape_attention_grad(IrShapeCall *call)
{
    enum { DO, Q, K, V, O, LSE, SEGMENTS, KEEP };
    if (!attention_operands(call, Q) || !attention_mask(call, SEGMENTS, "segments", Q) ||
        !attention_mask(call, KEEP, "keep", K))
        return false;
    IrTypeInfo q = *ir_shape_in(call, Q), lse = lse_of(&q);
    if (!ir_shape_same_dims(&q, ir_shape_in(call, DO)) ||
        !ir_shape_same_dims(&q, ir_shape_in(call, O)))
        return ir_shape_fail(call, "`do`, %s, and `o`, %s, must have the dims of `q`, %s",
                             ir_shape_text(call, DO), ir_shape_text(call, O),
                             ir_shape_text(call, Q));
    if (!ir_shape_same_dims(&lse, ir_shape_in(call, LSE)))
        return ir_shape_fail(call, "`lse` is %s but must be [batch, heads, seq] of `q`, %s",
                             ir_shape_text(call, LSE), ir_shape_text(call, Q));
    ir_shape_out(call, 0, q, false);
    ir_shape_out(call, 1, *ir_shape_in(call, K), false);
    ir_shape_out(call, 2, *ir_shape_in(call, V), false);
    return true;
}

/* -- head and loss -- */

static bool loss_operands(IrShapeCall *call, uint32_t at)
{
    const IrTypeInfo *h = ir_shape_in(call, at), *w = ir_shape_in(call, at + 1);
    const IrTypeInfo *targets = ir_shape_in(call, at + 2);
    if (!ir_shape_float(call, at, "h"))
        return false;
    if (!h->rank || w->rank != 2 || !ir_dim_equal(&h->dim[h->rank - 1], &w->dim[1]) ||
        h->dtype != w->dtype)
        return ir_shape_fail(call, "`h` is %s, so `w` must be [vocab, D] of its dtype, not %s",
                             ir_shape_text(call, at), ir_shape_text(call, at + 1));
    if (targets->rank + 1 != h->rank || !ir_shape_same_leading(h, targets, targets->rank) ||
        !ir_shape_is_int(targets))
        return ir_shape_fail(call, "`targets` is %s but must be one integer per row of `h`, %s",
                             ir_shape_text(call, at + 2), ir_shape_text(call, at));
    return true;
}

bool ir_shape_lm_loss(IrShapeCall *call)
{
    if (!loss_operands(call, 0))
        return false;
    IrTypeInfo lse = *ir_shape_in(call, 0);
    lse.rank--;
    lse.dtype = ir_shape_statistics(lse.dtype);
    IrTypeInfo loss = {.dtype = lse.dtype};
    ir_shape_out(call, 0, loss, false);
    ir_shape_out(call, 1, lse, false);
    return true;
}

static bool seed_operand(IrShapeCall *call, uint32_t at)
{
    return ir_type_numel(call->m, call->in[at]) == 1 ||
           ir_shape_fail(call, "`seed` is %s but must be a scalar", ir_shape_text(call, at));
}

bool ir_shape_lm_loss_with_grad(IrShapeCall *call)
{
    enum { SEED, H, W };
    if (!loss_operands(call, H) || !seed_operand(call, SEED))
        return false;
    IrTypeInfo loss = {.dtype = ir_shape_statistics(ir_shape_in(call, H)->dtype)};
    ir_shape_out(call, 0, loss, false);
    ir_shape_out(call, 1, *ir_shape_in(call, H), false);
    ir_shape_out(call, 2, *ir_shape_in(call, W), true);
    return true;
}

bool ir_shape_lm_loss_grad(IrShapeCall *call)
{
    enum { SEED, H, W, TARGETS, LSE };
    if (!loss_operands(call, H) || !seed_operand(call, SEED))
        return false;
    const IrTypeInfo *lse = ir_shape_in(call, LSE);
    if (!ir_shape_same_dims(lse, ir_shape_in(call, TARGETS)))
        return ir_shape_fail(call, "`lse` is %s but must be one number per target, %s",
                             ir_shape_text(call, LSE), ir_shape_text(call, TARGETS));
    ir_shape_out(call, 0, *ir_shape_in(call, H), true);
    ir_shape_out(call, 1, *ir_shape_in(call, W), true);
    return true;
}

/* -- backward of products; a weight's gradient has the dtype that the caller asks for -- */

bool ir_shape_linear_grad_x(IrShapeCall *call)
{
    const IrTypeInfo *dy = ir_shape_in(call, 0), *w = ir_shape_in(call, 1);
    bool in_out = call->attr[0].b;
    if (!dy->rank || w->rank != 2 || dy->dtype != w->dtype ||
        !ir_dim_equal(&dy->dim[dy->rank - 1], &w->dim[in_out ? 1 : 0]))
        return ir_shape_fail(call, "`dy`, %s, does not fit `w`, %s", ir_shape_text(call, 0),
                             ir_shape_text(call, 1));
    IrTypeInfo dx = *dy;
    dx.dim[dx.rank - 1] = w->dim[in_out ? 0 : 1];
    ir_shape_out(call, 0, dx, true);
    return true;
}

bool ir_shape_linear_grad_w(IrShapeCall *call)
{
    const IrTypeInfo *dy = ir_shape_in(call, 0), *x = ir_shape_in(call, 1);
    bool in_out = call->attr[0].b;
    if (!dy->rank || dy->rank != x->rank || dy->dtype != x->dtype ||
        !ir_shape_same_leading(dy, x, dy->rank - 1))
        return ir_shape_fail(call, "`dy`, %s, and `x`, %s, must have the same rows and dtype",
                             ir_shape_text(call, 0), ir_shape_text(call, 1));
    IrTypeInfo dw = {.dtype = dy->dtype, .rank = 2};
    dw.dim[in_out ? 1 : 0] = dy->dim[dy->rank - 1];
    dw.dim[in_out ? 0 : 1] = x->dim[x->rank - 1];
    ir_shape_out(call, 0, dw, true);
    return true;
}

/* -- backward of pointwise and row-wise ops -- */

bool ir_shape_glu_grad(IrShapeCall *call)
{
    const IrTypeInfo *dy = ir_shape_in(call, 0);
    for (uint32_t i = 1; i < 3; i++)
        if (dy->dtype != ir_shape_in(call, i)->dtype ||
            !ir_shape_same_dims(dy, ir_shape_in(call, i)))
            return ir_shape_fail(call, "the operands must have one type, not %s and %s",
                                 ir_shape_text(call, 0), ir_shape_text(call, i));
    IrTypeInfo info = *dy;
    ir_shape_out(call, 0, info, false);
    ir_shape_out(call, 1, info, false);
    return true;
}

static bool is_per_row(const IrTypeInfo *row, const IrTypeInfo *x)
{
    return row->rank + 1 == x->rank && ir_shape_same_leading(row, x, row->rank);
}

/* A norm's input gradient: dy and x alike, a statistic per row each, then the weight. */
bool ir_shape_like_dy(IrShapeCall *call)
{
    const IrTypeInfo *dy = ir_shape_in(call, 0), *x = ir_shape_in(call, 1);
    if (!dy->rank || dy->dtype != x->dtype || !ir_shape_same_dims(dy, x))
        return ir_shape_fail(call, "`dy` and `x` must have one type, not %s and %s",
                             ir_shape_text(call, 0), ir_shape_text(call, 1));
    for (uint32_t i = 2; i + 1 < call->n_in; i++)
        if (!is_per_row(ir_shape_in(call, i), x))
            return ir_shape_fail(call, "a statistic is %s but must be one number per row of %s",
                                 ir_shape_text(call, i), ir_shape_text(call, 1));
    const IrTypeInfo *w = ir_shape_in(call, call->n_in - 1);
    if (call->in[call->n_in - 1].i &&
        (w->rank != 1 || !ir_dim_equal(&w->dim[0], &x->dim[x->rank - 1])))
        return ir_shape_fail(call, "`w` is %s but must have one dim, the last of `x`, %s",
                             ir_shape_text(call, call->n_in - 1), ir_shape_text(call, 1));
    ir_shape_out(call, 0, *dy, false);
    return true;
}

/* -- a weight's gradient summed over rows: the caller says its type, in the gradients' dtype -- */

static bool asked_float(IrShapeCall *call)
{
    if (!call->out[0].i)
        return ir_shape_fail(call, "the result's type must be given");
    if (dtype_is_float(ir_type_info(call->m, call->out[0])->dtype))
        return true;
    return ir_shape_fail(call, "the result must be of a float type, not %s",
                         ir_type_text(call->m, call->out[0]));
}

bool ir_shape_embed_grad(IrShapeCall *call)
{
    const IrTypeInfo *ids = ir_shape_in(call, 0), *dy = ir_shape_in(call, 1);
    if (!asked_float(call))
        return false;
    const IrTypeInfo *dtable = ir_type_info(call->m, call->out[0]);
    if (!ir_shape_is_int(ids) || dy->rank != ids->rank + 1 ||
        !ir_shape_same_leading(ids, dy, ids->rank))
        return ir_shape_fail(call, "`dy`, %s, must be a row for each integer of `ids`, %s",
                             ir_shape_text(call, 1), ir_shape_text(call, 0));
    if (dtable->rank != 2 || !ir_dim_equal(&dtable->dim[1], &dy->dim[dy->rank - 1]))
        return ir_shape_fail(call, "the result must be [rows, D] with `dy`'s last dim, %s, not %s",
                             ir_shape_text(call, 1), ir_type_text(call->m, call->out[0]));
    return true;
}

bool ir_shape_sum_rows(IrShapeCall *call)
{
    const IrTypeInfo *x = ir_shape_in(call, 0);
    if (!asked_float(call))
        return false;
    const IrTypeInfo *y = ir_type_info(call->m, call->out[0]);
    bool fits = y->rank <= x->rank;
    for (uint32_t i = 0; fits && i < y->rank; i++)
        fits = ir_dim_equal(&y->dim[i], &x->dim[x->rank - y->rank + i]);
    if (fits || ir_type_numel(call->m, call->out[0]) == 1)
        return true;
    return ir_shape_fail(call, "the result, %s, must have the trailing dims of `x`, %s",
                         ir_type_text(call->m, call->out[0]), ir_shape_text(call, 0));
}

bool ir_shape_norm_grad_w(IrShapeCall *call)
{
    const IrTypeInfo *dy = ir_shape_in(call, 0), *x = ir_shape_in(call, 1);
    if (!asked_float(call))
        return false;
    const IrTypeInfo *dw = ir_type_info(call->m, call->out[0]);
    if (!dy->rank || dy->dtype != x->dtype || !ir_shape_same_dims(dy, x))
        return ir_shape_fail(call, "`dy` and `x` must have one type, not %s and %s",
                             ir_shape_text(call, 0), ir_shape_text(call, 1));
    for (uint32_t i = 2; i < call->n_in; i++)
        if (!is_per_row(ir_shape_in(call, i), x))
            return ir_shape_fail(call, "a statistic is %s but must be one number per row of %s",
                                 ir_shape_text(call, i), ir_shape_text(call, 1));
    if (dw->rank != 1 || !ir_dim_equal(&dw->dim[0], &x->dim[x->rank - 1]))
        return ir_shape_fail(call, "the result must have one dim, the last of `x`, %s, not %s",
                             ir_shape_text(call, 1), ir_type_text(call->m, call->out[0]));
    return true;
}

/* -- the step around the graphs -- */

static bool scalars_from(IrShapeCall *call, uint32_t first)
{
    for (uint32_t i = first; i < call->n_in; i++)
        if (call->in[i].i && ir_type_numel(call->m, call->in[i]) != 1)
            return ir_shape_fail(call, "operand %u is %s but must be a scalar", i,
                                 ir_shape_text(call, i));
    return true;
}

bool ir_shape_scalars(IrShapeCall *call)
{
    return scalars_from(call, 0);
}

bool ir_shape_count_targets(IrShapeCall *call)
{
    if (!ir_shape_is_int(ir_shape_in(call, 0)))
        return ir_shape_fail(call, "`targets` is %s but must be of an integer type",
                             ir_shape_text(call, 0));
    return scalars_from(call, 1);
}

bool ir_shape_accumulate(IrShapeCall *call)
{
    if (!ir_shape_float(call, 0, "state") || !ir_shape_float(call, 1, "x"))
        return false;
    return ir_shape_same_dims(ir_shape_in(call, 0), ir_shape_in(call, 1)) ||
           ir_shape_fail(call, "`state` is %s but `x` is %s", ir_shape_text(call, 0),
                         ir_shape_text(call, 1));
}

/* An optimizer's update: tensors of the weight's dims, then coef, lr and step. Of a flat weight
 * the others may be this member's equal part. */
bool ir_shape_update(IrShapeCall *call)
{
    enum { SCALARS = 3 };
    const IrTypeInfo *w = ir_shape_in(call, 0), *g = ir_shape_in(call, 1);
    int64_t whole = ir_type_numel(call->m, call->in[0]), part = ir_type_numel(call->m, call->in[1]);
    if (!ir_shape_same_dims(w, g) && (w->rank != 1 || g->rank != 1 || whole % part))
        return ir_shape_fail(call, "operand 1 is %s but the weight is %s", ir_shape_text(call, 1),
                             ir_shape_text(call, 0));
    for (uint32_t i = 2; i + SCALARS < call->n_in; i++)
        if (call->in[i].i && !ir_shape_same_dims(g, ir_shape_in(call, i)))
            return ir_shape_fail(call, "operand %u is %s but the gradient is %s", i,
                                 ir_shape_text(call, i), ir_shape_text(call, 1));
    return scalars_from(call, call->n_in - SCALARS);
}

bool ir_shape_norm_sq(IrShapeCall *call)
{
    if (!ir_shape_float(call, 0, "x"))
        return false;
    ir_shape_out(call, 0, (IrTypeInfo){.dtype = DTYPE_F64}, false);
    return true;
}
