/* real_f64: arithmetic in f64 for the templates (*.inc.h) included after it. No include guard on
 * purpose. */
#undef REAL
#undef REAL_DTYPE
#undef R
#undef REAL_EXP
#undef REAL_TANH
#undef REAL_LOG
#undef REAL_SQRT
#undef REAL_GEMM
#undef VEC
#undef VEC_LANES
#undef VEC_ZERO
#undef VEC_LOAD
#undef VEC_STORE
#undef VEC_SET
#undef VEC_FMA
#undef VEC_ADD
#undef VEC_MAX

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
