/* Memory outside the arena, as the plans' own tables list it. */
#include <string.h>

#include "backend/backend.h"
#include "driver/compile.h"
#include "runtime/abi/plan.h"

/* A line that several stages have counts once, at its largest. */
static void add_line(Session *s, DriverCompiled *c, Sym name, uint64_t bytes)
{
    for (uint32_t i = 0; i < c->outside.n; i++) {
        if (c->outside.at[i].name != name)
            continue;
        if (bytes > c->outside.at[i].bytes)
            c->outside.at[i].bytes = bytes;
        return;
    }
    vec_push(s->arena, &c->outside, ((DriverOutside){name, bytes}));
}

static void add_plan(Session *s, DriverCompiled *c, const unsigned char *bytes,
                     const PlanHeader *header)
{
    const char *strings = (const char *)bytes + header->strings.offset;
    if (header->thread_scratch_bytes)
        add_line(s, c, sym(s, "scratch of each worker thread"), header->thread_scratch_bytes);
    for (uint64_t i = 0; i < header->outside.count; i++) {
        PlanOutside outside;
        memcpy(&outside, bytes + header->outside.offset + i * sizeof outside, sizeof outside);
        add_line(s, c, sym(s, strings + outside.name), outside.bytes);
    }
}

Status driver_outside_arena(Session *s, DriverCompiled *c)
{
    unsigned char *bytes;
    uint64_t n_bytes;
    BackendOptions options = {
        .target = c->options.target == PASS_TARGET_CUDA ? PLAN_TARGET_CUDA : PLAN_TARGET_CPU,
        .cpu = c->recipe.cpu.v, .settings_json = "", .report_json = "", .config_json = ""};
    TRY(backend_plan_bytes(s, c->m, &options, &bytes, &n_bytes));
    for (uint64_t at = 0; at < n_bytes;) {
        PlanHeader header;
        memcpy(&header, bytes + at, sizeof header);
        add_plan(s, c, bytes + at, &header);
        at += header.total_bytes;
    }
    return STATUS_OK;
}
