/* launch_attention: geometry and choice of kernels for attention and its gradient. */
#ifndef RUNTIME_CUDA_LAUNCH_ATTENTION_H
#define RUNTIME_CUDA_LAUNCH_ATTENTION_H

#include "runtime/cuda/launch_view.h"

/* The parameters that attention and attention_grad have alike, and the optional tensors. */
CudaAttention rt_cuda_attention(const RtCall *call, int segments, int keep);

/* A tensor [batch, seq, heads, dim]; false: its view has no such strides. Absent: at is NULL. */
bool rt_cuda_heads(const RtCall *call, int tensor, int64_t heads, CudaHeads *out_heads);

/* Whether the tensor cores' kernels take it: bf16, and every row of a head at a multiple of 16
 * bytes. */
bool rt_cuda_heads_aligned(const CudaHeads *heads);

/* Whether a mask or a formula other than causal and window is asked for: kernels NAME_any. */
bool rt_cuda_attention_any(const CudaAttention *x);

/* The smallest head size of `sizes` (ending in 0) that dim fits in; 0: none. */
int32_t rt_cuda_head_size(const int32_t *sizes, int32_t dim);

/* The plain f32 kernels, for every case; the launch functions choose them where no other takes
 * the case. */
Status rt_cuda_attention_plain(RtCuda *cuda, const RtCall *call);
Status rt_cuda_attention_grad_plain(RtCuda *cuda, const RtCall *call);

enum { RT_CUDA_NAME = 64 };

#endif
