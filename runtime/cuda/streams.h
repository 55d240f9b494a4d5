/* streams: exchanges between ranks run on a stream of their own, beside the launches that need not
 * wait for them. What has to wait follows from the arena: launches of two streams that touch the
 * same bytes run in the order of the list. So results are those of the list, whatever overlaps. */
#ifndef RUNTIME_CUDA_STREAMS_H
#define RUNTIME_CUDA_STREAMS_H

#include "runtime/cuda/exec.h"

/* Decides which launches run on which stream and wait for which, and makes the events. */
Status rt_cuda_streams_plan(RtCuda *cuda, RtCudaExec *exec);
void rt_cuda_streams_release(RtCuda *cuda, RtCudaExec *exec);

/* The exchanges' stream begins where the main one stands, and the main one goes on when both are
 * done. Without exchanges both do nothing. */
Status rt_cuda_streams_fork(RtCuda *cuda, RtCudaExec *exec);
Status rt_cuda_streams_join(RtCuda *cuda, RtCudaExec *exec);
/* Around launch `index` of those from launch `first` on: the ones before are over. */
Status rt_cuda_streams_enter(RtCuda *cuda, RtCudaExec *exec, uint32_t index, uint32_t first);
Status rt_cuda_streams_leave(RtCuda *cuda, RtCudaExec *exec, uint32_t index);

#endif
