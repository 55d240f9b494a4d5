#include "runtime/cuda/nccl.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "base/diag.h"
#include "runtime/cuda/load.h"
#include "runtime/profile.h"

enum { CLOSE_SECONDS = 60, LOST_SECONDS = 2, PROBE_SECONDS = 2, LINK_BYTES = 16 };

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

/* Its launches go first where both streams have some: few blocks, for which others wait. */
static Status open_stream(RtCuda *cuda)
{
    int least = 0, most = 0;
    TRY(rt_cuda_result(cuda, cuda->driver.CtxGetStreamPriorityRange(&least, &most),
                       "making a stream"));
    return rt_cuda_result(cuda,
                          cuda->driver.StreamCreateWithPriority(&cuda->comm_stream,
                                                                CU_STREAM_NON_BLOCKING, most),
                          "making a stream");
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
    return open_stream(cuda);
}

/* -- communicators -- */

/* No two ranks have one device. */
static Status check_devices(RtCuda *cuda)
{
    RtWorld *world = cuda->ranks->world;
    RtGroup all;
    CUuuid own, *ids = ARENA_ARRAY(cuda->s->arena, CUuuid, world->size);
    TRY(rt_cuda_result(cuda, cuda->driver.DeviceGetUuid(&own, cuda->device),
                       "asking for the device's properties"));
    rt_group_open_world(world, &all);
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

/* By the members' ranks: all ranks have one order of the communicators, whatever their plans'. */
static int compare_members(const RtGroup *a, const RtGroup *b)
{
    for (uint32_t i = 0; i < a->n && i < b->n; i++)
        if (a->ranks[i] != b->ranks[i])
            return a->ranks[i] < b->ranks[i] ? -1 : 1;
    return a->n == b->n ? 0 : a->n < b->n ? -1 : 1;
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

/* Do the copy engines do all that these members exchange? */
static bool is_direct(const RtCuda *cuda, const RtGroup *group)
{
    bool direct = true;
    for (uint64_t i = 0; i < cuda->plan->n_comms; i++)
        if (!compare_members(group, &cuda->ranks->groups[i]))
            direct &= cuda->ranks->peers.direct[i];
    return direct;
}

/* The first communicator behind `last` in that order; NULL: there is none. */
static const RtGroup *next_group(const RtCuda *cuda, const RtGroup *last)
{
    const RtGroup *groups = cuda->ranks->groups, *next = NULL;
    for (uint64_t i = 0; i < cuda->plan->n_comms; i++)
        if ((!last || compare_members(last, &groups[i]) < 0) &&
            (!next || compare_members(&groups[i], next) < 0))
            next = &groups[i];
    return next;
}

/* Communicators with equal members are one. */
static void share(RtCuda *cuda, const RtGroup *group, RtNcclHandle comm)
{
    RtCudaRanks *ranks = cuda->ranks;
    for (uint64_t i = 0; i < cuda->plan->n_comms; i++)
        if (!compare_members(group, &ranks->groups[i]))
            ranks->comms[i] = comm;
    ranks->owned[group - ranks->groups] = comm != NULL;
}

/* NCCL makes its links at first use: that is now, and not within a step. The arena's first bytes
 * are equal on all ranks, and stay what they are. */
static Status use_group(RtCuda *cuda, const RtGroup *group, RtNcclHandle comm)
{
    static const char linking[] = "linking the ranks' devices";
    const RtNccl *nccl = &cuda->ranks->nccl;
    unsigned char *at = (unsigned char *)(uintptr_t)cuda->arena.at;
    int result = nccl->AllGather(at + group->self * LINK_BYTES, at, LINK_BYTES, RT_NCCL_BYTE, comm,
                                 cuda->stream);
    TRY(rt_nccl_result(cuda, result, linking));
    TRY(rt_nccl_result(cuda, nccl->GroupStart(), linking));
    for (uint32_t i = 1; i < group->n; i++) {
        int peer = (int)((group->self + i) % group->n);
        TRY(rt_nccl_result(cuda, nccl->Send(at, LINK_BYTES, RT_NCCL_BYTE, peer, comm, cuda->stream),
                           linking));
        TRY(rt_nccl_result(cuda,
                           nccl->Recv(at + (uint32_t)peer * LINK_BYTES, LINK_BYTES, RT_NCCL_BYTE,
                                      peer, comm, cuda->stream),
                           linking));
    }
    return rt_nccl_result(cuda, nccl->GroupEnd(), linking);
}

static Status use_groups(RtCuda *cuda)
{
    RtCudaRanks *ranks = cuda->ranks;
    CUresult result;
    Status status = STATUS_OK;
    rt_guard_begin(&ranks->guard, "linking the ranks' devices", ranks->world->timeout_s);
    for (uint64_t i = 0; i < cuda->plan->n_comms && status == STATUS_OK; i++) {
        if (ranks->owned[i] && ranks->groups[i].n * LINK_BYTES <= cuda->plan->header->arena_bytes)
            status = use_group(cuda, &ranks->groups[i], ranks->comms[i]);
        if (ranks->peers.direct[i] && status == STATUS_OK)
            status = rt_peers_meet(cuda, &ranks->groups[i], RT_MEET_READY);
        if (ranks->peers.direct[i] && status == STATUS_OK)
            status = rt_peers_meet(cuda, &ranks->groups[i], RT_MEET_DONE);
    }
    rt_guard_end(&ranks->guard);
    TRY(status);
    if (!rt_nccl_wait(cuda, &result))
        return rt_world_lost(ranks->world, "linking the ranks' devices");
    return rt_cuda_result(cuda, result, "linking the ranks' devices");
}

Status rt_nccl_join(RtCuda *cuda)
{
    RtCudaRanks *ranks = cuda->ranks;
    /* multicast sums on the links' switches are not used: copies gain nothing by them */
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    /* what a graph's gathers read and write, it would let peers reach directly: with 2.28.9 gathers
     * between places in one large arena then bring wrong bytes */
    setenv("NCCL_GRAPH_REGISTER", "0", 1);
    TRY(check_devices(cuda));
    TRY(rt_guard_open(ranks->world, &ranks->guard));
    TRY(rt_peers_open(cuda));
    for (const RtGroup *last = NULL, *next; (next = next_group(cuda, last)); last = next) {
        RtNcclHandle comm = NULL;
        if (next->n > 1 && !is_direct(cuda, next))
            TRY(join_group(cuda, &ranks->groups[next - ranks->groups], &comm));
        share(cuda, next, comm);
    }
    return use_groups(cuda);
}

void rt_nccl_close(RtCuda *cuda)
{
    RtCudaRanks *ranks = cuda->ranks;
    if (!ranks)
        return;
    /* what has been launched is done, or waits for a rank that is lost */
    rt_guard_begin(&ranks->guard, "leaving the other ranks' devices",
                   ranks->over ? LOST_SECONDS : CLOSE_SECONDS);
    if (ranks->over)
        rt_peers_release(cuda);
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

int64_t rt_nccl_mark(RtCuda *cuda)
{
    enum { LONGEST_NS = 1000000000 };
    const RtCudaRanks *ranks = cuda->ranks;
    int64_t begin = rt_clock_ns();
    CUresult result = cuda->driver.MemcpyDtoHAsync(ranks->mark_read, ranks->mark,
                                                   sizeof *ranks->mark_read, cuda->copy_stream);
    while (result == CUDA_SUCCESS &&
           cuda->driver.StreamQuery(cuda->copy_stream) == CUDA_ERROR_NOT_READY)
        if (rt_clock_ns() - begin > LONGEST_NS)
            return 0;
    return result == CUDA_SUCCESS ? *ranks->mark_read : 0;
}

typedef struct Progress { /* of the device through a step's exchanges */
    int64_t mark, since, looked; /* the last mark, and times */
} Progress;

/* Nanoseconds since the device has come to an exchange; looked for now and then. */
static int64_t stands_for(RtCuda *cuda, Progress *progress, int64_t now)
{
    int64_t often = (int64_t)(cuda->ranks->world->timeout_s * 1e9 / 8);
    if (now - progress->looked < often)
        return now - progress->since;
    int64_t mark = rt_nccl_mark(cuda);
    progress->looked = now;
    if (mark != progress->mark)
        progress->since = now;
    progress->mark = mark;
    return now - progress->since;
}

bool rt_nccl_wait(RtCuda *cuda, CUresult *out_result)
{
    enum { LOOK_NS = 10000000 };
    RtWorld *world = cuda->ranks->world;
    int64_t looked = rt_clock_ns();
    Progress progress = {0, looked, looked};
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
        if (has_error(cuda) ||
            (double)stands_for(cuda, &progress, now) > world->timeout_s * 1e9) {
            find_lost(world);
            break;
        }
    }
    cuda->lost = cuda->ranks->over = true;
    return false;
}
