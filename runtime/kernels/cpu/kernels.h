/* kernels: the functions behind the table of CPU kernels (runtime/abi/kernels.def says what each computes). */
#ifndef RUNTIME_KERNELS_CPU_KERNELS_H
#define RUNTIME_KERNELS_CPU_KERNELS_H

#include "runtime/kernel.h"

/* Once per process, before any kernel runs: every library call is single-threaded. */
void rt_cpu_kernels_start(void);

#define RT_PHASES(name) uint32_t rt_##name##_phases(const RtCall *call);
#define RT_CHUNKS(name) uint64_t rt_##name##_chunks(const RtCall *call, uint32_t phase);
#define RT_RUN(name) void rt_##name##_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch);

extern const RtKernel rt_kernel_fused; /* runtime/fused.c */

RT_CHUNKS(gemm) RT_RUN(gemm)
RT_CHUNKS(embed) RT_RUN(embed)
RT_PHASES(embed_grad) RT_CHUNKS(embed_grad) RT_RUN(embed_grad)
RT_CHUNKS(rope_table) RT_RUN(rope_table)
RT_CHUNKS(attention) RT_RUN(attention)
RT_PHASES(attention_grad) RT_CHUNKS(attention_grad) RT_RUN(attention_grad)
RT_PHASES(lm_loss) RT_CHUNKS(lm_loss) RT_RUN(lm_loss)
RT_PHASES(lm_loss_grad) RT_CHUNKS(lm_loss_grad) RT_RUN(lm_loss_grad)
RT_CHUNKS(concat) RT_RUN(concat)
RT_RUN(count_targets)
RT_CHUNKS(accumulate) RT_RUN(accumulate)
RT_PHASES(norm_sq) RT_CHUNKS(norm_sq) RT_RUN(norm_sq)
RT_RUN(grad_norm)
RT_RUN(loss_mean)
RT_CHUNKS(adamw) RT_RUN(adamw)
RT_CHUNKS(sgd) RT_RUN(sgd)
RT_RUN(advance)

#endif
