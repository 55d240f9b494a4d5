#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/diag.h"
#include "driver/commands.h"
#include "driver/paths.h"
#include "driver/report.h"
#include "driver/settings.h"

/* `dir/recipe.yaml` becomes `recipe.step`, where the command runs. */
static const char *default_out(Session *s, const char *recipe)
{
    const char *slash = strrchr(recipe, '/');
    const char *name = slash ? slash + 1 : recipe;
    const char *dot = strrchr(name, '.');
    size_t length = dot && dot != name ? (size_t)(dot - name) : strlen(name);
    return arena_printf(s->arena, "%.*s.step", (int)length, name);
}

static Status build(Session *s, const DriverArgs *args, const DriverCompiled *c,
                    const cJSON *report)
{
    bool cuda = c->options.target == PASS_TARGET_CUDA;
    BackendOptions options = {
        .target = cuda ? PLAN_TARGET_CUDA : PLAN_TARGET_CPU,
        .cuda_lib = cuda ? driver_cuda_lib(s) : NULL,
        .cpu = c->recipe.cpu.v,
        .runtime_lib = driver_runtime_lib(s),
        .out_path = args->out ? args->out : default_out(s, args->operands.at[0]),
        .settings_json = driver_settings_json(s, c),
        .report_json = driver_report_print(s, report, false),
        .config_json = c->model.config_text,
        .dump_llvm = args->dump_llvm,
        .flops_per_step = c->facts.flops_per_step / c->n_stages,
    };
    BackendFlops *flops = ARENA_ARRAY(s->arena, BackendFlops, c->n_stages);
    for (uint32_t i = 0; i < c->n_stages; i++)
        flops[i] = (BackendFlops){c->stage_facts[i].flops, c->stage_facts[i].eval_flops};
    options.flops = flops;
    if (c->batch.world > PLAN_MOST_RANKS) {
        diag(s, no_span, driver_ranks, (long long)c->batch.world, PLAN_MOST_RANKS);
        return STATUS_USER;
    }
    if (!options.runtime_lib || (cuda && !options.cuda_lib))
        return STATUS_ENV;
    if (access(driver_path_dir(s, options.out_path), W_OK)) {
        diag(s, no_span, file_write, options.out_path, strerror(errno));
        return STATUS_ENV;
    }
    if (options.dump_llvm)
        mkdir(options.dump_llvm, 0777); /* a folder that cannot be is told of by the first file */
    return backend_build(s, c->m, &options);
}

Status driver_cmd_build(Session *s, const DriverArgs *args)
{
    DriverCompiled compiled;
    TRY(driver_compile(s, args->operands.at[0], args, &compiled));
    cJSON *report = driver_report_json(s, &compiled);
    Status status = driver_check_all(s, args, &compiled, report);
    if (status == STATUS_OK)
        status = build(s, args, &compiled, report);
    cJSON_Delete(report);
    return status;
}
