/* real_f64: arithmetic in f64 for the templates (*.inc.h) included after it. No include guard on
 * purpose. */
#include "runtime/kernels/cpu/real_none.h"

#define REAL double
#define REAL_DTYPE DTYPE_F64
#define R(name) name##_f64
#define REAL_EXP exp
#define REAL_TANH tanh
#define REAL_LOG log
#define REAL_SQRT sqrt
#define REAL_GEMM cblas_dgemm
#define VEC __m256d
#define VEC_LANES 4
#define VEC_ZERO _mm256_setzero_pd
#define VEC_LOAD _mm256_loadu_pd
#define VEC_STORE _mm256_storeu_pd
#define VEC_SET _mm256_set1_pd
#define VEC_FMA _mm256_fmadd_pd
#define VEC_ADD _mm256_add_pd
#define VEC_MAX _mm256_max_pd
