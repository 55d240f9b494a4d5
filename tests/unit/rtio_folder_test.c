/* What a save does to the folders and files that are there. */
#include "tests/unit/rtio_support.h"

#include <sys/wait.h>

#include "runtime/checkpoint_folder.h"

/* A save of one file, its text. */
static void save(Fixture *f, const char *dir, const char *name, const char *text)
{
    Arena *scratch = arena_new();
    RtFolder folder;
    assert_int_equal(rt_folder_begin(f->s, scratch, dir, &folder), STATUS_OK);
    put_file(arena_printf(scratch, "%s/%s", folder.temp, name), text, strlen(text));
    assert_int_equal(rt_folder_commit(f->s, scratch, &folder), STATUS_OK);
    arena_free(scratch);
}

static bool holds(const char *dir, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return !access(path, F_OK);
}

/* A checkpoint's own files go with it; names that only look like them are the user's. */
static void test_users_files(void **state)
{
    (void)state;
    static const char *const users[] = {
        "model_best.safetensors",
        "model.ema.safetensors",
        "model-1.safetensors",
        "model-00001-of-0000x.safetensors",
        "model-00001-of-00002.safetensors.bak",
        "tokenizer.json",
    };
    static const char *const ours[] = {"model-00001-of-00002.safetensors",
                                       "model-00002-of-00002.safetensors",
                                       "model.safetensors.index.json", "config.json"};
    Fixture *f = begin();
    const char *dir = in(f, "ckpt");
    save(f, dir, "model.safetensors", "1");
    for (size_t i = 0; i < sizeof users / sizeof *users; i++)
        put_file(arena_printf(f->s->arena, "%s/%s", dir, users[i]), users[i], strlen(users[i]));
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        put_file(arena_printf(f->s->arena, "%s/%s", dir, ours[i]), "old", 3);
    save(f, dir, "model.safetensors", "2");
    for (size_t i = 0; i < sizeof users / sizeof *users; i++)
        if (!holds(dir, users[i]))
            fail_msg("%s is gone", users[i]);
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (holds(dir, ours[i]))
            fail_msg("%s is still there", ours[i]);
    assert_int_equal(f->s->n_warnings + f->s->n_errors, 0);
    end(f);
}

/* What a killed process of the same number had written goes; what else it had moved there, a save
 * to the folder takes along. */
static void test_killed_save(void **state)
{
    (void)state;
    static const char *const old[] = {"model-00001-of-00002.safetensors",
                                      "model-00002-of-00002.safetensors.tmp-77",
                                      "state/optimizer.safetensors", "state/trainer.json.tmp-77"};
    Fixture *f = begin();
    const char *dir = in(f, "ckpt"),
               *temp = arena_printf(f->s->arena, "%s.saving-%ld", dir, (long)getpid());
    assert_int_equal(mkdir(temp, 0777), 0);
    assert_int_equal(mkdir(arena_printf(f->s->arena, "%s/state", temp), 0777), 0);
    for (size_t i = 0; i < sizeof old / sizeof *old; i++)
        put_file(arena_printf(f->s->arena, "%s/%s", temp, old[i]), "old", 3);
    put_file(arena_printf(f->s->arena, "%s/tokenizer.json", temp), "{}", 2);
    assert_int_equal(rt_folder_check(f->s, dir), STATUS_OK);
    assert_int_equal(f->s->n_warnings, 0);
    save(f, dir, "model.safetensors", "new");
    for (size_t i = 0; i < sizeof old / sizeof *old; i++)
        if (holds(dir, old[i]))
            fail_msg("%s has got into the checkpoint", old[i]);
    assert_true(holds(dir, "model.safetensors") && holds(dir, "tokenizer.json"));
    end(f);
}

/* A folder of a process that is no more is named and stays; one that lives may be saving. */
static void test_leftovers(void **state)
{
    (void)state;
    Fixture *f = begin();
    pid_t child = fork();
    if (!child)
        _exit(0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    const char *dir = in(f, "ckpt"),
               *left = arena_printf(f->s->arena, "%s.saving-%ld", dir, (long)child);
    assert_int_equal(mkdir(left, 0777), 0);
    assert_int_equal(mkdir(in(f, "ckpt.saving-1"), 0777), 0);
    assert_int_equal(mkdir(in(f, "ckpt.saving-mine"), 0777), 0);
    assert_int_equal(rt_folder_check(f->s, dir), STATUS_OK);
    assert_int_equal(f->s->n_warnings, 1);
    expect_message(
        f, arena_printf(f->s->arena, "`%s` is left from an earlier save to `%s`", left, dir));
    assert_int_equal(access(left, F_OK), 0);
    end(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_users_files),
        cmocka_unit_test(test_killed_save),
        cmocka_unit_test(test_leftovers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
