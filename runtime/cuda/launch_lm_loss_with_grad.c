#include "runtime/cuda/launch_view.h"

/* The tokens are cut into chunks. For each: its logits by one product; a pass over their rows that
 * leaves the losses, and gradients in the logits' place; dh's rows, whole, and one more product
 * summed into dw. Sums of dw that are not dw itself are f32: those of the first `lent` words lie in
 * dw's memory, where they take the place of twice as many, the others in the workspace. */
typedef struct Head {
    CudaLmLossWithGrad x;
    PlanHead plan;
    int64_t tokens, width;
    DType type;      /* of logits and gradients */
    void *dw, *sums; /* sums: of the words that are not lent; dw where there are none */
    DType sums_type;
    int64_t sums_pitch;
} Head;

/* In shared memory wait rows of up to 112 KiB, of two blocks on a multiprocessor, or up to 224 KiB
 * of larger ones. */
Status rt_cuda_head_rows(RtCuda *cuda, CudaLmLossWithGrad *x)
{
    enum { PLACES_BYTES = 16 * CUDA_HEAD_THREADS, PLACES_OF_TWO = 14, PLACES_MOST = 28 };
    bool kept = x->type == CUDA_BF16;
    int64_t places = plan_ceil_div(x->vocab, 8 * CUDA_HEAD_THREADS);
    places = kept ? plan_min(places, PLACES_MOST) : 0;
    int64_t blocks = cuda->multiprocessors * (places > PLACES_OF_TWO ? 1 : 2);
    x->places = (int32_t)places;
    return rt_cuda_run(cuda, kept ? "lm_loss_with_grad_rows" : "lm_loss_with_grad_rows_f32",
                       rt_cuda_grid(x->rows, 1, blocks), CUDA_HEAD_THREADS,
                       (uint32_t)(PLACES_BYTES * places), x);
}

static Head open_head(RtCuda *cuda, const RtCall *call)
{
    const PlanParam *p = call->param;
    const PlanTensor *t = call->tensor;
    uint32_t dtype = t[PLAN_T_lm_loss_with_grad_h].dtype;
    PlanHead plan = plan_cuda_head(p, t);
    unsigned char *behind = (unsigned char *)call->workspace + plan.logits_bytes;
    Head l = {
        .plan = plan,
        .x = {.logits = call->workspace,
              .token_loss = (float *)behind,
              .seed = rt_cuda_view(call, PLAN_T_lm_loss_with_grad_seed),
              .targets = call->at[PLAN_T_lm_loss_with_grad_targets],
              .fault = rt_cuda_fault(cuda, call),
              .vocab = p[PLAN_lm_loss_with_grad_vocab].i,
              .ignore = p[PLAN_lm_loss_with_grad_ignore].i,
              .softcap = (float)p[PLAN_lm_loss_with_grad_softcap].f,
              .type = rt_cuda_type(dtype)},
        .tokens = p[PLAN_lm_loss_with_grad_tokens].i,
        .width = p[PLAN_lm_loss_with_grad_width].i,
        .type = (DType)dtype,
        .dw = call->at[PLAN_T_lm_loss_with_grad_dw],
        .sums = call->at[PLAN_T_lm_loss_with_grad_dw],
        .sums_type = (DType)t[PLAN_T_lm_loss_with_grad_dw].dtype,
    };
    l.x.ld = plan_round_up(l.x.vocab, 8);
    l.sums_pitch = plan_row_pitch(&t[PLAN_T_lm_loss_with_grad_dw], l.width);
    if (plan.sums_bytes) {
        l.sums = behind + plan_cuda_align(4 * (uint64_t)l.tokens);
        l.sums_type = DTYPE_F32;
        l.sums_pitch = l.width;
    }
    return l;
}

static Status run_logits(RtCuda *cuda, const RtCall *call, const Head *l)
{
    const PlanTensor *t = call->tensor;
    RtGemm product = {
        .m = l->x.rows,
        .n = l->x.vocab,
        .k = l->width,
        .tb = true,
        .a = rt_cuda_row(call, PLAN_T_lm_loss_with_grad_h, l->width, l->x.token),
        .b = call->at[PLAN_T_lm_loss_with_grad_w],
        .c = l->x.logits,
        .lda = plan_row_pitch(&t[PLAN_T_lm_loss_with_grad_h], l->width),
        .ldb = plan_row_pitch(&t[PLAN_T_lm_loss_with_grad_w], l->width),
        .ldc = l->x.ld,
        .a_type = l->type,
        .b_type = (DType)t[PLAN_T_lm_loss_with_grad_w].dtype,
        .c_type = l->type,
        .alpha = 1,
    };
    return rt_cuda_gemm(cuda, &product);
}

static Status run_dh(RtCuda *cuda, const RtCall *call, const Head *l)
{
    const PlanTensor *t = call->tensor;
    RtGemm product = {
        .m = l->x.rows,
        .n = l->width,
        .k = l->x.vocab,
        .a = l->x.logits,
        .b = call->at[PLAN_T_lm_loss_with_grad_w],
        .c = rt_cuda_row(call, PLAN_T_lm_loss_with_grad_dh, l->width, l->x.token),
        .lda = l->x.ld,
        .ldb = plan_row_pitch(&t[PLAN_T_lm_loss_with_grad_w], l->width),
        .ldc = plan_row_pitch(&t[PLAN_T_lm_loss_with_grad_dh], l->width),
        .a_type = l->type,
        .b_type = (DType)t[PLAN_T_lm_loss_with_grad_w].dtype,
        .c_type = (DType)t[PLAN_T_lm_loss_with_grad_dh].dtype,
        .alpha = 1,
    };
    return rt_cuda_gemm(cuda, &product);
}

/* The sums of words [first, first + words). */
static Status run_dw(RtCuda *cuda, const RtCall *call, const Head *l, int64_t first, int64_t words,
                     void *sums)
{
    const PlanTensor *t = call->tensor;
    RtGemm product = {
        .m = words,
        .n = l->width,
        .k = l->x.rows,
        .ta = true,
        .a = (unsigned char *)l->x.logits + first * dtype_bytes(l->type),
        .b = rt_cuda_row(call, PLAN_T_lm_loss_with_grad_h, l->width, l->x.token),
        .c = sums,
        .lda = l->x.ld,
        .ldb = plan_row_pitch(&t[PLAN_T_lm_loss_with_grad_h], l->width),
        .ldc = l->sums_pitch,
        .a_type = l->type,
        .b_type = (DType)t[PLAN_T_lm_loss_with_grad_h].dtype,
        .c_type = l->sums_type,
        .alpha = 1,
        .beta = l->x.token ? 1 : 0,
    };
    return rt_cuda_gemm(cuda, &product);
}

static Status run_all_dw(RtCuda *cuda, const RtCall *call, const Head *l)
{
    int64_t lent = l->plan.lent;
    if (!l->dw)
        return STATUS_OK;
    if (lent)
        TRY(run_dw(cuda, call, l, 0, lent, l->dw));
    return run_dw(cuda, call, l, lent, l->x.vocab - lent, l->sums);
}

/* To rows of bf16. */
static Status copy_rows(RtCuda *cuda, const Head *l, void *to, const void *from, int32_t type,
                        int64_t rows)
{
    int64_t n = rows * l->width;
    CudaAccumulate x = {
        .state = {.at = to, .run = n, .pitch = n, .type = CUDA_BF16},
        .x = {.at = (void *)(uintptr_t)from, .run = n, .pitch = n, .type = type},
        .n = n,
        .first = 1,
    };
    return rt_cuda_run(cuda, "accumulate", rt_cuda_grid(n, 256 * 8, cuda->multiprocessors * 16),
                       256, 0, &x);
}

/* Lent words: a piece from `first` to twice that is rounded to before where it was, over sums that
 * have been rounded; what the first piece would be rounded over waits in the logits' place. */
static Status round_lent(RtCuda *cuda, const Head *l)
{
    const float *sums = l->dw;
    uint16_t *dw = l->dw;
    int64_t lent = l->plan.lent, words = l->x.vocab, width = l->width;
    int64_t most = (int64_t)l->plan.logits_bytes / (2 * width);
    int64_t waiting = plan_min(plan_ceil_div(lent, 8), most);
    TRY(copy_rows(cuda, l, l->x.logits, sums, CUDA_F32, waiting));
    for (int64_t first = waiting; first < lent; first *= 2)
        TRY(copy_rows(cuda, l, dw + first * width, sums + first * width, CUDA_F32,
                      plan_min(first, lent - first)));
    TRY(copy_rows(cuda, l, dw + lent * width, l->sums, CUDA_F32, words - lent));
    return copy_rows(cuda, l, dw, l->x.logits, CUDA_BF16, waiting);
}

static Status round_dw(RtCuda *cuda, const RtCall *call, const Head *l)
{
    if (l->sums == l->dw)
        return STATUS_OK;
    return l->plan.lent ? round_lent(cuda, l)
                        : rt_cuda_round_sums(cuda, call, PLAN_T_lm_loss_with_grad_dw, l->sums);
}

Status rt_cuda_launch_lm_loss_with_grad(RtCuda *cuda, const RtCall *call)
{
    Head l = open_head(cuda, call);
    if (!rt_cuda_is_matrix(call, PLAN_T_lm_loss_with_grad_h, l.width) ||
        !rt_cuda_is_matrix(call, PLAN_T_lm_loss_with_grad_w, l.width) ||
        !rt_cuda_is_matrix(call, PLAN_T_lm_loss_with_grad_dh, l.width) ||
        !rt_cuda_is_matrix(call, PLAN_T_lm_loss_with_grad_dw, l.width))
        return rt_cuda_refuse(cuda, call,
                              "h, w and their gradients must be evenly spaced rows of bf16 or f32");
    for (l.x.token = 0; l.x.token < l.tokens; l.x.token += l.plan.rows) {
        l.x.rows = plan_min(l.plan.rows, l.tokens - l.x.token);
        TRY(run_logits(cuda, call, &l));
        TRY(rt_cuda_head_rows(cuda, &l.x));
        TRY(run_all_dw(cuda, call, &l));
        if (call->at[PLAN_T_lm_loss_with_grad_dh])
            TRY(run_dh(cuda, call, &l));
    }
    TRY(round_dw(cuda, call, &l));
    CudaLmLoss sum = {.token_loss = l.x.token_loss,
                      .loss = rt_cuda_view(call, PLAN_T_lm_loss_with_grad_loss),
                      .tokens = l.tokens};
    return rt_cuda_run(cuda, "lm_loss_sum", 1, 1024, 0, &sum);
}
