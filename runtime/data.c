#include "runtime/data.h"

#include "base/diag.h"
#include "runtime/data_source.h"
#include "runtime/init.h"

const char *const rt_input_names[RT_INPUT_COUNT] = {
#define RT_INPUT_NAME(name) #name,
    RT_INPUTS(RT_INPUT_NAME)
#undef RT_INPUT_NAME
};

static Status mock_row(RtData *data, uint64_t sample, int32_t *const rows[RT_INPUT_COUNT])
{
    uint64_t stream = rt_random_bits(data->options.seed ^ 0x6d6f636bu /* mock */, sample);
    int64_t vocab = data->tokens_limit;
    for (int64_t t = 0; t <= data->seq; t++) {
        uint64_t bits = rt_random_bits(stream, (uint64_t)t) >> 32;
        int32_t token = (int32_t)((bits * (uint64_t)vocab) >> 32);
        if (t < data->seq)
            rows[RT_INPUT_input_ids][t] = token;
        if (t)
            rows[RT_INPUT_targets][t - 1] = token;
    }
    return STATUS_OK;
}

static Status open_mock(RtData *data)
{
    if (data->tokens_limit > INT32_MAX) {
        diag(data->s, no_span, data_mock_vocab);
        return STATUS_USER;
    }
    data->samples = 0;
    data->row = mock_row;
    return STATUS_OK;
}

/* -- the plan's inputs -- */

static Status find_inputs(RtData *data)
{
    const PlanHeader *header = data->plan->header;
    for (uint64_t i = 0; i < data->plan->n_inputs; i++) {
        const PlanInput *input = &data->plan->inputs[i];
        const char *name = rt_plan_string(data->plan, input->name);
        uint32_t k = 0;
        while (k < RT_INPUT_COUNT && strcmp(rt_input_names[k], name))
            k++;
        bool shaped =
            input->rank == 2 && input->dim[0] == header->batch && input->dim[1] == header->seq;
        if (k == RT_INPUT_COUNT || !shaped || input->dtype != DTYPE_I32) {
            diag(data->s, no_span, data_input, name);
            return STATUS_ENV;
        }
        data->input[k] = input;
    }
    if (data->input[RT_INPUT_input_ids] && data->input[RT_INPUT_targets])
        return STATUS_OK;
    diag(data->s, no_span, data_input, data->input[RT_INPUT_input_ids] ? "targets" : "input_ids");
    return STATUS_ENV;
}

static bool reads_input(const RtData *data, const PlanInstr *instr, uint32_t tensor, RtInput k)
{
    const PlanInput *input = data->input[k];
    if (!input || tensor >= instr->n_tensors)
        return false;
    uint64_t at = data->plan->tensors[instr->first_tensor + tensor].offset;
    return at >= input->offset &&
           at - input->offset <
               (uint64_t)input->stride_bytes * (uint64_t)data->plan->header->micro_batches;
}

static void lower_limit(RtData *data, RtInput k, int64_t rows)
{
    if (rows < data->limit[k])
        data->limit[k] = rows;
}

/* The first of the instructions that made the ids of the one at `i` from an input, gathering all
 * ranks' or taking this rank's part, or that one itself; *out_tensor is what it reads as ids. */
static const PlanInstr *ids_source(const RtData *data, const PlanInstr *instrs, uint64_t i,
                                   uint32_t *out_tensor)
{
    _Static_assert((int)PLAN_T_all_gather_y == (int)PLAN_T_take_part_y &&
                       (int)PLAN_T_all_gather_x == (int)PLAN_T_take_part_x,
                   "one place");
    _Static_assert((int)PLAN_T_embed_ids == (int)PLAN_T_embed_part_ids, "one place");
    const PlanTensor *tensors = data->plan->tensors;
    const PlanInstr *source = &instrs[i];
    *out_tensor = PLAN_T_embed_part_ids;
    for (uint64_t k = i; k-- > 0;) {
        bool moves = instrs[k].kernel == PLAN_KERNEL_all_gather ||
                     instrs[k].kernel == PLAN_KERNEL_take_part;
        if (!moves || tensors[instrs[k].first_tensor + PLAN_T_all_gather_y].offset !=
                          tensors[source->first_tensor + *out_tensor].offset)
            continue;
        source = &instrs[k];
        *out_tensor = PLAN_T_all_gather_x;
    }
    return source;
}

static void limit_ids(RtData *data, const PlanInstr *reader, uint32_t tensor, int64_t rows)
{
    for (uint32_t k = 0; k < RT_INPUT_COUNT; k++)
        if (reads_input(data, reader, tensor, (RtInput)k))
            lower_limit(data, (RtInput)k, rows);
}

/* How large ids may be: the smallest table that is looked up by an input, and the classes of the
 * loss. */
static void find_limits(RtData *data, const PlanInstr *instrs, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        const PlanParam *param = data->plan->params + instrs[i].first_param;
        if (instrs[i].kernel == PLAN_KERNEL_embed) {
            uint32_t tensor;
            const PlanInstr *reader = ids_source(data, instrs, i, &tensor);
            limit_ids(data, reader, tensor, param[PLAN_embed_rows].i);
        } else if (instrs[i].kernel == PLAN_KERNEL_embed_part) {
            uint32_t tensor;
            const PlanInstr *reader = ids_source(data, instrs, i, &tensor);
            limit_ids(data, reader, tensor, param[PLAN_embed_part_total].i);
        } else if (instrs[i].kernel == PLAN_KERNEL_lm_loss_part) {
            lower_limit(data, RT_INPUT_targets, param[PLAN_lm_loss_part_total].i);
            data->ignore = (int32_t)param[PLAN_lm_loss_part_ignore].i;
        } else if (instrs[i].kernel == PLAN_KERNEL_lm_loss) {
            lower_limit(data, RT_INPUT_targets, param[PLAN_lm_loss_vocab].i);
            data->ignore = (int32_t)param[PLAN_lm_loss_ignore].i;
        } else if (instrs[i].kernel == PLAN_KERNEL_lm_loss_with_grad) {
            lower_limit(data, RT_INPUT_targets, param[PLAN_lm_loss_with_grad_vocab].i);
            data->ignore = (int32_t)param[PLAN_lm_loss_with_grad_ignore].i;
        }
    }
}

/* A pipeline's stages must draw and check the same tokens, whichever of them look them up. */
static void find_limits_of(RtData *data, const RtPlan *plan)
{
    RtData there = *data;
    there.plan = plan;
    for (uint32_t k = 0; k < RT_INPUT_COUNT; k++) {
        there.input[k] = NULL;
        for (uint64_t i = 0; i < plan->n_inputs; i++)
            if (!strcmp(rt_input_names[k], rt_plan_string(plan, plan->inputs[i].name)))
                there.input[k] = &plan->inputs[i];
    }
    find_limits(&there, plan->instrs, plan->n_instrs);
    find_limits(&there, plan->eval_instrs, plan->n_eval_instrs);
    memcpy(data->limit, there.limit, sizeof data->limit);
    data->ignore = there.ignore;
}

static void set_limits(RtData *data)
{
    for (uint32_t k = 0; k < RT_INPUT_COUNT; k++)
        data->limit[k] = INT64_MAX;
    data->ignore = -100;
    for (uint32_t i = 0; i < data->plan->n_all; i++)
        find_limits_of(data, &data->plan->all[i]);
    if (data->options.vocab)
        lower_limit(data, RT_INPUT_input_ids, data->options.vocab);
    data->tokens_limit = data->limit[RT_INPUT_input_ids];
    if (data->limit[RT_INPUT_targets] < data->tokens_limit)
        data->tokens_limit = data->limit[RT_INPUT_targets];
}

/* Positions that the file does not give: 0 .. seq - 1, or counted within segments. */
static Status check_positions(RtData *data)
{
    const int32_t *given = data->batch[RT_INPUT_positions];
    int64_t highest = given ? 0 : data->seq - 1;
    for (uint64_t i = 0; given && i < data->samples * (uint64_t)data->seq; i++)
        if (given[i] > highest)
            highest = given[i];
    if (highest < data->limit[RT_INPUT_positions])
        return STATUS_OK;
    diag(data->s, no_span, data_positions, (long long)highest,
         (long long)data->limit[RT_INPUT_positions]);
    return STATUS_USER;
}

bool rt_path_ends(const char *path, const char *end)
{
    size_t n = strlen(path), m = strlen(end);
    return n >= m && !strcmp(path + n - m, end);
}

static Status open_source(RtData *data)
{
    const RtDataOptions *options = &data->options;
    bool batch_path = options->path && rt_path_ends(options->path, ".safetensors");
    if (options->batch)
        return rt_data_open_batch(data, options->batch);
    if (batch_path && options->eval)
        return rt_data_open_batch(data, options->path);
    if (batch_path) {
        diag(data->s, no_span, data_use_batch, options->path);
        return STATUS_USER;
    }
    return options->path ? rt_data_open_tokens(data, options->path) : open_mock(data);
}

Status rt_data_open(Session *s, const RtPlan *plan, const RtDataOptions *options, RtData **out_data)
{
    RtData *data = ARENA_NEW(s->arena, RtData);
    *out_data = NULL;
    data->s = s;
    data->plan = plan;
    data->options = *options;
    data->ignored_label = options->ignore_index ? *options->ignore_index : -100;
    data->seq = plan->header->seq;
    data->rows = plan->header->batch * (options->eval ? 1 : plan->header->micro_batches);
    data->all_rows = data->rows * (options->n_ranks ? options->n_ranks : 1);
    data->first_row = data->rows * options->rank;
    TRY(find_inputs(data));
    set_limits(data);
    Status status = open_source(data);
    if (status == STATUS_OK)
        status = check_positions(data);
    if (status != STATUS_OK) {
        rt_data_close(data);
        return status;
    }
    *out_data = data;
    return STATUS_OK;
}

void rt_data_close(RtData *data)
{
    if (data)
        rt_data_close_tokens(data);
}

/* -- a batch -- */

static void default_row(const RtData *data, int32_t *const rows[RT_INPUT_COUNT])
{
    for (int64_t t = 0; t < data->seq; t++) {
        rows[RT_INPUT_input_ids][t] = 0;
        rows[RT_INPUT_targets][t] = data->ignore;
        if (rows[RT_INPUT_positions])
            rows[RT_INPUT_positions][t] = (int32_t)t;
        if (rows[RT_INPUT_segments])
            rows[RT_INPUT_segments][t] = 0;
        if (rows[RT_INPUT_keep])
            rows[RT_INPUT_keep][t] = 1;
    }
}

Status rt_data_next(RtData *data, unsigned char *arena)
{
    int64_t batch = data->plan->header->batch;
    data->n_targets = 0;
    for (int64_t r = 0; r < data->rows; r++) {
        int32_t *rows[RT_INPUT_COUNT] = {NULL};
        uint64_t sample = data->position + (uint64_t)(data->first_row + r);
        for (uint32_t k = 0; k < RT_INPUT_COUNT; k++)
            if (data->input[k])
                rows[k] =
                    (int32_t *)(void *)(arena + data->input[k]->offset +
                                        (uint64_t)(r / batch) * data->input[k]->stride_bytes) +
                    r % batch * data->seq;
        default_row(data, rows);
        bool padding = data->options.eval && data->samples && sample >= data->samples;
        if (!padding)
            TRY(data->row(data, data->samples ? sample % data->samples : sample, rows));
        for (int64_t t = 0; t < data->seq; t++)
            data->n_targets += rows[RT_INPUT_targets][t] != data->ignore;
    }
    data->position += (uint64_t)data->all_rows;
    return STATUS_OK;
}

const char *rt_data_kind(const RtData *data)
{
    return data->samples ? "file" : "mock";
}

uint64_t rt_data_seed(const RtData *data)
{
    return data->options.seed;
}

uint64_t rt_data_samples(const RtData *data)
{
    return data->samples;
}

uint64_t rt_data_position(const RtData *data)
{
    return data->position;
}

void rt_data_seek(RtData *data, uint64_t position)
{
    data->position = position;
}

uint64_t rt_data_batches(const RtData *data)
{
    uint64_t rows = (uint64_t)data->all_rows;
    return data->options.eval ? (data->samples + rows - 1) / rows : data->samples / rows;
}

int64_t rt_data_targets(const RtData *data)
{
    return data->n_targets;
}
