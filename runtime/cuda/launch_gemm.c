#include "runtime/abi/workspace.h"
#include "runtime/cuda/launch_view.h"

Status rt_cuda_launch_gemm(RtCuda *cuda, const RtCall *call)
{
    const PlanParam *p = call->param;
    const PlanTensor *t = call->tensor;
    int64_t m = p[PLAN_gemm_m].i, n = p[PLAN_gemm_n].i, k = p[PLAN_gemm_k].i;
    bool ta = p[PLAN_gemm_ta].i != 0, tb = p[PLAN_gemm_tb].i != 0;
    RtGemm gemm = {
        .m = m,
        .n = n,
        .k = k,
        .ta = ta,
        .tb = tb,
        .a = call->at[PLAN_T_gemm_a],
        .b = call->at[PLAN_T_gemm_b],
        .bias = call->at[PLAN_T_gemm_bias],
        .c = call->at[PLAN_T_gemm_c],
        .lda = plan_row_pitch(&t[PLAN_T_gemm_a], ta ? m : k),
        .ldb = plan_row_pitch(&t[PLAN_T_gemm_b], tb ? k : n),
        .ldc = plan_row_pitch(&t[PLAN_T_gemm_c], n),
        .a_type = (DType)t[PLAN_T_gemm_a].dtype,
        .b_type = (DType)t[PLAN_T_gemm_b].dtype,
        .c_type = (DType)t[PLAN_T_gemm_c].dtype,
        .bias_type = (DType)t[PLAN_T_gemm_bias].dtype,
        .alpha = 1,
    };
    if (!gemm.lda || !gemm.ldb || !gemm.ldc)
        return rt_cuda_refuse(cuda, call, "the rows of an operand are not evenly spaced");
    return rt_cuda_gemm(cuda, &gemm);
}
