/* emulate: CUDA kernels on a CPU, block after block, a fiber per thread. What it is for: the
 * kernels' own tests in a build without a GPU, with the mistakes that a GPU hides made visible:
 * shared memory starts as NaN, threads run in a shuffled order, asynchronous copies land either at
 * once or as late as the program allows, a barrier that not all threads reach ends the test, and
 * every access of the instructions below to shared memory is checked. One kernel at a time. */
#ifndef TESTS_DEVICE_EMULATE_H
#define TESTS_DEVICE_EMULATE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline __attribute__((always_inline))
#define __shared__ static
#define __align__(n) alignas(n)
#define __restrict__

struct EmulatedIndex {
    unsigned x, y, z;
};

struct int4 {
    int x, y, z, w;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return {x, y, z, w};
}
static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}
static inline uint2 make_uint2(unsigned x, unsigned y)
{
    return {x, y};
}

/* -- the machine: emulate.cc -- */

extern EmulatedIndex emulated_block, emulated_grid, emulated_threads;
unsigned emulated_thread();
unsigned char *emulated_shared();
void emulated_shared_check(const void *at, size_t bytes, size_t align);

enum { EMULATED_WARP = 32 };

/* Every lane of a warp calls with its own arguments; the last to come runs `all` over all lanes'
 * arguments. */
typedef void (*EmulatedWarpFn)(void *const *lanes);
void emulated_warp(EmulatedWarpFn all, void *argument);
void emulated_barrier(int barrier, int threads);
void emulated_copy(void *to, const void *from, int bytes);
void emulated_copy_commit();
void emulated_copy_wait(int pending);
void emulated_phase_init(void *barrier, int count);
void emulated_phase_arrive(void *barrier);
void emulated_phase_arrive_after_copies(void *barrier);
void emulated_phase_wait(void *barrier, int parity);
struct EmulatedGroup { /* a product of a warp's 16 rows, from every lane's registers */
    float *d[EMULATED_WARP];
    const uint32_t *a[EMULATED_WARP]; /* NULL: in shared memory */
    uint32_t a_place, b;
    int columns;
    bool trans, add;
};
void emulated_group(const EmulatedGroup &product);
void emulated_group_commit();
void emulated_group_wait(int pending);

typedef void (*EmulatedKernel)(const void *args);
struct EmulatedEntry {
    const char *name;
    EmulatedKernel kernel;
    int threads, args_bytes;
    EmulatedEntry *next;
    EmulatedEntry(const char *name, EmulatedKernel kernel, int threads, int args_bytes);
};

#define threadIdx (EmulatedIndex{emulated_thread(), 0, 0})
#define blockIdx emulated_block
#define gridDim emulated_grid
#define blockDim emulated_threads

#define KERNEL_ENTRY(name, threads, blocks, Args)                                                  \
    static void name(const Args &x);                                                               \
    static EmulatedEntry entry_of_##name(                                                          \
        #name, [](const void *args) { name(*static_cast<const Args *>(args)); }, threads,          \
        sizeof(Args));                                                                             \
    static void name(const Args &x)

#define DYNAMIC_SHARED(name) unsigned char *name = emulated_shared()

static inline void __syncthreads()
{
    emulated_barrier(0, (int)emulated_threads.x);
}

static inline void bar_sync(int barrier, int threads)
{
    emulated_barrier(barrier, threads);
}

static inline int block_again()
{
    return (int)emulated_block.x;
}

static inline int thread_again()
{
    return (int)emulated_thread();
}

/* -- warps -- */

static inline void __syncwarp()
{
    emulated_warp([](void *const *) {}, nullptr);
}

template <typename T> struct EmulatedShuffle {
    T value, result;
    unsigned from;
};

template <typename T> static inline T emulated_shuffle(T value, unsigned from)
{
    EmulatedShuffle<T> mine = {value, value, from};
    emulated_warp(
        [](void *const *lanes) {
            EmulatedShuffle<T> *const *all = (EmulatedShuffle<T> *const *)lanes;
            for (int i = 0; i < EMULATED_WARP; i++)
                all[i]->result = all[all[i]->from]->value;
        },
        &mine);
    return mine.result;
}

template <typename T> static inline T __shfl_xor_sync(unsigned, T value, int mask)
{
    return emulated_shuffle(value, (emulated_thread() % EMULATED_WARP) ^ (unsigned)mask);
}

template <typename T> static inline T __shfl_sync(unsigned, T value, int lane)
{
    return emulated_shuffle(value, (unsigned)lane % EMULATED_WARP);
}

template <typename T> static inline T __shfl_up_sync(unsigned, T value, unsigned by)
{
    unsigned lane = emulated_thread() % EMULATED_WARP;
    return emulated_shuffle(value, lane < by ? lane : lane - by);
}

static inline unsigned __match_any_sync(unsigned, unsigned value)
{
    EmulatedShuffle<unsigned> mine = {value, 0, 0};
    emulated_warp(
        [](void *const *lanes) {
            EmulatedShuffle<unsigned> *const *all = (EmulatedShuffle<unsigned> *const *)lanes;
            for (int i = 0; i < EMULATED_WARP; i++)
                for (int j = 0; j < EMULATED_WARP; j++)
                    all[i]->result |= (unsigned)(all[i]->value == all[j]->value) << j;
        },
        &mine);
    return mine.result;
}

static inline int __any_sync(unsigned, int value)
{
    EmulatedShuffle<int> mine = {value != 0, 0, 0};
    emulated_warp(
        [](void *const *lanes) {
            EmulatedShuffle<int> *const *all = (EmulatedShuffle<int> *const *)lanes;
            int any = 0;
            for (int i = 0; i < EMULATED_WARP; i++)
                any |= all[i]->value;
            for (int i = 0; i < EMULATED_WARP; i++)
                all[i]->result = any;
        },
        &mine);
    return mine.result;
}

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

static inline unsigned long long atomicCAS(unsigned long long *at, unsigned long long expected,
                                           unsigned long long value)
{
    unsigned long long before = *at;
    if (before == expected)
        *at = value;
    return before;
}

static inline int atomicExch(int *at, int value)
{
    int before = *at;
    *at = value;
    return before;
}

static inline int atomicAdd(int *at, int value)
{
    int before = *at;
    *at += value;
    return before;
}

static inline unsigned atomicInc(unsigned *at, unsigned most)
{
    unsigned before = *at;
    *at = before >= most ? 0 : before + 1;
    return before;
}

static inline int min(int a, int b)
{
    return a < b ? a : b;
}
static inline int max(int a, int b)
{
    return a > b ? a : b;
}
static inline int64_t min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* -- arithmetic -- */

static inline float __uint_as_float(unsigned bits)
{
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static inline unsigned __float_as_uint(float value)
{
    unsigned bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fsub_rn(float a, float b)
{
    return a - b;
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}
static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
static inline float __fdividef(float a, float b)
{
    return a / b;
}
static inline float reciprocal_fast(float x)
{
    return 1 / x;
}

static inline float reciprocal_root_fast(float x)
{
    return (float)(1 / sqrt((double)x));
}

static inline float exp2_fast(float x)
{
    return exp2f(x);
}

static inline bf16 round_bf16(float value)
{
    unsigned bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return {0x7fff};
    return {(uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16)};
}

static inline void store16(void *at, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    *(uint4 *)at = {a, b, c, d};
}

static inline uint32_t pack_bf16(float lo, float hi)
{
    return round_bf16(lo).bits | (uint32_t)round_bf16(hi).bits << 16;
}

/* -- matrices -- */

struct EmulatedLoad {
    uint32_t *r;
    const bf16 *at;
};

template <bool trans> static inline void emulated_ldmatrix(uint32_t *r, const bf16 *at)
{
    EmulatedLoad mine = {r, at};
    emulated_shared_check(at, 16, 16);
    emulated_warp(
        [](void *const *lanes) {
            EmulatedLoad *const *all = (EmulatedLoad *const *)lanes;
            for (int i = 0; i < EMULATED_WARP; i++)
                for (int matrix = 0; matrix < 4; matrix++) {
                    int row = i / 4, column = i % 4 * 2;
                    bf16 lo = trans ? all[matrix * 8 + column]->at[row]
                                    : all[matrix * 8 + row]->at[column];
                    bf16 hi = trans ? all[matrix * 8 + column + 1]->at[row]
                                    : all[matrix * 8 + row]->at[column + 1];
                    all[i]->r[matrix] = lo.bits | (uint32_t)hi.bits << 16;
                }
        },
        &mine);
}

static inline void ldmatrix(uint32_t (&r)[4], const bf16 *at)
{
    emulated_ldmatrix<false>(r, at);
}

static inline void ldmatrix_trans(uint32_t (&r)[4], const bf16 *at)
{
    emulated_ldmatrix<true>(r, at);
}

struct EmulatedMma {
    float *d;
    const uint32_t *a;
    uint32_t b[2];
};

static inline float emulated_half(uint32_t pair, int high)
{
    return __uint_as_float(high ? pair & 0xffff0000u : pair << 16);
}

static inline void emulated_mma(void *const *lanes)
{
    EmulatedMma *const *all = (EmulatedMma *const *)lanes;
    float a[16][16], b[16][8];
    for (int i = 0; i < EMULATED_WARP; i++)
        for (int high = 0; high < 2; high++) {
            int row = i / 4, column = i % 4 * 2 + high;
            for (int r = 0; r < 4; r++)
                a[row + r % 2 * 8][column + r / 2 * 8] = emulated_half(all[i]->a[r], high);
            for (int r = 0; r < 2; r++)
                b[column + r * 8][row] = emulated_half(all[i]->b[r], high);
        }
    for (int row = 0; row < 16; row++) {
        float sum[8] = {0};
        for (int k = 0; k < 16; k++)
            for (int n = 0; n < 8; n++)
                sum[n] += a[row][k] * b[k][n];
        for (int n = 0; n < 8; n++)
            all[row % 8 * 4 + n / 2]->d[row / 8 * 2 + n % 2] += sum[n];
    }
}

static inline void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    EmulatedMma mine = {d, a, {b0, b1}};
    emulated_warp(emulated_mma, &mine);
}

/* -- asynchronous copies -- */

static inline void cp_async16(void *to, const void *from, bool inside)
{
    emulated_shared_check(to, 16, 16);
    emulated_copy(to, inside ? from : nullptr, 16);
}

static inline void cp_async4(void *to, const void *from, bool inside)
{
    emulated_shared_check(to, 4, 4);
    emulated_copy(to, inside ? from : nullptr, 4);
}

static inline void cp_async_commit()
{
    emulated_copy_commit();
}

template <int pending> static inline void cp_async_wait()
{
    emulated_copy_wait(pending);
}

/* -- phases, and products by groups of warps -- */

static inline uint32_t shared_address(const void *at)
{
    return (uint32_t)((const unsigned char *)at - emulated_shared());
}

static inline void phase_init(uint64_t *barrier, int count)
{
    emulated_shared_check(barrier, 8, 8);
    emulated_phase_init(barrier, count);
}

static inline void phase_arrive(uint64_t *barrier)
{
    emulated_phase_arrive(barrier);
}

static inline void phase_arrive_after_copies(uint64_t *barrier)
{
    emulated_phase_arrive_after_copies(barrier);
}

static inline void phase_wait(uint64_t *barrier, int parity)
{
    emulated_phase_wait(barrier, parity);
}

static inline void fence_async()
{
}

template <int registers> static inline void group_takes_registers()
{
}

template <int registers> static inline void group_gives_registers()
{
}

static inline void group_fence()
{
}

static inline void group_commit()
{
    emulated_group_commit();
}

template <int pending> static inline void group_wait()
{
    emulated_group_wait(pending);
}

template <int NT> static inline void group_pin(float (&)[NT][4])
{
}

struct EmulatedGroupLane {
    float *d;
    const uint32_t *a;
    uint32_t a_place, b;
};

template <bool TRANS, bool ADD, int NT>
static inline void emulated_group_mma(float (&d)[NT][4], const uint32_t *a, uint32_t a_place,
                                      uint32_t b)
{
    EmulatedGroupLane mine = {&d[0][0], a, a_place, b};
    emulated_warp(
        [](void *const *lanes) {
            EmulatedGroup product = {{}, {}, 0, 0, NT * 8, TRANS, ADD};
            for (int i = 0; i < EMULATED_WARP; i++) {
                const EmulatedGroupLane *lane = (const EmulatedGroupLane *)lanes[i];
                product.d[i] = lane->d;
                product.a[i] = lane->a;
                product.a_place = lane->a_place;
                product.b = lane->b;
            }
            emulated_group(product);
        },
        &mine);
}

template <bool TRANS, bool ADD, int NT>
static inline void group_mma(float (&d)[NT][4], const uint32_t (&a)[4], uint32_t b)
{
    emulated_group_mma<TRANS, ADD>(d, a, 0, b);
}

template <bool TRANS, bool ADD, int NT>
static inline void group_mma(float (&d)[NT][4], uint32_t a, uint32_t b)
{
    emulated_group_mma<TRANS, ADD>(d, nullptr, a, b);
}

#endif
