#include <string.h>

#include "base/diag.h"
#include "driver/commands.h"
#include "driver/report.h"

static Status plan_diff(Session *s, const DriverArgs *args)
{
    if (args->fail_on && strcmp(args->fail_on, "growth")) {
        diag(s, no_span, args_choice, "--fail-on", args->fail_on, "growth");
        return STATUS_USER;
    }
    return driver_report_diff(s, stdout, args->operands.at[0], args->operands.at[1],
                              args->fail_on != NULL);
}

static Status print_plan(Session *s, const DriverArgs *args, const DriverCompiled *c,
                         const cJSON *report)
{
    if (args->emit)
        return driver_emit(s, c->m, args->emit);
    if (args->json)
        printf("%s\n", driver_report_print(s, report, true));
    else
        driver_report_text(stdout, report);
    return STATUS_OK;
}

Status driver_cmd_plan(Session *s, const DriverArgs *args)
{
    DriverCompiled compiled;
    if (args->diff)
        return plan_diff(s, args);
    TRY(driver_args_choice(s, "--emit", args->emit, "ir", "ptx"));
    TRY(driver_compile(s, args->operands.at[0], args, &compiled));
    cJSON *report = driver_report_json(s, &compiled);
    Status status = print_plan(s, args, &compiled, report);
    if (status == STATUS_OK && args->html)
        status = driver_report_html(s, args->html, report);
    if (status == STATUS_OK)
        status = driver_check_all(s, args, &compiled, report);
    cJSON_Delete(report);
    return status;
}
