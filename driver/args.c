#include "driver/args.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "frontend/recipe.h"

typedef enum OptionType { OPTION_Flag, OPTION_Text, OPTION_List } OptionType;

typedef struct Option {
    const char *name, *value, *doc;
    OptionType type;
    size_t offset;
    unsigned commands;
} Option;

enum {
    BUILD = DRIVER_BUILD,
    PLAN = DRIVER_PLAN,
    OPT = DRIVER_OPT,
    IMPORT = DRIVER_IMPORT,
    EXPLAIN = DRIVER_EXPLAIN
};

static const Option options[] = {
#define OPTION(field, type, name, value, commands, doc)                                            \
    {name, value, doc, OPTION_##type, offsetof(DriverArgs, field), commands},
#include "driver/options.def"
#undef OPTION
};

enum { N_OPTIONS = sizeof options / sizeof *options };

/* `word` up to `=`. */
static const Option *find_option(const DriverCommand *command, const char *word)
{
    size_t length = strcspn(word, "=");
    if (!strcmp(word, "-h"))
        return find_option(command, "--help");
    for (uint32_t i = 0; i < N_OPTIONS; i++)
        if ((options[i].commands & command->id) && strlen(options[i].name) == length &&
            !strncmp(options[i].name, word, length))
            return &options[i];
    return NULL;
}

static Status unknown_option(Session *s, const DriverCommand *command, const char *word)
{
    const char *names[N_OPTIONS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < N_OPTIONS; i++) /* compared without dashes, which all have */
        if (options[i].commands & command->id)
            names[n++] = options[i].name + strspn(options[i].name, "-");
    const char *name = intern_n(&s->interner, word, strcspn(word, "="));
    diag(s, no_span, args_unknown, command->name, name);
    const char *near = diag_nearest(name + strspn(name, "-"), names, n);
    if (near)
        diag(s, no_span, did_you_mean, arena_printf(s->arena, "%s%s", near[1] ? "--" : "-", near));
    return STATUS_USER;
}

/* Takes the option at argv[*at] and its value; moves *at behind both. */
static Status take_option(Session *s, const DriverCommand *command, int argc, char **argv, int *at,
                          DriverArgs *args)
{
    const char *word = argv[(*at)++];
    const Option *option = find_option(command, word);
    if (!option)
        return unknown_option(s, command, word);
    const char *equals = strchr(word, '=');
    char *field = (char *)args + option->offset;
    vec_push(s->arena, &args->given, option->name);
    if (option->type == OPTION_Flag) {
        if (equals) {
            diag(s, no_span, args_no_value, option->name);
            return STATUS_USER;
        }
        *(DriverFlag *)(void *)field = true;
        return STATUS_OK;
    }
    if (!equals && *at >= argc) {
        diag(s, no_span, args_value, option->name, option->value);
        return STATUS_USER;
    }
    const char *value = equals ? equals + 1 : argv[(*at)++];
    if (option->type == OPTION_Text)
        *(DriverText *)(void *)field = value;
    else
        vec_push(s->arena, (DriverList *)(void *)field, value);
    return STATUS_OK;
}

/* An option that would not be used beside another. */
static Status check_together(Session *s, const DriverArgs *args)
{
    const char *left_out = args->emit && args->json ? "--json" : NULL;
    for (uint32_t i = 0; i < args->given.n && args->diff; i++)
        if (strcmp(args->given.at[i], "--diff") && strcmp(args->given.at[i], "--fail-on"))
            left_out = args->given.at[i];
    if (left_out) {
        diag(s, no_span, option_both, args->diff ? "--diff" : "--emit", left_out);
        return STATUS_USER;
    }
    if (args->fail_on && !args->diff) {
        diag(s, no_span, args_needs, "--fail-on", "--diff");
        return STATUS_USER;
    }
    return STATUS_OK;
}

Status driver_args_parse(Session *s, const DriverCommand *command, int argc, char **argv,
                         DriverArgs *out_args)
{
    bool only_operands = false;
    *out_args = (DriverArgs){.dump_out = stdout};
    for (int at = 0; at < argc;) {
        if (!only_operands && !strcmp(argv[at], "--")) {
            only_operands = true;
            at++;
        } else if (!only_operands && argv[at][0] == '-' && argv[at][1]) {
            TRY(take_option(s, command, argc, argv, &at, out_args));
        } else {
            vec_push(s->arena, &out_args->operands, argv[at]);
            at++;
        }
    }
    if (out_args->help)
        return STATUS_OK;
    uint32_t most = out_args->diff ? 2 : command->max_operands;
    uint32_t least = out_args->diff ? 2 : command->min_operands;
    if (out_args->operands.n < least || out_args->operands.n > most) {
        diag(s, no_span, args_operands, command->name, least, least == 1 ? "" : "s",
             out_args->operands.n, command->usage);
        return STATUS_USER;
    }
    return check_together(s, out_args);
}

void driver_args_help(FILE *out, const DriverCommand *command)
{
    fprintf(out, "usage: stepc %s\n\n%s\n\n", command->usage, command->doc);
    for (uint32_t i = 0; i < N_OPTIONS; i++) {
        const Option *option = &options[i];
        if (!(option->commands & command->id))
            continue;
        char left[64];
        snprintf(left, sizeof left, "%s%s%s", option->name, option->value ? " " : "",
                 option->value ? option->value : "");
        fprintf(out, "  %-30s %s\n", left, option->doc);
    }
}

Status driver_args_count(Session *s, const char *option, const char *text, int64_t *out_count)
{
    *out_count = 0;
    if (!text)
        return STATUS_OK;
    char *end;
    errno = 0;
    long long count = strtoll(text, &end, 10);
    if (errno || *end || end == text || count < 1 || count > 1 << 30) {
        diag(s, no_span, args_count, option, text);
        return STATUS_USER;
    }
    *out_count = count;
    return STATUS_OK;
}

Status driver_args_bytes(Session *s, const char *option, const char *text, int64_t *out_bytes)
{
    *out_bytes = 0;
    if (!text || front_parse_bytes(text, out_bytes))
        return STATUS_OK;
    diag(s, no_span, args_bytes, option, text);
    return STATUS_USER;
}

Status driver_args_choice(Session *s, const char *option, const char *text, const char *a,
                          const char *b)
{
    if (!text || !strcmp(text, a) || !strcmp(text, b))
        return STATUS_OK;
    diag(s, no_span, args_choice, option, text, arena_printf(s->arena, "%s or %s", a, b));
    return STATUS_USER;
}
