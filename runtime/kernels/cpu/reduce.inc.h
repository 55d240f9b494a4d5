/* reductions, per arithmetic type. */

static void R(accumulate)(const RtCall *call, int64_t first, int64_t n)
{
    const PlanTensor *t = call->tensor;
    void *state = call->at[PLAN_T_accumulate_state];
    REAL sum[RT_BLOCK], x[RT_BLOCK];
    for (int64_t i = 0; i < n; i += RT_BLOCK) {
        int64_t count = plan_min(RT_BLOCK, n - i);
        R(rt_view_load)(sum, state, &t[PLAN_T_accumulate_state], first + i, count);
        R(rt_view_load)(x, call->at[PLAN_T_accumulate_x], &t[PLAN_T_accumulate_x], first + i,
                        count);
        for (int64_t j = 0; j < count; j++)
            sum[j] += x[j];
        R(rt_view_store)(state, &t[PLAN_T_accumulate_state], first + i, sum, count);
    }
}

/* Sum of squares of at most NORM_SQ_BLOCK elements: thirty-two lanes, then by halves. */
static REAL R(norm_sq_block)(const RtCall *call, int64_t first, int64_t n)
{
    enum { LANES = 32, VECS = LANES / VEC_LANES };
    REAL x[RT_BLOCK], lane[LANES];
    VEC sum[VECS];
    for (int v = 0; v < VECS; v++)
        sum[v] = VEC_ZERO();
    for (int64_t i = 0; i < n; i += RT_BLOCK) {
        int64_t count = plan_min(RT_BLOCK, n - i), padded = plan_round_up(count, LANES);
        R(rt_view_load)(x, call->at[PLAN_T_norm_sq_x], &call->tensor[PLAN_T_norm_sq_x], first + i,
                        count);
        for (int64_t j = count; j < padded; j++)
            x[j] = 0;
        for (int64_t j = 0; j < padded; j += LANES)
            for (int v = 0; v < VECS; v++) {
                VEC y = VEC_LOAD(x + j + v * VEC_LANES);
                sum[v] = VEC_FMA(y, y, sum[v]);
            }
    }
    for (int v = 0; v < VECS; v++)
        VEC_STORE(lane + v * VEC_LANES, sum[v]);
    for (int width = LANES / 2; width; width /= 2)
        for (int i = 0; i < width; i++)
            lane[i] += lane[i + width];
    return lane[0];
}
