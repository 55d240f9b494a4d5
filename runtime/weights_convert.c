#include "runtime/weights_convert.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

static uint16_t load16(const void *from, uint64_t i)
{
    uint16_t bits;
    memcpy(&bits, (const unsigned char *)from + i * 2, 2);
    return bits;
}

static float load32(const void *from, uint64_t i)
{
    float value;
    memcpy(&value, (const unsigned char *)from + i * 4, 4);
    return value;
}

static double load64(const void *from, uint64_t i)
{
    double value;
    memcpy(&value, (const unsigned char *)from + i * 8, 8);
    return value;
}

static void store16(void *to, uint64_t i, uint16_t bits)
{
    memcpy((unsigned char *)to + i * 2, &bits, 2);
}

static void store32(void *to, uint64_t i, float value)
{
    memcpy((unsigned char *)to + i * 4, &value, 4);
}

static uint16_t f32_to_f16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477ff000u) /* 65520 and above */
        return (uint16_t)(sign | 0x7c00);
    if (magnitude <
        0x38800000u) { /* subnormal: steps of 2^-24; adding 2^23 rounds to whole steps */
        float steps = (value < 0 ? -value : value) * 16777216.0f + 8388608.0f;
        memcpy(&bits, &steps, 4);
        return (uint16_t)(sign | (bits & 0x7fff));
    }
    magnitude += 0xfff + (magnitude >> 13 & 1);
    return (uint16_t)(sign | ((magnitude - 0x38000000u) >> 13));
}

/* Rounds to odd: a second rounding, to 22 bits or fewer, then gives what one rounding would have
 * given. */
static float f64_to_f32_odd(double value)
{
    float near = (float)value;
    uint32_t bits;
    if ((double)near == value || value != value)
        return near;
    memcpy(&bits, &near, 4);
    if ((near < 0 ? -(double)near : near) > (value < 0 ? -value : value))
        bits--;
    bits |= 1;
    memcpy(&near, &bits, 4);
    return near;
}

static double real_at(const void *from, DType dtype, uint64_t i)
{
    switch (dtype) {
    case DTYPE_F64:
        return load64(from, i);
    case DTYPE_F32:
        return load32(from, i);
    case DTYPE_BF16:
        return bf16_to_f32(load16(from, i));
    default:
        return f16_to_f32(load16(from, i));
    }
}

static void round_one(void *to, DType dtype, uint64_t i, double value)
{
    switch (dtype) {
    case DTYPE_F64:
        memcpy((unsigned char *)to + i * 8, &value, 8);
        return;
    case DTYPE_F32:
        store32(to, i, (float)value);
        return;
    case DTYPE_BF16:
        store16(to, i, f32_to_bf16(f64_to_f32_odd(value)));
        return;
    default:
        store16(to, i, f32_to_f16(f64_to_f32_odd(value)));
        return;
    }
}

void rt_round(void *to, DType to_dtype, const double *from, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        round_one(to, to_dtype, i, from[i]);
}

void rt_convert(void *to, DType to_dtype, const void *from, DType from_dtype, uint64_t n)
{
    if (to_dtype == from_dtype) {
        memcpy(to, from, n * dtype_bytes(to_dtype));
    } else if (to_dtype == DTYPE_F32 && from_dtype == DTYPE_BF16) {
        for (uint64_t i = 0; i < n; i++)
            store32(to, i, bf16_to_f32(load16(from, i)));
    } else if (to_dtype == DTYPE_BF16 && from_dtype == DTYPE_F32) {
        for (uint64_t i = 0; i < n; i++)
            store16(to, i, f32_to_bf16(load32(from, i)));
    } else {
        for (uint64_t i = 0; i < n; i++)
            round_one(to, to_dtype, i, real_at(from, from_dtype, i));
    }
}

typedef struct Chunks {
    void (*fn)(void *, uint64_t);
    void *context;
    uint64_t n;
    _Atomic uint64_t next;
} Chunks;

static void *take_chunks(void *argument)
{
    Chunks *chunks = argument;
    for (uint64_t chunk; (chunk = atomic_fetch_add(&chunks->next, 1)) < chunks->n;)
        chunks->fn(chunks->context, chunk);
    return NULL;
}

/* Threads that cannot be started are done without: the caller takes chunks too. */
void rt_chunks_run(uint64_t n_chunks, void (*fn)(void *context, uint64_t chunk), void *context)
{
    enum { MOST = 32 };
    Chunks chunks = {.fn = fn, .context = context, .n = n_chunks};
    pthread_t threads[MOST];
    cpu_set_t processors;
    int n = sched_getaffinity(0, sizeof processors, &processors) ? 1 : CPU_COUNT(&processors),
        started = 0;
    uint64_t want = (uint64_t)n < n_chunks ? (uint64_t)n : n_chunks;
    while (started < MOST && (uint64_t)started + 1 < want &&
           !pthread_create(&threads[started], NULL, take_chunks, &chunks))
        started++;
    take_chunks(&chunks);
    while (started)
        pthread_join(threads[--started], NULL);
}
