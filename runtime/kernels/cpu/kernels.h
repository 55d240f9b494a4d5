/* kernels: the functions behind the table of CPU kernels (runtime/abi/kernels.def says what each
 * computes). */
#ifndef RUNTIME_KERNELS_CPU_KERNELS_H
#define RUNTIME_KERNELS_CPU_KERNELS_H

#include "runtime/kernel.h"

/* Once per process, before any kernel runs: every library call is single-threaded. */
void rt_cpu_kernels_start(void);
void rt_gemm_start(uint32_t threads);

extern const RtKernel rt_kernel_fused; /* runtime/fused.c */

/* What a kernel has beside its one run function: several phases, several chunks. */
#define RT_RUN(name)                                                                               \
    void rt_##name##_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
#define RT_CHUNKS(name)                                                                            \
    uint64_t rt_##name##_chunks(const RtCall *call, uint32_t phase);                               \
    RT_RUN(name)
#define RT_PHASES(name)                                                                            \
    uint32_t rt_##name##_phases(const RtCall *call);                                               \
    RT_CHUNKS(name)

RT_CHUNKS(gemm);
RT_CHUNKS(embed);
RT_PHASES(embed_grad);
RT_CHUNKS(rope_table);
RT_CHUNKS(attention);
RT_PHASES(attention_grad);
RT_PHASES(lm_loss);
RT_PHASES(lm_loss_grad);
RT_PHASES(lm_loss_with_grad);
RT_CHUNKS(concat);
RT_RUN(count_targets);
RT_CHUNKS(accumulate);
RT_PHASES(norm_sq);
RT_RUN(grad_norm);
RT_RUN(loss_mean);
RT_CHUNKS(adamw);
RT_CHUNKS(sgd);
RT_RUN(advance);
RT_RUN(invert_count);
RT_CHUNKS(embed_part);
RT_PHASES(lm_loss_part);
RT_RUN(lm_loss_join);
RT_RUN(sum_scalars);
RT_RUN(all_gather);
RT_RUN(reduce_scatter);
RT_RUN(all_reduce);
RT_CHUNKS(take_part);
RT_RUN(send);
RT_RUN(recv);
RT_PHASES(flat_pack);

#undef RT_RUN
#undef RT_CHUNKS
#undef RT_PHASES

#endif
