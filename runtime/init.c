#include "runtime/init.h"

#include <math.h>

#include "base/dtype.h"
#include "base/map.h"
#include "runtime/weights_convert.h"

enum { CHUNK = 1 << 17, BLOCK = 512 };

uint64_t rt_random_bits(uint64_t stream, uint64_t i)
{
    /* splitmix64's output function, twice, over its own sequence */
    uint64_t z = stream + i * 0x9e3779b97f4a7c15u;
    for (int round = 0; round < 2; round++) {
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        z ^= z >> 31;
    }
    return z;
}

uint64_t rt_random_stream(uint64_t seed, const char *name)
{
    return map_hash(name, strlen(name), rt_random_bits(seed, 1));
}

/* Natural logarithm of a positive normal number by arithmetic alone, so that no library's choice of
 * code shows. */
static inline double plain_log(double x)
{
    static const double factors[] = {1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11,
                                     1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3,  1.0};
    uint64_t bits;
    memcpy(&bits, &x, 8);
    int32_t exponent = (int32_t)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffffu) | 0x3ff0000000000000u;
    memcpy(&x, &bits, 8);
    bool high = x > 1.4142135623730951;
    x = high ? x * 0.5 : x;
    exponent += high;
    double z = (x - 1) / (x + 1), z2 = z * z, sum = 0;
    for (int k = 0; k < 11; k++) /* 2 (z + z^3/3 + z^5/5 + ...), |z| < 0.172 */
        sum = sum * z2 + factors[k];
    return 2 * z * sum + (double)exponent * 0.69314718055994530942;
}

static inline double ratio(const double *top, const double *bottom, double x)
{
    double a = top[7], b = bottom[7];
    for (int i = 6; i >= 0; i--) {
        a = a * x + top[i];
        b = b * x + bottom[i];
    }
    return a / b;
}

static double half_open(uint64_t bits) /* in (-0.5, 0.5), exact */
{
    return ((double)(bits >> 12) + 0.5) * 0x1p-52 - 0.5;
}

static const double MOST_NEAR = 0.425;

/* Wichura 1988, algorithm AS 241 (PPND16): about 1e-16 relative. The part for |q| <= MOST_NEAR. */
static inline double near_normal(double q)
{
    static const double near_top[] = {3.3871328727963666080e0,  1.3314166789178437745e+2,
                                      1.9715909503065514427e+3, 1.3731693765509461125e+4,
                                      4.5921953931549871457e+4, 6.7265770927008700853e+4,
                                      3.3430575583588128105e+4, 2.5090809287301226727e+3};
    static const double near_bottom[] = {1.0,
                                         4.2313330701600911252e+1,
                                         6.8718700749205790830e+2,
                                         5.3941960214247511077e+3,
                                         2.1213794301586595867e+4,
                                         3.9307895800092710610e+4,
                                         2.8729085735721942674e+4,
                                         5.2264952788528545610e+3};
    return q * ratio(near_top, near_bottom, 0.180625 - q * q);
}

/* The part beyond: of r, for r <= MOST_MIDDLE. */
static inline double middle_normal(double r)
{
    static const double mid_top[] = {1.42343711074968357734e0,  4.63033784615654529590e0,
                                     5.76949722146069140550e0,  3.64784832476320460504e0,
                                     1.27045825245236838258e0,  2.41780725177450611770e-1,
                                     2.27238449892691845833e-2, 7.74545014278341407640e-4};
    static const double mid_bottom[] = {1.0,
                                        2.05319162663775882187e0,
                                        1.67638483018380384940e0,
                                        6.89767334985100004550e-1,
                                        1.48103976427480074590e-1,
                                        1.51986665636164571966e-2,
                                        5.47593808499534494600e-4,
                                        1.05075007164441684324e-9};
    return ratio(mid_top, mid_bottom, r - 1.6);
}

static double far_normal(double r)
{
    static const double far_top[] = {6.65790464350110377720e0,  5.46378491116411436990e0,
                                     1.78482653991729133580e0,  2.96560571828504891230e-1,
                                     2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                     2.71155556874348757815e-5, 2.01033439929228813265e-7};
    static const double far_bottom[] = {1.0,
                                        5.99832206555887937690e-1,
                                        1.36929880922735805310e-1,
                                        1.48753612908506148525e-2,
                                        7.86869131145613259100e-4,
                                        1.84631831751005468180e-5,
                                        1.42151175831644588870e-7,
                                        2.04426310338993978564e-15};
    return ratio(far_top, far_bottom, r - 5);
}

static const double MOST_MIDDLE = 5;

static inline double beyond(double q)
{
    return sqrt(-plain_log(0.5 - fabs(q)));
}

double rt_random_normal(uint64_t bits)
{
    double q = half_open(bits);
    if (fabs(q) <= MOST_NEAR)
        return near_normal(q);
    double r = beyond(q);
    return copysign(r <= MOST_MIDDLE ? middle_normal(r) : far_normal(r), q);
}

/* As rt_random_normal, many at once, in loops that a compiler runs several elements wide. */
__attribute__((target_clones("default", "avx2", "arch=skylake-avx512"))) static void
normals(uint64_t stream, uint64_t first, uint64_t n, double factor, double *values)
{
    double q[BLOCK], r[BLOCK], z[BLOCK];
    uint32_t at[BLOCK], n_beyond = 0;
    for (uint64_t i = 0; i < n; i++)
        q[i] = half_open(rt_random_bits(stream, first + i));
    for (uint64_t i = 0; i < n; i++)
        values[i] = factor * near_normal(q[i]);
    for (uint64_t i = 0; i < n; i++) {
        at[n_beyond] = (uint32_t)i;
        n_beyond += fabs(q[i]) > MOST_NEAR;
    }
    for (uint32_t i = 0; i < n_beyond; i++)
        r[i] = q[at[i]];
    for (uint32_t i = 0; i < n_beyond; i++)
        r[i] = beyond(r[i]);
    for (uint32_t i = 0; i < n_beyond; i++)
        z[i] = middle_normal(r[i]);
    for (uint32_t i = 0; i < n_beyond; i++)
        values[at[i]] =
            factor * copysign(r[i] <= MOST_MIDDLE ? z[i] : far_normal(r[i]), q[at[i]]);
}

typedef struct InitJob {
    const RtTensor *tensor; /* what is filled: of a master, the values of its weight */
    RtShare share;
    DType wide; /* of the master that rounds first; DTYPE_NONE: none does */
    unsigned char *to;
    uint64_t stream;
} InitJob;

static void fill_block(const InitJob *job, double *values, uint64_t first, uint64_t n)
{
    const RtTensor *t = job->tensor;
    double constant = t->init == RT_INIT_ONE ? 1 : t->init == RT_INIT_CONST ? t->init_value : 0;
    if (t->init == RT_INIT_NORMAL) {
        normals(job->stream, first, n, t->init_value, values);
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        values[i] = constant;
}

static void store_integers(const InitJob *job, const double *values, unsigned char *to, uint64_t n)
{
    uint32_t size = dtype_bytes(job->tensor->dtype);
    for (uint64_t i = 0; i < n; i++) {
        int64_t whole =
            (int64_t)values[i]; /* little-endian: the low bytes are the narrower integer */
        memcpy(to + i * size, &whole, size);
    }
}

/* Elements [first, first + n) of the whole, n at most BLOCK. */
static void fill_run(const InitJob *job, unsigned char *to, uint64_t first, uint64_t n)
{
    double values[BLOCK];
    unsigned char wide[BLOCK * 8];
    DType dtype = job->tensor->dtype;
    fill_block(job, values, first, n);
    if (!dtype_is_float(dtype)) {
        store_integers(job, values, to, n);
    } else if (job->wide != DTYPE_NONE) {
        rt_round(wide, job->wide, values, n);
        rt_convert(to, dtype, wide, job->wide, n);
    } else {
        rt_round(to, dtype, values, n);
    }
}

static void fill_chunk(void *context, uint64_t chunk)
{
    const InitJob *job = context;
    int64_t begin = (int64_t)chunk * CHUNK, n,
            end = begin + CHUNK < job->share.n ? begin + CHUNK : job->share.n;
    for (int64_t i = begin; i < end; i += n) {
        int64_t whole = rt_share_at(&job->share, i, &n);
        n = n < BLOCK ? n : BLOCK;
        n = n < end - i ? n : end - i;
        if (whole >= 0)
            fill_run(job, job->to + i * dtype_bytes(job->tensor->dtype), (uint64_t)whole,
                     (uint64_t)n);
    }
}

void rt_init_tensor(const RtTensors *tensors, unsigned char *arena, uint32_t index, uint64_t seed)
{
    const RtTensor *tensor = &tensors->at[index], *weight = &tensors->at[tensor->of];
    RtTensor filled = *weight;
    filled.dtype = tensor->dtype;
    uint32_t master = rt_tensor_of(tensors, tensor->of, PLAN_STATE_MASTER);
    InitJob job = {.tensor = &filled,
                   .share = rt_share(tensors, tensor, tensors->self),
                   .wide = master == UINT32_MAX || master == index ? DTYPE_NONE
                                                                   : tensors->at[master].dtype,
                   .stream = rt_random_stream(seed, weight->name)};
    if (!job.share.n)
        return;
    job.to = rt_tensor_at(tensors, tensor, arena) +
             job.share.at * (int64_t)dtype_bytes(tensor->dtype);
    rt_chunks_run((uint64_t)(job.share.n + CHUNK - 1) / CHUNK, fill_chunk, &job);
}

void rt_init_all(const RtTensors *tensors, unsigned char *arena, uint64_t seed)
{
    for (uint32_t i = 0; i < tensors->n; i++)
        if (rt_is_weight(&tensors->at[i]) || tensors->at[i].kind == PLAN_STATE_MASTER)
            rt_init_tensor(tensors, arena, i, seed);
}
