#include <string.h>

#include "base/diag.h"
#include "driver/args.h"
#include "driver/commands.h"
#include "driver/guard.h"

static const DriverCommand commands[] = {
    {DRIVER_BUILD, "build", "build RECIPE.yaml [-o OUT.step] [options]",
     "Compiles a recipe's training step into an executable.", 1, 1, driver_cmd_build},
    {DRIVER_PLAN, "plan",
     "plan RECIPE.yaml [options] | plan --diff A.json B.json [--fail-on growth]",
     "Prints what a step needs: memory by class and tensor, recompute, work, records.", 1, 1,
     driver_cmd_plan},
    {DRIVER_OPT, "opt", "opt --passes=A,B FILE.sir [options]",
     "Reads IR text, runs passes over it, and prints the result.", 1, 1, driver_cmd_opt},
    {DRIVER_IMPORT, "import", "import DIR|config.json",
     "Says which model and sizes a directory in the Hugging Face layout holds.", 1, 1,
     driver_cmd_import},
    {DRIVER_EXPLAIN, "explain", "explain OP|PASS|DIAGNOSTIC|KEY|recipe|ops|passes|diagnostics",
     "Prints the documentation of one op, pass, diagnostic or recipe key, or of a whole table.", 1,
     1, driver_cmd_explain},
};

enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void print_usage(FILE *out)
{
    fprintf(out, "usage: stepc COMMAND ...\n\n");
    for (unsigned i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].doc);
    fprintf(out, "\n`stepc COMMAND --help` lists a command's options.\n");
}

static const DriverCommand *find_command(Session *s, const char *name)
{
    const char *names[N_COMMANDS];
    for (unsigned i = 0; i < N_COMMANDS; i++) {
        names[i] = commands[i].name;
        if (!strcmp(commands[i].name, name))
            return &commands[i];
    }
    diag(s, no_span, args_command, name);
    const char *near = diag_nearest(name, names, N_COMMANDS);
    if (near)
        diag(s, no_span, did_you_mean, near);
    return NULL;
}

int main(int argc, char **argv)
{
    Session *s = session_new(stderr);
    int code = STATUS_USER;
    if (argc < 2 || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") ||
        !strcmp(argv[1], "help")) {
        print_usage(argc < 2 ? stderr : stdout);
        code = argc < 2 ? STATUS_USER : driver_guard_output(s);
        session_free(s);
        return code;
    }
    DriverArgs args;
    const DriverCommand *command = find_command(s, argv[1]);
    if (command && driver_args_parse(s, command, argc - 2, argv + 2, &args) == STATUS_OK) {
        if (args.help) {
            driver_args_help(stdout, command);
            code = driver_guard_output(s);
        } else {
            code = driver_guard_run(command, &args, argc, argv);
        }
    }
    session_free(s);
    return code;
}
