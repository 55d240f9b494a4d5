/* lm_loss, forward, per arithmetic type. Workspace: maximum [tokens, spans], sum [tokens, spans],
 * the target's logit [tokens], loss [tokens]. */

static void R(lm_loss_span)(const RtCall *call, const LmLoss *x, uint64_t chunk, REAL *scratch)
{
    int64_t span = (int64_t)chunk % x->spans, token = (int64_t)chunk / x->spans * LM_LOSS_TILE_M;
    int64_t rows = plan_min(LM_LOSS_TILE_M, x->tokens - token);
    int64_t end = plan_min((span + 1) * LM_LOSS_SPAN, x->words);
    REAL *most = call->workspace, *sum = most + x->tokens * x->spans,
         *logit = sum + x->tokens * x->spans;
    REAL *tile = scratch, *pack = tile + LM_LOSS_TILE_M * LM_LOSS_TILE_N;
    RtMatrix h = rt_matrix(call->at[x->h], &call->tensor[x->h], x->width,
                           false, sizeof(REAL));
    RtMatrix w = rt_matrix(call->at[x->w], &call->tensor[x->w], x->width,
                           false, sizeof(REAL));

    for (int64_t r = token; r < token + rows; r++) {
        most[r * x->spans + span] = -(REAL)INFINITY;
        sum[r * x->spans + span] = 0;
    }
    for (int64_t word = span * LM_LOSS_SPAN; word < end; word += LM_LOSS_TILE_N) {
        int64_t cols = plan_min(LM_LOSS_TILE_N, end - word), padded = plan_round_up(cols, 16);
        R(rt_product)(tile, LM_LOSS_TILE_N, &h, &w, token, word, rows, cols, x->width, false, pack);
        for (int64_t r = 0; r < rows; r++) {
            REAL *row = tile + r * LM_LOSS_TILE_N;
            REAL *row_most = &most[(token + r) * x->spans + span],
                 *row_sum = &sum[(token + r) * x->spans + span];
            R(lm_softcap)(row, cols, x->softcap);
            int64_t target = x->targets[token + r] - x->word0 - word;
            if (target >= 0 && target < cols)
                logit[token + r] = row[target];
            for (int64_t i = cols; i < padded; i++)
                row[i] = -(REAL)INFINITY;
            REAL now = R(lm_row_max)(row, padded), before = *row_most;
            if (now < before)
                now = before;
            for (int64_t i = 0; i < padded; i++)
                row[i] = REAL_EXP(row[i] - now);
            REAL rescale = now == before ? 1 : REAL_EXP(before - now);
            *row_sum = *row_sum * rescale + R(lm_row_sum)(row, padded);
            *row_most = now;
        }
    }
}

/* A token's spans together: the log of the sum of exponentials, -inf of no words at all. */
static REAL R(lm_loss_spans)(const LmLoss *x, const REAL *row_most, const REAL *row_sum)
{
    REAL top = row_most[0], total = 0;
    for (int64_t i = 1; i < x->spans; i++)
        top = row_most[i] > top ? row_most[i] : top;
    for (int64_t i = 0; i < x->spans; i++)
        if (row_sum[i] > 0)
            total += row_sum[i] * (row_most[i] == top ? 1 : REAL_EXP(row_most[i] - top));
    return total > 0 ? top + REAL_LOG(total) : -(REAL)INFINITY;
}

/* Of a part: the spans, then the target's logit where it is among this part's words. */
static void R(lm_loss_part)(const RtCall *call, const LmLoss *x, uint64_t chunk)
{
    REAL *most = call->workspace, *sum = most + x->tokens * x->spans,
         *logit = sum + x->tokens * x->spans;
    for (int64_t r = rt_chunk_begin(chunk, COMBINE_TOKENS);
         r < rt_chunk_end(chunk, COMBINE_TOKENS, x->tokens); r++) {
        int64_t target = x->targets[r] - x->word0;
        REAL lse = R(lm_loss_spans)(x, most + r * x->spans, sum + r * x->spans);
        REAL own = target >= 0 && target < x->words ? logit[r] : 0;
        const PlanTensor *part = &call->tensor[PLAN_T_lm_loss_part_part];
        R(rt_view_store)(call->at[PLAN_T_lm_loss_part_part], part, r, &lse, 1);
        R(rt_view_store)(call->at[PLAN_T_lm_loss_part_part], part, x->tokens + r, &own, 1);
    }
}

/* Parts in the order of the ranks: [n, 2, tokens]. */
static void R(lm_loss_join)(const RtCall *call)
{
    const PlanParam *p = call->param;
    const REAL *parts = call->at[PLAN_T_lm_loss_join_parts];
    const int32_t *targets = call->at[PLAN_T_lm_loss_join_targets];
    int64_t tokens = p[PLAN_lm_loss_join_tokens].i, n = p[PLAN_lm_loss_join_n].i;
    double loss = 0;
    for (int64_t r = 0; r < tokens; r++) {
        REAL top = parts[r], total = 0, logit = 0, lse;
        for (int64_t i = 1; i < n; i++)
            top = parts[2 * i * tokens + r] > top ? parts[2 * i * tokens + r] : top;
        for (int64_t i = 0; i < n; i++) {
            total += REAL_EXP(parts[2 * i * tokens + r] - top);
            logit += parts[(2 * i + 1) * tokens + r];
        }
        lse = top + REAL_LOG(total);
        loss += targets[r] != p[PLAN_lm_loss_join_ignore].i ? lse - logit : 0;
        if (call->at[PLAN_T_lm_loss_join_lse])
            R(rt_view_store)
            (call->at[PLAN_T_lm_loss_join_lse], &call->tensor[PLAN_T_lm_loss_join_lse], r, &lse, 1);
    }
    if (call->at[PLAN_T_lm_loss_join_loss])
        rt_set_scalar(call, PLAN_T_lm_loss_join_loss, loss);
}

static void R(lm_loss_combine)(const RtCall *call, const LmLoss *x, uint64_t chunk)
{
    REAL *most = call->workspace, *sum = most + x->tokens * x->spans,
         *logit = sum + x->tokens * x->spans;
    REAL *loss = logit + x->tokens;
    for (int64_t r = rt_chunk_begin(chunk, COMBINE_TOKENS);
         r < rt_chunk_end(chunk, COMBINE_TOKENS, x->tokens); r++) {
        const REAL *row_most = most + r * x->spans, *row_sum = sum + r * x->spans;
        REAL top = row_most[0], total = 0;
        for (int64_t i = 1; i < x->spans; i++)
            top = row_most[i] > top ? row_most[i] : top;
        for (int64_t i = 0; i < x->spans; i++)
            total += row_sum[i] * (row_most[i] == top ? 1 : REAL_EXP(row_most[i] - top));
        REAL lse = top + REAL_LOG(total);
        int64_t target = x->targets[r];
        bool valid = target >= 0 && target < x->vocab;
        if (target != x->ignore && !valid)
            rt_fault_raise(call->fault,
                           "target %lld of token %lld is outside the vocabulary of %lld",
                           (long long)target, (long long)r, (long long)x->vocab);
        loss[r] = target != x->ignore && valid ? lse - logit[r] : 0;
        if (call->at[PLAN_T_lm_loss_lse])
            R(rt_view_store)(call->at[PLAN_T_lm_loss_lse], &call->tensor[PLAN_T_lm_loss_lse], r,
                             &lse, 1);
    }
}

static void R(lm_loss_sum)(const RtCall *call, const LmLoss *x)
{
    const REAL *loss = (const REAL *)call->workspace + x->tokens * (2 * x->spans + 1);
    double sum = 0;
    for (int64_t r = 0; r < x->tokens; r++)
        sum += loss[r];
    if (call->at[PLAN_T_lm_loss_loss])
        rt_set_scalar(call, PLAN_T_lm_loss_loss, sum);
}
