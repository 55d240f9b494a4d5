/* Arenas: what no memory can hold is said, and not allocated short. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/status.h"

/* In a process of its own, which it ends. */
static void expect_no_memory(uint64_t n)
{
    Arena *arena = arena_new();
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        if (freopen("/dev/null", "w", stderr))
            ARENA_ARRAY(arena, double, n)[0] = 1;
        _exit(STATUS_OK);
    }
    arena_free(arena);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), STATUS_ENV);
}

static void test_too_large(void **state)
{
    (void)state;
    expect_no_memory((uint64_t)1 << 61); /* times 8: 0 */
    expect_no_memory(((uint64_t)1 << 61) + 2);
    expect_no_memory(((uint64_t)1 << 61) - 1); /* rounded up: 0 */
    expect_no_memory((uint64_t)-1);
}

static void test_zeroed(void **state)
{
    (void)state;
    Arena *arena = arena_new();
    for (size_t n = 0; n < 200; n++) {
        int64_t *numbers = ARENA_ARRAY(arena, int64_t, n);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(numbers[i]--, 0);
    }
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_zeroed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
