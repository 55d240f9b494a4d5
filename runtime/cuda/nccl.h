/* nccl: exchanges between the devices of a run's ranks. NCCL is loaded where a plan has more than
 * one rank, and joins those that the copy engines do not reach (peers.h); only copies are its work,
 * sums are our own kernels': so results depend on neither its algorithms nor the number of its
 * channels. */
#ifndef RUNTIME_CUDA_NCCL_H
#define RUNTIME_CUDA_NCCL_H

#include "runtime/comm.h"
#include "runtime/cuda/cuda.h"
#include "runtime/cuda/guard.h"
#include "runtime/cuda/peers.h"

enum { RT_NCCL_VERSION = 22000, RT_NCCL_ID_BYTES = 128, RT_NCCL_BYTE = 0 /* ncclInt8 */ };

typedef struct RtNcclComm *RtNcclHandle; /* ncclComm_t */

typedef struct RtNcclId { /* ncclUniqueId */
    char bytes[RT_NCCL_ID_BYTES];
} RtNcclId;

/* X(name, arguments): ncclNAME; all return ncclResult_t but GetErrorString. The header is no part
 * of the toolkit, and these have not changed since NCCL 2.7. */
#define RT_NCCL_FUNCTIONS(X)                                                                       \
    X(GetVersion, (int *version))                                                                  \
    X(GetUniqueId, (RtNcclId * id))                                                                \
    X(CommInitRank, (RtNcclHandle * comm, int ranks, RtNcclId id, int rank))                       \
    X(CommAbort, (RtNcclHandle comm))                                                              \
    X(CommGetAsyncError, (RtNcclHandle comm, int *error))                                          \
    X(GroupStart, (void))                                                                          \
    X(GroupEnd, (void))                                                                            \
    X(AllGather, (const void *from, void *to, size_t n, int type, RtNcclHandle comm, CUstream at)) \
    X(Send, (const void *from, size_t n, int type, int peer, RtNcclHandle comm, CUstream at))      \
    X(Recv, (void *to, size_t n, int type, int peer, RtNcclHandle comm, CUstream at))

typedef struct RtNccl { /* nccl.Send is ncclSend */
#define RT_NCCL_MEMBER(name, arguments) int(*name) arguments;
    RT_NCCL_FUNCTIONS(RT_NCCL_MEMBER)
#undef RT_NCCL_MEMBER
    const char *(*GetErrorString)(int result);
} RtNccl;

typedef struct RtCudaRanks { /* of a plan for more than one rank: RtCuda.ranks */
    RtWorld *world;
    RtGroup *groups; /* by the plan's communicators */
    RtNccl nccl;
    RtNcclHandle *comms; /* the same; NULL: it exchanges nothing over it. Equal ones are one */
    bool *owned;         /* the first of equal ones */
    CUdeviceptr mark;    /* on the device: 1 + the instruction whose exchange has begun */
    int64_t *mark_read;  /* pinned: for rt_nccl_mark */
    int version;
    RtPeers peers;
    RtGuard guard;
    bool over; /* a rank has been lost: the communicators are to be aborted */
} RtCudaRanks;

/* The library alone; then, once all ranks have it, communicators. All ranks come to `join`. */
Status rt_nccl_load(RtCuda *cuda, RtWorld *world, RtGroup *groups);
Status rt_nccl_join(RtCuda *cuda);
/* Waits for no other rank. */
void rt_nccl_close(RtCuda *cuda);
Status rt_nccl_result(RtCuda *cuda, int result, const char *what);

/* 1 + the instruction whose exchange has begun last, as the device says while it is at work; 0: it
 * does not say. */
int64_t rt_nccl_mark(RtCuda *cuda);
/* Waits until the main stream is done, and looks after the other ranks meanwhile: a step may take
 * as long as it does, while from one of its exchanges to the next there is the timeout. False: one
 * is lost; world->lost says which. */
bool rt_nccl_wait(RtCuda *cuda, CUresult *out_result);

#endif
