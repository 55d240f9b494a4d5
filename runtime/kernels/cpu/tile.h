/* tile: what all CPU kernels share: elements by dtype and view, and the split of work into
 * chunks. */
#ifndef RUNTIME_KERNELS_CPU_TILE_H
#define RUNTIME_KERNELS_CPU_TILE_H

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "runtime/abi/workspace.h"
#include "runtime/kernel.h"
#include "runtime/kernels/cpu/vector_math.h"

enum {
    RT_CHUNK = 65536, /* elements of a chunk of pointwise work */
    RT_BLOCK = 512,   /* elements that are converted at a time, on the stack */
};

static inline bool rt_is_f64(const RtCall *call, int tensor)
{
    return call->tensor[tensor].dtype == DTYPE_F64;
}

/* The first of `chunk`'s items and the end, where each chunk has `per` of `total`. */
static inline int64_t rt_chunk_begin(uint64_t chunk, int64_t per)
{
    return (int64_t)chunk * per;
}

static inline int64_t rt_chunk_end(uint64_t chunk, int64_t per, int64_t total)
{
    return plan_min((int64_t)(chunk + 1) * per, total);
}

/* Rows of a chunk of about RT_CHUNK elements. */
static inline int64_t rt_rows_per_chunk(int64_t width)
{
    return width >= RT_CHUNK ? 1 : RT_CHUNK / (width < 1 ? 1 : width);
}

/* Where the view's element is, and in *out_left how many lie beside each other from there on. */
static inline int64_t rt_view_at(const PlanTensor *view, int64_t element, int64_t *out_left)
{
    if (view->run == view->pitch) {
        *out_left = INT64_MAX;
        return element;
    }
    int64_t row = element / view->run, column = element - row * view->run;
    *out_left = view->run - column;
    return row * view->pitch + column;
}

static inline uint16_t rt_round_bf16(float value)
{
    uint32_t bits = rt_bits_of_float(value);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    uint32_t quiet = (bits >> 16) | 0x40u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

#include "runtime/kernels/cpu/real_f32.h"
#include "runtime/kernels/cpu/tile.inc.h"
#include "runtime/kernels/cpu/real_f64.h"
#include "runtime/kernels/cpu/tile.inc.h"

/* A float scalar of any dtype. */
static inline double rt_scalar(const RtCall *call, int tensor)
{
    double value;
    rt_load_f64(&value, call->at[tensor], call->tensor[tensor].dtype, 0, 1);
    return value;
}

static inline void rt_set_scalar(const RtCall *call, int tensor, double value)
{
    rt_store_f64(call->at[tensor], call->tensor[tensor].dtype, 0, &value, 1);
}

/* n elements from one view to another, rounded where the dtypes differ. */
void rt_view_copy(void *to, const PlanTensor *to_view, int64_t to_first, const void *from,
                  const PlanTensor *from_view, int64_t from_first, int64_t n);
void rt_view_zero(void *to, const PlanTensor *view, int64_t first, int64_t n);

#endif
