#include "fake_cuda.h"

#include <cuda.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/cuda/control.h"

enum { MOST_ARGS = 8, MOST_ARG_BYTES = 512, PAGE = 2 << 20 };

static const size_t total_bytes = (size_t)141 << 30, context_bytes = (size_t)500 << 20;

struct CUstream_st {
    int number; /* in the order of their making: 1 is that of copies ahead */
};

typedef struct Op {
    FakeFn fn; /* NULL: a record of an event, or a wait for one */
    void *data;
    const void *stream;
    struct Op *after; /* of a wait: the record */
    bool done;
    struct Op *next;
} Op;

struct CUevent_st {
    int time;
    Op *record; /* the last one that was captured */
};

struct CUgraph_st {
    Op *first, **last;
    const void *stream;
    size_t n;
};

enum { COPY_STREAM = 1 };

static struct {
    size_t taken;
    struct CUgraph_st *capture;
    int launches, done; /* kernels launched; all operations */
    int streams;
    bool hangs;
} fake;

int fake_cuda_mode(const char *name)
{
    const char *mode = getenv("FAKE_CUDA");
    return mode && !strcmp(mode, name);
}

void fake_cuda_hang(bool hangs)
{
    fake.hangs = hangs;
}

static Op *keep(FakeFn fn, const void *data, size_t bytes, const void *stream)
{
    Op *op = calloc(1, sizeof *op);
    *op = (Op){.fn = fn, .data = malloc(bytes ? bytes : 1), .stream = stream};
    if (bytes)
        memcpy(op->data, data, bytes);
    *fake.capture->last = op;
    fake.capture->last = &op->next;
    fake.capture->n += fn != NULL;
    return op;
}

void fake_cuda_enqueue(FakeFn fn, const void *data, size_t bytes, const void *stream)
{
    const struct CUstream_st *at = stream;
    fake.done++;
    if (fake.capture)
        keep(fn, data, bytes, stream);
    else if (!fake.hangs || (at && at->number == COPY_STREAM))
        fn(data);
}

/* -- the driver and its device -- */

CUresult cuInit(unsigned flags)
{
    (void)flags;
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
    *version = fake_cuda_mode("old") ? 12040 : 13000;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
    *name = error == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : error == CUDA_ERROR_NO_DEVICE     ? "CUDA_ERROR_NO_DEVICE"
                                                : "CUDA_ERROR_UNKNOWN";
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    *text = error == CUDA_ERROR_NO_DEVICE ? "no CUDA-capable device is detected"
                                          : "an error of the fake driver";
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    const char *devices = getenv("FAKE_DEVICES");
    *count = fake_cuda_mode("no_device") ? 0 : devices ? atoi(devices) : 1;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    (void)device;
    strncpy(name, "Fake H200", (size_t)length);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    (void)device;
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
                 ? (fake_cuda_mode("capability") ? 8 : 9)
             : attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? 0
                                                                         : 132;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    memset(uuid, fake_cuda_mode("same_device") ? 0 : device, sizeof *uuid);
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    (void)device;
    *bytes = total_bytes;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    (void)device;
    *context = (CUcontext)&fake;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    (void)device;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    (void)context;
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
    return CUDA_SUCCESS;
}

/* -- memory -- */

CUresult cuMemGetInfo(size_t *free_bytes, size_t *total)
{
    *total = total_bytes;
    *free_bytes = fake_cuda_mode("memory") ? 16 << 10 : total_bytes - context_bytes - fake.taken;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags flags)
{
    (void)prop;
    (void)flags;
    *bytes = PAGE;
    return CUDA_SUCCESS;
}

typedef struct Memory { /* what a handle points at */
    size_t bytes, taken;
    int fd; /* -1: it is not shared */
} Memory;

static CUmemGenericAllocationHandle handle_of(Memory memory)
{
    Memory *kept = malloc(sizeof *kept);
    *kept = memory;
    fake.taken += memory.taken;
    return (CUmemGenericAllocationHandle)(size_t)kept;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *prop, unsigned long long flags)
{
    (void)flags;
    Memory memory = {bytes, bytes, -1};
    if (prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE) {
        if (fake_cuda_mode("unshared"))
            return CUDA_ERROR_NOT_SUPPORTED;
        memory.fd = memfd_create("fake_cuda", MFD_CLOEXEC);
        if (memory.fd < 0 || ftruncate(memory.fd, (off_t)bytes))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = handle_of(memory);
    return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags)
{
    const Memory *memory = (const Memory *)(size_t)handle;
    (void)flags;
    if (memory->fd < 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    *(int *)out = dup(memory->fd);
    return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *from,
                                        CUmemAllocationHandleType type)
{
    struct stat file;
    int fd = (int)(size_t)from;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || fstat(fd, &file) ||
        fake_cuda_mode("no_import"))
        return CUDA_ERROR_INVALID_VALUE;
    *handle = handle_of((Memory){(size_t)file.st_size, 0, dup(fd)});
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    Memory *memory = (Memory *)(size_t)handle;
    fake.taken -= memory->taken;
    if (memory->fd >= 0)
        close(memory->fd);
    free(memory);
    return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *at, size_t bytes, size_t alignment, CUdeviceptr wish,
                             unsigned long long flags)
{
    (void)wish;
    (void)flags;
    char *memory = mmap(NULL, bytes + alignment, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *at = ((CUdeviceptr)(size_t)memory + alignment - 1) / alignment * alignment;
    return memory == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr at, size_t bytes)
{
    munmap((void *)(size_t)at, bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    const Memory *memory = (const Memory *)(size_t)handle;
    (void)offset;
    (void)flags;
    if (memory->bytes != bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (memory->fd >= 0 && mmap((void *)(size_t)at, bytes, PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_FIXED, memory->fd, 0) == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr at, size_t bytes)
{
    (void)at;
    (void)bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t n)
{
    (void)at;
    (void)bytes;
    (void)access;
    return n == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemHostAlloc(void **at, size_t bytes, unsigned flags)
{
    (void)flags;
    *at = calloc(1, bytes);
    return *at ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemFreeHost(void *at)
{
    free(at);
    return CUDA_SUCCESS;
}

typedef struct Copy {
    void *to;
    const void *from;
    size_t bytes;
} Copy;

/* A word is written once: `memcpy` may write it twice, and what another process has made of it
 * between would be lost. */
static void do_copy(const void *data)
{
    const Copy *copy = data;
    if (copy->bytes == sizeof(uint32_t))
        __atomic_store_n((uint32_t *)copy->to, *(const uint32_t *)copy->from, __ATOMIC_RELEASE);
    else
        memcpy(copy->to, copy->from, copy->bytes);
}

static CUresult enqueue_copy(void *to, const void *from, size_t bytes, CUstream stream)
{
    fake_cuda_enqueue(do_copy, &(Copy){to, from, bytes}, sizeof(Copy), stream);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    return enqueue_copy((void *)(size_t)to, from, bytes, stream);
}

CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return enqueue_copy(to, (const void *)(size_t)from, bytes, stream);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return enqueue_copy((void *)(size_t)to, (const void *)(size_t)from, bytes, stream);
}

typedef struct Fill {
    void *at;
    size_t bytes;
    unsigned char byte;
} Fill;

static void do_fill(const void *data)
{
    const Fill *fill = data;
    memset(fill->at, fill->byte, fill->bytes);
}

CUresult cuMemsetD8Async(CUdeviceptr at, unsigned char byte, size_t bytes, CUstream stream)
{
    fake_cuda_enqueue(do_fill, &(Fill){(void *)(size_t)at, bytes, byte}, sizeof(Fill), stream);
    return CUDA_SUCCESS;
}

typedef struct Words {
    unsigned *at, word;
    size_t n;
} Words;

static void do_words(const void *data)
{
    const Words *words = data;
    for (size_t i = 0; i < words->n; i++)
        words->at[i] = words->word;
}

CUresult cuMemsetD32Async(CUdeviceptr at, unsigned word, size_t n, CUstream stream)
{
    fake_cuda_enqueue(do_words, &(Words){(void *)(size_t)at, word, n}, sizeof(Words), stream);
    fake_cuda_words_set((unsigned *)(size_t)at, n);
    return CUDA_SUCCESS;
}

/* -- streams, events, graphs -- */

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    (void)flags;
    *stream = malloc(sizeof **stream);
    **stream = (struct CUstream_st){fake.streams++};
    return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *most)
{
    *least = 0;
    *most = -5;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
    (void)priority;
    return cuStreamCreate(stream, flags);
}

CUresult cuStreamDestroy(CUstream stream)
{
    free(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    (void)stream;
    if (fake.capture)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return fake_cuda_mode("lost") && fake.launches > 4 ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream stream)
{
    return fake.hangs && stream->number != COPY_STREAM ? CUDA_ERROR_NOT_READY
                                                       : cuStreamSynchronize(stream);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    (void)flags;
    if (!fake.capture)
        return CUDA_SUCCESS;
    if (!event->record) /* not a part of the capture */
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    keep(NULL, NULL, 0, stream)->after = event->record;
    return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
    (void)mode;
    fake.capture = calloc(1, sizeof *fake.capture);
    fake.capture->last = &fake.capture->first;
    fake.capture->stream = stream;
    return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    (void)stream;
    *graph = fake.capture;
    fake.capture = NULL;
    return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *n)
{
    (void)nodes;
    *n = graph->n;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    (void)flags;
    struct CUgraph_st *copy = malloc(sizeof *copy);
    *copy = *graph;
    *exec = (CUgraphExec)(void *)copy;
    return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    (void)exec;
    (void)stream;
    return CUDA_SUCCESS;
}

/* The next operation of the main stream, or the first of the others', if nothing holds it up. */
static Op *next_op(const struct CUgraph_st *graph, bool main)
{
    Op *op = graph->first;
    while (op && (op->done || (op->stream == graph->stream) != main))
        op = op->next;
    return op && op->after && !op->after->done ? NULL : op;
}

static Op *choose(const struct CUgraph_st *graph, const char *order)
{
    bool main_first = !strcmp(order, "late");
    Op *op = next_op(graph, main_first);
    return op ? op : next_op(graph, !main_first);
}

static void run(Op *op)
{
    if (op->fn && !fake.hangs)
        op->fn(op->data);
    op->done = true;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    struct CUgraph_st *graph = (struct CUgraph_st *)(void *)exec;
    const char *order = getenv("FAKE_STREAMS");
    (void)stream;
    for (Op *op = graph->first; op; op = op->next)
        op->done = false;
    for (Op *op = graph->first; op && !order; op = op->next)
        run(op);
    for (Op *op; order && (op = choose(graph, order));)
        run(op);
    for (const Op *op = graph->first; op; op = op->next)
        if (!op->done)
            return CUDA_ERROR_ILLEGAL_STATE; /* each stream waits for the other */
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph)
{
    free(graph);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    struct CUgraph_st *graph = (struct CUgraph_st *)(void *)exec;
    for (Op *op = graph->first, *next; op; op = next) {
        next = op->next;
        free(op->data);
        free(op);
    }
    free(graph);
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    (void)flags;
    *event = calloc(1, sizeof **event);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event)
{
    free(event);
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    event->time = fake.done; /* time passes with operations */
    event->record = fake.capture ? keep(NULL, NULL, 0, stream) : NULL;
    return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent event)
{
    (void)event;
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *ms, CUevent begin, CUevent end)
{
    *ms = (float)(end->time - begin->time);
    return CUDA_SUCCESS;
}

/* -- kernels: those that the tests launch -- */

typedef struct Kernel {
    const char *name;
    FakeFn run; /* over MOST_ARGS arguments of MOST_ARG_BYTES */
    int n_args;
    size_t arg_bytes[MOST_ARGS];
} Kernel;

static const void *arg(const void *data, int i)
{
    return (const char *)data + i * MOST_ARG_BYTES;
}

static void *pointer_arg(const void *data, int i)
{
    void *at;
    memcpy(&at, arg(data, i), sizeof at);
    return at;
}

static int64_t number_arg(const void *data, int i)
{
    int64_t number;
    memcpy(&number, arg(data, i), sizeof number);
    return number;
}

static void control_begin(const void *data)
{
    const RtCudaControl *control = pointer_arg(data, 0);
    const RtCudaScalars *scalars = arg(data, 1);
    for (int i = 0; i < RT_CUDA_SCALARS; i++)
        if (scalars->at[i] && (control->set >> i & 1))
            memcpy((void *)(size_t)scalars->at[i], &control->in[i], scalars->bytes[i]);
}

static void control_end(const void *data)
{
    RtCudaControl *control = pointer_arg(data, 0);
    const RtCudaScalars *scalars = arg(data, 1);
    for (int i = 0; i < RT_CUDA_SCALARS; i++)
        if (scalars->at[i])
            memcpy(&control->out[i], (void *)(size_t)scalars->at[i], scalars->bytes[i]);
}

static void check_finite(const void *data)
{
    const uint32_t *at = pointer_arg(data, 0); /* f32 alone */
    const RtCudaTensor *tensor = arg(data, 1);
    RtCudaControl *control = pointer_arg(data, 2);
    for (int64_t e = 0; e < tensor->numel; e++)
        if ((at[e / tensor->run * tensor->pitch + e % tensor->run] & tensor->mask) ==
                tensor->mask &&
            !control->nonfinite[0]) {
            control->nonfinite[0] = 1;
            control->nonfinite[1] = number_arg(data, 3);
            control->nonfinite[2] = number_arg(data, 4);
        }
}

static void test_add(const void *data) /* y += x */
{
    float *y = pointer_arg(data, 0);
    const float *x = pointer_arg(data, 1);
    for (int64_t i = 0; i < number_arg(data, 2); i++)
        y[i] += x[i];
}

static void test_scale(const void *data) /* y = x * random[0] + the first input */
{
    float *y = pointer_arg(data, 0);
    const float *x = pointer_arg(data, 1);
    const int64_t *random = pointer_arg(data, 2);
    const int32_t *ids = pointer_arg(data, 3);
    for (int64_t i = 0; i < number_arg(data, 4); i++)
        y[i] = x[i] * (float)random[0] + (float)ids[0];
}

static void test_fault(const void *data)
{
    int64_t *fault = pointer_arg(data, 0);
    const int64_t words[] = {1, 7, 99, 50, number_arg(data, 1)};
    if (!fault[0])
        memcpy(fault, words, sizeof words);
}

static void test_advance(const void *data)
{
    ++*(int64_t *)pointer_arg(data, 0);
}

static const Kernel kernels[] = {
    {"control_begin", control_begin, 2, {8, sizeof(RtCudaScalars)}},
    {"control_end", control_end, 2, {8, sizeof(RtCudaScalars)}},
    {"check_finite", check_finite, 5, {8, sizeof(RtCudaTensor), 8, 8, 8}},
    {"test_add", test_add, 3, {8, 8, 8}},
    {"test_scale", test_scale, 5, {8, 8, 8, 8, 8}},
    {"test_fault", test_fault, 2, {8, 8}},
    {"test_advance", test_advance, 1, {8}},
};

static void do_nothing(const void *data)
{
    (void)data;
}

static const Kernel nothing = {"nothing", do_nothing, 0, {0}};

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned n, CUjit_option *options,
                            void **values)
{
    static const char message[] = "ptxas error: the fake driver compiles nothing\n";
    (void)image;
    *module = (CUmodule)(void *)kernels;
    if (!fake_cuda_mode("image"))
        return CUDA_SUCCESS;
    for (unsigned i = 0; i < n; i++)
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER)
            memcpy(values[i], message, sizeof message);
    return CUDA_ERROR_INVALID_PTX;
}

CUresult cuModuleUnload(CUmodule module)
{
    (void)module;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    (void)module;
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (!strcmp(kernels[i].name, name)) {
            *function = (CUfunction)(void *)&kernels[i];
            return CUDA_SUCCESS;
        }
    const void *other = fake_cuda_other_kernel ? fake_cuda_other_kernel(name) : NULL;
    *function = (CUfunction)(void *)(size_t)(other ? other : &nothing);
    if (other)
        return CUDA_SUCCESS;
    return fake_cuda_mode("anything") ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    (void)function;
    (void)attribute;
    (void)value;
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                        CUstream stream, void **args, void **extra)
{
    (void)extra;
    const Kernel *kernel = (const Kernel *)(void *)function;
    if (!grid_x || !grid_y || !grid_z || !block_x || !block_y || !block_z)
        return CUDA_ERROR_INVALID_VALUE;
    bool own = kernel == &nothing ||
               (kernel >= kernels && kernel < kernels + sizeof kernels / sizeof *kernels);
    fake.launches++;
    if (!own) {
        const unsigned grid[] = {grid_x, grid_y, grid_z};
        fake_cuda_other_launch(kernel, grid, block_x, shared, args, stream);
        return CUDA_SUCCESS;
    }
    char packed[MOST_ARGS * MOST_ARG_BYTES] = {0};
    for (int i = 0; i < kernel->n_args; i++)
        memcpy(packed + i * MOST_ARG_BYTES, args[i], kernel->arg_bytes[i]);
    fake_cuda_enqueue(kernel->run, packed, sizeof packed, stream);
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **args,
                          void **extra)
{
    return cuLaunchKernel(function, config->gridDimX, config->gridDimY, config->gridDimZ,
                          config->blockDimX, config->blockDimY, config->blockDimZ,
                          config->sharedMemBytes, config->hStream, args, extra);
}
