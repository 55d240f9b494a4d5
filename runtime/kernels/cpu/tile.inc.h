/* tile, per arithmetic type: conversion to and from a tensor's elements. */

static inline void R(rt_load)(REAL *restrict to, const void *from, uint32_t dtype, int64_t first,
                              int64_t n)
{
    if (dtype == DTYPE_F32) {
        const float *x = (const float *)from + first;
        for (int64_t i = 0; i < n; i++)
            to[i] = (REAL)x[i];
    } else if (dtype == DTYPE_BF16) {
        const uint16_t *x = (const uint16_t *)from + first;
        for (int64_t i = 0; i < n; i++)
            to[i] = (REAL)rt_float_of_bits((uint32_t)x[i] << 16);
    } else {
        const double *x = (const double *)from + first;
        for (int64_t i = 0; i < n; i++)
            to[i] = (REAL)x[i];
    }
}

static inline void R(rt_store)(void *to, uint32_t dtype, int64_t first, const REAL *restrict from,
                               int64_t n)
{
    if (dtype == DTYPE_F32) {
        float *y = (float *)to + first;
        for (int64_t i = 0; i < n; i++)
            y[i] = (float)from[i];
    } else if (dtype == DTYPE_BF16) {
        uint16_t *y = (uint16_t *)to + first;
        for (int64_t i = 0; i < n; i++)
            y[i] = rt_round_bf16((float)from[i]);
    } else {
        double *y = (double *)to + first;
        for (int64_t i = 0; i < n; i++)
            y[i] = (double)from[i];
    }
}

static inline void R(rt_view_load)(REAL *restrict to, const void *from, const PlanTensor *view,
                                   int64_t first, int64_t n)
{
    while (n > 0) {
        int64_t left, at = rt_view_at(view, first, &left), count = plan_min(n, left);
        R(rt_load)(to, from, view->dtype, at, count);
        to += count;
        first += count;
        n -= count;
    }
}

static inline void R(rt_view_store)(void *to, const PlanTensor *view, int64_t first,
                                    const REAL *restrict from, int64_t n)
{
    while (n > 0) {
        int64_t left, at = rt_view_at(view, first, &left), count = plan_min(n, left);
        R(rt_store)(to, view->dtype, at, from, count);
        from += count;
        first += count;
        n -= count;
    }
}
