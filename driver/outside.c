/* Memory outside the arena, as the plan's own table lists it. */
#include <string.h>

#include "backend/backend.h"
#include "driver/compile.h"
#include "runtime/abi/plan.h"

Status driver_outside_arena(Session *s, DriverCompiled *c)
{
    unsigned char *bytes;
    uint64_t n_bytes;
    BackendOptions options = {
        .target = c->options.target == PASS_TARGET_CUDA ? PLAN_TARGET_CUDA : PLAN_TARGET_CPU,
        .cpu = c->recipe.cpu.v, .settings_json = "", .report_json = "", .config_json = ""};
    TRY(backend_plan_bytes(s, c->m, &options, &bytes, &n_bytes));
    PlanHeader header;
    memcpy(&header, bytes, sizeof header);
    const char *strings = (const char *)bytes + header.strings.offset;
    if (header.thread_scratch_bytes)
        vec_push(s->arena, &c->outside,
                 ((DriverOutside){sym(s, "scratch of each worker thread"),
                                  header.thread_scratch_bytes}));
    for (uint64_t i = 0; i < header.outside.count; i++) {
        PlanOutside outside;
        memcpy(&outside, bytes + header.outside.offset + i * sizeof outside, sizeof outside);
        vec_push(s->arena, &c->outside,
                 ((DriverOutside){sym(s, strings + outside.name), outside.bytes}));
    }
    return STATUS_OK;
}
