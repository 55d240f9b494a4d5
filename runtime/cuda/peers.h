/* peers: exchanges by the copy engines. The arenas of the ranks of one machine are mapped beside
 * this one's, and a rank copies what it has to send to its place in the other's arena; NCCL's
 * kernels would take multiprocessors from the products that run beside them. That a place may be
 * written, and that it has been, ranks learn by flags: all of it is in the order of a stream, in a
 * graph or not. For communicators whose members run one plan, those between stages apart: what they
 * exchange is at the same offset on all of them. */
#ifndef RUNTIME_CUDA_PEERS_H
#define RUNTIME_CUDA_PEERS_H

#include "runtime/comm.h"
#include "runtime/cuda/cuda.h"

typedef struct RtPeers {
    bool wanted;         /* unless --no-copy-engines */
    bool *direct;        /* by the plan's communicators: exchanged by copies */
    RtCudaMapped *arena; /* by rank; all zero: not mapped */
    CUdeviceptr flags;   /* behind the plan's arena */
    unsigned wait;       /* how a stream waits for one: CUstreamWaitValue_flags */
} RtPeers;

typedef enum RtMeeting {
    RT_MEET_READY, /* what is behind it may write into the members' arenas */
    RT_MEET_DONE   /* what is before it has been written */
} RtMeeting;

/* Bytes of a rank's flags, behind its arena. NULL: 0. */
uint64_t rt_peers_bytes(const RtWorld *world);
/* All ranks come here. Where the devices' memory cannot be mapped, `direct` says so, and one record
 * why. */
Status rt_peers_open(RtCuda *cuda);
bool rt_peers_used(const RtCuda *cuda);
/* After a rank was lost: lets what waits for its flags go on. */
void rt_peers_release(RtCuda *cuda);
void rt_peers_close(RtCuda *cuda);

/* On the stream, on all members: the other members' streams have come here too. The two meetings
 * follow each other in turn. */
Status rt_peers_meet(RtCuda *cuda, const RtGroup *group, RtMeeting meeting);
/* On the stream: bytes from this rank to member `to` of the group; at: where they go, as an address
 * of this rank's arena. */
Status rt_peers_copy(RtCuda *cuda, const RtGroup *group, uint32_t to, const void *at,
                     const void *from, uint64_t bytes);

#endif
