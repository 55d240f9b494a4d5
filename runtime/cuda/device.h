/* device: the runtime's device for plans of target cuda. */
#ifndef RUNTIME_CUDA_DEVICE_H
#define RUNTIME_CUDA_DEVICE_H

#include "runtime/cuda/exec.h"
#include "runtime/cuda/inputs.h"

enum { RT_CUDA_TRAIN, RT_CUDA_EVAL, RT_CUDA_LISTS };

struct RtDevice {
    RtCuda cuda;
    RtDeviceConfig config;
    RtCudaExec list[RT_CUDA_LISTS];
    RtCudaInputs inputs[RT_CUDA_LISTS];
    uint64_t runs[RT_CUDA_LISTS]; /* whole ones */
    RtCudaControl *to, *from;     /* pinned: the control block before a run, and after it */
    RtDeviceRun run;              /* the latest */
    int64_t begin_ns;             /* when its first instruction was launched */
    bool nonfinite_said;
};

extern const RtDeviceKind rt_device_cuda;

/* device_report.c */
Status rt_cuda_describe(RtDevice *device, const RtPlan *plan, const StepProgram *program,
                        FILE *out);
Status rt_cuda_report(RtDevice *device, double seconds_per_step, FILE *out);
/* device_open.c */
Status rt_cuda_device_open(Session *s, RtDevice **out_device);
Status rt_cuda_device_prepare(RtDevice *device, const RtDeviceConfig *config);
Status rt_cuda_device_join(RtDevice *device);
void rt_cuda_device_close(RtDevice *device);

#endif
