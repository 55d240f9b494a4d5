#include "runtime/cuda/memory.h"

#include "base/diag.h"
#include "runtime/cuda/outside.h"
#include "runtime/memory.h"

static CUmemAllocationProp pinned_on(const RtCuda *cuda)
{
    CUmemAllocationProp prop = {0};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = cuda->device;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return prop;
}

static Status page_bytes(RtCuda *cuda, const CUmemAllocationProp *prop, size_t *out_page)
{
    return rt_cuda_result(cuda,
                          cuda->driver.MemGetAllocationGranularity(
                              out_page, prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                          "asking for the size of a page");
}

static Status too_little(RtCuda *cuda, uint64_t bytes, uint64_t free_bytes)
{
    char need[32], have[32], total[32];
    diag(cuda->s, no_span, cuda_memory, (unsigned long long)bytes, rt_bytes_text(bytes, need),
         cuda->device_name, (unsigned long long)free_bytes, rt_bytes_text(free_bytes, have),
         rt_bytes_text(cuda->total_bytes, total));
    return STATUS_ENV;
}

static Status create(RtCuda *cuda, CUmemAllocationProp *prop, RtCudaMapped *mapped)
{
    size_t free_bytes = 0, total = 0;
    TRY(rt_cuda_result(cuda, cuda->driver.MemGetInfo(&free_bytes, &total),
                       "asking for free memory"));
    if (free_bytes < mapped->bytes)
        return too_little(cuda, mapped->bytes, free_bytes);
    CUresult result = cuda->driver.MemCreate(&mapped->handle, mapped->bytes, prop, 0);
    if (result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_NOT_PERMITTED) {
        prop->requestedHandleTypes =
            CU_MEM_HANDLE_TYPE_NONE; /* an environment that does not let memory be shared */
        result = cuda->driver.MemCreate(&mapped->handle, mapped->bytes, prop, 0);
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return too_little(cuda, mapped->bytes, free_bytes);
    return rt_cuda_result(cuda, result, "allocating device memory");
}

/* `handle`, as its bytes are; it is released when that fails. */
static CUresult map_handle(RtCuda *cuda, size_t page, RtCudaMapped mapped, RtCudaMapped *out_mapped)
{
    const RtCudaDriver *driver = &cuda->driver;
    CUmemAccessDesc access = {.location = pinned_on(cuda).location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = driver->MemAddressReserve(&mapped.at, mapped.bytes, page, 0, 0);
    if (result)
        goto out_handle;
    result = driver->MemMap(mapped.at, mapped.bytes, 0, mapped.handle, 0);
    if (result)
        goto out_address;
    result = driver->MemSetAccess(mapped.at, mapped.bytes, &access, 1);
    if (result)
        goto out_map;
    *out_mapped = mapped;
    return CUDA_SUCCESS;
out_map:
    driver->MemUnmap(mapped.at, mapped.bytes);
out_address:
    driver->MemAddressFree(mapped.at, mapped.bytes);
out_handle:
    driver->MemRelease(mapped.handle);
    return result;
}

Status rt_cuda_map(RtCuda *cuda, uint64_t bytes, RtCudaMapped *out_mapped)
{
    CUmemAllocationProp prop = pinned_on(cuda);
    size_t page;
    TRY(page_bytes(cuda, &prop, &page));
    RtCudaMapped mapped = {.bytes = (bytes + page - 1) / page * page};
    TRY(create(cuda, &prop, &mapped));
    return rt_cuda_result(cuda, map_handle(cuda, page, mapped, out_mapped),
                          "mapping device memory");
}

CUresult rt_cuda_map_import(RtCuda *cuda, CUmemGenericAllocationHandle handle, uint64_t bytes,
                            RtCudaMapped *out_mapped)
{
    CUmemAllocationProp prop = pinned_on(cuda);
    size_t page = 0;
    CUresult result = cuda->driver.MemGetAllocationGranularity(
        &page, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    if (result) {
        cuda->driver.MemRelease(handle);
        return result;
    }
    return map_handle(cuda, page, (RtCudaMapped){.bytes = bytes, .handle = handle}, out_mapped);
}

void rt_cuda_unmap(RtCuda *cuda, RtCudaMapped *mapped)
{
    if (mapped->handle) {
        cuda->driver.MemUnmap(mapped->at, mapped->bytes);
        cuda->driver.MemAddressFree(mapped->at, mapped->bytes);
        cuda->driver.MemRelease(mapped->handle);
    }
    *mapped = (RtCudaMapped){0};
}

/* -- lines -- */

static Status taken_since(RtCuda *cuda, uint64_t *out_bytes)
{
    size_t free_bytes = 0, total = 0;
    TRY(rt_cuda_result(cuda, cuda->driver.MemGetInfo(&free_bytes, &total),
                       "asking for free memory"));
    uint64_t before = cuda->free_bytes ? cuda->free_bytes : total;
    *out_bytes = before > free_bytes ? before - free_bytes : 0;
    cuda->free_bytes = free_bytes;
    return STATUS_OK;
}

Status rt_cuda_measure_skip(RtCuda *cuda)
{
    uint64_t bytes;
    return taken_since(cuda, &bytes);
}

Status rt_cuda_measure(RtCuda *cuda, const char *name)
{
    uint64_t bytes;
    TRY(taken_since(cuda, &bytes));
    for (uint32_t i = 0; i < cuda->n_lines; i++)
        if (!strcmp(cuda->line[i].name, name)) {
            cuda->line[i].bytes += bytes;
            return STATUS_OK;
        }
    if (cuda->n_lines < RT_CUDA_LINES)
        cuda->line[cuda->n_lines++] = (RtCudaLine){name, bytes};
    return STATUS_OK;
}

static const PlanOutside *planned_line(const RtCuda *cuda, const char *name)
{
    for (uint64_t i = 0; i < cuda->plan->n_outside; i++)
        if (!strcmp(rt_plan_string(cuda->plan, cuda->plan->outside[i].name), name))
            return &cuda->plan->outside[i];
    return NULL;
}

static void print_line(FILE *out, const char *name, uint64_t planned, uint64_t measured)
{
    char text[32];
    fprintf(out, "device memory | %-32s planned %14llu B  measured %14llu B  %s\n", name,
            (unsigned long long)planned, (unsigned long long)measured,
            rt_bytes_text(measured, text));
}

Status rt_cuda_print_memory(RtCuda *cuda, FILE *out)
{
    size_t free_bytes = 0, total = 0;
    TRY(rt_cuda_result(cuda, cuda->driver.MemGetInfo(&free_bytes, &total),
                       "asking for free memory"));
    uint64_t planned = cuda->plan->header->arena_bytes,
             listed = cuda->arena.bytes + cuda->tables.bytes;
    print_line(out, "arena", planned, planned);
    print_line(out, "arena, rest of its last page", 0, cuda->arena.bytes - planned);
    for (uint32_t i = 0; i < cuda->n_lines; i++) {
        const PlanOutside *line = planned_line(cuda, cuda->line[i].name);
        print_line(out, cuda->line[i].name, line ? line->bytes : 0, cuda->line[i].bytes);
        listed += cuda->line[i].bytes;
    }
    const PlanOutside *tables = planned_line(cuda, RT_OUTSIDE_TABLES);
    print_line(out, RT_OUTSIDE_TABLES, tables ? tables->bytes : 0, cuda->tables.bytes);
    char text[32];
    uint64_t used = total - free_bytes;
    fprintf(out, "device memory | %-32s %38llu B  %s\n", "in use on the device",
            (unsigned long long)used, rt_bytes_text(used, text));
    fprintf(out, "device memory | %-32s %38lld B\n", "not listed",
            (long long)used - (long long)listed);
    return STATUS_OK;
}
