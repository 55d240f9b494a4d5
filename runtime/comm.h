/* comm: the ranks of a run and what they exchange. A collective is rounds of messages between
 * the members of a group; sums are taken in the order of the ranks, so that every member has the
 * same bits. Who carries the messages is a transport: MPI, or TCP links of our own. */
#ifndef RUNTIME_COMM_H
#define RUNTIME_COMM_H

#include "base/session.h"
#include "runtime/abi/plan.h"

/* -- transports -- */

typedef struct RtTransfer { /* with one peer; either side may have no bytes */
    uint32_t peer;          /* its rank */
    const void *send;
    void *receive;
    uint64_t send_bytes, receive_bytes;
} RtTransfer;

typedef enum RtTransferState {
    RT_TRANSFER_PENDING,
    RT_TRANSFER_DONE,
    RT_TRANSFER_LOST
} RtTransferState;

typedef struct RtTransport {
    const char *name;
    /* Begins transfers, each with another peer; they stay where they are until all are done. */
    bool (*start)(void *link, const RtTransfer *transfers, uint32_t n);
    /* Moves on; *out_peer: a rank that is waited for, or that is lost. */
    RtTransferState (*poll)(void *link, uint32_t *out_peer);
    /* Has a rank gone that nothing is exchanged with at the moment? NULL: the launcher ends the
     * others then. */
    bool (*gone)(void *link, uint32_t *out_peer);
    void (*close)(void *link);              /* all ranks come here */
    /* this one does, and ends the others if it can; may not return */
    void (*abort)(void *link, int status);
} RtTransport;

/* -- the world -- */

typedef struct RtWorld {
    Session *s;
    uint32_t rank, size;
    uint32_t local; /* ranks on this machine */
    PlanMesh mesh; /* no member is 0 */
    const RtTransport *transport;
    void *link;
    double timeout_s;
    double files_s; /* beside it, while ranks read and write files */
    uint64_t eager_polls;
    int64_t steps_done; /* for messages */
    char lost[160]; /* why an exchange failed; empty: none has */
    bool told;      /* ... and that has been said */
    /* of a rank other than 0: what it says is kept until it is known whether it is needed */
    FILE *own_out;
    FILE *first_out;
    char *said;
    size_t said_bytes;
} RtWorld;

typedef struct RtCoordinates {
    uint32_t tp, dp, dpr, pp;
} RtCoordinates;

typedef struct RtGroup { /* the members of one communicator */
    RtWorld *world;
    const char *name;
    uint32_t n, self;
    const uint32_t *ranks;
    RtTransfer *transfers; /* room for a round */
} RtGroup;

/* This rank's place among those on its machine, as far as the environment says so. */
uint32_t rt_local_rank(void);
/* What tells machines apart; empty where the system does not say. */
enum { RT_MACHINE_TEXT = 48 };
void rt_machine(char out[RT_MACHINE_TEXT]);
/* Was the process started as one of several? */
bool rt_is_launched(void);

PlanMesh rt_mesh(const PlanHeader *header); /* no member is 0 */
uint32_t rt_mesh_size(const PlanMesh *mesh);
RtCoordinates rt_mesh_at(const PlanMesh *mesh, uint32_t rank);
/* Product of the axes' sizes; the place among the members that differ in these axes alone. */
uint32_t rt_mesh_axes_size(const PlanMesh *mesh, uint32_t axes);
uint32_t rt_mesh_axes_place(const PlanMesh *mesh, uint32_t axes, uint32_t rank);

/* Meets the other ranks, which must have the same hash, as the environment says (mpirun, srun,
 * or RANK and WORLD_SIZE). *out_world is NULL where the mesh has one rank. From here on ranks
 * other than 0 keep what they say to themselves. */
Status rt_world_open(Session *s, const PlanHeader *header, uint64_t hash, double timeout_s,
                     RtWorld **out_world);
/* agreed: all ranks have this status and come here; else the job ends. NULL does nothing. */
void rt_world_close(RtWorld *world, Status status, bool agreed);
/* The communicator that this rank is a member of. */
void rt_group_open(RtWorld *world, const PlanComm *comm, const char *name, RtGroup *out_group);
/* The one of all ranks. */
void rt_group_open_world(RtWorld *world, RtGroup *out_group);

/* -- collectives; false: world->lost says why, and the job is over -- */

/* to[r * bytes ..] = from of member r; `from` may be its own place in `to`. */
bool rt_all_gather(RtGroup *group, void *to, const void *from, uint64_t bytes);

typedef struct RtReduction {
    uint32_t from_dtype, to_dtype;
    PlanReduce op;
    void *to;
    const void *from;
    int64_t count;   /* elements of `to` */
    void *workspace; /* plan_comm_workspace */
} RtReduction;

bool rt_reduce_scatter(RtGroup *group, const RtReduction *reduction);
bool rt_all_reduce(RtGroup *group, const RtReduction *reduction);

/* One message; both sides call it. */
bool rt_send(RtGroup *group, uint32_t to, const void *bytes, uint64_t n);
bool rt_receive(RtGroup *group, uint32_t from, void *bytes, uint64_t n);

/* -- small things between steps, over all ranks; `world` NULL: one rank -- */

/* The worst of the ranks' statuses, known to all; what the first rank with it has said is
 * printed, what the others said is dropped. */
Status rt_world_agree(RtWorld *world, Status status);
Status rt_world_sum_i64(RtWorld *world, uint32_t axes, int64_t *value);
/* Until the next call, ranks wait for each other as long, beside the timeout, as a slow disk takes
 * for so many bytes. */
void rt_world_allow(RtWorld *world, uint64_t bytes);
/* Do all ranks have the same words? The first that differs is an error. */
typedef struct RtWord {
    const char *what; /* "seed": for the message */
    uint64_t value;
} RtWord;
Status rt_world_same(RtWorld *world, const RtWord *words, uint32_t n);
/* What this rank has said so far is printed, although all may end well. */
void rt_world_say(RtWorld *world);
/* The same without a message: false: world->lost says why. */
bool rt_world_sum(RtWorld *world, uint32_t axes, int64_t *value);
Status rt_world_lost(RtWorld *world, const char *what);
/* Whether all ranks come here in time; world->lost says which does not. */
bool rt_world_ask(RtWorld *world);
/* Says what was held back and ends the job from any thread. */
void rt_world_end(RtWorld *world, Status status) __attribute__((noreturn));
/* Between two looks at something that other ranks are to bring about: looks are counted. */
void rt_world_rest(const RtWorld *world, uint64_t looks);

static inline bool rt_is_first(const RtWorld *world)
{
    return !world || world->rank == 0;
}

/* Do all members of a communicator take part in the kernel? */
static inline bool rt_is_collective(uint32_t kernel)
{
    return kernel == PLAN_KERNEL_all_gather || kernel == PLAN_KERNEL_reduce_scatter ||
           kernel == PLAN_KERNEL_all_reduce;
}

/* -- for the transports -- */

extern const RtTransport rt_transport_mpi, rt_transport_tcp;
bool rt_mpi_is_there(void); /* its library */
Status rt_mpi_open(RtWorld *world);
Status rt_tcp_open(RtWorld *world); /* world->rank is known */

#endif
