/* cuBLASLt as a plain loop, column-major as it is there, for f32 and bf16. */
#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "fake_cuda.h"

typedef struct Layout {
    cudaDataType_t type;
    int64_t rows, cols, ld, stride;
    int32_t batch;
} Layout;

typedef struct Desc {
    cublasOperation_t ta, tb;
    cublasLtEpilogue_t epilogue;
    cudaDataType_t bias_type;
    const void *bias;
} Desc;

typedef struct Product {
    Desc desc;
    Layout a, b, c;
    const void *at_a, *at_b;
    void *at_c;
    float alpha, beta;
    int backwards;
} Product;

size_t cublasLtGetVersion(void)
{
    return fake_cuda_mode("lt_old") ? 120000 : 130100;
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                                 : "CUBLAS_STATUS_OTHER";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = malloc(1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    Desc *desc = calloc(1, sizeof *desc);
    *desc = (Desc){CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, CUDA_R_32F, NULL};
    *out = (cublasLtMatmulDesc_t)(void *)desc;
    return compute == CUBLAS_COMPUTE_32F && scale == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS
                                                                : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    free(desc);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t at,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    Desc *desc = (Desc *)(void *)at;
    void *to = attribute == CUBLASLT_MATMUL_DESC_TRANSA           ? (void *)&desc->ta
               : attribute == CUBLASLT_MATMUL_DESC_TRANSB         ? (void *)&desc->tb
               : attribute == CUBLASLT_MATMUL_DESC_EPILOGUE       ? (void *)&desc->epilogue
               : attribute == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE ? (void *)&desc->bias_type
               : attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER   ? (void *)&desc->bias
                                                                  : NULL;
    if (!to)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    Layout *layout = calloc(1, sizeof *layout);
    *layout = (Layout){type, (int64_t)rows, (int64_t)cols, ld, 0, 1};
    *out = (cublasLtMatrixLayout_t)(void *)layout;
    return ld >= (int64_t)rows ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    free(layout);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t at,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t bytes)
{
    Layout *layout = (Layout *)(void *)at;
    if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
        memcpy(&layout->batch, value, bytes);
    else if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
        memcpy(&layout->stride, value, bytes);
    else
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    *out = malloc(1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    free(preference);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes)
{
    (void)preference;
    (void)attribute;
    (void)value;
    (void)bytes;
    return CUBLAS_STATUS_SUCCESS;
}

/* `apart`: every other rank finds another algorithm best than its neighbours do; `refuses`: and it
 * does not take theirs. */
static bool does(const char *what)
{
    const char *mode = getenv("FAKE_CUBLASLT"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    return mode && !strcmp(mode, what) && rank && atoi(rank) % 2;
}

/* Algorithm i is the word i; algorithm 0 sums out of order, and may not be taken; 3 sums from the
 * end. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t out[], int *out_n)
{
    (void)handle;
    (void)desc;
    (void)a;
    (void)b;
    (void)c;
    (void)d;
    (void)preference;
    *out_n = wanted < 4 ? wanted : 4;
    memset(out, 0, (size_t)*out_n * sizeof *out);
    for (int i = 0; i < *out_n; i++)
        out[i].algo.data[0] = (uint64_t)(does("apart") || does("refuses") ? *out_n - 1 - i : i);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void *value, size_t bytes, size_t *written)
{
    int32_t number = 0;
    if (attribute == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME && !algo->data[0])
        number = CUBLASLT_REDUCTION_SCHEME_INPLACE;
    if (attribute == CUBLASLT_ALGO_CONFIG_ID)
        number = (int32_t)algo->data[0];
    *written = 4;
    if (bytes < 4)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, &number, 4);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    (void)handle;
    (void)desc;
    (void)a;
    (void)b;
    (void)c;
    (void)d;
    memset(result, 0, sizeof *result);
    return algo->data[0] < 4 && !does("refuses") ? CUBLAS_STATUS_SUCCESS
                                                 : CUBLAS_STATUS_NOT_SUPPORTED;
}

static float element(cudaDataType_t type, const void *at, int64_t i)
{
    return type == CUDA_R_16BF ? bf16_to_f32(((const uint16_t *)at)[i]) : ((const float *)at)[i];
}

static void set_element(cudaDataType_t type, void *at, int64_t i, float value)
{
    if (type == CUDA_R_16BF)
        ((uint16_t *)at)[i] = f32_to_bf16(value);
    else
        ((float *)at)[i] = value;
}

/* Column `col` of product n, of which `a` is the left factor, depth by depth. */
static void do_column(const Product *p, int64_t n, int64_t col, int64_t depth, const float *a,
                      float *sums)
{
    int64_t rows = p->c.rows;
    memset(sums, 0, (size_t)rows * sizeof *sums);
    for (int64_t i = 0; i < depth; i++) {
        int64_t k = p->backwards ? depth - 1 - i : i;
        int64_t at = p->desc.tb == CUBLAS_OP_N ? k + col * p->b.ld : col + k * p->b.ld;
        float b = element(p->b.type, p->at_b, n * p->b.stride + at);
        for (int64_t row = 0; row < rows; row++)
            sums[row] += a[k * rows + row] * b;
    }
    for (int64_t row = 0; row < rows; row++) {
        int64_t at = n * p->c.stride + row + col * p->c.ld;
        float value = p->alpha * sums[row];
        if (p->beta != 0)
            value += p->beta * element(p->c.type, p->at_c, at);
        if (p->desc.epilogue == CUBLASLT_EPILOGUE_BIAS)
            value += element(p->desc.bias_type, p->desc.bias, row);
        set_element(p->c.type, p->at_c, at, value);
    }
}

static void do_product(const void *data)
{
    const Product *p = data;
    int64_t rows = p->c.rows, depth = p->desc.ta == CUBLAS_OP_N ? p->a.cols : p->a.rows;
    float *a = malloc((size_t)(rows * (depth + 1)) * sizeof *a);
    for (int64_t n = 0; n < p->c.batch; n++) {
        for (int64_t i = 0; i < rows * depth; i++) {
            int64_t row = i % rows, k = i / rows;
            int64_t at = p->desc.ta == CUBLAS_OP_N ? row + k * p->a.ld : k + row * p->a.ld;
            a[i] = element(p->a.type, p->at_a, n * p->a.stride + at);
        }
        for (int64_t col = 0; col < p->c.cols; col++)
            do_column(p, n, col, depth, a, a + rows * depth);
    }
    free(a);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    (void)handle;
    (void)workspace;
    (void)workspace_bytes;
    if (c != d || c_layout != d_layout || !algo->data[0])
        return CUBLAS_STATUS_INVALID_VALUE;
    if (fake_cuda_mode("anything"))
        return CUBLAS_STATUS_SUCCESS;
    Product product = {*(Desc *)(void *)desc,
                       *(Layout *)(void *)a_layout,
                       *(Layout *)(void *)b_layout,
                       *(Layout *)(void *)d_layout,
                       a,
                       b,
                       d,
                       *(const float *)alpha,
                       *(const float *)beta,
                       algo->data[0] == 3};
    fake_cuda_enqueue(do_product, &product, sizeof product, stream);
    return CUBLAS_STATUS_SUCCESS;
}
