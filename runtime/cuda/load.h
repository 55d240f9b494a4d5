/* load: the driver, its device and cuBLASLt. Whatever is missing or too old is one message and
 * STATUS_ENV. */
#ifndef RUNTIME_CUDA_LOAD_H
#define RUNTIME_CUDA_LOAD_H

#include "runtime/cuda/cuda.h"

enum {
    RT_CUDA_DRIVER_VERSION = 13000, /* cuDriverGetVersion's form */
    RT_CUBLASLT_VERSION = 130000,
    RT_CUDA_CAPABILITY = 90,
};

/* The libraries, the device (the first that CUDA_VISIBLE_DEVICES leaves), its context and two
 * streams. */
Status rt_cuda_open(Session *s, RtCuda *out_cuda);
void rt_cuda_close(RtCuda *cuda); /* also of one that is half open */

#endif
