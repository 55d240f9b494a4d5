/* Matrix products as the runtime runs them, on a device: every form against f64, poisoned results,
 * twice the same bits.
 * --small leaves out the timed shapes: it also runs over the fake driver of tests/unit. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cuda/gemm.h"
#include "runtime/cuda/load.h"
#include "runtime/cuda/memory.h"

enum { ROOM = 512 << 20, PIECES = 4, PIECE = ROOM / PIECES, WORKSPACE = 32 << 20, RUNS = 10 };

typedef struct Case {
    int64_t m, n, k;
    bool ta, tb;
    DType in, out;
    int64_t pad; /* elements between rows */
    bool bias;
    double beta;
    int64_t batch;
} Case;

static const Case cases[] = {
    {64, 48, 32, false, false, DTYPE_F32, DTYPE_F32, 0, false, 0, 1},
    {64, 48, 32, true, false, DTYPE_F32, DTYPE_F32, 0, true, 0, 1},
    {64, 48, 32, false, true, DTYPE_F32, DTYPE_F32, 8, false, 0, 1},
    {64, 48, 32, true, true, DTYPE_F32, DTYPE_F32, 0, false, 1, 1},
    {80, 131, 48, false, true, DTYPE_F32, DTYPE_F32, 5, false, 0, 1},
    {1, 33, 7, false, false, DTYPE_F32, DTYPE_F32, 0, true, 0, 1},
    {64, 48, 32, false, false, DTYPE_BF16, DTYPE_BF16, 0, true, 0, 1},
    {64, 48, 32, true, false, DTYPE_BF16, DTYPE_BF16, 0, false, 0, 1},
    {64, 48, 32, false, true, DTYPE_BF16, DTYPE_BF16, 8, true, 0, 1},
    {64, 48, 32, false, true, DTYPE_BF16, DTYPE_F32, 0, false, 0, 1},
    {64, 48, 32, false, false, DTYPE_BF16, DTYPE_F32, 16, false, 1, 1},
    {80, 131, 48, false, true, DTYPE_BF16, DTYPE_BF16, 5, false, 0, 1},
    {17, 19, 23, true, false, DTYPE_BF16, DTYPE_BF16, 1, false, 0, 1},
    {64, 48, 32, false, true, DTYPE_BF16, DTYPE_BF16, 0, false, 0, 3},
    {64, 48, 32, true, false, DTYPE_F32, DTYPE_F32, 0, false, 0, 2},
};

/* Shapes of the full-size models; the first is the ceiling. */
static const Case timed[] = {
    {8192, 8192, 8192, false, true, DTYPE_BF16, DTYPE_BF16, 0, false, 0, 1},
    {2048, 10240, 2560, false, true, DTYPE_BF16, DTYPE_BF16, 0, false, 0, 1},
    {2048, 2560, 10240, false, false, DTYPE_BF16, DTYPE_BF16, 0, false, 0, 1},
    {10240, 2560, 2048, true, false, DTYPE_BF16, DTYPE_BF16, 0, false, 0, 1},
    {16384, 8192, 2048, false, true, DTYPE_BF16, DTYPE_BF16, 0, false, 0, 1},
    {8192, 2048, 16384, true, false, DTYPE_BF16, DTYPE_BF16, 0, false, 0, 1},
    {16384, 4096, 2048, false, true, DTYPE_BF16, DTYPE_F32, 0, false, 0, 1},
};

typedef struct Bench {
    RtCuda cuda;
    RtCudaMapped room, workspace;
    unsigned char *host[PIECES], *again; /* a, b, c, bias */
} Bench;

static double element(DType dtype, const void *at, int64_t i)
{
    return dtype == DTYPE_BF16 ? (double)bf16_to_f32(((const uint16_t *)at)[i])
                               : (double)((const float *)at)[i];
}

static void fill(DType dtype, void *at, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        float value = (float)(int32_t)(seed >> 32) / 2147483648.0f;
        if (dtype == DTYPE_BF16)
            ((uint16_t *)at)[i] = f32_to_bf16(value);
        else
            ((float *)at)[i] = value;
    }
}

static RtGemm gemm_of(const Bench *b, const Case *c)
{
    RtGemm g = {
        .m = c->m, .n = c->n, .k = c->k, .ta = c->ta, .tb = c->tb, .alpha = 1, .beta = c->beta};
    g.a_type = g.b_type = c->in;
    g.c_type = g.bias_type = c->out;
    g.lda = (c->ta ? c->m : c->k) + c->pad;
    g.ldb = (c->tb ? c->k : c->n) + c->pad;
    g.ldc = c->n + c->pad;
    g.batch = c->batch;
    g.stride_a = (c->ta ? c->k : c->m) * g.lda;
    g.stride_b = (c->tb ? c->n : c->k) * g.ldb;
    g.stride_c = c->m * g.ldc;
    g.a = (void *)(uintptr_t)b->room.at;
    g.b = (void *)(uintptr_t)(b->room.at + PIECE);
    g.c = (void *)(uintptr_t)(b->room.at + 2 * (uint64_t)PIECE);
    g.bias = c->bias ? (void *)(uintptr_t)(b->room.at + 3 * (uint64_t)PIECE) : NULL;
    return g;
}

static Status send(Bench *b, int piece, uint64_t bytes)
{
    CUdeviceptr at = b->room.at + (uint64_t)piece * PIECE;
    return rt_cuda_result(&b->cuda,
                          b->cuda.driver.MemcpyHtoDAsync(at, b->host[piece], bytes, b->cuda.stream),
                          "sending");
}

static Status run_once(Bench *b, const RtGemm *g, uint64_t c_bytes, void *out)
{
    TRY(send(b, 2, c_bytes));
    TRY(rt_cuda_gemm(&b->cuda, g));
    TRY(rt_cuda_result(
        &b->cuda,
        b->cuda.driver.MemcpyDtoHAsync(out, (CUdeviceptr)(uintptr_t)g->c, c_bytes, b->cuda.stream),
        "fetching"));
    return rt_cuda_result(&b->cuda, b->cuda.driver.StreamSynchronize(b->cuda.stream), "waiting");
}

/* Relative L2 error of what is in `got`, and whether the room between rows is untouched. */
static double error_of(const Bench *b, const Case *c, const RtGemm *g, const void *before,
                       const void *got, bool *out_clean)
{
    double top = 0, bottom = 0;
    *out_clean = true;
    for (int64_t s = 0; s < c->batch; s++)
        for (int64_t i = 0; i < c->m; i++)
            for (int64_t j = 0; j < g->ldc; j++) {
                int64_t at = s * g->stride_c + i * g->ldc + j;
                if (j >= c->n) {
                    *out_clean &= element(c->out, before, at) == element(c->out, got, at);
                    continue;
                }
                double want = c->beta * element(c->out, before, at);
                if (c->bias)
                    want += element(c->out, b->host[3], j);
                for (int64_t k = 0; k < c->k; k++)
                    want += element(c->in, b->host[0],
                                    s * g->stride_a + (c->ta ? k * g->lda + i : i * g->lda + k)) *
                            element(c->in, b->host[1],
                                    s * g->stride_b + (c->tb ? j * g->ldb + k : k * g->ldb + j));
                double difference = element(c->out, got, at) - want;
                top += difference * difference;
                bottom += want * want;
            }
    return sqrt(top / bottom);
}

static Status check(Bench *b, const Case *c, bool *out_right)
{
    RtGemm g = gemm_of(b, c);
    uint64_t in = dtype_bytes(c->in), out = dtype_bytes(c->out),
             c_bytes = (uint64_t)(g.stride_c * c->batch) * out;
    fill(c->in, b->host[0], g.stride_a * c->batch, 1);
    fill(c->in, b->host[1], g.stride_b * c->batch, 2);
    fill(c->out, b->host[2], g.stride_c * c->batch, 3);
    fill(c->out, b->host[3], c->n, 4);
    TRY(send(b, 0, (uint64_t)(g.stride_a * c->batch) * in));
    TRY(send(b, 1, (uint64_t)(g.stride_b * c->batch) * in));
    TRY(send(b, 3, (uint64_t)c->n * out));
    unsigned char *first = b->again, *second = b->again + PIECE;
    TRY(run_once(b, &g, c_bytes, first));
    TRY(run_once(b, &g, c_bytes, second));
    bool clean, same = !memcmp(first, second, c_bytes);
    double error = error_of(b, c, &g, b->host[2], first, &clean),
           bound = c->out == DTYPE_BF16 ? 4e-3 : 1e-6;
    bool right = error <= bound && clean && same;
    printf("%s | %lldx%lldx%lld %c%c %s %s pad %lld%s%s batch %lld | error %.2e of %.0e%s%s\n",
           right ? "ok" : "FAIL", (long long)c->m, (long long)c->n, (long long)c->k,
           c->ta ? 't' : 'n', c->tb ? 't' : 'n', dtype_name(c->in), dtype_name(c->out),
           (long long)c->pad, c->bias ? " bias" : "", c->beta != 0 ? " adds" : "",
           (long long)c->batch, error, bound, clean ? "" : ", wrote between the rows",
           same ? "" : ", two runs differ");
    *out_right &= right;
    return STATUS_OK;
}

static Status time_case(Bench *b, const Case *c)
{
    static const char what[] = "timing";
    RtGemm g = gemm_of(b, c);
    CUevent begin, end;
    float ms = 0;
    TRY(rt_cuda_result(&b->cuda, b->cuda.driver.EventCreate(&begin, CU_EVENT_DEFAULT), what));
    TRY(rt_cuda_result(&b->cuda, b->cuda.driver.EventCreate(&end, CU_EVENT_DEFAULT), what));
    for (int i = -3; i < RUNS; i++) {
        if (i == 0)
            TRY(rt_cuda_result(&b->cuda, b->cuda.driver.EventRecord(begin, b->cuda.stream), what));
        TRY(rt_cuda_gemm(&b->cuda, &g));
    }
    TRY(rt_cuda_result(&b->cuda, b->cuda.driver.EventRecord(end, b->cuda.stream), what));
    TRY(rt_cuda_result(&b->cuda, b->cuda.driver.EventSynchronize(end), what));
    TRY(rt_cuda_result(&b->cuda, b->cuda.driver.EventElapsedTime(&ms, begin, end), what));
    double seconds = (double)ms / 1e3 / RUNS;
    printf("time | %lldx%lldx%lld %c%c %s | %.1f us, %.1f TFLOP/s\n", (long long)c->m,
           (long long)c->n, (long long)c->k, c->ta ? 't' : 'n', c->tb ? 't' : 'n',
           dtype_name(c->out), seconds * 1e6,
           2e-12 * (double)c->m * (double)c->n * (double)c->k / seconds);
    b->cuda.driver.EventDestroy(begin);
    b->cuda.driver.EventDestroy(end);
    return STATUS_OK;
}

static Status run_all(Bench *b, bool small)
{
    bool right = true;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
        TRY(check(b, &cases[i], &right));
    if (!small) { /* random operands: zeros would run faster */
        fill(DTYPE_BF16, b->host[0], PIECE / 2, 5);
        TRY(send(b, 0, PIECE));
        memcpy(b->host[1], b->host[0], PIECE);
        TRY(send(b, 1, PIECE));
    }
    for (unsigned i = 0; !small && i < sizeof timed / sizeof *timed; i++)
        TRY(time_case(b, &timed[i]));
    rt_cuda_gemms_print(&b->cuda, stdout);
    printf("%s: %u forms\n", right ? "all right" : "FAILED",
           (unsigned)(sizeof cases / sizeof *cases));
    return right ? STATUS_OK : STATUS_CHECK;
}

static Status open_bench(Session *s, Bench *b)
{
    TRY(rt_cuda_open(s, &b->cuda));
    TRY(rt_cuda_map(&b->cuda, ROOM, &b->room));
    TRY(rt_cuda_map(&b->cuda, WORKSPACE, &b->workspace));
    b->cuda.library_workspace = (void *)(uintptr_t)b->workspace.at;
    b->cuda.library_workspace_bytes = WORKSPACE;
    TRY(rt_cuda_gemms_open(&b->cuda));
    for (int i = 0; i < PIECES; i++)
        b->host[i] = calloc(1, PIECE);
    b->again = calloc(2, PIECE);
    return STATUS_OK;
}

int main(int argc, char **argv)
{
    Session *s = session_new(stderr);
    Bench *b = calloc(1, sizeof *b);
    Status status = open_bench(s, b);
    if (status == STATUS_OK)
        status = run_all(b, argc > 1 && !strcmp(argv[1], "--small"));
    rt_cuda_gemms_close(&b->cuda);
    rt_cuda_unmap(&b->cuda, &b->workspace);
    rt_cuda_unmap(&b->cuda, &b->room);
    rt_cuda_close(&b->cuda);
    for (int i = 0; i < PIECES; i++)
        free(b->host[i]);
    free(b->again);
    free(b);
    session_free(s);
    return status;
}
