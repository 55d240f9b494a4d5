/* attention, forward, per arithmetic type. Scores of a tile are kept as [k, q], so that a query is
 * a vector lane and no reduction runs across lanes. */

#define ATTENTION_T(name) call->at[PLAN_T_attention_##name], &call->tensor[PLAN_T_attention_##name]

/* Softcap and mask, in place; the largest score of each query into `most`. */
static void R(attention_scores)(const Attention *x, const QRows *q, const KRows *k, Visible visible,
                                REAL *s, REAL *restrict most)
{
    for (int j = 0; j < k->n; j++) {
        REAL *restrict row = s + j * TILE;
        if (x->softcap > 0) {
            REAL cap = (REAL)x->softcap;
            for (int i = 0; i < TILE; i++)
                row[i] = cap * REAL_TANH(row[i] / cap);
        }
        if (visible == VISIBLE_SOME)
            for (int i = 0; i < TILE; i++)
                row[i] = rt_attention_sees(q, i, k, j) ? row[i] : -(REAL)INFINITY;
        for (int i = 0; i < TILE; i++)
            most[i] = row[i] > most[i] ? row[i] : most[i];
    }
}

/* Probabilities from scores, in place, not yet divided by their sum; the sums go on in `sum`. */
static void R(attention_probabilities)(const Attention *x, const QRows *q, const KRows *k, REAL *s,
                                       const REAL *restrict most, REAL *restrict sum)
{
    REAL shift[TILE], factor = (REAL)(1 / (1 - x->dropout));
    uint32_t threshold = rt_random_threshold(x->dropout);
    for (int i = 0; i < TILE; i++)
        shift[i] = most[i] == -(REAL)INFINITY ? 0 : most[i];
    for (int j = 0; j < k->n; j++) {
        REAL *restrict row = s + j * TILE;
        for (int i = 0; i < TILE; i++) {
            REAL p = REAL_EXP(row[i] - shift[i]);
            row[i] = p;
            sum[i] += p;
        }
        if (x->dropout > 0)
            for (int i = 0; i < TILE; i++)
                row[i] = rt_attention_draw(q, i, k, j) >= threshold ? row[i] * factor : 0;
    }
}

static void R(attention_q_tile)(const RtCall *call, const Attention *x, int64_t b, int64_t head,
                                int64_t tile, REAL *scratch)
{
    int64_t dim = x->dim, ld = x->pitch, kv_head = head / x->group;
    REAL *qt = scratch, *keys = qt + TILE * dim, *v = keys + TILE * dim;
    REAL *o = v + TILE * ld, *s = o + TILE * ld;
    REAL *most = s + TILE * TILE, *sum = most + TILE, *rescale = sum + TILE;
    QRows q;
    KRows k;

    rt_attention_q_rows(x, b, head, tile, &q);
    R(attention_columns)(qt, (REAL)x->scale, o, ATTENTION_T(q), x, b, head, x->heads, q.first, q.n);
    memset(o, 0, (size_t)(TILE * ld) * sizeof *o);
    for (int i = 0; i < TILE; i++) {
        most[i] = -(REAL)INFINITY;
        sum[i] = 0;
    }
    int64_t first, last;
    rt_attention_k_tiles(x, tile, &first, &last);
    for (int64_t k_tile = first; k_tile < last; k_tile++) {
        rt_attention_k_rows(x, b, k_tile, &k);
        Visible visible = rt_attention_visible(x, &q, &k);
        if (visible == VISIBLE_NONE)
            continue;
        R(attention_rows)(keys, dim, ATTENTION_T(k), x, b, kv_head, x->kv_heads, k.first, k.n);
        R(attention_rows)(v, ld, ATTENTION_T(v), x, b, kv_head, x->kv_heads, k.first, k.n);
        R(attention_product)(s, TILE, keys, dim, 1, qt, TILE, k.n, TILE, dim, false);
        memcpy(rescale, most, TILE * sizeof *most);
        R(attention_scores)(x, &q, &k, visible, s, most);
        for (int i = 0; i < TILE; i++)
            rescale[i] = rescale[i] == most[i] ? 1 : REAL_EXP(rescale[i] - most[i]);
        for (int i = 0; i < TILE; i++)
            sum[i] *= rescale[i];
        R(attention_probabilities)(x, &q, &k, s, most, sum);
        for (int i = 0; i < q.n; i++)
            if (rescale[i] != 1)
                for (int64_t d = 0; d < ld; d++)
                    o[i * ld + d] *= rescale[i];
        R(attention_product)(o, ld, s, 1, TILE, v, ld, q.n, x->padded, k.n, true);
    }
    for (int i = 0; i < q.n; i++) {
        REAL inverse = sum[i] == 0 ? 0 : 1 / sum[i];
        for (int64_t d = 0; d < ld; d++)
            o[i * ld + d] *= inverse;
        most[i] = sum[i] == 0 ? (REAL)INFINITY : most[i] + REAL_LOG(sum[i]);
    }
    R(attention_store)(ATTENTION_T(o), x, b, head, x->heads, q.first, q.n, o, ld);
    if (call->at[PLAN_T_attention_lse])
        R(rt_view_store)(ATTENTION_T(lse), (b * x->heads + head) * x->seq + q.first, most, q.n);
}

#undef ATTENTION_T
