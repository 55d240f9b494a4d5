#include "ir/ir.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "ir/lex.h"

static bool factor_same(const IrFactor *a, const IrFactor *b)
{
    return a->axis == b->axis && a->size == b->size && a->mesh == b->mesh && a->parts == b->parts;
}

static bool dim_same(const IrDim *a, const IrDim *b)
{
    if (a->n != b->n)
        return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (!factor_same(&a->f[i], &b->f[i]))
            return false;
    return true;
}

static bool info_same(const IrTypeInfo *a, const IrTypeInfo *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank)
        return false;
    for (uint32_t i = 0; i < a->rank; i++)
        if (!dim_same(&a->dim[i], &b->dim[i]))
            return false;
    return true;
}

static uint64_t info_hash(const IrTypeInfo *info)
{
    uint64_t hash = map_hash(&info->dtype, sizeof info->dtype, info->rank);
    for (uint32_t i = 0; i < info->rank; i++) {
        const IrDim *dim = &info->dim[i];
        for (uint32_t j = 0; j < dim->n; j++) {
            const IrFactor *f = &dim->f[j];
            uint64_t words[] = {(uint64_t)(uintptr_t)f->axis, (uint64_t)f->size,
                                ((uint64_t)f->mesh << 32) | (uint32_t)f->parts};
            hash = map_hash(words, sizeof words, hash + i);
        }
    }
    return hash;
}

/* Equal types are one record, so equal handles are equal types; the factors' spelling counts. */
IrType ir_type(IrModule *m, const IrTypeInfo *info)
{
    uint64_t key = info_hash(info), at;
    for (; map_get(&m->type_index, key, &at); key++)
        if (info_same(&m->types.at[at], info))
            return (IrType){(uint32_t)at};
    assert(info->rank <= IR_MAX_RANK);
    for (uint32_t i = 0; i < info->rank; i++)
        for (uint32_t j = 0; j < info->dim[i].n; j++)
            if (info->dim[i].f[j].axis && !ir_axis_find(m, info->dim[i].f[j].axis))
                ir_axis_set(m, info->dim[i].f[j].axis, info->dim[i].f[j].size);
    map_put(&m->type_index, key, m->types.n);
    vec_push(m->s->arena, &m->types, *info);
    return (IrType){m->types.n - 1};
}

const IrTypeInfo *ir_type_info(const IrModule *m, IrType type)
{
    return &m->types.at[type.i];
}

IrType ir_type_with_dtype(IrModule *m, IrType type, DType dtype)
{
    IrTypeInfo info = *ir_type_info(m, type);
    if (info.dtype == dtype)
        return type;
    info.dtype = dtype;
    return ir_type(m, &info);
}

IrType ir_type_scalar(IrModule *m, DType dtype)
{
    IrTypeInfo info = {.dtype = dtype};
    return ir_type(m, &info);
}

IrDim ir_dim_number(int64_t size)
{
    IrDim dim = {0};
    if (size != 1)
        dim.f[dim.n++] = (IrFactor){.size = size, .parts = 1};
    return dim;
}

IrDim ir_dim_axis(Sym axis, int64_t size)
{
    return (IrDim){.n = 1, .f = {{.axis = axis, .size = size, .parts = 1}}};
}

/* Sizes saturate: a text may ask for anything; a type that is too large is refused where it is
 * used. */
static int64_t times(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

/* Folds the first pair of whole factors into one number; false if there is none. */
static bool fold_pair(IrFactor *f, uint32_t *n, bool numbers_only, bool neighbours_only)
{
    for (uint32_t i = 0; i < *n; i++) {
        for (uint32_t j = i + 1; j < *n && (!neighbours_only || j == i + 1); j++) {
            bool whole = f[i].mesh == IR_MESH_NONE && f[j].mesh == IR_MESH_NONE;
            if (!whole || (numbers_only && (f[i].axis || f[j].axis)))
                continue;
            f[i] = (IrFactor){.size = times(f[i].size, f[j].size), .parts = 1};
            for (uint32_t k = j + 1; k < *n; k++)
                f[k - 1] = f[k];
            --*n;
            return true;
        }
    }
    return false;
}

/* Where factors are too many, plain numbers are multiplied first, then whole axes lose their names.
 * Neighbours while there are any: which elements a divided factor holds depends on what stands
 * before it. */
IrDim ir_dim_product(IrDim a, IrDim b)
{
    IrFactor f[2 * IR_MAX_FACTORS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < a.n; i++)
        f[n++] = a.f[i];
    for (uint32_t i = 0; i < b.n; i++)
        f[n++] = b.f[i];
    while (n > IR_MAX_FACTORS) {
        bool folded = fold_pair(f, &n, true, true) || fold_pair(f, &n, false, true) ||
                      fold_pair(f, &n, false, false);
        assert(folded && "more than four divided factors in one dim");
        (void)folded;
    }
    IrDim product = {.n = n};
    for (uint32_t i = 0; i < n; i++)
        product.f[i] = f[i];
    return product;
}

int64_t ir_dim_size(const IrDim *dim)
{
    int64_t size = 1;
    for (uint32_t i = 0; i < dim->n; i++)
        size = times(size, (dim->f[i].size + dim->f[i].parts - 1) / dim->f[i].parts);
    return size;
}

typedef struct Walk { /* over the factors of some dims, from one divided factor to the next */
    const IrDim *dim;
    uint32_t n, at, factor;
    int64_t before; /* the product of the whole factors that were passed over */
} Walk;

static const IrFactor *next_divided(Walk *walk)
{
    walk->before = 1;
    for (; walk->at < walk->n; walk->at++, walk->factor = 0)
        while (walk->factor < walk->dim[walk->at].n) {
            const IrFactor *f = &walk->dim[walk->at].f[walk->factor++];
            if (f->mesh != IR_MESH_NONE)
                return f;
            walk->before = times(walk->before, f->size);
        }
    return NULL;
}

bool ir_dims_alike(const IrDim *a, uint32_t n_a, const IrDim *b, uint32_t n_b)
{
    Walk walk_a = {.dim = a, .n = n_a}, walk_b = {.dim = b, .n = n_b};
    for (;;) {
        const IrFactor *fa = next_divided(&walk_a), *fb = next_divided(&walk_b);
        if (walk_a.before != walk_b.before)
            return false;
        if (!fa || !fb)
            return fa == fb;
        if (!factor_same(fa, fb))
            return false;
    }
}

bool ir_dim_equal(const IrDim *a, const IrDim *b)
{
    return ir_dims_alike(a, 1, b, 1);
}

bool ir_type_agree(const IrModule *m, IrType a, IrType b)
{
    const IrTypeInfo *ia = ir_type_info(m, a), *ib = ir_type_info(m, b);
    if (a.i == b.i)
        return true;
    if (ia->dtype != ib->dtype || ia->rank != ib->rank)
        return false;
    for (uint32_t i = 0; i < ia->rank; i++)
        if (!ir_dim_equal(&ia->dim[i], &ib->dim[i]))
            return false;
    return true;
}

int64_t ir_type_numel(const IrModule *m, IrType type)
{
    const IrTypeInfo *info = ir_type_info(m, type);
    int64_t n = 1;
    for (uint32_t i = 0; i < info->rank; i++)
        n = times(n, ir_dim_size(&info->dim[i]));
    return n;
}

int64_t ir_type_bytes(const IrModule *m, IrType type)
{
    return times(ir_type_numel(m, type), dtype_bytes(ir_type_info(m, type)->dtype));
}

int64_t ir_type_last(const IrModule *m, IrType type)
{
    const IrTypeInfo *info = ir_type_info(m, type);
    return info->rank ? ir_dim_size(&info->dim[info->rank - 1]) : 1;
}

/* -- text: `f32[batch,seq,3*heads*16]`, a divided factor `(heads/tp=4)` -- */

typedef struct Text {
    char *at;
    size_t n, cap;
} Text;

static void put(Text *text, const char *part)
{
    while (*part && text->n + 1 < text->cap)
        text->at[text->n++] = *part++;
    text->at[text->n] = 0;
}

static void put_number(Text *text, int64_t number)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRId64, number);
    put(text, digits);
}

/* As ir_print_word, which writes to a file. */
static void put_word(Text *text, const char *word)
{
    bool plain = ir_lex_starts_word(*word);
    for (const char *p = word; plain && *p; p++)
        plain = ir_lex_in_word(*p);
    if (plain) {
        put(text, word);
        return;
    }
    put(text, "\"");
    for (const unsigned char *p = (const unsigned char *)word; *p; p++) {
        char escaped[8] = {(char)*p, 0};
        if (*p == '"' || *p == '\\')
            snprintf(escaped, sizeof escaped, "\\%c", *p);
        else if (*p < 0x20 || *p == 0x7f)
            snprintf(escaped, sizeof escaped, "\\x%02x", *p);
        put(text, escaped);
    }
    put(text, "\"");
}

static void put_factor(const IrModule *m, Text *text, const IrFactor *f)
{
    static const char *const mesh[] = {"", "tp", "dp", "ep"};
    if (f->mesh)
        put(text, "(");
    if (f->axis) {
        const IrAxis *axis = ir_axis_find(m, f->axis);
        put_word(text, f->axis);
        if (!axis || axis->size != f->size) {
            put(text, "=");
            put_number(text, f->size);
        }
    } else {
        put_number(text, f->size);
    }
    if (f->mesh) {
        put(text, "/");
        put(text, mesh[f->mesh]);
        put(text, "=");
        put_number(text, f->parts);
        put(text, ")");
    }
}

const char *ir_type_text(IrModule *m, IrType type)
{
    return ir_type_text_in(m, type, m->s->arena);
}

const char *ir_type_text_in(const IrModule *m, IrType type, Arena *arena)
{
    if (!type.i)
        return "none";
    const IrTypeInfo *info = ir_type_info(m, type);
    size_t length = 16;
    for (uint32_t i = 0; i < info->rank; i++)
        for (uint32_t j = 0; j < info->dim[i].n; j++)
            length += 64 + (info->dim[i].f[j].axis ? 4 * strlen(info->dim[i].f[j].axis) : 0);
    length += 2 * IR_MAX_RANK;
    Text text = {arena_alloc(arena, length), 0, length};
    put(&text, dtype_name(info->dtype));
    put(&text, "[");
    for (uint32_t i = 0; i < info->rank; i++) {
        if (i)
            put(&text, ",");
        if (!info->dim[i].n)
            put(&text, "1");
        for (uint32_t j = 0; j < info->dim[i].n; j++) {
            if (j)
                put(&text, "*");
            put_factor(m, &text, &info->dim[i].f[j]);
        }
    }
    put(&text, "]");
    return text.at;
}
