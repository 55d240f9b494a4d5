/* link: what goes wrong is one diagnostic, and nothing is left behind. */
/* diag: link_missing */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "backend/link.h"

typedef struct Fixture {
    Session *s;
    FILE *out;
    char *text;
    size_t length;
    const char *folder, *object, *library;
} Fixture;

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void begin(Fixture *f)
{
    *f = (Fixture){0};
    f->out = open_memstream(&f->text, &f->length);
    f->s = session_new(f->out);
    assert_int_equal(link_folder_new(f->s, &f->folder), STATUS_OK);
    f->object = arena_printf(f->s->arena, "%s/step.o", f->folder);
    f->library = arena_printf(f->s->arena, "%s/lib.a", f->folder);
    write_file(f->object, "not an object");
    write_file(f->library, "!<arch>\n");
}

static uint32_t count_files(const char *path)
{
    uint32_t n = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n - 2; /* `.` and `..` */
}

static void end(Fixture *f, const char *expected)
{
    fflush(f->out);
    if (!strstr(f->text, expected))
        fail_msg("`%s` is not in: %s", expected, f->text);
    assert_int_equal(f->s->n_errors, 1);
    assert_int_equal(count_files(f->folder), 2);
    link_folder_remove(f->folder, (const char *const[]){f->object, f->library, NULL});
    assert_int_not_equal(access(f->folder, F_OK), 0);
    fclose(f->out);
    session_free(f->s);
    free(f->text);
}

static void a_missing_runtime_is_named(void **state)
{
    (void)state;
    Fixture f;
    begin(&f);
    const char *out = arena_printf(f.s->arena, "%s/x.step", f.folder);
    Status status = link_executable(f.s, f.folder, f.object, "/nowhere/libsteprt.a", out);
    assert_int_equal(status, STATUS_ENV);
    end(&f, "the runtime's library is needed to link: cannot read `/nowhere/libsteprt.a`");
}

static void a_failing_linker_shows_its_command(void **state)
{
    (void)state;
    Fixture f;
    begin(&f);
    const char *out = arena_printf(f.s->arena, "%s/x.step", f.folder);
    Status status = link_executable(f.s, f.folder, f.object, f.library, out);
    assert_int_equal(status, STATUS_ENV);
    end(&f, arena_printf(f.s->arena, "linking failed with exit code 1: cc -o %s", out));
}

static void a_missing_compiler_is_named(void **state)
{
    (void)state;
    Fixture f;
    begin(&f);
    const char *out = arena_printf(f.s->arena, "%s/x.step", f.folder);
    const char *path = arena_printf(f.s->arena, "%s", getenv("PATH"));
    setenv("PATH", "/nowhere", 1);
    Status status = link_executable(f.s, f.folder, f.object, f.library, out);
    setenv("PATH", path, 1);
    assert_int_equal(status, STATUS_ENV);
    end(&f, "cannot run `cc` to link");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_runtime_is_named),
        cmocka_unit_test(a_failing_linker_shows_its_command),
        cmocka_unit_test(a_missing_compiler_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
