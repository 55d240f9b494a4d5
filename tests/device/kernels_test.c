/* kernels_test: the CUDA kernels through their launch functions against plain formulas. On a GPU,
 * or under the emulator. Options: --small (fewer and smaller cases: for compute-sanitizer and the
 * emulator), --bench (large shapes against the plain kernels, and times), --group NAME (attention,
 * loss, embed, tables, reduce, optimizer, ranks; several), --size N (attention of this head size
 * alone), --seconds N (ends the program, as failed, after so long; 280 if not given). */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/device/harness.h"

int64_t test_size;
static const char *groups[16];
static int n_groups;

bool test_wanted(const char *group)
{
    for (int i = 0; i < n_groups; i++)
        if (!strcmp(groups[i], group))
            return true;
    return n_groups == 0;
}

static void too_long(int signal)
{
    static const char text[] = "FAIL | the time is over\n";
    (void)signal;
    if (write(1, text, sizeof text - 1)) {
    }
    _exit(1);
}

int main(int argc, char **argv)
{
    char name[128];
    unsigned seconds = device_is_emulated() ? 3600 : 280;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--small")) {
            test_small = true;
        } else if (!strcmp(argv[i], "--bench")) {
            test_bench = true;
        } else if (!strcmp(argv[i], "--group") && i + 1 < argc && n_groups < 16) {
            groups[n_groups++] = argv[++i];
        } else if (!strcmp(argv[i], "--size") && i + 1 < argc) {
            test_size = atoll(argv[++i]);
        } else if (!strcmp(argv[i], "--seconds") && i + 1 < argc) {
            seconds = (unsigned)atoi(argv[++i]);
        } else {
            fprintf(stderr, "usage: %s [--small | --bench] [--group NAME]... [--size N] "
                            "[--seconds N]\n",
                    argv[0]);
            return 2;
        }
    }
    signal(SIGALRM, too_long);
    alarm(seconds);
    if (!device_open(name, sizeof name, &test_cuda.multiprocessors))
        return 3;
    test_cuda.fault_device = device_alloc(8 * RT_CUDA_FAULT_WORDS);
    printf("on %s, %d multiprocessors\n", name, test_cuda.multiprocessors);
    test_bench = test_bench && !device_is_emulated();
    check_optimizer();
    check_reduce();
    check_tables();
    check_embed();
    check_loss();
    check_ranks();
    check_attention();
    return report_end() ? 1 : 0;
}
