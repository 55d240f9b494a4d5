#include "runtime/cuda/load.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "base/diag.h"
#include "runtime/comm.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

typedef struct Symbol {
    const char *name;
    size_t offset;
} Symbol;

static const Symbol driver_symbols[] = {
#define CUDA_DRIVER(name) {TEXT(cu##name), offsetof(RtCudaDriver, name)},
#include "runtime/cuda/cuda_api.def"
};

static const Symbol lt_symbols[] = {
#define CUBLAS_LT(name) {TEXT(cublasLt##name), offsetof(RtCublasLt, name)},
#include "runtime/cuda/cuda_api.def"
};

enum {
    N_DRIVER_SYMBOLS = sizeof driver_symbols / sizeof *driver_symbols,
    N_LT_SYMBOLS = sizeof lt_symbols / sizeof *lt_symbols,
};

/* -- results -- */

Status rt_cuda_result(RtCuda *cuda, CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return STATUS_OK;
    const char *name = NULL, *text = NULL;
    cuda->driver.GetErrorName(result, &name);
    cuda->driver.GetErrorString(result, &text);
    if (!cuda->lost)
        diag(cuda->s, no_span, cuda_call, what, name ? name : "unknown error", text ? text : "");
    cuda->lost = true;
    return STATUS_ENV;
}

Status rt_cublas_result(RtCuda *cuda, cublasStatus_t result, const char *what)
{
    if (result == CUBLAS_STATUS_SUCCESS)
        return STATUS_OK;
    if (!cuda->lost)
        diag(cuda->s, no_span, cuda_call, what, cuda->lt.GetStatusName(result), "cuBLASLt");
    return STATUS_ENV;
}

/* -- libraries -- */

void *rt_cuda_open_library(Session *s, const char *name, const char **out_error)
{
    static const char *const folders[] = {"", "/usr/local/cuda/lib64/",
                                          "/usr/local/cuda/targets/x86_64-linux/lib/"};
    *out_error = "not found";
    for (unsigned i = 0; i < sizeof folders / sizeof *folders; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s%s", folders[i], name);
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library)
            return library;
        const char *error = dlerror(); /* alive until the next call */
        if (i == 0 && error)
            *out_error = arena_strndup(s->arena, error, strlen(error));
    }
    return NULL;
}

static Status find_symbols(RtCuda *cuda, void *library, const char *name, const Symbol *symbols,
                           unsigned n, void *out_table)
{
    for (unsigned i = 0; i < n; i++) {
        void *function = dlsym(library, symbols[i].name);
        if (!function) {
            diag(cuda->s, no_span, cuda_symbol, name, symbols[i].name);
            return STATUS_ENV;
        }
        memcpy((char *)out_table + symbols[i].offset, &function, sizeof function);
    }
    return STATUS_OK;
}

static Status load_driver(RtCuda *cuda)
{
    static const char name[] = "libcuda.so.1";
    const char *error;
    cuda->driver_library = rt_cuda_open_library(cuda->s, name, &error);
    if (!cuda->driver_library) {
        diag(cuda->s, no_span, cuda_no_driver, error);
        return STATUS_ENV;
    }
    /* the version first: an old driver lacks functions, and the version is what can be acted upon
     */
    __typeof__(cuDriverGetVersion) *version_of;
    void *function = dlsym(cuda->driver_library, TEXT(cuDriverGetVersion));
    memcpy(&version_of, &function, sizeof function);
    if (version_of)
        version_of(&cuda->driver_version);
    if (cuda->driver_version < RT_CUDA_DRIVER_VERSION) {
        diag(cuda->s, no_span, cuda_driver_old, cuda->driver_version / 1000,
             cuda->driver_version % 1000 / 10, RT_CUDA_DRIVER_VERSION / 1000,
             RT_CUDA_DRIVER_VERSION % 1000 / 10);
        return STATUS_ENV;
    }
    return find_symbols(cuda, cuda->driver_library, name, driver_symbols, N_DRIVER_SYMBOLS,
                        &cuda->driver);
}

static Status load_lt(RtCuda *cuda)
{
    static const char name[] = "libcublasLt.so.13";
    const char *error;
    cuda->lt_library = rt_cuda_open_library(cuda->s, name, &error);
    if (!cuda->lt_library) {
        diag(cuda->s, no_span, cuda_library, name, error);
        return STATUS_ENV;
    }
    TRY(find_symbols(cuda, cuda->lt_library, name, lt_symbols, N_LT_SYMBOLS, &cuda->lt));
    size_t version = cuda->lt.GetVersion();
    if (version < RT_CUBLASLT_VERSION) {
        diag(cuda->s, no_span, cuda_library_old, name, (unsigned long long)version,
             RT_CUBLASLT_VERSION);
        return STATUS_ENV;
    }
    return STATUS_OK;
}

/* -- the device -- */

static Status no_device(RtCuda *cuda, CUresult result)
{
    const char *name = NULL, *text = NULL;
    cuda->driver.GetErrorName(result, &name);
    cuda->driver.GetErrorString(result, &text);
    diag(cuda->s, no_span, cuda_no_device,
         arena_printf(cuda->s->arena, "%s (%s)", text ? text : "unknown error", name ? name : "?"));
    return STATUS_ENV;
}

static Status find_device(RtCuda *cuda)
{
    int count = 0, major = 0, minor = 0;
    size_t total = 0;
    CUresult result = cuda->driver.Init(0);
    if (result == CUDA_SUCCESS)
        result = cuda->driver.DeviceGetCount(&count);
    if (result == CUDA_SUCCESS && count == 0)
        result = CUDA_ERROR_NO_DEVICE;
    if (result != CUDA_SUCCESS)
        return no_device(cuda, result);
    int place = (int)rt_local_rank();
    if (count == 1 && getenv("CUDA_VISIBLE_DEVICES"))
        place = 0; /* the launcher has left each rank its own */
    if (place >= count) {
        diag(cuda->s, no_span, cuda_local_rank, (unsigned)place, count);
        return STATUS_ENV;
    }
    result = cuda->driver.DeviceGet(&cuda->device, place);
    if (result != CUDA_SUCCESS)
        return no_device(cuda, result);
    static const char asking[] = "asking for the device's properties";
    TRY(rt_cuda_result(
        cuda, cuda->driver.DeviceGetName(cuda->device_name, sizeof cuda->device_name, cuda->device),
        asking));
    TRY(rt_cuda_result(cuda,
                       cuda->driver.DeviceGetAttribute(
                           &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, cuda->device),
                       asking));
    TRY(rt_cuda_result(cuda,
                       cuda->driver.DeviceGetAttribute(
                           &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, cuda->device),
                       asking));
    if (major * 10 + minor != RT_CUDA_CAPABILITY) { /* sm_90a code runs on 9.0 alone */
        diag(cuda->s, no_span, cuda_capability, cuda->device_name, major, minor,
             RT_CUDA_CAPABILITY / 10, RT_CUDA_CAPABILITY % 10);
        return STATUS_ENV;
    }
    TRY(rt_cuda_result(cuda,
                       cuda->driver.DeviceGetAttribute(&cuda->multiprocessors,
                                                       CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                                       cuda->device),
                       asking));
    TRY(rt_cuda_result(cuda, cuda->driver.DeviceTotalMem(&total, cuda->device), asking));
    cuda->total_bytes = total;
    return STATUS_OK;
}

static Status open_context(RtCuda *cuda)
{
    TRY(rt_cuda_result(cuda, cuda->driver.DevicePrimaryCtxRetain(&cuda->context, cuda->device),
                       "making a context"));
    TRY(rt_cuda_result(cuda, cuda->driver.CtxSetCurrent(cuda->context), "making a context"));
    TRY(rt_cuda_result(cuda, cuda->driver.StreamCreate(&cuda->stream, CU_STREAM_NON_BLOCKING),
                       "making a stream"));
    return rt_cuda_result(cuda,
                          cuda->driver.StreamCreate(&cuda->copy_stream, CU_STREAM_NON_BLOCKING),
                          "making a stream");
}

Status rt_cuda_open(Session *s, RtCuda *out_cuda)
{
    *out_cuda = (RtCuda){.s = s};
    map_init(&out_cuda->functions, s->arena);
    TRY(load_driver(out_cuda));
    TRY(find_device(out_cuda));
    TRY(load_lt(out_cuda));
    return open_context(out_cuda);
}

void rt_cuda_close(RtCuda *cuda)
{
    if (cuda->copy_stream)
        cuda->driver.StreamDestroy(cuda->copy_stream);
    if (cuda->stream)
        cuda->driver.StreamDestroy(cuda->stream);
    if (cuda->context)
        cuda->driver.DevicePrimaryCtxRelease(cuda->device);
    /* the libraries stay loaded: they have handlers of their own that run when the process ends */
    *cuda = (RtCuda){.s = cuda->s};
}
