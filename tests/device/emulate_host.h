/* emulate_host: the emulator, seen from the program that launches kernels. */
#ifndef TESTS_DEVICE_EMULATE_HOST_H
#define TESTS_DEVICE_EMULATE_HOST_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* 0: no such kernel, or a launch that the device would refuse. */
int emulate_launch(const char *name, const uint32_t grid[3], uint32_t threads,
                   uint32_t dynamic_bytes, const void *args);
int emulate_args_bytes(const char *name); /* of its one argument; 0: no such kernel */
void emulate_seed(uint64_t seed);

#ifdef __cplusplus
}
#endif

#endif
