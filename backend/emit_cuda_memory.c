/* Loads and stores of a group of elements: up to 16 bytes at once, where they are neighbours and
 * aligned. */
#include <stdlib.h>

#include "backend/emit_cuda.h"

enum { MOST_BYTES = 16 };

static LLVMValueRef add(CudaWalk *w, LLVMValueRef a, LLVMValueRef b)
{
    return LLVMBuildNUWAdd(w->c->b, a, b, "");
}

static LLVMValueRef times(CudaWalk *w, LLVMValueRef a, int64_t factor)
{
    return factor == 1 ? a : LLVMBuildNUWMul(w->c->b, a, cuda_number(w, factor), "");
}

static LLVMValueRef quotient(CudaWalk *w, LLVMValueRef a, int64_t by)
{
    return by == 1 ? a : LLVMBuildUDiv(w->c->b, a, cuda_number(w, by), "");
}

static LLVMValueRef rest(CudaWalk *w, LLVMValueRef a, int64_t by)
{
    return by == 1 ? cuda_number(w, 0) : LLVMBuildURem(w->c->b, a, cuda_number(w, by), "");
}

static const EmitTensor *tensor_at(const CudaWalk *w, const EmitAccess *at)
{
    return &w->f->region->tensors.at[at->tensor];
}

static bool is_dense(const EmitTensor *t)
{
    return t->run == t->pitch || t->run >= t->numel;
}

static LLVMValueRef pointer_to(CudaWalk *w, const EmitAccess *at, LLVMValueRef element)
{
    LLVMTypeRef type = emit_storage(w->c, tensor_at(w, at)->dtype, 1);
    return LLVMBuildInBoundsGEP2(w->c->b, type, w->base[at->tensor], &element, 1, "");
}

/* -- the element of a tensor's row and column -- */

static LLVMValueRef row_of(CudaWalk *w, const EmitAccess *at, const CudaRow *row)
{
    if (at->row_mod == 1)
        return cuda_number(w, 0);
    LLVMValueRef r = quotient(w, row->r, at->row_div);
    return at->row_mod < plan_ceil_div(w->rows, at->row_div) ? rest(w, r, at->row_mod) : r;
}

static LLVMValueRef element_of(CudaWalk *w, const EmitAccess *at, const CudaRow *row,
                               LLVMValueRef col)
{
    const EmitTensor *t = tensor_at(w, at);
    LLVMValueRef r = row_of(w, at, row);
    if (is_dense(t))
        return add(w, times(w, r, at->width), col);
    if (t->run % at->width == 0) {
        int64_t per_run = t->run / at->width;
        LLVMValueRef begin = times(w, quotient(w, r, per_run), t->pitch);
        return add(w, add(w, begin, times(w, rest(w, r, per_run), at->width)), col);
    }
    LLVMValueRef e = add(w, times(w, r, at->width), col);
    return add(w, times(w, quotient(w, e, t->run), t->pitch), rest(w, e, t->run));
}

/* -- a group -- */

/* Elements of the tensor that the lanes of a group read: pairs of lanes share one. */
static uint32_t group_size(const CudaWalk *w, const EmitAccess *at)
{
    return at->walk == WALK_PAIR && w->lanes > 1 ? w->lanes / 2 : w->lanes;
}

static bool are_neighbours(const CudaWalk *w, const EmitAccess *at)
{
    const EmitTensor *t = tensor_at(w, at);
    int64_t n = group_size(w, at);
    return at->width % n == 0 && (is_dense(t) || t->run % n == 0);
}

static LLVMValueRef first_column(CudaWalk *w, const CudaStep *step, const EmitAccess *at)
{
    if (at->walk == WALK_PAIR)
        return w->lanes == 1 ? quotient(w, step->group, 2) : times(w, step->group, w->lanes / 2);
    LLVMValueRef j = times(w, step->group, w->lanes);
    if (at->walk == WALK_WRAP && at->width % w->lanes == 0)
        return times(w, rest(w, step->group, at->width / w->lanes), w->lanes);
    return at->walk == WALK_WRAP ? rest(w, j, at->width) : j;
}

static LLVMValueRef first_element(CudaWalk *w, const CudaStep *step, const EmitAccess *at)
{
    bool whole =
        at->walk == WALK_OWN && at->row_div == 1 && at->row_mod == w->rows && at->width == w->cols;
    if (whole && step->whole && is_dense(tensor_at(w, at)))
        return times(w, step->whole, w->lanes);
    return element_of(w, at, step->row, first_column(w, step, at));
}

/* Lane i of a group whose elements are not neighbours. */
static LLVMValueRef element_of_lane(CudaWalk *w, const CudaStep *step, const EmitAccess *at,
                                    uint32_t i)
{
    LLVMValueRef j =
        at->walk == WALK_PAIR ? first_column(w, step, at) : times(w, step->group, w->lanes);
    j = add(w, j, cuda_number(w, i));
    return element_of(w, at, step->row, at->walk == WALK_WRAP ? rest(w, j, at->width) : j);
}

static uint32_t low_bit(uint64_t x)
{
    return (uint32_t)(x & (~x + 1));
}

/* What the address of every group is a multiple of, bytes. */
static uint32_t group_align(const CudaWalk *w, const EmitAccess *at)
{
    const EmitTensor *t = tensor_at(w, at);
    uint64_t bytes = dtype_bytes(t->dtype),
             steps = t->offset | MOST_BYTES | group_size(w, at) * bytes;
    if (!is_dense(t))
        steps |= (uint64_t)t->pitch * bytes;
    return low_bit(steps);
}

/* -- neighbours at a pointer -- */

static uint32_t elements_per_access(DType dtype, uint32_t lanes, uint32_t align)
{
    uint32_t n = (align < MOST_BYTES ? align : MOST_BYTES) / dtype_bytes(dtype);
    return n < 1 ? 1 : n < lanes ? n : lanes;
}

static bool in_words(DType dtype, uint32_t n)
{
    return dtype == DTYPE_BF16 && n > 1;
}

static LLVMTypeRef access_type(EmitCode *c, DType dtype, uint32_t n)
{
    return in_words(dtype, n) ? emit_type(c, ELEM_I32, n / 2) : emit_storage(c, dtype, n);
}

static LLVMValueRef behind(EmitCode *c, LLVMValueRef at, uint32_t bytes)
{
    return bytes ? cuda_bytes_behind(c, at,
                                     LLVMConstInt(LLVMInt32TypeInContext(c->context), bytes, false))
                 : at;
}

static void read_pieces(EmitCode *c, DType dtype, LLVMValueRef at, uint32_t lanes, uint32_t align,
                        CudaRaw *out)
{
    uint32_t each = elements_per_access(dtype, lanes, align);
    out->n = lanes / each;
    for (uint32_t i = 0; i < out->n; i++) {
        LLVMValueRef from = behind(c, at, i * each * dtype_bytes(dtype));
        out->piece[i] = LLVMBuildLoad2(c->b, access_type(c, dtype, each), from, "");
        LLVMSetAlignment(out->piece[i], each * dtype_bytes(dtype));
    }
}

static LLVMValueRef join_pieces(EmitCode *c, DType dtype, const CudaRaw *raw, uint32_t lanes)
{
    LLVMValueRef all = cuda_concat(c, raw->piece, raw->n);
    if (in_words(dtype, lanes / raw->n))
        return cuda_unpack_bf16(c, all, lanes);
    return emit_from_storage(c, all, dtype, lanes);
}

LLVMValueRef cuda_read(EmitCode *c, DType dtype, LLVMValueRef at, uint32_t lanes, uint32_t align)
{
    CudaRaw raw;
    read_pieces(c, dtype, at, lanes, align, &raw);
    return join_pieces(c, dtype, &raw, lanes);
}

/* `lanes` elements in units of a piece: words for bf16 in words, else elements as memory has them.
 */
static LLVMValueRef packed(EmitCode *c, DType dtype, LLVMValueRef value, LLVMValueRef words,
                           uint32_t lanes, uint32_t each)
{
    if (dtype != DTYPE_BF16)
        return value;
    LLVMValueRef all = words ? words : emit_to_storage(c, value, dtype, lanes);
    if (lanes == 1)
        return all;
    LLVMTypeRef type = each > 1 ? emit_type(c, ELEM_I32, lanes / 2) : emit_storage(c, dtype, lanes);
    return LLVMBuildBitCast(c->b, all, type, "");
}

void cuda_write(EmitCode *c, DType dtype, LLVMValueRef at, LLVMValueRef value, LLVMValueRef words,
                uint32_t lanes, uint32_t align)
{
    uint32_t each = elements_per_access(dtype, lanes, align),
             units = in_words(dtype, each) ? each / 2 : each;
    LLVMValueRef all = packed(c, dtype, value, words, lanes, each);
    for (uint32_t i = 0; i < lanes / each; i++) {
        LLVMValueRef to = behind(c, at, i * each * dtype_bytes(dtype));
        LLVMValueRef store = LLVMBuildStore(c->b, cuda_part(c, all, i * units, units), to);
        LLVMSetAlignment(store, each * dtype_bytes(dtype));
    }
}

/* -- by access -- */

void cuda_load(CudaWalk *w, const CudaStep *step, const EmitAccess *at, CudaRaw *out)
{
    DType dtype = tensor_at(w, at)->dtype;
    uint32_t n = group_size(w, at);
    if (are_neighbours(w, at)) {
        LLVMValueRef first = pointer_to(w, at, first_element(w, step, at));
        read_pieces(w->c, dtype, first, n, group_align(w, at), out);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        CudaRaw one;
        read_pieces(w->c, dtype, pointer_to(w, at, element_of_lane(w, step, at, i)), 1,
                    dtype_bytes(dtype), &one);
        out->piece[i] = one.piece[0];
    }
    out->n = n;
}

LLVMValueRef cuda_loaded(CudaWalk *w, const CudaRaw *raw, const EmitAccess *at)
{
    uint32_t n = group_size(w, at), from[CUDA_FUSED_LANES];
    LLVMValueRef all = join_pieces(w->c, tensor_at(w, at)->dtype, raw, n);
    if (n == w->lanes)
        return all;
    if (n == 1)
        return cuda_splat(w->c, all, w->lanes);
    for (uint32_t i = 0; i < w->lanes; i++)
        from[i] = i / 2;
    return emit_shuffle(w->c, all, all, from, w->lanes);
}

LLVMValueRef cuda_load_one(CudaWalk *w, const CudaRow *row, const EmitAccess *at)
{
    LLVMValueRef from = pointer_to(w, at, element_of(w, at, row, cuda_number(w, 0)));
    DType dtype = tensor_at(w, at)->dtype;
    return cuda_read(w->c, dtype, from, 1, dtype_bytes(dtype));
}

void cuda_store(CudaWalk *w, const CudaStep *step, const EmitAccess *at, LLVMValueRef value,
                LLVMValueRef words)
{
    DType dtype = tensor_at(w, at)->dtype;
    if (at->walk != WALK_OWN)
        abort(); /* a value that repeats within the row: fuse joins values of one size */
    if (are_neighbours(w, at)) {
        LLVMValueRef first = pointer_to(w, at, first_element(w, step, at));
        cuda_write(w->c, dtype, first, value, words, w->lanes, group_align(w, at));
        return;
    }
    LLVMValueRef all = packed(w->c, dtype, value, words, w->lanes, 1);
    for (uint32_t i = 0; i < w->lanes; i++) {
        LLVMValueRef to = pointer_to(w, at, element_of_lane(w, step, at, i));
        LLVMSetAlignment(LLVMBuildStore(w->c->b, cuda_lane(w->c, all, i), to), dtype_bytes(dtype));
    }
}

void cuda_store_one(CudaWalk *w, const CudaRow *row, const EmitAccess *at, LLVMValueRef value)
{
    LLVMValueRef to = pointer_to(w, at, element_of(w, at, row, cuda_number(w, 0)));
    DType dtype = tensor_at(w, at)->dtype;
    cuda_write(w->c, dtype, to, value, NULL, 1, dtype_bytes(dtype));
}
