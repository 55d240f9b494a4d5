#include "runtime/kernels/cpu/attention.h"
#include "runtime/kernels/cpu/kernels.h"

#define SAME(name)                                                                                 \
    _Static_assert((int)PLAN_attention_##name == (int)PLAN_attention_grad_##name,                  \
                   "attention's parameters are its gradient's")
SAME(batch);
SAME(seq);
SAME(heads);
SAME(kv_heads);
SAME(dim);
SAME(causal);
SAME(window);
SAME(scale);
SAME(softcap);
SAME(dropout);
SAME(key);
SAME(micro_batch);
#undef SAME

Attention rt_attention(const RtCall *call, int segments, int keep)
{
    const PlanParam *p = call->param;
    Attention x = {
        .batch = p[PLAN_attention_batch].i,
        .seq = p[PLAN_attention_seq].i,
        .heads = p[PLAN_attention_heads].i,
        .kv_heads = p[PLAN_attention_kv_heads].i,
        .dim = p[PLAN_attention_dim].i,
        .causal = p[PLAN_attention_causal].i,
        .window = p[PLAN_attention_window].i,
        .scale = p[PLAN_attention_scale].f,
        .softcap = p[PLAN_attention_softcap].f,
        .dropout = p[PLAN_attention_dropout].f,
        .key = p[PLAN_attention_key].i,
        .random = call->random,
        .segments = call->at[segments],
        .keep = call->at[keep],
    };
    x.padded = plan_round_up(x.dim, ATTENTION_LANES);
    x.pitch = plan_attention_pitch(x.dim);
    x.group = x.heads / x.kv_heads;
    x.tiles = plan_ceil_div(x.seq, TILE);
    if (x.dropout > 0)
        x.sample = call->random[2] + p[PLAN_attention_micro_batch].i * x.batch;
    return x;
}

void rt_attention_k_tiles(const Attention *x, int64_t q_tile, int64_t *out_first, int64_t *out_last)
{
    int64_t low = q_tile * TILE - x->window + 1;
    *out_first = x->window && low > 0 ? low / TILE : 0;
    *out_last = x->causal ? q_tile + 1 : x->tiles;
}

void rt_attention_q_tiles(const Attention *x, int64_t k_tile, int64_t *out_first, int64_t *out_last)
{
    int64_t last_key = plan_min((k_tile + 1) * TILE, x->seq) - 1;
    *out_first = x->causal ? k_tile : 0;
    *out_last = x->window ? plan_min(x->tiles, (last_key + x->window - 1) / TILE + 1) : x->tiles;
}

void rt_attention_q_rows(const Attention *x, int64_t b, int64_t head, int64_t tile, QRows *out_rows)
{
    QRows *q = out_rows;
    q->first = tile * TILE;
    q->n = plan_min(TILE, x->seq - q->first);
    for (int i = 0; i < TILE; i++) {
        int64_t row = q->first + i;
        bool inside = i < q->n;
        q->low[i] = inside && x->window && row >= x->window ? (int32_t)(row - x->window) : -1;
        q->high[i] = !inside ? -1 : x->causal ? (int32_t)row : INT32_MAX;
        q->segment[i] = inside && x->segments ? x->segments[b * x->seq + row] : 0;
        q->a[i] = q->b[i] = 0;
    }
    if (x->dropout > 0) {
        RtStream stream = rt_random_stream(x->random[1], x->random[0], x->key, x->sample + b);
        stream = rt_random_absorb(stream, (uint32_t)head);
        for (int i = 0; i < q->n; i++) {
            RtStream row = rt_random_absorb(stream, (uint32_t)(q->first + i));
            q->a[i] = row.a;
            q->b[i] = row.b;
        }
    }
}

void rt_attention_k_rows(const Attention *x, int64_t b, int64_t tile, KRows *out_rows)
{
    KRows *k = out_rows;
    k->first = tile * TILE;
    k->n = plan_min(TILE, x->seq - k->first);
    for (int j = 0; j < TILE; j++) {
        int64_t row = k->first + j, at = b * x->seq + row;
        bool inside = j < k->n;
        k->index[j] = (int32_t)row;
        k->segment[j] = inside && x->segments ? x->segments[at] : 0;
        k->keep[j] = inside && (!x->keep || x->keep[at]);
    }
}

Visible rt_attention_visible(const Attention *x, const QRows *q, const KRows *k)
{
    int64_t last_q = q->first + q->n - 1, last_k = k->first + k->n - 1;
    bool all = (!x->causal || last_k <= q->first) && (!x->window || k->first > last_q - x->window);
    if (x->segments) {
        int32_t q_min = q->segment[0], q_max = q_min, k_min = k->segment[0], k_max = k_min;
        for (int i = 1; i < q->n; i++) {
            q_min = q->segment[i] < q_min ? q->segment[i] : q_min;
            q_max = q->segment[i] > q_max ? q->segment[i] : q_max;
        }
        for (int j = 1; j < k->n; j++) {
            k_min = k->segment[j] < k_min ? k->segment[j] : k_min;
            k_max = k->segment[j] > k_max ? k->segment[j] : k_max;
        }
        if (q_max < k_min || k_max < q_min)
            return VISIBLE_NONE;
        all = all && q_min == q_max && k_min == k_max;
    }
    if (x->keep) {
        int kept = 0;
        for (int j = 0; j < k->n; j++)
            kept += k->keep[j];
        if (!kept)
            return VISIBLE_NONE;
        all = all && kept == k->n;
    }
    return all ? VISIBLE_ALL : VISIBLE_SOME;
}

#include "runtime/kernels/cpu/real_f32.h"
#include "runtime/kernels/cpu/attention.inc.h"
#include "runtime/kernels/cpu/real_f64.h"
#include "runtime/kernels/cpu/attention.inc.h"

uint64_t rt_attention_chunks(const RtCall *call, uint32_t phase)
{
    (void)phase;
    const PlanParam *p = call->param;
    return (uint64_t)(p[PLAN_attention_batch].i * p[PLAN_attention_heads].i *
                      plan_ceil_div(p[PLAN_attention_seq].i, TILE));
}

void rt_attention_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    (void)phase;
    Attention x = rt_attention(call, PLAN_T_attention_segments, PLAN_T_attention_keep);
    /* a head's chunks follow each other; its last queries have the most keys, and go first */
    int64_t row = (int64_t)chunk / x.tiles, tile = x.tiles - 1 - (int64_t)chunk % x.tiles;
    int64_t b = row / x.heads, head = row % x.heads;
    if (rt_is_f64(call, PLAN_T_attention_q))
        attention_q_tile_f64(call, &x, b, head, tile, scratch);
    else
        attention_q_tile_f32(call, &x, b, head, tile, scratch);
}
