/* What a save does to the folders and files that are there. */
#include "tests/unit/rtio_support.h"

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
        "model_best.safetensors",           "model.ema.safetensors",
        "model-1.safetensors",              "model-00001-of-0000x.safetensors",
        "model-00001-of-00002.safetensors.bak", "tokenizer.json",
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_users_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
