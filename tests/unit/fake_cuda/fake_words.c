/* Words of memory that streams wait for and write, also those of other processes. */
#include <cuda.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake_cuda.h"

static const unsigned *waits; /* for this word the device hangs */

void fake_cuda_words_set(const unsigned *at, size_t n)
{
    if (waits < at || waits >= at + n)
        return;
    waits = NULL;
    fake_cuda_hang(false);
}

static bool comes(const unsigned *at, unsigned value)
{
    const char *seconds = getenv("FAKE_NCCL_SECONDS");
    struct timespec a_little = {0, 50000};
    double left = seconds ? atof(seconds) : 60;
    for (; __atomic_load_n(at, __ATOMIC_ACQUIRE) != value; left -= 0.0001) {
        if (left <= 0)
            return false;
        nanosleep(&a_little, NULL);
    }
    return true;
}

enum { MOST_MEM_OPS = 16 };

typedef struct MemOps {
    CUstreamBatchMemOpParams op[MOST_MEM_OPS];
    unsigned n;
} MemOps;

static void do_mem_ops(const void *data)
{
    const MemOps *ops = data;
    for (unsigned i = 0; i < ops->n; i++) {
        const CUstreamBatchMemOpParams *op = &ops->op[i];
        if (op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32) {
            __atomic_store_n((unsigned *)(size_t)op->writeValue.address, op->writeValue.value,
                             __ATOMIC_RELEASE);
            continue;
        }
        const unsigned *at = (const unsigned *)(size_t)op->waitValue.address;
        if (!comes(at, op->waitValue.value)) {
            waits = at;
            fake_cuda_hang(true);
            return;
        }
    }
}

CUresult cuStreamBatchMemOp(CUstream stream, unsigned n, CUstreamBatchMemOpParams *op,
                            unsigned flags)
{
    MemOps ops = {.n = n};
    if (n > MOST_MEM_OPS || flags)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(ops.op, op, n * sizeof *op);
    fake_cuda_enqueue(do_mem_ops, &ops, sizeof ops, stream);
    return CUDA_SUCCESS;
}
