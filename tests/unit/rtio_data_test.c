/* What a step reads: batch files, token streams, text, mock. */
#include "tests/unit/rtio_support.h"

#include "runtime/data.h"
#include "runtime/safetensors.h"

static Model *reader(int64_t micro_batches, int64_t batch, int64_t seq, int n_inputs)
{
    static const char *const names[] = {"input_ids", "targets", "positions", "segments", "keep"};
    Model *m = model_new(micro_batches, batch, seq);
    for (int i = 0; i < n_inputs; i++) {
        PlanInput *input = &m->inputs[m->plan.n_inputs++];
        *input = (PlanInput){
            .name = text(m, names[i]), .dtype = DTYPE_I32, .rank = 2, .dim = {batch, seq}};
        input->stride_bytes = (uint32_t)(batch * seq * 4 + 60) / 64 * 64 + 64;
        input->offset = take(m, (uint64_t)input->stride_bytes * (uint64_t)micro_batches);
    }
    m->tensors[1].offset = PLAN_ABSENT;
    m->tensors[PLAN_T_embed_ids].offset = m->inputs[0].offset;
    m->params[PLAN_embed_rows].i = 300;
    m->instrs[0] = (PlanInstr){.kernel = PLAN_KERNEL_embed, .n_tensors = 3};
    m->params[16 + PLAN_lm_loss_vocab].i = 300;
    m->params[16 + PLAN_lm_loss_ignore].i = -100;
    m->instrs[1] = (PlanInstr){.kernel = PLAN_KERNEL_lm_loss, .first_param = 16};
    m->plan.n_instrs = 2;
    return m;
}

static const int32_t *row(Model *m, int input, int64_t micro_batch, int64_t r)
{
    return (const int32_t *)(const void *)(m->arena + m->inputs[input].offset +
                                           (uint64_t)micro_batch * m->inputs[input].stride_bytes) +
           r * m->header.seq;
}

static void expect_row(const int32_t *got, int n, const int32_t *want)
{
    for (int t = 0; t < n; t++)
        assert_int_equal(got[t], want[t]);
}

#define ROW(...) ((const int32_t[]){__VA_ARGS__})

static Status open_batch(Fixture *f, Model *m, const RtOutTensor *out, uint32_t n, bool eval,
                         RtData **data)
{
    const char *path = in(f, "batch.safetensors");
    assert_int_equal(rt_tensors_write(f->s, path, out, n), STATUS_OK);
    return rt_data_open(f->s, &m->plan, &(RtDataOptions){.batch = path, .eval = eval}, data);
}

static void test_batch(void **state)
{
    (void)state;
    Fixture *f = begin();
    Model *m = reader(2, 1, 4, 5);
    RtData *data;
    int64_t ids[8] = {1, 2, 3, 4, 5, 6, 7, 8}, labels[8] = {1, 2, -100, 4, 5, 6, 7, 8};
    int32_t segments[8] = {0, 0, 1, 1, 2, 2, 2, 2};
    unsigned char mask[8] = {1, 1, 1, 0, 1, 1, 1, 1};
    RtOutTensor out[5] = {rt_out_tensor("input_ids", DTYPE_I64, 2, (int64_t[]){2, 4}, ids),
                          rt_out_tensor("labels", DTYPE_I64, 2, (int64_t[]){2, 4}, labels),
                          rt_out_tensor("segments", DTYPE_I32, 2, (int64_t[]){2, 4}, segments),
                          rt_out_tensor("attention_mask", DTYPE_BOOL, 2, (int64_t[]){2, 4}, mask),
                          rt_out_tensor("pixel_values", DTYPE_F32, 1, (int64_t[]){2}, ids)};
    assert_int_equal(open_batch(f, m, out, 5, false, &data), STATUS_OK);
    expect_record(f, "batch_unread", "`pixel_values`");
    for (int step = 0; step < 2; step++) {
        memset(m->arena, 0xee, sizeof m->arena);
        assert_int_equal(rt_data_next(data, m->arena), STATUS_OK);
        expect_row(row(m, 0, 0, 0), 4, ROW(1, 2, 3, 4));
        expect_row(row(m, 0, 1, 0), 4, ROW(5, 6, 7, 8));
        expect_row(row(m, 1, 0, 0), 4, ROW(2, -100, 4, -100));
        expect_row(row(m, 1, 1, 0), 4, ROW(6, 7, 8, -100));
        expect_row(row(m, 2, 0, 0), 4, ROW(0, 1, 0, 1));
        expect_row(row(m, 2, 1, 0), 4, ROW(0, 1, 2, 3));
        expect_row(row(m, 3, 0, 0), 4, ROW(0, 0, 1, 1));
        expect_row(row(m, 4, 0, 0), 4, ROW(1, 1, 1, 0));
        assert_int_equal(rt_data_targets(data), 5);
    }
    assert_int_equal(rt_data_position(data), 4);
    rt_data_close(data);
    out[1].name = "targets";
    assert_int_equal(open_batch(f, m, out, 2, false, &data), STATUS_OK);
    assert_int_equal(rt_data_next(data, m->arena), STATUS_OK);
    expect_row(row(m, 1, 0, 0), 4, ROW(1, 2, -100, 4));
    expect_row(row(m, 4, 0, 0), 4, ROW(1, 1, 1, 1));
    rt_data_close(data);
    labels[2] = 0; /* a label of the vocabulary, 0 too, can be the one that is ignored */
    const char *path = in(f, "batch.safetensors");
    RtDataOptions options = {.batch = path, .ignore_index = &labels[2]};
    assert_int_equal(rt_tensors_write(f->s, path, out, 2), STATUS_OK);
    assert_int_equal(rt_data_open(f->s, &m->plan, &options, &data), STATUS_OK);
    assert_int_equal(rt_data_next(data, m->arena), STATUS_OK);
    expect_row(row(m, 1, 0, 0), 4, ROW(1, 2, -100, 4));
    assert_int_equal(rt_data_targets(data), 7);
    rt_data_close(data);
    free(m);
    end(f);
}

static void test_batch_errors(void **state)
{
    (void)state;
    Fixture *f = begin();
    Model *m = reader(2, 1, 4, 2);
    RtData *data;
    int64_t ids[16] = {0}, labels[16] = {0}, mask[16];
    for (int i = 0; i < 16; i++)
        mask[i] = 1;
    int64_t shape[2] = {2, 4}, wide[2] = {2, 8}, tall[2] = {4, 4};
    RtOutTensor out[3] = {rt_out_tensor("input_ids", DTYPE_I64, 2, shape, ids),
                          rt_out_tensor("labels", DTYPE_I64, 2, shape, labels),
                          rt_out_tensor("attention_mask", DTYPE_I64, 2, shape, mask)};
    assert_int_equal(open_batch(f, m, out, 3, false, &data),
                     STATUS_OK); /* a mask of ones is no mask */
    mask[6] = 0;
    assert_int_equal(open_batch(f, m, out, 3, false, &data), STATUS_USER);
    expect_message(
        f, "`attention_mask`, row 1, column 2, is 0; it must be 1: the model has no input `keep`");
    ids[5] = 300;
    assert_int_equal(open_batch(f, m, out, 2, false, &data), STATUS_USER);
    expect_message(f,
                   "batch tensor `input_ids`, row 1, column 1, is 300; it must be from 0 to 299");
    ids[5] = 0;
    labels[7] = -1;
    assert_int_equal(open_batch(f, m, out, 2, false, &data), STATUS_USER);
    expect_message(
        f,
        "`labels`, row 1, column 3, is -1; it must be from 0 to 299, or -100 where it is ignored");
    assert_int_equal(open_batch(f, m, out, 1, false, &data), STATUS_USER);
    expect_message(f, "neither `labels`");
    out[0] = rt_out_tensor("input_ids", DTYPE_I64, 2, wide, ids);
    assert_int_equal(open_batch(f, m, out, 2, false, &data), STATUS_USER);
    expect_message(f, "shape is [2, 8], but the plan was built for seq 4");
    out[0] = rt_out_tensor("input_ids", DTYPE_I64, 2, tall, ids);
    assert_int_equal(open_batch(f, m, out, 2, false, &data), STATUS_USER);
    expect_message(f, "shape is [2, 4], but `input_ids` has 4 rows");
    labels[7] = 0;
    out[1] = rt_out_tensor("labels", DTYPE_I64, 2, tall, labels);
    assert_int_equal(open_batch(f, m, out, 2, false, &data), STATUS_USER);
    expect_message(f, "has 4 rows, but a step takes 2: 2 micro-batches of 1");
    out[0] = rt_out_tensor("input_ids", DTYPE_F32, 2, shape, ids);
    assert_int_equal(open_batch(f, m, out, 2, false, &data), STATUS_USER);
    expect_message(f, "dtype is F32");
    free(m);
    end(f);
}

static Status open_path(Fixture *f, Model *m, const char *path, bool eval, RtData **data)
{
    return rt_data_open(f->s, &m->plan, &(RtDataOptions){.path = path, .eval = eval}, data);
}

static void test_streams(void **state)
{
    (void)state;
    Fixture *f = begin();
    Model *m = reader(1, 2, 4, 3);
    RtData *data;
    uint16_t raw[14];
    uint32_t header[256] = {20240520, 1, 14};
    unsigned char file[1024 + sizeof raw];
    for (int i = 0; i < 14; i++)
        raw[i] = (uint16_t)(i + 100);
    memcpy(file, header, 1024);
    memcpy(file + 1024, raw, sizeof raw);
    put_file(in(f, "raw.bin"), raw, sizeof raw);
    put_file(in(f, "llmc.bin"), file, sizeof file);
    for (int k = 0; k < 2; k++) { /* 14 tokens: 3 windows of 4, the 14th is not read */
        assert_int_equal(open_path(f, m, in(f, k ? "raw.bin" : "llmc.bin"), false, &data),
                         STATUS_OK);
        assert_int_equal(rt_data_next(data, m->arena), STATUS_OK);
        expect_row(row(m, 0, 0, 0), 4, ROW(100, 101, 102, 103));
        expect_row(row(m, 1, 0, 0), 4, ROW(101, 102, 103, 104));
        expect_row(row(m, 0, 0, 1), 4, ROW(104, 105, 106, 107));
        expect_row(row(m, 2, 0, 1), 4, ROW(0, 1, 2, 3));
        assert_int_equal(rt_data_next(data, m->arena), STATUS_OK);
        expect_row(row(m, 0, 0, 0), 4, ROW(108, 109, 110, 111));
        expect_row(row(m, 1, 0, 0), 4, ROW(109, 110, 111, 112));
        expect_row(row(m, 0, 0, 1), 4, ROW(100, 101, 102, 103));
        rt_data_seek(data, 1);
        assert_int_equal(rt_data_next(data, m->arena), STATUS_OK);
        expect_row(row(m, 0, 0, 0), 4, ROW(104, 105, 106, 107));
        assert_int_equal(rt_data_position(data), 3);
        rt_data_close(data);
    }
    assert_int_equal(open_path(f, m, in(f, "raw.bin"), true, &data),
                     STATUS_OK); /* eval: 3 windows in 2 batches */
    assert_int_equal(rt_data_batches(data), 2);
    assert_int_equal(rt_data_next(data, m->arena), STATUS_OK);
    assert_int_equal(rt_data_targets(data), 8);
    assert_int_equal(rt_data_next(data, m->arena), STATUS_OK);
    assert_int_equal(rt_data_targets(data), 4);
    expect_row(row(m, 1, 0, 1), 4, ROW(-100, -100, -100, -100));
    rt_data_close(data);
    raw[6] = 300;
    put_file(in(f, "raw.bin"), raw, sizeof raw);
    assert_int_equal(open_path(f, m, in(f, "raw.bin"), false, &data), STATUS_OK);
    assert_int_equal(rt_data_next(data, m->arena), STATUS_USER);
    expect_message(f, "token 6 is 300, and the vocabulary has 300");
    rt_data_close(data);
    file[4] = 9;
    put_file(in(f, "llmc.bin"), file, sizeof file);
    assert_int_equal(open_path(f, m, in(f, "llmc.bin"), false, &data), STATUS_USER);
    expect_message(f, "header field `version` is 9; it must be 1");
    file[4] = 1;
    file[8] = 15;
    put_file(in(f, "llmc.bin"), file, sizeof file);
    assert_int_equal(open_path(f, m, in(f, "llmc.bin"), false, &data), STATUS_USER);
    expect_message(f, "header field `ntok` is 15, but 28 bytes follow it");
    put_file(in(f, "odd.bin"), raw, 7);
    assert_int_equal(open_path(f, m, in(f, "odd.bin"), false, &data), STATUS_USER);
    put_file(in(f, "few.bin"), raw, 8);
    assert_int_equal(open_path(f, m, in(f, "few.bin"), false, &data), STATUS_USER);
    expect_message(f, "has 4 tokens; one sample of seq 4 needs 5");
    assert_int_equal(open_path(f, m, in(f, "gone.bin"), false, &data), STATUS_ENV);
    free(m);
    end(f);
}

static size_t npy(unsigned char *to, const char *fields, const void *data, size_t bytes)
{
    size_t n = strlen(fields);
    memcpy(to, "\x93NUMPY\1\0", 8);
    to[8] = (unsigned char)n;
    to[9] = 0;
    memcpy(to + 10, fields, n);
    memcpy(to + 10 + n, data, bytes);
    return 10 + n + bytes;
}

static void test_npy_text_mock(void **state)
{
    (void)state;
    Fixture *f = begin();
    Model *m = reader(1, 1, 4, 2);
    RtData *data;
    unsigned char file[512];
    const int64_t wide[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    const int32_t narrow[8] = {1, 2, 3, 4, 5, 6, 7, -8};
    static const struct {
        const char *fields, *message;
    } bad[] = {
        {"{'descr': '>i8', 'fortran_order': False, 'shape': (10,), }\n",
         "field `descr` is '>i8'; tokens"},
        {"{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (10,), }\n",
         "field `descr` is [('a', '<i4')]; tokens"},
        {"{'descr': '<f", "field `descr` is '<f; tokens"},
        {"{'descr': '<i8', 'fortran_order': True, 'shape': (10,), }\n", "field `fortran_order`"},
        {"{'descr': '<i8', 'fortran_order': False, 'shape': (11,), }\n",
         "field `shape` does not make the 80 bytes"},
        {"{'descr': '<i8', 'fortran_order': False, 'shape': (1, 2, 5), }\n",
         "field `shape` must be"},
        {"{'descr': '<i8', 'fortran_order': False, 'shape': (5, 2), }\n", "rows of 2 tokens"},
        {"{'descr': '<i8', 'fortran_order': False, 'shape': (10", "field `shape` must be"},
        {"{'descr': '<i8', 'fortran_order': False, 'shape': (4294967296, 4294967296), }\n",
         "field `shape`"},
    };
    put_file(in(f, "a.npy"), file,
             npy(file, "{'descr': '<i8', 'fortran_order': False, 'shape': (10,), }\n", wide, 80));
    assert_int_equal(open_path(f, m, in(f, "a.npy"), false, &data), STATUS_OK);
    rt_data_seek(data, 1);
    assert_int_equal(rt_data_next(data, m->arena), STATUS_OK);
    expect_row(row(m, 1, 0, 0), 4, ROW(6, 7, 8, 9));
    rt_data_close(data);
    put_file(in(f, "b.npy"), file,
             npy(file, "{'descr': '<i8', 'fortran_order': False, 'shape': (2, 5), }\n", wide, 80));
    assert_int_equal(open_path(f, m, in(f, "b.npy"), false, &data), STATUS_OK);
    rt_data_seek(data, 1);
    assert_int_equal(rt_data_next(data, m->arena), STATUS_OK);
    expect_row(row(m, 0, 0, 0), 4, ROW(6, 7, 8, 9));
    expect_row(row(m, 1, 0, 0), 4, ROW(7, 8, 9, 10));
    rt_data_close(data);
    put_file(
        in(f, "c.npy"), file,
        npy(file, "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 4), }\n", narrow, 32));
    assert_int_equal(open_path(f, m, in(f, "c.npy"), false, &data), STATUS_OK);
    assert_int_equal(rt_data_next(data, m->arena), STATUS_OK);
    expect_row(row(m, 1, 0, 0), 4, ROW(2, 3, 4, -100));
    assert_int_equal(rt_data_next(data, m->arena), STATUS_USER);
    expect_message(f, "token 7 is -8");
    rt_data_close(data);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_file(in(f, "d.npy"), file, npy(file, bad[i].fields, wide, i == 5 ? 0 : 80));
        assert_int_equal(open_path(f, m, in(f, "d.npy"), false, &data), STATUS_USER);
        expect_message(f, bad[i].message);
    }
    put_file(in(f, "e.npy"), "\x93NUMPY\1\0\xff\xff{}", 12);
    assert_int_equal(open_path(f, m, in(f, "e.npy"), false, &data), STATUS_USER);
    put_file(in(f, "t.txt"), "hello\xff", 6);
    assert_int_equal(open_path(f, m, in(f, "t.txt"), false, &data), STATUS_OK);
    assert_int_equal(rt_data_next(data, m->arena), STATUS_OK);
    expect_row(row(m, 0, 0, 0), 4, ROW('h', 'e', 'l', 'l'));
    rt_data_close(data);
    put_file(in(f, "x.parquet"), "PAR1\0\0\0\0\0", 9);
    assert_int_equal(open_path(f, m, in(f, "x.parquet"), false, &data), STATUS_USER);
    int32_t first[4];
    for (int k = 0; k < 2; k++) {
        assert_int_equal(open_path(f, m, NULL, false, &data), STATUS_OK);
        assert_int_equal(rt_data_next(data, m->arena), STATUS_OK);
        if (k)
            expect_row(row(m, 0, 0, 0), 4, first);
        memcpy(first, row(m, 0, 0, 0), sizeof first);
        expect_row(row(m, 1, 0, 0), 3, first + 1);
        assert_int_equal(rt_data_next(data, m->arena), STATUS_OK);
        assert_memory_not_equal(row(m, 0, 0, 0), first, sizeof first);
        rt_data_close(data);
    }
    m->params[PLAN_embed_rows].i = 255;
    assert_int_equal(open_path(f, m, in(f, "t.txt"), false, &data), STATUS_USER);
    expect_message(f, "need a vocabulary of 256; the model's has 255");
    free(m);
    end(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batch),
        cmocka_unit_test(test_batch_errors),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_npy_text_mock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
