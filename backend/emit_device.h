/* emit_device: the device's module of a compilation: fused regions to PTX for sm_90, or, so that a
 * machine without a GPU can test them, to functions of this machine that stand on an emulator. */
#ifndef BACKEND_EMIT_DEVICE_H
#define BACKEND_EMIT_DEVICE_H

#include "backend/emit_region.h"

typedef struct EmitDeviceUnit EmitDeviceUnit;

Status emit_device_new(Session *s, bool emulated, EmitDeviceUnit **out_unit);
void emit_device_free(EmitDeviceUnit *unit);

/* Adds a region's kernels; names live as long as the session. */
StepCudaKernel emit_device_kernel(EmitDeviceUnit *unit, const EmitRegion *region, const char *name);

/* PTX, NUL-terminated; emulated: an object file that calls `emulated_NAME` for what only a device
 * has. dump_dir: gets the LLVM IR and the PTX, or NULL. */
Status emit_device_code(EmitDeviceUnit *unit, const char *dump_dir, const char **out_code,
                        uint64_t *out_bytes);

/* The PTX as a cubin where there is `ptxas`, else itself, which the driver compiles at load. */
Status emit_device_image(Session *s, const char *ptx, uint64_t ptx_bytes, const void **out_image,
                         uint64_t *out_bytes);

#endif
