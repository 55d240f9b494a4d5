#include "runtime/kernels/cpu/kernels.h"
#include "runtime/kernels/cpu/product.h"

static PlanTiles gemm_tiles(const RtCall *call)
{
    const PlanParam *p = call->param;
    return plan_gemm_tiles(p[PLAN_gemm_m].i, p[PLAN_gemm_n].i, p[PLAN_gemm_k].i);
}

#include "runtime/kernels/cpu/real_f32.h"
#include "runtime/kernels/cpu/gemm.inc.h"
#include "runtime/kernels/cpu/real_f64.h"
#include "runtime/kernels/cpu/gemm.inc.h"

uint64_t rt_gemm_chunks(const RtCall *call, uint32_t phase)
{
    (void)phase;
    PlanTiles tiles = gemm_tiles(call);
    return (uint64_t)(tiles.rows * tiles.cols);
}

void rt_gemm_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    (void)phase;
    if (plan_gemm_real_bytes(call->tensor) == 8)
        gemm_tile_f64(call, chunk, scratch);
    else
        gemm_tile_f32(call, chunk, scratch);
}

/* OpenBLAS keeps its packing buffers in a pool of its own and maps one whenever more products
 * run at once than ever before. Taking and returning as many as there are workers leaves nothing
 * to map within a step. */
void *blas_memory_alloc(int place);
void blas_memory_free(void *buffer);

void rt_gemm_start(uint32_t threads)
{
    enum { MOST = 64 };
    void *buffers[MOST];
    uint32_t n = threads < MOST ? threads : MOST;
    for (uint32_t i = 0; i < n; i++)
        buffers[i] = blas_memory_alloc(0);
    for (uint32_t i = 0; i < n; i++)
        blas_memory_free(buffers[i]);
}
