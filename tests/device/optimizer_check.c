#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/device/harness.h"

typedef struct UpdateCase {
    int64_t n;
    DType w, g, m;
    bool master, nesterov, ends; /* ends: moments near the ends of the numbers too */
    double coef, momentum, decay;
} UpdateCase;

static double rounded(DType dtype, float x)
{
    return dtype == DTYPE_BF16 ? bf16_to_f32(f32_to_bf16(x)) : x;
}

static Tensor scalar(DType dtype, double value)
{
    Tensor t = tensor_dense(dtype, 1);
    tensor_put(&t, 0, value);
    return t;
}

static Tensor normal(DType dtype, int64_t n, double factor, bool positive)
{
    Tensor t = tensor_dense(dtype, n);
    tensor_normal(&t, factor);
    for (int64_t i = 0; i < n && positive; i++)
        tensor_put(&t, i, fabs(tensor_get(&t, i)));
    return t;
}

/* Of every 320 elements 64 are zero, 64 tiny, 64 of any size, and 64 of all kinds. */
static void to_ends(Tensor *t, bool positive)
{
    for (int64_t i = 0; i < t->view.numel; i++) {
        int64_t kind = i / 64 % 5;
        double x = tensor_get(t, i);
        if (kind == 4)
            kind = next_random() % 4;
        if (kind == 3)
            x = positive && i % 7 == 0 ? INFINITY : ldexp(x, (int)(next_random() % 120) - 60);
        tensor_put(t, i, kind == 1 ? copysign(0, x) : kind == 2 ? x * 1e-37 : x);
    }
}

enum { STEP = 12 };
static const double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, rate = 3e-4;

static Tensor *adamw_tensors(const UpdateCase *c)
{
    Tensor *t = calloc(PLAN_T_adamw_TENSORS, sizeof *t);
    t[PLAN_T_adamw_w] = normal(c->w, c->n, 1, false);
    t[PLAN_T_adamw_g] = normal(c->g, c->n, 0.1, false);
    t[PLAN_T_adamw_m] = normal(c->m, c->n, 0.1, false);
    t[PLAN_T_adamw_v] = normal(c->m, c->n, 0.01, true);
    if (c->ends) {
        to_ends(&t[PLAN_T_adamw_g], false);
        to_ends(&t[PLAN_T_adamw_m], false);
        to_ends(&t[PLAN_T_adamw_v], true);
    }
    t[PLAN_T_adamw_master] = c->master ? normal(DTYPE_F32, c->n, 1, false) : tensor_absent();
    t[PLAN_T_adamw_coef] = scalar(DTYPE_F32, c->coef);
    t[PLAN_T_adamw_lr] = scalar(DTYPE_F32, rate);
    t[PLAN_T_adamw_step] = scalar(DTYPE_I64, STEP);
    return t;
}

/* Of the tensors before the update: w, m, v, master after it; bit for bit but for the two factors
 * from pow. */
static double *adamw_wanted(const UpdateCase *c, const Tensor *t)
{
    double *want = malloc((size_t)c->n * 4 * 8), lr = (float)rate;
    float step_size = (float)(lr / (1 - pow(beta1, STEP + 1))),
          root = (float)sqrt(1 - pow(beta2, STEP + 1));
    float coef = (float)c->coef, decay = (float)(1 - lr * c->decay);
    for (int64_t i = 0; i < c->n; i++) {
        float w = (float)tensor_get(&t[c->master ? PLAN_T_adamw_master : PLAN_T_adamw_w], i);
        float m = (float)tensor_get(&t[PLAN_T_adamw_m], i),
              v = (float)tensor_get(&t[PLAN_T_adamw_v], i);
        if (c->coef != 0) {
            float grad = (float)tensor_get(&t[PLAN_T_adamw_g], i) * coef;
            m += (float)(1 - beta1) * (grad - m);
            v = (float)beta2 * v + (float)(1 - beta2) * (grad * grad);
            w = w * decay - step_size * (m / (sqrtf(v) / root + (float)eps));
        }
        want[4 * i] = c->coef != 0 ? rounded(c->w, w) : tensor_get(&t[PLAN_T_adamw_w], i);
        want[4 * i + 1] = rounded(c->m, m);
        want[4 * i + 2] = rounded(c->m, v);
        want[4 * i + 3] = w;
    }
    return want;
}

static bool adamw_holds(const UpdateCase *c, const Tensor *t, const double *want, double *out_error)
{
    bool right = true;
    Error e = {0};
    for (int64_t i = 0; i < c->n; i++) {
        error_add(&e, tensor_get(&t[PLAN_T_adamw_w], i), want[4 * i]);
        right = right && tensor_get(&t[PLAN_T_adamw_m], i) == want[4 * i + 1];
        right = right && tensor_get(&t[PLAN_T_adamw_v], i) == want[4 * i + 2];
        if (c->master)
            error_add(&e, tensor_get(&t[PLAN_T_adamw_master], i), want[4 * i + 3]);
    }
    *out_error = error_relative(&e);
    return right && *out_error < (c->w == DTYPE_BF16 ? 1e-5 : 1e-9);
}

static Call *adamw_call(const UpdateCase *c, Tensor *t)
{
    Call *call = calloc(1, sizeof *call);
    *call = (Call){.tensor = t,
                   .n_tensors = PLAN_T_adamw_TENSORS,
                   .kernel = PLAN_KERNEL_adamw,
                   .launch = rt_cuda_launch_adamw};
    call->param[PLAN_adamw_beta1].f = beta1;
    call->param[PLAN_adamw_beta2].f = beta2;
    call->param[PLAN_adamw_eps].f = eps;
    call->param[PLAN_adamw_decay].f = c->decay;
    call_open(call);
    return call;
}

static void check_adamw(const UpdateCase *c)
{
    Tensor *t = adamw_tensors(c);
    double *want = adamw_wanted(c, t), error;
    Call *call = adamw_call(c, t);
    bool right = call_run(call);
    call_close(call);
    right = adamw_holds(c, t, want, &error) && right;
    double seconds = c->n > 1000000 ? device_seconds(call_again, call) : 0;
    char name[160];
    snprintf(name, sizeof name, "adamw %lld w %s g %s moments %s%s%s coef %g", (long long)c->n,
             dtype_name(c->w), dtype_name(c->g), dtype_name(c->m), c->master ? " master" : "",
             c->ends ? " to the ends" : "", c->coef);
    double bytes =
        2.0 * dtype_bytes(c->w) + dtype_bytes(c->g) + 4.0 * dtype_bytes(c->m) + (c->master ? 6 : 0);
    report(name, right, error, seconds, -bytes * (double)c->n);
    call_release(call);
    free(call);
    free(t);
    free(want);
}

/* The first elements over and over. */
static void repeat(Tensor *t, double factor, bool positive)
{
    int64_t period = 1 << 20, n = t->view.numel;
    uint16_t *x = (uint16_t *)t->host;
    for (int64_t i = 0; i < period && i < n; i++) {
        double value = random_normal() * factor;
        tensor_put(t, i, positive ? fabs(value) : value);
    }
    for (int64_t at = period; at < n; at += period)
        memcpy(x + at, x, (size_t)(n - at < period ? n - at : period) * sizeof *x);
}

/* All bf16; what comes out is not looked at. zeros: without moments, as rows of embeddings that no
 * token has. */
static void time_adamw(int64_t n, bool zeros)
{
    UpdateCase c = {.n = n, .coef = 0.5, .decay = 0.1};
    Tensor t[PLAN_T_adamw_TENSORS] = {[PLAN_T_adamw_master] = tensor_absent(),
                                      [PLAN_T_adamw_coef] = scalar(DTYPE_F32, c.coef),
                                      [PLAN_T_adamw_lr] = scalar(DTYPE_F32, rate),
                                      [PLAN_T_adamw_step] = scalar(DTYPE_I64, STEP)};
    static const int large[] = {PLAN_T_adamw_w, PLAN_T_adamw_g, PLAN_T_adamw_m, PLAN_T_adamw_v};
    static const double factor[] = {1, 0.1, 0.1, 0.01};
    for (int i = 0; i < 4; i++) {
        t[large[i]] = tensor_dense(DTYPE_BF16, n);
        repeat(&t[large[i]], zeros && i > 0 ? 0 : factor[i], i == 3);
    }
    Call *call = adamw_call(&c, t);
    char name[160];
    snprintf(name, sizeof name, "adamw %lld, all bf16%s", (long long)n,
             zeros ? ", no moments" : "");
    double seconds = device_seconds(call_again, call);
    report(name, true, 0, seconds, -14.0 * (double)n);
    call_release(call);
    free(call);
}

static void check_group(void)
{
    enum { N = 6 };
    UpdateCase cases[N];
    Tensor *t[N];
    double *want[N], error, most = 0;
    Call *calls[N];
    RtCall list[N];
    Tensor first[3]; /* coef, lr and step are the same for all */
    for (int i = 0; i < N; i++) {
        cases[i] = (UpdateCase){.n = i == 2 ? 70001 : 500 * i + 9,
                                .w = DTYPE_BF16,
                                .g = DTYPE_BF16,
                                .m = DTYPE_BF16,
                                .coef = 0.5,
                                .decay = i % 2 ? 0.1 : 0};
        t[i] = adamw_tensors(&cases[i]);
        want[i] = adamw_wanted(&cases[i], t[i]);
        for (int s = 0; s < 3; s++) {
            if (i)
                tensor_free(&t[i][PLAN_T_adamw_coef + s]);
            else
                first[s] = t[0][PLAN_T_adamw_coef + s];
            t[i][PLAN_T_adamw_coef + s] = first[s];
        }
        calls[i] = adamw_call(&cases[i], t[i]);
        list[i] = calls[i]->call;
    }
    uint64_t bytes = rt_cuda_group_adamw.table_bytes(list, N);
    void *host = calloc(1, bytes), *table = device_alloc(bytes);
    rt_cuda_group_adamw.table_fill(list, N, host, table);
    device_write(table, host, bytes);
    bool right = rt_cuda_group_adamw.launch(&test_cuda, list, N, table) == STATUS_OK;
    device_wait();
    for (int i = 0; i < N; i++) {
        call_close(calls[i]);
        right = adamw_holds(&cases[i], t[i], want[i], &error) && right;
        most = error > most ? error : most;
    }
    report("adamw of six tensors in one launch", right, most, 0, 0);
    for (int i = 0; i < N; i++) {
        for (int s = 0; s < 3 && i; s++)
            t[i][PLAN_T_adamw_coef + s] = tensor_absent();
        call_release(calls[i]);
        free(calls[i]);
        free(t[i]);
        free(want[i]);
    }
    free(host);
    device_free(table);
}

static void check_sgd(const UpdateCase *c)
{
    Tensor t[PLAN_T_sgd_TENSORS] = {
        [PLAN_T_sgd_w] = normal(c->w, c->n, 1, false),
        [PLAN_T_sgd_g] = normal(c->g, c->n, 1, false),
        [PLAN_T_sgd_m] = c->momentum > 0 ? normal(c->m, c->n, 1, false) : tensor_absent(),
        [PLAN_T_sgd_master] = c->master ? normal(DTYPE_F32, c->n, 1, false) : tensor_absent(),
        [PLAN_T_sgd_coef] = scalar(DTYPE_F32, c->coef),
        [PLAN_T_sgd_lr] = scalar(DTYPE_F32, rate),
        [PLAN_T_sgd_step] = scalar(DTYPE_I64, STEP)};
    double *want_w = malloc((size_t)c->n * 8), *want_m = malloc((size_t)c->n * 8);
    for (int64_t i = 0; i < c->n; i++) {
        float w = (float)tensor_get(&t[c->master ? PLAN_T_sgd_master : PLAN_T_sgd_w], i), m = 0;
        float g = (float)tensor_get(&t[PLAN_T_sgd_g], i) * (float)c->coef + (float)c->decay * w;
        if (c->momentum > 0) {
            m = (float)c->momentum * (float)tensor_get(&t[PLAN_T_sgd_m], i) + g;
            g = c->nesterov ? g + (float)c->momentum * m : m;
        }
        w -= (float)rate * g;
        want_w[i] = c->coef == 0 ? tensor_get(&t[PLAN_T_sgd_w], i) : rounded(c->w, w);
        want_m[i] = rounded(c->m, m);
    }
    Call call = {.tensor = t,
                 .n_tensors = PLAN_T_sgd_TENSORS,
                 .kernel = PLAN_KERNEL_sgd,
                 .launch = rt_cuda_launch_sgd};
    call.param[PLAN_sgd_momentum].f = c->momentum;
    call.param[PLAN_sgd_decay].f = c->decay;
    call.param[PLAN_sgd_nesterov].i = c->nesterov;
    call_open(&call);
    bool right = call_run(&call);
    call_close(&call);
    for (int64_t i = 0; i < c->n; i++) {
        right = right && tensor_get(&t[PLAN_T_sgd_w], i) == want_w[i];
        right = right &&
                (c->momentum == 0 || c->coef == 0 || tensor_get(&t[PLAN_T_sgd_m], i) == want_m[i]);
    }
    char name[160];
    snprintf(name, sizeof name, "sgd %lld %s momentum %g%s%s coef %g", (long long)c->n,
             dtype_name(c->w), c->momentum, c->nesterov ? " nesterov" : "",
             c->master ? " master" : "", c->coef);
    report(name, right, 0, 0, 0);
    free(want_w);
    free(want_m);
    call_release(&call);
}

void check_optimizer(void)
{
    if (!test_wanted("optimizer"))
        return;
    random_seed(16);
    if (test_bench) {
        time_adamw(1000000000, false);
        time_adamw(200000000, true);
        check_adamw(&(UpdateCase){.n = 50000000,
                                  .w = DTYPE_BF16,
                                  .g = DTYPE_BF16,
                                  .m = DTYPE_BF16,
                                  .coef = 0.5,
                                  .decay = 0.1});
        return;
    }
    static const UpdateCase adamw[] = {
        {.n = 1003, .w = DTYPE_F32, .g = DTYPE_F32, .m = DTYPE_F32, .coef = 1, .decay = 0.1},
        {.n = 40000, .w = DTYPE_BF16, .g = DTYPE_BF16, .m = DTYPE_BF16, .coef = 0.37, .decay = 0.1},
        {.n = 1000,
         .w = DTYPE_BF16,
         .g = DTYPE_F32,
         .m = DTYPE_F32,
         .master = true,
         .coef = 0.37,
         .decay = 0.1},
        {.n = 1000, .w = DTYPE_BF16, .g = DTYPE_F32, .m = DTYPE_BF16, .coef = 0, .decay = 0.1},
        {.n = 3, .w = DTYPE_F32, .g = DTYPE_BF16, .m = DTYPE_BF16, .coef = 1},
        {.n = 20005, .w = DTYPE_F32, .g = DTYPE_F32, .m = DTYPE_F32, .ends = true, .coef = 0.37},
        {.n = 20005, .w = DTYPE_BF16, .g = DTYPE_BF16, .m = DTYPE_BF16, .ends = true, .coef = 1},
    };
    for (size_t i = 0; i < sizeof adamw / sizeof *adamw; i++)
        check_adamw(&adamw[i]);
    check_group();
    static const UpdateCase sgd[] = {
        {.n = 1003, .w = DTYPE_F32, .g = DTYPE_F32, .m = DTYPE_F32, .coef = 1, .decay = 0.1},
        {.n = 20000,
         .w = DTYPE_BF16,
         .g = DTYPE_BF16,
         .m = DTYPE_BF16,
         .coef = 0.5,
         .momentum = 0.9,
         .nesterov = true},
        {.n = 1000,
         .w = DTYPE_BF16,
         .g = DTYPE_F32,
         .m = DTYPE_F32,
         .master = true,
         .coef = 0.5,
         .momentum = 0.9},
        {.n = 1000, .w = DTYPE_BF16, .g = DTYPE_F32, .m = DTYPE_F32, .coef = 0, .momentum = 0.9},
    };
    for (size_t i = 0; i < sizeof sgd / sizeof *sgd; i++)
        check_sgd(&sgd[i]);
}
