/* product, per arithmetic type. */

/* rows x cols of the stored matrix from (row, col) on, beside each other in `pack`. */
static inline void R(rt_pack)(REAL *pack, const RtMatrix *x, int64_t row, int64_t col, int64_t rows,
                              int64_t cols)
{
    for (int64_t r = 0; r < rows; r++)
        R(rt_view_load)(pack + r * cols, x->at, x->view, (row + r) * x->width + col, cols);
}

/* The operand's block of `outer` rows (or columns) of the product from `first` on and depth `depth`
 * from `k0` on. */
static inline const REAL *R(rt_block)(const RtMatrix *x, int64_t first, int64_t outer, int64_t k0,
                                      int64_t depth, REAL *pack, int64_t *out_ld)
{
    int64_t row = x->top + (x->k_down ? k0 : first), col = x->k_down ? first : k0;
    int64_t rows = x->k_down ? depth : outer, cols = x->k_down ? outer : depth;
    if (x->ld) {
        *out_ld = x->ld;
        return (const REAL *)x->at + row * x->ld + col;
    }
    R(rt_pack)(pack, x, row, col, rows, cols);
    *out_ld = cols;
    return pack;
}

/* C[m, n] = A[i.., :] B[:, j..], or += where accumulate; a deep product of packed panels goes in
 * steps of GEMM_PACK_K. pack: plan_pack_bytes for these operands. */
static inline void R(rt_product)(REAL *c, int64_t ldc, const RtMatrix *a, const RtMatrix *b,
                                 int64_t i, int64_t j, int64_t m, int64_t n, int64_t k,
                                 bool accumulate, REAL *pack)
{
    int64_t step = a->ld && b->ld ? k : GEMM_PACK_K;
    REAL *pack_b = pack + (a->ld ? 0 : plan_round_up(m * plan_min(k, GEMM_PACK_K), 16));
    for (int64_t k0 = 0; k0 < k; k0 += step) {
        int64_t depth = plan_min(step, k - k0), lda, ldb;
        const REAL *block_a = R(rt_block)(a, i, m, k0, depth, pack, &lda);
        const REAL *block_b = R(rt_block)(b, j, n, k0, depth, pack_b, &ldb);
        REAL_GEMM(CblasRowMajor, a->k_down ? CblasTrans : CblasNoTrans,
                  b->k_down ? CblasNoTrans : CblasTrans, (blasint)m, (blasint)n, (blasint)depth, 1,
                  block_a, (blasint)lda, block_b, (blasint)ldb, accumulate || k0 ? 1 : 0, c,
                  (blasint)ldc);
    }
}
