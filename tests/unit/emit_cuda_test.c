/* emit_cuda: the device's kernels on an emulator: fused against alone, against the CPU's kernels,
 * and sums against the order that runtime/abi/fused_cuda.h promises. */
#include "backend/emit_device.h"
#include "ir/parse.h"
#include "runtime/abi/fused_cuda.h"
#include "tests/unit/emit_graphs.h"
#include "tests/unit/emulate_threads.h"

enum { MOST_KERNELS = 4096 };

typedef struct Device { /* beside the CPU's compiler: the same kernels, under the same numbers */
    Compiler cpu;
    EmitDeviceUnit *unit;
    StepCudaKernel kernels[MOST_KERNELS];
    uint32_t n_kernels;
    void *library;
    const char *keep; /* where the library stays, or NULL */
} Device;

static void device_init(Device *d)
{
    compiler_init(&d->cpu, "x86-64-v3");
    d->n_kernels = 0;
    assert_int_equal(emit_device_new(d->cpu.s, true, &d->unit), STATUS_OK);
}

static void device_free(Device *d)
{
    emit_device_free(d->unit);
    compiler_free(&d->cpu);
}

static void device_compile(Device *d, Program *p)
{
    program_compile(p, &d->cpu);
    EmitScan scanner; /* anew: a region's table of numbers lasts until the next one is scanned */
    emit_scan_init(&scanner, p->s, p->g, p->s->arena);
    uint32_t each = p->fused ? p->g->order.n : 1;
    for (uint32_t i = 0; i < p->n_regions; i++) {
        EmitRegion region;
        if (p->kernels[i] < d->n_kernels)
            continue;
        assert_int_equal(p->kernels[i], d->n_kernels);
        assert_int_equal(emit_scan_region(&scanner, p->g->order.at + i * each, each, &region),
                         STATUS_OK);
        const char *name = arena_printf(p->s->arena, "k%u", d->n_kernels);
        assert_true(d->n_kernels < MOST_KERNELS);
        d->kernels[d->n_kernels++] = emit_device_kernel(d->unit, &region, name);
    }
}

static void device_load(Device *d)
{
    const char *code;
    uint64_t bytes;
    char object[] = "/tmp/emit_cuda_testXXXXXX";
    compiler_load(&d->cpu);
    assert_int_equal(emit_device_code(d->unit, getenv("EMIT_DUMP"), &code, &bytes), STATUS_OK);
    int file = mkstemp(object);
    assert_int_equal(write(file, code, bytes), (ssize_t)bytes);
    close(file);
    const char *library = d->keep ? d->keep : arena_printf(d->cpu.s->arena, "%s.so", object);
    assert_int_equal(system(arena_printf(d->cpu.s->arena, "cc -shared -o %s %s", library, object)),
                     0);
    d->library = dlopen(library, RTLD_NOW);
    if (!d->library)
        fail_msg("%s", dlerror());
    unlink(object);
    if (!d->keep)
        unlink(library);
}

static void device_region(const Device *d, const Program *p, uint32_t index)
{
    const EmitRegion *r = &p->regions[index];
    const StepCudaKernel *k = &d->kernels[p->kernels[index]];
    uint64_t args[EMULATED_ARGS] = {0};
    uint32_t n = 0;
    assert_true(r->tensors.n + 3 + r->random_keys.n <= EMULATED_ARGS);
    assert_true(k->threads <= 1024 && k->threads % 32 == 0 && k->shared_bytes <= EMULATED_SHARED);
    PlanCudaSums sums = plan_cuda_sums(r->rows, r->cols);
    size_t workspace_bytes = k->cols_name ? (size_t)(sums.chunks * r->cols * 8 * 8) : 8;
    unsigned char *workspace = aligned_alloc(64, (workspace_bytes + 63) / 64 * 64);
    memset(workspace, 0xff, workspace_bytes);
    for (uint32_t i = 0; i < r->tensors.n; i++)
        args[n++] = (uint64_t)(uintptr_t)(p->memory + r->tensors.at[i].offset);
    args[n++] = (uint64_t)(uintptr_t)workspace;
    args[n++] = (uint64_t)(uintptr_t)random_words;
    args[n++] = MICRO_BATCH;
    for (uint32_t i = 0; i < r->random_keys.n; i++)
        args[n++] = (uint64_t)r->random_keys.at[i];
    emulate_threads(dlsym(d->library, k->name), k->grid, k->threads, k->shared_bytes, args);
    if (k->cols_name)
        emulate_threads(dlsym(d->library, k->cols_name), k->cols_grid, k->cols_threads, 0, args);
    free(workspace);
}

static void device_run(const Device *d, const Program *p)
{
    for (uint32_t i = 0; i < p->n_regions; i++)
        device_region(d, p, i);
    check_gaps(p);
}

/* -- all graphs, in shapes for every layout of rows -- */

/* Of one formula in another order of sums: relative to the largest of the result. */
static void check_near(const Program *a, const Program *b, const char *what)
{
    for (uint32_t k = 0; k < a->n_wanted; k++) {
        DType dtype = dtype_of(a, a->wanted[k]);
        double most = 0, worst = 0,
               limit = dtype == DTYPE_F64   ? 1e-13
                       : dtype == DTYPE_F32 ? 1e-5
                                            : 8e-3;
        for (int64_t e = 0; e < numel_of(a, a->wanted[k]); e++) {
            double x = read_at(a, a->wanted[k], e), y = read_at(b, b->wanted[k], e);
            most = fabs(y) > most ? fabs(y) : most;
            worst = !(fabs(x - y) <= worst) ? fabs(x - y) : worst;
        }
        if (!(worst <= limit * most))
            fail_msg("%s, result %u: off by %g where the largest is %g", what, k, worst, most);
    }
}

/* As its fused regions the CPU's and the device's; alone the device's. */
static void every_graph(void **state)
{
    static const struct {
        DType dtype;
        int64_t width;
    } shapes[] = {{DTYPE_BF16, 1},  {DTYPE_BF16, 2},   {DTYPE_BF16, 7},   {DTYPE_BF16, 48},
                  {DTYPE_BF16, 80}, {DTYPE_BF16, 130}, {DTYPE_BF16, 256}, {DTYPE_BF16, 1056},
                  {DTYPE_F32, 7},   {DTYPE_F32, 48},   {DTYPE_F32, 1024}, {DTYPE_F64, 130},
                  {DTYPE_F64, 256}};
    enum {
        BUILDS = sizeof builds / sizeof *builds,
        SHAPES = sizeof shapes / sizeof *shapes,
        N = BUILDS * SHAPES
    };
    static Program programs[N][3];
    static Device d;
    (void)state;
    device_init(&d);
    for (uint32_t n = 0; n < N; n++)
        for (uint32_t form = 0; form < 3; form++) {
            program_init(&programs[n][form], &d.cpu, form < 2);
            builds[n / SHAPES](&programs[n][form], shapes[n % SHAPES].dtype,
                               shapes[n % SHAPES].width);
            device_compile(&d, &programs[n][form]);
        }
    device_load(&d);
    for (uint32_t n = 0; n < N; n++) {
        const char *what =
            arena_printf(d.cpu.s->arena, "graph %u, %s, rows of %d", n / SHAPES,
                         dtype_name(shapes[n % SHAPES].dtype), (int)shapes[n % SHAPES].width);
        program_run(&programs[n][0], &d.cpu);
        device_run(&d, &programs[n][1]);
        device_run(&d, &programs[n][2]);
        check_equal(&programs[n][1], &programs[n][2], what);
        check_near(&programs[n][1], &programs[n][0], what);
        for (uint32_t form = 0; form < 3; form++)
            free(programs[n][form].memory);
    }
    device_free(&d);
}

/* -- sigmoid's short way -- */

/* A reciprocal's neighbours on both sides become the nearest, but for one mantissa: whatever the
 * approximation gives of the two, the result is a division's. */
static void reciprocals_are_exact(void **state)
{
    (void)state;
    for (uint32_t bits = 0x3f800001; bits < 0x3fffffff; bits++) {
        float x, other;
        memcpy(&x, &bits, 4);
        float exact = 1 / x, error = fmaf(-x, exact, 1);
        other = nextafterf(exact, error > 0 ? 2.0f : 0.0f);
        if (fmaf(exact, error, exact) != exact || fmaf(other, fmaf(-x, other, 1), other) != exact)
            fail_msg("1 / %.9g", (double)x);
    }
}

/* Bit patterns of every class, and the last ones before the long way: device against CPU. */
static void sigmoids_are_the_cpus(void **state)
{
    enum { N = 1 << 18, NEAR = 1 << 10 };
    static const int64_t widths[] = {N, N - 1};
    static Program programs[2][2];
    static Device d;
    (void)state;
    device_init(&d);
    for (uint32_t i = 0; i < 4; i++) {
        Program *p = &programs[i / 2][i % 2];
        program_init(p, &d.cpu, true);
        IrValue x = operand(p, "x", DTYPE_F32, 1, &widths[i / 2]);
        uint32_t *bits = address(p, x);
        for (uint32_t k = 0; k < N - 1; k++)
            bits[k] = k < NEAR    ? 0xc2ac0000 + k - NEAR / 2 /* -86 */
                      : k < N / 2 ? k << 15 | rt_random_mix(k) >> 17
                                  : (k % 2) << 31 | (0x3c000000 + (k << 9) % 0x7000000);
        IrOpArgs args = {.kind = IR_OP_act,
                         .in = &x,
                         .n_in = 1,
                         .attrs = {"fn"},
                         .values = {{.sym = sym(p->s, "sigmoid")}}};
        want(p, one(p, op(p, args)));
        device_compile(&d, p);
    }
    device_load(&d);
    const char *x_name = sym(d.cpu.s, "x");
    for (uint32_t i = 0; i < 2; i++) {
        program_run(&programs[i][0], &d.cpu);
        device_run(&d, &programs[i][1]);
        const uint32_t *x = address(&programs[i][0], ir_value_find(programs[i][0].g, x_name));
        const uint32_t *y[] = {address(&programs[i][0], programs[i][0].wanted[0]),
                               address(&programs[i][1], programs[i][1].wanted[0])};
        for (uint32_t k = 0; k < N - 1; k++)
            if (y[0][k] != y[1][k])
                fail_msg("sigmoid of %08x is %08x and should be %08x", x[k], y[1][k], y[0][k]);
        free(programs[i][0].memory);
        free(programs[i][1].memory);
    }
    device_free(&d);
}

/* -- the order of sums -- */

/* A thread's groups of lanes in order; then threads t and t ^ 16, t ^ 8 ...; then warps in order.
 */
static float row_dot(const float *a, const float *b, int64_t n)
{
    static float thread[CUDA_FUSED_ROW_THREADS], other[CUDA_FUSED_ROW_THREADS];
    PlanCudaRow row = plan_cuda_row(n);
    for (int64_t t = 0; t < row.threads; t++) {
        thread[t] = 0;
        for (int64_t first = t * row.lanes; first < n; first += row.threads * row.lanes)
            for (int64_t j = first; j < first + row.lanes; j++)
                thread[t] = b ? fmaf(a[j], b[j], thread[t]) : thread[t] + a[j];
    }
    for (int64_t far = plan_min(row.threads, CUDA_FUSED_WARP) / 2; far; far /= 2) {
        for (int64_t t = 0; t < row.threads; t++)
            other[t] = thread[t ^ far];
        for (int64_t t = 0; t < row.threads; t++)
            thread[t] += other[t];
    }
    float sum = thread[0];
    for (int64_t t = CUDA_FUSED_WARP; t < row.threads; t += CUDA_FUSED_WARP)
        sum += thread[t];
    return sum;
}

static void expect_bits(const Program *p, uint32_t wanted, int64_t i, float want_value)
{
    float got = (float)read_at(p, p->wanted[wanted], i);
    if (memcmp(&got, &want_value, 4))
        fail_msg("%s[%d] is %.9g and should be %.9g", ir_value(p->g, p->wanted[wanted])->name,
                 (int)i, (double)got, (double)want_value);
}

static void row_sums_match_plain_c(void **state)
{
    static const int64_t widths[] = {1, 5, 16, 64, 100, 257, 512, 768, 1000, 2048, 2560, 5376};
    enum { N = sizeof widths / sizeof *widths, ROWS = 3 };
    static Program programs[N];
    static Device d;
    (void)state;
    device_init(&d);
    for (uint32_t i = 0; i < N; i++) {
        Program *p = &programs[i];
        int64_t full[] = {ROWS, widths[i]};
        program_init(p, &d.cpu, true);
        IrOp norm = OP(p, rmsnorm, operand(p, "x", DTYPE_F32, 2, full),
                       operand(p, "w", DTYPE_F32, 1, &full[1]));
        want(p, ir_out(p->g, norm, 0));
        want(p, ir_out(p->g, norm, 1));
        device_compile(&d, p);
    }
    device_load(&d);
    for (uint32_t i = 0; i < N; i++) {
        const Program *p = &programs[i];
        const float *x = address(p, ir_value_find(p->g, sym(p->s, "x")));
        const float *w = address(p, ir_value_find(p->g, sym(p->s, "w")));
        int64_t n = widths[i];
        device_run(&d, p);
        for (int64_t r = 0; r < ROWS; r++, x += n) {
            float rstd = 1 / sqrtf(row_dot(x, x, n) / (float)n + 1e-6f);
            expect_bits(p, 1, r, rstd);
            for (int64_t j = 0; j < n; j++)
                expect_bits(p, 0, r * n + j, x[j] * rstd * w[j]);
        }
        free(p->memory);
    }
    device_free(&d);
}

static float column_sum(const Program *p, IrValue x, int64_t rows, int64_t cols, int64_t j)
{
    PlanCudaSums s = plan_cuda_sums(rows, cols);
    float all = 0;
    for (int64_t strip = 0; strip < s.strips; strip++) {
        float of_strip = 0;
        for (int64_t chunk = strip * s.chunks_per_strip;
             chunk < plan_min((strip + 1) * s.chunks_per_strip, s.chunks); chunk++) {
            float of_chunk = 0;
            for (int64_t g = 0; g < s.row.rows; g++) {
                float group = 0;
                int64_t end = plan_min(rows, (chunk + 1) * s.rows_per_chunk);
                for (int64_t r = chunk * s.rows_per_chunk + g; r < end; r += s.row.rows)
                    group += (float)read_at(p, x, r * cols + j);
                of_chunk = g ? of_chunk + group : group;
            }
            of_strip += of_chunk;
        }
        all = strip ? all + of_strip : of_strip;
    }
    return all;
}

/* Alone, and beside a reduction over the rows, whose threads then do the sums as well. */
static void column_sums_match_plain_c(void **state)
{
    static const int64_t shapes[][2] = {{1000, 37},  {700, 64},  {300, 256}, {150, 768},
                                        {131, 2560}, {5, 20480}, {9, 1},     {2, 16416}};
    enum { N = sizeof shapes / sizeof *shapes };
    static Program programs[N][2];
    static Device d;
    (void)state;
    device_init(&d);
    for (uint32_t i = 0; i < N; i++)
        for (uint32_t both = 0; both < 2; both++) {
            Program *p = &programs[i][both];
            program_init(p, &d.cpu, true);
            IrValue x = operand(p, "x", DTYPE_BF16, 2, shapes[i]);
            IrOpArgs sum = {.kind = IR_OP_sum_rows,
                            .in = &x,
                            .n_in = 1,
                            .out = {type_of(p, DTYPE_F32, 1, &shapes[i][1])}};
            want(p, one(p, op(p, sum)));
            if (both)
                want(p, one(p, OP(p, rmsnorm, x, operand(p, "w", DTYPE_BF16, 1, &shapes[i][1]))));
            device_compile(&d, p);
        }
    device_load(&d);
    for (uint32_t i = 0; i < N; i++)
        for (uint32_t both = 0; both < 2; both++) {
            Program *p = &programs[i][both];
            IrValue x = ir_value_find(p->g, sym(p->s, "x"));
            device_run(&d, p);
            for (int64_t j = 0; j < shapes[i][1]; j++)
                expect_bits(p, 0, j, column_sum(p, x, shapes[i][0], shapes[i][1], j));
            free(p->memory);
        }
    device_free(&d);
}

/* -- views: operands and results that lie in wider rows, aligned to 16 bytes, 8, 4 and 2 -- */

static void views_match_contiguous_tensors(void **state)
{
    enum { ROWS = 6, HEADS = 2, D = 32 };
    static const int64_t shifts[] = {0, 4, 2, 1, 8, 0}, pads[] = {0, 4, 2, 1, 8, 1};
    enum { N = sizeof shifts / sizeof *shifts };
    static Program programs[N][2];
    static Device d;
    (void)state;
    device_init(&d);
    for (uint32_t i = 0; i < N; i++)
        for (uint32_t strided = 0; strided < 2; strided++) {
            Program *p = &programs[i][strided];
            int64_t full[] = {1, ROWS, HEADS, D}, pitch = 3 * HEADS * D + pads[i],
                    wide[] = {ROWS, pitch}, width = D;
            program_init(p, &d.cpu, true);
            IrValue base = operand(p, "base", DTYPE_BF16, 2, wide),
                    out = operand(p, "out", DTYPE_BF16, 2, wide);
            IrValue x = operand(p, "x", DTYPE_BF16, 4, full),
                    w = operand(p, "w", DTYPE_BF16, 1, &width);
            IrPlace view = {.offset = -1,
                            .base = base,
                            .view_offset = HEADS * D + shifts[i],
                            .run = HEADS * D,
                            .pitch = pitch};
            for (int64_t e = 0; e < ROWS * HEADS * D; e++)
                write_at(p, x, e,
                         read_at(p, base, e / view.run * pitch + e % view.run + view.view_offset));
            IrValue y = one(p, OP(p, rmsnorm, x, w)), z = one(p, OP(p, scale, x));
            if (strided) {
                ir_value(p->g, x)->place = view;
                view.base = out;
                ir_value(p->g, y)->place = view;
            } else {
                want(p, y);
            }
            want(p, z);
            device_compile(&d, p);
        }
    device_load(&d);
    for (uint32_t i = 0; i < N; i++) {
        const Program *dense = &programs[i][0], *p = &programs[i][1];
        device_run(&d, dense);
        device_run(&d, p);
        IrValue out = ir_value_find(p->g, sym(p->s, "out"));
        for (int64_t e = 0; e < ROWS * HEADS * D; e++) {
            int64_t pitch = 3 * HEADS * D + pads[i],
                    at = e / (HEADS * D) * pitch + e % (HEADS * D) + HEADS * D + shifts[i];
            assert_true(read_at(dense, dense->wanted[0], e) == read_at(p, out, at));
            assert_true(read_at(dense, dense->wanted[1], e) == read_at(p, p->wanted[0], e));
        }
        free(dense->memory);
        free(p->memory);
    }
    device_free(&d);
}

/* -- what an executable carries -- */

static void the_object_carries_kernels_and_image(void **state)
{
    Compiler c = {.s = session_new(stderr)};
    Program p;
    (void)state;
    c.m = ir_module_new(c.s);
    c.m->level = IR_PLANNED;
    assert_int_equal(emit_unit_new_cuda(c.s, &c.unit), STATUS_OK);
    plan_kernels_init(&c.kernels, c.s->arena);
    program_init(&p, &c, true);
    int64_t full[] = {96, 64}, cols[] = {64};
    IrValue x = operand(&p, "x", DTYPE_BF16, 2, full);
    IrOpArgs sum = {
        .kind = IR_OP_sum_rows, .in = &x, .n_in = 1, .out = {type_of(&p, DTYPE_BF16, 1, cols)}};
    want(&p, one(&p, op(&p, sum)));
    want(&p, one(&p, OP(&p, rmsnorm, x, operand(&p, "w", DTYPE_BF16, 1, cols))));
    program_compile(&p, &c);
    compiler_load(&c);
    const StepProgram *program = c.program;
    assert_null(program->kernels);
    assert_int_equal(program->n_kernels, 1);
    assert_int_equal(program->plan_bytes, 4);
    const StepCudaKernel *k = program->cuda_kernels;
    PlanCudaSums sums = plan_cuda_sums(96, 64);
    assert_string_equal(k->name, "k0_sum_rows_rmsnorm");
    assert_string_equal(k->cols_name, "k0_sum_rows_rmsnorm_columns");
    assert_int_equal(k->grid, sums.chunks);
    assert_int_equal(k->threads, sums.row.threads * sums.row.rows);
    assert_true(k->shared_bytes >= 4 * 64 * sums.row.rows);
    assert_true(k->cols_grid > 0 && k->cols_threads > 0);
    const char *image = program->image;
    bool cubin = !memcmp(image, "\177ELF", 4); /* else the text that the driver compiles */
    assert_true(program->image_bytes > 100);
    assert_true(cubin || strstr(image, ".target sm_90"));
    free(p.memory);
    compiler_free(&c);
}

/* -- the kernels of a planned module, on random data: `emit_cuda_test FILE.sir`. With a second
 * name, they are left there as a library, for tests/unit/fake_cuda/emulated_kernels.c -- */

typedef struct Planned {
    Device d;
    Session *s;
    IrModule *m;
    uint64_t bytes;
    FILE *args;               /* gets a line per kernel: its name, how many arguments; or NULL */
    unsigned char *memory[2]; /* the CPU's arena, the device's */
} Planned;

static void fill_tensor(const Planned *p, const EmitTensor *t, uint32_t *state)
{
    uint32_t bytes = dtype_bytes(t->dtype);
    for (int64_t e = 0; e < t->numel; e++) {
        uint64_t at = t->offset + (uint64_t)(e / t->run * t->pitch + e % t->run) * bytes;
        *state = rt_random_mix(*state + 0x9e3779b9u);
        float x = (float)*state / 1073741824.0f - 2;
        uint16_t half = f32_to_bf16(x);
        double wide = (double)x;
        int32_t whole = (int32_t)(*state % 7);
        const void *from = t->dtype == DTYPE_BF16  ? (const void *)&half
                           : t->dtype == DTYPE_F64 ? (const void *)&wide
                           : t->dtype == DTYPE_I32 ? (const void *)&whole
                                                   : (const void *)&x;
        for (uint32_t i = 0; i < 2; i++)
            memcpy(p->memory[i] + at, from, bytes);
    }
}

static double element(const Planned *p, uint32_t which, const EmitTensor *t, int64_t e)
{
    uint32_t bytes = dtype_bytes(t->dtype);
    const unsigned char *at =
        p->memory[which] + t->offset + (uint64_t)(e / t->run * t->pitch + e % t->run) * bytes;
    float real;
    double wide;
    uint16_t half;
    memcpy(&half, at, 2);
    memcpy(&real, at, 4);
    memcpy(&wide, at, bytes == 8 ? 8 : 4);
    return t->dtype == DTYPE_BF16 ? (double)bf16_to_f32(half) : bytes == 8 ? wide : (double)real;
}

static void compare_tensor(const Planned *p, const EmitTensor *t, const char *name)
{
    double most = 0, worst = 0,
           limit = t->dtype == DTYPE_F64   ? 1e-12
                   : t->dtype == DTYPE_F32 ? 1e-5
                                           : 8e-3;
    for (int64_t e = 0; e < t->numel; e++) {
        double x = element(p, 0, t, e), y = element(p, 1, t, e);
        most = fabs(x) > most ? fabs(x) : most;
        worst = !(fabs(x - y) <= worst) ? fabs(x - y) : worst;
    }
    if (!(worst <= limit * most))
        fail_msg("%s: `%s` is off by %g where the largest is %g", name,
                 ir_value(ir_graph_find(p->m, "step"), t->value)->name, worst, most);
}

static void check_region(Planned *p, const EmitRegion *r, uint32_t kernel)
{
    Program program = {.s = p->s, .fused = true, .n_regions = 1};
    uint32_t state = kernel;
    for (uint32_t i = 0; i < r->tensors.n; i++)
        if (!r->tensors.at[i].written)
            fill_tensor(p, &r->tensors.at[i], &state);
    program.regions[0] = *r;
    program.kernels[0] = kernel;
    program.memory = p->memory[0];
    run_region(&program, r, &p->d.cpu.program->kernels[kernel]);
    program.memory = p->memory[1];
    device_region(&p->d, &program, 0);
    for (uint32_t i = 0; i < r->tensors.n; i++) {
        const EmitTensor *t = &r->tensors.at[i];
        if (!t->written)
            continue;
        compare_tensor(p, t, p->d.kernels[kernel].name);
        for (int64_t e = 0; e < t->numel; e++) { /* from here on both are the same again */
            uint64_t at =
                t->offset + (uint64_t)(e / t->run * t->pitch + e % t->run) * dtype_bytes(t->dtype);
            memcpy(p->memory[1] + at, p->memory[0] + at, dtype_bytes(t->dtype));
        }
    }
    if (memcmp(p->memory[0], p->memory[1], p->bytes))
        fail_msg("%s wrote what is not its own", p->d.kernels[kernel].name);
}

/* Every region of the graph: the first of each kind is compiled, then, `run`, checked. */
static void each_region(Planned *p, const IrGraph *g, bool run)
{
    EmitScan scan;
    emit_scan_init(&scan, p->s, g, p->s->arena);
    for (uint32_t at = 0, n; at < g->order.n; at += n) {
        IrRegion region = ir_op(g, g->order.at[at])->region;
        EmitRegion r;
        n = 1;
        if (!region.i || g->regions.at[region.i].kind != IR_REGION_KERNEL)
            continue;
        while (at + n < g->order.n && ir_op(g, g->order.at[at + n])->region.i == region.i)
            n++;
        assert_int_equal(emit_scan_region(&scan, &g->order.at[at], n, &r), STATUS_OK);
        uint32_t kernel = plan_kernel_of(&p->d.cpu.kernels, &r);
        if (run) {
            check_region(p, &r, kernel);
        } else if (kernel == p->d.n_kernels) {
            assert_true(kernel < MOST_KERNELS);
            emit_unit_kernel(p->d.cpu.unit, &r);
            p->d.kernels[p->d.n_kernels++] =
                emit_device_kernel(p->d.unit, &r, arena_printf(p->s->arena, "k%u", kernel));
            uint32_t n_params = r.random_keys.n ? r.random_keys.n + 1 : 0;
            if (p->args)
                fprintf(p->args, "k%u %u\n", kernel, r.tensors.n + 2 + n_params);
        }
    }
}

/* A file has a module per stage of a pipeline, one behind the other; all share the kernels. */
static void each_module(Planned *p, const Source *whole, bool run)
{
    const char *text = whole->text;
    while (text) {
        const char *next = strstr(text + 1, "\n# stage ");
        Source part = *whole;
        part.length = next ? (size_t)(next + 1 - text) : strlen(text);
        part.text = arena_strndup(p->s->arena, text, part.length);
        text = next ? next + 1 : NULL;
        assert_int_equal(ir_parse(p->s, &part, &p->m), STATUS_OK);
        p->bytes = p->m->arena_bytes;
        for (uint32_t i = 0; i < 2; i++)
            p->memory[i] = calloc(1, p->bytes);
        const IrGraph *step = ir_graph_find(p->m, "step"), *eval = ir_graph_find(p->m, "eval");
        each_region(p, step, run);
        if (eval && !run)
            each_region(p, eval, false);
        free(p->memory[0]);
        free(p->memory[1]);
    }
}

static void check_planned(void **state)
{
    static Planned p;
    char **words = *state;
    Source source;
    device_init(&p.d);
    p.s = p.d.cpu.s;
    p.d.keep = words[1];
    p.args = words[1] ? fopen(arena_printf(p.s->arena, "%s.args", words[1]), "w") : NULL;
    assert_int_equal(session_read_source(p.s, words[0], no_span, &source), STATUS_OK);
    each_module(&p, &source, false);
    if (p.args)
        fclose(p.args);
    device_load(&p.d);
    if (!p.d.keep)
        each_module(&p, &source, true);
    printf("%u kernels\n", p.d.n_kernels);
    device_free(&p.d);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        const struct CMUnitTest planned[] = {cmocka_unit_test_prestate(check_planned, argv + 1)};
        return cmocka_run_group_tests(planned, NULL, NULL);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_graph),
        cmocka_unit_test(reciprocals_are_exact),
        cmocka_unit_test(sigmoids_are_the_cpus),
        cmocka_unit_test(row_sums_match_plain_c),
        cmocka_unit_test(column_sums_match_plain_c),
        cmocka_unit_test(views_match_contiguous_tensors),
        cmocka_unit_test(the_object_carries_kernels_and_image),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
