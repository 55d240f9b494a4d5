/* The step executable's `main`. It is an archive member of its own, so that a test can link the
 * runtime with another. */
#include <stdlib.h>

#include "runtime/kernels/cpu/kernels.h"
#include "runtime/run.h"

/* The BLAS library starts threads of its own when it is initialised, unless the environment says
 * otherwise by then; its initialiser has no priority and so comes after this one. */
__attribute__((constructor(101))) static void keep_blas_single_threaded(void)
{
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
}

int main(int argc, char **argv)
{
    rt_cpu_kernels_start();
    Session *s = session_new(stderr);
    Status status = rt_run_program(s, &step_program, rt_kernels, argc, argv);
    session_free(s);
    return status;
}
