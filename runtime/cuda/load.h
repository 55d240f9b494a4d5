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

/* The libraries, the device (of those that CUDA_VISIBLE_DEVICES leaves the one at this rank's place
 * among the machine's; the only one where each rank sees its own alone), its context and two
 * streams. */
Status rt_cuda_open(Session *s, RtCuda *out_cuda);
void rt_cuda_close(RtCuda *cuda); /* also of one that is half open */
/* By its name, as the system finds libraries; else where the toolkit is installed. out_error: why
 * not by its name. */
void *rt_cuda_open_library(Session *s, const char *name, const char **out_error);

#endif
