#include "tests/unit/kernel_harness.h"

#include <stdio.h>

#include "runtime/kernels/cpu/kernels.h"
#include "runtime/abi/random.h"

/* -- attention -- */

typedef struct Heads {
    int64_t batch, seq, heads, kv_heads, dim;
    bool causal;
    int64_t window;
    double softcap, dropout;
    bool segments, keep, joined; /* joined: q, k, v lie beside each other in one row */
} Heads;

typedef struct Exact { /* the formula's results, in f64 */
    double *o, *lse, *dq, *dk, *dv;
} Exact;

static const int64_t random_words[] = {11, 22, 33}; /* step, seed, sample0 */

static bool sees(const Heads *x, const Tensor *segments, const Tensor *keep, int64_t b, int64_t i,
                 int64_t j)
{
    if (x->causal && j > i)
        return false;
    if (x->window && j <= i - x->window)
        return false;
    if (x->segments && get(segments, b * x->seq + i) != get(segments, b * x->seq + j))
        return false;
    return !x->keep || get(keep, b * x->seq + j) != 0;
}

static void exact_row(const Heads *x, const Tensor *t, double scale, Exact *e, int64_t b, int64_t h,
                      int64_t i)
{
    const Tensor *q = &t[2], *k = &t[3], *v = &t[4], *grad = &t[7];
    int64_t group = x->heads / x->kv_heads, dim = x->dim,
            row = ((b * x->seq + i) * x->heads + h) * dim;
    double *score = zeros(x->seq), *slope = zeros(x->seq), *kept = zeros(x->seq), most = -INFINITY,
           sum = 0, delta = 0;
    RtStream stream = rt_random_stream(22, 11, 77, 33 + 2 * x->batch + b);
    stream = rt_random_absorb(rt_random_absorb(stream, (uint32_t)h), (uint32_t)i);
    for (int64_t j = 0; j < x->seq; j++) {
        double s = 0;
        for (int64_t d = 0; d < dim; d++)
            s += get(q, row + d) * get(k, ((b * x->seq + j) * x->kv_heads + h / group) * dim + d);
        s *= scale;
        slope[j] = scale;
        if (x->softcap > 0) {
            slope[j] *= 1 - pow(tanh(s / x->softcap), 2);
            s = x->softcap * tanh(s / x->softcap);
        }
        score[j] = sees(x, &t[5], &t[6], b, i, j) ? s : -INFINITY;
        most = fmax(most, score[j]);
        bool drop =
            x->dropout > 0 && rt_random_draw(stream, (uint64_t)j) < rt_random_threshold(x->dropout);
        kept[j] = drop ? 0 : 1 / (1 - x->dropout);
    }
    for (int64_t j = 0; j < x->seq; j++)
        sum += score[j] == -INFINITY ? 0 : exp(score[j] - most);
    e->lse[(b * x->heads + h) * x->seq + i] = sum > 0 ? most + log(sum) : INFINITY;
    for (int64_t j = 0; j < x->seq && sum > 0; j++) {
        score[j] = score[j] == -INFINITY ? 0 : exp(score[j] - most) / sum;
        for (int64_t d = 0; d < dim; d++)
            e->o[row + d] +=
                score[j] * kept[j] * get(v, ((b * x->seq + j) * x->kv_heads + h / group) * dim + d);
    }
    for (int64_t d = 0; d < dim; d++)
        delta += e->o[row + d] * get(grad, row + d);
    for (int64_t j = 0; j < x->seq && sum > 0; j++) {
        int64_t key = ((b * x->seq + j) * x->kv_heads + h / group) * dim;
        double dp = 0;
        for (int64_t d = 0; d < dim; d++)
            dp += get(grad, row + d) * get(v, key + d);
        double ds = score[j] * (dp * kept[j] - delta) * slope[j];
        for (int64_t d = 0; d < dim; d++) {
            e->dq[row + d] += ds * get(k, key + d);
            e->dk[key + d] += ds * get(q, row + d);
            e->dv[key + d] += score[j] * kept[j] * get(grad, row + d);
        }
    }
    free(score);
    free(slope);
    free(kept);
}

/* Relative error in the L2 norm (of at least a tenth per element: a gradient may cancel to
 * nothing). */
static void close_to(const char *what, const Tensor *t, const double *want, double allowed)
{
    double error = 0, size = 0;
    for (int64_t i = 0; i < t->view.numel; i++) {
        double have = get(t, i);
        if (have == want[i])
            continue;
        error += (have - want[i]) * (have - want[i]);
        size += want[i] * want[i];
    }
    if (!(error <= allowed * allowed * (size + 0.01 * (double)t->view.numel)))
        fail_msg("%s: off by %.3g, allowed %.3g", what, sqrt(error / size), allowed);
}

/* A query that sees nothing, and a key that is not kept, have exact zeros. */
static void hidden_are_zeros(const Heads *x, const Tensor *keep, const Tensor *lse, const Tensor *o,
                             const Tensor *g)
{
    int64_t group = x->heads / x->kv_heads;
    for (int64_t b = 0; b < x->batch; b++)
        for (int64_t h = 0; h < x->heads; h++)
            for (int64_t i = 0; i < x->seq; i++)
                for (int64_t d = 0; d < x->dim; d++) {
                    int64_t q = ((b * x->seq + i) * x->heads + h) * x->dim + d;
                    int64_t k = ((b * x->seq + i) * x->kv_heads + h / group) * x->dim + d;
                    if (get(lse, (b * x->heads + h) * x->seq + i) == INFINITY)
                        assert_true(get(o, q) == 0 && get(&g[0], q) == 0);
                    if (x->keep && get(keep, b * x->seq + i) == 0)
                        assert_true(get(&g[1], k) == 0 && get(&g[2], k) == 0);
                }
}

/* q, k and v as slices of rows that hold all three. */
static void joined_views(const Heads *x, Tensor *t, DType dtype)
{
    int64_t rows = x->batch * x->seq, pitch = (x->heads + 2 * x->kv_heads) * x->dim;
    for (int i = 2; i < 5; i++) {
        int64_t width = (i == 2 ? x->heads : x->kv_heads) * x->dim;
        t[i] = tensor_new(dtype, rows * width, width, pitch);
    }
}

static void check_attention(const Heads *x, DType dtype)
{
    int64_t rows = x->batch * x->seq, wide_n = rows * x->heads * x->dim,
            narrow_n = rows * x->kv_heads * x->dim;
    double scale = 1.3 / sqrt((double)x->dim);
    int64_t q_width = x->heads * x->dim, kv_width = x->kv_heads * x->dim;
    Tensor t[] = {matrix(dtype, rows, q_width, 0),
                  matrix(wide(dtype), 1, x->batch * x->heads * x->seq, 0),
                  absent(),
                  absent(),
                  absent(),
                  x->segments ? matrix(DTYPE_I32, rows, 1, 0) : absent(),
                  x->keep ? matrix(DTYPE_I32, rows, 1, 0) : absent(),
                  filled(matrix(dtype, rows, q_width, 0), 1)};
    if (x->joined) {
        joined_views(x, t, dtype);
    } else {
        t[2] = matrix(dtype, rows, q_width, 0);
        t[3] = matrix(dtype, rows, kv_width, 0);
        t[4] = matrix(dtype, rows, kv_width, 0);
    }
    for (int i = 2; i < 5; i++)
        filled(t[i], 1);
    for (int64_t i = 0; i < rows; i++) {
        if (x->segments)
            put(&t[5], i, i % x->seq / 23 + i % x->seq / 70);
        if (x->keep)
            put(&t[6], i, i / x->seq % 2 ? i % x->seq < 5 : i % x->seq >= 9);
    }
    PlanParam p[] = {{x->batch},        {x->seq},          {x->heads},  {x->kv_heads},
                     {x->dim},          {x->causal},       {x->window}, {.f = scale},
                     {.f = x->softcap}, {.f = x->dropout}, {77},        {2}};
    Exact e = {zeros(wide_n), zeros(rows * x->heads), zeros(wide_n), zeros(narrow_n),
               zeros(narrow_n)};
    for (int64_t b = 0; b < x->batch; b++)
        for (int64_t h = 0; h < x->heads; h++)
            for (int64_t i = 0; i < x->seq; i++)
                exact_row(x, t, scale, &e, b, h, i);

    double allowed = dtype == DTYPE_F64 ? 1e-13 : dtype == DTYPE_F32 ? 3e-6 : 4e-3;
    run_kernel(PLAN_KERNEL_attention, t, PLAN_T_attention_TENSORS, p, random_words, NULL);
    close_to("o", &t[0], e.o, allowed);
    close_to("lse", &t[1], e.lse, dtype == DTYPE_F64 ? 1e-13 : 3e-6);

    Tensor g[] = {matrix(dtype, rows, q_width, 4),
                  matrix(dtype, rows, kv_width, 4),
                  matrix(dtype, rows, kv_width, 4),
                  t[7],
                  t[2],
                  t[3],
                  t[4],
                  t[0],
                  t[1],
                  t[5],
                  t[6]};
    run_kernel(PLAN_KERNEL_attention_grad, g, PLAN_T_attention_grad_TENSORS, p, random_words, NULL);
    close_to("dq", &g[0], e.dq, allowed * 3);
    close_to("dk", &g[1], e.dk, allowed * 3);
    close_to("dv", &g[2], e.dv, allowed * 3);
    hidden_are_zeros(x, &t[6], &t[1], &t[0], g);
    for (int i = 0; i < 3; i++)
        gaps_hold(&g[i]);
    for (int i = 0; i < 3; i++) { /* the others do not depend on whether one is asked for */
        Tensor one[PLAN_T_attention_grad_TENSORS];
        memcpy(one, g, sizeof g);
        for (int j = 0; j < 3; j++)
            one[j] = i == j ? matrix(dtype, rows, j ? kv_width : q_width, 4) : absent();
        run_kernel(PLAN_KERNEL_attention_grad, one, PLAN_T_attention_grad_TENSORS, p, random_words,
                   NULL);
        assert_memory_equal(one[i].at, g[i].at, g[i].bytes);
        free(one[i].memory);
    }
    tensors_free(t, 8);
    tensors_free(g, 3);
    free(e.o);
    free(e.lse);
    free(e.dq);
    free(e.dk);
    free(e.dv);
}

static void attention_is_the_formula(void **state)
{
    (void)state;
    static const Heads cases[] = {
        {1, 1, 1, 1, 1, true, 0, 0, 0, false, false, false},
        {2, 7, 2, 2, 3, true, 0, 0, 0, false, false, false},
        {2, 65, 4, 2, 16, true, 0, 0, 0, false, false, true},
        {1, 130, 4, 1, 8, false, 0, 0, 0, false, false, false},
        {2, 130, 2, 1, 17, true, 40, 0, 0, false, false, false},
        {1, 200, 2, 2, 5, true, 65, 0, 0, false, false, true},
        {1, 150, 1, 1, 4, false, 30, 0, 0, false, false, false},
        {1, 128, 2, 1, 33, true, 1, 0, 0, false, false, false},
        {2, 129, 2, 2, 12, true, 0, 0, 0, true, false, false},
        {2, 131, 2, 1, 12, true, 0, 0, 0, false, true, false},
        {2, 140, 2, 2, 10, false, 0, 0, 0, true, true, true},
        {1, 100, 2, 1, 16, true, 0, 2.5, 0, false, false, false},
        {2, 90, 4, 2, 6, true, 50, 1.5, 0.3, true, true, true},
        {2, 70, 2, 2, 20, true, 0, 0, 0.25, false, false, false},
        {1, 66, 2, 1, 512, true, 0, 0, 0, false, false, true},
        {1, 64, 1, 1, 511, true, 0, 0, 0, false, false, false},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (size_t d = 0; d < 3; d++)
            check_attention(&cases[c], dtypes[d]);
}

/* A key that no query sees may hold NaN: it changes no bit. */
static void attention_ignores_masked_tiles(void **state)
{
    (void)state;
    enum { SEQ = 192, DIM = 16 };
    Tensor t[] = {matrix(DTYPE_F32, SEQ, DIM, 0),
                  matrix(DTYPE_F32, 1, SEQ, 0),
                  filled(matrix(DTYPE_F32, SEQ, DIM, 0), 1),
                  filled(matrix(DTYPE_F32, SEQ, DIM, 0), 1),
                  filled(matrix(DTYPE_F32, SEQ, DIM, 0), 1),
                  absent(),
                  matrix(DTYPE_I32, SEQ, 1, 0)};
    PlanParam p[] = {{1}, {SEQ},       {1},      {1},      {DIM}, {0},
                     {0}, {.f = 0.25}, {.f = 0}, {.f = 0}, {0},   {0}};
    float first[SEQ * DIM];
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < SEQ; i++) {
            put(&t[6], i, i < 64);
            for (int64_t d = 0; d < DIM && i >= 64 && pass; d++) {
                put(&t[3], i * DIM + d, NAN);
                put(&t[4], i * DIM + d, NAN);
            }
        }
        run_kernel(PLAN_KERNEL_attention, t, PLAN_T_attention_TENSORS, p, random_words, NULL);
        if (pass)
            assert_memory_equal(first, t[0].at, t[0].bytes);
        memcpy(first, t[0].at, t[0].bytes);
    }
    tensors_free(t, 7);
}

static void dropout_keeps_its_share(void **state)
{
    (void)state;
    static const double shares[] = {0, 0.1, 0.5, 0.9};
    for (int s = 0; s < 4; s++) {
        int64_t kept = 0, pairs = 0, before = 0;
        for (int64_t sample = 0; sample < 64; sample++) {
            RtStream stream = rt_random_stream(1, 2, 3, sample);
            for (uint64_t e = 0; e < 4096; e++) {
                int64_t now = rt_random_draw(stream, e) >= rt_random_threshold(shares[s]);
                kept += now;
                pairs += now & before;
                before = now;
            }
        }
        double n = 64 * 4096, q = 1 - shares[s];
        assert_true(fabs((double)kept / n - q) < 0.005);
        assert_true(fabs((double)pairs / n - q * q) < 0.007);
    }
}

/* -- lm_loss -- */

typedef struct Head {
    int64_t tokens, width, vocab;
    double softcap;
    int ignored; /* every n-th target; 1: all */
} Head;

static double exact_logit(const Head *x, const Tensor *h, const Tensor *w, int64_t token,
                          int64_t word)
{
    double s = 0;
    for (int64_t i = 0; i < x->width; i++)
        s += get(h, token * x->width + i) * get(w, word * x->width + i);
    return x->softcap > 0 ? x->softcap * tanh(s / x->softcap) : s;
}

enum { IGNORE = -100 };

static const double head_seed = 0.37;

/* The loss and both gradients by one kernel; t: lm_loss's tensors. */
static void check_with_grad(const Head *x, DType dtype, const Tensor *t, double total,
                            const double *dh, const double *dw)
{
    double allowed = dtype == DTYPE_F64 ? 1e-13 : dtype == DTYPE_F32 ? 3e-6 : 4e-3;
    PlanParam p[] = {{x->tokens}, {x->width}, {x->vocab}, {.f = x->softcap}, {IGNORE}};
    Tensor g[] = {matrix(wide(dtype), 1, 1, 0),
                  matrix(dtype, x->tokens, x->width, 1),
                  matrix(dtype, x->vocab, x->width, 2),
                  scalar(wide(dtype), head_seed),
                  t[2],
                  t[3],
                  t[4]};
    run_kernel(PLAN_KERNEL_lm_loss_with_grad, g, PLAN_T_lm_loss_with_grad_TENSORS, p, NULL, NULL);
    near(&g[0], 0, total, 4 * (fabs(total) + 1));
    close_to("dh", &g[1], dh, allowed);
    close_to("dw", &g[2], dw, allowed);
    gaps_hold(&g[1]);
    gaps_hold(&g[2]);
    for (int i = 1; i < 3; i++) {
        Tensor one[PLAN_T_lm_loss_with_grad_TENSORS];
        memcpy(one, g, sizeof g);
        one[1] = i == 2 ? absent() : matrix(dtype, x->tokens, x->width, 1);
        one[2] = i == 2 ? matrix(dtype, x->vocab, x->width, 2) : absent();
        run_kernel(PLAN_KERNEL_lm_loss_with_grad, one, PLAN_T_lm_loss_with_grad_TENSORS, p, NULL,
                   NULL);
        assert_memory_equal(one[i].at, g[i].at, g[i].bytes);
        free(one[i].memory);
    }
    tensors_free(g, 4);
}

static void check_lm_loss(const Head *x, DType dtype)
{
    double seed = head_seed, total = 0;
    Tensor t[] = {matrix(wide(dtype), 1, 1, 0), matrix(wide(dtype), 1, x->tokens, 0),
                  filled(matrix(dtype, x->tokens, x->width, 3), 1),
                  filled(matrix(dtype, x->vocab, x->width, 0), 0.7),
                  matrix(DTYPE_I32, x->tokens, 1, 0)};
    for (int64_t i = 0; i < x->tokens; i++)
        put(&t[4], i,
            x->ignored && i % x->ignored == 0 ? IGNORE : (int)(next_random() % (uint32_t)x->vocab));
    PlanParam p[] = {{x->tokens}, {x->width}, {x->vocab}, {.f = x->softcap}, {IGNORE}};
    run_kernel(PLAN_KERNEL_lm_loss, t, PLAN_T_lm_loss_TENSORS, p, NULL, NULL);

    double *dh = zeros(x->tokens * x->width), *dw = zeros(x->vocab * x->width),
           *z = zeros(x->vocab);
    for (int64_t i = 0; i < x->tokens; i++) {
        double sum = 0, target = get(&t[4], i);
        for (int64_t j = 0; j < x->vocab; j++)
            sum += exp(z[j] = exact_logit(x, &t[2], &t[3], i, j));
        near(&t[1], i, log(sum), 20 + (double)x->width);
        if (target == IGNORE)
            continue;
        total += log(sum) - z[(int64_t)target];
        for (int64_t j = 0; j < x->vocab; j++) {
            double g = (exp(z[j]) / sum - (j == (int64_t)target)) * seed;
            if (x->softcap > 0)
                g *= 1 - pow(z[j] / x->softcap, 2);
            for (int64_t k = 0; k < x->width; k++) {
                dh[i * x->width + k] += g * get(&t[3], j * x->width + k);
                dw[j * x->width + k] += g * get(&t[2], i * x->width + k);
            }
        }
    }
    near(&t[0], 0, total, 4 * (fabs(total) + 1));

    Tensor g[] = {matrix(dtype, x->tokens, x->width, 0),
                  matrix(dtype, x->vocab, x->width, 2),
                  scalar(wide(dtype), seed),
                  t[2],
                  t[3],
                  t[4],
                  t[1]};
    double allowed = dtype == DTYPE_F64 ? 1e-13 : dtype == DTYPE_F32 ? 3e-6 : 4e-3;
    run_kernel(PLAN_KERNEL_lm_loss_grad, g, PLAN_T_lm_loss_grad_TENSORS, p, NULL, NULL);
    close_to("dh", &g[0], dh, allowed);
    close_to("dw", &g[1], dw, allowed);
    gaps_hold(&g[1]);
    for (int i = 0; i < 2; i++) {
        Tensor one[PLAN_T_lm_loss_grad_TENSORS];
        memcpy(one, g, sizeof g);
        one[0] = i ? absent() : matrix(dtype, x->tokens, x->width, 0);
        one[1] = i ? matrix(dtype, x->vocab, x->width, 2) : absent();
        run_kernel(PLAN_KERNEL_lm_loss_grad, one, PLAN_T_lm_loss_grad_TENSORS, p, NULL, NULL);
        assert_memory_equal(one[i].at, g[i].at, g[i].bytes);
        free(one[i].memory);
    }
    check_with_grad(x, dtype, t, total, dh, dw);
    tensors_free(t, 5);
    tensors_free(g, 3);
    free(dh);
    free(dw);
    free(z);
}

static void lm_loss_is_the_formula(void **state)
{
    (void)state;
    static const Head cases[] = {{1, 3, 1, 0, 0},       {5, 8, 17, 0, 3},     {300, 20, 1000, 0, 7},
                                 {33, 7, 5000, 2.5, 4}, {17, 16, 513, 30, 1}, {4, 600, 40, 0, 0}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (size_t d = 0; d < 3; d++)
            check_lm_loss(&cases[c], dtypes[d]);
}

/* More tokens than gradients of logits fit: the vocabulary goes in pieces, or the tokens. */
static void lm_loss_grad_goes_in_pieces(void **state)
{
    (void)state;
    static const Head large = {8500, 2, 2048, 0, 5};
    for (size_t d = 0; d < 3; d++) {
        assert_true(plan_lm_loss_grad_columns(large.tokens, large.vocab, dtypes[d]) < large.vocab);
        assert_true(plan_lm_loss_with_grad_rows(large.tokens, large.vocab, dtypes[d]) <
                    large.tokens);
        check_lm_loss(&large, dtypes[d]);
    }
}

static void lm_loss_stops_at_a_bad_target(void **state)
{
    (void)state;
    static const int32_t bad[] = {-1, 5, -101, INT32_MAX};
    for (size_t i = 0; i < 4; i++) {
        Tensor t[] = {matrix(DTYPE_F32, 1, 1, 0), matrix(DTYPE_F32, 1, 3, 0),
                      filled(matrix(DTYPE_F32, 3, 4, 0), 1), filled(matrix(DTYPE_F32, 5, 4, 0), 1),
                      matrix(DTYPE_I32, 3, 1, 0)};
        put(&t[4], 0, 4);
        put(&t[4], 1, -100);
        put(&t[4], 2, bad[i]);
        RtFault fault = {0};
        PlanParam p[] = {{3}, {4}, {5}, {.f = 0}, {-100}};
        run_kernel(PLAN_KERNEL_lm_loss, t, 5, p, NULL, &fault);
        char want[64];
        snprintf(want, sizeof want, "target %d of token 2 ", (int)bad[i]);
        assert_true(fault.raised);
        assert_non_null(strstr(fault.message, want));
        tensors_free(t, 5);
    }
}

int main(void)
{
    rt_cpu_kernels_start();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_is_the_formula),
        cmocka_unit_test(attention_ignores_masked_tiles),
        cmocka_unit_test(dropout_keeps_its_share),
        cmocka_unit_test(lm_loss_is_the_formula),
        cmocka_unit_test(lm_loss_grad_goes_in_pieces),
        cmocka_unit_test(lm_loss_stops_at_a_bad_target),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
