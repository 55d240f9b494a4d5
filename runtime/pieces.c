#include "runtime/pieces.h"

#include <stdlib.h>

/* -- the list -- */

static int64_t numel_of(uint32_t rank, const int64_t *dim)
{
    int64_t numel = 1;
    for (uint32_t i = 0; i < rank; i++)
        numel *= dim[i];
    return numel;
}

static RtTensor of_state(const RtPlan *plan, uint32_t index)
{
    const PlanState *state = &plan->states[index];
    return (RtTensor){
        .name = rt_plan_string(plan, state->name),
        .state = index,
        .kind = state->kind,
        .dtype = (DType)state->dtype,
        .rank = state->rank,
        .dim = state->dim,
        .numel = numel_of(state->rank, state->dim),
        .init = state->init,
        .init_value = state->init_value,
        .file = rt_plan_string(plan, state->file),
        .line = state->line,
    };
}

static RtTensor of_piece(const RtPlan *plan, const PlanPiece *piece)
{
    RtTensor tensor = of_state(plan, piece->state);
    tensor.piece = piece;
    tensor.name = rt_plan_string(plan, piece->name);
    if (rt_is_weight(&tensor))
        tensor.kind = piece->kind;
    tensor.rank = piece->rank;
    tensor.dim = piece->dim;
    tensor.numel = numel_of(piece->rank, piece->dim);
    tensor.init = piece->init;
    tensor.init_value = piece->init_value;
    tensor.file = rt_plan_string(plan, piece->file);
    tensor.line = piece->line;
    return tensor;
}

/* Moments and masters belong to the weight of their name; a state without pieces says so itself. */
static void find_owners(Session *s, RtTensors *tensors, const uint32_t *first_of)
{
    Map by_name;
    map_init(&by_name, s->arena);
    for (uint32_t i = 0; i < tensors->n; i++)
        if (rt_is_weight(&tensors->at[i]))
            map_put(&by_name, map_key(sym(s, tensors->at[i].name)), i);
    for (uint32_t i = 0; i < tensors->n; i++) {
        RtTensor *tensor = &tensors->at[i];
        uint64_t owner = i;
        if (rt_is_weight(tensor))
            owner = i;
        else if (!tensor->piece)
            owner = first_of[tensors->plan->states[tensor->state].of];
        else
            map_get(&by_name, map_key(sym(s, tensor->name)), &owner);
        tensor->of = (uint32_t)owner;
    }
}

void rt_tensors_list(Session *s, const RtWorld *world, const RtPlan *plan, RtTensors *out_tensors)
{
    uint32_t *first_of = ARENA_ARRAY(s->arena, uint32_t, plan->n_states + 1), n = 0;
    uint64_t piece = 0;
    *out_tensors = (RtTensors){
        .plan = plan, .mesh = rt_mesh(plan->header), .self = world ? world->rank : 0};
    out_tensors->at = ARENA_ARRAY(s->arena, RtTensor, plan->n_states + plan->n_pieces + 1);
    for (uint32_t i = 0; i < plan->n_states; i++) {
        first_of[i] = n;
        if (piece == plan->n_pieces || plan->pieces[piece].state != i)
            out_tensors->at[n++] = of_state(plan, i);
        for (; piece < plan->n_pieces && plan->pieces[piece].state == i; piece++)
            out_tensors->at[n++] = of_piece(plan, &plan->pieces[piece]);
    }
    out_tensors->n = n;
    find_owners(s, out_tensors, first_of);
}

uint32_t rt_tensor_of(const RtTensors *tensors, uint32_t of, uint32_t kind)
{
    for (uint32_t i = 0; i < tensors->n; i++)
        if (tensors->at[i].kind == kind && tensors->at[i].of == of)
            return i;
    return UINT32_MAX;
}

/* -- shares -- */

/* Columns, rows and the rank's first column, by tp. */
static void split(const PlanPiece *piece, uint32_t tp, uint32_t tp_rank, RtShare *share)
{
    int64_t behind = 1, part = (int64_t)tp_rank * piece->parts / tp;
    for (uint32_t i = piece->split + 1; i < piece->rank; i++)
        behind *= piece->dim[i];
    share->run = piece->chunk * piece->inner * behind;
    share->pitch = piece->dim[piece->split] / piece->outer * behind;
    share->shift = part * share->run;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

RtShare rt_share(const RtTensors *tensors, const RtTensor *tensor, uint32_t rank)
{
    const PlanPiece *piece = tensor->piece;
    const PlanMesh *mesh = &tensors->mesh;
    RtCoordinates at = rt_mesh_at(mesh, rank);
    RtShare share = {.n = tensor->numel, .run = tensor->numel, .pitch = tensor->numel};
    uint32_t tp_parts = 1;
    if (!piece) {
        share.again = rank > 0;
        return share;
    }
    if (piece->split != PLAN_WHOLE) {
        split(piece, mesh->tp, at.tp, &share);
        tp_parts = (uint32_t)piece->parts;
    }
    share.n = piece->numel;
    share.at = piece->begin;
    share.again = at.tp && at.tp * tp_parts / mesh->tp == (at.tp - 1) * tp_parts / mesh->tp;
    share.again |=
        (!(piece->flat & PLAN_AXIS_DP) && at.dp) || (!(piece->flat & PLAN_AXIS_DPR) && at.dpr);
    if (!piece->flat)
        return share;
    const PlanState *state = &tensors->plan->states[piece->state];
    int64_t own = (int64_t)(state->bytes / dtype_bytes((DType)state->dtype));
    int64_t begin = own * rt_mesh_axes_place(mesh, piece->flat, rank), end = begin + own;
    share.first = begin > piece->begin ? begin - piece->begin : 0;
    share.n = least(end - piece->begin, piece->numel) - share.first;
    share.at = piece->begin > begin ? piece->begin - begin : 0;
    if (share.n <= 0)
        share.n = share.at = share.first = 0;
    return share;
}

int64_t rt_share_at(const RtShare *share, int64_t i, int64_t *out_n)
{
    int64_t e = share->first + i, column = e % share->run + share->shift;
    *out_n = least(share->run - e % share->run, share->n - i);
    if (column >= share->pitch)
        return -1;
    *out_n = least(*out_n, share->pitch - column);
    return e / share->run * share->pitch + column;
}

/* -- gathering -- */

static void scatter(const RtShare *share, const unsigned char *from, unsigned char *to,
                    uint32_t size)
{
    int64_t n;
    for (int64_t i = 0; i < share->n; i += n) {
        int64_t whole = rt_share_at(share, i, &n);
        if (whole >= 0)
            memcpy(to + whole * size, from + i * size, (size_t)(n * size));
    }
}

/* Rank r's share into the whole, which lies on rank 0. */
static bool gather_share(const RtGather *g, RtGroup *all, const RtShare *share, uint32_t r,
                         unsigned char *to)
{
    uint64_t bytes = (uint64_t)share->n * g->element_bytes;
    const unsigned char *own = g->base + share->at * g->element_bytes;
    uint32_t self = g->tensors->self;
    if (r == 0) {
        if (self == 0)
            scatter(share, own, to, g->element_bytes);
        return true;
    }
    if (self == r)
        return rt_send(all, 0, own, bytes);
    if (self != 0)
        return true;
    unsigned char *arrived = malloc(bytes);
    bool done = arrived && rt_receive(all, r, arrived, bytes);
    if (done)
        scatter(share, arrived, to, g->element_bytes);
    free(arrived);
    return done;
}

bool rt_gather(const RtGather *g, unsigned char *to)
{
    Arena *arena = arena_new();
    RtGroup all = {.world = g->world};
    uint32_t size = g->world ? g->world->size : 1;
    uint32_t *ranks = ARENA_ARRAY(arena, uint32_t, size);
    for (uint32_t r = 0; r < size; r++)
        ranks[r] = r;
    all.ranks = ranks;
    bool done = true;
    for (uint32_t r = 0; r < size && done; r++) {
        RtShare share = rt_share(g->tensors, g->tensor, r);
        if (share.n && !share.again)
            done = gather_share(g, &all, &share, r, to);
    }
    arena_free(arena);
    return done;
}
