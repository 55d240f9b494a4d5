/* lm_loss, backward, per arithmetic type. Workspace: gradients of a piece's logits [tokens, count],
 * then sums of dh [tokens, width] where they are kept apart. */

static void R(lm_loss_grad_row)(const LmLossGrad *x, REAL *row, int64_t cols, int64_t target,
                                REAL lse, REAL seed)
{
    REAL cap = (REAL)x->softcap;
    int32_t hot = target >= 0 && target < cols ? (int32_t)target : -1, n = (int32_t)cols;
    if (x->softcap > 0)
        for (int32_t i = 0; i < n; i++) {
            REAL t = REAL_TANH(row[i] / cap), p = REAL_EXP(cap * t - lse);
            row[i] = (p - (REAL)(i == hot)) * (1 - t * t) * seed;
        }
    else
        for (int32_t i = 0; i < n; i++)
            row[i] = (REAL_EXP(row[i] - lse) - (REAL)(i == hot)) * seed;
}

static void R(lm_loss_grad_logits)(const RtCall *call, const LmLossGrad *x, uint64_t chunk,
                                   REAL *pack)
{
    int64_t tiles = plan_ceil_div(x->count, LM_LOSS_TILE_N);
    int64_t token = (int64_t)chunk / tiles * LM_LOSS_TILE_M,
            column = (int64_t)chunk % tiles * LM_LOSS_TILE_N;
    int64_t rows = plan_min(LM_LOSS_TILE_M, x->tokens - token),
            cols = plan_min(LM_LOSS_TILE_N, x->count - column);
    const PlanTensor *t = call->tensor;
    RtMatrix h = rt_matrix(call->at[PLAN_T_lm_loss_grad_h], &t[PLAN_T_lm_loss_grad_h], x->width,
                           false, sizeof(REAL));
    RtMatrix w = rt_matrix(call->at[PLAN_T_lm_loss_grad_w], &t[PLAN_T_lm_loss_grad_w], x->width,
                           false, sizeof(REAL));
    REAL *tile = (REAL *)call->workspace + token * x->count + column;
    REAL seed = (REAL)rt_scalar(call, PLAN_T_lm_loss_grad_seed), lse;

    R(rt_product)(tile, x->count, &h, &w, token, x->word + column, rows, cols, x->width, false,
                  pack);
    for (int64_t r = 0; r < rows; r++) {
        REAL *row = tile + r * x->count;
        int64_t target = x->targets[token + r];
        R(rt_view_load)(&lse, call->at[PLAN_T_lm_loss_grad_lse], &t[PLAN_T_lm_loss_grad_lse],
                        token + r, 1);
        if (target == x->ignore)
            memset(row, 0, (size_t)cols * sizeof *row);
        else
            R(lm_loss_grad_row)(x, row, cols, target - x->word0 - x->word - column, lse, seed);
        for (int64_t i = rt_between(x->words - x->word - column, 0, cols); i < cols; i++)
            row[i] = 0;
    }
}

static void R(lm_loss_grad_dw)(const RtCall *call, const LmLossGrad *x, int64_t tile, REAL *pack)
{
    const PlanTensor *t = call->tensor, *view = &t[PLAN_T_lm_loss_grad_dw];
    PlanTensor grad = {
        .numel = x->tokens * x->count, .run = x->count, .pitch = x->count, .dtype = REAL_DTYPE};
    RtMatrix a = rt_matrix(call->workspace, &grad, x->count, true, sizeof(REAL));
    RtMatrix b = rt_matrix(call->at[PLAN_T_lm_loss_grad_h], &t[PLAN_T_lm_loss_grad_h], x->width,
                           true, sizeof(REAL));
    int64_t i = tile / x->dw_tiles.cols * x->dw_tiles.tile_m,
            j = tile % x->dw_tiles.cols * x->dw_tiles.tile_n;
    int64_t m = plan_min(x->dw_tiles.tile_m, x->count - i),
            n = plan_min(x->dw_tiles.tile_n, x->width - j);
    void *dw = call->at[PLAN_T_lm_loss_grad_dw];
    if (plan_row_direct(view, x->width, sizeof(REAL))) {
        int64_t ld = plan_row_pitch(view, x->width);
        R(rt_product)((REAL *)dw + (x->word + i) * ld + j, ld, &a, &b, i, j, m, n, x->tokens, false,
                      pack);
        return;
    }
    REAL *c = pack;
    pack += plan_round_up(x->dw_tiles.tile_m * x->dw_tiles.tile_n, 16);
    R(rt_product)(c, n, &a, &b, i, j, m, n, x->tokens, false, pack);
    for (int64_t r = 0; r < m; r++)
        R(rt_view_store)(dw, view, (x->word + i + r) * x->width + j, c + r * n, n);
}

static void R(lm_loss_grad_dh)(const RtCall *call, const LmLossGrad *x, int64_t tile, REAL *pack)
{
    const PlanTensor *t = call->tensor, *view = &t[PLAN_T_lm_loss_grad_dh];
    PlanTensor grad = {
        .numel = x->tokens * x->count, .run = x->count, .pitch = x->count, .dtype = REAL_DTYPE};
    RtMatrix a = rt_matrix(call->workspace, &grad, x->count, false, sizeof(REAL));
    RtMatrix b = rt_matrix(call->at[PLAN_T_lm_loss_grad_w], &t[PLAN_T_lm_loss_grad_w], x->width,
                           true, sizeof(REAL));
    int64_t i = tile / x->dh_tiles.cols * x->dh_tiles.tile_m,
            j = tile % x->dh_tiles.cols * x->dh_tiles.tile_n;
    int64_t m = plan_min(x->dh_tiles.tile_m, x->tokens - i),
            n = plan_min(x->dh_tiles.tile_n, x->width - j);
    void *dh = call->at[PLAN_T_lm_loss_grad_dh];
    bool direct = plan_row_direct(view, x->width, sizeof(REAL));
    int64_t ld = direct ? plan_row_pitch(view, x->width) : x->sums ? x->width : n;
    REAL *c = direct    ? (REAL *)dh + i * ld + j
              : x->sums ? (REAL *)call->workspace + x->tokens * x->columns + i * ld + j
                        : pack;
    if (!direct && !x->sums)
        pack += plan_round_up(x->dh_tiles.tile_m * x->dh_tiles.tile_n, 16);
    b.top = x->word;
    R(rt_product)(c, ld, &a, &b, i, j, m, n, x->count, !x->first, pack);
    if (!direct && x->last)
        for (int64_t r = 0; r < m; r++)
            R(rt_view_store)(dh, view, (i + r) * x->width + j, c + r * ld, n);
}

static void R(lm_loss_grad_products)(const RtCall *call, const LmLossGrad *x, int64_t chunk,
                                     REAL *pack)
{
    int64_t dw = dw_chunks(call, x);
    if (chunk < dw)
        R(lm_loss_grad_dw)(call, x, chunk, pack);
    else
        R(lm_loss_grad_dh)(call, x, chunk - dw, pack);
}
