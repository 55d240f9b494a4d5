#include "tests/unit/kernel_harness.h"

#include <stdio.h>

#include "runtime/kernels/cpu/kernels.h"
#include "runtime/kernels/cpu/vector_math.h"

/* -- table, math -- */

static void table_is_whole(void **state)
{
    (void)state;
    static const char *const names[] = {
#define KERNEL(name, ...) #name,
#include "runtime/abi/kernels.def"
#undef KERNEL
    };
    for (int i = 0; i < PLAN_KERNEL_COUNT; i++) {
        assert_string_equal(rt_kernels[i].name, names[i]);
        assert_non_null(rt_kernels[i].run);
    }
}

static void math_is_accurate(void **state)
{
    (void)state;
    for (double x = -86.9; x < 87.9; x += 0.00137) {
        double want = exp((float)x), have = rt_exp_f32((float)x);
        assert_true(fabs(have - want) <= 2.5e-7 * want);
    }
    for (double x = -12; x < 12; x += 0.00037) {
        double want = tanh((float)x), have = rt_tanh_f32((float)x);
        assert_true(fabs(have - want) <= 2.5e-7 * fabs(want));
    }
    assert_true(rt_exp_f32(-INFINITY) == 0 && rt_exp_f32(0) == 1 && rt_exp_f32(-1000) == 0);
    assert_true(isnan(rt_exp_f32(NAN)) && isnan(rt_tanh_f32(NAN)));
    assert_true(isnan(rt_exp_f32(rt_float_of_bits(0xffffffff))) &&
                isnan(rt_exp_f32(rt_float_of_bits(0x7fc00001))));
    assert_true(rt_tanh_f32(0) == 0 && rt_tanh_f32(INFINITY) == 1 && rt_tanh_f32(-INFINITY) == -1);
}

/* -- gemm -- */

typedef struct Product {
    int64_t m, n, k, gap;   /* gap: between rows of every operand */
    bool ta, tb, bias, odd; /* odd: a and b are views whose runs are no whole rows */
} Product;

static Tensor operand(DType dtype, int64_t rows, int64_t width, const Product *x)
{
    int64_t run = width % 2 ? 1 : width / 2;
    if (x->odd)
        return filled(tensor_new(dtype, rows * width, run, run + 3), 1);
    return filled(matrix(dtype, rows, width, x->gap), 1);
}

static void check_product(const Product *x, DType dtype, DType result)
{
    Tensor t[PLAN_T_gemm_TENSORS] = {
        matrix(result, x->m, x->n, x->gap),
        x->ta ? operand(dtype, x->k, x->m, x) : operand(dtype, x->m, x->k, x),
        x->tb ? operand(dtype, x->n, x->k, x) : operand(dtype, x->k, x->n, x),
        x->bias ? filled(matrix(dtype, 1, x->n, 0), 1) : absent(),
    };
    PlanParam p[PLAN_gemm_PARAMS] = {{x->m}, {x->n}, {x->k}, {x->ta}, {x->tb}};
    run_kernel(PLAN_KERNEL_gemm, t, PLAN_T_gemm_TENSORS, p, NULL, NULL);
    for (int64_t i = 0; i < x->m; i++)
        for (int64_t j = 0; j < x->n; j++) {
            double sum = x->bias ? get(&t[PLAN_T_gemm_bias], j) : 0, size = fabs(sum);
            for (int64_t k = 0; k < x->k; k++) {
                double product = get(&t[PLAN_T_gemm_a], x->ta ? k * x->m + i : i * x->k + k) *
                                 get(&t[PLAN_T_gemm_b], x->tb ? j * x->k + k : k * x->n + j);
                sum += product;
                size += fabs(product);
            }
            near(&t[PLAN_T_gemm_c], i * x->n + j, sum, size);
        }
    gaps_hold(&t[PLAN_T_gemm_c]);
    tensors_free(t, PLAN_T_gemm_TENSORS);
}

static void gemm_is_the_formula(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 1, 1},     {7, 5, 3},     {1, 70, 600}, {64, 1, 17},
                                        {129, 65, 33}, {530, 40, 20}, {1, 1100, 9}, {300, 520, 70}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int form = 0; form < 4; form++)
            for (size_t d = 0; d < 3; d++) {
                Product x = {
                    shapes[s][0], shapes[s][1], shapes[s][2],     (int64_t)(s + d) % 2 * 7,
                    form & 1,     form & 2,     (s + d) % 3 == 0, (s + (size_t)form) % 4 == 3};
                check_product(&x, dtypes[d], dtypes[d]);
            }
    check_product(&(Product){.m = 37, .n = 41, .k = 1100, .ta = true}, DTYPE_BF16, DTYPE_F32);
    check_product(&(Product){.m = 37, .n = 41, .k = 1100, .tb = true, .bias = true}, DTYPE_F32,
                  DTYPE_BF16);
}

static void gemm_tiles_cover(void **state)
{
    (void)state;
    for (int i = 0; i < 20000; i++) {
        int64_t m = 1 + next_random() % (i % 3 ? 300 : 9000),
                n = 1 + next_random() % (i % 5 ? 900 : 60000);
        int64_t k = 1 + next_random() % 5000;
        PlanTiles t = plan_gemm_tiles(m, n, k);
        assert_true(t.tile_m > 0 && t.tile_n > 0 && t.tile_m <= GEMM_TILE && t.tile_n <= GEMM_TILE);
        assert_true((t.rows - 1) * t.tile_m < m && m <= t.rows * t.tile_m);
        assert_true((t.cols - 1) * t.tile_n < n && n <= t.cols * t.tile_n);
    }
}

/* -- embed, concat, rope -- */

static void embed_is_the_formula(void **state)
{
    (void)state;
    enum { TOKENS = 301, WIDTH = 515, ROWS = 37, PADDING = 3 };
    for (size_t d = 0; d < 3; d++) {
        DType dtype = dtypes[d];
        int64_t gap = d ? 5 : 0;
        Tensor t[] = {matrix(dtype, TOKENS, WIDTH, gap), filled(matrix(dtype, ROWS, WIDTH, gap), 1),
                      matrix(DTYPE_I32, TOKENS, 1, 0)};
        for (int64_t i = 0; i < TOKENS; i++)
            put(&t[2], i, next_random() % (ROWS - 1)); /* the last row has no token */
        PlanParam p[] = {{TOKENS}, {WIDTH}, {ROWS}, {PADDING}};
        run_kernel(PLAN_KERNEL_embed, t, 3, p, NULL, NULL);
        for (int64_t i = 0; i < TOKENS * WIDTH; i++)
            assert_true(get(&t[0], i) ==
                        get(&t[1], (int64_t)get(&t[2], i / WIDTH) * WIDTH + i % WIDTH));
        gaps_hold(&t[0]);

        Tensor g[] = {matrix(dtype, ROWS, WIDTH, 0), t[2], filled(t[0], 1)};
        run_kernel(PLAN_KERNEL_embed_grad, g, 3, p, NULL, NULL);
        for (int64_t r = 0; r < ROWS; r++)
            for (int64_t c = 0; c < WIDTH; c++) {
                double sum = 0, size = 0;
                for (int64_t i = 0; i < TOKENS && r != PADDING; i++)
                    if (get(&t[2], i) == (double)r) {
                        sum += get(&g[2], i * WIDTH + c);
                        size += fabs(get(&g[2], i * WIDTH + c));
                    }
                near(&g[0], r * WIDTH + c, sum, size);
            }
        free(g[0].memory);
        tensors_free(t, 3);
    }
}

static void embed_stops_at_a_bad_id(void **state)
{
    (void)state;
    static const int32_t bad[] = {-1, 7, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < 4; i++) {
        Tensor t[] = {matrix(DTYPE_F32, 3, 4, 0), filled(matrix(DTYPE_F32, 7, 4, 0), 1),
                      matrix(DTYPE_I32, 3, 1, 0)};
        put(&t[2], 0, 6);
        put(&t[2], 1, bad[i]);
        put(&t[2], 2, 0);
        RtFault fault = {0};
        PlanParam p[] = {{3}, {4}, {7}};
        run_kernel(PLAN_KERNEL_embed, t, 3, p, NULL, &fault);
        char want[64];
        snprintf(want, sizeof want, "id %d of token 1 ", (int)bad[i]);
        assert_true(fault.raised);
        assert_non_null(strstr(fault.message, want));
        tensors_free(t, 3);
    }
}

static void concat_is_the_formula(void **state)
{
    (void)state;
    enum { ROWS = 45, PART = 7, N = 4 };
    for (size_t d = 0; d < 3; d++) {
        Tensor t[1 + N] = {matrix(dtypes[d], ROWS, N * PART, 3),
                           filled(matrix(dtypes[d], ROWS, PART, 0), 1),
                           filled(matrix(dtypes[d], ROWS, PART, 9), 1), absent(),
                           filled(matrix(dtypes[d], ROWS, PART, 1), 1)};
        PlanParam p[] = {{ROWS}, {PART}, {N}};
        run_kernel(PLAN_KERNEL_concat, t, 1 + N, p, NULL, NULL);
        for (int64_t r = 0; r < ROWS; r++)
            for (int64_t c = 0; c < N * PART; c++) {
                Tensor *part = &t[1 + c / PART];
                double want = part->at ? get(part, r * PART + c % PART) : 0;
                assert_true(get(&t[0], r * N * PART + c) == want);
            }
        gaps_hold(&t[0]);
        tensors_free(t, 1 + N);
    }
}

/* The frequencies, as the families' papers and configs define them. */
static double frequency(const PlanParam *p, int64_t i)
{
    double dims = (double)p[PLAN_rope_table_dims].i, factor = p[PLAN_rope_table_factor].f;
    double base = p[PLAN_rope_table_base].f, original = p[PLAN_rope_table_original].f;
    double f = 1 / pow(base, 2 * (double)i / dims), wave = 2 * M_PI / f;
    if (p[PLAN_rope_table_kind].i == 1)
        return (double)i < floor(p[PLAN_rope_table_partial].f * dims / 2) ? f / factor : 0;
    if (p[PLAN_rope_table_kind].i == 2) {
        double low = p[PLAN_rope_table_low].f, high = p[PLAN_rope_table_high].f;
        if (wave < original / high)
            return f;
        if (wave > original / low)
            return f / factor;
        double t = (original / wave - low) / (high - low);
        return (1 - t) * f / factor + t * f;
    }
    if (p[PLAN_rope_table_kind].i == 3) {
        double fast =
            dims * log(original / (p[PLAN_rope_table_beta_fast].f * 2 * M_PI)) / (2 * log(base));
        double slow =
            dims * log(original / (p[PLAN_rope_table_beta_slow].f * 2 * M_PI)) / (2 * log(base));
        double low = fmax(floor(fast), 0), high = fmin(ceil(slow), dims - 1);
        double ramp = fmin(fmax(((double)i - low) / (high - low), 0), 1);
        return f / factor * ramp + f * (1 - ramp);
    }
    return f;
}

static void rope_table_is_the_formula(void **state)
{
    (void)state;
    enum { TOKENS = 200 };
    static const int64_t sizes[] = {2, 64, 130, 512};
    for (int kind = 0; kind < 4; kind++)
        for (size_t s = 0; s < 4; s++)
            for (size_t d = 0; d < 2; d++) {
                int64_t half = sizes[s] / 2;
                Tensor t[] = {matrix(dtypes[d], TOKENS, half, 0),
                              matrix(dtypes[d], TOKENS, half, 0), matrix(DTYPE_I32, TOKENS, 1, 0)};
                for (int64_t i = 0; i < TOKENS; i++)
                    put(&t[2], i, i < 100 ? i : next_random() % 5000);
                double equal = s == 1 ? 4 : 1; /* high == low: no blend, and no division by zero */
                PlanParam p[] = {{TOKENS},   {kind},      {sizes[s]},   {.f = 1e4},
                                 {.f = 8},   {.f = 0.25}, {.f = equal}, {.f = 4},
                                 {.f = 512}, {.f = 32},   {.f = 1},     {.f = 1.25}};
                run_kernel(PLAN_KERNEL_rope_table, t, 3, p, NULL, NULL);
                for (int64_t e = 0; e < TOKENS * half; e++) {
                    double angle = get(&t[2], e / half) * frequency(p, e % half);
                    double slack = 1 + fabs(angle) / (d ? 4 : 1);
                    near(&t[0], e, 1.25 * cos(angle), slack);
                    near(&t[1], e, 1.25 * sin(angle), slack);
                }
                tensors_free(t, 3);
            }
}

/* -- the step around the graphs -- */

static void scalars_are_the_formula(void **state)
{
    (void)state;
    Tensor t[] = {matrix(DTYPE_I32, 40, 1, 0), scalar(DTYPE_I64, 9), scalar(DTYPE_F32, 0)};
    for (int64_t i = 0; i < 40; i++)
        put(&t[0], i, i % 4 ? -100 : i);
    for (int first = 1; first >= 0; first--) {
        PlanParam p[] = {{40}, {-100}, {first}};
        run_kernel(PLAN_KERNEL_count_targets, t, 3, p, NULL, NULL);
        assert_true(get(&t[1], 0) == (first ? 10 : 20));
        near(&t[2], 0, first ? 0.1 : 0.05, 0);
    }
    for (int64_t i = 0; i < 40; i++)
        put(&t[0], i, -100);
    run_kernel(PLAN_KERNEL_count_targets, t, 3, (PlanParam[]){{40}, {-100}, {1}}, NULL, NULL);
    assert_true(get(&t[1], 0) == 0 && get(&t[2], 0) == 1);
    tensors_free(t, 3);

    Tensor l[] = {scalar(DTYPE_F64, 0), scalar(DTYPE_F64, 12), scalar(DTYPE_F32, 0.25)};
    run_kernel(PLAN_KERNEL_loss_mean, l, 3, (PlanParam[]){{0}}, NULL, NULL);
    assert_true(get(&l[0], 0) == 3);
    tensors_free(l, 3);

    Tensor a[] = {scalar(DTYPE_I64, 5), scalar(DTYPE_I64, 2), scalar(DTYPE_F32, 0.5)};
    run_kernel(PLAN_KERNEL_advance, a, 3, (PlanParam[]){{0}}, NULL, NULL);
    assert_true(get(&a[0], 0) == 6 && get(&a[1], 0) == 0);
    put(&a[2], 0, 0);
    run_kernel(PLAN_KERNEL_advance, a, 3, (PlanParam[]){{0}}, NULL, NULL);
    assert_true(get(&a[0], 0) == 6 && get(&a[1], 0) == 1);
    tensors_free(a, 3);
}

static void norms_are_the_formula(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 31, 4096, 4097, 200001};
    for (size_t s = 0; s < 5; s++)
        for (size_t d = 0; d < 3; d++) {
            Tensor t[] = {scalar(DTYPE_F64, 0), filled(matrix(dtypes[d], 1, sizes[s], 0), 3)};
            long double exact = 0;
            for (int64_t i = 0; i < sizes[s]; i++)
                exact += (long double)get(&t[1], i) * get(&t[1], i);
            double sum = (double)exact;
            run_kernel(PLAN_KERNEL_norm_sq, t, 2, (PlanParam[PLAN_norm_sq_PARAMS]){{sizes[s]}},
                       NULL, NULL);
            assert_true(fabs(get(&t[0], 0) - sum) <= arithmetic(dtypes[d]) * 4 * sum);
            tensors_free(t, 2);
        }
    static const struct {
        double part, max_norm, norm, coef;
    } cases[] = {{16, 0, 5, 1},
                 {16, 10, 5, 1},
                 {16, 2, 5, 2 / (5 + 1e-6)},
                 {INFINITY, 1, INFINITY, 0},
                 {NAN, 0, NAN, 0}};
    for (size_t c = 0; c < 5; c++) {
        Tensor t[] = {scalar(DTYPE_F64, 0), scalar(DTYPE_F32, 7), scalar(DTYPE_F64, 9),
                      scalar(DTYPE_F64, cases[c].part)};
        run_kernel(PLAN_KERNEL_grad_norm, t, 4, (PlanParam[]){{2}, {.f = cases[c].max_norm}}, NULL,
                   NULL);
        assert_true(get(&t[0], 0) == cases[c].norm || isnan(cases[c].norm));
        near(&t[1], 0, cases[c].coef, 0);
        tensors_free(t, 4);
    }
}

static void accumulate_is_the_formula(void **state)
{
    (void)state;
    enum { N = 70000 };
    for (size_t from = 0; from < 3; from++)
        for (size_t to = 0; to < 3; to++)
            for (int first = 0; first < 2; first++) {
                Tensor t[] = {filled(matrix(dtypes[to], 1, N, 0), 1),
                              filled(matrix(dtypes[from], N / 10, 10, 5), 1)};
                double *want = zeros(N);
                for (int64_t i = 0; i < N; i++)
                    want[i] = get(&t[1], i) + (first ? 0 : get(&t[0], i));
                run_kernel(PLAN_KERNEL_accumulate, t, 2, (PlanParam[]){{first}}, NULL, NULL);
                for (int64_t i = 0; i < N; i++)
                    near(&t[0], i, want[i], 1);
                free(want);
                tensors_free(t, 2);
            }
}

typedef struct Update {
    DType w, g, m, master; /* master: DTYPE_NONE for none */
    double coef;
    int64_t step;
} Update;

static void check_adamw(const Update *x)
{
    enum { N = 66001 };
    double lr = (float)0.01, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1;
    Tensor t[] = {filled(matrix(x->w, 1, N, 0), 1),
                  filled(matrix(x->g, 1, N, 0), 0.1),
                  filled(matrix(x->m, 1, N, 0), 0.1),
                  filled(matrix(x->m, 1, N, 0), 0.1),
                  x->master == DTYPE_NONE ? absent() : filled(matrix(x->master, 1, N, 0), 1),
                  scalar(DTYPE_F32, x->coef),
                  scalar(DTYPE_F32, 0.01),
                  scalar(DTYPE_I64, (double)x->step)};
    double *want = zeros(3 * N), *m = want + N, *v = m + N;
    Tensor *source = x->master == DTYPE_NONE ? &t[0] : &t[4];
    for (int64_t i = 0; i < N; i++) {
        put(&t[3], i, fabs(get(&t[3], i)));
        double g = get(&t[1], i) * get(&t[5], 0), t1 = (double)x->step + 1;
        m[i] = beta1 * get(&t[2], i) + (1 - beta1) * g;
        v[i] = beta2 * get(&t[3], i) + (1 - beta2) * g * g;
        double denominator = sqrt(v[i]) / sqrt(1 - pow(beta2, t1)) + eps;
        want[i] =
            get(source, i) * (1 - lr * decay) - lr / (1 - pow(beta1, t1)) * m[i] / denominator;
    }
    PlanParam p[PLAN_adamw_PARAMS] = {{.f = beta1}, {.f = beta2}, {.f = eps}, {.f = decay}};
    run_kernel(PLAN_KERNEL_adamw, t, PLAN_T_adamw_TENSORS, p, NULL, NULL);
    for (int64_t i = 0; i < N; i++) {
        near(source, i, want[i], 2);
        if (source != &t[0])
            assert_true(get(&t[0], i) == bf16_to_f32(f32_to_bf16((float)get(source, i))));
        near(&t[2], i, m[i], 1);
        near(&t[3], i, v[i], 1);
    }
    free(want);
    tensors_free(t, PLAN_T_adamw_TENSORS);
}

static void adamw_is_the_formula(void **state)
{
    (void)state;
    static const Update cases[] = {
        {DTYPE_F64, DTYPE_F64, DTYPE_F64, DTYPE_NONE, 1, 0},
        {DTYPE_F32, DTYPE_F32, DTYPE_F32, DTYPE_NONE, 0.5, 0},
        {DTYPE_BF16, DTYPE_BF16, DTYPE_F32, DTYPE_NONE, 1, 3},
        {DTYPE_BF16, DTYPE_F32, DTYPE_BF16, DTYPE_NONE, 1, 99},
        {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, DTYPE_F32, 1, 1},
        {DTYPE_F32, DTYPE_BF16, DTYPE_BF16, DTYPE_NONE, 1, 7},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        check_adamw(&cases[c]);
}

static void check_sgd(const Update *x, double momentum, bool nesterov)
{
    enum { N = 66001 };
    double lr = (float)0.01, decay = 0.1;
    Tensor t[] = {filled(matrix(x->w, 1, N, 0), 1),
                  filled(matrix(x->g, 1, N, 0), 1),
                  momentum > 0 ? filled(matrix(x->m, 1, N, 0), 1) : absent(),
                  x->master == DTYPE_NONE ? absent() : filled(matrix(x->master, 1, N, 0), 1),
                  scalar(DTYPE_F32, x->coef),
                  scalar(DTYPE_F32, 0.01),
                  scalar(DTYPE_I64, (double)x->step)};
    double *want = zeros(2 * N), *m = want + N;
    Tensor *source = x->master == DTYPE_NONE ? &t[0] : &t[3];
    for (int64_t i = 0; i < N; i++) {
        double g = get(&t[1], i) * get(&t[4], 0) + decay * get(source, i);
        m[i] = momentum > 0 ? momentum * get(&t[2], i) + g : g;
        want[i] = get(source, i) - lr * (nesterov ? g + momentum * m[i] : m[i]);
    }
    PlanParam p[PLAN_sgd_PARAMS] = {{.f = momentum}, {.f = decay}, {nesterov}};
    run_kernel(PLAN_KERNEL_sgd, t, PLAN_T_sgd_TENSORS, p, NULL, NULL);
    for (int64_t i = 0; i < N; i++) {
        near(source, i, want[i], 2);
        if (momentum > 0)
            near(&t[2], i, m[i], 2);
    }
    free(want);
    tensors_free(t, PLAN_T_sgd_TENSORS);
}

static void sgd_is_the_formula(void **state)
{
    (void)state;
    check_sgd(&(Update){DTYPE_F64, DTYPE_F64, DTYPE_F64, DTYPE_NONE, 1, 0}, 0.9, true);
    check_sgd(&(Update){DTYPE_F32, DTYPE_F32, DTYPE_F32, DTYPE_NONE, 0.5, 0}, 0.9, false);
    check_sgd(&(Update){DTYPE_F32, DTYPE_F32, DTYPE_F32, DTYPE_NONE, 0.5, 0}, 0, false);
    check_sgd(&(Update){DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, DTYPE_F32, 1, 0}, 0.5, true);
}

/* coef 0 is a skipped update: nothing changes, whatever the gradient holds. */
static void skipped_updates_change_nothing(void **state)
{
    (void)state;
    enum { N = 1000 };
    Tensor t[] = {filled(matrix(DTYPE_F32, 1, N, 0), 1),
                  filled(matrix(DTYPE_F32, 1, N, 0), INFINITY),
                  filled(matrix(DTYPE_F32, 1, N, 0), 1),
                  filled(matrix(DTYPE_F32, 1, N, 0), 1),
                  absent(),
                  scalar(DTYPE_F32, 0),
                  scalar(DTYPE_F32, 0.01),
                  scalar(DTYPE_I64, 0)};
    float before[3][N];
    for (int i = 0; i < 3; i++)
        memcpy(before[i], t[i ? i + 1 : 0].at, sizeof before[i]);
    PlanParam adamw[PLAN_adamw_PARAMS] = {{.f = 0.9}, {.f = 0.9}, {.f = 1e-8}, {.f = 0.1}},
              sgd[PLAN_sgd_PARAMS] = {{.f = 0.9}, {.f = 0.1}, {0}};
    run_kernel(PLAN_KERNEL_adamw, t, PLAN_T_adamw_TENSORS, adamw, NULL, NULL);
    Tensor s[] = {t[0], t[1], t[2], absent(), t[5], t[6], t[7]};
    run_kernel(PLAN_KERNEL_sgd, s, PLAN_T_sgd_TENSORS, sgd, NULL, NULL);
    for (int i = 0; i < 3; i++)
        assert_memory_equal(before[i], t[i ? i + 1 : 0].at, sizeof before[i]);
    tensors_free(t, 8);
}

int main(void)
{
    rt_cpu_kernels_start();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_whole),
        cmocka_unit_test(math_is_accurate),
        cmocka_unit_test(gemm_is_the_formula),
        cmocka_unit_test(gemm_tiles_cover),
        cmocka_unit_test(embed_is_the_formula),
        cmocka_unit_test(embed_stops_at_a_bad_id),
        cmocka_unit_test(concat_is_the_formula),
        cmocka_unit_test(rope_table_is_the_formula),
        cmocka_unit_test(scalars_are_the_formula),
        cmocka_unit_test(norms_are_the_formula),
        cmocka_unit_test(accumulate_is_the_formula),
        cmocka_unit_test(adamw_is_the_formula),
        cmocka_unit_test(sgd_is_the_formula),
        cmocka_unit_test(skipped_updates_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
