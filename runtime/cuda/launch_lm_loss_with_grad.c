#include "runtime/cuda/launch_view.h"

/* The tokens are cut into chunks. For each: its logits by one product; a pass over their rows that
 * leaves the losses, and gradients in the logits' place; dh's rows, whole, and one more product
 * summed into dw. */
typedef struct Head {
    CudaLmLossWithGrad x;
    int64_t tokens, width, rows;
    DType type; /* of logits and gradients */
    void *dw;   /* what is summed */
    DType dw_type;
    int64_t dw_pitch;
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
    unsigned char *behind =
        (unsigned char *)call->workspace + plan_cuda_head_logits_bytes(p, t);
    Head l = {
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
        .dw_type = (DType)t[PLAN_T_lm_loss_with_grad_dw].dtype,
    };
    l.x.ld = plan_round_up(l.x.vocab, 8);
    l.rows = plan_cuda_head_rows(l.tokens, l.x.vocab, dtype);
    l.dw_pitch = plan_row_pitch(&t[PLAN_T_lm_loss_with_grad_dw], l.width);
    if (plan_cuda_lm_loss_with_grad_sums(p, t)) {
        l.dw = behind + plan_cuda_align(4 * (uint64_t)l.tokens);
        l.dw_type = DTYPE_F32;
        l.dw_pitch = l.width;
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

static Status run_dw(RtCuda *cuda, const RtCall *call, const Head *l)
{
    const PlanTensor *t = call->tensor;
    RtGemm product = {
        .m = l->x.vocab,
        .n = l->width,
        .k = l->x.rows,
        .ta = true,
        .a = l->x.logits,
        .b = rt_cuda_row(call, PLAN_T_lm_loss_with_grad_h, l->width, l->x.token),
        .c = l->dw,
        .lda = l->x.ld,
        .ldb = plan_row_pitch(&t[PLAN_T_lm_loss_with_grad_h], l->width),
        .ldc = l->dw_pitch,
        .a_type = l->type,
        .b_type = (DType)t[PLAN_T_lm_loss_with_grad_h].dtype,
        .c_type = l->dw_type,
        .alpha = 1,
        .beta = l->x.token ? 1 : 0,
    };
    return rt_cuda_gemm(cuda, &product);
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
    for (l.x.token = 0; l.x.token < l.tokens; l.x.token += l.rows) {
        l.x.rows = plan_min(l.rows, l.tokens - l.x.token);
        TRY(run_logits(cuda, call, &l));
        TRY(rt_cuda_head_rows(cuda, &l.x));
        if (l.dw)
            TRY(run_dw(cuda, call, &l));
        if (call->at[PLAN_T_lm_loss_with_grad_dh])
            TRY(run_dh(cuda, call, &l));
    }
    if (l.dw != call->at[PLAN_T_lm_loss_with_grad_dw])
        TRY(rt_cuda_round_sums(cuda, call, PLAN_T_lm_loss_with_grad_dw, l.dw));
    CudaLmLoss sum = {.token_loss = l.x.token_loss,
                      .loss = rt_cuda_view(call, PLAN_T_lm_loss_with_grad_loss),
                      .tokens = l.tokens};
    return rt_cuda_run(cuda, "lm_loss_sum", 1, 1024, 0, &sum);
}
