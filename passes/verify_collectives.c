/* verify-collectives: on the unrolled plan, every collective
 *   - names mesh axes, and as many ranks as the mesh has along them; a group divides those;
 *   - is reached by all its members in the same order, without a circle of waiting. */
#include "passes/verify_collectives.h"

#include <string.h>

#include "base/diag.h"
#include "passes/pass.h"

/* -- rendezvous -- */

typedef struct Meeting {
    Session *s;
    const CollectiveClass *classes;
    uint32_t n, *at; /* by class: its next event */
    bool **uses;     /* by class and communicator */
    Map comms;       /* name -> index */
    Status status;
} Meeting;

static const CollectiveEvent *head(const Meeting *m, uint32_t class)
{
    const CollectiveEvents *events = &m->classes[class].events;
    return m->at[class] < events->n ? &events->at[m->at[class]] : NULL;
}

static uint32_t comm_index(Meeting *m, Sym comm)
{
    uint64_t at;
    if (map_get(&m->comms, map_key(comm), &at))
        return (uint32_t)at;
    at = m->comms.n;
    map_put(&m->comms, map_key(comm), at);
    return (uint32_t)at;
}

static void find_uses(Meeting *m, Arena *scratch)
{
    uint32_t n_comms = 0;
    for (uint32_t i = 0; i < m->n; i++)
        for (uint32_t k = 0; k < m->classes[i].events.n; k++)
            n_comms = comm_index(m, m->classes[i].events.at[k].comm) + 1 > n_comms
                          ? comm_index(m, m->classes[i].events.at[k].comm) + 1
                          : n_comms;
    for (uint32_t i = 0; i < m->n; i++) {
        m->uses[i] = ARENA_ARRAY(scratch, bool, n_comms + 1);
        for (uint32_t k = 0; k < m->classes[i].events.n; k++)
            m->uses[i][comm_index(m, m->classes[i].events.at[k].comm)] = true;
    }
}

/* All classes that must come to a communicator do. */
static void check_uses(Meeting *m)
{
    for (uint32_t i = 0; i < m->n; i++)
        for (uint32_t k = 0; k < m->classes[i].events.n && m->status == STATUS_OK; k++) {
            const CollectiveEvent *event = &m->classes[i].events.at[k];
            uint32_t comm = comm_index(m, event->comm), found = 0;
            for (uint32_t c = 0; c < m->n; c++)
                found += m->uses[c][comm];
            if (!event->classes || event->classes == found)
                continue;
            diag(m->s, event->span, collective_missing, m->classes[i].name, event->kind,
                 event->name, event->comm, event->classes, found);
            m->status = STATUS_BUG;
        }
}

static bool kinds_meet(const char *a, const char *b)
{
    if (!strcmp(a, "send") || !strcmp(a, "recv"))
        return !strcmp(b, *a == 's' ? "recv" : "send");
    return !strcmp(a, b);
}

static bool alike(const CollectiveEvent *a, const CollectiveEvent *b)
{
    return kinds_meet(a->kind, b->kind) && a->count == b->count && a->dtype == b->dtype &&
           (a->message || a->name == b->name) && a->tag == b->tag;
}

static void report(Meeting *m, uint32_t i, uint32_t k, bool circle)
{
    const CollectiveEvent *a = head(m, i), *b = head(m, k);
    m->status = STATUS_BUG;
    diag(m->s, a->span, collective_differs, m->classes[i].name, a->kind, a->name, a->comm,
         (long long)a->count, m->classes[k].name, b ? b->kind : "nothing", b ? b->name : "the end",
         circle ? "each waits for the other" : "they do not fit");
    if (b)
        diag(m->s, b->span, collective_other_here, b->name);
}

/* Do all that use the head's communicator stand before an event on it that is alike? */
static bool meets(Meeting *m, uint32_t class)
{
    const CollectiveEvent *a = head(m, class);
    uint32_t comm = comm_index(m, a->comm);
    for (uint32_t i = 0; i < m->n; i++) {
        const CollectiveEvent *b = head(m, i);
        if (!m->uses[i][comm] || i == class)
            continue;
        if (!b || b->comm != a->comm)
            return false;
        if (!alike(a, b)) {
            report(m, class, i, false);
            return false;
        }
    }
    return true;
}

static void advance(Meeting *m, Sym comm)
{
    for (uint32_t i = 0; i < m->n; i++)
        if (head(m, i) && head(m, i)->comm == comm)
            m->at[i]++;
}

/* The first class that is held up, and one of those it waits for. */
static void report_circle(Meeting *m)
{
    for (uint32_t i = 0; i < m->n; i++) {
        const CollectiveEvent *a = head(m, i);
        for (uint32_t k = 0; a && k < m->n; k++) {
            const CollectiveEvent *b = head(m, k);
            if (k == i || !m->uses[k][comm_index(m, a->comm)] || (b && b->comm == a->comm))
                continue;
            report(m, i, k, b != NULL);
            return;
        }
    }
}

Status verify_collective_classes(Session *s, const CollectiveClass *classes, uint32_t n,
                                 Arena *scratch)
{
    Meeting m = {.s = s, .classes = classes, .n = n};
    m.at = ARENA_ARRAY(scratch, uint32_t, n + 1);
    m.uses = ARENA_ARRAY(scratch, bool *, n + 1);
    map_init(&m.comms, scratch);
    find_uses(&m, scratch);
    check_uses(&m);
    for (;;) {
        bool moved = false, left = false;
        for (uint32_t i = 0; i < n && m.status == STATUS_OK; i++) {
            const CollectiveEvent *event = head(&m, i);
            left |= event != NULL;
            if (!event || !meets(&m, i))
                continue;
            advance(&m, event->comm);
            moved = true;
        }
        if (m.status != STATUS_OK || !left)
            return m.status;
        if (!moved) {
            report_circle(&m);
            return m.status;
        }
    }
}

/* -- plans -- */

/* `pp:0,3`: so many of the stages. */
static int64_t listed(const char *name, size_t n)
{
    int64_t count = 1;
    for (size_t i = 0; i < n; i++)
        count += name[i] == ',';
    return count;
}

static int64_t axis_size(const IrMeshSizes *mesh, const char *name, size_t n)
{
    const struct {
        const char *name;
        int64_t size;
    } axes[] = {{"tp", mesh->tp}, {"dp", mesh->dp}, {"dpr", mesh->dpr}, {"pp", mesh->pp}};
    if (n > 3 && !strncmp(name, "pp:", 3))
        return listed(name, n);
    for (uint32_t i = 0; i < sizeof axes / sizeof *axes; i++)
        if (strlen(axes[i].name) == n && !strncmp(axes[i].name, name, n))
            return axes[i].size;
    return 0;
}

/* Members along all axes of `dp+dpr`; 0 where one does not exist. */
static int64_t members(const IrMeshSizes *mesh, const char *comm)
{
    int64_t n = *comm ? 1 : 0;
    while (*comm) {
        size_t length = strcspn(comm, "+");
        n *= axis_size(mesh, comm, length);
        comm += length + (comm[length] == '+');
    }
    return n;
}

static void check_ranks(PassContext *c, const IrGraph *g, IrOp op, Status *status)
{
    Sym comm = ir_attr_sym(g, op, "comm");
    int64_t n = members(&g->m->mesh, comm), ranks = ir_attr_i64(g, op, "ranks"),
            group = ir_attr_i64(g, op, "group");
    if (n && (group ? group > 0 && n % group == 0 && ranks == group : ranks == n))
        return;
    const char *of = group ? arena_printf(c->scratch, "%lld ranks in groups of %lld",
                                          (long long)ranks, (long long)group)
                           : arena_printf(c->scratch, "%lld ranks", (long long)ranks);
    diag(c->s, ir_op(g, op)->span, collective_ranks, ir_op_info(ir_op_kind(g, op))->name, comm, of,
         (long long)n);
    *status = STATUS_BUG;
}

/* Both ends know which value of which instance it is. */
static void make_message(Session *s, const IrGraph *g, IrOp op, CollectiveEvent *event)
{
    long long self = g->m->stage, peer = (long long)ir_attr_i64(g, op, "peer");
    const IrOpRec *rec = ir_op(g, op);
    bool backward = rec->graph && !strcmp(rec->graph, "bwd");
    event->message = true;
    event->classes = 2;
    event->tag = (ir_attr_i64(g, op, "tag") << 32 | (int64_t)rec->instance) * 2 + backward;
    event->comm = intern_printf(&s->interner, "%s:%lld-%lld", event->comm,
                                self < peer ? self : peer, self < peer ? peer : self);
}

/* How many stages a communicator along pp reaches. */
static uint32_t stages_of(const IrGraph *g, const char *comm)
{
    const char *at = strstr(comm, "pp");
    return (uint32_t)axis_size(&g->m->mesh, at, strcspn(at, "+"));
}

static CollectiveEvent event_of(Session *s, const IrGraph *g, IrOp op)
{
    IrOpKind kind = ir_op_kind(g, op);
    IrValue in = kind == IR_OP_recv ? ir_out(g, op, 0) : ir_in(g, op, 0);
    int64_t group = ir_attr_i64(g, op, "group");
    CollectiveEvent event = {.kind = sym(s, ir_op_info(kind)->name)};
    event.comm = ir_attr_sym(g, op, "comm");
    event.classes = strstr(event.comm, "pp") ? stages_of(g, event.comm) : 1;
    if (g->m->mesh.pp > 1 && event.classes == 1) /* each stage has one of its own */
        event.comm = intern_printf(&s->interner, "%s of stage %u", event.comm, g->m->stage);
    if (kind == IR_OP_send || kind == IR_OP_recv)
        make_message(s, g, op, &event);
    else if (group)
        event.comm = intern_printf(&s->interner, "%s/%lld", event.comm, (long long)group);
    event.count = ir_type_numel(g->m, ir_value_type(g, in));
    event.dtype = ir_type_info(g->m, ir_value_type(g, in))->dtype;
    event.name = ir_value(g, ir_op(g, op)->n_out ? ir_out(g, op, 0) : in)->name;
    event.span = ir_op(g, op)->span;
    return event;
}

CollectiveEvents collective_events(Session *s, const IrGraph *g, Arena *arena)
{
    CollectiveEvents events = {0};
    for (uint32_t i = 0; i < g->order.n; i++)
        if (ir_op_info(ir_op_kind(g, g->order.at[i]))->traits & IR_COLLECTIVE)
            vec_push(arena, &events, event_of(s, g, g->order.at[i]));
    return events;
}

/* The ranks of a stage follow each other. */
static const char *name_of(PassContext *c, const IrModule *m)
{
    const IrMeshSizes *mesh = &m->mesh;
    long long n = (long long)(mesh->tp * mesh->dp * mesh->dpr), first = (long long)m->stage * n;
    if (mesh->pp < 2)
        return "stage 0";
    return n > 1 ? arena_printf(c->scratch, "stage %u (ranks %lld to %lld)", m->stage, first,
                                first + n - 1)
                 : arena_printf(c->scratch, "stage %u (rank %lld)", m->stage, first);
}

static CollectiveClass class_of(PassContext *c, const IrGraph *g, Status *status)
{
    CollectiveClass class = {name_of(c, g->m), collective_events(c->s, g, c->scratch)};
    for (uint32_t k = 0; k < g->order.n; k++)
        if (ir_op_info(ir_op_kind(g, g->order.at[k]))->traits & IR_COLLECTIVE)
            check_ranks(c, g, g->order.at[k], status);
    for (uint32_t k = 0; !c->m->stages.n && k < class.events.n; k++)
        class.events.at[k].classes = 0; /* one stage alone: the others are not here */
    pass_stat(c, "collectives checked", class.events.n);
    return class;
}

/* All ranks of one stage run one program: a class. */
Status pass_verify_collectives(PassContext *c)
{
    static const char *const graphs[] = {"step", "eval"};
    Status status = STATUS_OK;
    uint32_t n = c->m->stages.n ? c->m->stages.n : 1;
    CollectiveClass *classes = ARENA_ARRAY(c->scratch, CollectiveClass, n);
    for (uint32_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        uint32_t found = 0;
        for (uint32_t k = 0; k < n; k++) {
            const IrModule *m = c->m->stages.n ? c->m->stages.at[k] : c->m;
            const IrGraph *g = ir_graph_find(m, graphs[i]);
            if (g)
                classes[found++] = class_of(c, g, &status);
        }
        Status met = verify_collective_classes(c->s, classes, found, c->scratch);
        status = met == STATUS_OK ? status : met;
    }
    return status;
}
