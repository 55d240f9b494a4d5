/* attention, backward, per arithmetic type. Probabilities come again from q, k and lse, tile by
 * tile. */

#define GRAD_T(name)                                                                               \
    call->at[PLAN_T_attention_grad_##name], &call->tensor[PLAN_T_attention_grad_##name]

static void R(attention_grad_delta)(const RtCall *call, const Attention *x, int64_t b, int64_t head,
                                    int64_t tile, REAL *scratch)
{
    int64_t first = tile * TILE, n = plan_min(TILE, x->seq - first), dim = x->dim, ld = x->pitch;
    REAL *o = scratch, *grad = o + TILE * ld;
    REAL *delta = (REAL *)call->workspace + (b * x->heads + head) * x->seq;
    R(attention_rows)(o, ld, GRAD_T(o), x, b, head, x->heads, first, n);
    R(attention_rows)(grad, ld, GRAD_T(do), x, b, head, x->heads, first, n);
    for (int64_t i = 0; i < n; i++) {
        REAL sum = 0;
        for (int64_t d = 0; d < dim; d++)
            sum += o[i * ld + d] * grad[i * ld + d];
        delta[first + i] = sum;
    }
}

/* s: scores to probabilities (with dropout: as they multiply v); ds: gradient of those to the
 * gradient of the product q k^T. Both [rows, TILE]; a lane is a query where q_lanes, else a key. */
static inline __attribute__((always_inline)) void
R(attention_grad_scores)(const Attention *x, const QRows *q, const KRows *k, Visible visible,
                         const bool q_lanes, const REAL *restrict lse, const REAL *restrict delta,
                         REAL *s, REAL *ds)
{
    REAL scale = (REAL)x->scale, cap = (REAL)x->softcap, factor = (REAL)(1 / (1 - x->dropout));
    uint32_t threshold = rt_random_threshold(x->dropout);
    int rows = (int)(q_lanes ? k->n : q->n);
    for (int r = 0; r < rows; r++) {
        REAL *restrict p = s + r * TILE, *restrict g = ds + r * TILE, slope[TILE], kept[TILE];
        if (x->softcap > 0)
            for (int c = 0; c < TILE; c++) {
                REAL t = REAL_TANH(p[c] / cap);
                p[c] = cap * t;
                slope[c] = 1 - t * t;
            }
        for (int c = 0; c < TILE; c++)
            p[c] = REAL_EXP(p[c] - (q_lanes ? lse[c] : lse[r]));
        if (visible == VISIBLE_SOME)
            for (int c = 0; c < TILE; c++) {
                int32_t sees =
                    q_lanes ? rt_attention_sees(q, c, k, r) : rt_attention_sees(q, r, k, c);
                p[c] = sees ? p[c] : 0;
                g[c] = sees ? g[c] : 0;
            }
        if (x->dropout > 0)
            for (int c = 0; c < TILE; c++) {
                uint32_t draw =
                    q_lanes ? rt_attention_draw(q, c, k, r) : rt_attention_draw(q, r, k, c);
                kept[c] = draw >= threshold ? factor : 0;
                g[c] *= kept[c];
            }
        for (int c = 0; c < TILE; c++)
            g[c] = p[c] * (g[c] - (q_lanes ? delta[c] : delta[r])) * scale;
        if (x->softcap > 0)
            for (int c = 0; c < TILE; c++)
                g[c] *= slope[c];
        if (x->dropout > 0)
            for (int c = 0; c < TILE; c++)
                p[c] *= kept[c];
    }
}

/* lse and delta of a tile's queries; behind its end, an lse that makes every probability 0. */
static void R(attention_grad_statistics)(const RtCall *call, const Attention *x, int64_t b,
                                         int64_t head, const QRows *q, REAL *lse, REAL *delta)
{
    int64_t first = (b * x->heads + head) * x->seq + q->first;
    for (int i = 0; i < TILE; i++) {
        lse[i] = (REAL)INFINITY;
        delta[i] = 0;
    }
    R(rt_view_load)(lse, GRAD_T(lse), first, q->n);
    memcpy(delta, (const REAL *)call->workspace + first, (size_t)q->n * sizeof *delta);
}

static void R(attention_grad_keys)(const RtCall *call, const Attention *x, int64_t b,
                                   int64_t kv_head, int64_t tile, REAL *scratch)
{
    int64_t dim = x->dim, ld = x->pitch, first, last;
    REAL *kt = scratch, *vt = kt + TILE * dim, *queries = vt + TILE * dim,
         *grad = queries + TILE * ld;
    REAL *dk = grad + TILE * ld, *dv = dk + TILE * ld, *s = dv + TILE * ld, *ds = s + TILE * TILE;
    REAL *lse = ds + TILE * TILE, *delta = lse + TILE;
    QRows q;
    KRows k;

    rt_attention_k_rows(x, b, tile, &k);
    R(attention_columns)(kt, (REAL)x->scale, dk, GRAD_T(k), x, b, kv_head, x->kv_heads, k.first,
                         k.n);
    R(attention_columns)(vt, 1, dk, GRAD_T(v), x, b, kv_head, x->kv_heads, k.first, k.n);
    memset(dk, 0, (size_t)(2 * TILE * ld) * sizeof *dk);
    rt_attention_q_tiles(x, tile, &first, &last);
    for (int64_t head = kv_head * x->group; head < (kv_head + 1) * x->group; head++)
        for (int64_t q_tile = first; q_tile < last; q_tile++) {
            rt_attention_q_rows(x, b, head, q_tile, &q);
            Visible visible = rt_attention_visible(x, &q, &k);
            if (visible == VISIBLE_NONE)
                continue;
            R(attention_rows)(queries, ld, GRAD_T(q), x, b, head, x->heads, q.first, q.n);
            R(attention_rows)(grad, ld, GRAD_T(do), x, b, head, x->heads, q.first, q.n);
            R(attention_grad_statistics)(call, x, b, head, &q, lse, delta);
            R(attention_product)(s, TILE, queries, ld, 1, kt, TILE, q.n, TILE, dim, false);
            R(attention_product)(ds, TILE, grad, ld, 1, vt, TILE, q.n, TILE, dim, false);
            R(attention_grad_scores)(x, &q, &k, visible, false, lse, delta, s, ds);
            R(attention_product)(dv, ld, s, 1, TILE, grad, ld, k.n, x->padded, q.n, true);
            R(attention_product)(dk, ld, ds, 1, TILE, queries, ld, k.n, x->padded, q.n, true);
        }
    if (call->at[PLAN_T_attention_grad_dk])
        R(attention_store)(GRAD_T(dk), x, b, kv_head, x->kv_heads, k.first, k.n, dk, ld);
    if (call->at[PLAN_T_attention_grad_dv])
        R(attention_store)(GRAD_T(dv), x, b, kv_head, x->kv_heads, k.first, k.n, dv, ld);
}

static void R(attention_grad_queries)(const RtCall *call, const Attention *x, int64_t b,
                                      int64_t head, int64_t tile, REAL *scratch)
{
    int64_t dim = x->dim, ld = x->pitch, kv_head = head / x->group, first, last;
    REAL *qt = scratch, *gradt = qt + TILE * dim, *keys = gradt + TILE * dim, *v = keys + TILE * ld;
    REAL *dq = v + TILE * ld, *s = dq + TILE * ld, *ds = s + TILE * TILE, *lse = ds + TILE * TILE,
         *delta = lse + TILE;
    QRows q;
    KRows k;

    rt_attention_q_rows(x, b, head, tile, &q);
    R(attention_columns)(qt, (REAL)x->scale, dq, GRAD_T(q), x, b, head, x->heads, q.first, q.n);
    R(attention_columns)(gradt, 1, dq, GRAD_T(do), x, b, head, x->heads, q.first, q.n);
    R(attention_grad_statistics)(call, x, b, head, &q, lse, delta);
    memset(dq, 0, (size_t)(TILE * ld) * sizeof *dq);
    rt_attention_k_tiles(x, tile, &first, &last);
    for (int64_t k_tile = first; k_tile < last; k_tile++) {
        rt_attention_k_rows(x, b, k_tile, &k);
        Visible visible = rt_attention_visible(x, &q, &k);
        if (visible == VISIBLE_NONE)
            continue;
        R(attention_rows)(keys, ld, GRAD_T(k), x, b, kv_head, x->kv_heads, k.first, k.n);
        R(attention_rows)(v, ld, GRAD_T(v), x, b, kv_head, x->kv_heads, k.first, k.n);
        R(attention_product)(s, TILE, keys, ld, 1, qt, TILE, k.n, TILE, dim, false);
        R(attention_product)(ds, TILE, v, ld, 1, gradt, TILE, k.n, TILE, dim, false);
        R(attention_grad_scores)(x, &q, &k, visible, true, lse, delta, s, ds);
        R(attention_product)(dq, ld, ds, 1, TILE, keys, ld, q.n, x->padded, k.n, true);
    }
    R(attention_store)(GRAD_T(dq), x, b, head, x->heads, q.first, q.n, dq, ld);
}

#undef GRAD_T
