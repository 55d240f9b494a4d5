/* rope_table, per arithmetic type: an angle is position * frequency, both rounded to that type. */

static void R(rope_table_rows)(const RtCall *call, int64_t first, int64_t end)
{
    const PlanParam *p = call->param;
    const PlanTensor *t = call->tensor;
    const int32_t *positions = call->at[PLAN_T_rope_table_positions];
    void *to_cos = call->at[PLAN_T_rope_table_cos], *to_sin = call->at[PLAN_T_rope_table_sin];
    int64_t half = p[PLAN_rope_table_dims].i / 2;
    REAL factor = (REAL)p[PLAN_rope_table_attention_factor].f;
    REAL frequency[FREQUENCIES], row_cos[FREQUENCIES], row_sin[FREQUENCIES];
    for (int64_t i0 = 0; i0 < half; i0 += FREQUENCIES) {
        int64_t n = plan_min(FREQUENCIES, half - i0);
        for (int64_t i = 0; i < n; i++)
            frequency[i] = (REAL)rope_frequency(p, i0 + i);
        for (int64_t row = first; row < end; row++) {
            for (int64_t i = 0; i < n; i++) {
                REAL angle = (REAL)positions[row] * frequency[i];
                row_cos[i] = REAL_COS(angle) * factor;
                row_sin[i] = REAL_SIN(angle) * factor;
            }
            if (to_cos)
                R(rt_view_store)(to_cos, &t[PLAN_T_rope_table_cos], row * half + i0, row_cos, n);
            if (to_sin)
                R(rt_view_store)(to_sin, &t[PLAN_T_rope_table_sin], row * half + i0, row_sin, n);
        }
    }
}
