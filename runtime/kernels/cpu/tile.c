#include "runtime/kernels/cpu/tile.h"

void rt_view_zero(void *to, const PlanTensor *view, int64_t first, int64_t n)
{
    size_t bytes = dtype_bytes((DType)view->dtype);
    while (n > 0) {
        int64_t left, at = rt_view_at(view, first, &left), count = plan_min(n, left);
        memset((char *)to + (size_t)at * bytes, 0, (size_t)count * bytes);
        first += count;
        n -= count;
    }
}

static void copy_same(void *to, const PlanTensor *to_view, int64_t to_first, const void *from,
                      const PlanTensor *from_view, int64_t from_first, int64_t n)
{
    size_t bytes = dtype_bytes((DType)to_view->dtype);
    while (n > 0) {
        int64_t to_left, from_left;
        int64_t to_at = rt_view_at(to_view, to_first, &to_left);
        int64_t from_at = rt_view_at(from_view, from_first, &from_left);
        int64_t count = plan_min(n, plan_min(to_left, from_left));
        memcpy((char *)to + (size_t)to_at * bytes, (const char *)from + (size_t)from_at * bytes,
               (size_t)count * bytes);
        to_first += count;
        from_first += count;
        n -= count;
    }
}

void rt_view_copy(void *to, const PlanTensor *to_view, int64_t to_first, const void *from,
                  const PlanTensor *from_view, int64_t from_first, int64_t n)
{
    if (to_view->dtype == from_view->dtype) {
        copy_same(to, to_view, to_first, from, from_view, from_first, n);
        return;
    }
    double block[RT_BLOCK];
    for (int64_t i = 0; i < n; i += RT_BLOCK) {
        int64_t count = plan_min(RT_BLOCK, n - i);
        rt_view_load_f64(block, from, from_view, from_first + i, count);
        rt_view_store_f64(to, to_view, to_first + i, block, count);
    }
}
