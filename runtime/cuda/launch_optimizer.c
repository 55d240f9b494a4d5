#include "runtime/cuda/launch_view.h"

/* One entry per parameter. Neighbours with the same factors share a launch; an entry counts the
 * chunks before it there. */

static uint64_t update_table_bytes(const RtCall *calls, uint32_t n)
{
    (void)calls;
    return n * sizeof(CudaUpdateEntry);
}

static int64_t chunks_of(const CudaUpdateEntry *e)
{
    return plan_ceil_div(e->n, CUDA_OPTIMIZER_CHUNK);
}

/* The elements of a rank's gradient that an update goes over, and where the weight's are. */
typedef struct Range {
    int64_t first, n, shift;
} Range;

static Range range_of(const RtCall *call, int gradient, int weight, int comm)
{
    const PlanParam *p = call->param;
    int64_t numel = call->tensor[gradient].numel;
    RtCudaSpan span = rt_cuda_span(call, numel, p[comm + 1].i, p[comm + 2].i);
    return (Range){span.first, span.end - span.first,
                   call->tensor[weight].numel > numel ? (int64_t)call->member * numel : 0};
}

static uint32_t update_grid(const RtCuda *cuda, int64_t chunks)
{
    return rt_cuda_grid(chunks, 1, cuda->multiprocessors * 4);
}

/* -- adamw -- */

static CudaUpdateEntry adamw_entry(const RtCall *call)
{
    const PlanTensor *t = call->tensor;
    Range range = range_of(call, PLAN_T_adamw_g, PLAN_T_adamw_w, PLAN_adamw_comm);
    return (CudaUpdateEntry){
        .w = rt_cuda_element(call, PLAN_T_adamw_w, range.shift + range.first),
        .m = rt_cuda_element(call, PLAN_T_adamw_m, range.first),
        .v = rt_cuda_element(call, PLAN_T_adamw_v, range.first),
        .master = rt_cuda_element(call, PLAN_T_adamw_master, range.first),
        .g = rt_cuda_element(call, PLAN_T_adamw_g, range.first),
        .n = range.n,
        .decay = call->param[PLAN_adamw_decay].f,
        .w_type = rt_cuda_type(t[PLAN_T_adamw_w].dtype),
        .g_type = rt_cuda_type(t[PLAN_T_adamw_g].dtype),
        .m_type = rt_cuda_type(t[PLAN_T_adamw_m].dtype),
        .v_type = rt_cuda_type(t[PLAN_T_adamw_v].dtype),
    };
}

/* Tensors of update kernels are whole and of bf16 or f32; the master copy is f32. */
static bool is_plain(const RtCall *call, const int *tensors, int n, int master)
{
    for (int i = 0; i < n; i++)
        if (call->at[tensors[i]] && (!rt_cuda_is_dense(call, tensors[i]) ||
                                     !rt_cuda_is_real(call->tensor[tensors[i]].dtype)))
            return false;
    return !call->at[master] || call->tensor[master].dtype == DTYPE_F32;
}

static Status check_adamw(RtCuda *cuda, const RtCall *call)
{
    static const int tensors[] = {PLAN_T_adamw_w, PLAN_T_adamw_g, PLAN_T_adamw_m, PLAN_T_adamw_v,
                                  PLAN_T_adamw_master};
    if (is_plain(call, tensors, 5, PLAN_T_adamw_master) &&
        call->tensor[PLAN_T_adamw_coef].dtype == DTYPE_F32 &&
        call->tensor[PLAN_T_adamw_lr].dtype == DTYPE_F32)
        return STATUS_OK;
    return rt_cuda_refuse(cuda, call, "an update takes whole tensors of bf16 or f32");
}

static CudaAdamw adamw_args(const RtCall *call)
{
    const PlanParam *p = call->param;
    return (CudaAdamw){
        .coef = call->at[PLAN_T_adamw_coef],
        .lr = call->at[PLAN_T_adamw_lr],
        .step = call->at[PLAN_T_adamw_step],
        .beta1 = p[PLAN_adamw_beta1].f,
        .beta2 = p[PLAN_adamw_beta2].f,
        .eps = p[PLAN_adamw_eps].f,
    };
}

static bool same_adamw(const RtCall *a, const RtCall *b)
{
    CudaAdamw x = adamw_args(a), y = adamw_args(b);
    return x.coef == y.coef && x.lr == y.lr && x.step == y.step && x.beta1 == y.beta1 &&
           x.beta2 == y.beta2 && x.eps == y.eps;
}

Status rt_cuda_launch_adamw(RtCuda *cuda, const RtCall *call)
{
    TRY(check_adamw(cuda, call));
    CudaAdamw x = adamw_args(call);
    x.alone = adamw_entry(call);
    x.chunks = chunks_of(&x.alone);
    return rt_cuda_run(cuda, "adamw", update_grid(cuda, x.chunks), 256, 0, &x);
}

static void fill_adamw(const RtCall *calls, uint32_t n, void *out_table, void *table)
{
    (void)table;
    CudaUpdateEntry *entries = out_table;
    for (uint32_t i = 0; i < n; i++) {
        entries[i] = adamw_entry(&calls[i]);
        if (i && same_adamw(&calls[i - 1], &calls[i]))
            entries[i].first = entries[i - 1].first + chunks_of(&entries[i - 1]);
    }
}

static Status launch_adamw_group(RtCuda *cuda, const RtCall *calls, uint32_t n, void *table)
{
    for (uint32_t i = 0, end; i < n; i = end) {
        CudaAdamw x = adamw_args(&calls[i]);
        x.entries = (const CudaUpdateEntry *)table + i;
        for (end = i; end < n && same_adamw(&calls[i], &calls[end]); end++) {
            TRY(check_adamw(cuda, &calls[end]));
            CudaUpdateEntry entry = adamw_entry(&calls[end]);
            x.chunks += chunks_of(&entry);
        }
        x.n_entries = end - i;
        TRY(rt_cuda_run(cuda, "adamw", update_grid(cuda, x.chunks), 256, 0, &x));
    }
    return STATUS_OK;
}

const RtCudaGroupKernel rt_cuda_group_adamw = {
    .table_bytes = update_table_bytes,
    .table_fill = fill_adamw,
    .launch = launch_adamw_group,
    .writes = 1u << PLAN_T_adamw_w | 1u << PLAN_T_adamw_m | 1u << PLAN_T_adamw_v |
              1u << PLAN_T_adamw_master,
};

/* -- sgd -- */

static CudaUpdateEntry sgd_entry(const RtCall *call)
{
    const PlanTensor *t = call->tensor;
    Range range = range_of(call, PLAN_T_sgd_g, PLAN_T_sgd_w, PLAN_sgd_comm);
    return (CudaUpdateEntry){
        .w = rt_cuda_element(call, PLAN_T_sgd_w, range.shift + range.first),
        .m = rt_cuda_element(call, PLAN_T_sgd_m, range.first),
        .master = rt_cuda_element(call, PLAN_T_sgd_master, range.first),
        .g = rt_cuda_element(call, PLAN_T_sgd_g, range.first),
        .n = range.n,
        .decay = call->param[PLAN_sgd_decay].f,
        .w_type = rt_cuda_type(t[PLAN_T_sgd_w].dtype),
        .g_type = rt_cuda_type(t[PLAN_T_sgd_g].dtype),
        .m_type = rt_cuda_type(t[PLAN_T_sgd_m].dtype),
    };
}

static Status check_sgd(RtCuda *cuda, const RtCall *call)
{
    static const int tensors[] = {PLAN_T_sgd_w, PLAN_T_sgd_g, PLAN_T_sgd_m, PLAN_T_sgd_master};
    if (is_plain(call, tensors, 4, PLAN_T_sgd_master) &&
        call->tensor[PLAN_T_sgd_coef].dtype == DTYPE_F32 &&
        call->tensor[PLAN_T_sgd_lr].dtype == DTYPE_F32)
        return STATUS_OK;
    return rt_cuda_refuse(cuda, call, "an update takes whole tensors of bf16 or f32");
}

static CudaSgd sgd_args(const RtCall *call)
{
    const PlanParam *p = call->param;
    return (CudaSgd){
        .coef = call->at[PLAN_T_sgd_coef],
        .lr = call->at[PLAN_T_sgd_lr],
        .momentum = p[PLAN_sgd_momentum].f,
        .nesterov = p[PLAN_sgd_nesterov].i != 0,
    };
}

static bool same_sgd(const RtCall *a, const RtCall *b)
{
    CudaSgd x = sgd_args(a), y = sgd_args(b);
    return x.coef == y.coef && x.lr == y.lr && x.momentum == y.momentum && x.nesterov == y.nesterov;
}

Status rt_cuda_launch_sgd(RtCuda *cuda, const RtCall *call)
{
    TRY(check_sgd(cuda, call));
    CudaSgd x = sgd_args(call);
    x.alone = sgd_entry(call);
    x.chunks = chunks_of(&x.alone);
    return rt_cuda_run(cuda, "sgd", update_grid(cuda, x.chunks), 256, 0, &x);
}

static void fill_sgd(const RtCall *calls, uint32_t n, void *out_table, void *table)
{
    (void)table;
    CudaUpdateEntry *entries = out_table;
    for (uint32_t i = 0; i < n; i++) {
        entries[i] = sgd_entry(&calls[i]);
        if (i && same_sgd(&calls[i - 1], &calls[i]))
            entries[i].first = entries[i - 1].first + chunks_of(&entries[i - 1]);
    }
}

static Status launch_sgd_group(RtCuda *cuda, const RtCall *calls, uint32_t n, void *table)
{
    for (uint32_t i = 0, end; i < n; i = end) {
        CudaSgd x = sgd_args(&calls[i]);
        x.entries = (const CudaUpdateEntry *)table + i;
        for (end = i; end < n && same_sgd(&calls[i], &calls[end]); end++) {
            TRY(check_sgd(cuda, &calls[end]));
            CudaUpdateEntry entry = sgd_entry(&calls[end]);
            x.chunks += chunks_of(&entry);
        }
        x.n_entries = end - i;
        TRY(rt_cuda_run(cuda, "sgd", update_grid(cuda, x.chunks), 256, 0, &x));
    }
    return STATUS_OK;
}

const RtCudaGroupKernel rt_cuda_group_sgd = {
    .table_bytes = update_table_bytes,
    .table_fill = fill_sgd,
    .launch = launch_sgd_group,
    .writes = 1u << PLAN_T_sgd_w | 1u << PLAN_T_sgd_m | 1u << PLAN_T_sgd_master,
};

/* -- advance -- */

Status rt_cuda_launch_advance(RtCuda *cuda, const RtCall *call)
{
    CudaAdvance x = {
        .step = call->at[PLAN_T_advance_step],
        .skipped = call->at[PLAN_T_advance_skipped],
        .coef = rt_cuda_view(call, PLAN_T_advance_coef),
    };
    return rt_cuda_run(cuda, "advance", 1, 32, 0, &x);
}
