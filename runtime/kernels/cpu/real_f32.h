/* real_f32: arithmetic in f32 for the templates (*.inc.h) included after it. No include guard on
 * purpose. */
#include "runtime/kernels/cpu/real_none.h"

#define REAL float
#define REAL_DTYPE DTYPE_F32
#define R(name) name##_f32
#define REAL_EXP rt_exp_f32
#define REAL_TANH rt_tanh_f32
#define REAL_LOG logf
#define REAL_SQRT sqrtf
#define REAL_GEMM cblas_sgemm
#define VEC __m256
#define VEC_LANES 8
#define VEC_ZERO _mm256_setzero_ps
#define VEC_LOAD _mm256_loadu_ps
#define VEC_STORE _mm256_storeu_ps
#define VEC_SET _mm256_set1_ps
#define VEC_FMA _mm256_fmadd_ps
#define VEC_ADD _mm256_add_ps
#define VEC_MAX _mm256_max_ps
