#include "runtime/cuda/launch_view.h"

/* The vocabulary is cut into chunks of columns. For each: the logits of all tokens by one product,
 * then a pass over their rows. Backward, that pass leaves gradients in the logits' place; they go
 * into dw's rows, whole, and are summed into dh. */

/* logits[tokens, count] = h w[word ..]^T, `ld` apart. */
static RtGemm logits_product(const RtCall *call, int h, int w, int64_t tokens, int64_t width,
                             int64_t word, int64_t count, int64_t ld)
{
    const PlanTensor *t = call->tensor;
    return (RtGemm){
        .m = tokens,
        .n = count,
        .k = width,
        .tb = true,
        .a = call->at[h],
        .b = rt_cuda_row(call, w, width, word),
        .c = call->workspace,
        .lda = plan_row_pitch(&t[h], width),
        .ldb = plan_row_pitch(&t[w], width),
        .ldc = ld,
        .a_type = (DType)t[h].dtype,
        .b_type = (DType)t[w].dtype,
        .c_type = DTYPE_F32,
        .alpha = 1,
    };
}

/* Of a rank that has a part of the words: the number of its first, and how many of its `vocab` rows
 * are words of the `total`. */
typedef struct Words {
    int64_t first, n;
} Words;

static Words words_of(const RtCall *call, int64_t vocab, int64_t total)
{
    int64_t first = (int64_t)call->member * vocab;
    return (Words){first, rt_cuda_between(total - first, 0, vocab)};
}

typedef struct Loss { /* which tensors these are */
    int h, w, targets;
} Loss;

static Status run_chunks(RtCuda *cuda, const RtCall *call, Loss loss, Words words, CudaLmLoss *x)
{
    const PlanParam *p = call->param;
    int64_t width = p[PLAN_lm_loss_width].i, vocab = p[PLAN_lm_loss_vocab].i;
    unsigned char *rows =
        (unsigned char *)call->workspace + plan_cuda_logits_bytes(x->tokens, vocab);
    uint64_t row_bytes = plan_cuda_align(4 * (uint64_t)x->tokens);
    if (!rt_cuda_is_matrix(call, loss.h, width) || !rt_cuda_is_matrix(call, loss.w, width))
        return rt_cuda_refuse(cuda, call, "h and w must be evenly spaced rows of bf16 or f32");
    x->logits = call->workspace;
    x->most = (float *)rows;
    x->sum = (float *)(rows + row_bytes);
    x->logit = (float *)(rows + 2 * row_bytes);
    x->token_loss = (float *)(rows + 3 * row_bytes);
    x->targets = call->at[loss.targets];
    x->fault = rt_cuda_fault(cuda, call);
    x->ld = plan_cuda_lm_columns(x->tokens, vocab);
    for (int64_t word = 0; word < vocab; word += x->ld) {
        int64_t columns = plan_min(x->ld, vocab - word);
        x->word = words.first + word;
        x->count = rt_cuda_between(words.n - word, 0, columns);
        x->first = word == 0;
        x->last = word + columns == vocab;
        RtGemm logits = logits_product(call, loss.h, loss.w, x->tokens, width, word, columns,
                                       x->ld);
        TRY(rt_cuda_gemm(cuda, &logits));
        TRY(rt_cuda_run(cuda, "lm_loss_rows", (uint32_t)x->tokens, 256, 0, x));
    }
    return STATUS_OK;
}

Status rt_cuda_launch_lm_loss(RtCuda *cuda, const RtCall *call)
{
    const PlanParam *p = call->param;
    static const Loss loss = {PLAN_T_lm_loss_h, PLAN_T_lm_loss_w, PLAN_T_lm_loss_targets};
    CudaLmLoss x = {
        .lse = rt_cuda_view(call, PLAN_T_lm_loss_lse),
        .loss = rt_cuda_view(call, PLAN_T_lm_loss_loss),
        .tokens = p[PLAN_lm_loss_tokens].i,
        .vocab = p[PLAN_lm_loss_vocab].i,
        .ignore = p[PLAN_lm_loss_ignore].i,
        .softcap = (float)p[PLAN_lm_loss_softcap].f,
    };
    TRY(run_chunks(cuda, call, loss, (Words){0, x.vocab}, &x));
    if (!x.loss.at)
        return STATUS_OK;
    return rt_cuda_run(cuda, "lm_loss_sum", 1, 1024, 0, &x);
}

Status rt_cuda_launch_lm_loss_part(RtCuda *cuda, const RtCall *call)
{
    const PlanParam *p = call->param;
    static const Loss loss = {PLAN_T_lm_loss_part_h, PLAN_T_lm_loss_part_w,
                              PLAN_T_lm_loss_part_targets};
    CudaLmLoss x = {
        .part = rt_cuda_view(call, PLAN_T_lm_loss_part_part),
        .tokens = p[PLAN_lm_loss_part_tokens].i,
        .vocab = p[PLAN_lm_loss_part_total].i,
        .ignore = p[PLAN_lm_loss_part_ignore].i,
        .softcap = (float)p[PLAN_lm_loss_part_softcap].f,
    };
    _Static_assert((int)PLAN_lm_loss_part_vocab == (int)PLAN_lm_loss_vocab &&
                       (int)PLAN_lm_loss_part_width == (int)PLAN_lm_loss_width,
                   "one form");
    return run_chunks(cuda, call, loss, words_of(call, p[PLAN_lm_loss_part_vocab].i, x.vocab), &x);
}

/* -- backward -- */

typedef struct LossGrad {
    CudaLmLossGrad x;
    int64_t width, vocab, columns, word; /* word: the chunk's first, among this rank's */
    Words words;
    DType dtype; /* of the logits' gradients */
    void *dh;    /* what is summed */
    DType dh_type;
    int64_t dh_pitch;
} LossGrad;

static Status run_dw(RtCuda *cuda, const RtCall *call, const LossGrad *l)
{
    const PlanTensor *t = call->tensor;
    RtGemm product = {
        .m = l->x.count,
        .n = l->width,
        .k = l->x.tokens,
        .ta = true,
        .a = l->x.logits,
        .b = call->at[PLAN_T_lm_loss_grad_h],
        .c = rt_cuda_row(call, PLAN_T_lm_loss_grad_dw, l->width, l->word),
        .lda = l->x.ld * 4 / dtype_bytes(l->dtype),
        .ldb = plan_row_pitch(&t[PLAN_T_lm_loss_grad_h], l->width),
        .ldc = plan_row_pitch(&t[PLAN_T_lm_loss_grad_dw], l->width),
        .a_type = l->dtype,
        .b_type = (DType)t[PLAN_T_lm_loss_grad_h].dtype,
        .c_type = (DType)t[PLAN_T_lm_loss_grad_dw].dtype,
        .alpha = 1,
    };
    return rt_cuda_gemm(cuda, &product);
}

static Status run_dh(RtCuda *cuda, const RtCall *call, const LossGrad *l)
{
    const PlanTensor *t = call->tensor;
    RtGemm product = {
        .m = l->x.tokens,
        .n = l->width,
        .k = l->x.count,
        .a = l->x.logits,
        .b = rt_cuda_row(call, PLAN_T_lm_loss_grad_w, l->width, l->word),
        .c = l->dh,
        .lda = l->x.ld * 4 / dtype_bytes(l->dtype),
        .ldb = plan_row_pitch(&t[PLAN_T_lm_loss_grad_w], l->width),
        .ldc = l->dh_pitch,
        .a_type = l->dtype,
        .b_type = (DType)t[PLAN_T_lm_loss_grad_w].dtype,
        .c_type = l->dh_type,
        .alpha = 1,
        .beta = l->word ? 1 : 0,
    };
    return rt_cuda_gemm(cuda, &product);
}

static LossGrad open_grad(const RtCall *call)
{
    const PlanParam *p = call->param;
    const PlanTensor *t = call->tensor;
    LossGrad l = {
        .x = {.logits = call->workspace,
              .lse = rt_cuda_view(call, PLAN_T_lm_loss_grad_lse),
              .seed = rt_cuda_view(call, PLAN_T_lm_loss_grad_seed),
              .targets = call->at[PLAN_T_lm_loss_grad_targets],
              .tokens = p[PLAN_lm_loss_grad_tokens].i,
              .ignore = p[PLAN_lm_loss_grad_ignore].i,
              .softcap = (float)p[PLAN_lm_loss_grad_softcap].f,
              .type = rt_cuda_type(t[PLAN_T_lm_loss_grad_h].dtype)},
        .width = p[PLAN_lm_loss_grad_width].i,
        .vocab = p[PLAN_lm_loss_grad_vocab].i,
        .dtype = (DType)t[PLAN_T_lm_loss_grad_h].dtype,
        .dh = call->at[PLAN_T_lm_loss_grad_dh],
        .dh_type = (DType)t[PLAN_T_lm_loss_grad_dh].dtype,
    };
    l.words = (Words){0, l.vocab};
    if (call->instr->kernel == PLAN_KERNEL_lm_loss_part_grad)
        l.words = words_of(call, l.vocab, p[PLAN_lm_loss_part_grad_total].i);
    l.columns = plan_cuda_lm_columns(l.x.tokens, l.vocab);
    l.x.ld = l.columns;
    l.dh_pitch = plan_row_pitch(&t[PLAN_T_lm_loss_grad_dh], l.width);
    if (plan_cuda_lm_loss_grad_sums(p, t)) {
        l.dh = (unsigned char *)call->workspace + plan_cuda_logits_bytes(l.x.tokens, l.vocab);
        l.dh_type = DTYPE_F32;
        l.dh_pitch = l.width;
    }
    return l;
}

Status rt_cuda_launch_lm_loss_grad(RtCuda *cuda, const RtCall *call)
{
    LossGrad l = open_grad(call);
    bool dh = call->at[PLAN_T_lm_loss_grad_dh], dw = call->at[PLAN_T_lm_loss_grad_dw];
    if (!rt_cuda_is_matrix(call, PLAN_T_lm_loss_grad_h, l.width) ||
        !rt_cuda_is_matrix(call, PLAN_T_lm_loss_grad_w, l.width) ||
        !rt_cuda_is_matrix(call, PLAN_T_lm_loss_grad_dh, l.width) ||
        !rt_cuda_is_matrix(call, PLAN_T_lm_loss_grad_dw, l.width))
        return rt_cuda_refuse(cuda, call,
                              "h, w and their gradients must be evenly spaced rows of bf16 or f32");
    for (int64_t word = 0; word < l.vocab; word += l.columns) {
        l.word = word;
        l.x.word = l.words.first + word;
        l.x.count = plan_min(l.columns, l.vocab - word);
        l.x.words = rt_cuda_between(l.words.n - word, 0, l.x.count);
        RtGemm logits = logits_product(call, PLAN_T_lm_loss_grad_h, PLAN_T_lm_loss_grad_w,
                                       l.x.tokens, l.width, word, l.x.count, l.columns);
        TRY(rt_cuda_gemm(cuda, &logits));
        TRY(rt_cuda_run(cuda, "lm_loss_grad_rows", (uint32_t)l.x.tokens, 256, 0, &l.x));
        if (dw)
            TRY(run_dw(cuda, call, &l));
        if (dh)
            TRY(run_dh(cuda, call, &l));
    }
    return dh && l.dh != call->at[PLAN_T_lm_loss_grad_dh]
               ? rt_cuda_round_sums(cuda, call, PLAN_T_lm_loss_grad_dh, l.dh)
               : STATUS_OK;
}

/* The first tensors and parameters are the whole op's. */
Status rt_cuda_launch_lm_loss_part_grad(RtCuda *cuda, const RtCall *call)
{
    return rt_cuda_launch_lm_loss_grad(cuda, call);
}
