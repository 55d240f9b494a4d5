#include "runtime/cuda/nccl.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "base/diag.h"
#include "runtime/cuda/load.h"
#include "runtime/profile.h"

enum { CLOSE_SECONDS = 60, LOST_SECONDS = 2, PROBE_SECONDS = 2 };

Status rt_nccl_result(RtCuda *cuda, int result, const char *what)
{
    if (!result)
        return STATUS_OK;
    if (!cuda->lost)
        diag(cuda->s, no_span, cuda_nccl, what, cuda->ranks->nccl.GetErrorString(result));
    cuda->lost = cuda->ranks->over = true;
    return STATUS_ENV;
}

/* -- the library -- */

static Status find_functions(RtCuda *cuda, void *library, const char *name)
{
    RtNccl *nccl = &cuda->ranks->nccl;
    const struct {
        const char *symbol;
        void *at;
    } wanted[] = {
#define WANTED(function, arguments) {"nccl" #function, &nccl->function},
        RT_NCCL_FUNCTIONS(WANTED)
#undef WANTED
        {"ncclGetErrorString", &nccl->GetErrorString},
    };
    for (uint32_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *found = dlsym(library, wanted[i].symbol);
        if (!found) {
            diag(cuda->s, no_span, cuda_symbol, name, wanted[i].symbol);
            return STATUS_ENV;
        }
        memcpy(wanted[i].at, &found, sizeof found);
    }
    return STATUS_OK;
}

Status rt_nccl_load(RtCuda *cuda, RtWorld *world, RtGroup *groups)
{
    static const char name[] = "libnccl.so.2";
    const char *error;
    RtCudaRanks *ranks = ARENA_NEW(cuda->s->arena, RtCudaRanks);
    ranks->world = world;
    ranks->groups = groups;
    ranks->comms = ARENA_ARRAY(cuda->s->arena, RtNcclHandle, cuda->plan->n_comms);
    ranks->owned = ARENA_ARRAY(cuda->s->arena, bool, cuda->plan->n_comms);
    cuda->ranks = ranks;
    void *library = rt_cuda_open_library(cuda->s, name, &error);
    if (!library) {
        diag(cuda->s, no_span, cuda_library, name, error);
        return STATUS_ENV;
    }
    TRY(find_functions(cuda, library, name));
    TRY(rt_nccl_result(cuda, ranks->nccl.GetVersion(&ranks->version), "asking for its version"));
    if (ranks->version < RT_NCCL_VERSION) {
        diag(cuda->s, no_span, cuda_library_old, name, (unsigned long long)ranks->version,
             RT_NCCL_VERSION);
        return STATUS_ENV;
    }
    return rt_cuda_result(cuda,
                          cuda->driver.StreamCreate(&cuda->comm_stream, CU_STREAM_NON_BLOCKING),
                          "making a stream");
}

/* -- communicators -- */

/* No two ranks have one device. */
static Status check_devices(RtCuda *cuda)
{
    RtWorld *world = cuda->ranks->world;
    PlanComm everybody = {.axes = PLAN_AXIS_TP | PLAN_AXIS_DP | PLAN_AXIS_DPR | PLAN_AXIS_PP};
    RtGroup all;
    CUuuid own, *ids = ARENA_ARRAY(cuda->s->arena, CUuuid, world->size);
    TRY(rt_cuda_result(cuda, cuda->driver.DeviceGetUuid(&own, cuda->device),
                       "asking for the device's properties"));
    rt_group_open(world, &everybody, "world", &all);
    if (!rt_all_gather(&all, ids, &own, sizeof own))
        return rt_world_lost(world, "comparing the ranks' devices");
    for (uint32_t a = 0; a < world->size; a++)
        for (uint32_t b = a + 1; b < world->size; b++)
            if (!memcmp(&ids[a], &ids[b], sizeof own)) {
                if (!world->rank)
                    diag(cuda->s, no_span, cuda_same_device, a, b, cuda->device_name);
                return STATUS_ENV;
            }
    return STATUS_OK;
}

static bool same_members(const RtGroup *a, const RtGroup *b)
{
    return a->n == b->n && !memcmp(a->ranks, b->ranks, a->n * sizeof *a->ranks);
}

static Status join_group(RtCuda *cuda, RtGroup *group, RtNcclHandle *out_comm)
{
    static const char meeting[] = "meeting the other ranks' devices";
    RtCudaRanks *ranks = cuda->ranks;
    RtNcclId own = {{0}}, *ids = ARENA_ARRAY(cuda->s->arena, RtNcclId, group->n);
    if (!group->self)
        TRY(rt_nccl_result(cuda, ranks->nccl.GetUniqueId(&own), meeting));
    if (!rt_all_gather(group, ids, &own, sizeof own))
        return rt_world_lost(ranks->world, meeting);
    rt_guard_begin(&ranks->guard, meeting, ranks->world->timeout_s);
    int result =
        ranks->nccl.CommInitRank(out_comm, (int)group->n, ids[0], (int)group->self);
    rt_guard_end(&ranks->guard);
    return rt_nccl_result(cuda, result, meeting);
}

Status rt_nccl_join(RtCuda *cuda)
{
    RtCudaRanks *ranks = cuda->ranks;
    /* multicast sums on the links' switches are not used: copies gain nothing by them */
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    TRY(check_devices(cuda));
    TRY(rt_guard_open(ranks->world, &ranks->guard));
    for (uint64_t i = 0; i < cuda->plan->n_comms; i++) {
        uint64_t like = 0;
        while (like < i && !same_members(&ranks->groups[like], &ranks->groups[i]))
            like++;
        if (like < i) {
            ranks->comms[i] = ranks->comms[like];
            continue;
        }
        if (ranks->groups[i].n == 1)
            continue;
        TRY(join_group(cuda, &ranks->groups[i], &ranks->comms[i]));
        ranks->owned[i] = true;
    }
    return STATUS_OK;
}

void rt_nccl_close(RtCuda *cuda)
{
    RtCudaRanks *ranks = cuda->ranks;
    if (!ranks)
        return;
    /* what has been launched is done, or waits for a rank that is lost */
    rt_guard_begin(&ranks->guard, "leaving the other ranks' devices",
                   ranks->over ? LOST_SECONDS : CLOSE_SECONDS);
    for (uint64_t i = 0; i < cuda->plan->n_comms; i++) {
        if (ranks->owned[i])
            ranks->nccl.CommAbort(ranks->comms[i]);
        ranks->owned[i] = false;
    }
    if (cuda->comm_stream)
        cuda->driver.StreamDestroy(cuda->comm_stream);
    cuda->comm_stream = NULL;
}

/* -- waiting -- */

static bool has_error(RtCuda *cuda)
{
    RtCudaRanks *ranks = cuda->ranks;
    for (uint64_t i = 0; i < cuda->plan->n_comms; i++) {
        int error = 0;
        if (ranks->owned[i] &&
            (ranks->nccl.CommGetAsyncError(ranks->comms[i], &error) || error)) {
            snprintf(ranks->world->lost, sizeof ranks->world->lost, "NCCL: %s",
                     ranks->nccl.GetErrorString(error));
            return true;
        }
    }
    return false;
}

/* Who does not answer any more? All ranks that wait come here at about the same time. */
static void find_lost(RtWorld *world)
{
    double timeout_s = world->timeout_s;
    uint32_t peer;
    char said[sizeof world->lost];
    snprintf(said, sizeof said, "%s", world->lost);
    world->lost[0] = 0;
    world->timeout_s = PROBE_SECONDS;
    bool answers = rt_world_ask(world);
    world->timeout_s = timeout_s;
    if (answers)
        snprintf(world->lost, sizeof world->lost, "%s",
                 said[0] ? said : "the ranks answer, but their devices do not");
    else if (sscanf(world->lost, "rank %u has not answered", &peer) == 1)
        snprintf(world->lost, sizeof world->lost, "rank %u has not answered for %g s", peer,
                 timeout_s);
}

bool rt_nccl_wait(RtCuda *cuda, CUresult *out_result)
{
    enum { LOOK_NS = 10000000 };
    RtWorld *world = cuda->ranks->world;
    int64_t begin = rt_clock_ns(), looked = begin;
    uint32_t peer;
    for (uint64_t polls = 0;; polls++) {
        *out_result = cuda->driver.StreamQuery(cuda->stream);
        if (*out_result != CUDA_ERROR_NOT_READY)
            return true;
        if (world->lost[0])
            break;
        rt_world_rest(world, polls);
        int64_t now = rt_clock_ns();
        if (now - looked < LOOK_NS)
            continue;
        looked = now;
        if (world->transport->gone && world->transport->gone(world->link, &peer)) {
            snprintf(world->lost, sizeof world->lost, "rank %u has gone", peer);
            break;
        }
        if (has_error(cuda) || (double)(now - begin) > world->timeout_s * 1e9) {
            find_lost(world);
            break;
        }
    }
    cuda->lost = cuda->ranks->over = true;
    return false;
}
