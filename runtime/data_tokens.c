#include "runtime/data_source.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/diag.h"

Status rt_tokens_error(Session *s, const RtTokens *tokens, const char *what)
{
    diag(s, rt_file_span(s, tokens->path), data_file, what);
    return STATUS_USER;
}

static int64_t token_at(const RtTokens *tokens, uint64_t i)
{
    const unsigned char *at = tokens->map + tokens->first_byte + i * tokens->width;
    uint64_t bits = 0;
    memcpy(&bits, at, tokens->width); /* little-endian */
    if (tokens->is_signed && tokens->width < 8 && bits >> (tokens->width * 8 - 1))
        bits -= (uint64_t)1 << (tokens->width * 8);
    return (int64_t)bits;
}

static Status bad_token(const RtData *data, uint64_t i, int64_t token)
{
    diag(data->s, rt_file_span(data->s, data->tokens.path), data_token, (unsigned long long)i,
         (long long)token, (long long)data->tokens_limit);
    return STATUS_USER;
}

/* Tokens first .. first + n; the last is a target only. Rows of seq tokens leave their last
 * position ignored. */
static Status token_row(RtData *data, uint64_t sample, int32_t *const rows[RT_INPUT_COUNT])
{
    const RtTokens *tokens = &data->tokens;
    uint64_t seq = (uint64_t)data->seq,
             first = sample * (tokens->row_length ? tokens->row_length : seq);
    uint64_t n = tokens->row_length ? tokens->row_length : seq + 1;
    for (uint64_t t = 0; t < n; t++) {
        int64_t token = token_at(tokens, first + t);
        if (token < 0 || token >= data->tokens_limit)
            return bad_token(data, first + t, token);
        if (t < seq)
            rows[RT_INPUT_input_ids][t] = (int32_t)token;
        if (t)
            rows[RT_INPUT_targets][t - 1] = (int32_t)token;
    }
    return STATUS_OK;
}

static Status map_file(Session *s, const char *path, RtTokens *out_tokens)
{
    struct stat info;
    *out_tokens = (RtTokens){.path = sym(s, path)};
    const char *fault = rt_file_fault(path); /* to open a pipe would wait for its other end */
    int fd = fault ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info)) {
        diag(s, no_span, file_open, path, fault ? fault : strerror(errno));
        if (fd >= 0)
            close(fd);
        return STATUS_ENV;
    }
    void *map =
        info.st_size > 0 ? mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    int error = errno;
    close(fd);
    if (map == MAP_FAILED) {
        diag(s, no_span, file_read, path, strerror(error));
        return STATUS_ENV;
    }
    out_tokens->map = map;
    out_tokens->map_bytes = map ? (uint64_t)info.st_size : 0;
    return STATUS_OK;
}

/* Text is read as bytes; a NUL in its beginning says that it is no text. */
static Status read_text(RtData *data)
{
    RtTokens *tokens = &data->tokens;
    Session *s = data->s;
    if (tokens->map && memchr(tokens->map, 0, tokens->map_bytes < 4096 ? tokens->map_bytes : 4096))
        return rt_tokens_error(s, tokens,
                               "is neither .bin nor .npy, and no text: it has NUL bytes");
    if (data->tokens_limit < 256)
        return rt_tokens_error(
            s, tokens,
            arena_printf(s->arena,
                         "is text, read as bytes, which need a vocabulary of 256; "
                         "the model's has %lld",
                         (long long)data->tokens_limit));
    tokens->width = 1;
    tokens->n = tokens->map_bytes;
    return STATUS_OK;
}

static Status read_header(RtData *data)
{
    RtTokens *tokens = &data->tokens;
    if (rt_path_ends(tokens->path, ".npy") ||
        (tokens->map_bytes >= 6 && !memcmp(tokens->map, "\x93NUMPY", 6)))
        return rt_tokens_read_npy(data->s, tokens);
    if (rt_path_ends(tokens->path, ".bin"))
        return rt_tokens_read_bin(data->s, tokens);
    return read_text(data);
}

static Status count_samples(RtData *data)
{
    RtTokens *tokens = &data->tokens;
    Session *s = data->s;
    uint64_t seq = (uint64_t)data->seq;
    if (tokens->row_length && tokens->row_length != seq && tokens->row_length != seq + 1)
        return rt_tokens_error(
            s, tokens,
            arena_printf(s->arena,
                         "has rows of %llu tokens; the plan was built for seq %llu, so that "
                         "rows of %llu or %llu can be read",
                         (unsigned long long)tokens->row_length, (unsigned long long)seq,
                         (unsigned long long)seq, (unsigned long long)seq + 1));
    data->samples = tokens->row_length ? tokens->n / tokens->row_length
                    : tokens->n        ? (tokens->n - 1) / seq
                                       : 0;
    if (!data->samples)
        return rt_tokens_error(s, tokens,
                               arena_printf(s->arena,
                                            "has %llu tokens; one sample of seq %llu needs %llu",
                                            (unsigned long long)tokens->n, (unsigned long long)seq,
                                            (unsigned long long)seq + 1));
    return STATUS_OK;
}

Status rt_data_open_tokens(RtData *data, const char *path)
{
    TRY(map_file(data->s, path, &data->tokens));
    TRY(read_header(data));
    TRY(count_samples(data));
    if (data->tokens_limit > (int64_t)INT32_MAX + 1)
        data->tokens_limit = (int64_t)INT32_MAX + 1;
    data->row = token_row;
    return STATUS_OK;
}

void rt_data_close_tokens(RtData *data)
{
    if (data->tokens.map)
        munmap((void *)(uintptr_t)data->tokens.map, data->tokens.map_bytes);
    data->tokens.map = NULL;
}
