/* The order is found by playing a step through: every stage has its list of instances, and values
 * move when the receiver needs them next and the sender stands between two instances. So both
 * ends put a message at the same place of one common order, and no wait can close a circle. */
#include "passes/pipe.h"

#include <stdlib.h>
#include <string.h>

/* How long things take, in the play: only the order matters. */
enum { FWD_TIME = 20, BWD_TIME = 40, INPUT_TIME = 20, WEIGHT_TIME = 20, MOVE_TIME = 1 };

typedef struct Message {
    uint32_t from, to, micro, piece; /* piece: the receiver's */
    bool backward;
} Message;

typedef struct Play {
    PipeOrder *order;
    Arena *arena;
    bool dynamic;          /* instances are chosen as they can run */
    PipeActions *work;     /* by stage: instances, without messages */
    uint32_t *at;          /* by stage: the next of them */
    int64_t *time;         /* by stage: when it is free */
    bool *has_fwd, *has_bwd; /* by piece and micro-batch: what it needs is there */
    uint32_t *next_fwd, *next_bwd, *next_weight; /* dynamic, by stage: micro-batches */
    VEC(Message) moving;
} Play;

static uint32_t n_pieces(const PipeOrder *o)
{
    return o->n_stages * o->n_chunks;
}

static bool *flag(const Play *p, bool *flags, uint32_t piece, uint32_t micro)
{
    return &flags[piece * p->order->n_micro + micro];
}

static void add(const Play *p, PipeActions *list, PipeKind kind, uint32_t micro, uint32_t chunk)
{
    vec_push(p->arena, list, ((PipeAction){.kind = kind, .micro = micro, .chunk = chunk}));
}

/* -- lists of instances -- */

static void list_gpipe(const Play *p, uint32_t stage)
{
    for (uint32_t m = 0; m < p->order->n_micro; m++)
        add(p, &p->work[stage], PIPE_FWD, m, 0);
    for (uint32_t m = 0; m < p->order->n_micro; m++)
        add(p, &p->work[stage], PIPE_BWD, m, 0);
}

static void list_1f1b(const Play *p, uint32_t stage)
{
    uint32_t n = p->order->n_micro, ahead = p->order->n_stages - 1 - stage, f = 0;
    for (; f < n && f < ahead; f++)
        add(p, &p->work[stage], PIPE_FWD, f, 0);
    for (uint32_t b = 0; b < n; b++) {
        if (f < n)
            add(p, &p->work[stage], PIPE_FWD, f++, 0);
        add(p, &p->work[stage], PIPE_BWD, b, 0);
    }
}

/* The i-th forward (backward) instance of a stage: a chunk for as many micro-batches as there are
 * stages, then the next chunk. */
static void add_interleaved(const Play *p, uint32_t stage, PipeKind kind, uint32_t i)
{
    uint32_t s = p->order->n_stages, v = p->order->n_chunks, chunk = i / s % v;
    add(p, &p->work[stage], kind, i / (s * v) * s + i % s,
        kind == PIPE_FWD ? chunk : v - 1 - chunk);
}

static void list_interleaved(const Play *p, uint32_t stage)
{
    uint32_t s = p->order->n_stages, v = p->order->n_chunks, n = p->order->n_micro * v, f = 0;
    uint32_t ahead = (s - 1 - stage) * 2 + (v - 1) * s;
    for (; f < n && f < ahead; f++)
        add_interleaved(p, stage, PIPE_FWD, f);
    for (uint32_t b = 0; b < n; b++) {
        if (f < n)
            add_interleaved(p, stage, PIPE_FWD, f++);
        add_interleaved(p, stage, PIPE_BWD, b);
    }
}

/* -- what can run -- */

static uint32_t piece_of(const Play *p, uint32_t stage, uint32_t chunk)
{
    return chunk * p->order->n_stages + stage;
}

/* Zero bubble: gradients that others wait for first; then a forward instance, as long as no more
 * are open than under 1f1b; then what nobody waits for. */
static bool choose(const Play *p, uint32_t stage, PipeAction *out)
{
    uint32_t n = p->order->n_micro, b = p->next_bwd[stage], f = p->next_fwd[stage],
             w = p->next_weight[stage];
    *out = (PipeAction){0};
    if (b < f && *flag(p, p->has_bwd, stage, b)) {
        out->kind = PIPE_BWD;
        out->micro = b;
    } else if (f < n && f - w < p->order->n_stages - stage && *flag(p, p->has_fwd, stage, f)) {
        out->kind = PIPE_FWD;
        out->micro = f;
    } else if (w < b) {
        out->kind = PIPE_WEIGHT;
        out->micro = w;
    } else {
        return false;
    }
    return true;
}

static bool next_work(const Play *p, uint32_t stage, PipeAction *out)
{
    if (p->dynamic)
        return choose(p, stage, out);
    if (p->at[stage] == p->work[stage].n)
        return false;
    *out = p->work[stage].at[p->at[stage]];
    bool *flags = out->kind == PIPE_FWD ? p->has_fwd : p->has_bwd;
    return *flag(p, flags, piece_of(p, stage, out->chunk), out->micro);
}

/* Does the receiver wait for just this? */
static bool is_wanted(const Play *p, const Message *x)
{
    if (p->dynamic)
        return true;
    if (p->at[x->to] == p->work[x->to].n)
        return false;
    const PipeAction *next = &p->work[x->to].at[p->at[x->to]];
    return (next->kind == PIPE_BWD) == x->backward && next->micro == x->micro &&
           piece_of(p, x->to, next->chunk) == x->piece;
}

/* -- one move of the play -- */

static void post(Play *p, uint32_t stage, uint32_t piece, uint32_t micro, bool backward)
{
    uint32_t s = p->order->n_stages;
    Message x = {.from = stage, .micro = micro, .piece = piece, .backward = backward};
    x.to = piece % s;
    vec_push(p->arena, &p->moving, x);
}

static int64_t time_of(const Play *p, const PipeAction *a)
{
    static const int64_t times[] = {FWD_TIME, BWD_TIME, WEIGHT_TIME};
    return a->kind == PIPE_BWD && p->order->splits ? INPUT_TIME : times[a->kind];
}

static int64_t start_of(const Play *p, const Message *x)
{
    return p->time[x->from] > p->time[x->to] ? p->time[x->from] : p->time[x->to];
}

/* Would the receiver lose more by this instance of the sender than the sender by waiting for it? */
static bool should_wait(const Play *p, uint32_t stage, const PipeAction *a)
{
    for (uint32_t i = 0; i < p->moving.n; i++) {
        const Message *x = &p->moving.at[i];
        if (x->from == stage && is_wanted(p, x) &&
            2 * (start_of(p, x) - p->time[stage]) < time_of(p, a))
            return true;
    }
    return false;
}

static void run(Play *p, uint32_t stage, PipeAction a)
{
    uint32_t piece = piece_of(p, stage, a.chunk), last = n_pieces(p->order) - 1;
    p->time[stage] += time_of(p, &a);
    p->at[stage]++;
    vec_push(p->arena, &p->order->stages[stage], a);
    if (a.kind == PIPE_FWD) {
        p->next_fwd[stage]++;
        if (piece < last)
            post(p, stage, piece + 1, a.micro, false);
        else
            *flag(p, p->has_bwd, piece, a.micro) = true;
    } else if (a.kind == PIPE_BWD) {
        p->next_bwd[stage]++;
        if (piece > 0)
            post(p, stage, piece - 1, a.micro, true);
    } else {
        p->next_weight[stage]++;
    }
}

static void move(Play *p, uint32_t index)
{
    Message x = p->moving.at[index];
    int64_t start = start_of(p, &x);
    uint32_t s = p->order->n_stages, sender = x.backward ? x.piece + 1 : x.piece - 1;
    PipeAction send = {PIPE_SEND, x.micro, sender / s, x.backward, x.to};
    PipeAction receive = {PIPE_RECV, x.micro, x.piece / s, x.backward, x.from};
    vec_push(p->arena, &p->order->stages[x.from], send);
    vec_push(p->arena, &p->order->stages[x.to], receive);
    p->time[x.from] = p->time[x.to] = start + MOVE_TIME;
    *flag(p, x.backward ? p->has_bwd : p->has_fwd, x.piece, x.micro) = true;
    memmove(&p->moving.at[index], &p->moving.at[index + 1],
            (p->moving.n - index - 1) * sizeof *p->moving.at);
    p->moving.n--;
}

/* What can begin first does; messages go before instances. False: nothing can. */
static bool advance(Play *p)
{
    int64_t best = INT64_MAX;
    uint32_t message = UINT32_MAX, stage = UINT32_MAX;
    PipeAction action = {0};
    for (uint32_t i = 0; i < p->moving.n; i++) {
        const Message *x = &p->moving.at[i];
        int64_t start = start_of(p, x);
        if (start < best && is_wanted(p, x)) {
            best = start;
            message = i;
        }
    }
    for (uint32_t s = 0; s < p->order->n_stages; s++) {
        PipeAction a;
        if (p->time[s] < best && next_work(p, s, &a) && !should_wait(p, s, &a)) {
            best = p->time[s];
            stage = s;
            action = a;
            message = UINT32_MAX;
        }
    }
    if (stage != UINT32_MAX)
        run(p, stage, action);
    else if (message != UINT32_MAX)
        move(p, message);
    return best != INT64_MAX;
}

PipeOrder pipe_order(Sym schedule, uint32_t n_stages, uint32_t n_chunks, uint32_t n_micro,
                     Arena *arena)
{
    PipeOrder order = {.n_stages = n_stages, .n_chunks = n_chunks, .n_micro = n_micro};
    Play p = {.order = &order, .arena = arena};
    uint32_t flags = n_pieces(&order) * n_micro;
    order.splits = p.dynamic = !strcmp(schedule, "zero_bubble");
    order.stages = ARENA_ARRAY(arena, PipeActions, n_stages);
    p.work = ARENA_ARRAY(arena, PipeActions, n_stages);
    p.at = ARENA_ARRAY(arena, uint32_t, n_stages);
    p.next_fwd = ARENA_ARRAY(arena, uint32_t, n_stages);
    p.next_bwd = ARENA_ARRAY(arena, uint32_t, n_stages);
    p.next_weight = ARENA_ARRAY(arena, uint32_t, n_stages);
    p.time = ARENA_ARRAY(arena, int64_t, n_stages);
    p.has_fwd = ARENA_ARRAY(arena, bool, flags);
    p.has_bwd = ARENA_ARRAY(arena, bool, flags);
    for (uint32_t m = 0; m < n_micro; m++)
        *flag(&p, p.has_fwd, 0, m) = true;
    for (uint32_t s = 0; s < n_stages && !p.dynamic; s++) {
        if (!strcmp(schedule, "gpipe"))
            list_gpipe(&p, s);
        else if (n_chunks > 1)
            list_interleaved(&p, s);
        else
            list_1f1b(&p, s);
    }
    while (advance(&p))
        continue;
    if (p.moving.n)
        abort(); /* a list that cannot be played */
    return order;
}

PipeOrder pipe_order_of(const PassOptions *o, Arena *arena)
{
    return pipe_order(o->pp_schedule, (uint32_t)o->pp,
                      o->pp_chunks > 1 ? (uint32_t)o->pp_chunks : 1, (uint32_t)o->micro_batches,
                      arena);
}

/* -- time -- */

typedef struct Clock {
    const PipeOrder *order;
    const PipeCosts *costs;
    uint32_t *at;
    double *time, *busy;
} Clock;

static double seconds_of(const Clock *c, uint32_t stage, const PipeAction *a)
{
    const PipeCosts *costs = &c->costs[stage];
    double all = a->kind == PIPE_FWD   ? costs->fwd
                 : a->kind == PIPE_BWD ? costs->bwd
                                       : costs->weight;
    if (a->kind == PIPE_BWD && !c->order->splits)
        all += costs->weight;
    return all / c->order->n_chunks;
}

/* Both ends of the message stand before it. */
static bool meet(Clock *c, uint32_t stage, const PipeAction *a)
{
    const PipeActions *other = &c->order->stages[a->peer];
    if (a->kind != PIPE_SEND || c->at[a->peer] == other->n)
        return false;
    const PipeAction *b = &other->at[c->at[a->peer]];
    if (b->kind != PIPE_RECV || b->peer != stage || b->micro != a->micro ||
        b->backward != a->backward)
        return false;
    double start = c->time[stage] > c->time[a->peer] ? c->time[stage] : c->time[a->peer];
    const PipeCosts *costs = &c->costs[stage];
    c->time[stage] = c->time[a->peer] = start + (a->backward ? costs->send_back : costs->send);
    c->at[a->peer]++;
    return true;
}

double pipe_seconds(const PipeOrder *order, const PipeCosts *costs, Arena *scratch,
                    double *out_bubble)
{
    Clock c = {.order = order, .costs = costs};
    c.at = ARENA_ARRAY(scratch, uint32_t, order->n_stages);
    c.time = ARENA_ARRAY(scratch, double, order->n_stages);
    c.busy = ARENA_ARRAY(scratch, double, order->n_stages);
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t s = 0; s < order->n_stages; s++) {
            for (; c.at[s] < order->stages[s].n; c.at[s]++, moved = true) {
                const PipeAction *a = &order->stages[s].at[c.at[s]];
                if (a->kind < PIPE_SEND) {
                    double seconds = seconds_of(&c, s, a);
                    c.time[s] += seconds;
                    c.busy[s] += seconds;
                } else if (!meet(&c, s, a)) {
                    break;
                }
            }
        }
    }
    double last = 0, busy = 0;
    for (uint32_t s = 0; s < order->n_stages; s++) {
        last = c.time[s] > last ? c.time[s] : last;
        busy += c.busy[s];
    }
    *out_bubble = last > 0 ? 1 - busy / (last * order->n_stages) : 0;
    return last;
}
