#include "runtime/kernels/cpu/kernels.h"
#include "runtime/kernels/cpu/part.h"
#include "runtime/kernels/cpu/tile.h"

/* -- forward -- */

uint64_t rt_embed_chunks(const RtCall *call, uint32_t phase)
{
    (void)phase;
    const PlanParam *p = call->param;
    return (uint64_t)plan_ceil_div(p[PLAN_embed_tokens].i,
                                   rt_rows_per_chunk(p[PLAN_embed_width].i));
}

void rt_embed_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    (void)phase;
    (void)scratch;
    const PlanParam *p = call->param;
    int64_t width = p[PLAN_embed_width].i, rows = p[PLAN_embed_rows].i,
            per = rt_rows_per_chunk(width);
    const PlanTensor *y = &call->tensor[PLAN_T_embed_y], *table = &call->tensor[PLAN_T_embed_table];
    const int32_t *ids = call->at[PLAN_T_embed_ids];
    for (int64_t t = rt_chunk_begin(chunk, per);
         t < rt_chunk_end(chunk, per, p[PLAN_embed_tokens].i); t++) {
        if (ids[t] >= 0 && ids[t] < rows) {
            rt_view_copy(call->at[PLAN_T_embed_y], y, t * width, call->at[PLAN_T_embed_table],
                         table, ids[t] * width, width);
            continue;
        }
        rt_fault_raise(call->fault, "id %d of token %lld is outside the table of %lld rows", ids[t],
                       (long long)t, (long long)rows);
        rt_view_zero(call->at[PLAN_T_embed_y], y, t * width, width);
    }
}

/* -- a table of which this rank has a part -- */

uint64_t rt_embed_part_chunks(const RtCall *call, uint32_t phase)
{
    return rt_embed_chunks(call, phase); /* the first parameters are the whole op's */
}

void rt_embed_part_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    (void)phase;
    (void)scratch;
    const PlanParam *p = call->param;
    int64_t width = p[PLAN_embed_part_width].i, rows = p[PLAN_embed_part_rows].i,
            total = p[PLAN_embed_part_total].i, first = rt_part_index(call) * rows,
            per = rt_rows_per_chunk(width);
    const PlanTensor *y = &call->tensor[PLAN_T_embed_part_y],
                     *table = &call->tensor[PLAN_T_embed_part_table];
    const int32_t *ids = call->at[PLAN_T_embed_part_ids];
    for (int64_t t = rt_chunk_begin(chunk, per);
         t < rt_chunk_end(chunk, per, p[PLAN_embed_part_tokens].i); t++) {
        if (ids[t] >= first && ids[t] - first < rows && ids[t] < total) {
            rt_view_copy(call->at[PLAN_T_embed_part_y], y, t * width,
                         call->at[PLAN_T_embed_part_table], table, (ids[t] - first) * width, width);
            continue;
        }
        if (ids[t] < 0 || ids[t] >= total)
            rt_fault_raise(call->fault, "id %d of token %lld is outside the table of %lld rows",
                           ids[t], (long long)t, (long long)total);
        rt_view_zero(call->at[PLAN_T_embed_part_y], y, t * width, width);
    }
}

static int64_t first_row(const RtCall *call, int64_t rows)
{
    return call->instr->kernel == PLAN_KERNEL_embed_part_grad ? rt_part_index(call) * rows : 0;
}

/* -- backward: tokens sorted by id, then every row written once -- */

uint32_t rt_embed_grad_phases(const RtCall *call)
{
    (void)call;
    return 2;
}

uint64_t rt_embed_grad_chunks(const RtCall *call, uint32_t phase)
{
    const PlanParam *p = call->param;
    if (phase == 0)
        return 1;
    return (uint64_t)plan_ceil_div(p[PLAN_embed_grad_rows].i,
                                   rt_rows_per_chunk(p[PLAN_embed_grad_width].i));
}

/* Counting sort, stable: begin[r] .. begin[r + 1] are the places in `order` of row r's tokens.
 * The table's first row is that of id `first`. */
static void sort_tokens(const int32_t *ids, int64_t tokens, int64_t first, int64_t rows,
                        int32_t *begin, int32_t *order)
{
    memset(begin, 0, (size_t)(rows + 1) * sizeof *begin);
    for (int64_t t = 0; t < tokens; t++)
        if (ids[t] >= first && ids[t] - first < rows)
            begin[ids[t] - first]++;
    int32_t sum = 0;
    for (int64_t r = 0; r <= rows; r++) { /* begin[r]: where row r ends */
        sum += begin[r];
        begin[r] = sum;
    }
    for (int64_t t = tokens - 1; t >= 0; t--)
        if (ids[t] >= first && ids[t] - first < rows)
            order[--begin[ids[t] - first]] = (int32_t)t;
}

#include "runtime/kernels/cpu/real_f32.h"
#include "runtime/kernels/cpu/embed_grad.inc.h"
#include "runtime/kernels/cpu/real_f64.h"
#include "runtime/kernels/cpu/embed_grad.inc.h"

void rt_embed_grad_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    (void)scratch;
    const PlanParam *p = call->param;
    int64_t rows = p[PLAN_embed_grad_rows].i;
    int32_t *begin = call->workspace, *order = begin + rows + 1;
    if (phase == 0)
        sort_tokens(call->at[PLAN_T_embed_grad_ids], p[PLAN_embed_grad_tokens].i,
                    first_row(call, rows), rows, begin, order);
    else if (rt_is_f64(call, PLAN_T_embed_grad_dtable))
        embed_grad_rows_f64(call, chunk, begin, order);
    else
        embed_grad_rows_f32(call, chunk, begin, order);
}
