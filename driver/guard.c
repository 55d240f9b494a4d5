#include "driver/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/diag.h"
#include "driver/paths.h"

enum { KEEP_BYTES = 64 << 20 }; /* of the last IR dump, at most */

Status driver_guard_output(Session *s)
{
    bool lost = ferror(stdout);
    if (fflush(stdout) == 0 && !lost)
        return STATUS_OK;
    diag(s, no_span, file_write, "standard output",
         lost ? "not all of it was written" : strerror(errno));
    return STATUS_ENV;
}

static int run_here(const DriverCommand *command, const DriverArgs *args)
{
    Session *s = session_new(stderr);
    s->strict = args->strict;
    Status status = command->run(s, args);
    if (status == STATUS_OK && s->n_errors)
        status = STATUS_USER;
    if (status == STATUS_OK)
        status = driver_guard_output(s);
    session_free(s);
    return status;
}

/* Runs the command in a child; returns what waitpid says. */
static int run_child(const DriverCommand *command, const DriverArgs *args, bool silent)
{
    fflush(NULL);
    pid_t child = fork();
    if (child < 0)
        return run_here(command, args) << 8; /* no process to spare: without a net */
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* whoever ends the command ends all of it */
        if (silent) {
            int null = open("/dev/null", O_WRONLY);
            dup2(null, STDOUT_FILENO);
            dup2(null, STDERR_FILENO);
        }
        exit(run_here(command, args));
    }
    int state = STATUS_BUG << 8;
    signal(SIGINT, SIG_IGN); /* Ctrl-C is the child's to die of */
    while (waitpid(child, &state, 0) < 0 && errno == EINTR)
        ;
    signal(SIGINT, SIG_DFL);
    return state;
}

static bool is_bug(int state)
{
    if (WIFEXITED(state))
        return WEXITSTATUS(state) != STATUS_OK && WEXITSTATUS(state) != STATUS_USER &&
               WEXITSTATUS(state) != STATUS_CHECK && WEXITSTATUS(state) != STATUS_ENV;
    int sig = WTERMSIG(state);
    return sig == SIGABRT || sig == SIGSEGV || sig == SIGBUS || sig == SIGFPE || sig == SIGILL ||
           sig == SIGTRAP || sig == SIGSYS;
}

static void copy_file(FILE *out, const char *title, const char *path)
{
    FILE *in = fopen(path, "rb");
    if (!in)
        return;
    fprintf(out, "\n==== %s %s\n", title, path);
    for (int c; (c = fgetc(in)) != EOF;)
        fputc(c, out);
    fclose(in);
}

/* What was dumped after the last pass that came to its end. */
static void copy_last_dump(FILE *out, FILE *dumps)
{
    long last = 0, at = 0;
    char *line = NULL;
    size_t cap = 0;
    ssize_t length;
    rewind(dumps);
    while ((length = getline(&line, &cap, dumps)) > 0) {
        if (!strncmp(line, "# after ", 8))
            last = at;
        at += length;
    }
    if (fseek(dumps, last, SEEK_SET) == 0 && at) {
        fprintf(out, "\n==== the IR after the last pass that ended\n");
        for (long n = 0; n < KEEP_BYTES && (length = getline(&line, &cap, dumps)) > 0; n += length)
            fwrite(line, 1, (size_t)length, out);
    }
    free(line);
}

/* Runs the command once more, dumping, and puts everything that is needed to see the bug again into
 * one file. */
static void write_reproducer(const DriverCommand *command, const DriverArgs *args, int argc,
                             char **argv, int state)
{
    Session *s = session_new(stderr);
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    FILE *dumps = tmpfile();
    fprintf(out, "stepc ended with %s %d\n", WIFEXITED(state) ? "exit code" : "signal",
            WIFEXITED(state) ? WEXITSTATUS(state) : WTERMSIG(state));
    for (int i = 0; i < argc; i++)
        fprintf(out, "%s%s", i ? " " : "", argv[i]);
    fputc('\n', out);
    for (uint32_t i = 0; i < args->operands.n; i++)
        copy_file(out, "input", args->operands.at[i]);
    if (args->recipe)
        copy_file(out, "recipe", args->recipe);
    if (dumps) {
        DriverArgs dumping = *args;
        dumping.dump_after = "all";
        dumping.dump_out = dumps;
        run_child(command, &dumping, true);
        copy_last_dump(out, dumps);
        fclose(dumps);
    }
    fclose(out);
    const char *path = arena_printf(s->arena, "stepc-bug-%ld.txt", (long)getpid());
    if (driver_write_file(s, path, text, length) == STATUS_OK)
        diag(s, no_span, driver_reproducer, path);
    free(text);
    session_free(s);
}

int driver_guard_run(const DriverCommand *command, const DriverArgs *args, int argc, char **argv)
{
    signal(SIGCHLD, SIG_DFL); /* a parent may have had it ignored: then none could be waited for */
    int state = run_child(command, args, false);
    if (is_bug(state)) {
        write_reproducer(command, args, argc, argv, state);
        return STATUS_BUG;
    }
    if (WIFEXITED(state))
        return WEXITSTATUS(state);
    int sig = WTERMSIG(state);
    if (sig != SIGPIPE && sig != SIGINT && sig != SIGTERM) /* those that somebody wanted */
        fprintf(stderr, "error: ended by signal %d (%s)\n", sig, strsignal(sig));
    return sig == SIGKILL ? STATUS_ENV : 128 + sig;
}
