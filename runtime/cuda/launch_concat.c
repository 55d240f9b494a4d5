#include "runtime/cuda/launch_view.h"

Status rt_cuda_launch_concat(RtCuda *cuda, const RtCall *call)
{
    const PlanParam *p = call->param;
    int64_t n = p[PLAN_concat_n].i;
    CudaConcat x = {.y = rt_cuda_view(call, PLAN_T_concat_y), .rows = p[PLAN_concat_rows].i};
    x.width = call->tensor[PLAN_T_concat_y].numel / x.rows;
    x.part_width = x.width / n;
    for (int64_t i = 0; i <= n; i++)
        if (call->at[i] && !rt_cuda_is_real(call->tensor[i].dtype))
            return rt_cuda_refuse(cuda, call, "concat takes bf16 or f32");
    for (x.first = 0; x.first < n; x.first += x.count) {
        x.count = (int32_t)plan_min(CUDA_CONCAT_PARTS, n - x.first);
        for (int32_t i = 0; i < x.count; i++) {
            x.part[i] = rt_cuda_view(call, (int)(1 + x.first + i));
            if (!x.part[i].at) /* its tensor says nothing */
                x.part[i].run = x.part[i].pitch = 1;
        }
        int64_t elements = x.rows * x.count * x.part_width;
        TRY(rt_cuda_run(cuda, "concat", rt_cuda_grid(elements, 256 * 8, cuda->multiprocessors * 16),
                        256, 0, &x));
    }
    return STATUS_OK;
}
