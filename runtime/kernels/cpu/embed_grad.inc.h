/* embed_grad, per arithmetic type. */

static void R(embed_grad_row)(const RtCall *call, int64_t row, int64_t width, const int32_t *tokens,
                              int64_t n)
{
    const PlanTensor *to = &call->tensor[PLAN_T_embed_grad_dtable],
                     *from = &call->tensor[PLAN_T_embed_grad_dy];
    REAL sum[RT_BLOCK], x[RT_BLOCK];
    for (int64_t column = 0; column < width; column += RT_BLOCK) {
        int64_t count = plan_min(RT_BLOCK, width - column);
        R(rt_view_load)(sum, call->at[PLAN_T_embed_grad_dy], from, tokens[0] * width + column,
                        count);
        for (int64_t t = 1; t < n; t++) {
            R(rt_view_load)(x, call->at[PLAN_T_embed_grad_dy], from, tokens[t] * width + column,
                            count);
            for (int64_t i = 0; i < count; i++)
                sum[i] += x[i];
        }
        R(rt_view_store)(call->at[PLAN_T_embed_grad_dtable], to, row * width + column, sum, count);
    }
}

static void R(embed_grad_rows)(const RtCall *call, uint64_t chunk, const int32_t *begin,
                               const int32_t *order)
{
    const PlanParam *p = call->param;
    int64_t width = p[PLAN_embed_grad_width].i, per = rt_rows_per_chunk(width);
    int64_t end = rt_chunk_end(chunk, per, p[PLAN_embed_grad_rows].i);
    for (int64_t row = rt_chunk_begin(chunk, per); row < end; row++) {
        int64_t n = begin[row + 1] - begin[row];
        if (n && row + first_row(call, p[PLAN_embed_grad_rows].i) != p[PLAN_embed_grad_padding].i)
            R(embed_grad_row)(call, row, width, order + begin[row], n);
        else
            rt_view_zero(call->at[PLAN_T_embed_grad_dtable],
                         &call->tensor[PLAN_T_embed_grad_dtable], row * width, width);
    }
}
