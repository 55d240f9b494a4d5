#include "tests/device/harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { GUARD = 256 };

RtCuda test_cuda;
const int64_t test_random[3] = {7, 1234, 40};
bool test_small, test_bench;

/* -- random numbers -- */

static uint64_t random_state = 1;

void random_seed(uint64_t seed)
{
    random_state = seed * 2 + 1;
}

uint32_t next_random(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

/* Roughly normal: the sum of four uniform numbers. */
double random_normal(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    uint64_t x = random_state ^ random_state >> 29;
    double sum = (double)(x & 0xffff) + (double)(x >> 16 & 0xffff) + (double)(x >> 32 & 0xffff) +
                 (double)(x >> 48);
    return (sum - 131070.0) * (1.7320508075688772 / 65536.0);
}

/* -- tensors -- */

Tensor tensor_new(DType dtype, int64_t numel, int64_t run, int64_t pitch)
{
    Tensor t = {.view = {.numel = numel, .run = run, .pitch = pitch, .dtype = dtype}};
    int64_t rows = plan_ceil_div(numel, run);
    t.bytes = (size_t)((rows - 1) * pitch + numel - (rows - 1) * run) * dtype_bytes(dtype);
    t.host = malloc(t.bytes);
    if (!t.host)
        abort();
    memset(t.host, 0xff, t.bytes);
    /* nothing behind it: reads behind the end shall fail, where the device can tell */
    t.memory = device_alloc(GUARD + t.bytes);
    t.device = t.memory + GUARD;
    device_fill(t.memory, 0xa5, GUARD);
    return t;
}

Tensor tensor_dense(DType dtype, int64_t numel)
{
    return tensor_new(dtype, numel, numel, numel);
}

Tensor tensor_absent(void)
{
    return (Tensor){
        .view = {.offset = PLAN_ABSENT, .numel = 1, .run = 1, .pitch = 1, .dtype = DTYPE_F32}};
}

void tensor_free(Tensor *t)
{
    if (!t->memory)
        return;
    free(t->host);
    device_free(t->memory);
    *t = (Tensor){0};
}

static int64_t place(const Tensor *t, int64_t e)
{
    return e < t->view.run ? e : e / t->view.run * t->view.pitch + e % t->view.run;
}

double tensor_get(const Tensor *t, int64_t e)
{
    int64_t i = place(t, e);
    switch (t->view.dtype) {
    case DTYPE_F64:
        return ((const double *)t->host)[i];
    case DTYPE_F32:
        return ((const float *)t->host)[i];
    case DTYPE_BF16:
        return bf16_to_f32(((const uint16_t *)t->host)[i]);
    case DTYPE_I64:
        return (double)((const int64_t *)t->host)[i];
    default:
        return ((const int32_t *)t->host)[i];
    }
}

void tensor_put(Tensor *t, int64_t e, double value)
{
    int64_t i = place(t, e);
    switch (t->view.dtype) {
    case DTYPE_F64:
        ((double *)t->host)[i] = value;
        break;
    case DTYPE_F32:
        ((float *)t->host)[i] = (float)value;
        break;
    case DTYPE_BF16:
        ((uint16_t *)t->host)[i] = f32_to_bf16((float)value);
        break;
    case DTYPE_I64:
        ((int64_t *)t->host)[i] = (int64_t)value;
        break;
    default:
        ((int32_t *)t->host)[i] = (int32_t)value;
        break;
    }
}

void tensor_normal(Tensor *t, double factor)
{
    for (int64_t e = 0; e < t->view.numel; e++)
        tensor_put(t, e, random_normal() * factor);
}

void tensor_upload(const Tensor *t)
{
    if (t->memory)
        device_write(t->device, t->host, t->bytes);
}

void tensor_poison(const Tensor *t)
{
    if (t->memory)
        device_fill(t->device, 0xff, t->bytes);
}

void tensor_download(Tensor *t)
{
    if (t->memory)
        device_read(t->host, t->device, t->bytes);
}

bool tensor_guarded(const Tensor *t)
{
    unsigned char guard[GUARD];
    if (!t->memory)
        return true;
    device_read(guard, t->memory, GUARD);
    for (int i = 0; i < GUARD; i++)
        if (guard[i] != 0xa5)
            return false;
    uint32_t size = dtype_bytes((DType)t->view.dtype);
    for (size_t i = 0; i < t->bytes / size && t->view.run < t->view.pitch;
         i++) { /* between the rows: as it was, 0xff */
        if ((int64_t)i % t->view.pitch < t->view.run)
            continue;
        for (uint32_t b = 0; b < size; b++)
            if (t->host[i * size + b] != 0xff)
                return false;
    }
    return true;
}

/* -- calls -- */

void call_open(Call *c)
{
    static const PlanInstr instr;
    for (int i = 0; i < c->n_tensors; i++) {
        c->views[i] = c->tensor[i].view;
        c->at[i] = c->tensor[i].memory ? c->tensor[i].device : NULL;
        tensor_upload(&c->tensor[i]);
    }
    c->workspace_bytes = plan_cuda_workspace_bytes(c->kernel, c->param, c->views);
    c->workspace = c->workspace_bytes ? device_alloc(c->workspace_bytes) : NULL;
    void *random = device_alloc(sizeof test_random);
    device_write(random, test_random, sizeof test_random);
    c->call = (RtCall){.instr = &instr,
                       .tensor = c->views,
                       .param = c->param,
                       .at = c->at,
                       .workspace = c->workspace,
                       .random = random};
}

bool call_run(Call *c)
{
    if (c->workspace)
        device_fill(c->workspace, 0xff, c->workspace_bytes);
    device_fill(test_cuda.fault_device, 0, 8 * RT_CUDA_FAULT_WORDS);
    bool done = c->launch(&test_cuda, &c->call) == STATUS_OK;
    device_wait();
    return done;
}

void call_again(void *c)
{
    Call *call = c;
    if (call->launch(&test_cuda, &call->call) != STATUS_OK)
        abort();
}

void call_close(Call *c)
{
    for (int i = 0; i < c->n_tensors; i++)
        tensor_download(&c->tensor[i]);
}

void call_release(Call *c)
{
    if (c->workspace)
        device_free(c->workspace);
    device_free((void *)(uintptr_t)c->call.random);
    for (int i = 0; i < c->n_tensors; i++)
        tensor_free(&c->tensor[i]);
}

/* -- results -- */

void error_add(Error *e, double have, double want)
{
    if (isinf(want) && have == want)
        return;
    if (!isfinite(have) || !isfinite(want)) {
        e->bad++;
        return;
    }
    double difference = fabs(have - want);
    e->n++;
    e->norm += difference * difference;
    e->size += want * want;
    e->most = difference > e->most ? difference : e->most;
    e->largest = fabs(want) > e->largest ? fabs(want) : e->largest;
}

double error_relative(const Error *e)
{
    if (e->bad)
        return INFINITY;
    /* what is wanted may be nothing but rounding */
    double size = e->size > 1e-6 * (double)e->n ? e->size : 1e-6 * (double)e->n;
    return e->norm == 0 ? 0 : sqrt(e->norm / size);
}

static int n_failed, n_cases;

void report(const char *name, bool passed, double error, double seconds, double work)
{
    char rate[64] = "";
    if (seconds > 0 && work > 0)
        snprintf(rate, sizeof rate, " | %9.1f us | %7.1f TFLOP/s", seconds * 1e6,
                 work / seconds * 1e-12);
    else if (seconds > 0)
        snprintf(rate, sizeof rate, " | %9.1f us | %7.1f GB/s", seconds * 1e6,
                 -work / seconds * 1e-9);
    printf("%s | %-78s | error %.2e%s\n", passed ? "ok  " : "FAIL", name, error, rate);
    fflush(stdout);
    n_cases++;
    n_failed += !passed;
}

int report_end(void)
{
    printf("%d cases, %d failed\n", n_cases, n_failed);
    return n_failed;
}

/* -- what the launch functions stand on -- */

Status rt_cuda_refuse(RtCuda *cuda, const RtCall *call, const char *why)
{
    (void)cuda;
    (void)call;
    printf("     | refused: %s\n", why);
    return STATUS_ENV;
}

int64_t rt_cuda_number(const RtCuda *cuda, const RtCall *call)
{
    (void)cuda;
    (void)call;
    return 42;
}

Status rt_cuda_fill(RtCuda *cuda, void *at, unsigned char byte, uint64_t bytes)
{
    (void)cuda;
    device_fill(at, byte, bytes);
    return STATUS_OK;
}

static double element(const unsigned char *at, DType dtype, int64_t i)
{
    return dtype == DTYPE_BF16 ? bf16_to_f32(((const uint16_t *)at)[i]) : ((const float *)at)[i];
}

static unsigned char *fetch(const void *at, int64_t rows, int64_t ld, int64_t width, DType dtype)
{
    size_t bytes = (size_t)((rows - 1) * ld + width) * dtype_bytes(dtype);
    unsigned char *host = malloc(bytes);
    if (!host)
        abort();
    device_read(host, at, bytes);
    return host;
}

/* In f64 on the host: for small tensors only. */
Status rt_cuda_gemm(RtCuda *cuda, const RtGemm *g)
{
    (void)cuda;
    device_wait();
    int64_t lda = g->lda, ldb = g->ldb, ldc = g->ldc;
    unsigned char *a = fetch(g->a, g->ta ? g->k : g->m, lda, g->ta ? g->m : g->k, g->a_type);
    unsigned char *b = fetch(g->b, g->tb ? g->n : g->k, ldb, g->tb ? g->k : g->n, g->b_type);
    unsigned char *c = fetch(g->c, g->m, ldc, g->n, g->c_type);
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++) {
            double sum = g->beta != 0 ? g->beta * element(c, g->c_type, i * ldc + j) : 0;
            for (int64_t k = 0; k < g->k; k++)
                sum += g->alpha * element(a, g->a_type, g->ta ? k * lda + i : i * lda + k) *
                       element(b, g->b_type, g->tb ? j * ldb + k : k * ldb + j);
            if (g->c_type == DTYPE_BF16)
                ((uint16_t *)c)[i * ldc + j] = f32_to_bf16((float)sum);
            else
                ((float *)c)[i * ldc + j] = (float)sum;
        }
    device_write(g->c, c, (size_t)((g->m - 1) * ldc + g->n) * dtype_bytes(g->c_type));
    free(a);
    free(b);
    free(c);
    return STATUS_OK;
}
