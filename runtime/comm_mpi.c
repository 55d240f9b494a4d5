/* Messages over MPI, which is loaded at start: Open MPI, whose handles are addresses of objects
 * in the library. */
#include <dlfcn.h>
#include <stdlib.h>

#include "base/diag.h"
#include "runtime/comm.h"

enum { TAG = 1, THREAD_FUNNELED = 1 };

typedef void *Handle;

/* X(result, member, symbol, arguments) */
#define MPI_FUNCTIONS(X)                                                                           \
    X(int, init, MPI_Init_thread, (int *argc, char ***argv, int required, int *provided))          \
    X(int, comm_rank, MPI_Comm_rank, (Handle comm, int *rank))                                     \
    X(int, comm_size, MPI_Comm_size, (Handle comm, int *size))                                     \
    X(int, isend, MPI_Isend,                                                                       \
      (const void *buffer, int count, Handle type, int to, int tag, Handle comm, Handle *request)) \
    X(int, irecv, MPI_Irecv,                                                                       \
      (void *buffer, int count, Handle type, int from, int tag, Handle comm, Handle *request))     \
    X(int, test, MPI_Test, (Handle * request, int *flag, void *status))                            \
    X(int, abort, MPI_Abort, (Handle comm, int error))                                             \
    X(int, finalize, MPI_Finalize, (void))

typedef struct Mpi {
#define MPI_MEMBER(result, member, symbol, arguments) result(*member) arguments;
    MPI_FUNCTIONS(MPI_MEMBER)
#undef MPI_MEMBER
    Handle world, byte;
    Handle *requests; /* of the round under way: two per transfer at most */
    uint32_t *peers;
    uint32_t n, next; /* those below `next` are done */
} Mpi;

static bool start_one(Mpi *mpi, const RtTransfer *t)
{
    int peer = (int)t->peer;
    if (t->receive_bytes) {
        mpi->peers[mpi->n] = t->peer;
        if (mpi->irecv(t->receive, (int)t->receive_bytes, mpi->byte, peer, TAG, mpi->world,
                       &mpi->requests[mpi->n++]))
            return false;
    }
    if (t->send_bytes) {
        mpi->peers[mpi->n] = t->peer;
        if (mpi->isend(t->send, (int)t->send_bytes, mpi->byte, peer, TAG, mpi->world,
                       &mpi->requests[mpi->n++]))
            return false;
    }
    return true;
}

static bool start(void *link, const RtTransfer *transfers, uint32_t n)
{
    Mpi *mpi = link;
    mpi->n = mpi->next = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!start_one(mpi, &transfers[i]))
            return false;
    return true;
}

static RtTransferState poll_requests(void *link, uint32_t *out_peer)
{
    Mpi *mpi = link;
    for (; mpi->next < mpi->n; mpi->next++) {
        int done = 0;
        *out_peer = mpi->peers[mpi->next];
        if (mpi->test(&mpi->requests[mpi->next], &done, NULL))
            return RT_TRANSFER_LOST;
        if (!done)
            return RT_TRANSFER_PENDING;
    }
    return RT_TRANSFER_DONE;
}

static void finish(void *link)
{
    Mpi *mpi = link;
    mpi->finalize();
}

static void end_all(void *link, int status)
{
    Mpi *mpi = link;
    mpi->abort(mpi->world, status);
    _Exit(status);
}

const RtTransport rt_transport_mpi = {"MPI", start, poll_requests, NULL, finish, end_all};

static const char library_name[] = "libmpi.so.40";

bool rt_mpi_is_there(void)
{
    return dlopen(library_name, RTLD_NOW | RTLD_GLOBAL) != NULL;
}

static Status load(Session *s, Mpi *mpi)
{
    void *library = dlopen(library_name, RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        diag(s, no_span, ranks_library, library_name,
             arena_printf(s->arena, "%s; without it, set MASTER_ADDR and MASTER_PORT", dlerror()));
        return STATUS_ENV;
    }
    const struct {
        const char *symbol;
        void *at;
    } wanted[] = {
#define MPI_SYMBOL(result, member, symbol, arguments) {#symbol, &mpi->member},
        MPI_FUNCTIONS(MPI_SYMBOL)
#undef MPI_SYMBOL
        {"ompi_mpi_comm_world", &mpi->world}, {"ompi_mpi_byte", &mpi->byte},
    };
    for (uint32_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *found = dlsym(library, wanted[i].symbol);
        if (!found) {
            diag(s, no_span, ranks_library, library_name, dlerror());
            return STATUS_ENV;
        }
        memcpy(wanted[i].at, &found, sizeof found);
    }
    return STATUS_OK;
}

Status rt_mpi_open(RtWorld *world)
{
    Session *s = world->s;
    Mpi *mpi = ARENA_NEW(s->arena, Mpi);
    int provided, rank, size;
    TRY(load(s, mpi));
    /* ranks that wait also have worker threads: they must not keep a processor */
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    if (mpi->init(NULL, NULL, THREAD_FUNNELED, &provided) || mpi->comm_rank(mpi->world, &rank) ||
        mpi->comm_size(mpi->world, &size)) {
        diag(s, no_span, ranks_library, "MPI", "it cannot be initialised");
        return STATUS_ENV;
    }
    world->rank = (uint32_t)rank;
    world->transport = &rt_transport_mpi;
    world->link = mpi;
    mpi->requests = ARENA_ARRAY(s->arena, Handle, 2 * world->size);
    mpi->peers = ARENA_ARRAY(s->arena, uint32_t, 2 * world->size);
    if ((uint32_t)size == world->size)
        return STATUS_OK;
    if (!rank)
        diag(s, no_span, ranks_size, (unsigned long long)size, world->size);
    mpi->finalize();
    return STATUS_USER;
}
