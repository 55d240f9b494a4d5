#include "runtime/kernels/cpu/kernels.h"
#include "runtime/kernels/cpu/tile.h"

static int64_t row_width(const RtCall *call)
{
    return call->tensor[PLAN_T_concat_y].numel / call->param[PLAN_concat_rows].i;
}

uint64_t rt_concat_chunks(const RtCall *call, uint32_t phase)
{
    (void)phase;
    const PlanParam *p = call->param;
    return (uint64_t)plan_ceil_div(p[PLAN_concat_rows].i, rt_rows_per_chunk(row_width(call)));
}

void rt_concat_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    (void)phase;
    (void)scratch;
    const PlanParam *p = call->param;
    int64_t width = row_width(call), n = p[PLAN_concat_n].i, part = width / n,
            per = rt_rows_per_chunk(width);
    const PlanTensor *y = &call->tensor[PLAN_T_concat_y];
    int64_t end = rt_chunk_end(chunk, per, p[PLAN_concat_rows].i);
    for (int64_t row = rt_chunk_begin(chunk, per); row < end; row++)
        for (int64_t i = 0; i < n; i++) {
            int64_t to = row * width + i * part;
            if (call->at[1 + i])
                rt_view_copy(call->at[PLAN_T_concat_y], y, to, call->at[1 + i],
                             &call->tensor[1 + i], row * part, part);
            else
                rt_view_zero(call->at[PLAN_T_concat_y], y, to, part);
        }
}
