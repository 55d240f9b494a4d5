#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/diag.h"
#include "driver/args.h"
#include "driver/guard.h"
#include "driver/report.h"

typedef struct Fixture { /* a session whose messages are kept */
    Session *s;
    char *said;
    size_t n_said;
    FILE *out;
} Fixture;

static Fixture *fixture_new(void)
{
    Fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->out = open_memstream(&f->said, &f->n_said);
    f->s = session_new(f->out);
    return f;
}

static const char *said(Fixture *f)
{
    fflush(f->out);
    return f->said;
}

static void fixture_free(Fixture *f)
{
    session_free(f->s);
    fclose(f->out);
    free(f->said);
    free(f);
}

/* -- the language of --require -- */

static const char report[] =
    "{\"model\": \"m\", \"world\": 1, \"flag\": true, \"nothing\": null, \"records\": [1, 2],"
    " \"ranks\": [{\"arena_bytes\": 1073741824}], \"recompute\": {\"parts\": {\"pre_norm\": "
    "{\"total\": 3}}}}";

static Status require(const char *expression, const char *message)
{
    Fixture *f = fixture_new();
    cJSON *json = cJSON_Parse(report);
    assert_non_null(json);
    Status status = driver_require(f->s, json, expression, no_span);
    if (message && !strstr(said(f), message))
        fail_msg("`%s` said: %s", expression, said(f));
    cJSON_Delete(json);
    fixture_free(f);
    return status;
}

static void require_holds(void **state)
{
    (void)state;
    static const char *const hold[] = {
        "world == 1",
        "model == \"m\"",
        "model != 'n'",
        "flag",
        "flag == true and not false",
        "nothing == nothing",
        "records == 2",
        "records[1] == 2",
        "ranks[0].arena_bytes <= 1GiB",
        "ranks[0].arena_bytes == 1024 MiB",
        "ranks[0].arena_bytes / 2 < 600 MB",
        "recompute.parts[\"pre_norm\"].total == recompute.parts.pre_norm.total",
        "1 + 2 * 3 == 7",
        "(1 + 2) * 3 == 9",
        "2 - 1 - 1 == 0",
        "-1 < 0",
        "50% == 0.5",
        "world == 2 or world == 1 and flag",
        "not (world == 2)",
    };
    for (unsigned i = 0; i < sizeof hold / sizeof *hold; i++)
        if (require(hold[i], NULL) != STATUS_OK)
            fail_msg("`%s` does not hold", hold[i]);
}

static void require_fails(void **state)
{
    (void)state;
    assert_int_equal(require("world == 2", "`world == 2` does not hold: `world` is 1"),
                     STATUS_CHECK);
    assert_int_equal(require("world == 1 and records == 3", "`records` is 2"), STATUS_CHECK);
    assert_int_equal(require("not flag", "does not hold"), STATUS_CHECK);
    assert_int_equal(require("model == 'n'", "`model` is \"m\""), STATUS_CHECK);
    assert_int_equal(require("nothing != nothing", "does not hold"), STATUS_CHECK);
}

static void require_refuses(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"wrld == 1", "--require:1:1: error: the report has no `wrld` here"},
        {"wrld == 1", "did you mean `world`?"},
        {"ranks[1].stage == 0", "no item 1: the list has 1"},
        {"ranks[-1] == 0", "no item -1"},
        {"world ==", "expected a path, a number, a string or `(`"},
        {"(world == 1", "expected `)`"},
        {"world == 1 2", "--require:1:12: error: expected the end"},
        {"world", "a comparison is needed, not 1"},
        {"model < 3", "numbers are needed, not \"m\" and 3"},
        {"world == 'a", "expected a closing quote"},
        {"world.x == 1", "the report has no `x` here"},
        {"", "expected a path"},
    };
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(require(wrong[i][0], wrong[i][1]), STATUS_USER);
    char deep[300];
    memset(deep, '(', sizeof deep - 1);
    deep[sizeof deep - 1] = 0;
    assert_int_equal(require(deep, "expected less nesting"), STATUS_USER);
}

/* -- arguments -- */

static Status do_nothing(Session *s, const DriverArgs *args)
{
    (void)s;
    (void)args;
    return STATUS_OK;
}

static const DriverCommand plan = {DRIVER_PLAN, "plan", "plan RECIPE", "", 1, 1, do_nothing};

static Status parse(Fixture *f, const char *line, DriverArgs *args)
{
    char *words[16], *copy = arena_strndup(f->s->arena, line, strlen(line));
    int n = 0;
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        words[n++] = word;
    return driver_args_parse(f->s, &plan, n, words, args);
}

static void arguments(void **state)
{
    (void)state;
    Fixture *f = fixture_new();
    DriverArgs args;
    assert_int_equal(parse(f, "r.yaml --set a=1 --set=b=2 --json --fit 3GiB", &args), STATUS_OK);
    assert_string_equal(args.operands.at[0], "r.yaml");
    assert_int_equal(args.set.n, 2);
    assert_string_equal(args.set.at[1], "b=2");
    assert_true(args.json && !args.strict);
    assert_string_equal(args.fit, "3GiB");
    assert_int_equal(parse(f, "-- --json", &args), STATUS_OK);
    assert_string_equal(args.operands.at[0], "--json");
    assert_int_equal(parse(f, "--diff a b", &args), STATUS_OK);
    assert_int_equal(parse(f, "--diff a", &args), STATUS_USER);
    assert_int_equal(parse(f, "r.yaml --json=1", &args), STATUS_USER);
    assert_non_null(strstr(said(f), "option `--json` takes no value"));
    assert_int_equal(parse(f, "r.yaml -o x", &args), STATUS_USER);
    assert_non_null(strstr(said(f), "`stepc plan` has no option `-o`"));
    int64_t n;
    assert_int_equal(driver_args_count(f->s, "--world", "8", &n), STATUS_OK);
    assert_int_equal(n, 8);
    assert_int_equal(driver_args_count(f->s, "--world", NULL, &n), STATUS_OK);
    assert_int_equal(n, 0);
    assert_int_equal(driver_args_count(f->s, "--world", "0", &n), STATUS_USER);
    assert_int_equal(driver_args_count(f->s, "--world", "8x", &n), STATUS_USER);
    fixture_free(f);
}

/* -- reproducers -- */

static Status crash(Session *s, const DriverArgs *args)
{
    (void)s;
    if (args->dump_after)
        fprintf(args->dump_out, "# after canon\nfirst\n# after cse\nlast dump\n");
    fflush(args->dump_out);
    abort();
}

static Status fail_user(Session *s, const DriverArgs *args)
{
    (void)s;
    (void)args;
    return STATUS_USER;
}

static int run_guarded(Status (*run)(Session *s, const DriverArgs *args), const char *operand)
{
    DriverCommand command = plan;
    DriverArgs args = {.dump_out = stdout};
    Arena *arena = arena_new();
    char *argv[] = {"stepc", "plan"};
    command.run = run;
    if (operand)
        vec_push(arena, &args.operands, operand);
    int code = driver_guard_run(&command, &args, 2, argv);
    arena_free(arena);
    return code;
}

static void our_faults_leave_a_reproducer(void **state)
{
    (void)state;
    char dir[] = "/tmp/driver_test_XXXXXX", text[4096] = {0};
    char *home = getcwd(NULL, 0);
    glob_t found;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(chdir(dir), 0);
    FILE *input = fopen("input.yaml", "w");
    fputs("what was read\n", input);
    fclose(input);
    assert_int_equal(run_guarded(fail_user, NULL), STATUS_USER);
    assert_int_equal(glob("stepc-bug-*", 0, NULL, &found), GLOB_NOMATCH);
    assert_int_equal(run_guarded(crash, "input.yaml"), STATUS_BUG);
    assert_int_equal(glob("stepc-bug-*", 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    FILE *file = fopen(found.gl_pathv[0], "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    assert_non_null(strstr(text, "stepc plan"));
    assert_non_null(strstr(text, "what was read"));
    assert_non_null(strstr(text, "# after cse\nlast dump"));
    assert_null(strstr(text, "first"));
    unlink(found.gl_pathv[0]);
    globfree(&found);
    unlink("input.yaml");
    assert_int_equal(chdir(home), 0);
    rmdir(dir);
    free(home);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(require_holds),
        cmocka_unit_test(require_fails),
        cmocka_unit_test(require_refuses),
        cmocka_unit_test(arguments),
        cmocka_unit_test(our_faults_leave_a_reproducer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
