#include <cblas.h>

#include "runtime/kernels/cpu/kernels.h"

/* A constant table cannot copy another object: the row of `fused` goes through these. */
static uint32_t fused_phases(const RtCall *call)
{
    return rt_kernel_fused.phases(call);
}

static uint64_t fused_chunks(const RtCall *call, uint32_t phase)
{
    return rt_kernel_fused.chunks(call, phase);
}

static void fused_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    rt_kernel_fused.run(call, phase, chunk, scratch);
}

void rt_cpu_kernels_start(void)
{
    openblas_set_num_threads(1);
}

const RtKernel rt_kernels[PLAN_KERNEL_COUNT] = {
    [PLAN_KERNEL_fused] = {"fused", fused_phases, fused_chunks, fused_run},
    [PLAN_KERNEL_gemm] = {"gemm", NULL, rt_gemm_chunks, rt_gemm_run, rt_gemm_start},
    [PLAN_KERNEL_embed] = {"embed", NULL, rt_embed_chunks, rt_embed_run},
    [PLAN_KERNEL_embed_grad] = {"embed_grad", rt_embed_grad_phases, rt_embed_grad_chunks,
                                rt_embed_grad_run},
    [PLAN_KERNEL_rope_table] = {"rope_table", NULL, rt_rope_table_chunks, rt_rope_table_run},
    [PLAN_KERNEL_attention] = {"attention", NULL, rt_attention_chunks, rt_attention_run},
    [PLAN_KERNEL_attention_grad] = {"attention_grad", rt_attention_grad_phases,
                                    rt_attention_grad_chunks, rt_attention_grad_run},
    [PLAN_KERNEL_lm_loss] = {"lm_loss", rt_lm_loss_phases, rt_lm_loss_chunks, rt_lm_loss_run},
    [PLAN_KERNEL_lm_loss_grad] = {"lm_loss_grad", rt_lm_loss_grad_phases, rt_lm_loss_grad_chunks,
                                  rt_lm_loss_grad_run},
    [PLAN_KERNEL_lm_loss_with_grad] = {"lm_loss_with_grad", rt_lm_loss_with_grad_phases,
                                       rt_lm_loss_with_grad_chunks, rt_lm_loss_with_grad_run},
    [PLAN_KERNEL_concat] = {"concat", NULL, rt_concat_chunks, rt_concat_run},
    [PLAN_KERNEL_count_targets] = {"count_targets", NULL, NULL, rt_count_targets_run},
    [PLAN_KERNEL_accumulate] = {"accumulate", NULL, rt_accumulate_chunks, rt_accumulate_run},
    [PLAN_KERNEL_norm_sq] = {"norm_sq", rt_norm_sq_phases, rt_norm_sq_chunks, rt_norm_sq_run},
    [PLAN_KERNEL_grad_norm] = {"grad_norm", NULL, NULL, rt_grad_norm_run},
    [PLAN_KERNEL_loss_mean] = {"loss_mean", NULL, NULL, rt_loss_mean_run},
    [PLAN_KERNEL_adamw] = {"adamw", NULL, rt_adamw_chunks, rt_adamw_run},
    [PLAN_KERNEL_sgd] = {"sgd", NULL, rt_sgd_chunks, rt_sgd_run},
    [PLAN_KERNEL_advance] = {"advance", NULL, NULL, rt_advance_run},
    [PLAN_KERNEL_embed_part] = {"embed_part", NULL, rt_embed_part_chunks, rt_embed_part_run},
    [PLAN_KERNEL_embed_part_grad] = {"embed_part_grad", rt_embed_grad_phases, rt_embed_grad_chunks,
                                     rt_embed_grad_run},
    [PLAN_KERNEL_lm_loss_part] = {"lm_loss_part", rt_lm_loss_part_phases, rt_lm_loss_part_chunks,
                                  rt_lm_loss_part_run},
    [PLAN_KERNEL_lm_loss_join] = {"lm_loss_join", NULL, NULL, rt_lm_loss_join_run},
    [PLAN_KERNEL_lm_loss_part_grad] = {"lm_loss_part_grad", rt_lm_loss_grad_phases,
                                       rt_lm_loss_grad_chunks, rt_lm_loss_grad_run},
    [PLAN_KERNEL_invert_count] = {"invert_count", NULL, NULL, rt_invert_count_run},
    [PLAN_KERNEL_sum_scalars] = {"sum_scalars", NULL, NULL, rt_sum_scalars_run},
    [PLAN_KERNEL_all_gather] = {"all_gather", NULL, NULL, rt_all_gather_run},
    [PLAN_KERNEL_reduce_scatter] = {"reduce_scatter", NULL, NULL, rt_reduce_scatter_run},
    [PLAN_KERNEL_all_reduce] = {"all_reduce", NULL, NULL, rt_all_reduce_run},
    [PLAN_KERNEL_take_part] = {"take_part", NULL, rt_take_part_chunks, rt_take_part_run},
    [PLAN_KERNEL_send] = {"send", NULL, NULL, rt_send_run},
    [PLAN_KERNEL_recv] = {"recv", NULL, NULL, rt_recv_run},
    [PLAN_KERNEL_flat_pack] = {"flat_pack", rt_flat_pack_phases, rt_flat_pack_chunks,
                               rt_flat_pack_run},
};
