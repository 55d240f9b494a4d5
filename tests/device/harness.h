/* harness: runs launch functions on tensors with guards around them, on a GPU or under the
 * emulator, and compares with f64. */
#ifndef TESTS_DEVICE_HARNESS_H
#define TESTS_DEVICE_HARNESS_H

#include "runtime/cuda/launch_view.h"

/* -- the device: backend_cuda.c, backend_emulate.c -- */

bool device_open(char *out_name, size_t name_bytes, int *out_multiprocessors);
bool device_is_emulated(void);
void *
device_alloc(size_t bytes); /* what lies behind it is not readable, where the device can tell */
void device_free(void *at);
void device_write(void *to, const void *from, size_t bytes);
void device_read(void *to, const void *from, size_t bytes);
void device_fill(void *at, unsigned char byte, size_t bytes);
void device_wait(void); /* ends the program when the device has failed */
double device_seconds(void (*run)(void *context),
                      void *context); /* the median of some runs; 0: no clock */

/* -- tensors -- */

typedef struct Tensor {
    PlanTensor view;
    unsigned char *host, *device, *memory; /* memory: on the device, with guards */
    size_t bytes;
} Tensor;

Tensor tensor_new(DType dtype, int64_t numel, int64_t run, int64_t pitch); /* all bytes 0xff: NaN */
Tensor tensor_dense(DType dtype, int64_t numel);
Tensor tensor_absent(void);
void tensor_free(Tensor *t);
double tensor_get(const Tensor *t, int64_t e);
void tensor_put(Tensor *t, int64_t e, double value);
void tensor_normal(Tensor *t, double factor); /* fresh random numbers, rounded to the dtype */
void tensor_upload(const Tensor *t);
void tensor_poison(const Tensor *t); /* 0xff on the device */
void tensor_download(Tensor *t);
bool tensor_guarded(const Tensor *t); /* nothing was written outside its elements */

uint32_t next_random(void);
double random_normal(void);
void random_seed(uint64_t seed);

/* -- calls -- */

enum { MAX_TENSORS = 600, MAX_PARAMS = 16 };

typedef Status (*LaunchFn)(RtCuda *cuda, const RtCall *call);

typedef struct Call {
    Tensor *tensor;
    int n_tensors;
    PlanParam param[MAX_PARAMS];
    PlanKernel kernel;
    LaunchFn launch;
    /* filled by call_open */
    RtCall call;
    PlanTensor views[MAX_TENSORS];
    void *at[MAX_TENSORS];
    void *workspace;
    uint64_t workspace_bytes;
} Call;

extern RtCuda test_cuda;
extern const int64_t test_random[3]; /* step, seed, first sample */

void call_open(Call *c);    /* uploads what the host holds, takes the workspace */
bool call_run(Call *c);     /* poisons the workspace, launches, waits; false: refused */
void call_again(void *c);   /* launches only; for device_seconds */
void call_close(Call *c);   /* downloads all tensors */
void call_release(Call *c); /* frees workspace and tensors */

/* -- results -- */

typedef struct Error {
    double norm, size;    /* sums of squares of difference and of what is wanted */
    double most, largest; /* the largest of each */
    int64_t n, bad;       /* bad: not finite where it should be */
} Error;

void error_add(Error *e, double have, double want);
double error_relative(const Error *e);

/* One line per case; counts failures. work: floating-point operations, or bytes when negative. */
void report(const char *name, bool passed, double error, double seconds, double work);
int report_end(void);
extern bool test_small, test_bench; /* bench: large shapes only */
bool test_wanted(const char *group);
extern int64_t test_size; /* 0: all; else only attention cases of this head size */

void check_attention(void);
void check_loss(void);
void check_embed(void);
void check_tables(void);
void check_reduce(void);
void check_optimizer(void);
void check_ranks(void);

#endif
