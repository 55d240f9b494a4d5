#include "runtime/cuda/device.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/diag.h"
#include "runtime/cuda/memory.h"
#include "runtime/cuda/nccl.h"
#include "runtime/cuda/outside.h"
#include "runtime/plan_shapes.h"

/* -- pieces of the arena -- */

/* Whole pages of the shadow within the piece go back to the system: `get` fills them again. */
static void forget(const RtDevice *device, uint64_t offset, uint64_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE),
              at = (uintptr_t)device->config.shadow->base + offset;
    uintptr_t begin = (at + page - 1) / page * page, end = (at + bytes) / page * page;
    if (begin < end)
        madvise((void *)begin, end - begin, MADV_DONTNEED);
}

static Status put(RtDevice *device, uint64_t offset, uint64_t bytes)
{
    RtCuda *cuda = &device->cuda;
    TRY(rt_cuda_result(cuda,
                       cuda->driver.MemcpyHtoDAsync(cuda->arena.at + offset,
                                                    device->config.shadow->base + offset, bytes,
                                                    cuda->stream),
                       "copying to the device"));
    TRY(rt_cuda_result(cuda, cuda->driver.StreamSynchronize(cuda->stream),
                       "copying to the device"));
    forget(device, offset, bytes);
    return STATUS_OK;
}

static Status get(RtDevice *device, uint64_t offset, uint64_t bytes)
{
    RtCuda *cuda = &device->cuda;
    TRY(rt_cuda_result(cuda,
                       cuda->driver.MemcpyDtoHAsync(device->config.shadow->base + offset,
                                                    cuda->arena.at + offset, bytes, cuda->stream),
                       "copying from the device"));
    return rt_cuda_result(cuda, cuda->driver.StreamSynchronize(cuda->stream),
                          "copying from the device");
}

static Status stage(RtDevice *device, bool eval)
{
    return rt_cuda_inputs_stage(&device->cuda, &device->inputs[eval], device->config.shadow->base);
}

/* -- scalars -- */

static void fill_control(RtDevice *device, const RtDeviceRun *run)
{
    const RtPlan *plan = device->cuda.plan;
    RtCudaControl *to = device->to;
    *to = (RtCudaControl){0};
    memcpy(to->random, run->random, sizeof to->random);
    for (uint32_t i = 0; i < RT_CUDA_SCALARS; i++) {
        RtCudaScalar scalar = rt_cuda_scalar(plan, i);
        if (scalar.offset == PLAN_ABSENT)
            continue;
        memcpy(&to->in[i], device->config.shadow->base + scalar.offset, scalar.bytes);
        to->set |= (uint64_t)1 << i;
    }
}

static void read_control(RtDevice *device)
{
    for (uint32_t i = 0; i < RT_CUDA_SCALARS; i++) {
        RtCudaScalar scalar = rt_cuda_scalar(device->cuda.plan, i);
        if (scalar.offset != PLAN_ABSENT)
            memcpy(device->config.shadow->base + scalar.offset, &device->from->out[i],
                   scalar.bytes);
    }
}

/* -- running -- */

static Status begin(RtDevice *device, const RtDeviceRun *run)
{
    RtCuda *cuda = &device->cuda;
    TRY(rt_cuda_inputs_take(cuda, &device->inputs[run->eval]));
    fill_control(device, run);
    device->begin_ns = rt_clock_ns();
    return rt_cuda_result(
        cuda,
        cuda->driver.MemcpyHtoDAsync(cuda->control, device->to, sizeof *device->to, cuda->stream),
        "copying to the device");
}

static Status launch_graph(RtDevice *device, RtCudaExec *exec)
{
    RtCuda *cuda = &device->cuda;
    if (!exec->graph) {
        TRY(rt_cuda_exec_capture(cuda, exec));
        TRY(rt_cuda_measure(cuda, RT_OUTSIDE_GRAPH));
    }
    return rt_cuda_result(cuda, cuda->driver.GraphLaunch(exec->graph, cuda->stream),
                          "launching the step");
}

static Status launch_each(RtDevice *device, RtCudaExec *exec, const RtDeviceRun *run)
{
    RtCuda *cuda = &device->cuda;
    if (run->from == 0)
        TRY(rt_cuda_control_begin(cuda));
    TRY(rt_cuda_exec_run(cuda, exec, run->from, run->to,
                         (RtCudaWatch){device->config.check, run->profile != NULL}));
    return run->to == exec->n_instrs ? rt_cuda_control_end(cuda) : STATUS_OK;
}

/* The first whole run is launched one by one: libraries load their code then, which a capture would
 * not allow. */
static Status launch(RtDevice *device, const RtDeviceRun *run)
{
    RtCuda *cuda = &device->cuda;
    RtCudaExec *exec = &device->list[run->eval];
    bool whole = run->from == 0 && run->to == exec->n_instrs;
    device->run = *run;
    if (run->from == 0)
        TRY(begin(device, run));
    if (cuda->ranks)
        rt_guard_begin(&cuda->ranks->guard, "launching exchanges between devices",
                       cuda->ranks->world->timeout_s);
    Status status = whole && device->config.graph && !device->config.check && !run->profile &&
                            device->runs[run->eval]
                        ? launch_graph(device, exec)
                        : launch_each(device, exec, run);
    if (cuda->ranks)
        rt_guard_end(&cuda->ranks->guard);
    TRY(status);
    if (run->to != exec->n_instrs)
        return STATUS_OK;
    device->runs[run->eval]++;
    return rt_cuda_result(cuda,
                          cuda->driver.MemcpyDtoHAsync(device->from, cuda->control,
                                                       sizeof *device->from, cuda->stream),
                          "copying from the device");
}

/* -- what a run brought -- */

static Status lost(RtDevice *device, CUresult result)
{
    RtCuda *cuda = &device->cuda;
    const char *name = NULL, *text = NULL;
    cuda->driver.GetErrorName(result, &name);
    cuda->driver.GetErrorString(result, &text);
    if (!cuda->lost)
        diag(cuda->s, no_span, cuda_lost, (long long)device->run.step,
             name ? name : "unknown error", text ? text : "");
    cuda->lost = true;
    return STATUS_ENV;
}

static Status say_fault(RtDevice *device)
{
    RtCuda *cuda = &device->cuda;
    const int64_t *fault = device->from->fault;
    const RtCudaExec *exec = &device->list[device->run.eval];
    const PlanInstr *instr = &exec->instrs[(uint64_t)fault[4] < exec->n_instrs ? fault[4] : 0];
    const char *message =
        arena_printf(cuda->s->arena,
                     fault[0] == RT_CUDA_FAULT_ID
                         ? "id %lld of token %lld is outside the table of %lld rows"
                         : "target %lld of token %lld is outside the vocabulary of %lld",
                     (long long)fault[2], (long long)fault[1], (long long)fault[3]);
    diag(cuda->s, no_span, run_fault, (long long)device->run.step,
         rt_plan_string(cuda->plan, instr->name), rt_plan_file(cuda->plan, instr->file),
         instr->line, message);
    return STATUS_USER;
}

static void say_nonfinite(RtDevice *device)
{
    RtCuda *cuda = &device->cuda;
    const int64_t *found = device->from->nonfinite;
    if (!found[0] || device->nonfinite_said)
        return;
    device->nonfinite_said = true;
    const PlanInstr *instr = &device->list[device->run.eval].instrs[found[1]];
    const PlanTensor *tensor = &cuda->plan->tensors[instr->first_tensor + (uint64_t)found[2]];
    diag(cuda->s, no_span, check_value, (long long)device->run.step,
         rt_plan_string(cuda->plan, instr->name), rt_kernel_shape(instr->kernel)->name,
         rt_plan_string(cuda->plan, tensor->name), rt_plan_file(cuda->plan, instr->file),
         instr->line);
    rt_world_say(cuda->ranks ? cuda->ranks->world : NULL);
}

static Status since_begin(RtDevice *device, const RtCudaExec *exec, uint32_t event, int64_t *out_ns)
{
    float ms = 0;
    TRY(rt_cuda_result(
        &device->cuda,
        device->cuda.driver.EventElapsedTime(&ms, exec->events[0], exec->events[event]),
        "reading an event"));
    *out_ns = device->begin_ns + (int64_t)((double)ms * 1e6);
    return STATUS_OK;
}

/* The time of calls that were launched together is the first one's. */
static Status fill_profile(RtDevice *device)
{
    RtProfile *profile = device->run.profile;
    const RtCudaExec *exec = &device->list[device->run.eval];
    if (!profile)
        return STATUS_OK;
    RtMark *marks = profile->marks + profile->n_steps * profile->n_instrs;
    int64_t last = device->begin_ns;
    for (uint32_t i = 0; i < exec->n_launches; i++) {
        const RtCudaLaunch *at = &exec->launches[i];
        int64_t end;
        TRY(since_begin(device, exec, i + 1, &end));
        for (uint32_t c = 0; c < at->n; c++)
            marks[at->first + c] = (RtMark){c ? end : last, end};
        last = end;
    }
    return STATUS_OK;
}

/* The exchange that has begun last, as the device says while it is held up in it. */
static const PlanInstr *marked(RtDevice *device)
{
    RtCuda *cuda = &device->cuda;
    const RtCudaExec *exec = &device->list[device->run.eval];
    int64_t mark = rt_nccl_mark(cuda);
    return &exec->instrs[mark > 0 && (uint64_t)mark <= exec->n_instrs ? mark - 1 : 0];
}

static Status lost_rank(RtDevice *device)
{
    const RtPlan *plan = device->cuda.plan;
    const RtWorld *world = device->cuda.ranks->world;
    const PlanInstr *instr = marked(device);
    diag(device->cuda.s, no_span, run_lost, (long long)device->run.step,
         rt_plan_string(plan, instr->name), rt_plan_file(plan, instr->file), instr->line,
         world->lost, (long long)world->steps_done);
    return STATUS_ENV;
}

static Status finish(RtDevice *device)
{
    RtCuda *cuda = &device->cuda;
    CUresult result;
    if (!cuda->ranks)
        result = cuda->driver.StreamSynchronize(cuda->stream);
    else if (!rt_nccl_wait(cuda, &result))
        return lost_rank(device);
    if (result != CUDA_SUCCESS)
        return lost(device, result);
    if (device->run.to != device->list[device->run.eval].n_instrs)
        return STATUS_OK;
    read_control(device);
    if (device->runs[device->run.eval] == 1)
        TRY(rt_cuda_measure(cuda, RT_OUTSIDE_FIRST_USE));
    else if (device->runs[device->run.eval] == 2)
        TRY(rt_cuda_measure(cuda, RT_OUTSIDE_GRAPH));
    if (device->from->fault[0])
        return say_fault(device);
    say_nonfinite(device);
    return fill_profile(device);
}

static int64_t busy_ns(const RtDevice *device)
{
    return device->from->end_ns - device->from->begin_ns;
}

const RtDeviceKind rt_device_cuda = {
    .name = "cuda",
    .open = rt_cuda_device_open,
    .prepare = rt_cuda_device_prepare,
    .join = rt_cuda_device_join,
    .close = rt_cuda_device_close,
    .put = put,
    .get = get,
    .forget = forget,
    .stage = stage,
    .launch = launch,
    .finish = finish,
    .busy_ns = busy_ns,
    .describe = rt_cuda_describe,
    .report = rt_cuda_report,
};
