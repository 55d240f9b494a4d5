#include <math.h>
#include <stdio.h>

#include "runtime/kernels/rope.h"
#include "tests/device/harness.h"

static void check_rope(int64_t tokens, int64_t dims, int64_t kind)
{
    int64_t half = dims / 2;
    Tensor t[PLAN_T_rope_table_TENSORS] = {tensor_dense(DTYPE_F32, tokens * half),
                                           tensor_dense(DTYPE_F32, tokens * half),
                                           tensor_dense(DTYPE_I32, tokens)};
    for (int64_t i = 0; i < tokens; i++)
        tensor_put(&t[PLAN_T_rope_table_positions], i, i % 3 ? i : next_random() % 131072);
    Call call = {.tensor = t,
                 .n_tensors = PLAN_T_rope_table_TENSORS,
                 .kernel = PLAN_KERNEL_rope_table,
                 .launch = rt_cuda_launch_rope_table};
    PlanParam *p = call.param;
    p[PLAN_rope_table_tokens].i = tokens;
    p[PLAN_rope_table_kind].i = kind;
    p[PLAN_rope_table_dims].i = dims;
    p[PLAN_rope_table_base].f = 500000;
    p[PLAN_rope_table_factor].f = 8;
    p[PLAN_rope_table_partial].f = 0.25;
    p[PLAN_rope_table_low].f = 1;
    p[PLAN_rope_table_high].f = 4;
    p[PLAN_rope_table_original].f = 8192;
    p[PLAN_rope_table_beta_fast].f = 32;
    p[PLAN_rope_table_beta_slow].f = 1;
    p[PLAN_rope_table_attention_factor].f = 1.1;
    call_open(&call);
    bool right = call_run(&call);
    call_close(&call);
    Error e = {0};
    for (int64_t i = 0; i < tokens * half; i++) {
        float angle = (float)tensor_get(&t[PLAN_T_rope_table_positions], i / half) *
                      (float)rope_frequency(p, i % half);
        error_add(&e, tensor_get(&t[PLAN_T_rope_table_cos], i), cos((double)angle) * (float)1.1);
        error_add(&e, tensor_get(&t[PLAN_T_rope_table_sin], i), sin((double)angle) * (float)1.1);
    }
    char name[100];
    snprintf(name, sizeof name, "rope_table %lldx%lld kind %lld", (long long)tokens,
             (long long)dims, (long long)kind);
    report(name, right && e.bad == 0 && e.most < 4e-7, error_relative(&e), 0, 0);
    call_release(&call);
}

static void check_concat(int64_t rows, int64_t n, int64_t width, DType dtype, bool view)
{
    Tensor t[32];
    t[0] = tensor_new(dtype, rows * n * width, view ? n * width : rows * n * width,
                      view ? n * width + 8 : rows * n * width);
    for (int64_t i = 0; i < n; i++) {
        t[1 + i] = i % 3 == 1 ? tensor_absent()
                              : tensor_new(dtype, rows * width, view ? width : rows * width,
                                           view ? width + 16 : rows * width);
        if (t[1 + i].memory)
            tensor_normal(&t[1 + i], 1);
    }
    Call call = {.tensor = t,
                 .n_tensors = (int)n + 1,
                 .kernel = PLAN_KERNEL_concat,
                 .launch = rt_cuda_launch_concat};
    call.param[PLAN_concat_rows].i = rows;
    call.param[PLAN_concat_width].i = n * width;
    call.param[PLAN_concat_n].i = n;
    call_open(&call);
    bool right = call_run(&call);
    call_close(&call);
    for (int64_t e = 0; e < rows * n * width && right; e++) {
        int64_t row = e / (n * width), part = e % (n * width) / width, column = e % width;
        double want = t[1 + part].memory ? tensor_get(&t[1 + part], row * width + column) : 0;
        right = tensor_get(&t[0], e) == want;
    }
    char name[100];
    snprintf(name, sizeof name, "concat %lld rows, %lld parts of %lld %s%s", (long long)rows,
             (long long)n, (long long)width, dtype_name(dtype), view ? " view" : "");
    report(name, right && tensor_guarded(&t[0]), 0, 0, 0);
    call_release(&call);
}

void check_tables(void)
{
    if (!test_wanted("tables") || test_bench)
        return;
    random_seed(14);
    for (int64_t kind = 0; kind < 4; kind++)
        check_rope(50, kind == 1 ? 512 : 64, kind);
    check_rope(3, 1200, 0);
    check_concat(13, 3, 64, DTYPE_BF16, false);
    check_concat(13, 3, 33, DTYPE_BF16, false);
    check_concat(13, 20, 16, DTYPE_F32, true);
    check_concat(5, 1, 7, DTYPE_F32, true);
}
