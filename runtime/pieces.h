/* pieces: the tensors of a checkpoint, and which of their elements each rank holds where. A
 * state of the plan is one tensor, or holds pieces of several (runtime/abi/plan.h: PlanPiece).
 */
#ifndef RUNTIME_PIECES_H
#define RUNTIME_PIECES_H

#include "runtime/comm.h"
#include "runtime/plan_map.h"

/* What the ranks of one stage have of a tensor. */
typedef struct RtPart {
    uint32_t stage, state;  /* of the stage's plan */
    const PlanPiece *piece; /* NULL: whole on every rank of the stage */
} RtPart;

typedef struct RtTensor {
    /* without a sigil: a parameter's or buffer's; of a state without pieces the state's */
    const char *name;
    const char *state_name; /* of the state that holds it */
    uint32_t kind; /* PLAN_STATE_*: of what the state holds of it */
    DType dtype;
    uint32_t rank;
    const int64_t *dim; /* of the whole */
    int64_t numel;
    /* the parameter that a moment or master belongs to, an index into RtTensors; else its own */
    uint32_t of;
    uint32_t init, line;
    double init_value;
    const char *file;
    uint32_t n_parts; /* one without a pipeline; in the order of the stages */
    const RtPart *parts;
} RtTensor;

typedef struct RtTensors {
    const RtPlan *plan; /* this rank's */
    PlanMesh mesh;
    uint32_t self; /* this rank */
    uint32_t n;
    /* of all stages, in the order of the stages and their states; without pieces and with one
     * stage, tensor i is state i */
    RtTensor *at;
} RtTensors;

/* What a rank holds: local elements [first, first + n) of its tp-local tensor, from the state's
 * element `at` on. */
typedef struct RtShare {
    int64_t first, n, at;
    /* local e is column e % run + shift of row e / run of the whole, rows of `pitch` */
    int64_t run, pitch, shift;
    bool again;                /* a lower rank holds the same */
} RtShare;

void rt_tensors_list(Session *s, const RtWorld *world, const RtPlan *plan, RtTensors *out_tensors);
RtShare rt_share(const RtTensors *tensors, const RtTensor *tensor, uint32_t rank);
/* What the stage has of it; NULL: nothing. */
const RtPart *rt_tensor_part(const RtTensor *tensor, uint32_t stage);
/* Where this rank's state begins that holds its share; NULL: it has none. */
unsigned char *rt_tensor_at(const RtTensors *tensors, const RtTensor *tensor,
                            const unsigned char *arena);
/* Does every rank that writes files have all of it? */
bool rt_tensor_is_whole(const RtTensor *tensor);
/* Where the share's i-th element is in the whole, and how many stand beside each other from
 * there; -1: padding. */
int64_t rt_share_at(const RtShare *share, int64_t i, int64_t *out_n);

/* Of all tensors, whole: what files hold of them, at most. */
uint64_t rt_tensors_bytes(const RtTensors *tensors);

/* The tensor of this kind with the parameter `of`, or UINT32_MAX. */
uint32_t rt_tensor_of(const RtTensors *tensors, uint32_t of, uint32_t kind);

static inline bool rt_is_weight(const RtTensor *tensor)
{
    return tensor->kind == PLAN_STATE_PARAM || tensor->kind == PLAN_STATE_BUFFER;
}

static inline Span rt_tensor_span(Session *s, const RtTensor *tensor)
{
    return (Span){.file = sym(s, tensor->file), .line = tensor->line, .col = tensor->line ? 1 : 0};
}

/* One tensor whole on rank 0; all ranks call it. base: where this rank's state, or what is laid
 * out like it, begins; to: room for the whole on rank 0, else not read. False: a rank is lost.
 */
typedef struct RtGather {
    RtWorld *world;
    const RtTensors *tensors;
    const RtTensor *tensor;
    const unsigned char *base;
    uint32_t element_bytes;
} RtGather;

bool rt_gather(const RtGather *gather, unsigned char *to);

#endif
