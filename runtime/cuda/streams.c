#include "runtime/cuda/streams.h"

#include "runtime/comm.h"
#include "runtime/plan_shapes.h"

/* -- what touches what -- */

typedef struct Range { /* of the arena */
    uint64_t begin, end;
} Range;

typedef struct Touched {
    VEC(Range) ranges;
    uint32_t *first; /* by launch, and one more */
} Touched;

static void touch(Arena *scratch, Touched *t, const RtCall *call)
{
    const PlanInstr *instr = call->instr;
    for (uint32_t i = 0; i < instr->n_tensors; i++) {
        const PlanTensor *x = &call->tensor[i];
        if (x->offset != PLAN_ABSENT)
            vec_push(scratch, &t->ranges, ((Range){x->offset, x->offset + rt_tensor_bytes(x)}));
    }
    if (instr->workspace_bytes)
        vec_push(scratch, &t->ranges,
                 ((Range){instr->workspace, instr->workspace + instr->workspace_bytes}));
}

static Touched touched_by(Arena *scratch, const RtCudaExec *exec)
{
    Touched t = {.first = ARENA_ARRAY(scratch, uint32_t, exec->n_launches + 1)};
    for (uint32_t i = 0; i < exec->n_launches; i++) {
        const RtCudaLaunch *launch = &exec->launches[i];
        t.first[i] = t.ranges.n;
        for (uint32_t c = 0; c < launch->n; c++)
            touch(scratch, &t, &exec->calls[launch->first + c]);
    }
    t.first[exec->n_launches] = t.ranges.n;
    return t;
}

static bool meet(const Touched *t, uint32_t a, uint32_t b)
{
    for (uint32_t i = t->first[a]; i < t->first[a + 1]; i++)
        for (uint32_t k = t->first[b]; k < t->first[b + 1]; k++)
            if (t->ranges.at[i].begin < t->ranges.at[k].end &&
                t->ranges.at[k].begin < t->ranges.at[i].end)
                return true;
    return false;
}

/* The last launch before `index` on the other stream that touches what it touches. Those up to
 * `known` have been waited for: a stream goes in order. */
static uint32_t last_met(const RtCudaExec *exec, const Touched *t, uint32_t index, uint32_t known)
{
    for (uint32_t i = index; i-- > known;)
        if (exec->launches[i].exchange != exec->launches[index].exchange && meet(t, i, index))
            return i + 1;
    return 0;
}

/* -- planning -- */

static Status make_event(RtCuda *cuda, CUevent *event)
{
    if (*event)
        return STATUS_OK;
    return rt_cuda_result(cuda, cuda->driver.EventCreate(event, CU_EVENT_DISABLE_TIMING),
                          "making an event");
}

Status rt_cuda_streams_plan(RtCuda *cuda, RtCudaExec *exec)
{
    uint32_t known[2] = {0, 0}; /* by stream: launches of the other that it has waited for */
    for (uint32_t i = 0; i < exec->n_launches; i++) {
        exec->launches[i].exchange =
            rt_is_collective(exec->instrs[exec->launches[i].first].kernel);
        exec->n_exchanges += exec->launches[i].exchange;
    }
    if (!exec->n_exchanges || !cuda->ranks)
        return STATUS_OK;
    Arena *scratch = arena_new();
    Touched t = touched_by(scratch, exec);
    Status status = make_event(cuda, &exec->fork);
    for (uint32_t i = 0; i < exec->n_launches && status == STATUS_OK; i++) {
        RtCudaLaunch *launch = &exec->launches[i];
        launch->wait = last_met(exec, &t, i, known[launch->exchange]);
        if (!launch->wait)
            continue;
        known[launch->exchange] = launch->wait;
        status = make_event(cuda, &exec->launches[launch->wait - 1].over);
    }
    arena_free(scratch);
    return status;
}

void rt_cuda_streams_release(RtCuda *cuda, RtCudaExec *exec)
{
    for (uint32_t i = 0; i < exec->n_launches; i++)
        if (exec->launches[i].over)
            cuda->driver.EventDestroy(exec->launches[i].over);
    if (exec->fork)
        cuda->driver.EventDestroy(exec->fork);
    exec->fork = NULL;
    exec->n_launches = 0;
}

/* -- running -- */

static Status pass(RtCuda *cuda, CUevent event, CUstream from, CUstream to)
{
    static const char what[] = "ordering two streams";
    TRY(rt_cuda_result(cuda, cuda->driver.EventRecord(event, from), what));
    return rt_cuda_result(cuda, cuda->driver.StreamWaitEvent(to, event, 0), what);
}

Status rt_cuda_streams_fork(RtCuda *cuda, RtCudaExec *exec)
{
    return exec->fork ? pass(cuda, exec->fork, cuda->stream, cuda->comm_stream) : STATUS_OK;
}

Status rt_cuda_streams_join(RtCuda *cuda, RtCudaExec *exec)
{
    return exec->fork ? pass(cuda, exec->fork, cuda->comm_stream, cuda->stream) : STATUS_OK;
}

/* While an exchange is launched, `stream` is the exchanges' stream: the two change places. */
static void change_places(RtCuda *cuda)
{
    CUstream main = cuda->stream;
    cuda->stream = cuda->comm_stream;
    cuda->comm_stream = main;
}

Status rt_cuda_streams_enter(RtCuda *cuda, RtCudaExec *exec, uint32_t index, uint32_t first)
{
    const RtCudaLaunch *launch = &exec->launches[index];
    if (!exec->fork)
        return STATUS_OK;
    if (launch->exchange)
        change_places(cuda);
    if (!launch->wait || launch->wait <= first)
        return STATUS_OK;
    return rt_cuda_result(
        cuda,
        cuda->driver.StreamWaitEvent(cuda->stream, exec->launches[launch->wait - 1].over, 0),
        "ordering two streams");
}

Status rt_cuda_streams_leave(RtCuda *cuda, RtCudaExec *exec, uint32_t index)
{
    const RtCudaLaunch *launch = &exec->launches[index];
    Status status = STATUS_OK;
    if (!exec->fork)
        return STATUS_OK;
    if (launch->over)
        status = rt_cuda_result(cuda, cuda->driver.EventRecord(launch->over, cuda->stream),
                                "ordering two streams");
    if (launch->exchange)
        change_places(cuda);
    return status;
}
