#include "runtime/cuda/launch_attention.h"

#include "runtime/kernels/cuda/attention_sizes.h"
#include "runtime/abi/random.h"

/* -- geometry, for the gradient too -- */

CudaAttention rt_cuda_attention(const RtCall *call, int segments, int keep)
{
    const PlanParam *p = call->param;
    double dropout = p[PLAN_attention_dropout].f;
    CudaAttention x = {
        .segments = call->at[segments],
        .keep = call->at[keep],
        .random = call->random,
        .key = p[PLAN_attention_key].i,
        .sample = p[PLAN_attention_micro_batch].i * p[PLAN_attention_batch].i,
        .batch = (int32_t)p[PLAN_attention_batch].i,
        .seq = (int32_t)p[PLAN_attention_seq].i,
        .heads = (int32_t)p[PLAN_attention_heads].i,
        .kv_heads = (int32_t)p[PLAN_attention_kv_heads].i,
        .dim = (int32_t)p[PLAN_attention_dim].i,
        .causal = p[PLAN_attention_causal].i != 0,
        .window = (int32_t)plan_min(p[PLAN_attention_window].i, INT32_MAX / 2),
        .scale = (float)p[PLAN_attention_scale].f,
        .softcap = (float)p[PLAN_attention_softcap].f,
        .keep_factor = (float)(1 / (1 - dropout)),
        .threshold = rt_random_threshold(dropout),
    };
    x.group = x.heads / x.kv_heads;
    return x;
}

bool rt_cuda_heads(const RtCall *call, int tensor, int64_t heads, CudaHeads *out_heads)
{
    const PlanTensor *t = &call->tensor[tensor];
    int64_t seq = call->param[PLAN_attention_seq].i, dim = call->param[PLAN_attention_dim].i,
            row = heads * dim;
    *out_heads = (CudaHeads){.at = call->at[tensor], .batch = seq * row, .row = row, .head = dim};
    if (!out_heads->at || rt_cuda_is_dense(call, tensor))
        return true;
    if (t->run == row) {
        out_heads->row = t->pitch;
        out_heads->batch = seq * t->pitch;
        return true;
    }
    if (t->run == dim) {
        out_heads->head = t->pitch;
        out_heads->row = heads * t->pitch;
        out_heads->batch = seq * out_heads->row;
        return true;
    }
    out_heads->batch = t->pitch;
    return t->run == seq * row;
}

bool rt_cuda_heads_aligned(const CudaHeads *h)
{
    return !h->at ||
           ((uintptr_t)h->at % 16 == 0 && h->batch % 8 == 0 && h->row % 8 == 0 && h->head % 8 == 0);
}

bool rt_cuda_attention_any(const CudaAttention *x)
{
    return x->segments || x->keep || x->softcap > 0 || x->threshold;
}

int32_t rt_cuda_head_size(const int32_t *sizes, int32_t dim)
{
    while (*sizes && *sizes < dim)
        sizes++;
    return *sizes;
}

/* -- forward -- */

static Status open_forward(RtCuda *cuda, const RtCall *call, CudaAttention *out_x)
{
    CudaAttention *x = out_x;
    *x = rt_cuda_attention(call, PLAN_T_attention_segments, PLAN_T_attention_keep);
    if (!rt_cuda_heads(call, PLAN_T_attention_q, x->heads, &x->q) ||
        !rt_cuda_heads(call, PLAN_T_attention_k, x->kv_heads, &x->k) ||
        !rt_cuda_heads(call, PLAN_T_attention_v, x->kv_heads, &x->v) ||
        !rt_cuda_heads(call, PLAN_T_attention_o, x->heads, &x->o))
        return rt_cuda_refuse(cuda, call, "the heads of an operand are not evenly spaced");
    x->lse = call->at[PLAN_T_attention_lse];
    if (x->lse && !rt_cuda_is_dense(call, PLAN_T_attention_lse))
        return rt_cuda_refuse(cuda, call, "the rows' statistics are a view");
    return STATUS_OK;
}

static bool all_of(const RtCall *call, uint32_t dtype, const int *tensors, int n)
{
    for (int i = 0; i < n; i++)
        if (call->at[tensors[i]] && call->tensor[tensors[i]].dtype != dtype)
            return false;
    return true;
}

static const int forward_tensors[] = {PLAN_T_attention_q, PLAN_T_attention_k, PLAN_T_attention_v,
                                      PLAN_T_attention_o};

static Status run_plain(RtCuda *cuda, const RtCall *call, const CudaAttention *x)
{
    static const int32_t sizes[] = {64, 128, 256, 512, 0};
    uint32_t dtype = call->tensor[PLAN_T_attention_q].dtype;
    int32_t size = rt_cuda_head_size(sizes, x->dim);
    if (!size || !rt_cuda_is_real(dtype) || !all_of(call, dtype, forward_tensors, 4))
        return rt_cuda_refuse(cuda, call, "attention takes heads of at most 512 in bf16 or in f32");
    char name[RT_CUDA_NAME];
    snprintf(name, sizeof name, "attention_plain_%s_%d", dtype == DTYPE_BF16 ? "bf16" : "f32",
             size);
    int64_t tiles = plan_ceil_div(x->seq, CUDA_PLAIN_ROWS);
    return rt_cuda_run(cuda, name, (uint32_t)(tiles * x->batch * x->heads), 256,
                       (uint32_t)attention_plain_bytes(size), x);
}

Status rt_cuda_attention_plain(RtCuda *cuda, const RtCall *call)
{
    CudaAttention x;
    TRY(open_forward(cuda, call, &x));
    return run_plain(cuda, call, &x);
}

/* On wgmma: masks by position alone. */
static Status run_group(RtCuda *cuda, const CudaAttention *x, int32_t size)
{
    bool wide = size > 128;
    int32_t made_for = size == 64 ? 64 : 128;
    char name[RT_CUDA_NAME] = "attention_group_wide";
    if (!wide)
        snprintf(name, sizeof name, "attention_group_%d", made_for);
    int64_t tiles = plan_ceil_div(x->seq, wide ? 64 : CUDA_ATTENTION_ROWS);
    return rt_cuda_run(cuda, name,
                       rt_cuda_grid(tiles * x->batch * x->heads, 1, cuda->multiprocessors), 384,
                       wide ? attention_group_wide_bytes : attention_group_bytes(made_for), x);
}

Status rt_cuda_launch_attention(RtCuda *cuda, const RtCall *call)
{
    static const int32_t sizes[] = {64, 96, 128, 256, 512, 0};
    CudaAttention x;
    TRY(open_forward(cuda, call, &x));
    int32_t size = rt_cuda_head_size(sizes, x.dim);
    if (!size || x.dim % 8 || x.scale <= 0 || !all_of(call, DTYPE_BF16, forward_tensors, 4) ||
        !rt_cuda_heads_aligned(&x.q) || !rt_cuda_heads_aligned(&x.k) ||
        !rt_cuda_heads_aligned(&x.v) || !rt_cuda_heads_aligned(&x.o))
        return run_plain(cuda, call, &x);
    if (size != 256 && !rt_cuda_attention_any(&x))
        return run_group(cuda, &x, size);
    bool wide = size > 128;
    char name[RT_CUDA_NAME];
    snprintf(name, sizeof name, "attention_%s_%d%s", wide ? "wide" : "rows", size,
             rt_cuda_attention_any(&x) ? "_any" : "");
    int64_t tiles = plan_ceil_div(x.seq, wide ? attention_wide_rows(size) : CUDA_ATTENTION_ROWS);
    return rt_cuda_run(cuda, name, (uint32_t)(tiles * x.batch * x.heads), wide ? 256 : 128,
                       (uint32_t)(wide ? attention_wide_bytes(size) : attention_rows_bytes(size)),
                       &x);
}
