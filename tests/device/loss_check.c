#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/device/harness.h"

typedef struct LossCase {
    int64_t tokens, width, vocab;
    double softcap;
    bool is_f32, view, bad_target;
} LossCase;

static Tensor matrix(const LossCase *c, int64_t rows)
{
    return tensor_new(c->is_f32 ? DTYPE_F32 : DTYPE_BF16, rows * c->width,
                      c->view ? c->width : rows * c->width,
                      c->view ? c->width + 8 : rows * c->width);
}

/* Loss, lse, dh, dw in f64; dlogits are rounded to the storage type, as the products read them. */
static void formula(const LossCase *c, const Tensor *h, const Tensor *w, const Tensor *targets,
                    double seed, double *out_loss, double *lse, double *dh, double *dw)
{
    double *logit = malloc((size_t)c->vocab * 8), *slope = malloc((size_t)c->vocab * 8);
    *out_loss = 0;
    memset(dw, 0, (size_t)(c->vocab * c->width) * 8);
    memset(dh, 0, (size_t)(c->tokens * c->width) * 8);
    for (int64_t t = 0; t < c->tokens; t++) {
        double most = -INFINITY, sum = 0;
        for (int64_t v = 0; v < c->vocab; v++) {
            double s = 0;
            for (int64_t i = 0; i < c->width; i++)
                s += tensor_get(h, t * c->width + i) * tensor_get(w, v * c->width + i);
            slope[v] = 1;
            if (c->softcap > 0) {
                double a = tanh(s / c->softcap);
                s = c->softcap * a;
                slope[v] = 1 - a * a;
            }
            logit[v] = s;
            most = s > most ? s : most;
        }
        for (int64_t v = 0; v < c->vocab; v++)
            sum += exp(logit[v] - most);
        lse[t] = most + log(sum);
        int64_t target = (int64_t)tensor_get(targets, t);
        if (target < 0 || target >= c->vocab)
            continue;
        *out_loss += lse[t] - logit[target];
        for (int64_t v = 0; v < c->vocab; v++) {
            double g = (exp(logit[v] - lse[t]) - (v == target)) * slope[v] * seed;
            if (!c->is_f32)
                g = bf16_to_f32(f32_to_bf16((float)g));
            for (int64_t i = 0; i < c->width; i++) {
                dh[t * c->width + i] += g * tensor_get(w, v * c->width + i);
                dw[v * c->width + i] += g * tensor_get(h, t * c->width + i);
            }
        }
    }
    free(logit);
    free(slope);
}

static void compare(const LossCase *c, const char *what, const Tensor *t, const double *want,
                    double limit)
{
    char name[200];
    Error e = {0};
    for (int64_t i = 0; i < t->view.numel; i++)
        error_add(&e, tensor_get(t, i), want[i]);
    snprintf(name, sizeof name, "lm_loss %s %lldx%lldx%lld %s%s%s", what, (long long)c->tokens,
             (long long)c->width, (long long)c->vocab, c->is_f32 ? "f32" : "bf16",
             c->softcap > 0 ? " softcap" : "", c->view ? " view" : "");
    report(name, error_relative(&e) < limit && tensor_guarded(t), error_relative(&e), 0, 0);
}

static void check_fault(const LossCase *c)
{
    int64_t fault[RT_CUDA_FAULT_WORDS];
    device_read(fault, test_cuda.fault_device, sizeof fault);
    bool right = !c->bad_target
                     ? fault[0] == RT_CUDA_FAULT_NONE
                     : fault[0] == RT_CUDA_FAULT_TARGET && fault[1] == 3 &&
                           fault[2] == c->vocab + 1 && fault[3] == c->vocab && fault[4] == 42;
    report(c->bad_target ? "lm_loss fault: a target outside the vocabulary" : "lm_loss no fault",
           right, 0, 0, 0);
}

enum { IGNORE = -100 };

/* Loss and gradients by one kernel, whose logits in bf16 are rounded to eight bits. */
static void check_with_grad(const LossCase *c, const Call *forward, double seed, double loss,
                            const double *dh, const double *dw)
{
    const Tensor *t = forward->tensor;
    Tensor g[PLAN_T_lm_loss_with_grad_TENSORS] = {tensor_dense(DTYPE_F32, 1),
                                                  matrix(c, c->tokens),
                                                  matrix(c, c->vocab),
                                                  tensor_dense(DTYPE_F32, 1),
                                                  t[PLAN_T_lm_loss_h],
                                                  t[PLAN_T_lm_loss_w],
                                                  t[PLAN_T_lm_loss_targets]};
    tensor_put(&g[PLAN_T_lm_loss_with_grad_seed], 0, seed);
    Call both = {.tensor = g,
                 .n_tensors = PLAN_T_lm_loss_with_grad_TENSORS,
                 .kernel = PLAN_KERNEL_lm_loss_with_grad,
                 .launch = rt_cuda_launch_lm_loss_with_grad};
    memcpy(both.param, forward->param, sizeof both.param);
    call_open(&both);
    bool done = call_run(&both);
    call_close(&both);
    compare(c, done ? "with_grad loss" : "with_grad refused", &g[PLAN_T_lm_loss_with_grad_loss],
            &loss, c->is_f32 ? 2e-6 : 4e-3);
    check_fault(c);
    if (!c->bad_target) {
        compare(c, "with_grad dh", &g[PLAN_T_lm_loss_with_grad_dh], dh, c->is_f32 ? 2e-6 : 1e-2);
        compare(c, "with_grad dw", &g[PLAN_T_lm_loss_with_grad_dw], dw, c->is_f32 ? 2e-6 : 1e-2);
    }
    g[PLAN_T_lm_loss_with_grad_h] = g[PLAN_T_lm_loss_with_grad_w] =
        g[PLAN_T_lm_loss_with_grad_targets] = tensor_absent();
    call_release(&both);
}

static void check_case(const LossCase *c)
{
    double seed = 0.0123;
    Tensor h = matrix(c, c->tokens), w = matrix(c, c->vocab),
           targets = tensor_dense(DTYPE_I32, c->tokens);
    tensor_normal(&h, 1);
    tensor_normal(&w, 2 / sqrt((double)c->width));
    for (int64_t t = 0; t < c->tokens; t++)
        tensor_put(&targets, t, t % 5 == 2 ? IGNORE : (double)(next_random() % (uint32_t)c->vocab));
    if (c->bad_target)
        tensor_put(&targets, 3, (double)(c->vocab + 1));
    double loss, *lse = malloc((size_t)c->tokens * 8),
                 *dh = malloc((size_t)(c->tokens * c->width) * 8);
    double *dw = malloc((size_t)(c->vocab * c->width) * 8);
    formula(c, &h, &w, &targets, seed, &loss, lse, dh, dw);

    Tensor t[PLAN_T_lm_loss_TENSORS] = {tensor_dense(DTYPE_F32, 1),
                                        tensor_dense(DTYPE_F32, c->tokens), h, w, targets};
    Call forward = {.tensor = t,
                    .n_tensors = PLAN_T_lm_loss_TENSORS,
                    .kernel = PLAN_KERNEL_lm_loss,
                    .launch = rt_cuda_launch_lm_loss};
    forward.param[PLAN_lm_loss_tokens].i = c->tokens;
    forward.param[PLAN_lm_loss_width].i = c->width;
    forward.param[PLAN_lm_loss_vocab].i = c->vocab;
    forward.param[PLAN_lm_loss_softcap].f = c->softcap;
    forward.param[PLAN_lm_loss_ignore].i = IGNORE;
    call_open(&forward);
    bool done = call_run(&forward);
    call_close(&forward);
    compare(c, "lse", &t[PLAN_T_lm_loss_lse], lse, 1e-6);
    compare(c, done ? "loss" : "refused", &t[PLAN_T_lm_loss_loss], &loss, 2e-6);
    check_fault(c);

    Tensor scale = tensor_dense(DTYPE_F32, 1);
    tensor_put(&scale, 0, seed);
    Tensor g[PLAN_T_lm_loss_grad_TENSORS] = {
        matrix(c, c->tokens), matrix(c, c->vocab), scale, h, w, targets, t[PLAN_T_lm_loss_lse]};
    Call backward = {.tensor = g,
                     .n_tensors = PLAN_T_lm_loss_grad_TENSORS,
                     .kernel = PLAN_KERNEL_lm_loss_grad,
                     .launch = rt_cuda_launch_lm_loss_grad};
    memcpy(backward.param, forward.param, sizeof forward.param);
    if (!c->bad_target) {
        call_open(&backward);
        done = call_run(&backward);
        call_close(&backward);
        compare(c, "dh", &g[PLAN_T_lm_loss_grad_dh], dh, c->is_f32 ? 2e-6 : 4e-3);
        compare(c, "dw", &g[PLAN_T_lm_loss_grad_dw], dw, c->is_f32 ? 2e-6 : 4e-3);
        g[PLAN_T_lm_loss_grad_h] = g[PLAN_T_lm_loss_grad_w] = g[PLAN_T_lm_loss_grad_targets] =
            g[PLAN_T_lm_loss_grad_lse] = tensor_absent();
        call_release(&backward);
    }
    check_with_grad(c, &forward, seed, loss, dh, dw);
    call_release(&forward);
    free(lse);
    free(dh);
    free(dw);
}

/* The rows' passes alone at a large shape: bytes of logits read and written. */
typedef struct RowsTime {
    CudaLmLoss forward;
    CudaLmLossGrad backward;
} RowsTime;

static void run_rows(void *context)
{
    RowsTime *x = context;
    rt_cuda_run(&test_cuda, "lm_loss_rows", (uint32_t)x->forward.tokens, 256, 0, &x->forward);
}

static void run_grad_rows(void *context)
{
    RowsTime *x = context;
    rt_cuda_run(&test_cuda, "lm_loss_grad_rows", (uint32_t)x->backward.tokens, 256, 0,
                &x->backward);
}

static void time_rows(int64_t tokens, int64_t count, double softcap)
{
    float *logits = device_alloc((size_t)(tokens * count) * 4);
    unsigned char *rows = device_alloc((size_t)tokens * 4 * 8);
    device_fill(logits, 0x3e, (size_t)(tokens * count) * 4);
    device_fill(rows, 0, (size_t)tokens * 4 * 8);
    RowsTime x = {.forward = {.logits = logits,
                              .targets = (const int32_t *)rows,
                              .tokens = tokens,
                              .vocab = count,
                              .count = count,
                              .ld = count,
                              .ignore = -1,
                              .softcap = (float)softcap,
                              .first = 1,
                              .last = 1}};
    x.forward.most = (float *)(rows + tokens * 4);
    x.forward.sum = (float *)(rows + tokens * 8);
    x.forward.logit = (float *)(rows + tokens * 12);
    x.forward.token_loss = (float *)(rows + tokens * 16);
    x.forward.fault.at = test_cuda.fault_device;
    CudaView lse = {.at = rows + tokens * 20, .run = 1, .pitch = 1, .type = CUDA_F32};
    x.backward = (CudaLmLossGrad){.logits = logits,
                                  .lse = lse,
                                  .seed = lse,
                                  .targets = (const int32_t *)rows,
                                  .tokens = tokens,
                                  .count = count,
                                  .words = count,
                                  .ld = count,
                                  .ignore = -1,
                                  .softcap = (float)softcap,
                                  .type = CUDA_BF16};
    char name[128];
    snprintf(name, sizeof name, "lm_loss rows %lldx%lld%s", (long long)tokens, (long long)count,
             softcap > 0 ? " softcap" : "");
    report(name, true, 0, device_seconds(run_rows, &x), -(double)(tokens * count) * 4);
    snprintf(name, sizeof name, "lm_loss_grad rows %lldx%lld%s", (long long)tokens,
             (long long)count, softcap > 0 ? " softcap" : "");
    report(name, true, 0, device_seconds(run_grad_rows, &x), -(double)(tokens * count) * 6);
    device_free(logits);
    device_free(rows);
}

static void run_head_rows(void *context)
{
    rt_cuda_head_rows(&test_cuda, context);
}

/* Loss and gradients: bytes of bf16 logits read once and written. */
static void time_head_rows(int64_t tokens, int64_t vocab, double softcap)
{
    size_t bytes = (size_t)(tokens * vocab) * 2;
    unsigned char *logits = device_alloc(bytes), *rows = device_alloc((size_t)tokens * 8 + 16);
    device_fill(logits, 0x3e, bytes);
    device_fill(rows, 0, (size_t)tokens * 8 + 16);
    CudaView seed = {.at = rows + tokens * 8, .run = 1, .pitch = 1, .type = CUDA_F32};
    CudaLmLossWithGrad x = {.logits = logits,
                            .token_loss = (float *)(rows + tokens * 4),
                            .seed = seed,
                            .targets = (const int32_t *)rows,
                            .fault = {.at = test_cuda.fault_device},
                            .rows = tokens,
                            .vocab = vocab,
                            .ld = vocab,
                            .ignore = -1,
                            .softcap = (float)softcap,
                            .type = CUDA_BF16};
    char name[128];
    snprintf(name, sizeof name, "lm_loss_with_grad rows %lldx%lld%s", (long long)tokens,
             (long long)vocab, softcap > 0 ? " softcap" : "");
    report(name, true, 0, device_seconds(run_head_rows, &x), -(double)bytes * 2);
    device_free(logits);
    device_free(rows);
}

void check_loss(void)
{
    if (!test_wanted("loss"))
        return;
    random_seed(12);
    static const LossCase cases[] = {
        {.tokens = 7, .width = 24, .vocab = 50},
        {.tokens = 33, .width = 40, .vocab = 301, .is_f32 = true},
        {.tokens = 33, .width = 40, .vocab = 3001, .softcap = 2.5},
        {.tokens = 20, .width = 16, .vocab = 5003, .softcap = 2.5, .is_f32 = true, .view = true},
        {.tokens = 9, .width = 16, .vocab = 777, .view = true},
        {.tokens = 9, .width = 16, .vocab = 100, .bad_target = true},
        {.tokens = 30, .width = 48, .vocab = 1203},
        {.tokens = 19, .width = 1024, .vocab = 261},
        {.tokens = 11, .width = 8, .vocab = 50304},
        {.tokens = 8, .width = 8, .vocab = 131075},
        {.tokens = 4, .width = 8, .vocab = 131075, .softcap = 2.5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases && !test_bench; i++)
        check_case(&cases[i]);
    if (test_bench) {
        time_rows(16384, 4096, 0);
        time_rows(2048, 32768, 30);
        time_rows(65536, 1024, 0);
        time_head_rows(4096, 128256, 0);
        time_head_rows(13312, 50304, 0);
        time_head_rows(1024, 262144, 30);
    }
}
