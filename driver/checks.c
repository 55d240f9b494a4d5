/* What the recipe and the command line ask of a plan: that it fits, and that expressions over it
 * hold. */
#include <string.h>

#include "base/diag.h"
#include "driver/report.h"

enum { MOST_NOTES = 10 };

static void note_live(Session *s, const PassLive *live)
{
    char bytes[32];
    const char *scope = live->scope ? live->scope : "";
    diag(s, live->span, driver_live, driver_bytes_text(bytes, (double)live->bytes), live->name,
         *live->type ? " " : "", live->type, pass_byte_class_name(live->cls), *scope ? " in " : "",
         scope);
}

Status driver_check_memory(Session *s, const DriverCompiled *c, int64_t bytes, Span span)
{
    char need[32], have[32], at_peak[32];
    const PassFacts *f = &c->facts;
    if (f->arena_bytes <= (uint64_t)bytes)
        return STATUS_OK;
    diag(s, span, driver_fit, driver_bytes_text(need, (double)f->arena_bytes),
         (unsigned long long)f->arena_bytes, driver_bytes_text(have, (double)bytes),
         (long long)bytes);
    diag(s, f->peak_span, driver_peak, driver_bytes_text(at_peak, (double)f->arena_bytes),
         f->peak_op);
    uint32_t shown = 0;
    for (uint32_t i = 0; i < f->live.n && shown < MOST_NOTES; i++, shown++)
        note_live(s, &f->live.at[i]);
    return STATUS_CHECK;
}

/* A check that fails does not keep the others from being told; an input that is wrong does. */
static Status worse(Status a, Status b)
{
    if (a == STATUS_OK || b == STATUS_USER)
        return b == STATUS_OK ? a : b;
    return a;
}

Status driver_check_all(Session *s, const DriverArgs *args, const DriverCompiled *c,
                        const cJSON *report)
{
    Status status = STATUS_OK;
    int64_t fit = 0;
    TRY(driver_args_bytes(s, "--fit", args->fit, &fit));
    if (args->fit)
        status = driver_check_memory(s, c, fit, no_span);
    else if (c->recipe.memory.given)
        status =
            worse(status, driver_check_memory(s, c, c->recipe.memory.v, c->recipe.memory.span));
    for (uint32_t i = 0; i < c->recipe.require.v.n; i++)
        status = worse(status, driver_require(s, report, c->recipe.require.v.at[i].v,
                                              c->recipe.require.v.at[i].span));
    for (uint32_t i = 0; i < args->require.n; i++)
        status = worse(status, driver_require(s, report, args->require.at[i], no_span));
    return status;
}
