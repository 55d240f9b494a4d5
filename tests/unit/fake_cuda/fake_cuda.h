/* fake_cuda: a CUDA driver without a device, for tests. Device memory is the host's, every
 * operation is done at once, and while a stream is captured operations are kept, to be done when
 * the graph is launched: in the order of the capture, or with $FAKE_STREAMS `late` those of other
 * streams as late as the events between streams allow, with `early` as early. $FAKE_DEVICES: how
 * many devices there are. $FAKE_NCCL_SECONDS: for so long a stream waits for a word, and then the
 * device hangs. */
#ifndef TESTS_UNIT_FAKE_CUDA_H
#define TESTS_UNIT_FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>

typedef void (*FakeFn)(const void *data);

/* Does fn over a copy of the data: now, or with every launch of the graph that is being captured.
 */
void fake_cuda_enqueue(FakeFn fn, const void *data, size_t bytes, const void *stream);

/* An operation does not end: nothing more happens on the device, but for copies ahead. */
void fake_cuda_hang(bool hangs);

/* Words have been set: one that the device hangs for may be among them. */
void fake_cuda_words_set(const unsigned *at, size_t n);

/* Whether $FAKE_CUDA names this behaviour: no_device, capability, old, lt_old, memory, lost, image;
 * unshared, no_import: memory is not shared with other processes, or does not come over;
 * anything: every kernel is there, and kernels and products do nothing. */
int fake_cuda_mode(const char *name);

/* Kernels of another file of the library, where there is one: NULL, or what stands for the kernel;
 * a launch of it, whose arguments are the caller's. */
const void *fake_cuda_other_kernel(const char *name) __attribute__((weak));
void fake_cuda_other_launch(const void *kernel, const unsigned *grid, unsigned threads,
                            unsigned shared_bytes, void **args, const void *stream)
    __attribute__((weak));

#endif
