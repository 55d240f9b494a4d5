/* attention, per arithmetic type: tiles of heads, and products of tiles. */

/* Rows of one head as [n, ld]; columns behind dim are zeros. */
static inline void R(attention_rows)(REAL *to, int64_t ld, const void *at, const PlanTensor *view,
                                     const Attention *x, int64_t b, int64_t head, int64_t heads,
                                     int64_t first, int64_t n)
{
    int64_t width = heads * x->dim, pitch = plan_row_pitch(view, width), token = b * x->seq + first;
    for (int64_t r = 0; r < n; r++, to += ld, token++) {
        if (pitch)
            R(rt_load)(to, at, view->dtype, token * pitch + head * x->dim, x->dim);
        else
            R(rt_view_load)(to, at, view, token * width + head * x->dim, x->dim);
        for (int64_t d = x->dim; d < ld; d++)
            to[d] = 0;
    }
}

/* Rows of one head times `factor` as [dim, TILE]; columns behind n are zeros. rows: room for [TILE,
 * x->pitch]. */
static inline void R(attention_columns)(REAL *to, REAL factor, REAL *rows, const void *at,
                                        const PlanTensor *view, const Attention *x, int64_t b,
                                        int64_t head, int64_t heads, int64_t first, int64_t n)
{
    R(attention_rows)(rows, x->pitch, at, view, x, b, head, heads, first, n);
    memset(rows + n * x->pitch, 0, (size_t)((TILE - n) * x->pitch) * sizeof *rows);
    for (int64_t d = 0; d < x->dim; d++)
        for (int64_t r = 0; r < TILE; r++)
            to[d * TILE + r] = rows[r * x->pitch + d] * factor;
}

static inline void R(attention_store)(void *at, const PlanTensor *view, const Attention *x,
                                      int64_t b, int64_t head, int64_t heads, int64_t first,
                                      int64_t n, const REAL *from, int64_t ld)
{
    for (int64_t r = 0; r < n; r++)
        R(rt_view_store)(at, view, ((b * x->seq + first + r) * heads + head) * x->dim,
                         from + r * ld, x->dim);
}

/* `rows` rows of C, two vectors wide; every accumulator stays in a register. */
static inline __attribute__((always_inline)) void
R(attention_panel)(const int rows, REAL *c, int64_t ldc, const REAL *a, int64_t a_row, int64_t a_k,
                   const REAL *b, int64_t ldb, int64_t k, bool accumulate)
{
    VEC sum[6][2];
    for (int r = 0; r < rows; r++) {
        sum[r][0] = accumulate ? VEC_LOAD(c + r * ldc) : VEC_ZERO();
        sum[r][1] = accumulate ? VEC_LOAD(c + r * ldc + VEC_LANES) : VEC_ZERO();
    }
    for (int64_t i = 0; i < k; i++) {
        VEC b0 = VEC_LOAD(b), b1 = VEC_LOAD(b + VEC_LANES);
        for (int r = 0; r < rows; r++) {
            VEC x = VEC_SET(a[r * a_row]);
            sum[r][0] = VEC_FMA(x, b0, sum[r][0]);
            sum[r][1] = VEC_FMA(x, b1, sum[r][1]);
        }
        a += a_k;
        b += ldb;
    }
    for (int r = 0; r < rows; r++) {
        VEC_STORE(c + r * ldc, sum[r][0]);
        VEC_STORE(c + r * ldc + VEC_LANES, sum[r][1]);
    }
}

/* C[m, n] = A B, or +=: A's element (i, k) is at a[i * a_row + k * a_k]; n is a multiple of
 * ATTENTION_LANES. */
static inline void R(attention_product)(REAL *c, int64_t ldc, const REAL *a, int64_t a_row,
                                        int64_t a_k, const REAL *b, int64_t ldb, int64_t m,
                                        int64_t n, int64_t k, bool accumulate)
{
    for (int64_t j = 0; j < n; j += 2 * VEC_LANES) {
        int64_t i = 0;
        for (; i + 6 <= m; i += 6)
            R(attention_panel)(6, c + i * ldc + j, ldc, a + i * a_row, a_row, a_k, b + j, ldb, k,
                               accumulate);
        REAL *rest_c = c + i * ldc + j;
        const REAL *rest_a = a + i * a_row;
        switch (m - i) {
        case 5:
            R(attention_panel)(5, rest_c, ldc, rest_a, a_row, a_k, b + j, ldb, k, accumulate);
            break;
        case 4:
            R(attention_panel)(4, rest_c, ldc, rest_a, a_row, a_k, b + j, ldb, k, accumulate);
            break;
        case 3:
            R(attention_panel)(3, rest_c, ldc, rest_a, a_row, a_k, b + j, ldb, k, accumulate);
            break;
        case 2:
            R(attention_panel)(2, rest_c, ldc, rest_a, a_row, a_k, b + j, ldb, k, accumulate);
            break;
        case 1:
            R(attention_panel)(1, rest_c, ldc, rest_a, a_row, a_k, b + j, ldb, k, accumulate);
            break;
        default:
            break;
        }
    }
}
