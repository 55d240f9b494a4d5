/* inputs: what goes to the device for a run, and the way back: batches, copied ahead on a stream of
 * their own, and the control block with the scalars. */
#ifndef RUNTIME_CUDA_INPUTS_H
#define RUNTIME_CUDA_INPUTS_H

#include "runtime/cuda/control.h"
#include "runtime/cuda/cuda.h"
#include "runtime/device.h"

typedef struct RtCudaScalar {
    uint64_t offset; /* in the arena, or PLAN_ABSENT */
    uint32_t bytes;
} RtCudaScalar;

/* Scalar i of RT_CUDA_SCALARS, in the order of PlanScalars. */
RtCudaScalar rt_cuda_scalar(const RtPlan *plan, uint32_t i);

/* Inputs of one list on their way: the shadow, a pinned slot, device memory, and from there into
 * the arena when the run before is done with its own. */
typedef struct RtCudaInputs {
    bool eval;
    uint64_t bytes; /* of all pieces, packed */
    unsigned char *slot[2];
    uint32_t next_slot;
    CUdeviceptr staged; /* in cuda->tables */
    CUevent copied, taken;
    bool waiting; /* staged, and not yet taken */
} RtCudaInputs;

uint64_t rt_cuda_inputs_bytes(const RtPlan *plan, bool eval);
Status rt_cuda_inputs_open(RtCuda *cuda, bool eval, CUdeviceptr staged, RtCudaInputs *out_inputs);
void rt_cuda_inputs_close(RtCuda *cuda, RtCudaInputs *inputs);
/* From the shadow of the arena to the device's staging memory, on the copy stream. */
Status rt_cuda_inputs_stage(RtCuda *cuda, RtCudaInputs *inputs, const unsigned char *shadow);
/* Into the arena, on the stream of the step. */
Status rt_cuda_inputs_take(RtCuda *cuda, RtCudaInputs *inputs);

#endif
