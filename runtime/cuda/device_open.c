#include "base/diag.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/gemm.h"
#include "runtime/cuda/load.h"
#include "runtime/cuda/memory.h"
#include "runtime/cuda/modules.h"
#include "runtime/cuda/nccl.h"
#include "runtime/cuda/outside.h"

enum { TABLE_ALIGNMENT = 256, POISON = 0xff };

Status rt_cuda_device_open(Session *s, RtDevice **out_device)
{
    RtDevice *device = ARENA_NEW(s->arena, RtDevice);
    Status status = rt_cuda_open(s, &device->cuda);
    if (status == STATUS_OK)
        status = rt_cuda_measure(&device->cuda, RT_OUTSIDE_CONTEXT);
    if (status == STATUS_OK)
        *out_device = device;
    else
        rt_cuda_device_close(device);
    return status;
}

void rt_cuda_device_close(RtDevice *device)
{
    if (!device)
        return;
    RtCuda *cuda = &device->cuda;
    if (cuda->ranks && cuda->ranks->world->lost[0])
        cuda->ranks->over = true;
    if (cuda->ranks && cuda->ranks->over)
        rt_nccl_close(cuda); /* ends what waits for a rank that is gone */
    if (cuda->stream)
        cuda->driver.StreamSynchronize(cuda->stream);
    for (int i = 0; i < RT_CUDA_LISTS; i++) {
        rt_cuda_exec_release(cuda, &device->list[i]);
        rt_cuda_inputs_close(cuda, &device->inputs[i]);
    }
    if (device->to)
        cuda->driver.MemFreeHost(device->to);
    if (device->from)
        cuda->driver.MemFreeHost(device->from);
    device->to = device->from = NULL;
    rt_nccl_close(cuda);
    rt_cuda_gemms_close(cuda);
    rt_cuda_modules_unload(cuda);
    if (cuda->ranks)
        rt_peers_close(cuda);
    rt_cuda_unmap(cuda, &cuda->tables);
    rt_cuda_unmap(cuda, &cuda->arena);
    if (cuda->ranks)
        rt_guard_close(&cuda->ranks->guard);
    rt_cuda_close(cuda);
}

/* -- memory -- */

static CUdeviceptr take(CUdeviceptr *at, uint64_t bytes)
{
    CUdeviceptr piece = *at;
    *at += (bytes + TABLE_ALIGNMENT - 1) / TABLE_ALIGNMENT * TABLE_ALIGNMENT;
    return piece;
}

/* The one piece of device memory beside the arena: control block, inputs on their way, tables of
 * groups. */
static Status place_tables(RtDevice *device)
{
    RtCuda *cuda = &device->cuda;
    uint64_t bytes = sizeof(RtCudaControl) + 8 * TABLE_ALIGNMENT;
    for (int i = 0; i < RT_CUDA_LISTS; i++)
        bytes += rt_cuda_inputs_bytes(cuda->plan, i == RT_CUDA_EVAL) + device->list[i].table_bytes;
    TRY(rt_cuda_map(cuda, bytes, &cuda->tables));
    CUdeviceptr at = cuda->tables.at;
    cuda->control = take(&at, sizeof(RtCudaControl));
    cuda->fault_device = (int64_t *)(uintptr_t)(cuda->control + offsetof(RtCudaControl, fault));
    if (cuda->ranks)
        cuda->ranks->mark = cuda->control + offsetof(RtCudaControl, mark);
    for (int i = 0; i < RT_CUDA_LISTS; i++) {
        CUdeviceptr staged = take(&at, rt_cuda_inputs_bytes(cuda->plan, i == RT_CUDA_EVAL));
        TRY(rt_cuda_inputs_open(cuda, i == RT_CUDA_EVAL, staged, &device->inputs[i]));
        TRY(rt_cuda_exec_place(cuda, &device->list[i], take(&at, device->list[i].table_bytes)));
    }
    void *pinned;
    TRY(rt_cuda_result(cuda, cuda->driver.MemHostAlloc(&pinned, sizeof *device->to, 0),
                       "allocating pinned memory"));
    device->to = pinned;
    TRY(rt_cuda_result(cuda, cuda->driver.MemHostAlloc(&pinned, sizeof *device->from, 0),
                       "allocating pinned memory"));
    device->from = pinned;
    if (cuda->ranks)
        cuda->ranks->mark_read = &device->from->mark;
    return rt_cuda_measure_skip(cuda);
}

static Status clear_arena(RtDevice *device)
{
    RtCuda *cuda = &device->cuda;
    TRY(rt_cuda_fill(cuda, (void *)(uintptr_t)cuda->arena.at, device->config.check ? POISON : 0,
                     cuda->arena.bytes));
    for (uint64_t i = 0; i < cuda->plan->n_states && device->config.check; i++) {
        const PlanState *state = &cuda->plan->states[i];
        TRY(rt_cuda_fill(cuda, (void *)(uintptr_t)(cuda->arena.at + state->offset), 0,
                         state->bytes));
    }
    return rt_cuda_result(cuda, cuda->driver.StreamSynchronize(cuda->stream), "clearing the arena");
}

/* -- code -- */

static Status prepare_lists(RtDevice *device)
{
    RtCuda *cuda = &device->cuda;
    const RtPlan *plan = cuda->plan;
    bool alone = device->config.check;
    TRY(rt_cuda_exec_prepare(cuda, plan->instrs, plan->n_instrs, alone,
                             &device->list[RT_CUDA_TRAIN]));
    return rt_cuda_exec_prepare(cuda, plan->eval_instrs, plan->n_eval_instrs, alone,
                                &device->list[RT_CUDA_EVAL]);
}

static Status choose_algorithms(RtDevice *device)
{
    RtCuda *cuda = &device->cuda;
    for (int i = 0; i < RT_CUDA_LISTS; i++)
        TRY(rt_cuda_exec_rehearse(cuda, &device->list[i]));
    if (device->config.tune)
        TRY(rt_cuda_gemms_tune(cuda, device->config.tune));
    TRY(rt_cuda_gemms_bind(cuda));
    return rt_cuda_measure(cuda, RT_OUTSIDE_CUBLASLT);
}

static Status check_target(RtCuda *cuda)
{
    const StepProgram *program = cuda->program;
    bool has_code = !program->n_kernels || (program->cuda_kernels && program->image);
    if (cuda->plan->header->target == PLAN_TARGET_CUDA && has_code)
        return STATUS_OK;
    diag(cuda->s, no_span, cuda_target, "cpu");
    return STATUS_ENV;
}

Status rt_cuda_device_prepare(RtDevice *device, const RtDeviceConfig *config)
{
    RtCuda *cuda = &device->cuda;
    const PlanHeader *header = config->plan->header;
    device->config = *config;
    cuda->plan = config->plan;
    cuda->program = config->program;
    TRY(check_target(cuda));
    if (config->world) {
        TRY(rt_nccl_load(cuda, config->world, config->groups));
        cuda->ranks->peers.wanted = config->copy_engines;
    }
    TRY(rt_cuda_map(cuda, header->arena_bytes + rt_peers_bytes(config->world), &cuda->arena));
    if (header->library_workspace_bytes) {
        cuda->library_workspace = (void *)(uintptr_t)(cuda->arena.at + header->library_workspace);
        cuda->library_workspace_bytes = header->library_workspace_bytes;
    }
    TRY(rt_cuda_measure_skip(cuda));
    TRY(rt_cuda_modules_load(cuda));
    TRY(rt_cuda_measure(cuda, RT_OUTSIDE_KERNELS));
    TRY(rt_cuda_gemms_open(cuda));
    TRY(prepare_lists(device));
    TRY(place_tables(device));
    TRY(choose_algorithms(device));
    return clear_arena(device);
}

Status rt_cuda_device_join(RtDevice *device)
{
    RtCuda *cuda = &device->cuda;
    TRY(rt_cuda_measure_skip(cuda));
    TRY(rt_nccl_join(cuda));
    if (device->config.tune)
        TRY(rt_cuda_gemms_agree(cuda, device->config.tune));
    return rt_cuda_measure(cuda, RT_OUTSIDE_NCCL);
}
