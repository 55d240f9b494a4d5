/* emit: fused code against the same ops alone and against plain C, bit by bit, and its math against
 * libm. */
#include "tests/unit/emit_graphs.h"

/* -- fused against alone -- */
static void fused_equals_alone(void **state)
{
    static const int64_t widths[] = {1, 7, 16, 48, 80, 130};
    static const DType dtypes[] = {DTYPE_F32, DTYPE_F64, DTYPE_BF16};
    enum {
        BUILDS = sizeof builds / sizeof *builds,
        WIDTHS = sizeof widths / sizeof *widths,
        N = BUILDS * WIDTHS * 3
    };
    static Program programs[N][2];
    (void)state;
    Compiler c;
    compiler_init(&c, "host");
    for (uint32_t n = 0; n < N; n++)
        for (uint32_t fused = 0; fused < 2; fused++) {
            program_init(&programs[n][fused], &c, fused);
            builds[n / (WIDTHS * 3)](&programs[n][fused], dtypes[n % 3], widths[n / 3 % WIDTHS]);
            program_compile(&programs[n][fused], &c);
        }
    compiler_load(&c);
    for (uint32_t n = 0; n < N; n++) {
        program_run(&programs[n][0], &c);
        program_run(&programs[n][1], &c);
        check_equal(&programs[n][0], &programs[n][1],
                    arena_printf(c.s->arena, "graph %u, %s, rows of %d", n / (WIDTHS * 3),
                                 dtype_name(dtypes[n % 3]), (int)widths[n / 3 % WIDTHS]));
        free(programs[n][0].memory);
        free(programs[n][1].memory);
    }
    compiler_free(&c);
}

/* -- against plain C -- */

/* Lane l sums elements l, l + 16, ...; then lanes l and l + 8, l and l + 4, ... */
static float lane_dot(const float *a, const float *b, int64_t n)
{
    float lane[16] = {0};
    for (int64_t j = 0; j < n; j++)
        lane[j % 16] = b ? fmaf(a[j], b[j], lane[j % 16]) : lane[j % 16] + a[j];
    for (uint32_t half = 8; half; half /= 2)
        for (uint32_t l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

static void expect(const Program *p, IrValue v, int64_t i, float want_value)
{
    float got = (float)read_at(p, v, i);
    if (memcmp(&got, &want_value, 4))
        fail_msg("%s[%d] is %.9g and should be %.9g", ir_value(p->g, v)->name, (int)i, (double)got,
                 (double)want_value);
}

static void expect_norms(const Program *p, int64_t rows, int64_t d)
{
    const float *x = address(p, ir_value_find(p->g, sym(p->s, "x")));
    const float *w = address(p, ir_value_find(p->g, sym(p->s, "w")));
    const float *b = address(p, ir_value_find(p->g, sym(p->s, "b")));
    float *centred = calloc((size_t)d, sizeof *centred);
    for (int64_t r = 0; r < rows; r++, x += d) {
        float rstd = 1 / sqrtf(lane_dot(x, x, d) / (float)d + 1e-6f);
        expect(p, p->wanted[1], r, rstd);
        for (int64_t j = 0; j < d; j++)
            expect(p, p->wanted[0], r * d + j, x[j] * rstd * w[j]);
        float mean = lane_dot(x, NULL, d) / (float)d;
        for (int64_t j = 0; j < d; j++)
            centred[j] = x[j] - mean;
        float scale = 1 / sqrtf(lane_dot(centred, centred, d) / (float)d + 1e-5f);
        expect(p, p->wanted[3], r, mean);
        expect(p, p->wanted[4], r, scale);
        for (int64_t j = 0; j < d; j++)
            expect(p, p->wanted[2], r * d + j, fmaf(centred[j] * scale, w[j], b[j]));
    }
    free(centred);
}

static void norms_match_plain_c(void **state)
{
    static const int64_t widths[] = {1, 5, 16, 33, 64, 100, 257};
    enum { N = sizeof widths / sizeof *widths, ROWS = 6 };
    static Program programs[N];
    (void)state;
    Compiler c;
    compiler_init(&c, "x86-64-v3");
    for (uint32_t i = 0; i < N; i++) {
        Program *p = &programs[i];
        int64_t full[] = {ROWS, widths[i]};
        program_init(p, &c, true);
        IrValue x = operand(p, "x", DTYPE_F32, 2, full),
                w = operand(p, "w", DTYPE_F32, 1, &full[1]);
        IrValue b = operand(p, "b", DTYPE_F32, 1, &full[1]);
        IrOp norm = OP(p, rmsnorm, x, w), layer = OP(p, layernorm, x, w, b);
        want(p, ir_out(p->g, norm, 0));
        want(p, ir_out(p->g, norm, 1));
        for (uint32_t k = 0; k < 3; k++)
            want(p, ir_out(p->g, layer, k));
        program_compile(p, &c);
    }
    compiler_load(&c);
    for (uint32_t i = 0; i < N; i++) {
        program_run(&programs[i], &c);
        expect_norms(&programs[i], ROWS, widths[i]);
        free(programs[i].memory);
    }
    compiler_free(&c);
}

/* Rows are summed one by one within a chunk, then the chunks in order; rows enough for several
 * chunks. */
static void column_sums_match_plain_c(void **state)
{
    enum { ROWS = 1000, D = 37 };
    (void)state;
    Compiler c;
    Program p;
    compiler_init(&c, "host");
    program_init(&p, &c, true);
    int64_t full[] = {ROWS, D}, rows[] = {ROWS}, cols[] = {D};
    IrValue dy = operand(&p, "dy", DTYPE_BF16, 2, full), x = operand(&p, "x", DTYPE_BF16, 2, full);
    IrValue rstd = operand(&p, "rstd", DTYPE_F32, 1, rows);
    IrOpArgs sum = {
        .kind = IR_OP_sum_rows, .in = &dy, .n_in = 1, .out = {type_of(&p, DTYPE_BF16, 1, cols)}};
    IrOpArgs grad = {.kind = IR_OP_rmsnorm_grad_w,
                     .in = (IrValue[]){dy, x, rstd},
                     .n_in = 3,
                     .out = {type_of(&p, DTYPE_F32, 1, cols)}};
    IrValue y = want(&p, one(&p, op(&p, sum))), dw = want(&p, one(&p, op(&p, grad)));
    program_compile(&p, &c);
    compiler_load(&c);
    program_run(&p, &c);
    int64_t per = plan_fused_rows_per_chunk(ROWS, D, 1);
    assert_true(per < ROWS / 2);
    for (int64_t j = 0; j < D; j++) {
        float all[2] = {0};
        for (int64_t first = 0; first < ROWS; first += per) {
            float chunk[2] = {0};
            for (int64_t r = first; r < first + per && r < ROWS; r++) {
                float g = (float)read_at(&p, dy, r * D + j);
                chunk[0] += g;
                chunk[1] = fmaf(g, (float)read_at(&p, x, r * D + j) * (float)read_at(&p, rstd, r),
                                chunk[1]);
            }
            all[0] = first ? all[0] + chunk[0] : chunk[0];
            all[1] = first ? all[1] + chunk[1] : chunk[1];
        }
        expect(&p, y, j, bf16_to_f32(f32_to_bf16(all[0])));
        expect(&p, dw, j, all[1]);
    }
    free(p.memory);
    compiler_free(&c);
}

static void rope_matches_plain_c(void **state)
{
    static const int64_t widths[] = {2, 6, 16, 64, 72, 128, 130};
    enum { N = sizeof widths / sizeof *widths, TOKENS = 4, HEADS = 3 };
    static Program programs[N];
    (void)state;
    Compiler c;
    compiler_init(&c, "host");
    for (uint32_t i = 0; i < N; i++) {
        Program *p = &programs[i];
        int64_t full[] = {1, TOKENS, HEADS, widths[i]}, table[] = {1, TOKENS, widths[i] / 2};
        program_init(p, &c, true);
        IrValue in[] = {operand(p, "x", DTYPE_F32, 4, full), operand(p, "cos", DTYPE_F32, 3, table),
                        operand(p, "sin", DTYPE_F32, 3, table)};
        IrOpArgs args = {.kind = IR_OP_rope, .in = in, .n_in = 3};
        want(p, one(p, op(p, args)));
        args.attrs[0] = "pairing";
        args.values[0].sym = sym(p->s, "interleaved");
        want(p, one(p, op(p, args)));
        program_compile(p, &c);
    }
    compiler_load(&c);
    for (uint32_t i = 0; i < N; i++) {
        const Program *p = &programs[i];
        const float *x = address(p, ir_value_find(p->g, sym(p->s, "x")));
        const float *cosine = address(p, ir_value_find(p->g, sym(p->s, "cos")));
        const float *sine = address(p, ir_value_find(p->g, sym(p->s, "sin")));
        int64_t d = widths[i], half = d / 2;
        program_run(p, &c);
        for (int64_t r = 0; r < TOKENS * HEADS; r++)
            for (int64_t k = 0; k < half; k++) {
                float co = cosine[r / HEADS * half + k], si = sine[r / HEADS * half + k];
                int64_t pairs[2][2] = {{r * d + k, r * d + k + half},
                                       {r * d + 2 * k, r * d + 2 * k + 1}};
                for (uint32_t pairing = 0; pairing < 2; pairing++) {
                    int64_t a = pairs[pairing][0], b = pairs[pairing][1];
                    expect(p, p->wanted[pairing], a, x[a] * co - x[b] * si);
                    expect(p, p->wanted[pairing], b, x[b] * co + x[a] * si);
                }
            }
        free(p->memory);
    }
    compiler_free(&c);
}

static void dropout_draws_as_the_runtime_does(void **state)
{
    enum { BATCH = 3, SEQ = 5, D = 100, KEY = 77 };
    (void)state;
    Compiler c;
    Program p;
    compiler_init(&c, "host");
    program_init(&p, &c, true);
    int64_t full[] = {BATCH, SEQ, D};
    IrValue x = operand(&p, "x", DTYPE_F32, 3, full);
    IrOpArgs args = {.kind = IR_OP_dropout,
                     .in = &x,
                     .n_in = 1,
                     .attrs = {"p", "key"},
                     .values = {{.f = 0.3}, {.i = KEY}}};
    IrValue y = want(&p, one(&p, op(&p, args)));
    program_compile(&p, &c);
    compiler_load(&c);
    program_run(&p, &c);
    for (int64_t b = 0; b < BATCH; b++) {
        RtStream stream = rt_random_stream(random_words[1], random_words[0], KEY,
                                           random_words[2] + MICRO_BATCH * BATCH + b);
        for (int64_t e = 0; e < SEQ * D; e++) {
            bool keep = rt_random_draw(stream, (uint64_t)e) >= rt_random_threshold(0.3);
            float value = (float)read_at(&p, x, b * SEQ * D + e) * (float)(1 / (1 - 0.3));
            expect(&p, y, b * SEQ * D + e, keep ? value : 0);
        }
    }
    free(p.memory);
    compiler_free(&c);
}

/* -- views: operands and results that lie in wider rows -- */

static void views_match_contiguous_tensors(void **state)
{
    enum { ROWS = 6, HEADS = 2, D = 24, PARTS = 3 };
    static Program programs[2];
    (void)state;
    Compiler c;
    compiler_init(&c, "host");
    for (uint32_t strided = 0; strided < 2; strided++) {
        Program *p = &programs[strided];
        program_init(p, &c, true);
        int64_t full[] = {1, ROWS, HEADS, D}, wide[] = {ROWS, PARTS * HEADS * D}, d = D;
        IrValue base = operand(p, "base", DTYPE_BF16, 2, wide),
                out = operand(p, "out", DTYPE_BF16, 2, wide);
        IrValue x = operand(p, "x", DTYPE_BF16, 4, full), w = operand(p, "w", DTYPE_BF16, 1, &d);
        IrPlace view = {.offset = -1,
                        .base = base,
                        .view_offset = HEADS * D,
                        .run = HEADS * D,
                        .pitch = PARTS * HEADS * D};
        for (int64_t e = 0; e < ROWS * HEADS * D; e++)
            write_at(p, x, e,
                     read_at(p, base, e / view.run * view.pitch + e % view.run + view.view_offset));
        IrValue y = one(p, OP(p, rmsnorm, x, w));
        if (strided) {
            ir_value(p->g, x)->place = view;
            view.base = out;
            ir_value(p->g, y)->place = view;
        } else {
            want(p, y);
        }
        program_compile(p, &c);
    }
    compiler_load(&c);
    program_run(&programs[0], &c);
    program_run(&programs[1], &c);
    IrValue out = ir_value_find(programs[1].g, sym(c.s, "out"));
    for (int64_t e = 0; e < ROWS * HEADS * D; e++) {
        int64_t at = e / (HEADS * D) * (PARTS * HEADS * D) + e % (HEADS * D) + HEADS * D;
        assert_true(read_at(&programs[0], programs[0].wanted[0], e) ==
                    read_at(&programs[1], out, at));
    }
    free(programs[0].memory);
    free(programs[1].memory);
    compiler_free(&c);
}

/* -- math -- */

static double exact(const char *fn, double x)
{
    long double v = x;
    if (!strcmp(fn, "tanh"))
        return (double)tanhl(v);
    if (!strcmp(fn, "sigmoid"))
        return (double)(1 / (1 + expl(-v)));
    if (!strcmp(fn, "silu"))
        return (double)(v / (1 + expl(-v)));
    if (!strcmp(fn, "gelu_erf"))
        return (double)(v * (1 + erfl(v / sqrtl(2))) / 2);
    long double u = sqrtl(2 / acosl(-1)) * (v + 0.044715L * v * v * v);
    return (double)(v / (1 + expl(-2 * u)));
}

/* How far the results are from exact, in units of the last place of the larger of result and
 * `floor`. */
static void check_accuracy(DType t, const char *fn, double from, double to_x, double floor,
                           double limit)
{
    enum { N = 60000 };
    Compiler c;
    Program p;
    compiler_init(&c, "host");
    program_init(&p, &c, true);
    int64_t n = N;
    IrValue x = operand(&p, "x", t, 1, &n);
    for (int64_t i = 0; i < N; i++)
        write_at(&p, x, i, from + (to_x - from) * (double)i / N);
    IrOpArgs args = {
        .kind = IR_OP_act, .in = &x, .n_in = 1, .attrs = {"fn"}, .values = {{.sym = sym(p.s, fn)}}};
    IrValue y = want(&p, one(&p, op(&p, args)));
    program_compile(&p, &c);
    compiler_load(&c);
    program_run(&p, &c);
    double worst = 0, at = 0;
    for (int64_t i = 0; i < N; i++) {
        double want_value = exact(fn, read_at(&p, x, i)), size = fmax(fabs(want_value), floor);
        double unit = t == DTYPE_F64 ? nextafter(size, INFINITY) - size
                                     : (double)(nextafterf((float)size, INFINITY) - (float)size);
        double error = fabs(read_at(&p, y, i) - want_value) / unit;
        if (!(error <= worst)) {
            worst = error;
            at = read_at(&p, x, i);
        }
    }
    if (getenv("EMIT_VERBOSE"))
        printf("%s %s: %.2f units at %g\n", dtype_name(t), fn, worst, at);
    if (!(worst <= limit))
        fail_msg("%s %s is off by %.2f units at %g", dtype_name(t), fn, worst, at);
    free(p.memory);
    compiler_free(&c);
}

static void math_is_accurate(void **state)
{
    (void)state;
    check_accuracy(DTYPE_F32, "tanh", -10, 10, 0, 2);
    check_accuracy(DTYPE_F32, "tanh", -1e-3, 1e-3, 0, 2);
    check_accuracy(DTYPE_F32, "sigmoid", -87, 90, 0,
                   3); /* exp over its whole range of normal results */
    check_accuracy(DTYPE_F32, "silu", -80, 80, 0, 4);
    check_accuracy(DTYPE_F32, "gelu_erf", 0, 8, 0, 3);    /* erf */
    check_accuracy(DTYPE_F32, "gelu_erf", -8, 0, 0.5, 3); /* 1 + erf cancels: absolute */
    check_accuracy(DTYPE_F32, "gelu_tanh", -4, 8, 0,
                   30); /* exp of up to 2u: u's error counts e^-2u-fold */
    check_accuracy(DTYPE_F64, "tanh", -20, 20, 0, 4);
    check_accuracy(DTYPE_F64, "sigmoid", -700, 40, 0, 4);
    check_accuracy(DTYPE_F64, "gelu_erf", 0, 9, 0, 5);
    check_accuracy(DTYPE_F64, "gelu_erf", -9, 0, 0.5, 5);
}

/* Every class of bit pattern, as base/dtype.h rounds it. */
static void bf16_rounds_as_the_host_does(void **state)
{
    enum { N = 1 << 16 };
    (void)state;
    Compiler c;
    Program p;
    compiler_init(&c, "host");
    program_init(&p, &c, true);
    int64_t n = N;
    IrValue x = operand(&p, "x", DTYPE_F32, 1, &n);
    uint32_t *bits = address(&p, x);
    for (uint32_t i = 0; i < N; i++)
        bits[i] = i << 16 | (i % 4 == 0   ? 0x8000
                             : i % 4 == 1 ? 0x7fff
                             : i % 4 == 2 ? 0x8001
                                          : rt_random_mix(i) >> 16);
    IrValue y = want(&p, to(&p, x, DTYPE_BF16));
    program_compile(&p, &c);
    compiler_load(&c);
    program_run(&p, &c);
    const uint16_t *got = address(&p, y);
    for (uint32_t i = 0; i < N; i++) {
        float value;
        memcpy(&value, &bits[i], 4);
        if (got[i] != f32_to_bf16(value))
            fail_msg("%08x gives %04x and should give %04x", bits[i], got[i], f32_to_bf16(value));
    }
    free(p.memory);
    compiler_free(&c);
}

static void special_values(void **state)
{
    static const float in[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-42f, 100.0f, -100.0f};
    static const char *const fns[] = {"tanh", "sigmoid", "relu"};
    static const float out[][8] = {{NAN, 1, -1, 0.0f, -0.0f, 1e-42f, 1, -1},
                                   {NAN, 1, 0, 0.5f, 0.5f, 0.5f, 1, 0},
                                   {NAN, INFINITY, 0, 0.0f, -0.0f, 1e-42f, 100, 0}};
    (void)state;
    Compiler c;
    Program p;
    compiler_init(&c, "host");
    program_init(&p, &c, true);
    int64_t n = 8;
    IrValue x = operand(&p, "x", DTYPE_F32, 1, &n);
    memcpy(address(&p, x), in, sizeof in);
    for (uint32_t k = 0; k < 3; k++) {
        IrOpArgs args = {.kind = IR_OP_act,
                         .in = &x,
                         .n_in = 1,
                         .attrs = {"fn"},
                         .values = {{.sym = sym(p.s, fns[k])}}};
        want(&p, one(&p, op(&p, args)));
    }
    program_compile(&p, &c);
    compiler_load(&c);
    program_run(&p, &c);
    for (uint32_t k = 0; k < 3; k++)
        for (int64_t i = 0; i < 8; i++) {
            float got = (float)read_at(&p, p.wanted[k], i);
            bool same = isnan(out[k][i]) ? isnan(got) : !memcmp(&got, &out[k][i], 4);
            if (!same)
                fail_msg("%s(%g) is %.9g and should be %.9g", fns[k], (double)in[i], (double)got,
                         (double)out[k][i]);
        }
    free(p.memory);
    compiler_free(&c);
}

/* -- sharing -- */

/* The region of one scaled dropout over [rows, 32], on values of its own. */
static uint32_t kernel_for(Compiler *c, int64_t rows, double factor, int64_t key)
{
    Program p;
    program_init(&p, c, true);
    int64_t full[] = {rows, 32};
    IrValue x = operand(&p, "x", DTYPE_F32, 2, full);
    IrOpArgs scale = {
        .kind = IR_OP_scale, .in = &x, .n_in = 1, .attrs = {"factor"}, .values = {{.f = factor}}};
    IrValue y = one(&p, op(&p, scale));
    IrOpArgs dropout = {.kind = IR_OP_dropout,
                        .in = &y,
                        .n_in = 1,
                        .attrs = {"p", "key"},
                        .values = {{.f = 0.5}, {.i = key}}};
    want(&p, one(&p, op(&p, dropout)));
    program_compile(&p, c);
    free(p.memory);
    return p.kernels[0];
}

static void equal_regions_share_a_kernel(void **state)
{
    (void)state;
    Compiler c;
    compiler_init(&c, "host");
    uint32_t first = kernel_for(&c, 4, 2, 10);
    assert_int_equal(kernel_for(&c, 4, 2, 10), first);
    assert_int_equal(kernel_for(&c, 4, 2, 11), first); /* a key is a parameter */
    uint32_t other = kernel_for(&c, 4, 3, 10);
    assert_int_not_equal(other, first);
    assert_int_not_equal(kernel_for(&c, 5, 2, 10), first);
    assert_int_equal(kernel_for(&c, 4, 3, 10), other);
    assert_int_equal(emit_unit_n_kernels(c.unit), 3);
    compiler_free(&c);
}

/* -- the target -- */

static void an_unknown_cpu_is_refused(void **state)
{
    (void)state;
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    Session *s = session_new(out);
    EmitUnit *unit;
    assert_int_equal(emit_unit_new(s, "znver44", &unit), STATUS_USER);
    fclose(out);
    assert_non_null(strstr(text, "cpu `znver44` is not known"));
    assert_non_null(strstr(text, "did you mean `znver4`?"));
    session_free(s);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fused_equals_alone),
        cmocka_unit_test(norms_match_plain_c),
        cmocka_unit_test(column_sums_match_plain_c),
        cmocka_unit_test(rope_matches_plain_c),
        cmocka_unit_test(dropout_draws_as_the_runtime_does),
        cmocka_unit_test(views_match_contiguous_tensors),
        cmocka_unit_test(math_is_accurate),
        cmocka_unit_test(bf16_rounds_as_the_host_does),
        cmocka_unit_test(special_values),
        cmocka_unit_test(equal_regions_share_a_kernel),
        cmocka_unit_test(an_unknown_cpu_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
