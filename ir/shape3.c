/* Shape functions of the ops between ranks, and of flat buffers. */
#include "ir/shape.h"

#include <inttypes.h>

enum { RANKS = 1 /* attribute `ranks` */, FLAT_ALIGN = 32 };

static bool asked(IrShapeCall *call)
{
    return call->out[0].i || ir_shape_fail(call, "the result's type must be given");
}

/* Has the result `numel` elements? */
static bool holds(IrShapeCall *call, int64_t numel)
{
    if (ir_type_numel(call->m, call->out[0]) == numel)
        return true;
    return ir_shape_fail(call, "`x` is %s, so the result must have %" PRId64 " elements, not be %s",
                         ir_shape_text(call, 0), numel, ir_type_text(call->m, call->out[0]));
}

static bool has_ranks(IrShapeCall *call)
{
    if (call->attr[RANKS].i >= 1)
        return true;
    return ir_shape_fail(call, "ranks=%" PRId64 " must be at least 1", call->attr[RANKS].i);
}

bool ir_shape_all_gather(IrShapeCall *call)
{
    int64_t numel = ir_type_numel(call->m, call->in[0]);
    if (!asked(call) || !has_ranks(call))
        return false;
    if (ir_shape_in(call, 0)->dtype != ir_type_info(call->m, call->out[0])->dtype)
        return ir_shape_fail(call, "a gather keeps the dtype: `x` is %s, the result %s",
                             ir_shape_text(call, 0), ir_type_text(call->m, call->out[0]));
    return holds(call, numel * call->attr[RANKS].i);
}

bool ir_shape_reduce_scatter(IrShapeCall *call)
{
    int64_t numel = ir_type_numel(call->m, call->in[0]), ranks = call->attr[RANKS].i;
    if (!asked(call) || !has_ranks(call) || !ir_shape_float(call, 0, "x"))
        return false;
    if (numel % ranks)
        return ir_shape_fail(call, "`x`, %s, does not part into ranks=%" PRId64,
                             ir_shape_text(call, 0), ranks);
    return holds(call, numel / ranks);
}

bool ir_shape_take_part(IrShapeCall *call)
{
    int64_t numel = ir_type_numel(call->m, call->in[0]), ranks = call->attr[RANKS].i;
    if (!asked(call) || !has_ranks(call))
        return false;
    int64_t part = ir_type_numel(call->m, call->out[0]);
    if (ir_shape_in(call, 0)->dtype == ir_type_info(call->m, call->out[0])->dtype &&
        part >= (numel + ranks - 1) / ranks)
        return true;
    return ir_shape_fail(call, "`x` is %s, and %s is no part of it for ranks=%" PRId64,
                         ir_shape_text(call, 0), ir_type_text(call->m, call->out[0]), ranks);
}

/* The dtype may be another: the sum is rounded once. */
bool ir_shape_all_reduce(IrShapeCall *call)
{
    if (!has_ranks(call))
        return false;
    ir_shape_out(call, 0, *ir_shape_in(call, 0), true);
    return true;
}

bool ir_shape_any(IrShapeCall *call)
{
    return has_ranks(call);
}

bool ir_shape_recv(IrShapeCall *call)
{
    return asked(call) && has_ranks(call);
}

bool ir_shape_flat_pack(IrShapeCall *call)
{
    if (!asked(call))
        return false;
    int64_t end = 0;
    for (uint32_t i = 0; i < call->n_in; i++)
        if (call->in[i].i)
            end = (end + FLAT_ALIGN - 1) / FLAT_ALIGN * FLAT_ALIGN +
                  ir_type_numel(call->m, call->in[i]);
    if (end <= ir_type_numel(call->m, call->out[0]))
        return true;
    return ir_shape_fail(call, "the parts take %" PRId64 " elements, more than the result, %s", end,
                         ir_type_text(call->m, call->out[0]));
}

bool ir_shape_flat_piece(IrShapeCall *call)
{
    if (!asked(call))
        return false;
    const IrTypeInfo *x = ir_shape_in(call, 0), *y = ir_type_info(call->m, call->out[0]);
    int64_t offset = call->attr[0].i, n = ir_type_numel(call->m, call->in[0]);
    if (x->dtype != y->dtype)
        return ir_shape_fail(call, "a piece keeps the dtype: `x` is %s, the result %s",
                             ir_shape_text(call, 0), ir_type_text(call->m, call->out[0]));
    if (offset >= 0 && offset <= n && ir_type_numel(call->m, call->out[0]) <= n - offset)
        return true;
    return ir_shape_fail(call, "offset=%" PRId64 " and the result, %s, reach beyond `x`, %s",
                         offset, ir_type_text(call->m, call->out[0]), ir_shape_text(call, 0));
}

bool ir_shape_sum_scalars(IrShapeCall *call)
{
    for (uint32_t i = 0; i < call->n_in; i++)
        if (ir_type_numel(call->m, call->in[i]) != 1)
            return ir_shape_fail(call, "part %u is %s but must be a scalar", i,
                                 ir_shape_text(call, i));
    ir_shape_out(call, 0, (IrTypeInfo){.dtype = DTYPE_F64}, false);
    return true;
}

/* [2, ...] of the targets' dims. */
static IrTypeInfo loss_part(const IrTypeInfo *targets, DType dtype)
{
    IrTypeInfo part = {.dtype = ir_shape_statistics(dtype), .rank = targets->rank + 1};
    part.dim[0] = ir_dim_number(2);
    for (uint32_t i = 0; i < targets->rank; i++)
        part.dim[i + 1] = targets->dim[i];
    return part;
}

bool ir_shape_lm_loss_part(IrShapeCall *call)
{
    const IrTypeInfo *h = ir_shape_in(call, 0), *w = ir_shape_in(call, 1),
                     *targets = ir_shape_in(call, 2);
    if (!h->rank || w->rank != 2 || targets->rank + 1 != h->rank ||
        targets->rank + 1 > IR_MAX_RANK || !ir_dim_equal(&h->dim[h->rank - 1], &w->dim[1]) ||
        !ir_shape_same_leading(h, targets, targets->rank))
        return ir_shape_fail(call, "`h` is %s, `w` %s and `targets` %s: they do not fit",
                             ir_shape_text(call, 0), ir_shape_text(call, 1),
                             ir_shape_text(call, 2));
    ir_shape_out(call, 0, loss_part(targets, h->dtype), false);
    return true;
}

bool ir_shape_lm_loss_join(IrShapeCall *call)
{
    enum { N = 1 /* attribute `n` */ };
    IrTypeInfo lse = *ir_shape_in(call, 1);
    lse.dtype = ir_shape_statistics(ir_shape_in(call, 0)->dtype);
    IrTypeInfo loss = {.dtype = lse.dtype};
    if (ir_type_numel(call->m, call->in[0]) !=
        2 * call->attr[N].i * ir_type_numel(call->m, call->in[1]))
        return ir_shape_fail(call,
                             "the parts, %s, are not two numbers per target, %s, of n=%" PRId64,
                             ir_shape_text(call, 0), ir_shape_text(call, 1), call->attr[N].i);
    ir_shape_out(call, 0, loss, false);
    ir_shape_out(call, 1, lse, false);
    return true;
}
