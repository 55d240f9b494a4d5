#include "runtime/kernels/cpu/attention.h"
#include "runtime/kernels/cpu/kernels.h"

#include "runtime/kernels/cpu/real_f32.h"
#include "runtime/kernels/cpu/attention_grad.inc.h"
#include "runtime/kernels/cpu/real_f64.h"
#include "runtime/kernels/cpu/attention_grad.inc.h"

static int64_t key_chunks(const RtCall *call)
{
    const PlanParam *p = call->param;
    if (!call->at[PLAN_T_attention_grad_dk] && !call->at[PLAN_T_attention_grad_dv])
        return 0;
    return p[PLAN_attention_grad_batch].i * p[PLAN_attention_grad_kv_heads].i *
           plan_ceil_div(p[PLAN_attention_grad_seq].i, TILE);
}

static int64_t query_chunks(const RtCall *call)
{
    const PlanParam *p = call->param;
    return p[PLAN_attention_grad_batch].i * p[PLAN_attention_grad_heads].i *
           plan_ceil_div(p[PLAN_attention_grad_seq].i, TILE);
}

uint32_t rt_attention_grad_phases(const RtCall *call)
{
    (void)call;
    return 2;
}

/* Phase 0: delta. Phase 1: a chunk owns dk and dv of one tile of keys, or dq of one tile of
 * queries. */
uint64_t rt_attention_grad_chunks(const RtCall *call, uint32_t phase)
{
    if (phase == 0)
        return (uint64_t)query_chunks(call);
    return (uint64_t)(key_chunks(call) +
                      (call->at[PLAN_T_attention_grad_dq] ? query_chunks(call) : 0));
}

void rt_attention_grad_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    Attention x = rt_attention(call, PLAN_T_attention_grad_segments, PLAN_T_attention_grad_keep);
    bool f64 = rt_is_f64(call, PLAN_T_attention_grad_q);
    int64_t keys = phase ? key_chunks(call) : 0, index = (int64_t)chunk;
    if (index < keys) { /* the first keys have the most queries */
        int64_t tile = index % x.tiles, row = index / x.tiles, b = row / x.kv_heads,
                head = row % x.kv_heads;
        if (f64)
            attention_grad_keys_f64(call, &x, b, head, tile, scratch);
        else
            attention_grad_keys_f32(call, &x, b, head, tile, scratch);
        return;
    }
    index -= keys;
    int64_t tile = x.tiles - 1 - index % x.tiles, row = index / x.tiles, b = row / x.heads,
            head = row % x.heads;
    if (phase == 0 && f64)
        attention_grad_delta_f64(call, &x, b, head, tile, scratch);
    else if (phase == 0)
        attention_grad_delta_f32(call, &x, b, head, tile, scratch);
    else if (f64)
        attention_grad_queries_f64(call, &x, b, head, tile, scratch);
    else
        attention_grad_queries_f32(call, &x, b, head, tile, scratch);
}
