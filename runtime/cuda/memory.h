/* memory: the device's memory: pieces mapped by the driver's virtual memory calls, and lines of
 * what else was taken. */
#ifndef RUNTIME_CUDA_MEMORY_H
#define RUNTIME_CUDA_MEMORY_H

#include "runtime/cuda/cuda.h"

/* In whole pages, aligned to a page (2 MiB); can be shared with other processes and network
 * devices. Too little memory is one message that says what is needed and what is free. */
Status rt_cuda_map(RtCuda *cuda, uint64_t bytes, RtCudaMapped *out_mapped);
/* Another process's piece, of so many bytes; nothing is said when that fails. The handle is taken
 * over. */
CUresult rt_cuda_map_import(RtCuda *cuda, CUmemGenericAllocationHandle handle, uint64_t bytes,
                            RtCudaMapped *out_mapped);
void rt_cuda_unmap(RtCuda *cuda, RtCudaMapped *mapped);

/* What the device's memory in use has grown by since the last call becomes a line; a name that is
 * there grows. */
Status rt_cuda_measure(RtCuda *cuda, const char *name);
/* The same without a line: what was taken is accounted for elsewhere. */
Status rt_cuda_measure_skip(RtCuda *cuda);

/* The device's memory line by line, planned beside measured, and what no line explains. */
Status rt_cuda_print_memory(RtCuda *cuda, FILE *out);

#endif
