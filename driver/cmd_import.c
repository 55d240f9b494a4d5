#include "driver/commands.h"
#include "driver/paths.h"
#include "frontend/frontend.h"

Status driver_cmd_import(Session *s, const DriverArgs *args)
{
    FrontModelRequest request = {
        .models_dir = driver_models_dir(s),
        .pretrained = args->operands.at[0],
        .batch = 1,
        .seq = 2,
        .param_dtype = DTYPE_F32,
    };
    if (!request.models_dir)
        return STATUS_ENV;
    return front_config_describe(s, &request, stdout);
}
