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
        .state_name = rt_plan_string(plan, state->name),
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

typedef struct Lister {
    Session *s;
    RtTensors *out;
    Map by_name;        /* name and kind -> index */
    uint32_t *first_of; /* by state of the plan that is listed: its first tensor */
} Lister;

static uint64_t key_of(Session *s, const char *name, uint32_t kind)
{
    return map_key(sym(s, arena_printf(s->arena, "%u %s", kind, name)));
}

/* A stage's part of a tensor, which another stage may have named before. */
static uint32_t add(Lister *l, RtTensor tensor, RtPart part)
{
    uint64_t at = l->out->n, key = key_of(l->s, tensor.name, tensor.kind);
    RtPart *parts = ARENA_NEW(l->s->arena, RtPart);
    if (!map_get(&l->by_name, key, &at)) {
        map_put(&l->by_name, key, at);
        *parts = part;
        tensor.parts = parts;
        tensor.n_parts = 1;
        l->out->at[l->out->n++] = tensor;
        return (uint32_t)at;
    }
    RtTensor *known = &l->out->at[at];
    parts = ARENA_ARRAY(l->s->arena, RtPart, known->n_parts + 1);
    memcpy(parts, known->parts, known->n_parts * sizeof *parts);
    parts[known->n_parts++] = part;
    known->parts = parts;
    return (uint32_t)at;
}

static void list_plan(Lister *l, uint32_t stage, const RtPlan *plan)
{
    uint64_t piece = 0;
    for (uint32_t i = 0; i < plan->n_states; i++) {
        RtPart part = {stage, i, NULL};
        l->first_of[i] = UINT32_MAX;
        if (piece == plan->n_pieces || plan->pieces[piece].state != i)
            l->first_of[i] = add(l, of_state(plan, i), part);
        for (; piece < plan->n_pieces && plan->pieces[piece].state == i; piece++) {
            part.piece = &plan->pieces[piece];
            uint32_t at = add(l, of_piece(plan, part.piece), part);
            l->first_of[i] = l->first_of[i] == UINT32_MAX ? at : l->first_of[i];
        }
    }
    for (uint32_t i = 0; i < plan->n_states; i++) /* a state without pieces says itself */
        if (l->first_of[i] != UINT32_MAX)
            l->out->at[l->first_of[i]].of = l->first_of[plan->states[i].of];
}

/* Moments and masters with pieces belong to the weight of their name. */
static void find_owners(const Lister *l)
{
    RtTensors *tensors = l->out;
    for (uint32_t i = 0; i < tensors->n; i++) {
        RtTensor *tensor = &tensors->at[i];
        uint64_t owner = i;
        if (!rt_is_weight(tensor) && !tensor->parts[0].piece)
            continue;
        if (!rt_is_weight(tensor) &&
            !map_get(&l->by_name, key_of(l->s, tensor->name, PLAN_STATE_PARAM), &owner))
            map_get(&l->by_name, key_of(l->s, tensor->name, PLAN_STATE_BUFFER), &owner);
        tensor->of = (uint32_t)owner;
    }
}

void rt_tensors_list(Session *s, const RtWorld *world, const RtPlan *plan, RtTensors *out_tensors)
{
    uint64_t most = 0, states = 0;
    *out_tensors = (RtTensors){
        .plan = plan, .mesh = rt_mesh(plan->header), .self = world ? world->rank : 0};
    for (uint32_t i = 0; i < plan->n_all; i++) {
        most += plan->all[i].n_states + plan->all[i].n_pieces;
        states = plan->all[i].n_states > states ? plan->all[i].n_states : states;
    }
    Lister l = {.s = s, .out = out_tensors};
    l.first_of = ARENA_ARRAY(s->arena, uint32_t, states + 1);
    out_tensors->at = ARENA_ARRAY(s->arena, RtTensor, most + 1);
    map_init(&l.by_name, s->arena);
    for (uint32_t i = 0; i < plan->n_all; i++)
        list_plan(&l, i, &plan->all[i]);
    find_owners(&l);
}

const RtPart *rt_tensor_part(const RtTensor *tensor, uint32_t stage)
{
    for (uint32_t i = 0; i < tensor->n_parts; i++)
        if (tensor->parts[i].stage == stage)
            return &tensor->parts[i];
    return NULL;
}

static uint32_t stage_of(const RtTensors *tensors, uint32_t rank)
{
    return tensors->mesh.pp > 1 ? rt_mesh_at(&tensors->mesh, rank).pp : 0;
}

unsigned char *rt_tensor_at(const RtTensors *tensors, const RtTensor *tensor,
                            const unsigned char *arena)
{
    const RtPart *part = rt_tensor_part(tensor, stage_of(tensors, tensors->self));
    return part ? (unsigned char *)(uintptr_t)arena + tensors->plan->states[part->state].offset
                : NULL;
}

bool rt_tensor_is_whole(const RtTensor *tensor)
{
    return !tensor->parts[0].piece && !tensor->parts[0].stage;
}

uint64_t rt_tensors_bytes(const RtTensors *tensors)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < tensors->n; i++)
        bytes += (uint64_t)tensors->at[i].numel * dtype_bytes(tensors->at[i].dtype);
    return bytes;
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

/* The same of a run of one dim. */
static void narrow(const PlanPiece *piece, RtShare *share)
{
    int64_t behind = 1;
    for (uint32_t i = piece->narrow + 1; i < piece->rank; i++)
        behind *= piece->dim[i];
    share->run = piece->narrow_size * behind;
    share->pitch = piece->dim[piece->narrow] * behind;
    share->shift = piece->narrow_begin * behind;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* What the rank has of the unit's flat buffer. */
static void cut(const RtTensors *tensors, const RtPart *part, uint32_t rank, RtShare *share)
{
    const PlanPiece *piece = part->piece;
    const PlanState *state = &tensors->plan->all[part->stage].states[piece->state];
    int64_t own = (int64_t)(state->bytes / dtype_bytes((DType)state->dtype));
    int64_t begin = own * rt_mesh_axes_place(&tensors->mesh, piece->flat, rank), end = begin + own;
    share->first = begin > piece->begin ? begin - piece->begin : 0;
    share->n = least(end - piece->begin, piece->numel) - share->first;
    share->at = piece->begin > begin ? piece->begin - begin : 0;
    if (share->n <= 0)
        share->n = share->at = share->first = 0;
}

RtShare rt_share(const RtTensors *tensors, const RtTensor *tensor, uint32_t rank)
{
    const PlanMesh *mesh = &tensors->mesh;
    RtCoordinates at = rt_mesh_at(mesh, rank);
    const RtPart *part = rt_tensor_part(tensor, stage_of(tensors, rank));
    const PlanPiece *piece = part ? part->piece : NULL;
    RtShare share = {.n = tensor->numel, .run = tensor->numel, .pitch = tensor->numel};
    uint32_t tp_parts = 1;
    if (!part)
        share.n = 0;
    share.again = part && part != tensor->parts && (!piece || piece->narrow == PLAN_WHOLE);
    if (!piece) {
        share.again |= at.tp || at.dp || at.dpr;
        return share;
    }
    if (piece->split != PLAN_WHOLE) {
        split(piece, mesh->tp, at.tp, &share);
        tp_parts = (uint32_t)piece->parts;
    }
    if (piece->narrow != PLAN_WHOLE)
        narrow(piece, &share);
    share.n = piece->numel;
    share.at = piece->begin;
    share.again |= at.tp && at.tp * tp_parts / mesh->tp == (at.tp - 1) * tp_parts / mesh->tp;
    share.again |=
        (!(piece->flat & PLAN_AXIS_DP) && at.dp) || (!(piece->flat & PLAN_AXIS_DPR) && at.dpr);
    if (piece->flat)
        cut(tensors, part, rank, &share);
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
