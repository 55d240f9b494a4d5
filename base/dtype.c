#include "base/dtype.h"

#include <math.h>

static const struct {
    const char *name, *file_name;
    uint32_t bytes;
    bool is_float;
} dtypes[] = {
#define DTYPE_ROW(id, name, file_name, bytes, is_float) {name, file_name, bytes, is_float},
    DTYPES(DTYPE_ROW)
#undef DTYPE_ROW
};

const char *dtype_name(DType dtype)
{
    return dtype < DTYPE_COUNT ? dtypes[dtype].name : "none";
}

const char *dtype_file_name(DType dtype)
{
    return dtype < DTYPE_COUNT ? dtypes[dtype].file_name : "none";
}

uint32_t dtype_bytes(DType dtype)
{
    return dtype < DTYPE_COUNT ? dtypes[dtype].bytes : 0;
}

bool dtype_is_float(DType dtype)
{
    return dtype < DTYPE_COUNT && dtypes[dtype].is_float;
}

DType dtype_parse(const char *name)
{
    static const struct {
        const char *name;
        DType dtype;
    } torch_names[] = {
        {"float64", DTYPE_F64}, {"double", DTYPE_F64},    {"float32", DTYPE_F32},
        {"float", DTYPE_F32},   {"bfloat16", DTYPE_BF16}, {"float16", DTYPE_F16},
        {"half", DTYPE_F16},
    };
    if (!strncmp(name, "torch.", 6))
        name += 6;
    for (unsigned i = 0; i < DTYPE_COUNT; i++)
        if (!strcmp(name, dtypes[i].name))
            return (DType)i;
    for (unsigned i = 0; i < sizeof torch_names / sizeof *torch_names; i++)
        if (!strcmp(name, torch_names[i].name))
            return torch_names[i].dtype;
    return DTYPE_NONE;
}

float f16_to_f32(uint16_t bits)
{
    uint32_t exponent = (bits >> 10) & 31, mantissa = bits & 1023;
    float value = exponent == 31 ? (mantissa ? NAN : INFINITY)
                  : exponent     ? ldexpf((float)(mantissa + 1024), (int)exponent - 25)
                                 : ldexpf((float)mantissa, -24);
    return bits & 0x8000 ? -value : value;
}
