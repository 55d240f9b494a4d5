#include "runtime/options.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/diag.h"
#include "runtime/pool.h"

typedef enum OptionType {
    OPTION_TEXT,
    OPTION_COUNT,
    OPTION_POSITIVE,
    OPTION_FLAG
} OptionType;

typedef struct Option {
    const char *name; /* with its dashes */
    OptionType type;
    const char *argument, *doc;
    size_t offset;
} Option;

static const Option options[] = {
#define OPTION_ROW(name, member, type, argument, doc)                                              \
    {"--" name, OPTION_##type, argument, doc, offsetof(RtOptions, member)},
    RT_OPTIONS(OPTION_ROW)
#undef OPTION_ROW
};

enum { N_OPTIONS = sizeof options / sizeof *options };

static const Option *find_option(const char *text, size_t length)
{
    for (int i = 0; i < N_OPTIONS; i++)
        if (strlen(options[i].name) == length && !memcmp(options[i].name, text, length))
            return &options[i];
    return NULL;
}

static Status unknown_option(Session *s, const char *text, size_t length)
{
    const char *names[N_OPTIONS];
    for (int i = 0; i < N_OPTIONS; i++)
        names[i] = options[i].name;
    const char *name = arena_strndup(s->arena, text, length);
    diag(s, no_span, option_unknown, name);
    const char *nearest = diag_nearest(name, names, N_OPTIONS);
    if (nearest)
        diag(s, no_span, did_you_mean, nearest);
    return STATUS_USER;
}

static const char *what_it_needs(OptionType type)
{
    return type == OPTION_TEXT    ? "a path"
           : type == OPTION_COUNT ? "a number, 0 or more"
                                  : "a number, 1 or more";
}

static Status set_number(Session *s, const Option *option, const char *value, int64_t *out)
{
    char *end;
    errno = 0;
    long long number = strtoll(value, &end, 10);
    if (errno || end == value || *end || number < (option->type == OPTION_POSITIVE)) {
        diag(s, no_span, option_number, option->name, what_it_needs(option->type), value);
        return STATUS_USER;
    }
    *out = number;
    return STATUS_OK;
}

static Status set_option(Session *s, const Option *option, const char *value, RtOptions *out)
{
    char *at = (char *)out + option->offset;
    if (option->type == OPTION_FLAG) {
        if (value) {
            diag(s, no_span, option_value, option->name, "no value");
            return STATUS_USER;
        }
        *(bool *)(void *)at = true;
        return STATUS_OK;
    }
    if (!value || !*value) {
        diag(s, no_span, option_value, option->name, what_it_needs(option->type));
        return STATUS_USER;
    }
    if (option->type != OPTION_TEXT)
        return set_number(s, option, value, (int64_t *)(void *)at);
    *(const char **)(void *)at = value;
    return STATUS_OK;
}

static Status check_together(Session *s, const RtOptions *o)
{
    bool bench = o->bench != RT_OPTION_ABSENT;
    const struct {
        const char *a, *b;
        bool both;
    } excluded[] = {
        {"--batch", "--data", o->batch && o->data},
        {"--weights", "--resume", o->weights && o->resume},
        {"--bench", "--steps", bench && o->steps != RT_OPTION_ABSENT},
        {"--bench", "--save", bench && o->save},
        {"--bench", "--eval", bench && o->eval},
        {"--bench", "--log", bench && o->log},
        {"--bench", "--dump-grads", bench && o->dump_grads},
        {"--bench", "--dump-values", bench && o->dump_values},
        {"--dump-grads", "--steps 0", o->dump_grads && o->steps == 0},
        {"--dump-values", "--steps 0", o->dump_values && o->steps == 0},
        {"--profile", "--steps 0", o->profile && o->steps == 0},
    };
    for (unsigned i = 0; i < sizeof excluded / sizeof *excluded; i++)
        if (excluded[i].both) {
            diag(s, no_span, option_both, excluded[i].a, excluded[i].b);
            return STATUS_USER;
        }
    return STATUS_OK;
}

static Status check_limits(Session *s, const RtOptions *o)
{
    enum { MAX_BENCH = 1000000 };
    _Static_assert(RT_POOL_MAX_THREADS == 1024, "the message names it");
    bool threads = o->threads > RT_POOL_MAX_THREADS, bench = o->bench > MAX_BENCH;
    if (threads)
        diag(s, no_span, option_value, "--threads", "a number up to 1024");
    if (bench)
        diag(s, no_span, option_value, "--bench", "a number up to 1000000");
    return threads || bench ? STATUS_USER : STATUS_OK;
}

Status rt_options_parse(Session *s, int argc, char **argv, RtOptions *out_options)
{
    *out_options = (RtOptions){.steps = RT_OPTION_ABSENT,
                               .bench = RT_OPTION_ABSENT,
                               .threads = RT_OPTION_ABSENT,
                               .seed = RT_OPTION_ABSENT};
    for (int i = 1; i < argc; i++) {
        const char *text = argv[i], *equals = strchr(text, '=');
        if (text[0] != '-') {
            diag(s, no_span, option_argument, text);
            return STATUS_USER;
        }
        size_t length = equals ? (size_t)(equals - text) : strlen(text);
        const Option *option = find_option(text, length);
        if (!option)
            return unknown_option(s, text, length);
        const char *value = equals ? equals + 1 : NULL;
        if (!equals && option->type != OPTION_FLAG && i + 1 < argc && strncmp(argv[i + 1], "--", 2))
            value = argv[++i];
        TRY(set_option(s, option, value, out_options));
    }
    TRY(check_limits(s, out_options));
    return check_together(s, out_options);
}

void rt_options_help(FILE *out, const char *program)
{
    fprintf(out, "usage: %s [option]...\n\n", program);
    for (int i = 0; i < N_OPTIONS; i++) {
        char left[64];
        snprintf(left, sizeof left, "%s %s", options[i].name,
                 options[i].argument ? options[i].argument : "");
        fprintf(out, "  %-28s %s\n", left, options[i].doc);
    }
}
