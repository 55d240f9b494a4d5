/* commands: what `stepc` can be told to do. */
#ifndef DRIVER_COMMANDS_H
#define DRIVER_COMMANDS_H

#include "driver/args.h"

Status driver_cmd_build(Session *s, const DriverArgs *args);
Status driver_cmd_plan(Session *s, const DriverArgs *args);
Status driver_cmd_opt(Session *s, const DriverArgs *args);
Status driver_cmd_import(Session *s, const DriverArgs *args);
Status driver_cmd_explain(Session *s, const DriverArgs *args);

#endif
