/* Shape functions of the model's own ops, and what the other file of them shares. */
#include "ir/shape.h"

#include <inttypes.h>
#include <stdarg.h>

bool ir_shape_fail(IrShapeCall *call, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    call->why = arena_vprintf(call->m->s->arena, format, args);
    va_end(args);
    return false;
}

const IrTypeInfo *ir_shape_in(const IrShapeCall *call, uint32_t i)
{
    return ir_type_info(call->m, call->in[i]);
}

const char *ir_shape_text(const IrShapeCall *call, uint32_t i)
{
    return ir_type_text(call->m, call->in[i]);
}

bool ir_shape_is_int(const IrTypeInfo *info)
{
    return !dtype_is_float(info->dtype) && info->dtype != DTYPE_NONE;
}

bool ir_shape_float(IrShapeCall *call, uint32_t i, const char *name)
{
    if (dtype_is_float(ir_shape_in(call, i)->dtype))
        return true;
    return ir_shape_fail(call, "`%s` must be of a float type, not %s", name,
                         ir_shape_text(call, i));
}

bool ir_shape_same_leading(const IrTypeInfo *a, const IrTypeInfo *b, uint32_t n)
{
    if (a->rank < n || b->rank < n)
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (!ir_dim_equal(&a->dim[i], &b->dim[i]))
            return false;
    return true;
}

bool ir_shape_same_dims(const IrTypeInfo *a, const IrTypeInfo *b)
{
    return a->rank == b->rank && ir_shape_same_leading(a, b, a->rank);
}

DType ir_shape_statistics(DType dtype)
{
    return dtype == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
}

void ir_shape_out(IrShapeCall *call, uint32_t i, IrTypeInfo info, bool any_dtype)
{
    if (any_dtype && call->out[i].i) {
        DType asked = ir_type_info(call->m, call->out[i])->dtype;
        if (dtype_is_float(asked))
            info.dtype = asked;
    }
    call->out[i] = ir_type(call->m, &info);
}

/* The last dim taken off. */
static IrTypeInfo without_last(IrTypeInfo info)
{
    info.rank--;
    return info;
}

/* Is operand i a vector over x's last dim? */
static bool is_row(IrShapeCall *call, uint32_t i, const char *name, const IrTypeInfo *x)
{
    const IrTypeInfo *row = ir_shape_in(call, i);
    if (!call->in[i].i)
        return true;
    if (row->rank == 1 && ir_dim_equal(&row->dim[0], &x->dim[x->rank - 1]) &&
        dtype_is_float(row->dtype))
        return true;
    return ir_shape_fail(call, "`%s` is %s but must have one dim, the last of `x`, %s", name,
                         ir_shape_text(call, i), ir_shape_text(call, 0));
}

static bool has_rows(IrShapeCall *call, uint32_t i, const char *name)
{
    if (ir_shape_in(call, i)->rank)
        return ir_shape_float(call, i, name);
    return ir_shape_fail(call, "`%s` is a scalar but needs a last dim", name);
}

bool ir_shape_embed(IrShapeCall *call)
{
    const IrTypeInfo *table = ir_shape_in(call, 0), *ids = ir_shape_in(call, 1);
    if (table->rank != 2)
        return ir_shape_fail(call, "`table` is %s but must have two dims, rows and width",
                             ir_shape_text(call, 0));
    if (!ir_shape_is_int(ids) || ids->rank >= IR_MAX_RANK)
        return ir_shape_fail(call, "`ids` is %s but must be of an integer type",
                             ir_shape_text(call, 1));
    IrTypeInfo y = *ids;
    y.dtype = table->dtype;
    y.dim[y.rank++] = table->dim[1];
    ir_shape_out(call, 0, y, false);
    return true;
}

bool ir_shape_linear(IrShapeCall *call)
{
    const IrTypeInfo *x = ir_shape_in(call, 0), *w = ir_shape_in(call, 1);
    bool in_out = call->attr[0].b;
    if (!has_rows(call, 0, "x"))
        return false;
    if (w->rank != 2)
        return ir_shape_fail(call, "`w` is %s but must have two dims", ir_shape_text(call, 1));
    if (!ir_dim_equal(&x->dim[x->rank - 1], &w->dim[in_out ? 0 : 1]))
        return ir_shape_fail(call, "the last dim of `x`, %s, is not the %s dim of `w`, %s",
                             ir_shape_text(call, 0), in_out ? "first" : "second",
                             ir_shape_text(call, 1));
    if (x->dtype != w->dtype)
        return ir_shape_fail(call, "`x` is %s but `w` is %s", dtype_name(x->dtype),
                             dtype_name(w->dtype));
    const IrDim *out = &w->dim[in_out ? 1 : 0];
    if (call->in[2].i) {
        const IrTypeInfo *b = ir_shape_in(call, 2);
        if (b->rank != 1 || !ir_dim_equal(&b->dim[0], out) || b->dtype != x->dtype)
            return ir_shape_fail(call, "the bias is %s but `w` is %s", ir_shape_text(call, 2),
                                 ir_shape_text(call, 1));
    }
    IrTypeInfo y = *x;
    y.dim[y.rank - 1] = *out;
    ir_shape_out(call, 0, y, true);
    return true;
}

bool ir_shape_broadcast(IrShapeCall *call)
{
    const IrTypeInfo *a = ir_shape_in(call, 0), *b = ir_shape_in(call, 1);
    if (a->dtype != b->dtype)
        return ir_shape_fail(call, "`a` is %s but `b` is %s", dtype_name(a->dtype),
                             dtype_name(b->dtype));
    bool fits = b->rank <= a->rank;
    for (uint32_t i = 0; fits && i < b->rank; i++)
        fits = ir_dim_equal(&b->dim[i], &a->dim[a->rank - b->rank + i]);
    if (!fits && ir_type_numel(call->m, call->in[1]) != 1)
        return ir_shape_fail(call, "`b` is %s: neither a scalar nor the trailing dims of `a`, %s",
                             ir_shape_text(call, 1), ir_shape_text(call, 0));
    ir_shape_out(call, 0, *a, false);
    return true;
}

/* The first operand's type; every other operand must have it too. */
bool ir_shape_same(IrShapeCall *call)
{
    const IrTypeInfo *x = ir_shape_in(call, 0);
    for (uint32_t i = 1; i < call->n_in; i++) {
        const IrTypeInfo *other = ir_shape_in(call, i);
        if (call->in[i].i && (x->dtype != other->dtype || !ir_shape_same_dims(x, other)))
            return ir_shape_fail(call, "the operands must have one type, not %s and %s",
                                 ir_shape_text(call, 0), ir_shape_text(call, i));
    }
    if (!ir_shape_float(call, 0, "x"))
        return false;
    ir_shape_out(call, 0, *x, false);
    return true;
}

bool ir_shape_cast(IrShapeCall *call)
{
    if (!call->out[0].i)
        return ir_shape_fail(call, "the result's type must be given");
    const IrTypeInfo *x = ir_shape_in(call, 0), *y = ir_type_info(call->m, call->out[0]);
    if (!ir_shape_same_dims(x, y))
        return ir_shape_fail(call, "a cast keeps the dims: `x` is %s, the result %s",
                             ir_shape_text(call, 0), ir_type_text(call->m, call->out[0]));
    return true;
}

bool ir_shape_rmsnorm(IrShapeCall *call)
{
    if (!has_rows(call, 0, "x") || !is_row(call, 1, "w", ir_shape_in(call, 0)))
        return false;
    IrTypeInfo x = *ir_shape_in(call, 0), rstd = without_last(x);
    rstd.dtype = ir_shape_statistics(x.dtype);
    ir_shape_out(call, 0, x, false);
    ir_shape_out(call, 1, rstd, false);
    return true;
}

bool ir_shape_layernorm(IrShapeCall *call)
{
    if (!has_rows(call, 0, "x") || !is_row(call, 1, "w", ir_shape_in(call, 0)) ||
        !is_row(call, 2, "b", ir_shape_in(call, 0)))
        return false;
    IrTypeInfo x = *ir_shape_in(call, 0), row = without_last(x);
    row.dtype = ir_shape_statistics(x.dtype);
    ir_shape_out(call, 0, x, false);
    ir_shape_out(call, 1, row, false);
    ir_shape_out(call, 2, row, false);
    return true;
}

bool ir_shape_rope_table(IrShapeCall *call)
{
    enum { DIMS = 1 }; /* attribute `dims` */
    IrTypeInfo info = *ir_shape_in(call, 0);
    int64_t dims = call->attr[DIMS].i;
    if (!ir_shape_is_int(&info) || info.rank >= IR_MAX_RANK)
        return ir_shape_fail(call, "`positions` is %s but must be of an integer type",
                             ir_shape_text(call, 0));
    if (dims <= 0 || dims % 2)
        return ir_shape_fail(call, "dims=%" PRId64 " must be even and above 0", dims);
    info.dtype = DTYPE_F32;
    info.dim[info.rank++] = ir_dim_number(dims / 2);
    if (!call->out[1].i)
        call->out[1] = call->out[0];
    ir_shape_out(call, 0, info, true);
    ir_shape_out(call, 1, info, true);
    return true;
}

bool ir_shape_rope(IrShapeCall *call)
{
    const IrTypeInfo *x = ir_shape_in(call, 0), *cos = ir_shape_in(call, 1);
    if (!ir_shape_float(call, 0, "x") || !ir_shape_float(call, 1, "cos"))
        return false;
    if (x->rank < 2 || cos->rank + 1 != x->rank || !ir_shape_same_leading(x, cos, x->rank - 2))
        return ir_shape_fail(call, "`x` is %s, [.., heads, D], so `cos` must be [.., D/2], not %s",
                             ir_shape_text(call, 0), ir_shape_text(call, 1));
    if (ir_type_last(call->m, call->in[1]) > ir_type_last(call->m, call->in[0]) / 2)
        return ir_shape_fail(call, "`cos`, %s, turns more than the head size of `x`, %s",
                             ir_shape_text(call, 1), ir_shape_text(call, 0));
    if (cos->dtype != ir_shape_in(call, 2)->dtype || !ir_shape_same_dims(cos, ir_shape_in(call, 2)))
        return ir_shape_fail(call, "`cos` is %s but `sin` is %s", ir_shape_text(call, 1),
                             ir_shape_text(call, 2));
    ir_shape_out(call, 0, *x, false);
    return true;
}

static uint32_t first_divided(const IrDim *dim)
{
    uint32_t i = 0;
    while (i < dim->n && dim->f[i].mesh == IR_MESH_NONE)
        i++;
    return i;
}

bool ir_shape_slice(IrShapeCall *call)
{
    int64_t index = call->attr[0].i, parts = call->attr[1].i;
    if (!has_rows(call, 0, "x"))
        return false;
    IrTypeInfo y = *ir_shape_in(call, 0);
    IrDim *last = &y.dim[y.rank - 1];
    int64_t size = ir_dim_size(last);
    if (parts < 1 || size % parts)
        return ir_shape_fail(call, "the last dim of %s does not part into parts=%" PRId64,
                             ir_shape_text(call, 0), parts);
    if (index < 0 || index >= parts)
        return ir_shape_fail(call, "index=%" PRId64 " is not below parts=%" PRId64, index, parts);
    uint32_t at = UINT32_MAX; /* the factor that makes the parts: a literal before an axis */
    for (uint32_t i = 0; i < last->n; i++)
        if (last->f[i].size == parts && last->f[i].mesh == IR_MESH_NONE &&
            (at == UINT32_MAX || (last->f[at].axis && !last->f[i].axis)))
            at = i;
    uint32_t divided = first_divided(last);
    if (parts > 1 && divided < last->n && at > divided)
        return ir_shape_fail(call,
                             "parts=%" PRId64 " of the last dim of %s: a factor of that size must "
                             "stand before the divided one",
                             parts, ir_shape_text(call, 0));
    if (at != UINT32_MAX) {
        for (uint32_t i = at + 1; i < last->n; i++)
            last->f[i - 1] = last->f[i];
        last->n--;
    } else if (parts > 1) {
        *last = ir_dim_number(size / parts);
    }
    ir_shape_out(call, 0, y, false);
    return true;
}

bool ir_shape_concat(IrShapeCall *call)
{
    uint32_t first = UINT32_MAX;
    for (uint32_t i = 0; i < call->n_in; i++) {
        if (!call->in[i].i)
            continue;
        if (first == UINT32_MAX)
            first = i;
        const IrTypeInfo *a = ir_shape_in(call, first), *b = ir_shape_in(call, i);
        if (a->dtype != b->dtype || !ir_shape_same_dims(a, b))
            return ir_shape_fail(call, "the parts must have one type, not %s and %s",
                                 ir_shape_text(call, first), ir_shape_text(call, i));
    }
    if (first == UINT32_MAX)
        return ir_shape_fail(call, "at least one part must be present");
    IrTypeInfo y = *ir_shape_in(call, first);
    if (!y.rank)
        return ir_shape_fail(call, "the parts are scalars but need a last dim");
    y.dim[y.rank - 1] = ir_dim_product(ir_dim_number(call->n_in), y.dim[y.rank - 1]);
    ir_shape_out(call, 0, y, false);
    return true;
}

bool ir_shape_reshape(IrShapeCall *call)
{
    if (!call->out[0].i)
        return ir_shape_fail(call, "the result's type must be given");
    const IrModule *m = call->m;
    if (ir_shape_in(call, 0)->dtype != ir_type_info(m, call->out[0])->dtype)
        return ir_shape_fail(call, "a reshape keeps the dtype: `x` is %s, the result %s",
                             ir_shape_text(call, 0), ir_type_text(call->m, call->out[0]));
    if (ir_type_numel(m, call->in[0]) != ir_type_numel(m, call->out[0]))
        return ir_shape_fail(call, "`x`, %s, has %" PRId64 " elements, the result, %s, %" PRId64,
                             ir_shape_text(call, 0), ir_type_numel(m, call->in[0]),
                             ir_type_text(call->m, call->out[0]), ir_type_numel(m, call->out[0]));
    const IrTypeInfo *x = ir_shape_in(call, 0), *y = ir_type_info(m, call->out[0]);
    return ir_dims_alike(x->dim, x->rank, y->dim, y->rank) ||
           ir_shape_fail(call, "`x`, %s, and the result, %s, do not divide the same elements",
                         ir_shape_text(call, 0), ir_type_text(call->m, call->out[0]));
}

bool ir_shape_cache_update(IrShapeCall *call)
{
    const IrTypeInfo *k = ir_shape_in(call, 0), *v = ir_shape_in(call, 1);
    if (k->rank < 2 || !ir_shape_same_leading(k, v, 2))
        return ir_shape_fail(call, "keys %s and values %s are not of the same tokens",
                             ir_shape_text(call, 0), ir_shape_text(call, 1));
    ir_shape_out(call, 0, *k, false);
    ir_shape_out(call, 1, *v, false);
    return true;
}

/* The caller alone knows them. */
bool ir_shape_given2(IrShapeCall *call)
{
    return (call->out[0].i && call->out[1].i) ||
           ir_shape_fail(call, "the results' types must be given");
}
