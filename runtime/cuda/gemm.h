/* gemm: matrix products by cuBLASLt. Each distinct product has one entry with its descriptors and
 * the algorithm bound to it, so that an op and its replay, and every layer, run the same code. */
#ifndef RUNTIME_CUDA_GEMM_H
#define RUNTIME_CUDA_GEMM_H

#include "runtime/cuda/cuda.h"

enum { RT_GEMM_CANDIDATES = 16, RT_GEMM_TEXT = 192, RT_GEMM_ALGO_WORDS = 8 };

typedef struct RtGemmKey { /* what an algorithm is chosen by; zeroed before it is filled, compared
                              as bytes */
    int64_t m, n, k, lda, ldb, ldc, batch, stride_a, stride_b, stride_c;
    int32_t ta, tb, a_type, b_type, c_type, bias_type; /* bias_type -1: no bias */
    int32_t adds;                                      /* beta is not 0 */
    int32_t pad;
} RtGemmKey;

typedef struct RtGemmEntry {
    RtGemmKey key;
    RtGemm sample;                      /* of the rehearsal, for measuring */
    uint32_t align_a, align_b, align_c; /* bytes, the least of all its products, at most 256 */
    uint64_t uses;
    bool bound, tuned;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
    uint64_t workspace_bytes;
    double microseconds; /* measured; 0: not */
} RtGemmEntry;

typedef struct RtGemmChoice { /* a line of the tuning file, which ranks send each other too */
    uint64_t algo[RT_GEMM_ALGO_WORDS];
    uint64_t workspace_bytes;
    double microseconds;
    char key[RT_GEMM_TEXT + 32];
} RtGemmChoice;

typedef struct RtGemmChoices {
    VEC(RtGemmChoice) list;
    bool changed; /* against the file */
} RtGemmChoices;

typedef struct RtCudaGemms {
    cublasLtHandle_t handle;
    cublasLtMatmulPreference_t preference;
    VEC(RtGemmEntry) entries;
    RtGemmChoices choices; /* with --tune */
} RtCudaGemms;

Status rt_cuda_gemms_open(RtCuda *cuda);
void rt_cuda_gemms_close(RtCuda *cuda);

/* Binds every entry that has no algorithm yet: the first of cuBLASLt's heuristics that is
 * deterministic and fits. */
Status rt_cuda_gemms_bind(RtCuda *cuda);
/* The same from the tuning file; what it lacks is measured on the device, and the file written
 * anew where the process is no rank. Runs products on whatever the arena holds: before the weights
 * are there. */
Status rt_cuda_gemms_tune(RtCuda *cuda, const char *path);
/* All ranks come here after it: what several of them run is bound as the first of them has chosen,
 * since another algorithm could give other bits, and rank 0 writes the file. */
Status rt_cuda_gemms_agree(RtCuda *cuda, const char *path);
void rt_cuda_gemms_print(const RtCuda *cuda, FILE *out);

/* -- shared by the gemm*.c files -- */

Status rt_gemm_describe(RtCuda *cuda, RtGemmEntry *entry); /* makes the descriptors */
/* Candidates in the heuristics' order; only deterministic ones that fit. */
Status rt_gemm_candidates(RtCuda *cuda, RtGemmEntry *entry, cublasLtMatmulHeuristicResult_t *out,
                          int *out_n);
Status rt_gemm_run(RtCuda *cuda, const RtGemmEntry *entry, const cublasLtMatmulAlgo_t *algo,
                   const RtGemm *gemm);
/* `gemm 2048 10240 2560 nt bf16 bf16 bf16 ...`: the key as text, for logs and the tuning file. */
const char *rt_gemm_key_text(const RtGemmKey *key, char out_text[RT_GEMM_TEXT]);
const char *rt_gemm_algo_text(const RtCuda *cuda, const RtGemmEntry *entry,
                              char out_text[RT_GEMM_TEXT]);

#endif
