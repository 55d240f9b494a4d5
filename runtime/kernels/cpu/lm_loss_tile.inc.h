/* lm_loss, per arithmetic type: rows of logits. Reductions run over sixteen lanes and then by
 * halves, whatever the machine's vectors are. */

static inline void R(lm_softcap)(REAL *x, int64_t n, double softcap)
{
    REAL cap = (REAL)softcap;
    if (softcap > 0)
        for (int64_t i = 0; i < n; i++)
            x[i] = cap * REAL_TANH(x[i] / cap);
}

/* n is a multiple of 16. */
static inline REAL R(lm_row_max)(const REAL *x, int64_t n)
{
    enum { VECS = 16 / VEC_LANES };
    VEC most[VECS];
    REAL lane[16], result;
    for (int v = 0; v < VECS; v++)
        most[v] = VEC_SET(-(REAL)INFINITY);
    for (int64_t i = 0; i < n; i += 16)
        for (int v = 0; v < VECS; v++)
            most[v] = VEC_MAX(VEC_LOAD(x + i + v * VEC_LANES), most[v]);
    for (int v = 0; v < VECS; v++)
        VEC_STORE(lane + v * VEC_LANES, most[v]);
    result = lane[0];
    for (int i = 1; i < 16; i++)
        result = lane[i] > result ? lane[i] : result;
    return result;
}

static inline REAL R(lm_row_sum)(const REAL *x, int64_t n)
{
    enum { VECS = 16 / VEC_LANES };
    VEC sum[VECS];
    REAL lane[16];
    for (int v = 0; v < VECS; v++)
        sum[v] = VEC_ZERO();
    for (int64_t i = 0; i < n; i += 16)
        for (int v = 0; v < VECS; v++)
            sum[v] = VEC_ADD(sum[v], VEC_LOAD(x + i + v * VEC_LANES));
    for (int v = 0; v < VECS; v++)
        VEC_STORE(lane + v * VEC_LANES, sum[v]);
    for (int width = 8; width; width /= 2)
        for (int i = 0; i < width; i++)
            lane[i] += lane[i + width];
    return lane[0];
}
