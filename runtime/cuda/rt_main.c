/* The `main` of a step executable for target cuda. It links neither the CPU's kernels nor a BLAS
 * library. */
#include <stdio.h>

#include "runtime/cuda/device.h"
#include "runtime/run.h"

int main(int argc, char **argv)
{
    Session *s = session_new(stderr);
    Status status = rt_run_program_on(s, &step_program, NULL, &rt_device_cuda, argc, argv);
    if (fflush(stdout) && status == STATUS_OK)
        status = STATUS_ENV;
    session_free(s);
    return status;
}
