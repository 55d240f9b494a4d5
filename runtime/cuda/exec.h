/* exec: an instruction list prepared to run on the device: addresses, launches that take several
 * calls at once, and the whole list as one graph. */
#ifndef RUNTIME_CUDA_EXEC_H
#define RUNTIME_CUDA_EXEC_H

#include "runtime/cuda/control.h"
#include "runtime/cuda/cuda.h"

typedef struct RtCudaLaunch { /* calls that go to the device together */
    uint32_t first, n;
    uint64_t table; /* n > 1: bytes from the start of the group tables */
    /* streams.h: on the exchanges' stream? 1 + the launch of the other stream that it waits for;
     * where it is waited for, recorded when it is over */
    bool exchange;
    uint32_t wait;
    CUevent over;
} RtCudaLaunch;

typedef struct RtCudaExec {
    const PlanInstr *instrs;
    uint64_t n_instrs;
    RtCall *calls;
    RtCudaLaunch *launches;
    uint32_t n_launches;
    uint64_t table_bytes; /* of all groups */
    void *table;          /* in device memory */
    CUgraphExec graph;    /* NULL until it is captured */
    uint64_t graph_nodes;
    CUevent *events; /* n_launches + 1 while a profile is taken; else NULL */
    uint32_t n_exchanges;
    CUevent fork; /* NULL: one stream */
} RtCudaExec;

/* Resolves addresses in cuda->arena and finds the groups. alone: each instruction is a launch of
 * its own, as --check needs it, which fills what dies behind each. */
Status rt_cuda_exec_prepare(RtCuda *cuda, const PlanInstr *instrs, uint64_t n_instrs, bool alone,
                            RtCudaExec *out_exec);
/* Once cuda->control is known: the random words' address, and the groups' tables, at table_bytes of
 * device memory. */
Status rt_cuda_exec_place(RtCuda *cuda, RtCudaExec *exec, CUdeviceptr at);
/* Runs every launch function without launching; see RtCuda.rehearsing. */
Status rt_cuda_exec_rehearse(RtCuda *cuda, RtCudaExec *exec);
void rt_cuda_exec_release(RtCuda *cuda, RtCudaExec *exec);

typedef struct RtCudaWatch { /* what a run does beside its instructions */
    bool check;              /* looks for non-finite results, fills dead memory with NaN */
    bool timed;              /* records exec->events; all launches on one stream */
} RtCudaWatch;

/* Launches instructions [from, to). */
Status rt_cuda_exec_run(RtCuda *cuda, RtCudaExec *exec, uint64_t from, uint64_t to,
                        RtCudaWatch watch);

/* Captures the whole list between `begin` and `end` (see rt_cuda_control_*) as exec->graph. */
Status rt_cuda_exec_capture(RtCuda *cuda, RtCudaExec *exec);

/* control.cu: scalars into the arena before the list, out of it after. */
Status rt_cuda_control_begin(RtCuda *cuda);
Status rt_cuda_control_end(RtCuda *cuda);

/* --check: whether tensor t of the call is finite; asks the device, which answers into the control
 * block. */
Status rt_cuda_check_tensor(RtCuda *cuda, const RtCall *call, uint32_t t);

#endif
