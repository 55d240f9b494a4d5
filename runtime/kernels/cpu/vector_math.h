/* vector_math: exp and tanh in f32 as plain formulas, so that loops over them vectorise. */
#ifndef RUNTIME_KERNELS_CPU_VECTOR_MATH_H
#define RUNTIME_KERNELS_CPU_VECTOR_MATH_H

#include <stdint.h>
#include <string.h>

static inline float rt_float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static inline uint32_t rt_bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

/* Within 2 ulp; below -87 it is 0, above 88 it stays e^88. NaN stays NaN. */
static inline float rt_exp_f32(float x)
{
    const float magic =
        12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer, in the low bits */
    float c = x < -87.0f ? -87.0f : x;
    c = c > 88.0f ? 88.0f : c;
    float t = __builtin_fmaf(c, 1.44269504088896341f, magic);
    float n = t - magic;
    float r = __builtin_fmaf(n, -0.693359375f, c);
    r = __builtin_fmaf(n, 2.12194440e-4f, r);
    float p = 1.9875691500e-4f;
    p = __builtin_fmaf(p, r, 1.3981999507e-3f);
    p = __builtin_fmaf(p, r, 8.3334519073e-3f);
    p = __builtin_fmaf(p, r, 4.1665795894e-2f);
    p = __builtin_fmaf(p, r, 1.6666665459e-1f);
    p = __builtin_fmaf(p, r, 5.0000001201e-1f);
    p = __builtin_fmaf(p, r * r, r) + 1.0f;
    float power = rt_float_of_bits((rt_bits_of_float(t) << 23) + 0x3f800000u);
    float y = p * power;
    return x < -87.0f ? 0.0f : y;
}

/* Within 2 ulp: a polynomial near zero, 1 - 2 / (e^2|x| + 1) elsewhere. */
static inline float rt_tanh_f32(float x)
{
    float a = __builtin_fabsf(x), z = x * x;
    float p = -5.70498872745e-3f;
    p = __builtin_fmaf(p, z, 2.06390887954e-2f);
    p = __builtin_fmaf(p, z, -5.37397155531e-2f);
    p = __builtin_fmaf(p, z, 1.33314422036e-1f);
    p = __builtin_fmaf(p, z, -3.33332819422e-1f);
    float small = __builtin_fmaf(p * z, x, x);
    float large = 1.0f - 2.0f / (rt_exp_f32(a + a) + 1.0f);
    large = __builtin_copysignf(large, x);
    return a < 0.625f ? small : large;
}

#endif
