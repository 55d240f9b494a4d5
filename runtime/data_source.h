/* data_source: what the kinds of data have in common: a function that writes one sample's row. */
#ifndef RUNTIME_DATA_SOURCE_H
#define RUNTIME_DATA_SOURCE_H

#include "runtime/data.h"
#include "runtime/safetensors.h"

#define RT_INPUTS(X) X(input_ids) X(targets) X(positions) X(segments) X(keep)

typedef enum RtInput {
#define RT_INPUT_ENUM(name) RT_INPUT_##name,
    RT_INPUTS(RT_INPUT_ENUM)
#undef RT_INPUT_ENUM
        RT_INPUT_COUNT
} RtInput;

extern const char *const rt_input_names[RT_INPUT_COUNT];

typedef struct RtTokens { /* a mapped file of whole numbers */
    const char *path;
    const unsigned char *map;
    uint64_t map_bytes, first_byte, n;
    uint32_t width; /* bytes of a token: 1, 2, 4, 8 */
    bool is_signed;
    uint64_t row_length; /* 0: one stream; else samples are rows of this length */
} RtTokens;

struct RtData {
    Session *s;
    const RtPlan *plan;
    RtDataOptions options;
    const PlanInput *input[RT_INPUT_COUNT]; /* NULL: the model does not read it */
    int64_t limit[RT_INPUT_COUNT];          /* values are below it; INT64_MAX: not known */
    int64_t tokens_limit;                   /* of what is both an id and a target */
    int32_t ignore;                         /* what an ignored target is in the arena, */
    int64_t ignored_label;                  /* and in a batch file */
    int64_t seq, rows;                      /* rows of one call, */
    int64_t all_rows, first_row;            /* and of all ranks', among which they begin here */
    uint64_t position, samples;             /* samples: in one pass; 0: endless */
    int64_t n_targets;
    int32_t *batch[RT_INPUT_COUNT]; /* batch file: [samples, seq] each, or NULL */
    RtTokens tokens;
    /* Writes sample `sample` to the rows that are not NULL; input_ids and targets must be written,
     * the others come filled with their defaults. */
    Status (*row)(RtData *data, uint64_t sample, int32_t *const rows[RT_INPUT_COUNT]);
};

bool rt_path_ends(const char *path, const char *end);

Status rt_data_open_batch(RtData *data, const char *path);
Status rt_data_open_tokens(RtData *data, const char *path);
void rt_data_close_tokens(RtData *data);

/* Fills data->tokens from the mapped file's header. */
Status rt_tokens_read_bin(Session *s, RtTokens *tokens);
Status rt_tokens_read_npy(Session *s, RtTokens *tokens);
Status rt_tokens_error(Session *s, const RtTokens *tokens, const char *what);

#endif
