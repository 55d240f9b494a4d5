#include "runtime/kernel.h"

#include <stddef.h>

enum { COLUMNS_PER_CHUNK = 4096 };

static uint64_t row_chunks(const StepKernel *code)
{
    return (uint64_t)((code->rows + code->rows_per_chunk - 1) / code->rows_per_chunk);
}

static uint32_t fused_phases(const RtCall *call)
{
    return call->code->cols_fn ? 2 : 1;
}

static uint64_t fused_chunks(const RtCall *call, uint32_t phase)
{
    const StepKernel *code = call->code;
    return phase ? (uint64_t)((code->cols + COLUMNS_PER_CHUNK - 1) / COLUMNS_PER_CHUNK)
                 : row_chunks(code);
}

static void run_rows(const RtCall *call, uint64_t chunk)
{
    const StepKernel *code = call->code;
    int64_t row = (int64_t)chunk * code->rows_per_chunk;
    int64_t row_end =
        row + code->rows_per_chunk < code->rows ? row + code->rows_per_chunk : code->rows;
    unsigned char *partials = NULL;
    if (code->partial_bytes)
        partials = (unsigned char *)call->workspace + (int64_t)chunk * code->partial_bytes;
    code->rows_fn(call->at, row, row_end, partials, call->random, call->param);
}

static void run_columns(const RtCall *call, uint64_t chunk)
{
    const StepKernel *code = call->code;
    int64_t col = (int64_t)chunk * COLUMNS_PER_CHUNK;
    int64_t col_end = col + COLUMNS_PER_CHUNK < code->cols ? col + COLUMNS_PER_CHUNK : code->cols;
    code->cols_fn(call->at, col, col_end, call->workspace, (int64_t)row_chunks(code));
}

static void fused_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    (void)scratch;
    if (phase)
        run_columns(call, chunk);
    else
        run_rows(call, chunk);
}

const RtKernel rt_kernel_fused = {"fused", fused_phases, fused_chunks, fused_run};
