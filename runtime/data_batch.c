#include "runtime/data_source.h"

#include "base/diag.h"

/* Names that an input has in a file; the second is Hugging Face's. `labels` are targets that are
 * not shifted yet. */
static const char *const file_names[RT_INPUT_COUNT][2] = {
    [RT_INPUT_input_ids] = {"input_ids", NULL},
    [RT_INPUT_targets] = {"targets", "labels"},
    [RT_INPUT_positions] = {"positions", "position_ids"},
    [RT_INPUT_segments] = {"segments", NULL},
    [RT_INPUT_keep] = {"keep", "attention_mask"},
};

typedef struct BatchFile {
    RtData *data;
    RtTensorFile file;
    int64_t rows;
    const RtFileTensor *tensor[RT_INPUT_COUNT];
    bool shift; /* targets come from `labels` */
} BatchFile;

static Status tensor_error(BatchFile *b, const RtFileTensor *tensor, const char *what)
{
    diag(b->data->s, rt_file_span(b->data->s, tensor->path), batch_tensor, tensor->name, what);
    return STATUS_USER;
}

static Status file_error(BatchFile *b, const char *what)
{
    diag(b->data->s, rt_file_span(b->data->s, b->file.path), batch_file, what);
    return STATUS_USER;
}

static Status find_tensors(BatchFile *b)
{
    Session *s = b->data->s;
    uint32_t found = 0;
    const char *unread = NULL;
    for (uint32_t k = 0; k < RT_INPUT_COUNT; k++) {
        const RtFileTensor *first = rt_tensors_find(s, &b->file, file_names[k][0]);
        const RtFileTensor *second =
            file_names[k][1] ? rt_tensors_find(s, &b->file, file_names[k][1]) : NULL;
        if (first && second)
            return file_error(
                b, arena_printf(s->arena, "has both `%s` and `%s`", first->name, second->name));
        b->tensor[k] = first ? first : second;
        found += b->tensor[k] != NULL;
        if (k == RT_INPUT_targets)
            b->shift = second != NULL;
    }
    if (!b->tensor[RT_INPUT_input_ids])
        return file_error(b, "has no tensor `input_ids`");
    if (!b->tensor[RT_INPUT_targets])
        return file_error(
            b, "has neither `labels` (shifted when loaded) nor `targets` (taken as they are)");
    for (uint32_t i = 0; found != b->file.n_tensors && i < b->file.n_tensors; i++) {
        const RtFileTensor *tensor = &b->file.tensors[i];
        bool read = false;
        for (uint32_t k = 0; k < RT_INPUT_COUNT; k++)
            read |= tensor == b->tensor[k];
        if (!read)
            unread = arena_printf(s->arena, "%s%s`%s`", unread ? unread : "", unread ? ", " : "",
                                  tensor->name);
    }
    if (unread)
        diag(s, rt_file_span(s, b->file.path), batch_unread, unread);
    return STATUS_OK;
}

static Status check_shape(BatchFile *b, const RtFileTensor *tensor, RtInput k)
{
    RtData *data = b->data;
    Arena *arena = data->s->arena;
    const char *shape = rt_shape_text(arena, tensor->rank, tensor->dim);
    bool small = tensor->dtype == DTYPE_U8 || tensor->dtype == DTYPE_BOOL;
    if (tensor->dtype != DTYPE_I64 && tensor->dtype != DTYPE_I32 && !(small && k == RT_INPUT_keep))
        return tensor_error(
            b, tensor,
            arena_printf(arena, "dtype is %s; it must be I64 or I32", tensor->dtype_name));
    if (tensor->rank != 2)
        return tensor_error(b, tensor,
                            arena_printf(arena, "shape is %s; it must be [rows, seq]", shape));
    if (tensor->dim[1] != data->seq)
        return tensor_error(b, tensor,
                            arena_printf(arena, "shape is %s, but the plan was built for seq %lld",
                                         shape, (long long)data->seq));
    if (tensor->dim[0] != b->rows)
        return tensor_error(b, tensor,
                            arena_printf(arena, "shape is %s, but `input_ids` has %lld rows", shape,
                                         (long long)b->rows));
    return STATUS_OK;
}

static Status check_rows(BatchFile *b)
{
    const RtFileTensor *ids = b->tensor[RT_INPUT_input_ids];
    const PlanHeader *header = b->data->plan->header;
    b->rows = ids->rank ? ids->dim[0] : 0;
    for (uint32_t k = 0; k < RT_INPUT_COUNT; k++)
        if (b->tensor[k])
            TRY(check_shape(b, b->tensor[k], (RtInput)k));
    if (!b->data->options.eval && b->rows != b->data->all_rows)
        return tensor_error(
            b, ids,
            arena_printf(b->data->s->arena,
                         "has %lld rows, but a step takes %lld: %lld micro-batches of %lld%s",
                         (long long)b->rows, (long long)b->data->all_rows,
                         (long long)header->micro_batches, (long long)header->batch,
                         b->data->all_rows > b->data->rows ? " on each rank" : ""));
    return b->rows ? STATUS_OK : tensor_error(b, ids, "has no rows");
}

static int64_t value_at(const RtFileTensor *tensor, int64_t i)
{
    int64_t wide = 0;
    int32_t narrow;
    if (tensor->element_bytes == 1)
        return tensor->data[i];
    if (tensor->element_bytes == 4) {
        memcpy(&narrow, tensor->data + i * 4, 4);
        return narrow;
    }
    memcpy(&wide, tensor->data + i * 8, 8);
    return wide;
}

static Status value_error(BatchFile *b, RtInput k, int64_t i, const char *what)
{
    int64_t seq = b->data->seq;
    diag(b->data->s, rt_file_span(b->data->s, b->file.path), batch_value, b->tensor[k]->name,
         (long long)(i / seq), (long long)(i % seq), (long long)value_at(b->tensor[k], i), what);
    return STATUS_USER;
}

static Status convert(BatchFile *b, RtInput k)
{
    RtData *data = b->data;
    int64_t limit = data->limit[k] < INT32_MAX ? data->limit[k] : (int64_t)INT32_MAX + 1;
    int64_t n = b->rows * data->seq, ignored = data->ignored_label;
    const char *range = arena_printf(data->s->arena, "from 0 to %lld", (long long)limit - 1);
    if (k == RT_INPUT_targets)
        range = arena_printf(data->s->arena, "%s, or %lld where it is ignored", range,
                             (long long)ignored);
    int32_t *to = data->batch[k] = ARENA_ARRAY(data->s->arena, int32_t, n);
    for (int64_t i = 0; i < n; i++) {
        int64_t value = value_at(b->tensor[k], i);
        bool is_ignored = k == RT_INPUT_targets && value == ignored;
        if (!is_ignored && (value < 0 || value >= limit))
            return value_error(b, k, i, range);
        to[i] = is_ignored ? data->ignore : (int32_t)value;
    }
    return STATUS_OK;
}

/* labels[t + 1] is the target of position t; the last position has none. */
static void shift_labels(RtData *data, int64_t rows)
{
    int32_t *row = data->batch[RT_INPUT_targets];
    for (int64_t r = 0; r < rows; r++, row += data->seq) {
        memmove(row, row + 1, sizeof *row * (size_t)(data->seq - 1));
        row[data->seq - 1] = data->ignore;
    }
}

/* An input that the model does not have must say what the model does anyway, or it would be dropped
 * in silence. */
static Status check_unread(BatchFile *b, RtInput k)
{
    RtData *data = b->data;
    const int32_t *values = data->batch[k];
    for (int64_t i = 0; i < b->rows * data->seq; i++) {
        int64_t usual = k == RT_INPUT_positions ? i % data->seq
                        : k == RT_INPUT_keep    ? 1
                                                : values[i - i % data->seq];
        if (values[i] != usual)
            return value_error(b, k, i,
                               arena_printf(data->s->arena, "%lld: the model has no input `%s`",
                                            (long long)usual, rt_input_names[k]));
    }
    return STATUS_OK;
}

/* Packed rows: positions begin again with every segment. */
static void positions_from_segments(RtData *data, int64_t rows)
{
    int32_t *to = data->batch[RT_INPUT_positions] =
        ARENA_ARRAY(data->s->arena, int32_t, rows * data->seq);
    const int32_t *segments = data->batch[RT_INPUT_segments];
    for (int64_t i = 0; i < rows * data->seq; i++)
        to[i] = i % data->seq && segments[i] == segments[i - 1] ? to[i - 1] + 1 : 0;
}

static Status check_keep(BatchFile *b)
{
    for (int64_t i = 0; i < b->rows * b->data->seq; i++)
        if (b->data->batch[RT_INPUT_keep][i] > 1)
            return value_error(b, RT_INPUT_keep, i, "0 or 1");
    return STATUS_OK;
}

static Status batch_row(RtData *data, uint64_t sample, int32_t *const rows[RT_INPUT_COUNT])
{
    for (uint32_t k = 0; k < RT_INPUT_COUNT; k++)
        if (rows[k] && data->batch[k])
            memcpy(rows[k], data->batch[k] + sample * (uint64_t)data->seq,
                   sizeof(int32_t) * (size_t)data->seq);
    return STATUS_OK;
}

static Status read_batch(BatchFile *b)
{
    RtData *data = b->data;
    TRY(find_tensors(b));
    TRY(check_rows(b));
    for (uint32_t k = 0; k < RT_INPUT_COUNT; k++)
        if (b->tensor[k])
            TRY(convert(b, (RtInput)k));
    if (b->tensor[RT_INPUT_keep])
        TRY(check_keep(b));
    if (b->shift)
        shift_labels(data, b->rows);
    if (data->batch[RT_INPUT_segments] && !data->batch[RT_INPUT_positions] &&
        data->input[RT_INPUT_segments])
        positions_from_segments(data, b->rows);
    for (uint32_t k = RT_INPUT_positions; k < RT_INPUT_COUNT; k++)
        if (b->tensor[k] && !data->input[k])
            TRY(check_unread(b, (RtInput)k));
    data->samples = (uint64_t)b->rows;
    data->row = batch_row;
    return STATUS_OK;
}

Status rt_data_open_batch(RtData *data, const char *path)
{
    BatchFile b = {.data = data};
    TRY(rt_tensors_open(data->s, path, &b.file));
    Status status = read_batch(&b);
    rt_tensors_close(&b.file);
    return status;
}
