#include "runtime/cuda/launch_attention.h"
#include "runtime/kernels/cuda/attention_sizes.h"

_Static_assert((int)SPLIT_TILE == (int)CUDA_SPLIT_TILE &&
                   (int)SPLIT_COLUMNS == (int)CUDA_SPLIT_COLUMNS,
               "the workspace is cut as the kernels cut it");

#define SAME(name)                                                                                 \
    _Static_assert((int)PLAN_attention_##name == (int)PLAN_attention_grad_##name,                  \
                   "attention's parameters are its gradient's")
SAME(batch);
SAME(seq);
SAME(heads);
SAME(kv_heads);
SAME(dim);
SAME(causal);
SAME(window);
SAME(scale);
SAME(softcap);
SAME(dropout);
SAME(key);
SAME(micro_batch);
#undef SAME

static Status open_grad(RtCuda *cuda, const RtCall *call, CudaAttention *out_x)
{
    CudaAttention *x = out_x;
    *x = rt_cuda_attention(call, PLAN_T_attention_grad_segments, PLAN_T_attention_grad_keep);
    if (!rt_cuda_heads(call, PLAN_T_attention_grad_q, x->heads, &x->q) ||
        !rt_cuda_heads(call, PLAN_T_attention_grad_k, x->kv_heads, &x->k) ||
        !rt_cuda_heads(call, PLAN_T_attention_grad_v, x->kv_heads, &x->v) ||
        !rt_cuda_heads(call, PLAN_T_attention_grad_o, x->heads, &x->o) ||
        !rt_cuda_heads(call, PLAN_T_attention_grad_do, x->heads, &x->grad) ||
        !rt_cuda_heads(call, PLAN_T_attention_grad_dq, x->heads, &x->dq) ||
        !rt_cuda_heads(call, PLAN_T_attention_grad_dk, x->kv_heads, &x->dk) ||
        !rt_cuda_heads(call, PLAN_T_attention_grad_dv, x->kv_heads, &x->dv))
        return rt_cuda_refuse(cuda, call, "the heads of an operand are not evenly spaced");
    x->lse = call->at[PLAN_T_attention_grad_lse];
    x->delta = call->workspace;
    if (!rt_cuda_is_dense(call, PLAN_T_attention_grad_lse))
        return rt_cuda_refuse(cuda, call, "the rows' statistics are a view");
    return STATUS_OK;
}

static bool all_of(const RtCall *call, uint32_t dtype)
{
    static const int tensors[] = {PLAN_T_attention_grad_q,  PLAN_T_attention_grad_k,
                                  PLAN_T_attention_grad_v,  PLAN_T_attention_grad_o,
                                  PLAN_T_attention_grad_do, PLAN_T_attention_grad_dq,
                                  PLAN_T_attention_grad_dk, PLAN_T_attention_grad_dv};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (call->at[tensors[i]] && call->tensor[tensors[i]].dtype != dtype)
            return false;
    return true;
}

static Status run_delta(RtCuda *cuda, const CudaAttention *x, bool is_bf16)
{
    int64_t rows = (int64_t)x->batch * x->seq * x->heads;
    return rt_cuda_run(cuda, is_bf16 ? "attention_delta_bf16" : "attention_delta_f32",
                       (uint32_t)plan_ceil_div(rows, 256 / 32), 256, 0, x);
}

/* -- plain -- */

static Status run_plain(RtCuda *cuda, const RtCall *call, const CudaAttention *x)
{
    static const int32_t sizes[] = {64, 128, 256, 512, 0};
    uint32_t dtype = call->tensor[PLAN_T_attention_grad_q].dtype;
    int32_t size = rt_cuda_head_size(sizes, x->dim);
    if (!size || !rt_cuda_is_real(dtype) || !all_of(call, dtype))
        return rt_cuda_refuse(cuda, call, "attention takes heads of at most 512 in bf16 or in f32");
    bool is_bf16 = dtype == DTYPE_BF16;
    TRY(run_delta(cuda, x, is_bf16));
    int64_t tiles = plan_ceil_div(x->seq, CUDA_PLAIN_ROWS) * x->batch;
    for (int queries = 0; queries < 2; queries++) {
        if (queries ? !x->dq.at : !x->dk.at && !x->dv.at)
            continue;
        char name[RT_CUDA_NAME];
        snprintf(name, sizeof name, "attention_grad_plain_%s_%s_%d", queries ? "q" : "kv",
                 is_bf16 ? "bf16" : "f32", size);
        TRY(rt_cuda_run(cuda, name, (uint32_t)(tiles * (queries ? x->heads : x->kv_heads)), 256,
                        (uint32_t)attention_grad_plain_bytes(size), x));
    }
    return STATUS_OK;
}

Status rt_cuda_attention_grad_plain(RtCuda *cuda, const RtCall *call)
{
    CudaAttention x;
    TRY(open_grad(cuda, call, &x));
    return run_plain(cuda, call, &x);
}

/* -- head sizes up to 128 -- */

static Status run_rows(RtCuda *cuda, const CudaAttention *x, int32_t size, const char *role,
                       bool two, bool queries)
{
    char name[RT_CUDA_NAME];
    snprintf(name, sizeof name, "attention_grad_%s_%d%s", role, size,
             rt_cuda_attention_any(x) ? "_any" : "");
    int64_t tiles = plan_ceil_div(x->seq, CUDA_ATTENTION_ROWS) * x->batch;
    return rt_cuda_run(cuda, name, (uint32_t)(tiles * (queries ? x->heads : x->kv_heads)), 128,
                       (uint32_t)attention_grad_bytes(size, two, queries), x);
}

static Status run_narrow(RtCuda *cuda, const CudaAttention *x, int32_t size)
{
    if (size == 64 && (x->dk.at || x->dv.at))
        TRY(run_rows(cuda, x, size, "kv", true, false));
    if (size != 64 && x->dk.at)
        TRY(run_rows(cuda, x, size, "k", true, false));
    if (size != 64 && x->dv.at)
        TRY(run_rows(cuda, x, size, "v", false, false));
    if (x->dq.at)
        TRY(run_rows(cuda, x, size, "q", true, true));
    return STATUS_OK;
}

/* -- head sizes up to 64, masks by position alone -- */

static Status run_grouped(RtCuda *cuda, const RtCall *call, CudaAttention *x)
{
    int64_t rows = x->batch * plan_round_up(x->seq, 64) * x->heads,
            tiles = plan_ceil_div(x->seq, CUDA_ATTENTION_ROWS) * x->batch;
    x->next = (int32_t *)((unsigned char *)call->workspace +
                          plan_cuda_statistics_bytes(call->param));
    TRY(rt_cuda_run(cuda, "attention_group_statistics", (uint32_t)plan_ceil_div(rows, 256 / 8), 256,
                    0, x));
    x->items = (int32_t)(tiles * x->kv_heads);
    if (x->dk.at || x->dv.at)
        TRY(rt_cuda_run(cuda, "attention_group_grad_kv",
                        rt_cuda_grid(x->items, 1, cuda->multiprocessors), 384,
                        attention_group_grad_bytes, x));
    x->items = (int32_t)(tiles * x->heads);
    if (!x->dq.at)
        return STATUS_OK;
    return rt_cuda_run(cuda, "attention_group_grad_q",
                       rt_cuda_grid(x->items, 1, cuda->multiprocessors), 384,
                       attention_group_grad_bytes, x);
}

/* -- above: by way of P and dS in the workspace, piece after piece -- */

static Status run_piece(RtCuda *cuda, const CudaSplit *s)
{
    const CudaAttention *x = &s->x;
    TRY(rt_cuda_run(
        cuda, rt_cuda_attention_any(x) ? "attention_split_scores_any" : "attention_split_scores",
        rt_cuda_grid(s->groups * s->tiles_per_group, 1, cuda->multiprocessors), 256,
        attention_scores_bytes, s));
    int64_t blocks = (int64_t)s->groups * s->columns * (2 * s->tiles + s->unit_end - s->unit_first);
    return rt_cuda_run(cuda, "attention_split_products", (uint32_t)blocks, 256,
                       attention_products_bytes, s);
}

static Status run_split(RtCuda *cuda, const RtCall *call, const CudaAttention *x)
{
    const PlanParam *p = call->param;
    PlanSplit plan = plan_split(p);
    unsigned char *tiles = (unsigned char *)call->workspace + plan_cuda_delta_bytes(p),
                  *sums = tiles + plan.tile_bytes;
    int64_t groups = (int64_t)x->batch * x->kv_heads;
    CudaSplit s = {
        .x = *x,
        .p = tiles,
        .ds = tiles + plan.tile_bytes / 2,
        .tiles_per_head = plan.tiles_per_head,
        .tiles = (int32_t)plan.tiles,
        .reach = (int32_t)plan.reach,
        .columns = (int32_t)plan_ceil_div(x->dim, SPLIT_COLUMNS),
    };
    for (int64_t group = 0; group < groups; group += plan.groups_per_piece)
        for (int64_t unit = 0; unit < plan.units;) {
            int64_t end = plan.whole ? plan.units : plan_split_end(&plan, x->causal, unit);
            s.group_first = (int32_t)group;
            s.groups = (int32_t)plan_min(plan.groups_per_piece, groups - group);
            s.unit_first = (int32_t)unit;
            s.unit_end = (int32_t)end;
            s.tiles_before = plan_split_before_unit(&plan, x->causal, unit);
            s.tiles_per_group = plan_split_before_unit(&plan, x->causal, end) - s.tiles_before;
            s.first = unit == 0;
            s.last = end == plan.units;
            if (!plan.whole) {
                s.dk_sum = (float *)sums;
                s.dv_sum = (float *)(sums + plan.sum_bytes);
            }
            TRY(run_piece(cuda, &s));
            unit = end;
        }
    return STATUS_OK;
}

Status rt_cuda_launch_attention_grad(RtCuda *cuda, const RtCall *call)
{
    static const int32_t sizes[] = {64, 96, 128, 0};
    CudaAttention x;
    TRY(open_grad(cuda, call, &x));
    const CudaHeads *operands[] = {&x.q, &x.k, &x.v, &x.o, &x.grad, &x.dq, &x.dk, &x.dv};
    bool fits = x.dim % 8 == 0 && x.dim <= 512 && x.scale > 0 && all_of(call, DTYPE_BF16);
    for (size_t i = 0; i < sizeof operands / sizeof *operands; i++)
        fits = fits && rt_cuda_heads_aligned(operands[i]);
    if (!fits)
        return run_plain(cuda, call, &x);
    if (plan_attention_is_grouped(x.dim, DTYPE_BF16) && !rt_cuda_attention_any(&x))
        return run_grouped(cuda, call, &x);
    TRY(run_delta(cuda, &x, true));
    if (plan_attention_is_split(x.dim, DTYPE_BF16))
        return run_split(cuda, call, &x);
    return run_narrow(cuda, &x, rt_cuda_head_size(sizes, x.dim));
}
