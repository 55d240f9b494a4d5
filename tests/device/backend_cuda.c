#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/cuda/modules.h"
#include "tests/device/harness.h"

/* The driver alone: kernels are found by name in the cubins that the library embeds. */

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define FUNCTIONS(X)                                                                               \
    X(Init)                                                                                        \
    X(DeviceGet) X(DeviceGetName) X(DeviceGetAttribute) X(DevicePrimaryCtxRetain) X(CtxSetCurrent) \
        X(CtxSynchronize) X(ModuleLoadData) X(ModuleGetFunction) X(FuncSetAttribute)               \
            X(LaunchKernel) X(MemAlloc) X(MemFree) X(MemcpyHtoD) X(MemcpyDtoH) X(MemsetD8)         \
                X(EventCreate) X(EventRecord) X(EventSynchronize) X(EventElapsedTime)              \
                    X(GetErrorString)

typedef struct Api {
#define MEMBER(name) __typeof__(cu##name) *name;
    FUNCTIONS(MEMBER)
#undef MEMBER
} Api;

enum { MAX_FUNCTIONS = 256, MAX_MODULES = 32, RUNS = 15, WARM_UP = 3 };

typedef struct Known {
    char name[64];
    CUfunction function;
} Known;

static Api api;
static CUmodule modules[MAX_MODULES];
static Known known[MAX_FUNCTIONS];
static int n_modules, n_known;

static void must(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    const char *text = "";
    api.GetErrorString(result, &text);
    printf("FAIL | %s: %s\n", what, text);
    fflush(stdout);
    _Exit(1); /* the context may be lost: nothing more can be said of it */
}

bool device_open(char *out_name, size_t name_bytes, int *out_multiprocessors)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "no driver: %s\n", dlerror());
        return false;
    }
#define LOAD(name)                                                                                 \
    if (!(*(void **)&api.name = dlsym(driver, TEXT(cu##name)))) {                                  \
        fprintf(stderr, "the driver has no %s\n", TEXT(cu##name));                                 \
        return false;                                                                              \
    }
    FUNCTIONS(LOAD)
#undef LOAD
    CUdevice device;
    CUcontext context;
    must(api.Init(0), "opening the driver");
    must(api.DeviceGet(&device, 0), "finding a device");
    must(api.DeviceGetName(out_name, (int)name_bytes, device), "naming the device");
    must(api.DeviceGetAttribute(out_multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                device),
         "counting multiprocessors");
    must(api.DevicePrimaryCtxRetain(&context, device), "opening the device");
    must(api.CtxSetCurrent(context), "opening the device");
    for (const RtCudaImage *image = rt_cuda_images; image->name && n_modules < MAX_MODULES; image++)
        must(api.ModuleLoadData(&modules[n_modules++], image->bytes), image->name);
    return true;
}

bool device_is_emulated(void)
{
    return false;
}

void *device_alloc(size_t bytes)
{
    CUdeviceptr at;
    must(api.MemAlloc(&at, bytes), "taking memory");
    return (void *)(uintptr_t)at;
}

void device_free(void *at)
{
    must(api.MemFree((CUdeviceptr)(uintptr_t)at), "giving memory back");
}

void device_write(void *to, const void *from, size_t bytes)
{
    must(api.MemcpyHtoD((CUdeviceptr)(uintptr_t)to, from, bytes), "writing");
}

void device_read(void *to, const void *from, size_t bytes)
{
    must(api.MemcpyDtoH(to, (CUdeviceptr)(uintptr_t)from, bytes), "reading");
}

void device_fill(void *at, unsigned char byte, size_t bytes)
{
    must(api.MemsetD8((CUdeviceptr)(uintptr_t)at, byte, bytes), "filling");
}

void device_wait(void)
{
    must(api.CtxSynchronize(), "running a kernel");
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

double device_seconds(void (*run)(void *context), void *context)
{
    float ms[RUNS];
    CUevent begin, end;
    must(api.EventCreate(&begin, CU_EVENT_DEFAULT), "making an event");
    must(api.EventCreate(&end, CU_EVENT_DEFAULT), "making an event");
    for (int i = -WARM_UP; i < RUNS; i++) {
        must(api.EventRecord(begin, NULL), "timing");
        run(context);
        must(api.EventRecord(end, NULL), "timing");
        must(api.EventSynchronize(end), "running a kernel");
        if (i >= 0)
            must(api.EventElapsedTime(&ms[i], begin, end), "timing");
    }
    qsort(ms, RUNS, sizeof *ms, by_size);
    return ms[RUNS / 2] * 1e-3;
}

static CUfunction function_of(const char *name)
{
    for (int i = 0; i < n_known; i++)
        if (!strcmp(known[i].name, name))
            return known[i].function;
    for (int i = 0; i < n_modules; i++) {
        CUfunction function;
        if (api.ModuleGetFunction(&function, modules[i], name) != CUDA_SUCCESS ||
            n_known == MAX_FUNCTIONS)
            continue;
        snprintf(known[n_known].name, sizeof known[n_known].name, "%s", name);
        known[n_known++].function = function;
        return function;
    }
    printf("FAIL | no kernel `%s`\n", name);
    exit(1);
}

Status rt_cuda_start_named(RtCuda *cuda, const char *name, RtCudaShape shape, void **args)
{
    (void)cuda;
    CUfunction function = function_of(name);
    if (shape.shared_bytes > 48 << 10)
        must(api.FuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                  (int)shape.shared_bytes),
             name);
    must(api.LaunchKernel(function, shape.grid, shape.grid_y ? shape.grid_y : 1,
                          shape.grid_z ? shape.grid_z : 1, shape.threads, 1, 1, shape.shared_bytes,
                          NULL, args, NULL),
         name);
    return STATUS_OK;
}
