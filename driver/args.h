/* args: the command line as typed options. */
#ifndef DRIVER_ARGS_H
#define DRIVER_ARGS_H

#include "base/session.h"

typedef enum DriverCommandId {
    DRIVER_BUILD = 1 << 0,
    DRIVER_PLAN = 1 << 1,
    DRIVER_OPT = 1 << 2,
    DRIVER_IMPORT = 1 << 3,
    DRIVER_EXPLAIN = 1 << 4,
} DriverCommandId;

typedef bool DriverFlag;
typedef const char *DriverText; /* NULL: not given */
typedef VEC(const char *) DriverList;

typedef struct DriverArgs {
    DriverList operands;
    DriverList given; /* names of the options */
#define OPTION(field, type, name, value, commands, doc) Driver##type field;
#include "driver/options.def"
#undef OPTION
    FILE *dump_out; /* where --dump-after prints; stdout unless a reproducer is being made */
} DriverArgs;

typedef struct DriverCommand {
    DriverCommandId id;
    const char *name, *usage, *doc;
    uint32_t min_operands, max_operands;
    Status (*run)(Session *s, const DriverArgs *args);
} DriverCommand;

/* argv holds what follows the command's name. */
Status driver_args_parse(Session *s, const DriverCommand *command, int argc, char **argv,
                         DriverArgs *out_args);
void driver_args_help(FILE *out, const DriverCommand *command);

/* One of two words, or absent. */
Status driver_args_choice(Session *s, const char *option, const char *text, const char *a,
                          const char *b);
/* A positive count such as `--world 8`; 0 where the option is absent. */
Status driver_args_count(Session *s, const char *option, const char *text, int64_t *out_count);
/* `139GiB`; 0 where the option is absent. */
Status driver_args_bytes(Session *s, const char *option, const char *text, int64_t *out_bytes);

#endif
