/* emit_harness: hand-made PLANNED graphs with data, compiled into a shared object and run row by
 * row. */
#ifndef TESTS_UNIT_EMIT_HARNESS_H
#define TESTS_UNIT_EMIT_HARNESS_H

#include <dlfcn.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>
#include <setjmp.h>
#include <cmocka.h>

#include "backend/emit.h"
#include "backend/plan_kernels.h"
#include "base/diag.h"
#include "runtime/abi/workspace.h"
#include "runtime/abi/random.h"

enum { ARENA_BYTES = 4 << 20, MAX_VALUES = 40, GAP_BYTES = 128 };

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
    uint32_t kernels[MAX_VALUES]; /* by region */
    uint32_t n_regions;
} Program;

static inline DType dtype_of(const Program *p, IrValue v)
{
    return ir_type_info(p->g->m, ir_value_type(p->g, v))->dtype;
}

static inline int64_t numel_of(const Program *p, IrValue v)
{
    return ir_type_numel(p->g->m, ir_value_type(p->g, v));
}

static inline void *address(const Program *p, IrValue v)
{
    return p->memory + ir_value(p->g, v)->place.offset;
}

static inline void place(Program *p, IrValue v)
{
    IrValueRec *rec = ir_value(p->g, v);
    if (rec->place.offset >= 0)
        return;
    rec->place = (IrPlace){.offset = (int64_t)p->used};
    p->used += ((uint64_t)ir_type_bytes(p->g->m, rec->type) + GAP_BYTES + 63) / 64 * 64;
    assert_true(p->used <= ARENA_BYTES);
}

static inline double read_at(const Program *p, IrValue v, int64_t i)
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

static inline void write_at(const Program *p, IrValue v, int64_t i, double x)
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

static inline IrType type_of(Program *p, DType dtype, uint32_t rank, const int64_t *dims)
{
    IrTypeInfo info = {.dtype = dtype, .rank = rank};
    for (uint32_t i = 0; i < rank; i++)
        info.dim[i] = ir_dim_number(dims[i]);
    return ir_type(p->g->m, &info);
}

/* An operand with numbers of its own: about normal, some large, in no order. */
static inline IrValue operand(Program *p, const char *name, DType dtype, uint32_t rank,
                              const int64_t *dims)
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

static inline IrOp op(Program *p, IrOpArgs args)
{
    IrOp made = ir_build(&p->b, &args);
    assert_int_not_equal(made.i, 0);
    for (uint32_t i = 0; i < ir_op(p->g, made)->n_out; i++)
        ir_value(p->g, ir_out(p->g, made, i))->place.offset = -1;
    return made;
}

static inline IrValue want(Program *p, IrValue v)
{
    place(p, v);
    return p->wanted[p->n_wanted++] = v;
}

#define OP(p, op_kind, ...)                                                                        \
    op((p), (IrOpArgs){.kind = IR_OP_##op_kind,                                                    \
                       .in = (IrValue[]){__VA_ARGS__},                                             \
                       .n_in = sizeof((IrValue[]){__VA_ARGS__}) / sizeof(IrValue)})

static inline IrValue one(Program *p, IrOp made)
{
    return ir_out(p->g, made, 0);
}

static inline IrValue to(Program *p, IrValue x, DType dtype)
{
    IrOpArgs args = {.kind = IR_OP_cast, .in = &x, .n_in = 1};
    args.out[0] = ir_type_with_dtype(p->g->m, ir_value_type(p->g, x), dtype);
    return one(p, op(p, args));
}

/* -- compiling and running -- */

typedef struct Compiler {
    Session *s;
    IrModule *m;
    EmitUnit *unit;
    PlanKernels kernels; /* equal regions are compiled once */
    const StepProgram *program;
} Compiler;

static inline void compiler_init(Compiler *c, const char *cpu)
{
    *c = (Compiler){.s = session_new(stderr)};
    c->m = ir_module_new(c->s);
    c->m->level = IR_PLANNED;
    assert_int_equal(emit_unit_new(c->s, cpu, &c->unit), STATUS_OK);
    plan_kernels_init(&c->kernels, c->s->arena);
}

static inline void compiler_free(Compiler *c)
{
    emit_unit_free(c->unit);
    session_free(c->s);
}

static inline void program_init(Program *p, Compiler *c, bool fused)
{
    *p = (Program){.s = c->s, .fused = fused};
    p->g = ir_graph_new(c->m, intern_printf(&c->s->interner, "g%u", c->m->graphs.n));
    p->b = ir_builder(p->g);
    p->memory = calloc(1, ARENA_BYTES);
}

/* What is not fused hands everything on through memory. */
static inline void program_compile(Program *p, Compiler *c)
{
    EmitScan scanner;
    emit_scan_init(&scanner, p->s, p->g, p->s->arena);
    for (uint32_t i = 0; !p->fused && i < p->g->order.n; i++)
        for (uint32_t k = 0; k < ir_op(p->g, p->g->order.at[i])->n_out; k++)
            place(p, ir_out(p->g, p->g->order.at[i], k));
    uint32_t each = p->fused ? p->g->order.n : 1;
    for (uint32_t at = 0; at < p->g->order.n; at += each) {
        EmitRegion *region = &p->regions[p->n_regions];
        assert_int_equal(emit_scan_region(&scanner, p->g->order.at + at, each, region), STATUS_OK);
        p->kernels[p->n_regions] = plan_kernel_of(&c->kernels, region);
        if (p->kernels[p->n_regions++] == emit_unit_n_kernels(c->unit))
            emit_unit_kernel(c->unit, region);
    }
}

static inline void compiler_load(Compiler *c)
{
    char object[] = "/tmp/emit_testXXXXXX";
    close(mkstemp(object));
    assert_int_equal(emit_unit_write(c->unit, "plan", 4, object, getenv("EMIT_DUMP")), STATUS_OK);
    const char *library = arena_printf(c->s->arena, "%s.so", object);
    assert_int_equal(system(arena_printf(c->s->arena, "cc -shared -o %s %s", library, object)), 0);
    void *handle = dlopen(library, RTLD_NOW);
    if (!handle)
        fail_msg("%s", dlerror());
    unlink(object);
    unlink(library);
    c->program = dlsym(handle, "step_program");
}

static const int64_t random_words[] = {3, 42, 100}; /* step, seed, first sample */
enum { MICRO_BATCH = 1 };

static inline void run_region(const Program *p, const EmitRegion *r, const StepKernel *k)
{
    void *at[MAX_VALUES * 2];
    PlanParam params[8] = {{.i = MICRO_BATCH}};
    for (uint32_t i = 0; i < r->tensors.n; i++)
        at[i] = p->memory + r->tensors.at[i].offset;
    for (uint32_t i = 0; i < r->random_keys.n; i++)
        params[i + 1].i = r->random_keys.at[i];
    int64_t chunks = (k->rows + k->rows_per_chunk - 1) / k->rows_per_chunk;
    unsigned char *workspace = malloc((size_t)(chunks * k->partial_bytes) + 1);
    for (int64_t c = 0; c < chunks; c++) {
        int64_t row = c * k->rows_per_chunk, end = row + k->rows_per_chunk;
        k->rows_fn(at, row, end < k->rows ? end : k->rows, workspace + c * k->partial_bytes,
                   random_words, params);
    }
    if (k->cols_fn) { /* in two pieces, as two workers might */
        k->cols_fn(at, 0, k->cols / 3, workspace, chunks);
        k->cols_fn(at, k->cols / 3, k->cols, workspace, chunks);
    }
    free(workspace);
}

/* What lies between values is zero and stays so: no lane behind a row's end is written. */
static inline void check_gaps(const Program *p)
{
    for (uint32_t i = 1; i < p->g->values.n; i++) {
        const IrValueRec *rec = &p->g->values.at[i];
        if (rec->place.offset < 0)
            continue;
        const unsigned char *end =
            p->memory + rec->place.offset + ir_type_bytes(p->g->m, rec->type);
        for (uint32_t k = 0; k < GAP_BYTES; k++)
            if (end[k])
                fail_msg("byte %u behind `%s` was written", k, rec->name);
    }
}

static inline void program_run(const Program *p, const Compiler *c)
{
    for (uint32_t i = 0; i < p->n_regions; i++)
        run_region(p, &p->regions[i], &c->program->kernels[p->kernels[i]]);
    check_gaps(p);
}

#endif
