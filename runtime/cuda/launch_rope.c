#include "runtime/cuda/launch_view.h"
#include "runtime/kernels/rope.h"

enum { ROPE_TOKENS = 16 }; /* tables.cu */

/* Frequencies are computed here, in f64, as on the CPU, and go along with the launch. */
Status rt_cuda_launch_rope_table(RtCuda *cuda, const RtCall *call)
{
    const PlanParam *p = call->param;
    CudaRope x = {
        .cos = rt_cuda_view(call, PLAN_T_rope_table_cos),
        .sin = rt_cuda_view(call, PLAN_T_rope_table_sin),
        .positions = call->at[PLAN_T_rope_table_positions],
        .tokens = p[PLAN_rope_table_tokens].i,
        .half = p[PLAN_rope_table_dims].i / 2,
        .factor = (float)p[PLAN_rope_table_attention_factor].f,
    };
    for (x.first = 0; x.first < x.half; x.first += x.count) {
        x.count = (int32_t)plan_min(CUDA_ROPE_FREQUENCIES, x.half - x.first);
        for (int32_t i = 0; i < x.count; i++)
            x.frequency[i] = (float)rope_frequency(p, x.first + i);
        TRY(rt_cuda_run(cuda, "rope_table", rt_cuda_grid(x.tokens, ROPE_TOKENS, INT32_MAX), 256, 0,
                        &x));
    }
    return STATUS_OK;
}
