/* The runtime's files: safetensors, weights, init, checkpoints. */
#include "tests/unit/rtio_support.h"

#include <math.h>

#include "runtime/checkpoint.h"
#include "runtime/init.h"
#include "runtime/weights_convert.h"

/* -- safetensors -- */

typedef struct Bad {
    const char *header;
    size_t data;
    const char *message;
} Bad;

/* In exactly as much memory as the file has, so that a sanitizer sees any read behind it. */
static Status parse(Fixture *f, const char *header, uint64_t claimed, size_t data)
{
    size_t n = strlen(header), all = 8 + n + data;
    unsigned char *bytes = calloc(1, all);
    RtTensorFile file;
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(claimed >> (8 * i));
    memcpy(bytes + 8, header, n);
    Status status = rt_tensors_parse(f->s, "bad.safetensors", bytes, all, &file);
    free(bytes);
    return status;
}

static void test_malformed(void **state)
{
    (void)state;
    static const Bad cases[] = {
        {"", 0, "header: the header does not begin with `{`"},
        {" {}", 0, "header: the header does not begin with `{`"},
        {"{", 0, "header: "},
        {"{}x", 0, "header: text behind the end"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7,
         "`data_offsets`: the end 8 is past"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8,
         "the end 0 is before the begin 8"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,18446744073709551615]}}", 8,
         "is past the file"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,18446744073709551616]}}", 8,
         "number too large"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-1,8]}}", 8,
         "tensor `a`, field `data_offsets`"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,9]}}", 8,
         "expected a begin and an end"},
        {"{\"a\":{\"dtype\":\"F33\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
         "tensor `a`, field `dtype`: unknown dtype `F33`"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8,
         "tensor `a`, field `shape`: [3] of F32"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,4],\"data_offsets\":[0,8]}}",
         8, "field `shape`"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]}}", 8,
         "more than 8 dims"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}", 8, "field `shape`"},
        {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
         "field `dtype`: given twice"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8,
         "tensor `a`, field `data_offsets`: missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}", 8,
         "unknown field `x`"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
         3, "tensor `b`, field `data_offsets`: [1, 3] overlaps tensor `a`"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[3,5]}}",
         5, "bytes 2 to 3 in front of it belong to no tensor"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 3,
         "the file has 3 bytes of data, and its tensors 2"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
         "\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
         2, "tensor `a` is there twice"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "`__metadata__`: expected a string"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "`__metadata__` is there twice"},
        {"{\"a\\n\":{}}", 0, "control characters"},
        {"{\"a\\u0000\":{}}", 0, "NUL in a string"},
        {"{\"a\\ud800\":{}}", 0, "half of a surrogate pair"},
        {"{\"a\xff\":{}}", 0, "bad UTF-8"},
        {"{\"a\":{},}", 0, "tensor `a`, field `dtype`: missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Fixture *f = begin();
        assert_int_equal(parse(f, cases[i].header, strlen(cases[i].header), cases[i].data),
                         STATUS_USER);
        expect_message(f, "bad.safetensors: error: malformed safetensors file");
        expect_message(f, cases[i].message);
        assert_int_equal(f->s->n_errors, 1);
        end(f);
    }
}

static void test_header_length(void **state)
{
    (void)state;
    static const uint64_t claims[] = {3, 1000, UINT64_MAX, UINT64_MAX - 7, 1ull << 63};
    Fixture *f = begin();
    RtTensorFile file;
    for (int i = 0; i < 5; i++)
        assert_int_equal(parse(f, "{}", claims[i], 0), STATUS_USER);
    expect_message(f, "header length 3 is past the end of the file of 10 bytes");
    expect_message(f, "header length 1000 is past the end of the file of 10 bytes");
    for (uint64_t n = 0; n < 8; n++)
        assert_int_equal(rt_tensors_parse(f->s, "short", "\2\0\0\0\0\0\0", n, &file), STATUS_USER);
    expect_message(f, "too few for a header length");
    assert_int_equal(rt_tensors_open(f->s, in(f, "none"), &file), STATUS_ENV);
    assert_int_equal(rt_tensors_open(f->s, f->dir, &file), STATUS_ENV);
    put_file(in(f, "empty"), "", 0);
    assert_int_equal(rt_tensors_open(f->s, in(f, "empty"), &file), STATUS_USER);
    end(f);
}

/* Every single-byte change and every cut of a good file is read or refused, never followed out of
 * bounds. */
static void test_every_fault(void **state)
{
    (void)state;
    static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                                 "\"b\":{\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[8,9]}}";
    static const unsigned char faults[] = {0, '"', '}', ']', '9', ',', 0xff, '\\'};
    Fixture *f = begin();
    size_t n = strlen(header) + 8 + 9;
    uint32_t accepted = 0;
    for (size_t at = 0; at < n * sizeof faults; at++) {
        unsigned char *bytes = calloc(1, n);
        RtTensorFile file;
        bytes[0] = (unsigned char)strlen(header);
        memcpy(bytes + 8, header, strlen(header));
        bytes[at % n] = faults[at / n];
        if (rt_tensors_parse(f->s, "fault", bytes, n, &file) == STATUS_OK) {
            accepted++;
            for (uint32_t i = 0; i < file.n_tensors; i++)
                assert_true(file.tensors[i].data + file.tensors[i].bytes <= bytes + n);
        }
        free(bytes);
    }
    for (size_t cut = 0; cut < n; cut++) {
        unsigned char *bytes = calloc(1, cut + 1);
        RtTensorFile file;
        memcpy(bytes, "\0\0\0\0\0\0\0\0", cut < 8 ? cut : 8);
        if (cut)
            bytes[0] = (unsigned char)strlen(header);
        if (cut > 8)
            memcpy(bytes + 8, header, cut - 8 < strlen(header) ? cut - 8 : strlen(header));
        assert_int_equal(rt_tensors_parse(f->s, "cut", bytes, cut, &file), STATUS_USER);
        free(bytes);
    }
    assert_true(accepted > 0);
    end(f);
}

static void test_write_read(void **state)
{
    (void)state;
    Fixture *f = begin();
    const float view[12] = {0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1};
    const uint16_t half[3] = {1, 2, 3};
    RtOutTensor out[3];
    out[0] = rt_out_tensor("z \"quoted\"", DTYPE_BF16, 1, (int64_t[]){3}, half);
    out[1] = rt_out_tensor("rows", DTYPE_F32, 2, (int64_t[]){3, 3}, view);
    out[1].run_bytes = 12;
    out[1].pitch_bytes = 16;
    out[2] = rt_out_tensor("nothing", DTYPE_I64, 2, (int64_t[]){0, 4}, view);
    assert_int_equal(rt_tensors_write(f->s, in(f, "a.safetensors"), out, 3), STATUS_OK);
    RtTensorFile file;
    assert_int_equal(rt_tensors_open(f->s, in(f, "a.safetensors"), &file), STATUS_OK);
    assert_int_equal(file.n_tensors, 3);
    const RtFileTensor *rows = rt_tensors_find(f->s, &file, "rows");
    assert_non_null(rows);
    assert_int_equal((rows->data - file.bytes) % 64, 0);
    for (int i = 0; i < 9; i++) {
        float value;
        memcpy(&value, rows->data + i * 4, 4);
        assert_true(value == (float)i);
    }
    const RtFileTensor *quoted = rt_tensors_find(f->s, &file, "z \"quoted\"");
    assert_non_null(quoted);
    assert_memory_equal(quoted->data, half, 6);
    assert_null(rt_tensors_find(f->s, &file, "rest"));
    rt_tensors_close(&file);
    assert_int_equal(rt_tensors_write(f->s, in(f, "no/a.safetensors"), out, 3), STATUS_ENV);
    expect_message(f, "cannot write");
    end(f);
}

static void test_shards(void **state)
{
    (void)state;
    Fixture *f = begin();
    const float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    RtOutTensor out[3];
    for (int i = 0; i < 3; i++)
        out[i] = rt_out_tensor((const char *[]){"c", "a", "b"}[i], DTYPE_F32, 1,
                               (int64_t[]){i ? 2 : 4}, values + i);
    assert_int_equal(rt_tensor_set_write(f->s, f->dir, out, 3, 16), STATUS_OK);
    RtTensorSet set;
    assert_int_equal(access(in(f, "model.safetensors"), F_OK), -1);
    assert_int_equal(rt_tensor_set_open(f->s, f->dir, &set), STATUS_OK);
    assert_int_equal(set.files.n, 2);
    assert_int_equal(set.tensors.n, 3);
    assert_memory_equal(rt_tensor_set_find(f->s, &set, "b")->data, values + 2, 8);
    rt_tensor_set_close(&set);
    const struct {
        const char *index, *message;
        Status status;
    } bad[] = {
        {"{\"weight_map\":{\"c\":\"model-00001-of-00002.safetensors\",\"c\":\"x\"}}",
         "tensor `c` is there twice", 1},
        {"{\"weight_map\":{\"c\":\"../x\"}}", "`../x` is not the name of a file beside it", 1},
        {"{\"weight_map\":{\"c\":\"gone.safetensors\"}}", "gone.safetensors", 3},
        {"{\"weight_map\":{\"d\":\"model-00001-of-00002.safetensors\"}}", "tensor `d` is not in",
         1},
        {"{\"weight_map\":{}}", "`weight_map` is missing or empty", 1},
        {"{\"weight_map\":{\"a\":1}}", "expected a string", 1},
    };
    for (int i = 0; i < 6; i++) {
        put_file(in(f, "model.safetensors.index.json"), bad[i].index, strlen(bad[i].index));
        assert_int_equal(rt_tensor_set_open(f->s, f->dir, &set), bad[i].status);
        expect_message(f, bad[i].message);
    }
    const char *part = "{\"metadata\":{\"total_size\":1.5e3},"
                       "\"weight_map\":{\"a\":\"model-00002-of-00002.safetensors\"}}";
    put_file(in(f, "model.safetensors.index.json"), part, strlen(part));
    assert_int_equal(rt_tensor_set_open(f->s, f->dir, &set), STATUS_OK);
    expect_record(f, "tensors_unlisted", "`b`");
    assert_int_equal(set.files.n, 1); /* the shard that the index does not name is not opened */
    rt_tensor_set_close(&set);
    end(f);
}

/* -- conversions -- */

static double ulp_below(double x, double step)
{
    return floor(x / step) * step;
}

static void test_convert(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 65536;
         i++) { /* each narrow value survives the way through every wider dtype */
        uint16_t bits = (uint16_t)i, back;
        float wide;
        double wider;
        for (int k = 0; k < 2; k++) {
            DType narrow = k ? DTYPE_F16 : DTYPE_BF16;
            rt_convert(&wide, DTYPE_F32, &bits, narrow, 1);
            rt_convert(&back, narrow, &wide, DTYPE_F32, 1);
            assert_true(back == bits || isnan(wide));
            rt_convert(&wider, DTYPE_F64, &bits, narrow, 1);
            rt_convert(&back, narrow, &wider, DTYPE_F64, 1);
            assert_true(back == bits || (isnan(wider) && isnan(wide)));
        }
    }
    for (uint32_t i = 0; i < 200000; i++) { /* one rounding, to the nearest even step of f16 */
        double x = ldexp((double)(rt_random_bits(1, i) >> 11) * 0x1p-53 + 1, (int)(i % 36) - 26);
        double step = ldexp(1, (int)(i % 36) - 26 < -14 ? -24 : (int)(i % 36) - 36),
               low = ulp_below(x, step), value;
        bool up = x - low > step / 2 || (x - low == step / 2 && fmod(low / step, 2) != 0);
        uint16_t bits;
        rt_round(&bits, DTYPE_F16, &x, 1);
        rt_convert(&value, DTYPE_F64, &bits, DTYPE_F16, 1);
        assert_true(value == (up ? low + step : low));
    }
    /* just above the middle of two bf16 values: through f32 it would become the middle, and go to
     * even */
    double tricky = 1 + 0x1p-8 + 0x1p-40, tie = 1 + 0x1p-8, huge = 1e300;
    uint16_t bits;
    rt_round(&bits, DTYPE_BF16, &tricky, 1);
    assert_int_equal(bits, 0x3f81);
    rt_round(&bits, DTYPE_BF16, &tie, 1);
    assert_int_equal(bits, 0x3f80);
    rt_round(&bits, DTYPE_BF16, &huge, 1);
    assert_int_equal(bits, 0x7f80);
    float limit[2] = {65519.996f, 65520.0f};
    uint16_t halves[2];
    rt_convert(halves, DTYPE_F16, limit, DTYPE_F32, 2);
    assert_int_equal(halves[0], 0x7bff);
    assert_int_equal(halves[1], 0x7c00);
}

/* -- a small model, and a file for it -- */

static uint32_t add_state(Model *m, const char *name, uint32_t kind, DType dtype, int64_t rows,
                          int64_t cols)
{
    uint32_t index = (uint32_t)m->plan.n_states++;
    PlanState *state = &m->states[index];
    *state = (PlanState){
        .name = text(m, name), .kind = kind, .dtype = dtype, .rank = cols ? 2 : 1, .of = index};
    state->dim[0] = rows;
    state->dim[1] = cols;
    state->bytes = (uint64_t)(rows * (cols ? cols : 1)) * dtype_bytes(dtype);
    state->offset = take(m, state->bytes);
    state->init = RT_INIT_NORMAL;
    state->init_value = 0.5;
    return index;
}

/* An embedding that is its own head, a bf16 layer with master and moments, a buffer. */
static Model *toy(const char *prefix)
{
    Model *m = model_new(2, 1, 4);
    char name[128];
    snprintf(name, sizeof name, "%sembed_tokens.weight", prefix);
    add_state(m, name, PLAN_STATE_PARAM, DTYPE_F32, 6, 4);
    snprintf(name, sizeof name, "%slayers.0.proj.weight", prefix);
    uint32_t proj = add_state(m, name, PLAN_STATE_PARAM, DTYPE_BF16, 4, 4);
    snprintf(name, sizeof name, "%slayers.0.layer_scalar", prefix);
    uint32_t scalar = add_state(m, name, PLAN_STATE_BUFFER, DTYPE_F32, 1, 0);
    m->states[scalar].init = RT_INIT_ONE;
    const char *const suffixes[] = {"master", "exp_avg", "exp_avg_sq"};
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%slayers.0.proj.weight.%s", prefix, suffixes[i]);
        uint32_t extra = add_state(
            m, name, (uint32_t[]){PLAN_STATE_MASTER, PLAN_STATE_MOMENT1, PLAN_STATE_MOMENT2}[i],
            DTYPE_F32, 4, 4);
        m->states[extra].of = proj;
    }
    m->instrs[m->plan.n_instrs++].kernel = PLAN_KERNEL_adamw;
    return m;
}

static void fill(float *values, int n, float start)
{
    for (int i = 0; i < n; i++)
        values[i] = start + (float)i * 0.3f;
}

typedef struct ToyFile {
    float embed[24], head[24], proj[16], scalar[1], extra[2];
    RtOutTensor out[12];
    uint32_t n;
} ToyFile;

static void toy_add(ToyFile *file, const char *name, int64_t rows, int64_t cols, const float *data)
{
    file->out[file->n++] =
        rt_out_tensor(name, DTYPE_F32, cols ? 2 : 1, (int64_t[]){rows, cols}, data);
}

static void toy_file(ToyFile *file)
{
    memset(file, 0, sizeof *file);
    fill(file->embed, 24, 1);
    fill(file->head, 24, 1);
    fill(file->proj, 16, -2);
    fill(file->extra, 2, 9);
    file->scalar[0] = 0.25f;
}

static Status toy_load(Fixture *f, Model *m, const ToyFile *file, RtWeights *out)
{
    assert_int_equal(rt_tensor_set_write(f->s, f->dir, file->out, file->n, UINT64_MAX), STATUS_OK);
    return rt_weights_load(f->s, NULL, &m->plan, m->arena, f->dir, out);
}

static void *state_at(Model *m, const char *name)
{
    for (uint64_t i = 0; i < m->plan.n_states; i++)
        if (!strcmp(rt_plan_string(&m->plan, m->states[i].name), name))
            return m->arena + m->states[i].offset;
    fail_msg("no state `%s`", name);
    return NULL;
}

/* -- weights -- */

static void test_prefixes(void **state)
{
    (void)state;
    static const char *const prefixes[] = {"", "model.", "transformer.", "model.language_model.",
                                           "language_model.model."};
    for (int plan = 0; plan < 5; plan++)
        for (int of_file = 0; of_file < 5; of_file++) {
            Fixture *f = begin();
            Model *m = toy(prefixes[plan]);
            ToyFile file;
            RtWeights weights;
            toy_file(&file);
            const char *p = prefixes[of_file];
            toy_add(&file, arena_printf(f->s->arena, "%sembed_tokens.weight", p), 6, 4, file.embed);
            toy_add(&file, arena_printf(f->s->arena, "%slayers.0.proj.weight", p), 4, 4, file.proj);
            toy_add(&file, arena_printf(f->s->arena, "%slayers.0.layer_scalar", p), 1, 0,
                    file.scalar);
            assert_int_equal(toy_load(f, m, &file, &weights), STATUS_OK);
            assert_memory_equal(m->arena + m->states[0].offset, file.embed, sizeof file.embed);
            assert_memory_equal(m->arena + m->states[3].offset, file.proj,
                                sizeof file.proj); /* master */
            for (int i = 0; i < 16; i++)
                assert_int_equal(((uint16_t *)(void *)(m->arena + m->states[1].offset))[i],
                                 f32_to_bf16(file.proj[i]));
            for (uint32_t i = 0; i < file.n; i++)
                assert_string_equal(weights.file_names[i], file.out[i].name);
            assert_string_equal(weights.file_names[4],
                                arena_printf(f->s->arena, "exp_avg.%slayers.0.proj.weight", p));
            assert_int_equal(f->s->records.n, 0);
            rt_weights_release(&weights);
            free(m);
            end(f);
        }
}

/* Case 22: one, the other, both equal; both different, neither. */
static void test_tied(void **state)
{
    (void)state;
    static const struct {
        const char *head;
        bool embed, with_head, differ;
        const char *error;
    } cases[] = {
        {"lm_head.weight", true, false, false, NULL},
        {"lm_head.weight", false, true, false, NULL},
        {"lm_head.weight", true, true, false, NULL},
        {"language_model.lm_head.weight", false, true, false, NULL},
        {"lm_head.weight", true, true, true,
         "tied weights `model.embed_tokens.weight` and `lm_head.weight`"},
        {"lm_head.weight", false, false, false,
         "neither weight `model.embed_tokens.weight` nor `lm_head.weight`, which is tied to it, is "
         "there"},
    };
    for (int told = 0; told < 2; told++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            Fixture *f = begin();
            Model *m = toy("model.");
            ToyFile file;
            RtWeights weights;
            if (told)
                m->header.settings = text(m, "{\"lr\": 1e-3, \"tied\": {\"lm_head.weight\": "
                                             "\"model.embed_tokens.weight\"}}");
            toy_file(&file);
            const char *p = strncmp(cases[i].head, "lang", 4) ? "model." : "language_model.model.";
            if (cases[i].differ)
                file.head[23] = 0;
            if (cases[i].embed)
                toy_add(&file, arena_printf(f->s->arena, "%sembed_tokens.weight", p), 6, 4,
                        file.embed);
            if (cases[i].with_head)
                toy_add(&file, cases[i].head, 6, 4, file.head);
            toy_add(&file, arena_printf(f->s->arena, "%slayers.0.proj.weight", p), 4, 4, file.proj);
            toy_add(&file, arena_printf(f->s->arena, "%slayers.0.layer_scalar", p), 1, 0,
                    file.scalar);
            assert_int_equal(toy_load(f, m, &file, &weights),
                             cases[i].error ? STATUS_USER : STATUS_OK);
            if (cases[i].error) {
                expect_message(f, cases[i].error);
                assert_int_equal(m->arena[m->states[1].offset], 0); /* nothing was copied */
            } else {
                assert_memory_equal(m->arena + m->states[0].offset, file.embed, sizeof file.embed);
                assert_string_equal(weights.file_names[0], file.out[0].name);
                assert_int_equal(weights.carried.n, 0);
            }
            rt_weights_release(&weights);
            free(m);
            end(f);
        }
}

static void test_untied_plan(void **state)
{
    (void)state;
    Fixture *f = begin();
    Model *m = toy("model.");
    ToyFile file;
    RtWeights weights;
    m->header.settings = text(m, "{\"tied\": {}}");
    add_state(m, "lm_head.weight", PLAN_STATE_PARAM, DTYPE_F32, 6, 4);
    toy_file(&file);
    file.head[3] = 77;
    toy_add(&file, "model.embed_tokens.weight", 6, 4, file.embed);
    toy_add(&file, "model.layers.0.proj.weight", 4, 4, file.proj);
    toy_add(&file, "model.layers.0.layer_scalar", 1, 0, file.scalar);
    assert_int_equal(toy_load(f, m, &file, &weights), STATUS_USER);
    expect_message(f, "weight `lm_head.weight` is not there");
    expect_message(f, "tie_word_embeddings");
    toy_add(&file, "lm_head.weight", 6, 4, file.head);
    assert_int_equal(toy_load(f, m, &file, &weights), STATUS_OK);
    assert_memory_equal(state_at(m, "lm_head.weight"), file.head, sizeof file.head);
    rt_weights_release(&weights);
    free(m);
    end(f);
}

static void test_all_problems(void **state)
{
    (void)state;
    Fixture *f = begin();
    Model *m = toy("model.");
    ToyFile file;
    RtWeights weights;
    m->states[1].file = text(m, "toy.model");
    m->states[1].line = 12;
    toy_file(&file);
    toy_add(&file, "model.layers.0.proj.weight", 2, 8, file.proj);
    file.out[file.n] =
        rt_out_tensor("model.layers.0.layer_scalar", DTYPE_I32, 1, (int64_t[]){1}, file.scalar);
    file.n++;
    assert_int_equal(toy_load(f, m, &file, &weights), STATUS_USER);
    expect_message(
        f, "weight `model.layers.0.proj.weight`, field `shape`: [2, 8], but the model has [4, 4]");
    expect_message(f, "toy.model:12:1: note: `model.layers.0.proj.weight` is declared here");
    expect_message(
        f, "weight `model.layers.0.layer_scalar`, field `dtype`: I32 cannot be converted to f32");
    expect_message(f, "`model.embed_tokens.weight`");
    assert_int_equal(f->s->n_errors, 3);
    assert_int_equal(rt_weights_load(f->s, NULL, &m->plan, m->arena, in(f, "nowhere"), &weights),
                     STATUS_ENV);
    expect_message(f, "nowhere` is not a folder");
    mkdir(in(f, "empty"), 0777);
    assert_int_equal(rt_weights_load(f->s, NULL, &m->plan, m->arena, in(f, "empty"), &weights),
                     STATUS_ENV);
    expect_message(f, "has neither `model.safetensors` nor `model.safetensors.index.json`");
    free(m);
    end(f);
}

/* -- init -- */

static void test_init(void **state)
{
    (void)state;
    Fixture *f = begin();
    Model *m = toy("model."), *again = toy("model.");
    RtWeights weights;
    assert_int_equal(rt_weights_init(f->s, NULL, &m->plan, m->arena, 7, &weights), STATUS_OK);
    RtTensors tensors;
    rt_tensors_list(f->s, NULL, &again->plan, &tensors);
    rt_init_all(&tensors, again->arena, 7);
    assert_memory_equal(m->arena, again->arena, sizeof m->arena);
    float *embed = state_at(m, "model.embed_tokens.weight"),
          *scalar = state_at(m, "model.layers.0.layer_scalar");
    uint64_t stream = rt_random_stream(7, "model.embed_tokens.weight");
    for (uint64_t i = 0; i < 24; i++)
        assert_true(embed[i] == (float)(0.5 * rt_random_normal(rt_random_bits(stream, i))));
    assert_true(*scalar == 1);
    rt_init_all(&tensors, again->arena, 8);
    assert_memory_not_equal(m->arena + m->states[0].offset, again->arena + again->states[0].offset,
                            96);
    assert_string_equal(weights.file_names[0], "model.embed_tokens.weight");
    free(m);
    free(again);
    end(f);
}

static void test_normal(void **state)
{
    (void)state;
    enum { N = 1000000 };
    double sum = 0, square = 0, fourth = 0, highest = 0;
    uint64_t stream = rt_random_stream(1, "w");
    for (uint64_t i = 0; i < N; i++) {
        double z = rt_random_normal(rt_random_bits(stream, i));
        sum += z;
        square += z * z;
        fourth += z * z * z * z;
        highest = fmax(highest, fabs(z));
    }
    assert_true(fabs(sum / N) < 5e-3 && fabs(square / N - 1) < 1e-2 && fabs(fourth / N - 3) < 0.1);
    assert_true(highest > 4.2 && highest < 6.5);
    /* the distribution function undoes it, from the middle to the tail */
    for (int e = 1; e < 52; e++) {
        uint64_t bits = 1ull << (63 - e);
        double p = ((double)(bits >> 12) + 0.5) * 0x1p-52, z = rt_random_normal(bits);
        assert_true(fabs(0.5 * erfc(-z / sqrt(2)) / p - 1) < 1e-13);
        assert_true(rt_random_normal(~bits) == -z);
    }
    assert_true(isfinite(rt_random_normal(0)) && isfinite(rt_random_normal(UINT64_MAX)));
}

/* -- checkpoints -- */

static void randomize(Model *m)
{
    for (uint64_t i = 0; i < m->plan.n_states; i++)
        for (uint64_t b = 0; b < m->states[i].bytes; b++)
            m->arena[m->states[i].offset + b] = (unsigned char)rt_random_bits(i, b);
}

static void test_save_resume(void **state)
{
    (void)state;
    Fixture *f = begin();
    Model *m = toy("model."), *again = toy("model.");
    ToyFile file;
    RtWeights weights, resumed;
    const RtReached at = {123, 5, "file"};
    RtReached reached = {0};
    const char *dir = in(f, "out/ckpt");
    toy_file(&file);
    toy_add(&file, "model.language_model.embed_tokens.weight", 6, 4, file.embed);
    toy_add(&file, "model.language_model.layers.0.proj.weight", 4, 4, file.proj);
    toy_add(&file, "model.language_model.layers.0.attn.bias", 2, 0, file.extra);
    toy_add(&file, "model.language_model.layers.1.self_attn.k_proj.weight", 2, 0, file.extra);
    toy_add(&file, "model.language_model.layers.2.self_attn.k_proj.weight", 2, 0, file.extra);
    file.out[file.n] =
        rt_out_tensor("model.vision_tower.x", DTYPE_U8, 1, (int64_t[]){7}, file.embed);
    file.out[file.n++].dtype_name = "F8_E4M3";
    assert_int_equal(toy_load(f, m, &file, &weights), STATUS_OK);
    assert_true(*(float *)state_at(m, "model.layers.0.layer_scalar") == 1);
    expect_record(f, "weights_default", "1 buffers are not there");
    expect_record(f, "weights_unused", "3 tensors are not read by this model");
    expect_record(f, "weights_unused",
                  "`model.language_model.layers.*.self_attn.k_proj.weight` (2)");
    randomize(m);
    *(int64_t *)(void *)(m->arena + m->header.scalars.step) = 4;
    *(int64_t *)(void *)(m->arena + m->header.scalars.seed) = -3;
    assert_int_equal(rt_checkpoint_check(f->s, dir), STATUS_OK);
    assert_int_equal(rt_checkpoint_save(f->s, NULL, &m->plan, m->arena, &weights, &at, dir),
                     STATUS_OK);

    RtTensorSet set;
    assert_int_equal(rt_tensor_set_open(f->s, dir, &set), STATUS_OK);
    assert_int_equal(set.tensors.n, 6);
    assert_memory_equal(rt_tensor_set_find(f->s, &set, "model.vision_tower.x")->data, file.embed,
                        7);
    assert_string_equal(rt_tensor_set_find(f->s, &set, "model.vision_tower.x")->dtype_name,
                        "F8_E4M3");
    assert_null(rt_tensor_set_find(f->s, &set, "model.language_model.layers.0.attn.bias"));
    rt_tensor_set_close(&set);
    RtTensorFile optimizer;
    assert_int_equal(
        rt_tensors_open(f->s, in(f, "out/ckpt/state/optimizer.safetensors"), &optimizer),
        STATUS_OK);
    assert_non_null(
        rt_tensors_find(f->s, &optimizer, "exp_avg_sq.model.language_model.layers.0.proj.weight"));
    assert_int_equal(optimizer.n_tensors, 3);
    rt_tensors_close(&optimizer);
    Source config;
    assert_int_equal(session_read_source(f->s, in(f, "out/ckpt/config.json"), no_span, &config),
                     STATUS_OK);
    assert_string_equal(config.text, "{\"model_type\": \"toy\"}\n");

    assert_int_equal(
        rt_checkpoint_resume(f->s, NULL, &again->plan, again->arena, dir, &resumed, &reached),
        STATUS_OK);
    assert_int_equal(reached.data_position, at.data_position);
    assert_string_equal(reached.data, at.data);
    assert_int_equal(reached.steps, at.steps);
    assert_memory_equal(m->arena, again->arena, sizeof m->arena);

    /* saved again over itself: the same files, and what else is in the folder stays */
    put_file(in(f, "out/ckpt/tokenizer.json"), "{}", 2);
    put_file(in(f, "out/ckpt/model-00001-of-00002.safetensors"), "stale", 5);
    assert_int_equal(rt_checkpoint_save(f->s, NULL, &again->plan, again->arena, &resumed, &at, dir),
                     STATUS_OK);
    assert_int_equal(
        rt_checkpoint_save(f->s, NULL, &m->plan, m->arena, &weights, &at, in(f, "copy/")),
        STATUS_OK);
    assert_true(
        same_files(f, in(f, "out/ckpt/model.safetensors"), in(f, "copy/model.safetensors")));
    assert_true(same_files(f, in(f, "out/ckpt/state/optimizer.safetensors"),
                           in(f, "copy/state/optimizer.safetensors")));
    assert_int_equal(access(in(f, "out/ckpt/tokenizer.json"), F_OK), 0);
    assert_int_equal(access(in(f, "out/ckpt/model-00001-of-00002.safetensors"), F_OK), -1);
    assert_int_equal(f->s->n_warnings + f->s->n_errors, 0);
    char *left = arena_printf(f->s->arena,
                              "test $(ls -A %s | wc -l) = 3 && test $(ls -A %s/out | wc -l) = 1",
                              f->dir, f->dir);
    assert_int_equal(system(left), 0);
    rt_weights_release(&weights);
    rt_weights_release(&resumed);
    free(m);
    free(again);
    end(f);
}

static void test_resume_errors(void **state)
{
    (void)state;
    Fixture *f = begin();
    Model *m = toy("model.");
    RtWeights weights, resumed;
    const RtReached at = {1, 1, "mock"};
    RtReached reached;
    const char *dir = in(f, "ckpt"), *trainer = in(f, "ckpt/state/trainer.json");
    assert_int_equal(rt_weights_init(f->s, NULL, &m->plan, m->arena, 1, &weights), STATUS_OK);
    assert_int_equal(rt_checkpoint_save(f->s, NULL, &m->plan, m->arena, &weights, &at, dir),
                     STATUS_OK);
    m->instrs[0].kernel = PLAN_KERNEL_sgd;
    assert_int_equal(rt_checkpoint_resume(f->s, NULL, &m->plan, m->arena, dir, &resumed, &reached),
                     STATUS_USER);
    expect_message(f, "was saved with optimizer `adamw`, and this executable has `sgd`");
    m->instrs[0].kernel = PLAN_KERNEL_adamw;
    m->states[5].kind = PLAN_STATE_ACC;
    assert_int_equal(rt_checkpoint_resume(f->s, NULL, &m->plan, m->arena, dir, &resumed, &reached),
                     STATUS_USER);
    expect_message(f, "`exp_avg_sq.model.layers.0.proj.weight` belongs to no trained weight");
    m->states[5].kind = PLAN_STATE_MOMENT2;
    m->states[5].dtype = DTYPE_BF16;
    assert_int_equal(rt_checkpoint_resume(f->s, NULL, &m->plan, m->arena, dir, &resumed, &reached),
                     STATUS_USER);
    expect_message(f, "is F32 [4, 4], but this executable has BF16 [4, 4]");
    m->states[5].dtype = DTYPE_F32;
    m->states[0].dtype = DTYPE_BF16; /* of another precision: no conversion on resume */
    assert_int_equal(rt_checkpoint_resume(f->s, NULL, &m->plan, m->arena, dir, &resumed, &reached),
                     STATUS_USER);
    expect_message(f, "field `dtype`: F32 cannot be restored to bf16");
    m->states[0].dtype = DTYPE_F32;
    put_file(trainer, "{\"format\": 1, \"step\": -1}", 24);
    assert_int_equal(rt_checkpoint_resume(f->s, NULL, &m->plan, m->arena, dir, &resumed, &reached),
                     STATUS_USER);
    put_file(trainer, "{\"format\": 1}", 13);
    assert_int_equal(rt_checkpoint_resume(f->s, NULL, &m->plan, m->arena, dir, &resumed, &reached),
                     STATUS_USER);
    expect_message(f, "malformed training state: key `model` is missing");
    unlink(trainer);
    assert_int_equal(rt_checkpoint_resume(f->s, NULL, &m->plan, m->arena, dir, &resumed, &reached),
                     STATUS_ENV);
    expect_message(f, "cannot resume from");
    put_file(in(f, "file"), "", 0);
    assert_int_equal(rt_checkpoint_check(f->s, in(f, "file")), STATUS_ENV);
    assert_int_equal(
        rt_checkpoint_save(f->s, NULL, &m->plan, m->arena, &weights, &at, in(f, "file/x")),
        STATUS_ENV);
    free(m);
    end(f);
}

static void test_dump(void **state)
{
    (void)state;
    Fixture *f = begin();
    Model *m = toy("model.");
    RtTensorFile file;
    float grad[4][6];
    for (int i = 0; i < 24; i++)
        grad[i / 6][i % 6] = (float)i;
    uint64_t at = take(m, sizeof grad);
    memcpy(m->arena + at, grad, sizeof grad);
    m->grads[0] =
        (PlanGrad){.state = 1, .layout = 1,
                   .tensor = {.offset = at, .numel = 16, .run = 4, .pitch = 6, .dtype = DTYPE_F32}};
    m->grads[1] = (PlanGrad){.state = 0, .tensor = {.offset = PLAN_ABSENT}};
    m->plan.n_grads = 2;
    m->kept[0] = (PlanKept){.tensor = {.offset = at,
                                       .numel = 24,
                                       .run = 24,
                                       .pitch = 24,
                                       .dtype = DTYPE_F32,
                                       .name = text(m, "%m0/h")},
                            .rank = 1,
                            .dim = {24}};
    m->plan.n_kept = 1;
    assert_int_equal(rt_dump_grads(f->s, NULL, &m->plan, m->arena, NULL, in(f, "g.safetensors")),
                     STATUS_OK);
    assert_int_equal(rt_tensors_open(f->s, in(f, "g.safetensors"), &file), STATUS_OK);
    assert_int_equal(file.n_tensors, 1);
    const RtFileTensor *tensor = rt_tensors_find(f->s, &file, "model.layers.0.proj.weight");
    for (int i = 0; i < 4; i++)
        assert_memory_equal(tensor->data + i * 16, grad[i], 16);
    rt_tensors_close(&file);
    assert_int_equal(rt_dump_values(f->s, &m->plan, m->arena, in(f, "v.safetensors")), STATUS_OK);
    assert_int_equal(rt_tensors_open(f->s, in(f, "v.safetensors"), &file), STATUS_OK);
    assert_memory_equal(rt_tensors_find(f->s, &file, "m0/h")->data, grad, sizeof grad);
    rt_tensors_close(&file);
    free(m);
    end(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_malformed),   cmocka_unit_test(test_header_length),
        cmocka_unit_test(test_every_fault), cmocka_unit_test(test_write_read),
        cmocka_unit_test(test_shards),      cmocka_unit_test(test_convert),
        cmocka_unit_test(test_prefixes),    cmocka_unit_test(test_tied),
        cmocka_unit_test(test_untied_plan), cmocka_unit_test(test_all_problems),
        cmocka_unit_test(test_init),        cmocka_unit_test(test_normal),
        cmocka_unit_test(test_save_resume), cmocka_unit_test(test_resume_errors),
        cmocka_unit_test(test_dump),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
