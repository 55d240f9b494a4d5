/* dtype: element types and the host's conversions between them. */
#ifndef BASE_DTYPE_H
#define BASE_DTYPE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* enumerator, name in the text form, name in safetensors, bytes, is float */
#define DTYPES(X)                       \
    X(F64, "f64", "F64", 8, true)       \
    X(F32, "f32", "F32", 4, true)       \
    X(BF16, "bf16", "BF16", 2, true)    \
    X(F16, "f16", "F16", 2, true)       \
    X(I64, "i64", "I64", 8, false)      \
    X(I32, "i32", "I32", 4, false)      \
    X(U8, "u8", "U8", 1, false)         \
    X(BOOL, "bool", "BOOL", 1, false)

typedef enum DType {
#define DTYPE_ENUM(id, name, file_name, bytes, is_float) DTYPE_##id,
    DTYPES(DTYPE_ENUM)
#undef DTYPE_ENUM
        DTYPE_COUNT,
    DTYPE_NONE = DTYPE_COUNT
} DType;

const char *dtype_name(DType dtype);
const char *dtype_file_name(DType dtype); /* as safetensors headers spell it */
uint32_t dtype_bytes(DType dtype);
bool dtype_is_float(DType dtype);
/* text-form name, or torch's (`bfloat16`, `torch.float32`) */
DType dtype_parse(const char *name);

static inline float bf16_to_f32(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
}

/* Round to nearest, ties to even; NaN stays NaN (quiet). */
static inline uint16_t f32_to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((bits >> 16) | 0x40);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

float f16_to_f32(uint16_t bits);

#endif
