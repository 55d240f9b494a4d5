/* real_none: takes back what real_f32.h or real_f64.h has defined. No include guard on purpose. */
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
