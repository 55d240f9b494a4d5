/* kernel_harness: runs one CPU kernel on tensors with guards around them, in several orders, and
 * compares with f64. */
#ifndef TESTS_UNIT_KERNEL_HARNESS_H
#define TESTS_UNIT_KERNEL_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/abi/workspace.h"
#include "runtime/kernel.h"

enum { GUARD = 256, MAX_TENSORS = 16 };

/* -- tensors -- */

typedef struct Tensor {
    PlanTensor view;
    unsigned char *memory, *at; /* GUARD bytes before and behind */
    size_t bytes;
} Tensor;

static inline uint32_t next_random(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 32);
}

/* Roughly normal. */
static inline double normal(void)
{
    double sum = 0;
    for (int i = 0; i < 6; i++)
        sum += next_random() / 4294967296.0 - 0.5;
    return sum * 1.4;
}

static inline int64_t place(const Tensor *t, int64_t e)
{
    return e / t->view.run * t->view.pitch + e % t->view.run;
}

static inline double get(const Tensor *t, int64_t e)
{
    int64_t i = place(t, e);
    switch (t->view.dtype) {
    case DTYPE_F64:
        return ((double *)t->at)[i];
    case DTYPE_F32:
        return ((float *)t->at)[i];
    case DTYPE_BF16:
        return bf16_to_f32(((uint16_t *)t->at)[i]);
    case DTYPE_I64:
        return (double)((int64_t *)t->at)[i];
    default:
        return ((int32_t *)t->at)[i];
    }
}

static inline void put(Tensor *t, int64_t e, double value)
{
    int64_t i = place(t, e);
    switch (t->view.dtype) {
    case DTYPE_F64:
        ((double *)t->at)[i] = value;
        break;
    case DTYPE_F32:
        ((float *)t->at)[i] = (float)value;
        break;
    case DTYPE_BF16:
        ((uint16_t *)t->at)[i] = f32_to_bf16((float)value);
        break;
    case DTYPE_I64:
        ((int64_t *)t->at)[i] = (int64_t)value;
        break;
    default:
        ((int32_t *)t->at)[i] = (int32_t)value;
        break;
    }
}

/* All bytes 0xff, NaN in every float dtype: what a kernel leaves unwritten shows. */
static inline Tensor tensor_new(DType dtype, int64_t numel, int64_t run, int64_t pitch)
{
    int64_t span = plan_ceil_div(numel, run) * pitch;
    Tensor t = {.view = {.numel = numel, .run = run, .pitch = pitch, .dtype = dtype}};
    t.bytes = (size_t)span * dtype_bytes(dtype);
    t.memory = malloc(t.bytes + 2 * GUARD);
    assert_non_null(t.memory);
    memset(t.memory, 0xff, t.bytes + 2 * GUARD);
    t.at = t.memory + GUARD;
    return t;
}

/* rows of `width`, `gap` elements between them. */
static inline Tensor matrix(DType dtype, int64_t rows, int64_t width, int64_t gap)
{
    return gap ? tensor_new(dtype, rows * width, width, width + gap)
               : tensor_new(dtype, rows * width, rows * width, rows * width);
}

static inline Tensor filled(Tensor t, double factor)
{
    for (int64_t i = 0; i < t.view.numel; i++)
        put(&t, i, normal() * factor);
    return t;
}

static inline Tensor scalar(DType dtype, double value)
{
    Tensor t = matrix(dtype, 1, 1, 0);
    put(&t, 0, value);
    return t;
}

static inline Tensor absent(void)
{
    return (Tensor){
        .view = {.offset = PLAN_ABSENT, .numel = 1, .run = 1, .pitch = 1, .dtype = DTYPE_F32}};
}

static inline void tensors_free(Tensor *t, int n)
{
    for (int i = 0; i < n; i++)
        free(t[i].memory);
}

/* -- running -- */

typedef struct Run {
    const RtKernel *kernel;
    RtCall call;
    uint32_t phase;
    uint64_t chunks, next; /* next: chunks taken */
    size_t scratch_bytes;
    bool backwards;
} Run;

static inline unsigned char *guarded(size_t bytes)
{
    unsigned char *memory = aligned_alloc(64, (bytes + 2 * GUARD + 63) / 64 * 64);
    assert_non_null(memory);
    memset(memory, 0xff, bytes + 2 * GUARD);
    return memory;
}

static inline bool guards_hold(const unsigned char *memory, size_t bytes)
{
    for (size_t i = 0; i < GUARD; i++)
        if (memory[i] != 0xff || memory[GUARD + bytes + i] != 0xff)
            return false;
    return true;
}

static inline void *run_worker(void *context)
{
    Run *run = context;
    unsigned char *scratch = guarded(run->scratch_bytes);
    for (;;) {
        uint64_t i = __atomic_fetch_add(&run->next, 1, __ATOMIC_RELAXED);
        if (i >= run->chunks)
            break;
        run->kernel->run(&run->call, run->phase, run->backwards ? run->chunks - 1 - i : i,
                         scratch + GUARD);
    }
    bool hold = guards_hold(scratch, run->scratch_bytes);
    free(scratch);
    return hold ? context : NULL;
}

static inline void run_phases(Run *run, bool threads)
{
    uint32_t phases = run->kernel->phases ? run->kernel->phases(&run->call) : 1;
    for (run->phase = 0; run->phase < phases; run->phase++) {
        run->chunks = run->kernel->chunks ? run->kernel->chunks(&run->call, run->phase) : 1;
        run->next = 0;
        pthread_t other;
        void *kept = run;
        if (threads)
            assert_int_equal(pthread_create(&other, NULL, run_worker, run), 0);
        assert_non_null(run_worker(run));
        if (threads) {
            assert_int_equal(pthread_join(other, &kept), 0);
            assert_non_null(kept);
        }
    }
}

/* Runs the kernel three times from the same state: chunks in order, backwards, and on two threads.
 * The results must be the same bits, and nothing but the tensors' elements, workspace and scratch
 * may be written. */
static inline void run_kernel(PlanKernel kernel, Tensor *t, int n, const PlanParam *p,
                              const int64_t *random, RtFault *fault)
{
    PlanTensor views[MAX_TENSORS];
    void *at[MAX_TENSORS];
    unsigned char *before[MAX_TENSORS], *first[MAX_TENSORS];
    RtFault own = {0};
    PlanInstr instr = {.kernel = kernel};
    for (int i = 0; i < n; i++) {
        views[i] = t[i].view;
        at[i] = t[i].at;
        before[i] = malloc(t[i].bytes + 1);
        first[i] = malloc(t[i].bytes + 1);
        if (t[i].bytes)
            memcpy(before[i], t[i].at, t[i].bytes);
    }
    size_t bytes = plan_workspace_bytes(kernel, p, views);
    for (int pass = 0; pass < 3; pass++) {
        unsigned char *workspace = guarded(bytes);
        Run run = {
            .kernel = &rt_kernels[kernel],
            .call = {.instr = &instr,
                     .tensor = views,
                     .param = p,
                     .at = at,
                     .workspace = workspace + GUARD,
                     .random = random,
                     .fault = fault ? fault : &own},
            .scratch_bytes = plan_scratch_bytes(kernel, p, views),
            .backwards = pass == 1,
        };
        for (int i = 0; i < n; i++)
            if (t[i].bytes)
                memcpy(t[i].at, before[i], t[i].bytes);
        run_phases(&run, pass == 2);
        assert_true(guards_hold(workspace, bytes));
        free(workspace);
        for (int i = 0; i < n; i++) {
            if (!t[i].bytes)
                continue;
            assert_true(guards_hold(t[i].memory, t[i].bytes));
            if (pass == 0)
                memcpy(first[i], t[i].at, t[i].bytes);
            else
                assert_memory_equal(first[i], t[i].at, t[i].bytes);
        }
    }
    for (int i = 0; i < n; i++) {
        free(before[i]);
        free(first[i]);
    }
    assert_false(own.raised);
}

/* -- comparing -- */

static const DType dtypes[] = {DTYPE_F64, DTYPE_F32, DTYPE_BF16};

static inline DType wide(DType dtype)
{
    return dtype == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
}

static inline double *zeros(int64_t n)
{
    double *x = calloc((size_t)n, sizeof *x);
    assert_non_null(x);
    return x;
}

/* What rounding one value to the dtype can change, relatively. */
static inline double rounding(DType dtype)
{
    return dtype == DTYPE_BF16  ? 1.0 / 256
           : dtype == DTYPE_F32 ? 1.0 / 16777216
                                : 1.0 / 9007199254740992.0;
}

/* Error of the arithmetic behind a dtype. */
static inline double arithmetic(DType dtype)
{
    return dtype == DTYPE_F64 ? 2e-15 : 1e-6;
}

/* Element e is within one rounding of `want`, and `slack` times the arithmetic's error. */
static inline void near(const Tensor *t, int64_t e, double want, double slack)
{
    DType dtype = (DType)t->view.dtype;
    double have = get(t, e), allowed = rounding(dtype) * fabs(want) + arithmetic(dtype) * slack;
    if (!(fabs(have - want) <= allowed) && have != want)
        fail_msg("element %lld: %.17g instead of %.17g, off by %.3g, allowed %.3g", (long long)e,
                 have, want, fabs(have - want), allowed);
}

/* The elements between a view's rows are still untouched. */
static inline void gaps_hold(const Tensor *t)
{
    size_t size = dtype_bytes((DType)t->view.dtype);
    for (int64_t i = 0; t->view.run < t->view.pitch && i < t->view.numel / t->view.run; i++)
        for (size_t b = (size_t)t->view.run * size; b < (size_t)t->view.pitch * size; b++)
            if (t->at[(size_t)(i * t->view.pitch) * size + b] != 0xff)
                fail_msg("written between the rows of a view");
}

#endif
