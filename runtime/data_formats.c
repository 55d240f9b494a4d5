#include "runtime/data_source.h"

enum { LLMC_HEADER_BYTES = 1024 };

/* llm.c's headers: 256 little-endian words, of which magic, version and the number of tokens are
 * used. */
static const struct {
    uint32_t magic, version, width;
} llmc_formats[] = {
    {20240520, 1, 2}, /* GPT-2 */
    {20240801, 7, 4}, /* Llama 3 */
};

static uint32_t word_at(const unsigned char *bytes, uint32_t i)
{
    uint32_t word;
    memcpy(&word, bytes + i * 4, 4);
    return word;
}

/* llm.c's format if its magic is there, else nanoGPT's: 16-bit tokens and nothing else. */
Status rt_tokens_read_bin(Session *s, RtTokens *tokens)
{
    uint32_t magic = tokens->map_bytes >= 4 ? word_at(tokens->map, 0) : 0;
    for (uint32_t k = 0; k < sizeof llmc_formats / sizeof *llmc_formats; k++) {
        if (magic != llmc_formats[k].magic)
            continue;
        if (tokens->map_bytes < LLMC_HEADER_BYTES)
            return rt_tokens_error(
                s, tokens,
                "has the magic number of llm.c's token files, but not all of its header");
        if (word_at(tokens->map, 1) != llmc_formats[k].version)
            return rt_tokens_error(s, tokens,
                                   arena_printf(s->arena,
                                                "header field `version` is %u; it must be %u",
                                                word_at(tokens->map, 1), llmc_formats[k].version));
        tokens->width = llmc_formats[k].width;
        tokens->first_byte = LLMC_HEADER_BYTES;
        tokens->n = word_at(tokens->map, 2);
        if (tokens->map_bytes - LLMC_HEADER_BYTES != tokens->n * tokens->width)
            return rt_tokens_error(
                s, tokens,
                arena_printf(s->arena, "header field `ntok` is %llu, but %llu bytes follow it",
                             (unsigned long long)tokens->n,
                             (unsigned long long)(tokens->map_bytes - LLMC_HEADER_BYTES)));
        return STATUS_OK;
    }
    if (tokens->map_bytes % 2)
        return rt_tokens_error(s, tokens, "has an odd number of bytes: no file of 16-bit tokens");
    tokens->width = 2;
    tokens->n = tokens->map_bytes / 2;
    return STATUS_OK;
}

/* What stands behind `'key':` in a .npy header, which ends in a NUL; NULL if the key is not there.
 */
static const char *npy_value(Session *s, const char *header, const char *key)
{
    const char *at = strstr(header, arena_printf(s->arena, "'%s':", key));
    if (!at)
        return NULL;
    at += strlen(key) + 3;
    while (*at == ' ')
        at++;
    return at;
}

/* A value up to where it ends: what closes a text or a list, or what begins the next. */
static const char *npy_value_text(Session *s, const char *at)
{
    const char *end = *at == '\'' ? strchr(at + 1, '\'') : *at == '[' ? strchr(at, ']') : NULL;
    size_t n = end ? (size_t)(end + 1 - at) : strcspn(at, ",}\n");
    return arena_strndup(s->arena, at, n < 40 ? n : 40);
}

static Status npy_dtype(Session *s, RtTokens *tokens, const char *descr)
{
    static const struct {
        const char *name;
        uint32_t width;
        bool is_signed;
    } dtypes[] = {{"'|u1'", 1, false}, {"'<u2'", 2, false}, {"'<u4'", 4, false},
                  {"'<i4'", 4, true},  {"'<u8'", 8, false}, {"'<i8'", 8, true}};
    for (uint32_t k = 0; descr && k < sizeof dtypes / sizeof *dtypes; k++) {
        if (strncmp(descr, dtypes[k].name, strlen(dtypes[k].name)))
            continue;
        tokens->width = dtypes[k].width;
        tokens->is_signed = dtypes[k].is_signed;
        return STATUS_OK;
    }
    return rt_tokens_error(s, tokens,
                           arena_printf(s->arena,
                                        "header field `descr` is %s; tokens are u1, u2, u4, i4, "
                                        "u8 or i8, little-endian",
                                        descr ? npy_value_text(s, descr) : "missing"));
}

/* `(n,)` or `(rows, length)`. */
static bool npy_shape(const char *at, uint64_t dim[2], uint32_t *out_rank)
{
    *out_rank = 0;
    if (!at || *at++ != '(')
        return false;
    while (*at != ')') {
        if (*at < '0' || *at > '9' || *out_rank == 2)
            return false;
        uint64_t size = 0;
        for (; *at >= '0' && *at <= '9'; at++)
            if (__builtin_mul_overflow(size, 10, &size) ||
                __builtin_add_overflow(size, (uint64_t)(*at - '0'), &size))
                return false;
        dim[(*out_rank)++] = size;
        while (*at == ',' || *at == ' ')
            at++;
    }
    return *out_rank > 0;
}

static Status npy_fields(Session *s, RtTokens *tokens, const char *header)
{
    uint64_t dim[2] = {0, 1}, bytes;
    uint32_t rank;
    const char *order = npy_value(s, header, "fortran_order");
    TRY(npy_dtype(s, tokens, npy_value(s, header, "descr")));
    if (!order || strncmp(order, "False", 5))
        return rt_tokens_error(s, tokens, "header field `fortran_order` must be False");
    if (!npy_shape(npy_value(s, header, "shape"), dim, &rank))
        return rt_tokens_error(s, tokens,
                               "header field `shape` must be (tokens,) or (rows, length)");
    bool overflow = __builtin_mul_overflow(dim[0], dim[1], &tokens->n) ||
                    __builtin_mul_overflow(tokens->n, tokens->width, &bytes);
    if (overflow || bytes != tokens->map_bytes - tokens->first_byte)
        return rt_tokens_error(
            s, tokens,
            arena_printf(s->arena, "header field `shape` does not make the %llu bytes of data",
                         (unsigned long long)(tokens->map_bytes - tokens->first_byte)));
    tokens->row_length = rank == 2 ? dim[1] : 0;
    return rank == 2 && !dim[1]
               ? rt_tokens_error(s, tokens, "header field `shape` has rows of no tokens")
               : STATUS_OK;
}

Status rt_tokens_read_npy(Session *s, RtTokens *tokens)
{
    const unsigned char *bytes = tokens->map;
    if (tokens->map_bytes < 12 || memcmp(bytes, "\x93NUMPY", 6))
        return rt_tokens_error(s, tokens, "is no NumPy file");
    if (bytes[6] < 1 || bytes[6] > 3)
        return rt_tokens_error(
            s, tokens, arena_printf(s->arena, "NumPy format version %u is not known", bytes[6]));
    uint64_t at = bytes[6] == 1 ? 10 : 12;
    uint64_t length =
        bytes[6] == 1 ? (uint64_t)bytes[8] | (uint64_t)bytes[9] << 8 : word_at(bytes, 2);
    if (length > tokens->map_bytes - at)
        return rt_tokens_error(s, tokens, "its header is longer than the file");
    tokens->first_byte = at + length;
    return npy_fields(s, tokens, arena_strndup(s->arena, (const char *)bytes + at, length));
}
