#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/device/harness.h"

typedef struct EmbedCase {
    int64_t tokens, width, rows, padding;
    DType dtype;
    bool view, bad_id, one_id;
} EmbedCase;

static Tensor matrix(const EmbedCase *c, int64_t rows)
{
    return tensor_new(c->dtype, rows * c->width, c->view ? c->width : rows * c->width,
                      c->view ? c->width + 8 : rows * c->width);
}

static void set_params(const EmbedCase *c, PlanParam *p)
{
    p[PLAN_embed_grad_tokens].i = c->tokens;
    p[PLAN_embed_grad_width].i = c->width;
    p[PLAN_embed_grad_rows].i = c->rows;
    p[PLAN_embed_grad_padding].i = c->padding;
}

static Tensor ids_of(const EmbedCase *c)
{
    Tensor ids = tensor_dense(DTYPE_I32, c->tokens);
    for (int64_t t = 0; t < c->tokens; t++) /* some often, some never */
        tensor_put(&ids, t,
                   c->one_id           ? 5
                   : next_random() % 3 ? next_random() % (uint32_t)c->rows
                                       : next_random() % 4);
    return ids;
}

static void say(const EmbedCase *c, const char *what, bool passed, double error, double seconds,
                double work)
{
    char name[200];
    snprintf(name, sizeof name, "%s %lldx%lld of %lld %s%s%s", what, (long long)c->tokens,
             (long long)c->width, (long long)c->rows, dtype_name(c->dtype), c->view ? " view" : "",
             c->one_id ? " one id" : "");
    report(name, passed, error, seconds, work);
}

static void check_forward(const EmbedCase *c)
{
    Tensor t[PLAN_T_embed_TENSORS] = {matrix(c, c->tokens), matrix(c, c->rows), ids_of(c)};
    tensor_normal(&t[PLAN_T_embed_table], 1);
    if (c->bad_id)
        tensor_put(&t[PLAN_T_embed_ids], 2, -1);
    Call call = {.tensor = t,
                 .n_tensors = PLAN_T_embed_TENSORS,
                 .kernel = PLAN_KERNEL_embed,
                 .launch = rt_cuda_launch_embed};
    set_params(c, call.param);
    call_open(&call);
    bool right = call_run(&call);
    call_close(&call);
    for (int64_t i = 0; i < c->tokens * c->width && right; i++) {
        int64_t id = (int64_t)tensor_get(&t[PLAN_T_embed_ids], i / c->width);
        double want = id < 0 ? 0 : tensor_get(&t[PLAN_T_embed_table], id * c->width + i % c->width);
        right = tensor_get(&t[PLAN_T_embed_y], i) == want;
    }
    int64_t fault[RT_CUDA_FAULT_WORDS];
    device_read(fault, test_cuda.fault_device, sizeof fault);
    right = right && fault[0] == (c->bad_id ? RT_CUDA_FAULT_ID : RT_CUDA_FAULT_NONE);
    if (c->bad_id)
        right = right && fault[1] == 2 && fault[2] == -1 && fault[3] == c->rows && fault[4] == 42;
    say(c, "embed", right && tensor_guarded(&t[PLAN_T_embed_y]), 0, 0, 0);
    call_release(&call);
}

/* Bit for bit: a row's tokens are added in their order, in f32. */
static void check_backward(const EmbedCase *c)
{
    Tensor t[PLAN_T_embed_grad_TENSORS] = {matrix(c, c->rows), ids_of(c), matrix(c, c->tokens)};
    tensor_normal(&t[PLAN_T_embed_grad_dy], 1);
    Call call = {.tensor = t,
                 .n_tensors = PLAN_T_embed_grad_TENSORS,
                 .kernel = PLAN_KERNEL_embed_grad,
                 .launch = rt_cuda_launch_embed_grad};
    set_params(c, call.param);
    call_open(&call);
    bool right = call_run(&call);
    call_close(&call);
    float *want = calloc((size_t)(c->rows * c->width), 4);
    bool *begun = calloc((size_t)c->rows, 1);
    for (int64_t i = 0; i < c->tokens; i++) {
        int64_t id = (int64_t)tensor_get(&t[PLAN_T_embed_grad_ids], i);
        for (int64_t j = 0; j < c->width && id != c->padding; j++) {
            float *sum = &want[id * c->width + j],
                  x = (float)tensor_get(&t[PLAN_T_embed_grad_dy], i * c->width + j);
            *sum = begun[id] ? *sum + x : x;
        }
        begun[id] = true;
    }
    for (int64_t i = 0; i < c->rows * c->width && right; i++) {
        double x = want[i];
        if (c->dtype == DTYPE_BF16)
            x = bf16_to_f32(f32_to_bf16((float)x));
        right = tensor_get(&t[PLAN_T_embed_grad_dtable], i) == x;
    }
    double seconds = c->tokens > 4000 ? device_seconds(call_again, &call) : 0;
    say(c, "embed_grad", right && tensor_guarded(&t[PLAN_T_embed_grad_dtable]), 0, seconds,
        -(double)((c->rows + c->tokens) * c->width * dtype_bytes(c->dtype)));
    free(want);
    free(begun);
    call_release(&call);
}

void check_embed(void)
{
    if (!test_wanted("embed"))
        return;
    random_seed(13);
    static const EmbedCase cases[] = {
        {.tokens = 1, .width = 8, .rows = 7, .padding = -1, .dtype = DTYPE_BF16, .one_id = true},
        {.tokens = 301, .width = 515, .rows = 37, .padding = 3, .dtype = DTYPE_F32},
        {.tokens = 301, .width = 512, .rows = 300, .padding = 3, .dtype = DTYPE_BF16, .view = true},
        {.tokens = 77, .width = 24, .rows = 70000, .padding = -1, .dtype = DTYPE_BF16},
        {.tokens = 2500, .width = 8, .rows = 40, .padding = 0, .dtype = DTYPE_F32, .view = true},
        {.tokens = 1100,
         .width = 40,
         .rows = 40,
         .padding = -1,
         .dtype = DTYPE_BF16,
         .one_id = true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases && !test_bench; i++) {
        check_forward(&cases[i]);
        check_backward(&cases[i]);
    }
    if (test_bench) {
        check_backward(&(EmbedCase){
            .tokens = 16384, .width = 2048, .rows = 128256, .padding = -1, .dtype = DTYPE_BF16});
        check_backward(&(EmbedCase){
            .tokens = 65536, .width = 768, .rows = 50304, .padding = -1, .dtype = DTYPE_BF16});
        return;
    }
    EmbedCase bad = cases[1];
    bad.bad_id = true;
    check_forward(&bad);
}
