#include "runtime/cuda/peers.h"

#include <unistd.h>

#include "base/diag.h"
#include "runtime/cuda/handover.h"
#include "runtime/cuda/memory.h"
#include "runtime/cuda/nccl.h"
#include "runtime/profile.h"

/* Flags: a word that is 1, then for each meeting a word per rank, which that rank sets. */
enum { ONE, FLAGS = 32, MOST_MEMBERS = 64, WHY_BYTES = 112, ALIGNMENT = 256 };

static const char exchanging[] = "exchanging between devices",
                  meeting_devices[] = "mapping the other ranks' memory";

static uint64_t words_of(const RtWorld *world)
{
    return FLAGS + 2 * (uint64_t)world->size;
}

uint64_t rt_peers_bytes(const RtWorld *world)
{
    return world ? ALIGNMENT + words_of(world) * 4 : 0;
}

static CUdeviceptr word(CUdeviceptr flags, uint64_t i)
{
    return flags + i * 4;
}

static uint64_t flag_of(const RtCuda *cuda, RtMeeting meeting, uint32_t rank)
{
    return FLAGS + (uint64_t)meeting * cuda->ranks->world->size + rank;
}

/* -- running -- */

/* Where this rank's `at` is in another's memory. */
static CUdeviceptr there(const RtCuda *cuda, uint32_t rank, CUdeviceptr at)
{
    return cuda->ranks->peers.arena[rank].at + (at - cuda->arena.at);
}

/* Own flags are taken back where they were waited for: a peer sets this one again only after the
 * other meeting, to which this rank comes behind that. The copy of a word has to be one write: a
 * second one would set a flag that has been taken back. */
Status rt_peers_meet(RtCuda *cuda, const RtGroup *group, RtMeeting meeting)
{
    const RtWorld *world = cuda->ranks->world;
    CUdeviceptr flags = cuda->ranks->peers.flags;
    CUstreamBatchMemOpParams op[2 * MOST_MEMBERS] = {{0}};
    uint32_t n = 0;
    for (uint32_t i = 1; i < group->n; i++) {
        uint32_t rank = group->ranks[(group->self + i) % group->n];
        CUdeviceptr flag = word(flags, flag_of(cuda, meeting, world->rank));
        TRY(rt_cuda_result(cuda,
                           cuda->driver.MemcpyDtoDAsync(there(cuda, rank, flag), word(flags, ONE),
                                                        4, cuda->stream),
                           exchanging));
    }
    for (int take_back = 0; take_back < 2; take_back++)
        for (uint32_t i = 1; i < group->n; i++) {
            uint32_t rank = group->ranks[(group->self + i) % group->n];
            CUdeviceptr flag = word(flags, flag_of(cuda, meeting, rank));
            if (take_back)
                op[n++].writeValue = (struct CUstreamMemOpWriteValueParams_st){
                    .operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = flag};
            else
                op[n++].waitValue = (struct CUstreamMemOpWaitValueParams_st){
                    .operation = CU_STREAM_MEM_OP_WAIT_VALUE_32,
                    .address = flag,
                    .value = 1,
                    .flags = cuda->ranks->peers.wait};
        }
    return rt_cuda_result(cuda, cuda->driver.StreamBatchMemOp(cuda->stream, n, op, 0), exchanging);
}

Status rt_peers_copy(RtCuda *cuda, const RtGroup *group, uint32_t to, const void *at,
                     const void *from, uint64_t bytes)
{
    return rt_cuda_result(
        cuda,
        cuda->driver.MemcpyDtoDAsync(there(cuda, group->ranks[to], (CUdeviceptr)(uintptr_t)at),
                                     (CUdeviceptr)(uintptr_t)from, bytes, cuda->stream),
        exchanging);
}

/* -- opening -- */

typedef struct Card { /* what the others have to know of a rank */
    RtHandoverName name;
    char machine[RT_MACHINE_TEXT];
    uint64_t arena_bytes;
    uint32_t wanted, has_peers;
} Card;

typedef struct Verdict { /* empty: all is well */
    char why[WHY_BYTES];
} Verdict;

typedef struct Opening {
    RtCuda *cuda;
    RtGroup all;
    Card *card; /* by rank */
    bool *peer; /* by rank: a member of a communicator that may be direct */
    int fd, socket;
    Verdict own;
} Opening;

static void say_why(Opening *o, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say_why(Opening *o, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!o->own.why[0])
        vsnprintf(o->own.why, sizeof o->own.why, format, args);
    va_end(args);
}

/* Its members have one plan: stages have others. */
static bool may_be_direct(const RtCuda *cuda, uint64_t comm)
{
    const RtCudaRanks *ranks = cuda->ranks;
    const PlanMesh *mesh = &ranks->world->mesh;
    uint32_t axes = cuda->plan->comms[comm].axes;
    return ranks->groups[comm].n > 1 && rt_mesh_axes_size(mesh, axes & PLAN_AXIS_PP) == 1;
}

static void find_peers(Opening *o)
{
    const RtCudaRanks *ranks = o->cuda->ranks;
    for (uint64_t i = 0; i < o->cuda->plan->n_comms; i++) {
        const RtGroup *group = &ranks->groups[i];
        ranks->peers.direct[i] = may_be_direct(o->cuda, i);
        for (uint32_t r = 0; r < group->n && ranks->peers.direct[i]; r++)
            o->peer[group->ranks[r]] = true;
        if (ranks->peers.direct[i] && group->n > MOST_MEMBERS)
            say_why(o, "a communicator has more than %d members", MOST_MEMBERS);
    }
    o->peer[ranks->world->rank] = false;
}

static Status clear_flags(RtCuda *cuda)
{
    CUdeviceptr flags = cuda->ranks->peers.flags;
    uint64_t n = words_of(cuda->ranks->world);
    TRY(rt_cuda_result(cuda, cuda->driver.MemsetD32Async(flags, 0, n, cuda->stream),
                       meeting_devices));
    TRY(rt_cuda_result(cuda, cuda->driver.MemsetD32Async(word(flags, ONE), 1, 1, cuda->stream),
                       meeting_devices));
    return rt_cuda_result(cuda, cuda->driver.StreamSynchronize(cuda->stream), meeting_devices);
}

/* The same as a part of a graph, which is not launched. */
static bool can_be_captured(RtCuda *cuda, CUstreamBatchMemOpParams *op, uint32_t n)
{
    const RtCudaDriver *driver = &cuda->driver;
    CUgraph graph = NULL;
    if (driver->StreamBeginCapture(cuda->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
        return false;
    bool taken = driver->StreamBatchMemOp(cuda->stream, n, op, 0) == CUDA_SUCCESS;
    bool ended = driver->StreamEndCapture(cuda->stream, &graph) == CUDA_SUCCESS;
    if (graph)
        driver->GraphDestroy(graph);
    return taken && ended;
}

/* What a peer has written before its flag is there once the flag is: devices that may put such
 * writes into another order say so by what they can flush. */
static Status choose_wait(RtCuda *cuda)
{
    int flushes = 0;
    TRY(rt_cuda_result(cuda,
                       cuda->driver.DeviceGetAttribute(
                           &flushes, CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, cuda->device),
                       "asking for the device's properties"));
    cuda->ranks->peers.wait =
        CU_STREAM_WAIT_VALUE_EQ | (flushes ? (unsigned)CU_STREAM_WAIT_VALUE_FLUSH : 0);
    return STATUS_OK;
}

/* Whether the device waits for a word and writes one by a stream's order. */
static Status try_flags(Opening *o)
{
    RtCuda *cuda = o->cuda;
    TRY(choose_wait(cuda));
    CUdeviceptr flag =
        word(cuda->ranks->peers.flags, flag_of(cuda, RT_MEET_READY, cuda->ranks->world->rank));
    CUstreamBatchMemOpParams op[2] = {{0}};
    op[0].writeValue = (struct CUstreamMemOpWriteValueParams_st){
        .operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = flag, .value = 1};
    op[1].waitValue =
        (struct CUstreamMemOpWaitValueParams_st){.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32,
                                                 .address = flag,
                                                 .value = 1,
                                                 .flags = cuda->ranks->peers.wait};
    if (cuda->driver.StreamBatchMemOp(cuda->stream, 2, op, 0) || !can_be_captured(cuda, op, 2))
        say_why(o, "the driver has no waits of a stream for memory");
    return clear_flags(cuda);
}

static void export_arena(Opening *o)
{
    const RtCuda *cuda = o->cuda;
    CUresult result = cuda->driver.MemExportToShareableHandle(
        &o->fd, cuda->arena.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result) {
        o->fd = -1;
        say_why(o, "the driver does not let memory be shared");
    }
}

static Status gather_cards(Opening *o)
{
    const RtCuda *cuda = o->cuda;
    Card own = {.arena_bytes = cuda->arena.bytes,
                .wanted = cuda->ranks->peers.wanted,
                .has_peers = rt_peers_used(cuda)};
    rt_machine(own.machine);
    o->socket = rt_handover_open(&own.name);
    if (o->socket < 0)
        say_why(o, "no socket between processes");
    if (!rt_all_gather(&o->all, o->card, &own, sizeof own))
        return rt_world_lost(cuda->ranks->world, meeting_devices);
    return STATUS_OK;
}

/* All want it, and for some there is something to copy. */
static bool is_asked_for(const Opening *o)
{
    bool want = true, have = false;
    for (uint32_t r = 0; r < o->all.n; r++) {
        want &= o->card[r].wanted != 0;
        have |= o->card[r].has_peers != 0;
    }
    return want && have;
}

static void send_arena(Opening *o)
{
    const Card *own = &o->card[o->all.self];
    for (uint32_t r = 0; r < o->all.n && !o->own.why[0]; r++) {
        if (!o->peer[r])
            continue;
        if (strcmp(own->machine, o->card[r].machine))
            say_why(o, "rank %u is on another machine", r);
        else if (own->arena_bytes != o->card[r].arena_bytes)
            say_why(o, "rank %u has an arena of another size", r);
        else if (!rt_handover_send(o->socket, &o->card[r].name, o->all.self, o->fd))
            say_why(o, "rank %u's process is not reached", r);
    }
}

static void map_arenas(Opening *o)
{
    RtCuda *cuda = o->cuda;
    RtCudaMapped *arena = cuda->ranks->peers.arena;
    uint32_t from;
    for (int fd; (fd = rt_handover_receive(o->socket, &o->card[o->all.self].name, &from)) >= 0;
         close(fd)) {
        CUmemGenericAllocationHandle handle;
        if (from >= o->all.n || !o->peer[from] || arena[from].at)
            continue;
        if (cuda->driver.MemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) ||
            rt_cuda_map_import(cuda, handle, cuda->arena.bytes, &arena[from]))
            say_why(o, "the driver does not map rank %u's memory", from);
    }
    for (uint32_t r = 0; r < o->all.n; r++)
        if (o->peer[r] && !arena[r].at)
            say_why(o, "rank %u's memory has not come", r);
}

/* Each rank's verdict to all; the first that is not well is said by rank 0. */
static Status gather_verdicts(Opening *o, Verdict *verdicts, bool *out_well)
{
    RtWorld *world = o->cuda->ranks->world;
    if (!rt_all_gather(&o->all, verdicts, &o->own, sizeof o->own))
        return rt_world_lost(world, meeting_devices);
    *out_well = true;
    for (uint32_t r = 0; r < o->all.n && *out_well; r++)
        if (verdicts[r].why[0]) {
            *out_well = false;
            if (!world->rank)
                diag(world->s, no_span, cuda_no_copies, r, verdicts[r].why);
        }
    return STATUS_OK;
}

static Status open_peers(Opening *o, bool *out_well)
{
    Verdict *verdicts = ARENA_ARRAY(o->cuda->s->arena, Verdict, o->all.n);
    *out_well = false;
    TRY(clear_flags(o->cuda));
    export_arena(o);
    TRY(try_flags(o));
    TRY(gather_cards(o));
    if (!is_asked_for(o))
        return STATUS_OK;
    send_arena(o);
    TRY(gather_verdicts(o, verdicts, out_well));
    if (!*out_well)
        return STATUS_OK;
    map_arenas(o);
    return gather_verdicts(o, verdicts, out_well);
}

Status rt_peers_open(RtCuda *cuda)
{
    RtPeers *peers = &cuda->ranks->peers;
    RtWorld *world = cuda->ranks->world;
    Opening o = {.cuda = cuda, .fd = -1, .socket = -1};
    bool well;
    rt_group_open_world(world, &o.all);
    o.card = ARENA_ARRAY(cuda->s->arena, Card, world->size);
    o.peer = ARENA_ARRAY(cuda->s->arena, bool, world->size);
    peers->direct = ARENA_ARRAY(cuda->s->arena, bool, cuda->plan->n_comms);
    peers->arena = ARENA_ARRAY(cuda->s->arena, RtCudaMapped, world->size);
    peers->flags =
        cuda->arena.at + (cuda->plan->header->arena_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    find_peers(&o);
    Status status = open_peers(&o, &well);
    if (o.fd >= 0)
        close(o.fd);
    if (o.socket >= 0)
        close(o.socket);
    if (status == STATUS_OK && well)
        return STATUS_OK;
    rt_peers_close(cuda);
    return status;
}

/* -- the end -- */

bool rt_peers_used(const RtCuda *cuda)
{
    const RtPeers *peers = &cuda->ranks->peers;
    for (uint64_t i = 0; i < cuda->plan->n_comms && peers->direct; i++)
        if (peers->direct[i])
            return true;
    return false;
}

/* What goes on then sets no flags of others: they must not take for sent what was not. */
void rt_peers_release(RtCuda *cuda)
{
    enum { RELEASE_NS = 1000000000 };
    const RtPeers *peers = &cuda->ranks->peers;
    const RtCudaDriver *driver = &cuda->driver;
    int64_t begin = rt_clock_ns();
    if (!rt_peers_used(cuda) ||
        driver->MemsetD32Async(word(peers->flags, ONE), 0, 1, cuda->copy_stream))
        return;
    while ((driver->StreamQuery(cuda->stream) == CUDA_ERROR_NOT_READY ||
            driver->StreamQuery(cuda->comm_stream) == CUDA_ERROR_NOT_READY) &&
           rt_clock_ns() - begin < RELEASE_NS) {
        driver->MemsetD32Async(word(peers->flags, FLAGS), 1, words_of(cuda->ranks->world) - FLAGS,
                               cuda->copy_stream);
        driver->StreamSynchronize(cuda->copy_stream);
    }
}

void rt_peers_close(RtCuda *cuda)
{
    RtPeers *peers = &cuda->ranks->peers;
    for (uint64_t i = 0; i < cuda->plan->n_comms && peers->direct; i++)
        peers->direct[i] = false;
    for (uint32_t r = 0; r < cuda->ranks->world->size && peers->arena; r++)
        rt_cuda_unmap(cuda, &peers->arena[r]);
}
