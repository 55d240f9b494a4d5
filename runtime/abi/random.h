/* random: the keyed draws behind dropout. A draw is a function of (seed, step, op's key, sample,
 * element) and of nothing else, so a replay, another micro-batching or another mesh gives the same
 * mask. 32-bit multiplies, xors and shifts only: it vectorises, and the code generator emits the
 * same instructions.
 *
 *   mix(x):          x ^= x >> 16; x *= 0x21f0aaad; x ^= x >> 15; x *= 0x735a2d97; x ^= x >> 15
 *   absorb(a, b, w): a' = mix(a ^ w); b' = mix(b + a')
 *   stream:          (a, b) = (0x243f6a88, 0x85a308d3), then absorb the halves, low first, of
 *                    seed, step, key, sample
 *   draw(a, b, e):   mix(mix(low(e) ^ a) + (b ^ high(e)))
 *
 * sample counts over the run: sample0 + micro_batch * batch + row of the batch. Element-wise
 * dropout: e is the element's index (row-major) within its sample. Attention: the stream absorbs
 * the head, then the query's index; e is the key's index. An element is kept when draw >=
 * threshold(p), and then multiplied by 1 / (1 - p). */
#ifndef RUNTIME_ABI_RANDOM_H
#define RUNTIME_ABI_RANDOM_H

#include <stdint.h>

#ifdef __CUDACC__
#define RT_RANDOM __host__ __device__ static inline
#else
#define RT_RANDOM static inline
#endif

typedef struct RtStream {
    uint32_t a, b;
} RtStream;

RT_RANDOM uint32_t rt_random_mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x21f0aaadu;
    x ^= x >> 15;
    x *= 0x735a2d97u;
    x ^= x >> 15;
    return x;
}

RT_RANDOM RtStream rt_random_absorb(RtStream stream, uint32_t word)
{
    stream.a = rt_random_mix(stream.a ^ word);
    stream.b = rt_random_mix(stream.b + stream.a);
    return stream;
}

RT_RANDOM RtStream rt_random_absorb64(RtStream stream, int64_t word)
{
    stream = rt_random_absorb(stream, (uint32_t)word);
    return rt_random_absorb(stream, (uint32_t)((uint64_t)word >> 32));
}

RT_RANDOM RtStream rt_random_stream(int64_t seed, int64_t step, int64_t key, int64_t sample)
{
    RtStream stream = {0x243f6a88u, 0x85a308d3u};
    stream = rt_random_absorb64(stream, seed);
    stream = rt_random_absorb64(stream, step);
    stream = rt_random_absorb64(stream, key);
    return rt_random_absorb64(stream, sample);
}

RT_RANDOM uint32_t rt_random_draw(RtStream stream, uint64_t element)
{
    return rt_random_mix(rt_random_mix((uint32_t)element ^ stream.a) +
                         (stream.b ^ (uint32_t)(element >> 32)));
}

/* p in [0, 1): the draws below it are dropped. */
RT_RANDOM uint32_t rt_random_threshold(double p)
{
    return (uint32_t)(p * 4294967296.0);
}

#endif
