#include "runtime/kernels/cpu/kernels.h"
#include "runtime/kernels/cpu/tile.h"
#include "runtime/kernels/rope.h"

enum { FREQUENCIES = 64 }; /* computed at a time, for all tokens of a chunk */

#define REAL_COS cosf
#define REAL_SIN sinf
#include "runtime/kernels/cpu/real_f32.h"
#include "runtime/kernels/cpu/rope_table.inc.h"
#undef REAL_COS
#undef REAL_SIN
#define REAL_COS cos
#define REAL_SIN sin
#include "runtime/kernels/cpu/real_f64.h"
#include "runtime/kernels/cpu/rope_table.inc.h"

static int64_t rows_per_chunk(const RtCall *call)
{
    return plan_ceil_div(rt_rows_per_chunk(call->param[PLAN_rope_table_dims].i), 16);
}

uint64_t rt_rope_table_chunks(const RtCall *call, uint32_t phase)
{
    (void)phase;
    return (uint64_t)plan_ceil_div(call->param[PLAN_rope_table_tokens].i, rows_per_chunk(call));
}

void rt_rope_table_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    (void)phase;
    (void)scratch;
    int64_t per = rows_per_chunk(call), first = rt_chunk_begin(chunk, per);
    int64_t end = rt_chunk_end(chunk, per, call->param[PLAN_rope_table_tokens].i);
    int given = call->at[PLAN_T_rope_table_cos] ? PLAN_T_rope_table_cos : PLAN_T_rope_table_sin;
    if (rt_is_f64(call, given))
        rope_table_rows_f64(call, first, end);
    else
        rope_table_rows_f32(call, first, end);
}
