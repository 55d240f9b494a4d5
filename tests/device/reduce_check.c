#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/device/harness.h"

/* -- norm_sq: bit for bit the definition in reduce.cu and of the CPU's kernel -- */

static float block_sum(const Tensor *t, int64_t first, int64_t n)
{
    float lane[32] = {0};
    for (int64_t i = 0; i < n; i++) {
        float x = (float)tensor_get(t, first + i);
        lane[i % 32] = fmaf(x, x, lane[i % 32]);
    }
    for (int width = 16; width; width /= 2)
        for (int i = 0; i < width; i++)
            lane[i] += lane[i + width];
    return lane[0];
}

static double norm_sq(const Tensor *t)
{
    int64_t n = plan_ceil_div(t->view.numel, NORM_SQ_BLOCK);
    double *sum = malloc((size_t)(n + 1) * 8);
    for (int64_t b = 0; b < n; b++)
        sum[b] = block_sum(t, b * NORM_SQ_BLOCK,
                           plan_min(NORM_SQ_BLOCK, t->view.numel - b * NORM_SQ_BLOCK));
    for (; n > 1; n = (n + 1) / 2)
        for (int64_t i = 0; i < n; i += 2)
            sum[i / 2] = i + 1 < n ? sum[i] + sum[i + 1] : sum[i];
    double result = sum[0];
    free(sum);
    return result;
}

static void check_norm(int64_t n, DType dtype, bool view)
{
    Tensor t[] = {tensor_dense(DTYPE_F64, 1), tensor_new(dtype, n, view ? 40 : n, view ? 48 : n)};
    tensor_normal(&t[1], 1);
    Call call = {.tensor = t,
                 .n_tensors = 2,
                 .kernel = PLAN_KERNEL_norm_sq,
                 .launch = rt_cuda_launch_norm_sq};
    call.param[PLAN_norm_sq_n].i = n;
    call_open(&call);
    bool right = call_run(&call);
    call_close(&call);
    double have = tensor_get(&t[0], 0), want = norm_sq(&t[1]);
    double seconds = n > 1000000 ? device_seconds(call_again, &call) : 0;
    char name[100];
    snprintf(name, sizeof name, "norm_sq %lld %s%s", (long long)n, dtype_name(dtype),
             view ? " view" : "");
    report(name, right && have == want, fabs(have - want) / want, seconds,
           -(double)n * dtype_bytes(dtype));
    call_release(&call);
}

static void check_norm_group(void)
{
    enum { N = 5 };
    static const int64_t sizes[N] = {7, 131072, 4096 * 40 + 3, 64, 300000};
    Tensor t[N][2];
    Call *calls[N];
    RtCall list[N];
    for (int i = 0; i < N; i++) {
        t[i][0] = tensor_dense(DTYPE_F64, 1);
        t[i][1] = tensor_dense(i % 2 ? DTYPE_F32 : DTYPE_BF16, sizes[i]);
        tensor_normal(&t[i][1], 1);
        calls[i] = calloc(1, sizeof *calls[i]);
        *calls[i] = (Call){.tensor = t[i],
                           .n_tensors = 2,
                           .kernel = PLAN_KERNEL_norm_sq,
                           .launch = rt_cuda_launch_norm_sq};
        calls[i]->param[PLAN_norm_sq_n].i = sizes[i];
        call_open(calls[i]);
        list[i] = calls[i]->call;
    }
    uint64_t bytes = rt_cuda_group_norm_sq.table_bytes(list, N);
    unsigned char *host = calloc(1, bytes), *table = device_alloc(bytes);
    rt_cuda_group_norm_sq.table_fill(list, N, host, table);
    device_write(table, host, bytes);
    bool right = rt_cuda_group_norm_sq.launch(&test_cuda, list, N, table) == STATUS_OK;
    device_wait();
    for (int i = 0; i < N; i++) {
        call_close(calls[i]);
        right = right && tensor_get(&t[i][0], 0) == norm_sq(&t[i][1]);
        call_release(calls[i]);
        free(calls[i]);
    }
    report("norm_sq of five tensors in one launch", right, 0, 0, 0);
    free(host);
    device_free(table);
}

/* -- scalars -- */

static void check_grad_norm(int n, double max_norm, double part, double want_coef)
{
    static Tensor t[MAX_TENSORS];
    t[0] = tensor_dense(DTYPE_F64, 1);
    t[1] = tensor_dense(DTYPE_F32, 1);
    double sum = 0;
    for (int i = 0; i < n; i++) {
        t[2 + i] = tensor_dense(DTYPE_F64, 1);
        double x = isfinite(part) ? part * (1 + i % 7 * 0.1) : i == n / 2 ? part : 1;
        tensor_put(&t[2 + i], 0, x);
        sum += x;
    }
    static Call call;
    call = (Call){.tensor = t,
                  .n_tensors = n + 2,
                  .kernel = PLAN_KERNEL_grad_norm,
                  .launch = rt_cuda_launch_grad_norm};
    call.param[PLAN_grad_norm_n].i = n;
    call.param[PLAN_grad_norm_max_norm].f = max_norm;
    call_open(&call);
    bool right = call_run(&call);
    call_close(&call);
    double norm = sqrt(sum), coef = want_coef >= 0 ? want_coef : fmin(1, max_norm / (norm + 1e-6));
    double have = tensor_get(&t[0], 0);
    right = right && (have == norm || (isnan(norm) && isnan(have))) &&
            tensor_get(&t[1], 0) == (float)coef;
    char name[100];
    snprintf(name, sizeof name, "grad_norm of %d parts, max %g, part %g", n, max_norm, part);
    report(name, right, 0, 0, 0);
    call_release(&call);
}

static void check_scalars(void)
{
    for (int first = 0; first < 2; first++) {
        int64_t n = 3001, valid = first ? 0 : 5;
        Tensor t[] = {tensor_dense(DTYPE_I32, n), tensor_dense(DTYPE_I64, 1),
                      tensor_dense(DTYPE_F32, 1)};
        for (int64_t i = 0; i < n; i++) {
            tensor_put(&t[0], i, next_random() % 3 ? 7 : -100);
            valid += tensor_get(&t[0], i) == 7;
        }
        tensor_put(&t[1], 0, 5);
        Call call = {.tensor = t,
                     .n_tensors = 3,
                     .kernel = PLAN_KERNEL_count_targets,
                     .launch = rt_cuda_launch_count_targets};
        call.param[PLAN_count_targets_n].i = n;
        call.param[PLAN_count_targets_ignore].i = -100;
        call.param[PLAN_count_targets_first].i = first;
        call_open(&call);
        bool right = call_run(&call);
        call_close(&call);
        right = right && tensor_get(&t[1], 0) == (double)valid &&
                tensor_get(&t[2], 0) == (float)(1 / (double)valid);
        report("count_targets", right, 0, 0, 0);
        call_release(&call);
    }
    Tensor t[] = {tensor_dense(DTYPE_F64, 1), tensor_dense(DTYPE_F32, 1),
                  tensor_dense(DTYPE_F32, 1)};
    tensor_put(&t[1], 0, 12.5);
    tensor_put(&t[2], 0, 0.25);
    Call call = {.tensor = t,
                 .n_tensors = 3,
                 .kernel = PLAN_KERNEL_loss_mean,
                 .launch = rt_cuda_launch_loss_mean};
    call_open(&call);
    bool right = call_run(&call);
    call_close(&call);
    report("loss_mean", right && tensor_get(&t[0], 0) == 3.125, 0, 0, 0);
    call_release(&call);
    for (int skip = 0; skip < 2; skip++) {
        Tensor a[] = {tensor_dense(DTYPE_I64, 1), tensor_dense(DTYPE_I64, 1),
                      tensor_dense(DTYPE_F32, 1)};
        tensor_put(&a[0], 0, 10);
        tensor_put(&a[1], 0, 3);
        tensor_put(&a[2], 0, skip ? 0 : 0.5);
        Call advance = {.tensor = a,
                        .n_tensors = 3,
                        .kernel = PLAN_KERNEL_advance,
                        .launch = rt_cuda_launch_advance};
        call_open(&advance);
        right = call_run(&advance);
        call_close(&advance);
        right = right && tensor_get(&a[0], 0) == (skip ? 10 : 11) &&
                tensor_get(&a[1], 0) == (skip ? 4 : 0);
        report("advance", right, 0, 0, 0);
        call_release(&advance);
    }
}

/* -- accumulate -- */

static void check_accumulate(int64_t n, DType state, DType dtype, bool first, bool view)
{
    Tensor t[] = {tensor_dense(state, n), tensor_new(dtype, n, view ? 24 : n, view ? 32 : n)};
    tensor_normal(&t[0], 1);
    tensor_normal(&t[1], 1);
    double *want = malloc((size_t)n * 8);
    for (int64_t i = 0; i < n; i++) {
        want[i] =
            (float)((first ? 0.0f : (float)tensor_get(&t[0], i)) + (float)tensor_get(&t[1], i));
        if (state == DTYPE_BF16)
            want[i] = bf16_to_f32(f32_to_bf16((float)want[i]));
    }
    Call call = {.tensor = t,
                 .n_tensors = 2,
                 .kernel = PLAN_KERNEL_accumulate,
                 .launch = rt_cuda_launch_accumulate};
    call.param[PLAN_accumulate_first].i = first;
    call_open(&call);
    bool right = call_run(&call);
    call_close(&call);
    for (int64_t i = 0; i < n; i++)
        right = right && tensor_get(&t[0], i) == want[i];
    char name[100];
    snprintf(name, sizeof name, "accumulate %lld %s %s%s%s", (long long)n, dtype_name(state),
             dtype_name(dtype), first ? " first" : "", view ? " view" : "");
    report(name, right, 0, 0, 0);
    free(want);
    call_release(&call);
}

void check_reduce(void)
{
    if (!test_wanted("reduce"))
        return;
    random_seed(15);
    if (test_bench) {
        check_norm(200000000, DTYPE_BF16, false);
        return;
    }
    static const int64_t sizes[] = {1, 31, 33, 4095, 4096, 4097, 131072, 4096 * 33 + 5, 700000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int d = 0; d < 2; d++)
            check_norm(sizes[i], d ? DTYPE_F32 : DTYPE_BF16, false);
    check_norm(40 * 300, DTYPE_BF16, true);
    check_norm(40 * 300, DTYPE_F32, true);
    check_norm_group();
    check_grad_norm(3, 1, 4, -1);
    check_grad_norm(590, 1, 4, -1);
    check_grad_norm(5, 0, 4, 1);
    check_grad_norm(5, 1e9, 4, -1);
    check_grad_norm(5, 1, INFINITY, 0);
    check_grad_norm(5, 1, NAN, 0);
    check_scalars();
    for (int i = 0; i < 8; i++)
        check_accumulate(i % 2 ? 1003 : 960, i & 1 ? DTYPE_F32 : DTYPE_BF16,
                         i & 2 ? DTYPE_F32 : DTYPE_BF16, i & 4, i % 3 == 2);
}
