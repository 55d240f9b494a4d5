/* attention: what its forward and its backward share: geometry, masks, dropout draws, small
 * products. */
#ifndef RUNTIME_KERNELS_CPU_ATTENTION_H
#define RUNTIME_KERNELS_CPU_ATTENTION_H

#include "runtime/kernels/cpu/tile.h"
#include "runtime/abi/random.h"

enum { TILE = ATTENTION_TILE };

typedef struct Attention {
    int64_t batch, seq, heads, kv_heads, dim;
    int64_t group;         /* query heads per kv head */
    int64_t padded, pitch; /* columns of a tile's rows in a product, and from one to the next */
    int64_t tiles;         /* of ATTENTION_TILE along seq */
    bool causal;
    int64_t window;
    double scale, softcap, dropout;
    int64_t key, sample; /* sample: of the batch's first row, counted over the run */
    const int64_t *random;
    const int32_t *segments, *keep; /* [batch, seq]; NULL: none */
} Attention;

Attention rt_attention(const RtCall *call, int segments, int keep);

/* Tiles that can have a visible pair with the given one, [first, last). */
void rt_attention_k_tiles(const Attention *x, int64_t q_tile, int64_t *out_first,
                          int64_t *out_last);
void rt_attention_q_tiles(const Attention *x, int64_t k_tile, int64_t *out_first,
                          int64_t *out_last);

typedef enum Visible { VISIBLE_NONE, VISIBLE_SOME, VISIBLE_ALL } Visible;

/* One side's rows of a tile; the lists go on to TILE with values that see nothing. */
typedef struct QRows {
    int64_t first, n;
    int32_t low[TILE], high[TILE]; /* sees keys in (low, high] */
    int32_t segment[TILE];
    uint32_t a[TILE], b[TILE]; /* dropout stream of the row */
} QRows;

typedef struct KRows {
    int64_t first, n;
    int32_t index[TILE], segment[TILE], keep[TILE];
} KRows;

void rt_attention_q_rows(const Attention *x, int64_t b, int64_t head, int64_t tile,
                         QRows *out_rows);
void rt_attention_k_rows(const Attention *x, int64_t b, int64_t tile, KRows *out_rows);
Visible rt_attention_visible(const Attention *x, const QRows *q, const KRows *k);

static inline int32_t rt_attention_sees(const QRows *q, int i, const KRows *k, int j)
{
    return (k->index[j] > q->low[i]) & (k->index[j] <= q->high[i]) &
           (q->segment[i] == k->segment[j]) & k->keep[j];
}

static inline uint32_t rt_attention_draw(const QRows *q, int i, const KRows *k, int j)
{
    return rt_random_mix(rt_random_mix((uint32_t)k->index[j] ^ q->a[i]) + q->b[i]);
}

#include "runtime/kernels/cpu/real_f32.h"
#include "runtime/kernels/cpu/attention_tile.inc.h"
#include "runtime/kernels/cpu/real_f64.h"
#include "runtime/kernels/cpu/attention_tile.inc.h"

#endif
