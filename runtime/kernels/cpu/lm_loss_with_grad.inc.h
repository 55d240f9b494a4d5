/* lm_loss with its gradient, per arithmetic type. Workspace: a piece's logits [rows, ld], and in
 * their place their gradients; the tokens' losses [tokens]; sums of dw [vocab, width] where they
 * are kept apart. */

static REAL *R(with_grad_losses)(const RtCall *call, const LmLossWithGrad *x)
{
    return (REAL *)call->workspace + x->rows * x->ld;
}

static void R(with_grad_logits)(const RtCall *call, const LmLossWithGrad *x, int64_t chunk,
                                REAL *pack)
{
    int64_t tiles = plan_ceil_div(x->vocab, LM_LOSS_TILE_N);
    int64_t row = chunk / tiles * LM_LOSS_TILE_M, word = chunk % tiles * LM_LOSS_TILE_N;
    int64_t rows = plan_min(LM_LOSS_TILE_M, x->count - row),
            cols = plan_min(LM_LOSS_TILE_N, x->vocab - word);
    const PlanTensor *t = call->tensor;
    RtMatrix h = rt_matrix(call->at[PLAN_T_lm_loss_with_grad_h], &t[PLAN_T_lm_loss_with_grad_h],
                           x->width, false, sizeof(REAL));
    RtMatrix w = rt_matrix(call->at[PLAN_T_lm_loss_with_grad_w], &t[PLAN_T_lm_loss_with_grad_w],
                           x->width, false, sizeof(REAL));
    REAL *tile = (REAL *)call->workspace + row * x->ld + word;
    R(rt_product)(tile, x->ld, &h, &w, x->token + row, word, rows, cols, x->width, false, pack);
    for (int64_t r = 0; r < rows; r++)
        R(lm_softcap)(tile + r * x->ld, cols, x->softcap);
}

/* Sum of e^(row - most), which takes the row's place where there is no soft cap. */
static REAL R(with_grad_exponents)(const LmLossWithGrad *x, REAL *row, REAL most)
{
    enum { BLOCK = 1024 };
    REAL apart[BLOCK], sum = 0;
    for (int64_t at = 0; at < x->ld; at += BLOCK) {
        int64_t n = plan_min(BLOCK, x->ld - at);
        REAL *e = x->softcap > 0 ? apart : row + at;
        for (int64_t i = 0; i < n; i++)
            e[i] = REAL_EXP(row[at + i] - most);
        sum += R(lm_row_sum)(e, n);
    }
    return sum;
}

static void R(with_grad_row)(const LmLossWithGrad *x, REAL *row, int64_t target, REAL lse,
                             REAL over, REAL seed)
{
    REAL cap = (REAL)x->softcap;
    int32_t hot = (int32_t)target, n = (int32_t)x->vocab;
    if (x->softcap > 0)
        for (int32_t i = 0; i < n; i++) {
            REAL t = row[i] / cap, p = REAL_EXP(row[i] - lse);
            row[i] = (p - (REAL)(i == hot)) * (1 - t * t) * seed;
        }
    else
        for (int32_t i = 0; i < n; i++)
            row[i] = (row[i] * over - (REAL)(i == hot)) * seed;
}

static void R(with_grad_rows)(const RtCall *call, const LmLossWithGrad *x, int64_t chunk)
{
    REAL seed = (REAL)rt_scalar(call, PLAN_T_lm_loss_with_grad_seed);
    REAL *losses = R(with_grad_losses)(call, x);
    for (int64_t r = rt_chunk_begin((uint64_t)chunk, ROWS_AT_ONCE);
         r < rt_chunk_end((uint64_t)chunk, ROWS_AT_ONCE, x->count); r++) {
        REAL *row = (REAL *)call->workspace + r * x->ld;
        int64_t target = x->targets[x->token + r];
        bool valid = target >= 0 && target < x->vocab;
        losses[x->token + r] = 0;
        if (target == x->ignore) {
            memset(row, 0, (size_t)x->vocab * sizeof *row);
            continue;
        }
        if (!valid)
            rt_fault_raise(call->fault,
                           "target %lld of token %lld is outside the vocabulary of %lld",
                           (long long)target, (long long)(x->token + r), (long long)x->vocab);
        for (int64_t i = x->vocab; i < x->ld; i++)
            row[i] = -(REAL)INFINITY;
        REAL most = R(lm_row_max)(row, x->ld), logit = valid ? row[target] : 0;
        REAL sum = R(with_grad_exponents)(x, row, most), lse = most + REAL_LOG(sum);
        losses[x->token + r] = valid ? lse - logit : 0;
        R(with_grad_row)(x, row, valid ? target : -1, lse, 1 / sum, seed);
    }
}

static RtMatrix R(with_grad_of_logits)(const RtCall *call, const LmLossWithGrad *x, bool k_down)
{
    return rt_matrix(call->workspace, &x->logits, x->ld, k_down, sizeof(REAL));
}

static void R(with_grad_dw)(const RtCall *call, const LmLossWithGrad *x, int64_t tile, REAL *pack)
{
    const PlanTensor *t = call->tensor, *view = &t[PLAN_T_lm_loss_with_grad_dw];
    RtMatrix a = R(with_grad_of_logits)(call, x, true);
    RtMatrix b = rt_matrix(call->at[PLAN_T_lm_loss_with_grad_h], &t[PLAN_T_lm_loss_with_grad_h],
                           x->width, true, sizeof(REAL));
    int64_t i = tile / x->dw_tiles.cols * x->dw_tiles.tile_m,
            j = tile % x->dw_tiles.cols * x->dw_tiles.tile_n;
    int64_t m = plan_min(x->dw_tiles.tile_m, x->vocab - i),
            n = plan_min(x->dw_tiles.tile_n, x->width - j);
    void *dw = call->at[PLAN_T_lm_loss_with_grad_dw];
    bool direct = plan_row_direct(view, x->width, sizeof(REAL));
    int64_t ld = direct ? plan_row_pitch(view, x->width) : x->sums ? x->width : n;
    REAL *c = direct    ? (REAL *)dw + i * ld + j
              : x->sums ? R(with_grad_losses)(call, x) + x->tokens + i * ld + j
                        : pack;
    if (!direct && !x->sums)
        pack += plan_round_up(x->dw_tiles.tile_m * x->dw_tiles.tile_n, 16);
    b.top = x->token;
    R(rt_product)(c, ld, &a, &b, i, j, m, n, x->count, !x->first, pack);
    if (!direct && x->last)
        for (int64_t r = 0; r < m; r++)
            R(rt_view_store)(dw, view, (i + r) * x->width + j, c + r * ld, n);
}

static void R(with_grad_dh)(const RtCall *call, const LmLossWithGrad *x, int64_t tile, REAL *pack)
{
    const PlanTensor *t = call->tensor, *view = &t[PLAN_T_lm_loss_with_grad_dh];
    RtMatrix a = R(with_grad_of_logits)(call, x, false);
    RtMatrix b = rt_matrix(call->at[PLAN_T_lm_loss_with_grad_w], &t[PLAN_T_lm_loss_with_grad_w],
                           x->width, true, sizeof(REAL));
    int64_t i = tile / x->dh_tiles.cols * x->dh_tiles.tile_m,
            j = tile % x->dh_tiles.cols * x->dh_tiles.tile_n;
    int64_t m = plan_min(x->dh_tiles.tile_m, x->count - i),
            n = plan_min(x->dh_tiles.tile_n, x->width - j);
    void *dh = call->at[PLAN_T_lm_loss_with_grad_dh];
    bool direct = plan_row_direct(view, x->width, sizeof(REAL));
    int64_t ld = direct ? plan_row_pitch(view, x->width) : n;
    REAL *c = direct ? (REAL *)dh + (x->token + i) * ld + j : pack;
    if (!direct)
        pack += plan_round_up(x->dh_tiles.tile_m * x->dh_tiles.tile_n, 16);
    R(rt_product)(c, ld, &a, &b, i, j, m, n, x->vocab, false, pack);
    if (!direct)
        for (int64_t r = 0; r < m; r++)
            R(rt_view_store)(dh, view, (x->token + i + r) * x->width + j, c + r * ld, n);
}

static void R(with_grad_sum)(const RtCall *call, const LmLossWithGrad *x)
{
    const REAL *losses = R(with_grad_losses)(call, x);
    double sum = 0;
    for (int64_t r = 0; r < x->tokens; r++)
        sum += losses[r];
    rt_set_scalar(call, PLAN_T_lm_loss_with_grad_loss, sum);
}

static void R(lm_loss_with_grad_run)(const RtCall *call, const LmLossWithGrad *x, uint32_t phase,
                                     int64_t chunk, REAL *scratch)
{
    int64_t dw = dw_chunks(call, x);
    if (!x->count)
        R(with_grad_sum)(call, x);
    else if (phase % 3 == 0)
        R(with_grad_logits)(call, x, chunk, scratch);
    else if (phase % 3 == 1)
        R(with_grad_rows)(call, x, chunk);
    else if (chunk < dw)
        R(with_grad_dw)(call, x, chunk, scratch);
    else
        R(with_grad_dh)(call, x, chunk - dw, scratch);
}
