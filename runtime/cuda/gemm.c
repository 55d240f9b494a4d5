#include "runtime/cuda/gemm.h"

#include "base/diag.h"

/* cuBLASLt is column-major: a row-major C[m,n] = A B is its C'[n,m] = B' A', with the operands
 * swapped and each stored matrix read as its transpose. Its A is our B. */

enum { MOST_ALIGNED = 256 };

static cudaDataType_t data_type(DType dtype)
{
    static const cudaDataType_t types[DTYPE_COUNT] = {[DTYPE_F64] = CUDA_R_64F,
                                                      [DTYPE_F32] = CUDA_R_32F,
                                                      [DTYPE_BF16] = CUDA_R_16BF,
                                                      [DTYPE_F16] = CUDA_R_16F};
    return types[dtype];
}

static bool is_wide(const RtGemmKey *key)
{
    return key->a_type == DTYPE_F64 || key->b_type == DTYPE_F64 || key->c_type == DTYPE_F64;
}

/* -- keys -- */

static RtGemmKey key_of(const RtGemm *g)
{
    RtGemmKey key;
    memset(&key, 0, sizeof key);
    key.m = g->m;
    key.n = g->n;
    key.k = g->k;
    key.lda = g->lda ? g->lda : g->ta ? g->m : g->k;
    key.ldb = g->ldb ? g->ldb : g->tb ? g->k : g->n;
    key.ldc = g->ldc ? g->ldc : g->n;
    key.batch = g->batch > 1 ? g->batch : 1;
    if (key.batch > 1) {
        key.stride_a = g->stride_a;
        key.stride_b = g->stride_b;
        key.stride_c = g->stride_c;
    }
    key.ta = g->ta;
    key.tb = g->tb;
    key.a_type = (int32_t)g->a_type;
    key.b_type = (int32_t)g->b_type;
    key.c_type = (int32_t)g->c_type;
    key.bias_type = g->bias ? (int32_t)g->bias_type : -1;
    key.adds = g->beta != 0;
    return key;
}

static uint32_t alignment(const void *at, int64_t stride, DType dtype)
{
    uint64_t bits = (uint64_t)(uintptr_t)at | (uint64_t)stride * dtype_bytes(dtype) | MOST_ALIGNED;
    return (uint32_t)(bits & -bits);
}

static void narrow(uint32_t *align, uint32_t to)
{
    if (to < *align)
        *align = to;
}

static RtGemmEntry *find(RtCuda *cuda, const RtGemmKey *key)
{
    RtCudaGemms *gemms = cuda->gemms;
    for (uint32_t i = 0; i < gemms->entries.n; i++)
        if (!memcmp(&gemms->entries.at[i].key, key, sizeof *key))
            return &gemms->entries.at[i];
    return NULL;
}

static RtGemmEntry *note(RtCuda *cuda, const RtGemm *gemm)
{
    RtGemmKey key = key_of(gemm);
    RtGemmEntry *entry = find(cuda, &key);
    if (!entry) {
        RtGemmEntry fresh = {.key = key,
                             .sample = *gemm,
                             .align_a = MOST_ALIGNED,
                             .align_b = MOST_ALIGNED,
                             .align_c = MOST_ALIGNED};
        vec_push(cuda->s->arena, &cuda->gemms->entries, fresh);
        entry = &cuda->gemms->entries.at[cuda->gemms->entries.n - 1];
    }
    if (entry->bound)
        return entry;
    narrow(&entry->align_a, alignment(gemm->a, key.stride_a, gemm->a_type));
    narrow(&entry->align_b, alignment(gemm->b, key.stride_b, gemm->b_type));
    narrow(&entry->align_c, alignment(gemm->c, key.stride_c, gemm->c_type));
    entry->uses++;
    return entry;
}

/* -- descriptors -- */

static Status layout(RtCuda *cuda, DType dtype, int64_t rows, int64_t cols, int64_t ld,
                     const int64_t batch_stride[2], cublasLtMatrixLayout_t *out_layout)
{
    static const char what[] = "describing a matrix";
    TRY(rt_cublas_result(cuda,
                         cuda->lt.MatrixLayoutCreate(out_layout, data_type(dtype), (uint64_t)rows,
                                                     (uint64_t)cols, ld),
                         what));
    if (batch_stride[0] == 1)
        return STATUS_OK;
    int32_t count = (int32_t)batch_stride[0];
    TRY(rt_cublas_result(cuda,
                         cuda->lt.MatrixLayoutSetAttribute(
                             *out_layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
                         what));
    return rt_cublas_result(
        cuda,
        cuda->lt.MatrixLayoutSetAttribute(*out_layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                          &batch_stride[1], sizeof batch_stride[1]),
        what);
}

static Status set(RtCuda *cuda, cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                  const void *value, size_t bytes)
{
    return rt_cublas_result(cuda, cuda->lt.MatmulDescSetAttribute(desc, attribute, value, bytes),
                            "describing a matrix product");
}

Status rt_gemm_describe(RtCuda *cuda, RtGemmEntry *e)
{
    const RtGemmKey *key = &e->key;
    bool wide = is_wide(key);
    TRY(rt_cublas_result(cuda,
                         cuda->lt.MatmulDescCreate(&e->desc,
                                                   wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                                   wide ? CUDA_R_64F : CUDA_R_32F),
                         "describing a matrix product"));
    cublasOperation_t first = key->tb ? CUBLAS_OP_T : CUBLAS_OP_N,
                      second = key->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    TRY(set(cuda, e->desc, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
    TRY(set(cuda, e->desc, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
    if (key->bias_type >= 0) {
        cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
        cudaDataType_t bias = data_type((DType)key->bias_type);
        TRY(set(cuda, e->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
        TRY(set(cuda, e->desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias, sizeof bias));
    }
    const int64_t a[2] = {key->batch, key->stride_a}, b[2] = {key->batch, key->stride_b},
                  c[2] = {key->batch, key->stride_c};
    TRY(layout(cuda, (DType)key->b_type, key->tb ? key->k : key->n, key->tb ? key->n : key->k,
               key->ldb, b, &e->a));
    TRY(layout(cuda, (DType)key->a_type, key->ta ? key->m : key->k, key->ta ? key->k : key->m,
               key->lda, a, &e->b));
    return layout(cuda, (DType)key->c_type, key->n, key->m, key->ldc, c, &e->c);
}

/* -- algorithms -- */

static Status prefer(RtCuda *cuda, cublasLtMatmulPreferenceAttributes_t attribute,
                     const void *value, size_t bytes)
{
    return rt_cublas_result(
        cuda,
        cuda->lt.MatmulPreferenceSetAttribute(cuda->gemms->preference, attribute, value, bytes),
        "choosing an algorithm for a matrix product");
}

static Status prefer_for(RtCuda *cuda, const RtGemmEntry *e)
{
    /* partial sums go through the workspace in f32 and are added in one order: deterministic, and
     * rounded once */
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    TRY(prefer(cuda, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes));
    TRY(prefer(cuda, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &cuda->library_workspace_bytes,
               sizeof cuda->library_workspace_bytes));
    TRY(prefer(cuda, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &e->align_b, sizeof e->align_b));
    TRY(prefer(cuda, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &e->align_a, sizeof e->align_a));
    TRY(prefer(cuda, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &e->align_c, sizeof e->align_c));
    return prefer(cuda, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &e->align_c, sizeof e->align_c);
}

static int32_t config(const RtCuda *cuda, const cublasLtMatmulAlgo_t *algo,
                      cublasLtMatmulAlgoConfigAttributes_t which)
{
    unsigned char value[8] = {0}; /* attributes are 16 or 32 bits wide, little-endian */
    size_t written;
    int32_t number = 0;
    if (cuda->lt.MatmulAlgoConfigGetAttribute(algo, which, value, 4, &written) !=
            CUBLAS_STATUS_SUCCESS &&
        cuda->lt.MatmulAlgoConfigGetAttribute(algo, which, value, 2, &written) !=
            CUBLAS_STATUS_SUCCESS)
        return 0;
    memcpy(&number, value, 4);
    return number;
}

static bool is_deterministic(const RtCuda *cuda, const cublasLtMatmulAlgo_t *algo)
{
    int32_t scheme = config(cuda, algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
    return scheme == CUBLASLT_REDUCTION_SCHEME_NONE ||
           scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
}

Status rt_gemm_candidates(RtCuda *cuda, RtGemmEntry *e, cublasLtMatmulHeuristicResult_t *out,
                          int *out_n)
{
    cublasLtMatmulHeuristicResult_t found[RT_GEMM_CANDIDATES];
    int n = 0;
    *out_n = 0;
    if (!e->desc)
        TRY(rt_gemm_describe(cuda, e));
    TRY(prefer_for(cuda, e));
    cublasStatus_t result =
        cuda->lt.MatmulAlgoGetHeuristic(cuda->gemms->handle, e->desc, e->a, e->b, e->c, e->c,
                                        cuda->gemms->preference, RT_GEMM_CANDIDATES, found, &n);
    if (result != CUBLAS_STATUS_NOT_SUPPORTED)
        TRY(rt_cublas_result(cuda, result, "choosing an algorithm for a matrix product"));
    for (int i = 0; i < n && result == CUBLAS_STATUS_SUCCESS; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS &&
            found[i].workspaceSize <= cuda->library_workspace_bytes &&
            is_deterministic(cuda, &found[i].algo))
            out[(*out_n)++] = found[i];
    if (*out_n)
        return STATUS_OK;
    char text[RT_GEMM_TEXT];
    diag(cuda->s, no_span, cuda_gemm, rt_gemm_key_text(&e->key, text),
         (unsigned long long)cuda->library_workspace_bytes);
    return STATUS_ENV;
}

static Status bind(RtCuda *cuda, RtGemmEntry *entry)
{
    cublasLtMatmulHeuristicResult_t found[RT_GEMM_CANDIDATES];
    int n;
    TRY(rt_gemm_candidates(cuda, entry, found, &n));
    entry->algo = found[0].algo;
    entry->workspace_bytes = found[0].workspaceSize;
    entry->bound = true;
    return STATUS_OK;
}

Status rt_cuda_gemms_bind(RtCuda *cuda)
{
    for (uint32_t i = 0; i < cuda->gemms->entries.n; i++)
        if (!cuda->gemms->entries.at[i].bound)
            TRY(bind(cuda, &cuda->gemms->entries.at[i]));
    return STATUS_OK;
}

/* -- running -- */

Status rt_gemm_run(RtCuda *cuda, const RtGemmEntry *entry, const cublasLtMatmulAlgo_t *algo,
                   const RtGemm *g)
{
    float alpha32 = (float)g->alpha, beta32 = (float)g->beta;
    bool wide = is_wide(&entry->key);
    const void *alpha = wide ? (const void *)&g->alpha : &alpha32,
               *beta = wide ? (const void *)&g->beta : &beta32;
    if (g->bias)
        TRY(set(cuda, entry->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &g->bias, sizeof g->bias));
    return rt_cublas_result(
        cuda,
        cuda->lt.Matmul(cuda->gemms->handle, entry->desc, alpha, g->b, entry->a, g->a, entry->b,
                        beta, g->c, entry->c, g->c, entry->c, algo, cuda->library_workspace,
                        cuda->library_workspace_bytes, (cudaStream_t)cuda->stream),
        "running a matrix product");
}

Status rt_cuda_gemm(RtCuda *cuda, const RtGemm *gemm)
{
    RtGemmEntry *entry = note(cuda, gemm);
    if (cuda->rehearsing)
        return STATUS_OK;
    if (!entry->bound)
        TRY(bind(cuda, entry));
    return rt_gemm_run(cuda, entry, &entry->algo, gemm);
}

/* -- opening, texts -- */

Status rt_cuda_gemms_open(RtCuda *cuda)
{
    cuda->gemms = ARENA_NEW(cuda->s->arena, RtCudaGemms);
    TRY(rt_cublas_result(cuda, cuda->lt.Create(&cuda->gemms->handle), "opening cuBLASLt"));
    return rt_cublas_result(cuda, cuda->lt.MatmulPreferenceCreate(&cuda->gemms->preference),
                            "opening cuBLASLt");
}

void rt_cuda_gemms_close(RtCuda *cuda)
{
    RtCudaGemms *gemms = cuda->gemms;
    if (!gemms)
        return;
    for (uint32_t i = 0; i < gemms->entries.n; i++) {
        RtGemmEntry *e = &gemms->entries.at[i];
        const cublasLtMatrixLayout_t layouts[] = {e->a, e->b, e->c};
        for (int l = 0; l < 3; l++)
            if (layouts[l])
                cuda->lt.MatrixLayoutDestroy(layouts[l]);
        if (e->desc)
            cuda->lt.MatmulDescDestroy(e->desc);
    }
    if (gemms->preference)
        cuda->lt.MatmulPreferenceDestroy(gemms->preference);
    if (gemms->handle)
        cuda->lt.Destroy(gemms->handle);
    cuda->gemms = NULL;
}

const char *rt_gemm_key_text(const RtGemmKey *k, char out_text[RT_GEMM_TEXT])
{
    int n = snprintf(out_text, RT_GEMM_TEXT, "%lldx%lldx%lld %s%s %s %s %s", (long long)k->m,
                     (long long)k->n, (long long)k->k, k->ta ? "t" : "n", k->tb ? "t" : "n",
                     dtype_name((DType)k->a_type), dtype_name((DType)k->b_type),
                     dtype_name((DType)k->c_type));
    n += snprintf(out_text + n, RT_GEMM_TEXT - (size_t)n, " ld %lld,%lld,%lld%s%s%s",
                  (long long)k->lda, (long long)k->ldb, (long long)k->ldc, k->adds ? " adds" : "",
                  k->bias_type >= 0 ? " bias " : "",
                  k->bias_type >= 0 ? dtype_name((DType)k->bias_type) : "");
    if (k->batch > 1)
        snprintf(out_text + n, RT_GEMM_TEXT - (size_t)n, " batch %lld %lld,%lld,%lld",
                 (long long)k->batch, (long long)k->stride_a, (long long)k->stride_b,
                 (long long)k->stride_c);
    return out_text;
}

const char *rt_gemm_algo_text(const RtCuda *cuda, const RtGemmEntry *e, char out_text[RT_GEMM_TEXT])
{
    const cublasLtMatmulAlgo_t *algo = &e->algo;
    snprintf(out_text, RT_GEMM_TEXT,
             "id %d tile %d stages %d split %d reduction %d swizzle %d custom %d cluster %d",
             config(cuda, algo, CUBLASLT_ALGO_CONFIG_ID),
             config(cuda, algo, CUBLASLT_ALGO_CONFIG_TILE_ID),
             config(cuda, algo, CUBLASLT_ALGO_CONFIG_STAGES_ID),
             config(cuda, algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
             config(cuda, algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME),
             config(cuda, algo, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING),
             config(cuda, algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION),
             config(cuda, algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID));
    return out_text;
}

void rt_cuda_gemms_print(const RtCuda *cuda, FILE *out)
{
    for (uint32_t i = 0; i < cuda->gemms->entries.n; i++) {
        const RtGemmEntry *e = &cuda->gemms->entries.at[i];
        char key[RT_GEMM_TEXT], algo[RT_GEMM_TEXT];
        fprintf(out, "product | %s | %llu times | %s | workspace %llu B",
                rt_gemm_key_text(&e->key, key), (unsigned long long)e->uses,
                rt_gemm_algo_text(cuda, e, algo), (unsigned long long)e->workspace_bytes);
        if (e->microseconds > 0)
            fprintf(out, " | %.2f us, %.1f TFLOP/s", e->microseconds,
                    2e-6 * (double)e->key.m * (double)e->key.n * (double)e->key.k *
                        (double)e->key.batch / e->microseconds);
        fprintf(out, " | %s\n", e->tuned ? "tuned" : "first heuristic");
    }
}
