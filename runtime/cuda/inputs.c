#include "runtime/cuda/inputs.h"

enum { PIECE_ALIGNMENT = 256 };

RtCudaScalar rt_cuda_scalar(const RtPlan *plan, uint32_t i)
{
    const PlanScalars *s = &plan->header->scalars;
    const RtCudaScalar scalars[RT_CUDA_SCALARS] = {
        {s->lr, 4},      {s->step, 8},     {s->seed, 8},     {s->count, 8},
        {s->inverse, 4}, {s->loss_sum, 8}, {s->loss, 8},     {s->norm, 8},
        {s->coef, 4},    {s->skipped, 8},  {s->eval_sum, 8}, {s->sample0, 8},
    };
    return scalars[i];
}

static uint64_t piece_bytes(const RtPlan *plan, const PlanInput *input, bool eval)
{
    if (eval && !input->eval)
        return 0;
    return (eval ? 1 : (uint64_t)plan->header->micro_batches) * input->stride_bytes;
}

static uint64_t padded(uint64_t bytes)
{
    return (bytes + PIECE_ALIGNMENT - 1) / PIECE_ALIGNMENT * PIECE_ALIGNMENT;
}

uint64_t rt_cuda_inputs_bytes(const RtPlan *plan, bool eval)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < plan->n_inputs; i++)
        bytes += padded(piece_bytes(plan, &plan->inputs[i], eval));
    return bytes;
}

Status rt_cuda_inputs_open(RtCuda *cuda, bool eval, CUdeviceptr staged, RtCudaInputs *out_inputs)
{
    *out_inputs = (RtCudaInputs){
        .eval = eval, .bytes = rt_cuda_inputs_bytes(cuda->plan, eval), .staged = staged};
    for (int i = 0; i < 2 && out_inputs->bytes; i++) {
        void *slot;
        TRY(rt_cuda_result(cuda, cuda->driver.MemHostAlloc(&slot, out_inputs->bytes, 0),
                           "allocating pinned memory"));
        out_inputs->slot[i] = slot;
    }
    TRY(rt_cuda_result(cuda, cuda->driver.EventCreate(&out_inputs->copied, CU_EVENT_DISABLE_TIMING),
                       "making an event"));
    return rt_cuda_result(cuda,
                          cuda->driver.EventCreate(&out_inputs->taken, CU_EVENT_DISABLE_TIMING),
                          "making an event");
}

void rt_cuda_inputs_close(RtCuda *cuda, RtCudaInputs *inputs)
{
    for (int i = 0; i < 2; i++)
        if (inputs->slot[i])
            cuda->driver.MemFreeHost(inputs->slot[i]);
    if (inputs->copied)
        cuda->driver.EventDestroy(inputs->copied);
    if (inputs->taken)
        cuda->driver.EventDestroy(inputs->taken);
    *inputs = (RtCudaInputs){0};
}

Status rt_cuda_inputs_stage(RtCuda *cuda, RtCudaInputs *inputs, const unsigned char *shadow)
{
    static const char what[] = "copying the inputs";
    if (!inputs->bytes)
        return STATUS_OK;
    unsigned char *slot = inputs->slot[inputs->next_slot];
    inputs->next_slot ^= 1;
    uint64_t at = 0;
    for (uint64_t i = 0; i < cuda->plan->n_inputs; i++) {
        uint64_t bytes = piece_bytes(cuda->plan, &cuda->plan->inputs[i], inputs->eval);
        memcpy(slot + at, shadow + cuda->plan->inputs[i].offset, bytes);
        at += padded(bytes);
    }
    /* an event that was never recorded counts as passed */
    TRY(rt_cuda_result(cuda, cuda->driver.StreamWaitEvent(cuda->copy_stream, inputs->taken, 0),
                       what));
    TRY(rt_cuda_result(
        cuda, cuda->driver.MemcpyHtoDAsync(inputs->staged, slot, inputs->bytes, cuda->copy_stream),
        what));
    inputs->waiting = true;
    return rt_cuda_result(cuda, cuda->driver.EventRecord(inputs->copied, cuda->copy_stream), what);
}

Status rt_cuda_inputs_take(RtCuda *cuda, RtCudaInputs *inputs)
{
    static const char what[] = "copying the inputs";
    if (!inputs->waiting)
        return STATUS_OK;
    inputs->waiting = false;
    TRY(rt_cuda_result(cuda, cuda->driver.StreamWaitEvent(cuda->stream, inputs->copied, 0), what));
    uint64_t at = 0;
    for (uint64_t i = 0; i < cuda->plan->n_inputs; i++) {
        uint64_t bytes = piece_bytes(cuda->plan, &cuda->plan->inputs[i], inputs->eval);
        if (bytes)
            TRY(rt_cuda_result(
                cuda,
                cuda->driver.MemcpyDtoDAsync(cuda->arena.at + cuda->plan->inputs[i].offset,
                                             inputs->staged + at, bytes, cuda->stream),
                what));
        at += padded(bytes);
    }
    return rt_cuda_result(cuda, cuda->driver.EventRecord(inputs->taken, cuda->stream), what);
}
