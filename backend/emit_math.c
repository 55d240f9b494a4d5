/* exp, tanh and erf on scalars and vectors alike, from exactly rounded operations only, so that
 * every target gives the same bits. In f32 within 2 units in the last place, in f64 within about
 * 1e-15. Coefficients are Chebyshev fits. */
#include "backend/emit_llvm.h"

typedef struct Math { /* arithmetic on one type */
    EmitCode *c;
    LLVMTypeRef type, bits; /* the reals, and integers of the same width */
    bool f64;
} Math;

static Math math_of(EmitCode *c, LLVMValueRef x)
{
    Math m = {.c = c, .type = LLVMTypeOf(x)};
    bool vector = LLVMGetTypeKind(m.type) == LLVMVectorTypeKind;
    LLVMTypeRef scalar = vector ? LLVMGetElementType(m.type) : m.type;
    m.f64 = LLVMGetTypeKind(scalar) == LLVMDoubleTypeKind;
    uint32_t lanes = vector ? LLVMGetVectorSize(m.type) : 1;
    m.bits = emit_type(c, m.f64 ? ELEM_I64 : ELEM_I32, lanes);
    return m;
}

static LLVMValueRef real(const Math *m, double value)
{
    return emit_real(m->type, value);
}

/* Coefficients from the highest power down. */
static LLVMValueRef polynomial(const Math *m, LLVMValueRef x, const double *coefficient, uint32_t n)
{
    LLVMValueRef sum = real(m, coefficient[0]);
    for (uint32_t i = 1; i < n; i++)
        sum = emit_fma(m->c, sum, x, real(m, coefficient[i]));
    return sum;
}
#define POLYNOMIAL(m, x, table) polynomial((m), (x), (table), sizeof(table) / sizeof *(table))

static LLVMValueRef magnitude(const Math *m, LLVMValueRef x)
{
    return emit_intrinsic(m->c, "llvm.fabs", m->type, &x, 1);
}

static LLVMValueRef with_sign_of(const Math *m, LLVMValueRef x, LLVMValueRef sign)
{
    return emit_intrinsic(m->c, "llvm.copysign", m->type, (LLVMValueRef[]){x, sign}, 2);
}

/* x, but not above (below) the bound; NaN stays NaN. */
static LLVMValueRef at_most(const Math *m, LLVMValueRef x, double bound)
{
    LLVMValueRef beyond = LLVMBuildFCmp(m->c->b, LLVMRealOGT, x, real(m, bound), "");
    return LLVMBuildSelect(m->c->b, beyond, real(m, bound), x, "");
}

static LLVMValueRef at_least(const Math *m, LLVMValueRef x, double bound)
{
    LLVMValueRef beyond = LLVMBuildFCmp(m->c->b, LLVMRealOLT, x, real(m, bound), "");
    return LLVMBuildSelect(m->c->b, beyond, real(m, bound), x, "");
}

static double shifter(const Math *m) /* 1.5 * 2^(mantissa bits) */
{
    return m->f64 ? 6755399441055744.0 : 12582912.0;
}

/* 2^k for an integer k within the normal exponents. */
static LLVMValueRef power_of_two(const Math *m, LLVMValueRef k)
{
    LLVMBuilderRef b = m->c->b;
    LLVMValueRef biased = LLVMBuildAdd(b, k, emit_int(m->bits, m->f64 ? 1023 : 127), "");
    biased = LLVMBuildShl(b, biased, emit_int(m->bits, m->f64 ? 52 : 23), "");
    return LLVMBuildBitCast(b, biased, m->type, "");
}

/* (e^r - 1 - r) / r^2 on |r| <= ln 2 / 2 */
static const double exp_f32[] = {0.00139262896287164982, 0.00836326394221902076,
                                 0.0416665539794328962, 0.166665764791617535, 0.5};
static const double exp_f64[] = {2.09147947658110258e-9,
                                 2.51053679593579168e-8,
                                 2.75572733837361226e-7,
                                 2.75572550369923873e-6,
                                 0.0000248015873257525184,
                                 0.000198412698751073837,
                                 0.00138888888888836896,
                                 0.00833333333332605299,
                                 0.0416666666666666698,
                                 0.166666666666666711,
                                 0.5};

/* x = k ln 2 + r: gives e^r, within [0.7, 1.42], and k where adding 1.5 * 2^(mantissa bits) rounds
 * to an integer and leaves it: in the low bits. */
static LLVMValueRef exp_of_rest(const Math *m, LLVMValueRef x, LLVMValueRef *out_shifted)
{
    LLVMBuilderRef b = m->c->b;
    double ln2_high = m->f64 ? 0x1.62e42fefa38p-1 : 0x1.62e4p-1;
    double ln2_low = m->f64 ? 0x1.ef35793c7673p-45 : 0x1.7f7d1cf79abcap-20;
    LLVMValueRef shift = real(m, shifter(m));
    LLVMValueRef shifted = emit_fma(m->c, x, real(m, 1.4426950408889634074), shift);
    LLVMValueRef whole = LLVMBuildFSub(b, shifted, shift, "");
    LLVMValueRef r = emit_fma(m->c, whole, real(m, -ln2_high), x);
    r = emit_fma(m->c, whole, real(m, -ln2_low), r);
    LLVMValueRef p = m->f64 ? POLYNOMIAL(m, r, exp_f64) : POLYNOMIAL(m, r, exp_f32);
    LLVMValueRef y = emit_fma(m->c, LLVMBuildFMul(b, r, r, ""), p, r);
    y = LLVMBuildFAdd(b, y, real(m, 1), "");
    *out_shifted = LLVMBuildBitCast(b, shifted, m->bits, "");
    return y;
}

/* e^x = 2^k e^r; 2^k in two factors, so that denormal results round once. */
LLVMValueRef emit_exp(EmitCode *c, LLVMValueRef x)
{
    Math m = math_of(c, x);
    LLVMBuilderRef b = c->b;
    LLVMValueRef shifted;
    x = at_least(&m, at_most(&m, x, m.f64 ? 710 : 89), m.f64 ? -746 : -104);
    LLVMValueRef y = exp_of_rest(&m, x, &shifted);
    LLVMValueRef k = LLVMBuildSub(b, shifted, LLVMConstBitCast(real(&m, shifter(&m)), m.bits), "");
    LLVMValueRef half = LLVMBuildAShr(b, k, emit_int(m.bits, 1), "");
    y = LLVMBuildFMul(b, y, power_of_two(&m, half), "");
    return LLVMBuildFMul(b, y, power_of_two(&m, LLVMBuildSub(b, k, half, "")), "");
}

/* |k| <= 124, so that e^r and the result are normal and the product is exact: k is added to the
 * exponent. The shift leaves nothing of what k stands on, whose low 9 bits are zero. */
LLVMValueRef emit_exp_normal(EmitCode *c, LLVMValueRef x)
{
    Math m = math_of(c, x);
    LLVMBuilderRef b = c->b;
    LLVMValueRef shifted, y = exp_of_rest(&m, x, &shifted);
    LLVMValueRef k = LLVMBuildShl(b, shifted, emit_int(m.bits, 23), "");
    LLVMValueRef bits = LLVMBuildAdd(b, LLVMBuildBitCast(b, y, m.bits, ""), k, "");
    return LLVMBuildBitCast(b, bits, m.type, "");
}

LLVMValueRef emit_sigmoid(EmitCode *c, LLVMValueRef x)
{
    Math m = math_of(c, x);
    LLVMValueRef e = emit_exp(c, LLVMBuildFMul(c->b, real(&m, -1), x, ""));
    return LLVMBuildFDiv(c->b, real(&m, 1), LLVMBuildFAdd(c->b, real(&m, 1), e, ""), "");
}

/* (tanh(x) / x - 1) / x^2 over x^2, |x| <= 0.625 */
static const double tanh_f32[] = {0.00229118546434374275, -0.00834256829393726449,
                                  0.0217684977403317592,  -0.0539592078135331361,
                                  0.133333033381539448,   -0.333333331706967705};
static const double tanh_f64[] = {
    6.47634504357586533e-6,   -0.0000311829705906857097, 0.0000925550979325265869,
    -0.000237582625786486581, 0.000589658175450124968,   -0.00145577492013038257,
    0.00359212168874998472,   -0.00886323509832301532,   0.021869488518783123,
    -0.0539682539678917278,   0.133333333333330368,      -0.333333333333333329};

LLVMValueRef emit_tanh(EmitCode *c, LLVMValueRef x)
{
    Math m = math_of(c, x);
    LLVMBuilderRef b = c->b;
    LLVMValueRef ax = magnitude(&m, x), xx = LLVMBuildFMul(b, x, x, "");
    LLVMValueRef p = m.f64 ? POLYNOMIAL(&m, xx, tanh_f64) : POLYNOMIAL(&m, xx, tanh_f32);
    LLVMValueRef near = emit_fma(c, LLVMBuildFMul(b, xx, x, ""), p, x);
    /* tanh |x| = 1 - 2 / (1 + e^(2|x|)) */
    LLVMValueRef e = emit_exp(c, LLVMBuildFAdd(b, ax, ax, ""));
    LLVMValueRef rest = LLVMBuildFDiv(b, real(&m, 2), LLVMBuildFAdd(b, e, real(&m, 1), ""), "");
    LLVMValueRef far = LLVMBuildFSub(b, real(&m, 1), rest, "");
    LLVMValueRef is_far = LLVMBuildFCmp(b, LLVMRealOGE, ax, real(&m, 0.625), "");
    return with_sign_of(&m, LLVMBuildSelect(b, is_far, far, near, ""), x);
}

/* erf(x) / x - 1 over x^2, |x| <= 1 */
static const double erf_f32[] = {0.0000787587506268548834, -0.000801686428716586953,
                                 0.00518908742343397399,   -0.0268542120106264124,
                                 0.112835947151602177,     -0.37612626666720331,
                                 0.128379165848350946};
static const double erf_f64[] = {
    -4.23094582429533782e-12,  8.70904512905310669e-11, -1.21645600572834501e-9,
    1.4792401209404813e-8,     -1.63646421581676153e-7, 1.64620454414684189e-6,
    -0.0000149256475675193321, 0.000120553329028887354, -0.00085483270219348296,
    0.00522397762542329831,    -0.0268661706451298408,  0.112837916709551202,
    -0.376126389031837524,     0.128379167095512574};
/* -log(erfc(x)): over x in [1, 4], and over (x - 3.5) / 2.5 for x in [1, 6] */
static const double erfc_f32[] = {
    -1.63715141459364356e-6, 0.0000460580426891897792, -0.000596805625660779706,
    0.00475959629326626464,  -0.0264211360056638967,   0.110080082948820247,
    0.631826051559163014,    1.13023343484199403,      -0.000320138049677698837};
static const double erfc_f64[] = {
    7.1596774245395752e-9,    -1.80193472575838654e-8,   -4.23999824309261508e-9,
    3.76304010737294533e-8,   -2.00375114308128216e-8,   7.64411331566817956e-8,
    -3.90180391702755535e-7,  9.67831163943711781e-7,    -1.91424749726789288e-6,
    3.38799065110362707e-6,   -4.56748228287393029e-6,   1.49175926868424288e-6,
    0.0000184749350133494131, -0.0000909048170772076247, 0.000307819490051535243,
    -0.000893575902216764975, 0.00237399728718577836,    -0.00595370454670730062,
    0.0143845483300340557,    -0.034128411075984803,     0.0816509097178122078,
    6.04220659213885989,      18.1652489709129772,       14.112437402148174};

LLVMValueRef emit_erf(EmitCode *c, LLVMValueRef x)
{
    Math m = math_of(c, x);
    LLVMBuilderRef b = c->b;
    LLVMValueRef ax = magnitude(&m, x), xx = LLVMBuildFMul(b, x, x, "");
    LLVMValueRef p = m.f64 ? POLYNOMIAL(&m, xx, erf_f64) : POLYNOMIAL(&m, xx, erf_f32);
    LLVMValueRef near = emit_fma(c, x, p, x);
    /* erf |x| = 1 - e^(log erfc |x|); from 4 (6) on it is 1 */
    LLVMValueRef t = at_most(&m, ax, m.f64 ? 6 : 4);
    if (m.f64)
        t = emit_fma(c, t, real(&m, 0.4), real(&m, -1.4));
    LLVMValueRef q = m.f64 ? POLYNOMIAL(&m, t, erfc_f64) : POLYNOMIAL(&m, t, erfc_f32);
    LLVMValueRef rest = emit_exp(c, LLVMBuildFNeg(b, q, ""));
    LLVMValueRef far = LLVMBuildFSub(b, real(&m, 1), rest, "");
    LLVMValueRef is_far = LLVMBuildFCmp(b, LLVMRealOGE, ax, real(&m, 1), "");
    return with_sign_of(&m, LLVMBuildSelect(b, is_far, far, near, ""), x);
}
