#include "backend/plan_write.h"

#include "base/diag.h"

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

/* Every table behind the other, in the header's order. */
static void lay_out(PlanWriter *w, unsigned char **out_bytes, uint64_t *out_n_bytes)
{
    PlanHeader *h = &w->header;
    const struct {
        PlanTable *table;
        const void *records;
        uint64_t n, record_bytes;
    } tables[] = {
#define TABLE(name) {&h->name, w->name.at, w->name.n, sizeof *w->name.at},
        TABLE(instrs) TABLE(eval_instrs) TABLE(tensors) TABLE(params) TABLE(deaths) TABLE(states)
            TABLE(inputs) TABLE(kept) TABLE(grads) TABLE(outside) TABLE(comms) TABLE(pieces)
                TABLE(strings)
#undef TABLE
    };
    enum { N = sizeof tables / sizeof *tables };
    uint64_t at = aligned(sizeof *h);
    for (uint32_t i = 0; i < N; i++) {
        *tables[i].table = (PlanTable){at, tables[i].n};
        at = aligned(at + tables[i].n * tables[i].record_bytes);
    }
    h->total_bytes = at;
    w->outside.at[0].bytes = at;
    unsigned char *bytes = arena_alloc(w->s->arena, at);
    for (uint32_t i = 0; i < N; i++)
        if (tables[i].n)
            memcpy(bytes + tables[i].table->offset, tables[i].records,
                   tables[i].n * tables[i].record_bytes);
    h->hash = map_hash(bytes + sizeof *h, at - sizeof *h, 0);
    memcpy(bytes, h, sizeof *h);
    *out_bytes = bytes;
    *out_n_bytes = at;
}

static Status write_one(Session *s, IrModule *m, const BackendOptions *options,
                        PlanKernels *kernels, unsigned char **out_bytes,
                        uint64_t *out_n_bytes)
{
    const IrGraph *step = ir_graph_find(m, "step"), *eval = ir_graph_find(m, "eval");
    if (m->level != IR_PLANNED || !step) {
        diag(s, no_span, backend_not_planned);
        return STATUS_USER;
    }
    Arena *arena = arena_new();
    PlanWriter w = {.s = s, .m = m, .options = options, .arena = arena, .kernels = kernels};
    w.header = (PlanHeader){.magic = PLAN_MAGIC, .version = PLAN_VERSION};
    map_init(&w.string_at, arena);
    vec_push(arena, &w.strings, 0); /* the empty string */
    Status status = plan_write_graph(&w, step, false);
    if (status == STATUS_OK && eval)
        status = plan_write_graph(&w, eval, true);
    if (status == STATUS_OK)
        status = plan_write_tables(&w);
    if (status == STATUS_OK)
        lay_out(&w, out_bytes, out_n_bytes);
    arena_free(arena);
    return status;
}

Status plan_write(Session *s, IrModule *m, const BackendOptions *options, PlanKernels *kernels,
                  unsigned char **out_bytes, uint64_t *out_n_bytes)
{
    uint32_t n = m->stages.n;
    if (!n)
        return write_one(s, m, options, kernels, out_bytes, out_n_bytes);
    unsigned char **plans = ARENA_ARRAY(s->arena, unsigned char *, n);
    uint64_t *bytes = ARENA_ARRAY(s->arena, uint64_t, n), total = 0;
    for (uint32_t i = 0; i < n; i++) {
        TRY(write_one(s, m->stages.at[i], options, kernels, &plans[i], &bytes[i]));
        total += bytes[i];
    }
    unsigned char *all = arena_alloc(s->arena, total);
    *out_bytes = all;
    *out_n_bytes = total;
    for (uint32_t i = 0; i < n; all += bytes[i++])
        memcpy(all, plans[i], bytes[i]);
    return STATUS_OK;
}

Status backend_plan_bytes(Session *s, IrModule *m, const BackendOptions *options,
                          unsigned char **out_bytes, uint64_t *out_n_bytes)
{
    PlanKernels kernels;
    plan_kernels_init(&kernels, s->arena);
    return plan_write(s, m, options, &kernels, out_bytes, out_n_bytes);
}
