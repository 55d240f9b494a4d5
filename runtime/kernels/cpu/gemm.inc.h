/* gemm, per arithmetic type. */

static void R(gemm_tile)(const RtCall *call, uint64_t chunk, REAL *scratch)
{
    const PlanParam *p = call->param;
    int64_t m = p[PLAN_gemm_m].i, n = p[PLAN_gemm_n].i, k = p[PLAN_gemm_k].i;
    bool ta = p[PLAN_gemm_ta].i, tb = p[PLAN_gemm_tb].i;
    const PlanTensor *view = &call->tensor[PLAN_T_gemm_c];
    RtMatrix a = rt_matrix(call->at[PLAN_T_gemm_a], &call->tensor[PLAN_T_gemm_a], ta ? m : k, ta,
                           sizeof(REAL));
    RtMatrix b = rt_matrix(call->at[PLAN_T_gemm_b], &call->tensor[PLAN_T_gemm_b], tb ? k : n, !tb,
                           sizeof(REAL));
    PlanTiles tiles = gemm_tiles(call);
    int64_t i = (int64_t)chunk / tiles.cols * tiles.tile_m,
            j = (int64_t)chunk % tiles.cols * tiles.tile_n;
    int64_t rows = plan_min(tiles.tile_m, m - i), cols = plan_min(tiles.tile_n, n - j);

    REAL *bias = scratch, *pack = bias + plan_round_up(tiles.tile_n, 16);
    bool direct = plan_row_direct(view, n, sizeof(REAL));
    int64_t ldc = direct ? plan_row_pitch(view, n) : cols;
    REAL *c = direct ? (REAL *)call->at[PLAN_T_gemm_c] + i * ldc + j : pack;
    if (!direct)
        pack += plan_round_up(tiles.tile_m * tiles.tile_n, 16);
    R(rt_product)(c, ldc, &a, &b, i, j, rows, cols, k, false, pack);

    if (call->at[PLAN_T_gemm_bias]) {
        R(rt_view_load)(bias, call->at[PLAN_T_gemm_bias], &call->tensor[PLAN_T_gemm_bias], j, cols);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t x = 0; x < cols; x++)
                c[r * ldc + x] += bias[x];
    }
    if (!direct)
        for (int64_t r = 0; r < rows; r++)
            R(rt_view_store)(call->at[PLAN_T_gemm_c], view, (i + r) * n + j, c + r * cols, cols);
}
