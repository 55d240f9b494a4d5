#include "runtime/cuda/device.h"
#include "runtime/cuda/gemm.h"
#include "runtime/cuda/memory.h"
#include "runtime/cuda/modules.h"
#include "runtime/cuda/peers.h"

enum {
    CEILING_SIZE = 8192, /* of the product that the ceiling is measured by */
    CEILING_WARM = 3,
    CEILING_RUNS = 10,
    NOISE_THREADS = 256,
    NOISE_BLOCKS = 2048,
};

static void print_device(const RtCuda *cuda, FILE *out)
{
    fprintf(out, "device | %s | %d multiprocessors | driver for CUDA %d.%d | cuBLASLt %llu\n",
            cuda->device_name, cuda->multiprocessors, cuda->driver_version / 1000,
            cuda->driver_version % 1000 / 10, (unsigned long long)cuda->lt.GetVersion());
}

static void print_launches(const RtDevice *device, FILE *out)
{
    const RtCudaExec *exec = &device->list[RT_CUDA_TRAIN];
    fprintf(out, "launches | %llu instructions in %u | ", (unsigned long long)exec->n_instrs,
            exec->n_launches);
    if (exec->graph)
        fprintf(out, "one graph of %llu nodes\n", (unsigned long long)exec->graph_nodes);
    else
        fprintf(out, "no graph\n");
}

static void print_exchanges(const RtCuda *cuda, FILE *out)
{
    if (cuda->ranks)
        fprintf(out, "exchanges | %s\n",
                rt_peers_used(cuda) ? "by the copy engines, but between stages" : "over NCCL");
}

/* -- describe: the choices for a plan, without memory -- */

Status rt_cuda_describe(RtDevice *device, const RtPlan *plan, const StepProgram *program, FILE *out)
{
    RtCuda *cuda = &device->cuda;
    const PlanHeader *header = plan->header;
    cuda->plan = plan;
    cuda->program = program;
    cuda->arena.at = (CUdeviceptr)1
                     << 40; /* nothing is there: only how addresses are aligned counts */
    cuda->library_workspace_bytes = header->library_workspace_bytes;
    TRY(rt_cuda_modules_load(cuda));
    TRY(rt_cuda_gemms_open(cuda));
    TRY(rt_cuda_exec_prepare(cuda, plan->instrs, plan->n_instrs, false,
                             &device->list[RT_CUDA_TRAIN]));
    TRY(rt_cuda_exec_prepare(cuda, plan->eval_instrs, plan->n_eval_instrs, false,
                             &device->list[RT_CUDA_EVAL]));
    for (int i = 0; i < RT_CUDA_LISTS; i++)
        TRY(rt_cuda_exec_rehearse(cuda, &device->list[i]));
    TRY(rt_cuda_gemms_bind(cuda));
    print_device(cuda, out);
    print_launches(device, out);
    rt_cuda_gemms_print(cuda, out);
    return STATUS_OK;
}

/* -- report: memory and speed after a run -- */

static Status fill_noise(RtCuda *cuda, CUdeviceptr at, int64_t words)
{
    void *args[] = {&at, &words};
    return rt_cuda_start_named(cuda, "fill_noise",
                               (RtCudaShape){.grid = NOISE_BLOCKS, .threads = NOISE_THREADS}, args);
}

static Status time_products(RtCuda *cuda, const RtGemm *gemm, CUevent begin, CUevent end,
                            double *out_seconds)
{
    static const char what[] = "measuring the device";
    float ms = 0;
    for (int i = 0; i < CEILING_WARM; i++)
        TRY(rt_cuda_gemm(cuda, gemm));
    TRY(rt_cuda_result(cuda, cuda->driver.EventRecord(begin, cuda->stream), what));
    for (int i = 0; i < CEILING_RUNS; i++)
        TRY(rt_cuda_gemm(cuda, gemm));
    TRY(rt_cuda_result(cuda, cuda->driver.EventRecord(end, cuda->stream), what));
    TRY(rt_cuda_result(cuda, cuda->driver.EventSynchronize(end), what));
    TRY(rt_cuda_result(cuda, cuda->driver.EventElapsedTime(&ms, begin, end), what));
    *out_seconds = (double)ms / 1e3 / CEILING_RUNS;
    return STATUS_OK;
}

static Status measure_product(RtCuda *cuda, CUdeviceptr at, double *out_seconds)
{
    const uint64_t bytes = (uint64_t)CEILING_SIZE * CEILING_SIZE * 2;
    RtGemm gemm = {
        .m = CEILING_SIZE,
        .n = CEILING_SIZE,
        .k = CEILING_SIZE,
        .tb = true,
        .a = (void *)(uintptr_t)at,
        .b = (void *)(uintptr_t)(at + bytes),
        .c = (void *)(uintptr_t)(at + 2 * bytes),
        .a_type = DTYPE_BF16,
        .b_type = DTYPE_BF16,
        .c_type = DTYPE_BF16,
        .alpha = 1,
    };
    CUevent begin = NULL, end = NULL;
    TRY(fill_noise(cuda, at, (int64_t)(2 * bytes / 4)));
    TRY(rt_cuda_result(cuda, cuda->driver.EventCreate(&begin, CU_EVENT_DEFAULT),
                       "making an event"));
    Status status =
        rt_cuda_result(cuda, cuda->driver.EventCreate(&end, CU_EVENT_DEFAULT), "making an event");
    if (status == STATUS_OK)
        status = time_products(cuda, &gemm, begin, end, out_seconds);
    if (end)
        cuda->driver.EventDestroy(end);
    cuda->driver.EventDestroy(begin);
    return status;
}

/* bf16 products per second that this device reaches; 0: there is no memory to measure it in. */
static Status measure_ceiling(RtCuda *cuda, double *out_flops)
{
    const uint64_t bytes = (uint64_t)CEILING_SIZE * CEILING_SIZE * 2;
    size_t free_bytes = 0, total = 0;
    RtCudaMapped room;
    double seconds = 0;
    *out_flops = 0;
    TRY(rt_cuda_result(cuda, cuda->driver.MemGetInfo(&free_bytes, &total),
                       "asking for free memory"));
    if (free_bytes < 4 * bytes)
        return STATUS_OK;
    TRY(rt_cuda_map(cuda, 3 * bytes, &room));
    Status status = measure_product(cuda, room.at, &seconds);
    rt_cuda_unmap(cuda, &room);
    if (status == STATUS_OK && seconds > 0)
        *out_flops = 2.0 * CEILING_SIZE * CEILING_SIZE * CEILING_SIZE / seconds;
    return status;
}

Status rt_cuda_report(RtDevice *device, double seconds_per_step, FILE *out)
{
    RtCuda *cuda = &device->cuda;
    double ceiling, speed = (double)cuda->plan->header->flops_per_step / seconds_per_step;
    print_device(cuda, out);
    print_launches(device, out);
    print_exchanges(cuda, out);
    rt_cuda_gemms_print(cuda, out);
    TRY(rt_cuda_print_memory(cuda, out));
    TRY(measure_ceiling(cuda, &ceiling));
    fprintf(out, "bench | tflop_per_s %.2f", speed / 1e12);
    if (ceiling > 0)
        fprintf(out, " | %.1f %% of %.2f, measured on a bf16 product of %d cubed",
                100 * speed / ceiling, ceiling / 1e12, CEILING_SIZE);
    fputc('\n', out);
    return STATUS_OK;
}
