/* modules: device code: our own kernels, embedded in this library, and the executable's fused ones.
 */
#ifndef RUNTIME_CUDA_MODULES_H
#define RUNTIME_CUDA_MODULES_H

#include "runtime/cuda/cuda.h"

typedef struct RtCudaImage { /* a cubin of runtime/kernels/cuda/ */
    const char *name;
    const unsigned char *bytes;
} RtCudaImage;

extern const RtCudaImage rt_cuda_images[]; /* made by the build; ends with a NULL name */

/* Loads both, and finds the fused kernels' entries; PTX is compiled by the driver. */
Status rt_cuda_modules_load(RtCuda *cuda);
void rt_cuda_modules_unload(RtCuda *cuda);

#endif
