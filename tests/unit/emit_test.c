/* emit: fused code against the same ops alone (bits), against plain C, and its math against libm. */
#include <dlfcn.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>
#include <setjmp.h>
#include <cmocka.h>

#include "backend/emit.h"
#include "base/diag.h"
#include "runtime/abi/workspace.h"
#include "runtime/kernels/random.h"

enum { ARENA_BYTES = 4 << 20, MAX_VALUES = 40 };

/* One graph with data: its ops as one region, or one region each. */
typedef struct Program {
    Session *s;
    IrGraph *g;
    IrBuilder b;
    bool fused;
    unsigned char *memory;
    uint64_t used;
    IrValue wanted[MAX_VALUES];
    uint32_t n_wanted;
    EmitRegion regions[MAX_VALUES];
    uint32_t n_regions, first_kernel;
} Program;

static DType dtype_of(const Program *p, IrValue v)
{
    return ir_type_info(p->g->m, ir_value_type(p->g, v))->dtype;
}

static int64_t numel_of(const Program *p, IrValue v)
{
    return ir_type_numel(p->g->m, ir_value_type(p->g, v));
}

static void *address(const Program *p, IrValue v)
{
    return p->memory + ir_value(p->g, v)->place.offset;
}

static void place(Program *p, IrValue v)
{
    IrValueRec *rec = ir_value(p->g, v);
    if (rec->place.offset >= 0)
        return;
    rec->place = (IrPlace){.offset = (int64_t)p->used};
    p->used += ((uint64_t)ir_type_bytes(p->g->m, rec->type) + 255) / 64 * 64;
    assert_true(p->used <= ARENA_BYTES);
}

static double read_at(const Program *p, IrValue v, int64_t i)
{
    void *at = address(p, v);
    switch (dtype_of(p, v)) {
    case DTYPE_F64:
        return ((double *)at)[i];
    case DTYPE_BF16:
        return (double)bf16_to_f32(((uint16_t *)at)[i]);
    default:
        return (double)((float *)at)[i];
    }
}

static void write_at(const Program *p, IrValue v, int64_t i, double x)
{
    void *at = address(p, v);
    switch (dtype_of(p, v)) {
    case DTYPE_F64:
        ((double *)at)[i] = x;
        break;
    case DTYPE_BF16:
        ((uint16_t *)at)[i] = f32_to_bf16((float)x);
        break;
    default:
        ((float *)at)[i] = (float)x;
    }
}

static IrType type_of(Program *p, DType dtype, uint32_t rank, const int64_t *dims)
{
    IrTypeInfo info = {.dtype = dtype, .rank = rank};
    for (uint32_t i = 0; i < rank; i++)
        info.dim[i] = ir_dim_number(dims[i]);
    return ir_type(p->g->m, &info);
}

/* An operand with numbers of its own: about normal, some large, in no order. */
static IrValue operand(Program *p, const char *name, DType dtype, uint32_t rank, const int64_t *dims)
{
    IrValue v = ir_graph_param(p->g, sym(p->s, name), type_of(p, dtype, rank, dims), no_span);
    ir_value(p->g, v)->place.offset = -1;
    place(p, v);
    uint32_t state = (uint32_t)map_hash(name, strlen(name), 1);
    for (int64_t i = 0; i < numel_of(p, v); i++) {
        double x = 0;
        for (uint32_t k = 0; k < 4; k++) {
            state = rt_random_mix(state + 0x9e3779b9u);
            x += (double)state / 4294967296.0 - 0.5;
        }
        write_at(p, v, i, x * (i % 37 == 5 ? 9 : 2));
    }
    return v;
}

static IrOp op(Program *p, IrOpArgs args)
{
    IrOp made = ir_build(&p->b, &args);
    assert_int_not_equal(made.i, 0);
    for (uint32_t i = 0; i < ir_op(p->g, made)->n_out; i++)
        ir_value(p->g, ir_out(p->g, made, i))->place.offset = -1;
    return made;
}

static IrValue want(Program *p, IrValue v)
{
    place(p, v);
    return p->wanted[p->n_wanted++] = v;
}

#define OP(p, op_kind, ...) \
    op((p), (IrOpArgs){.kind = IR_OP_##op_kind, .in = (IrValue[]){__VA_ARGS__}, \
                       .n_in = sizeof((IrValue[]){__VA_ARGS__}) / sizeof(IrValue)})

static IrValue one(Program *p, IrOp made)
{
    return ir_out(p->g, made, 0);
}

static IrValue to(Program *p, IrValue x, DType dtype)
{
    IrOpArgs args = {.kind = IR_OP_cast, .in = &x, .n_in = 1};
    args.out[0] = ir_type_with_dtype(p->g->m, ir_value_type(p->g, x), dtype);
    return one(p, op(p, args));
}

/* -- graphs: each with rows of d elements -- */

static void build_norms(Program *p, DType t, int64_t d)
{
    int64_t full[] = {2, 3, d};
    IrValue x = operand(p, "x", t, 3, full), r = operand(p, "r", t, 3, full), w = operand(p, "w", t, 1, &d);
    IrValue h = want(p, one(p, OP(p, add, x, r)));
    IrOp norm = OP(p, rmsnorm, h, w);
    want(p, ir_out(p->g, norm, 1));
    IrOpArgs before = {.kind = IR_OP_rmsnorm, .in = (IrValue[]){h, w}, .n_in = 2, .attrs = {"round"},
                       .values = {{.sym = sym(p->s, "before_weight")}}};
    want(p, one(p, OP(p, mul, one(p, norm), one(p, op(p, before)))));
    IrValue b = operand(p, "b", t, 1, &d);
    IrOp layer = OP(p, layernorm, one(p, norm), w, b);
    want(p, ir_out(p->g, layer, 0));
    want(p, ir_out(p->g, layer, 1));
    want(p, ir_out(p->g, layer, 2));
}

static void build_norm_grads(Program *p, DType t, int64_t d)
{
    int64_t full[] = {2, 3, d};
    DType real = t == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
    IrValue dy = operand(p, "dy", t, 3, full), x = operand(p, "x", t, 3, full), w = operand(p, "w", t, 1, &d);
    IrValue mean = operand(p, "mean", real, 2, full), rstd = operand(p, "rstd", real, 2, full);
    IrValue g = one(p, OP(p, add, dy, x));
    want(p, one(p, OP(p, rmsnorm_grad_x, g, x, rstd, w)));
    want(p, one(p, OP(p, layernorm_grad_x, g, x, mean, rstd, w)));
    IrType column = ir_value_type(p->g, w);
    IrOpArgs grads[] = {
        {.kind = IR_OP_rmsnorm_grad_w, .in = (IrValue[]){g, x, rstd}, .n_in = 3, .out = {column}},
        {.kind = IR_OP_layernorm_grad_w, .in = (IrValue[]){g, x, mean, rstd}, .n_in = 4, .out = {column}},
        {.kind = IR_OP_sum_rows, .in = &g, .n_in = 1, .out = {column}},
    };
    for (uint32_t i = 0; i < 3; i++)
        want(p, one(p, op(p, grads[i])));
}

static void build_rope(Program *p, DType t, int64_t d)
{
    if (d % 2)
        d++;
    DType real = t == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
    int64_t full[] = {2, 3, 5, d}, table[] = {2, 3, d / 2};
    IrValue x = operand(p, "x", t, 4, full), w = operand(p, "w", t, 1, &d);
    IrValue cosine = operand(p, "cos", real, 3, table), sine = operand(p, "sin", real, 3, table);
    IrValue norm = one(p, OP(p, rmsnorm, x, w));
    want(p, one(p, OP(p, rope, norm, cosine, sine)));
    IrOpArgs other = {.kind = IR_OP_rope, .in = (IrValue[]){norm, cosine, sine}, .n_in = 3,
                      .attrs = {"pairing", "inverse"},
                      .values = {{.sym = sym(p->s, "interleaved")}, {.b = true}}};
    want(p, one(p, op(p, other)));
    want(p, one(p, OP(p, rope, x, cosine, sine)));
}

static void build_pointwise(Program *p, DType t, int64_t d)
{
    static const char *const fns[] = {"gelu_tanh", "gelu_erf", "quick_gelu", "silu", "sigmoid", "tanh", "relu"};
    int64_t full[] = {2, 3, d}, part[] = {3, d};
    IrValue gate = operand(p, "gate", t, 3, full), up = operand(p, "up", t, 3, full);
    IrValue bias = operand(p, "bias", t, 1, &d), table = operand(p, "table", t, 2, part);
    IrValue scalar = operand(p, "scalar", t, 0, NULL);
    IrValue x = one(p, OP(p, add, one(p, OP(p, add, gate, bias)), table));
    x = one(p, OP(p, mul, x, scalar));
    for (uint32_t i = 0; i < sizeof fns / sizeof *fns; i++) {
        IrOpArgs glu = {.kind = IR_OP_glu, .in = (IrValue[]){x, up}, .n_in = 2, .attrs = {"fn"},
                        .values = {{.sym = sym(p->s, fns[i])}}};
        x = one(p, op(p, glu));
        glu.kind = IR_OP_glu_grad;
        glu.in = (IrValue[]){x, gate, up};
        glu.n_in = 3;
        IrOp grad = op(p, glu);
        x = one(p, OP(p, sub, ir_out(p->g, grad, 0), ir_out(p->g, grad, 1)));
        if (i % 3 == 0)
            want(p, x);
    }
    IrOpArgs cap = {.kind = IR_OP_softcap, .in = &x, .n_in = 1, .attrs = {"cap"}, .values = {{.f = 3}}};
    want(p, one(p, op(p, cap)));
    want(p, to(p, to(p, x, DTYPE_BF16), t));
}

static void build_dropout(Program *p, DType t, int64_t d)
{
    int64_t full[] = {2, 3, d};
    IrValue x = operand(p, "x", t, 3, full);
    for (int64_t key = 7; key < 9; key++) {
        IrOpArgs args = {.kind = IR_OP_dropout, .in = &x, .n_in = 1, .attrs = {"p", "key"},
                         .values = {{.f = 0.25}, {.i = key}}};
        x = one(p, op(p, args));
    }
    want(p, x);
    int64_t shape[] = {d};
    want(p, one(p, OP(p, rmsnorm, x, operand(p, "w", t, 1, shape))));
}

typedef void (*Build)(Program *p, DType t, int64_t d);
static const Build builds[] = {build_norms, build_norm_grads, build_rope, build_pointwise, build_dropout};

/* -- compiling and running -- */

static void scan(Program *p)
{
    EmitScan scanner;
    emit_scan_init(&scanner, p->s, p->g, p->s->arena);
    uint32_t each = p->fused ? p->g->order.n : 1;
    for (uint32_t at = 0; at < p->g->order.n; at += each)
        assert_int_equal(emit_scan_region(&scanner, p->g->order.at + at, each, &p->regions[p->n_regions++]), 0);
}

static void prepare(Program *p, Session *s, IrModule *m, const char *name, bool fused)
{
    *p = (Program){.s = s, .g = ir_graph_new(m, sym(s, name)), .fused = fused};
    p->b = ir_builder(p->g);
    p->memory = calloc(1, ARENA_BYTES);
}

static void finish(Program *p)
{
    for (uint32_t i = 0; !p->fused && i < p->g->order.n; i++)
        for (uint32_t k = 0; k < ir_op(p->g, p->g->order.at[i])->n_out; k++)
            place(p, ir_out(p->g, p->g->order.at[i], k));
}

/* A region's numbers last until the next scan of its graph, so each is emitted at once. */
static void emit(EmitUnit *unit, Program *p)
{
    p->first_kernel = emit_unit_n_kernels(unit);
    EmitScan scanner;
    emit_scan_init(&scanner, p->s, p->g, p->s->arena);
    for (uint32_t i = 0; i < p->n_regions; i++) {
        EmitRegion region;
        assert_int_equal(emit_scan_region(&scanner, p->regions[i].ops, p->regions[i].n_ops, &region), 0);
        emit_unit_kernel(unit, &region);
    }
}

static const StepProgram *load(Session *s, EmitUnit *unit)
{
    char object[] = "/tmp/emit_testXXXXXX";
    close(mkstemp(object));
    const char *dump = getenv("EMIT_DUMP");
    assert_int_equal(emit_unit_write(unit, "plan", 4, object, dump), 0);
    const char *library = arena_printf(s->arena, "%s.so", object);
    assert_int_equal(system(arena_printf(s->arena, "cc -shared -o %s -x none %s", library, object)), 0);
    void *handle = dlopen(library, RTLD_NOW);
    if (!handle)
        fail_msg("%s", dlerror());
    unlink(object);
    unlink(library);
    return dlsym(handle, "step_program");
}

static const int64_t random_words[] = {3, 42, 100};

static void run_region(const Program *p, const EmitRegion *r, const StepKernel *k)
{
    void *at[MAX_VALUES * 2];
    PlanParam params[8] = {{.i = 1}};
    for (uint32_t i = 0; i < r->tensors.n; i++)
        at[i] = p->memory + r->tensors.at[i].offset;
    for (uint32_t i = 0; i < r->random_keys.n; i++)
        params[i + 1].i = r->random_keys.at[i];
    int64_t chunks = (k->rows + k->rows_per_chunk - 1) / k->rows_per_chunk;
    unsigned char *workspace = malloc((size_t)(chunks * k->partial_bytes) + 1);
    for (int64_t c = 0; c < chunks; c++) {
        int64_t row = c * k->rows_per_chunk, end = row + k->rows_per_chunk;
        k->rows_fn(at, row, end < k->rows ? end : k->rows, workspace + c * k->partial_bytes, random_words, params);
    }
    if (k->cols_fn) { /* in two pieces, as two workers might */
        k->cols_fn(at, 0, k->cols / 3, workspace, chunks);
        k->cols_fn(at, k->cols / 3, k->cols, workspace, chunks);
    }
    free(workspace);
}

static void run(const Program *p, const StepProgram *program)
{
    for (uint32_t i = 0; i < p->n_regions; i++)
        run_region(p, &p->regions[i], &program->kernels[p->first_kernel + i]);
}

/* -- tests -- */

static void fused_equals_alone(void **state)
{
    static const int64_t widths[] = {1, 2, 7, 16, 17, 48, 64, 80, 130};
    static const DType dtypes[] = {DTYPE_F32, DTYPE_F64, DTYPE_BF16};
    enum { BUILDS = sizeof builds / sizeof *builds, WIDTHS = sizeof widths / sizeof *widths };
    static Program programs[BUILDS * WIDTHS * 3][2];
    (void)state;
    Session *s = session_new(stderr);
    IrModule *m = ir_module_new(s);
    m->level = IR_PLANNED;
    EmitUnit *unit;
    assert_int_equal(emit_unit_new(s, "host", &unit), 0);
    uint32_t n = 0;
    for (uint32_t b = 0; b < BUILDS; b++)
        for (uint32_t w = 0; w < WIDTHS; w++)
            for (uint32_t t = 0; t < 3; t++, n++)
                for (uint32_t fused = 0; fused < 2; fused++) {
                    Program *p = &programs[n][fused];
                    prepare(p, s, m, arena_printf(s->arena, "g%u_%u", n, fused), fused);
                    builds[b](p, dtypes[t], widths[w]);
                    finish(p);
                    scan(p);
                    emit(unit, p);
                }
    const StepProgram *program = load(s, unit);
    for (uint32_t i = 0; i < n; i++) {
        run(&programs[i][0], program);
        run(&programs[i][1], program);
        for (uint32_t k = 0; k < programs[i][0].n_wanted; k++) {
            IrValue a = programs[i][0].wanted[k], b = programs[i][1].wanted[k];
            int64_t bytes = ir_type_bytes(m, ir_value_type(programs[i][0].g, a));
            const unsigned char *x = address(&programs[i][0], a), *y = address(&programs[i][1], b);
            double sum = 0;
            for (int64_t e = 0; e < numel_of(&programs[i][0], a); e++)
                sum += fabs(read_at(&programs[i][0], a, e));
            if (memcmp(x, y, (size_t)bytes) || !(sum > 0) || !isfinite(sum))
                fail_msg("graph %u, dtype %s, d %ld, result %u: sum %g", i / (WIDTHS * 3),
                         dtype_name(dtypes[i % 3]), (long)widths[i / 3 % WIDTHS], k, sum);
        }
        free(programs[i][0].memory);
        free(programs[i][1].memory);
    }
    emit_unit_free(unit);
    session_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fused_equals_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
