/* The step executable's runtime over a hand-made plan: validation, pool, executor, --check. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/dtype.h"
#include "runtime/log.h"
#include "runtime/rt.h"
#include "tests/unit/heard.h"

/* -- allocations, counted -- */

#if defined(__SANITIZE_ADDRESS__)
static uint64_t allocations(void)
{
    return 0;
}
#else
static _Atomic uint64_t n_allocations;

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
void *malloc(size_t size);
void *calloc(size_t n, size_t size);
void *realloc(void *memory, size_t size);

void *malloc(size_t size)
{
    n_allocations++;
    return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    n_allocations++;
    return __libc_calloc(n, size);
}

void *realloc(void *memory, size_t size)
{
    n_allocations++;
    return __libc_realloc(memory, size);
}

static uint64_t allocations(void)
{
    return n_allocations;
}
#endif

/* -- a plan by hand --
 * x = w (forward), w.acc = x (backward), column sums of a fused region, then the update's counters.
 */

enum { WIDTH = 64, ROWS = 64, ROWS_PER_CHUNK = 10, COLUMNS = 5000, CHUNKS = 7 };
/* Offsets of the scalars, */
enum { AT_LR = 0, AT_COEF = 4, AT_STEP = 8, AT_SEED = 16, AT_COUNT = 24, AT_LOSS = 32 };
enum { AT_NORM = 40, AT_SKIPPED = 48, AT_SAMPLE0 = 56, AT_INVERSE = 64, AT_LOSS_SUM = 72 };
/* and of the rest. */
enum { AT_EVAL_SUM = 80, AT_W = 1024, AT_ACC = 2048, AT_X = 3072, AT_INPUT = 4096 };
enum { AT_SUMS = 8192, AT_WORK = 65536, ARENA = 262144 };

typedef struct TestPlan {
    PlanHeader header;
    PlanInstr instrs[4], eval_instrs[1];
    PlanTensor tensors[9];
    PlanParam params[4];
    PlanRange deaths[2];
    PlanState states[2];
    PlanInput inputs[1];
    PlanKept kept[1];
    PlanGrad grads[1];
    PlanOutside outside[1];
    char strings[1024];
    uint32_t n_strings;
} TestPlan;

static const char settings_json[] =
    "{\"recipe\": \"t.yaml\", \"seed\": 7, \"max_steps\": 4, \"num_epochs\": null, "
    "\"ckpt_every_steps\": 0, "
    "\"val_every_steps\": 0, \"save_dir\": null, \"weights_dir\": null, \"max_skips\": 10, "
    "\"max_norm\": 1.0, "
    "\"data\": {\"path\": null, \"eval_path\": null, \"dataset\": null, \"seed\": 3}, "
    "\"labels\": {\"ignore_index\": -100}, "
    "\"lr\": {\"style\": \"cosine\", \"max\": 0.001, \"min\": 0.0001, \"init\": 0, "
    "\"warmup_steps\": null, "
    "\"decay_steps\": 100, \"wsd_decay_steps\": null, \"wsd_style\": \"linear\"}, "
    "\"optimizer\": {\"name\": \"adamw\"}}";

static uint32_t text(TestPlan *p, const char *value)
{
    uint32_t at = p->n_strings, length = (uint32_t)strlen(value) + 1;
    assert_true(at + length <= sizeof p->strings);
    memcpy(p->strings + at, value, length);
    p->n_strings += length;
    return at;
}

static PlanTensor dense(uint64_t offset, int64_t numel, DType dtype, uint32_t name)
{
    return (PlanTensor){.offset = offset,
                        .numel = numel,
                        .run = numel,
                        .pitch = numel,
                        .dtype = dtype,
                        .name = name};
}

static PlanTable table(const TestPlan *p, const void *at, uint64_t count)
{
    return (PlanTable){(uint64_t)((const char *)at - (const char *)p), count};
}

static void seal(TestPlan *p)
{
    const unsigned char *bytes = (const void *)p;
    p->header.hash = map_hash(bytes + sizeof p->header, sizeof *p - sizeof p->header, 0);
}

static void fill_instrs(TestPlan *p)
{
    uint32_t file = text(p, "t.model");
    const PlanInstr common = {.file = file, .workspace = PLAN_ABSENT};
    for (int i = 0; i < 4; i++)
        p->instrs[i] = common;
    p->instrs[0].kernel = PLAN_KERNEL_concat;
    p->instrs[0].n_tensors = 2;
    p->instrs[0].n_params = PLAN_concat_PARAMS;
    p->instrs[0].phase = PLAN_FWD;
    p->instrs[0].name = text(p, "layer %x");
    p->instrs[0].line = 11;
    p->instrs[1].kernel = PLAN_KERNEL_accumulate;
    p->instrs[1].first_tensor = 2;
    p->instrs[1].n_tensors = 2;
    p->instrs[1].first_param = 3;
    p->instrs[1].n_params = PLAN_accumulate_PARAMS;
    p->instrs[1].n_deaths = 1;
    p->instrs[1].phase = PLAN_BWD;
    p->instrs[1].name = text(p, "accumulate $w.acc");
    p->instrs[1].line = 12;
    p->instrs[2].kernel = PLAN_KERNEL_fused;
    p->instrs[2].first_tensor = 7;
    p->instrs[2].n_tensors = 1;
    p->instrs[2].workspace = AT_WORK;
    p->instrs[2].workspace_bytes = CHUNKS * COLUMNS * 4;
    p->instrs[2].phase = PLAN_BWD;
    p->instrs[2].name = text(p, "sums");
    p->instrs[3].kernel = PLAN_KERNEL_advance;
    p->instrs[3].first_tensor = 4;
    p->instrs[3].n_tensors = 3;
    p->instrs[3].phase = PLAN_UPDATE;
    p->instrs[3].name = text(p, "advance");
    p->params[0].i = 1; /* concat: rows, width, n */
    p->params[1].i = WIDTH;
    p->params[2].i = 1;
    p->params[3].i = 1; /* accumulate: first */
    p->eval_instrs[0] = p->instrs[0];
    p->eval_instrs[0].phase = PLAN_EVAL;
}

static void fill_tensors(TestPlan *p)
{
    uint32_t x = text(p, "%x"), w = text(p, "$w"), acc = text(p, "$w.acc"),
             name = text(p, "$counter");
    p->tensors[0] = dense(AT_X, WIDTH, DTYPE_F32, x);
    p->tensors[1] = dense(AT_W, WIDTH, DTYPE_F32, w);
    p->tensors[2] = dense(AT_ACC, WIDTH, DTYPE_F32, acc);
    p->tensors[3] = dense(AT_X, WIDTH, DTYPE_F32, x);
    p->tensors[4] = dense(AT_STEP, 1, DTYPE_I64, name);
    p->tensors[5] = dense(AT_SKIPPED, 1, DTYPE_I64, name);
    p->tensors[6] = dense(AT_COEF, 1, DTYPE_F32, name);
    p->tensors[7] = dense(AT_SUMS, COLUMNS, DTYPE_F32, name);
    p->tensors[8] = dense(AT_W, WIDTH / 2, DTYPE_F32,
                          w); /* a view of every other pair, which no instruction reads */
    p->tensors[8].run = 2;
    p->tensors[8].pitch = 4;
    p->deaths[0] = (PlanRange){AT_X, WIDTH * 4, DTYPE_F32, x};
    p->deaths[1] = (PlanRange){AT_SUMS, COLUMNS * 4, DTYPE_F32, name};
    p->states[0] = (PlanState){.name = text(p, "w"),
                               .kind = PLAN_STATE_PARAM,
                               .dtype = DTYPE_F32,
                               .rank = 2,
                               .dim = {8, 8},
                               .offset = AT_W,
                               .bytes = WIDTH * 4,
                               .trainable = 1};
    p->states[1] = (PlanState){.name = text(p, "w.acc"),
                               .kind = PLAN_STATE_ACC,
                               .dtype = DTYPE_F32,
                               .rank = 2,
                               .dim = {8, 8},
                               .offset = AT_ACC,
                               .bytes = WIDTH * 4};
    p->inputs[0] = (PlanInput){.name = text(p, "input_ids"),
                               .dtype = DTYPE_I32,
                               .rank = 2,
                               .stride_bytes = 64,
                               .dim = {1, 4},
                               .offset = AT_INPUT,
                               .eval = 1};
    p->kept[0] = (PlanKept){.tensor = p->tensors[0], .rank = 1, .dim = {WIDTH}};
    p->grads[0] = (PlanGrad){.state = 0, .tensor = p->tensors[2]};
    p->outside[0] = (PlanOutside){.name = text(p, "worker scratch"), .bytes = 4096};
}

static void fill_header(TestPlan *p)
{
    p->header = (PlanHeader){
        .magic = PLAN_MAGIC,
        .version = PLAN_VERSION,
        .total_bytes = sizeof *p,
        .arena_bytes = ARENA,
        .micro_batches = 2,
        .batch = 1,
        .seq = 4,
        .flops_per_step = 1000,
        .thread_scratch_bytes = 100,
        .model = text(p, "tiny"),
        .model_config = text(p, "{}"),
        .settings = text(p, settings_json),
        .report = text(p, "{}"),
        .scalars = {AT_LR, AT_STEP, AT_SEED, AT_COUNT, AT_INVERSE, AT_LOSS_SUM, AT_LOSS, AT_NORM,
                    AT_COEF, AT_SKIPPED, AT_EVAL_SUM, AT_SAMPLE0},
        .instrs = table(p, p->instrs, 4),
        .eval_instrs = table(p, p->eval_instrs, 1),
        .tensors = table(p, p->tensors, 9),
        .params = table(p, p->params, 4),
        .deaths = table(p, p->deaths, 2),
        .states = table(p, p->states, 2),
        .inputs = table(p, p->inputs, 1),
        .kept = table(p, p->kept, 1),
        .grads = table(p, p->grads, 1),
        .outside = table(p, p->outside, 1),
        .strings = table(p, p->strings, sizeof p->strings),
    };
}

static TestPlan *test_plan(void)
{
    TestPlan *p = calloc(1, sizeof *p);
    text(p, "");
    fill_instrs(p);
    fill_tensors(p);
    fill_header(p);
    seal(p);
    return p;
}

/* -- kernels by hand -- */

static uint64_t concat_chunks(const RtCall *call, uint32_t phase)
{
    (void)phase;
    return (uint64_t)call->tensor[0].numel / 4;
}

static void concat_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    (void)phase;
    memcpy(scratch, (const float *)call->at[1] + chunk * 4, 16);
    memcpy((float *)call->at[0] + chunk * 4, scratch, 16);
}

static void accumulate_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    (void)phase;
    (void)chunk;
    (void)scratch;
    memcpy(call->at[0], call->at[1], (size_t)call->tensor[0].numel * 4);
}

static void advance_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    (void)phase;
    (void)chunk;
    (void)scratch;
    *(float *)call->at[2] = 1;
    ++*(int64_t *)call->at[0];
}

static void fault_run(const RtCall *call, uint32_t phase, uint64_t chunk, void *scratch)
{
    (void)phase;
    (void)scratch;
    if (chunk % 3 == 0)
        rt_fault_raise(call->fault, "id %d outside the table", 99);
}

static void sum_rows(void *const *tensors, int64_t row, int64_t row_end, void *partials,
                     const int64_t *random, const PlanParam *params)
{
    (void)tensors;
    (void)params;
    float *sums = partials;
    memset(sums, 0, COLUMNS * sizeof *sums);
    for (; row < row_end; row++)
        for (int64_t c = 0; c < COLUMNS; c++)
            sums[c] += (float)(c % 7 + random[1]);
}

static void sum_columns(void *const *tensors, int64_t col, int64_t col_end, const void *workspace,
                        int64_t n_chunks)
{
    float *out = tensors[0];
    const float *partials = workspace;
    for (; col < col_end; col++) {
        out[col] = 0;
        for (int64_t chunk = 0; chunk < n_chunks; chunk++)
            out[col] += partials[chunk * COLUMNS + col];
    }
}

static const StepKernel native = {
    .name = "sums",
    .rows_fn = sum_rows,
    .cols_fn = sum_columns,
    .rows = ROWS,
    .rows_per_chunk = ROWS_PER_CHUNK,
    .cols = COLUMNS,
    .partial_bytes = COLUMNS * 4,
};

static void kernel_table(RtKernel table[PLAN_KERNEL_COUNT])
{
    memset(table, 0, PLAN_KERNEL_COUNT * sizeof *table);
    table[PLAN_KERNEL_concat] = (RtKernel){"concat", NULL, concat_chunks, concat_run};
    table[PLAN_KERNEL_accumulate] = (RtKernel){"accumulate", NULL, NULL, accumulate_run};
    table[PLAN_KERNEL_advance] = (RtKernel){"advance", NULL, NULL, advance_run};
    table[PLAN_KERNEL_fused] = rt_kernel_fused;
}

static StepProgram program_of(const TestPlan *p)
{
    return (StepProgram){.plan = p, .plan_bytes = sizeof *p, .kernels = &native, .n_kernels = 1};
}

static Rt *open_rt(Session *s, const StepProgram *program, uint32_t threads, bool check)
{
    RtKernel kernels[PLAN_KERNEL_COUNT];
    kernel_table(kernels);
    Rt *rt = NULL;
    assert_int_equal(rt_open(s, program,
                             &(RtConfig){.threads = threads, .check = check, .kernels = kernels},
                             &rt),
                     STATUS_OK);
    return rt;
}

/* -- plan validation -- */

static Status map_plan(const TestPlan *p, char message[512])
{
    Heard *heard = listen();
    RtPlan plan;
    Status status = rt_plan_map(heard->s, p, sizeof *p, 1, &plan);
    snprintf(message, 512, "%s", heard_text(heard));
    assert_int_equal(heard->s->n_errors, status != STATUS_OK);
    hush(heard);
    return status;
}

static void test_plan_accepted(void **state)
{
    (void)state;
    TestPlan *p = test_plan();
    char message[512];
    assert_int_equal(map_plan(p, message), STATUS_OK);
    assert_string_equal(message, "");
    free(p);
}

#define BREAK(statement, part)                                                                     \
    do {                                                                                           \
        TestPlan *p = test_plan();                                                                 \
        char message[512];                                                                         \
        statement;                                                                                 \
        seal(p);                                                                                   \
        assert_int_equal(map_plan(p, message), STATUS_ENV);                                        \
        if (!strstr(message, part))                                                                \
            fail_msg("%s: the message is: %s", #statement, message);                               \
        free(p);                                                                                   \
    } while (0)

static void test_plan_header_faults(void **state)
{
    (void)state;
    BREAK(p->header.magic++, "does not begin as a plan");
    BREAK(p->header.version++, "version");
    BREAK(p->header.total_bytes--, "length");
    BREAK(p->header.instrs.count = UINT64_MAX / 2, "instrs");
    BREAK(p->header.tensors.offset = sizeof *p + 8, "tensors");
    BREAK(p->header.params.offset += 4, "params");
    BREAK(p->header.strings.count = 0, "strings");
    BREAK(p->strings[sizeof p->strings - 1] = 'x', "not terminated");
    BREAK(p->header.settings = sizeof p->strings, "string of its header");
    BREAK(p->header.micro_batches = 0, "batch");
    BREAK(p->header.seq = INT64_MAX, "batch");
    BREAK(p->header.scalars.loss = ARENA - 4, "scalar 6");
    BREAK(p->header.arena_bytes = UINT64_MAX, "arena");
    BREAK(p->header.arena_bytes = 4096, "outside the arena");
}

static void test_plan_hash(void **state)
{
    (void)state;
    TestPlan *p = test_plan();
    char message[512];
    p->instrs[0].line++;
    assert_int_equal(map_plan(p, message), STATUS_ENV);
    assert_non_null(strstr(message, "hash"));
    free(p);
}

static void test_plan_record_faults(void **state)
{
    (void)state;
    BREAK(p->tensors[3].offset = ARENA - 128, "tensor 3: it ends outside");
    BREAK(p->tensors[3].offset = 2, "tensor 3: it is not aligned");
    BREAK(p->tensors[8].pitch = ARENA, "tensor 8: it ends outside");
    BREAK(p->tensors[8].pitch = 1, "tensor 8: its elements");
    BREAK(p->tensors[8].run = 0, "tensor 8: its elements");
    BREAK(p->tensors[8].numel = INT64_MAX, "tensor 8");
    BREAK(p->tensors[0].dtype = DTYPE_COUNT, "tensor 0: its dtype");
    BREAK(p->tensors[0].name = UINT32_MAX, "tensor 0: its name");
    BREAK(p->deaths[1].bytes = ARENA, "death 1");
    BREAK(p->states[0].dim[1] = 9, "state 0: its size");
    BREAK(p->states[0].rank = 6, "state 0: its size");
    BREAK(p->states[1].of = 2, "state 1: its parameter");
    BREAK(p->states[1].kind = 7, "state 1: its kind");
    BREAK(p->states[1].offset = ARENA, "state 1: it ends");
    BREAK(p->inputs[0].stride_bytes = 8, "input 0: its pieces");
    BREAK(p->inputs[0].offset = ARENA - 64, "input 0: it ends");
    BREAK(p->inputs[0].dtype = DTYPE_F32, "input 0: its dtype");
    BREAK(p->kept[0].dim[0] = 3, "kept value 0");
    BREAK(p->grads[0].state = 2, "gradient 0");
    BREAK(p->grads[0].tensor.offset = PLAN_ABSENT, "gradient 0: it is not in the arena");
    BREAK(p->outside[0].name = 5000, "outside the arena 0");
}

static void test_plan_instr_faults(void **state)
{
    (void)state;
    BREAK(p->instrs[1].kernel = PLAN_KERNEL_COUNT, "instruction 1: its kernel");
    BREAK(p->instrs[2].code = 1, "instruction 2: its native code");
    BREAK(p->instrs[1].first_tensor = 8, "instruction 1: its tensors");
    BREAK(p->instrs[1].n_tensors = 1, "instruction 1: it has not as many tensors");
    BREAK(p->instrs[1].n_params = 0, "instruction 1: it has not as many parameters");
    BREAK(p->instrs[1].first_param = UINT32_MAX, "instruction 1: its parameters");
    BREAK(p->instrs[1].n_deaths = 3, "instruction 1: its deaths");
    BREAK(p->instrs[1].instance = 2, "instruction 1: its micro-batch");
    BREAK(p->instrs[1].phase = 5, "instruction 1: its phase");
    BREAK(p->instrs[1].name = 1024, "instruction 1: its name");
    BREAK(p->instrs[2].workspace = ARENA - 8, "instruction 2: its workspace ends");
    BREAK(p->instrs[0].workspace_bytes = 8, "instruction 0: its workspace ends");
    BREAK(p->eval_instrs[0].kernel = 99, "evaluation 0");
    BREAK(p->params[1].i = WIDTH + 1, "instruction 0: a tensor's size");
    BREAK(p->params[2].i = 2, "instruction 0");
    BREAK(p->params[1].i = -1, "instruction 0: a size is not positive");
    BREAK(p->tensors[2].numel = p->tensors[2].run = p->tensors[2].pitch = 32,
          "instruction 1: a tensor's size");
    BREAK(p->tensors[4].dtype = DTYPE_F64, "instruction 3: a tensor's dtype");
    BREAK(p->tensors[6].offset = PLAN_ABSENT, "instruction 3: a tensor that the kernel needs");
}

/* Random bytes anywhere: a plan is refused by one message, or it is sound. Sanitizers see reads out
 * of bounds. */
static void test_plan_mutations(void **state)
{
    (void)state;
    uint64_t random = 1;
    uint32_t refused = 0;
    for (int i = 0; i < 4000; i++) {
        TestPlan *p = test_plan();
        char message[512];
        for (int edits = i % 3 + 1; edits > 0; edits--) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            ((unsigned char *)p)[(random >> 33) % offsetof(TestPlan, strings)] =
                (unsigned char)(random >> 24);
        }
        if (i % 4)
            seal(p);
        Status status = map_plan(p, message);
        assert_true(status == STATUS_OK || status == STATUS_ENV);
        refused += status != STATUS_OK;
        free(p);
    }
    assert_true(refused > 2000);
}

static void test_plan_short(void **state)
{
    (void)state;
    TestPlan *p = test_plan();
    for (size_t n = 0; n < sizeof *p; n += n < sizeof p->header ? 1 : 97) {
        Heard *heard = listen();
        RtPlan plan;
        uint64_t *bytes = malloc(n + 8);
        memcpy(bytes, p, n);
        assert_int_equal(rt_plan_map(heard->s, bytes, n, 1, &plan), STATUS_ENV);
        assert_int_equal(heard->s->n_errors, 1);
        free(bytes);
        hush(heard);
    }
    free(p);
}

/* -- pool -- */

typedef struct Counting {
    _Atomic uint32_t hits[5000];
    _Atomic uint32_t wrong;
} Counting;

static void count_chunk(const void *context, uint32_t phase, uint64_t chunk, void *scratch)
{
    Counting *counting = (void *)(uintptr_t)context;
    uint64_t *mine = scratch; /* nobody else's: two writes with work between */
    *mine = chunk;
    counting->hits[chunk]++;
    if (*mine != chunk || phase != 3)
        counting->wrong++;
}

static void test_pool(void **state)
{
    (void)state;
    Heard *heard = listen();
    Counting *counting = calloc(1, sizeof *counting);
    for (uint32_t threads = 1; threads <= 4; threads++) {
        RtPool *pool;
        assert_int_equal(rt_pool_new(heard->s, threads, 100, &pool), STATUS_OK);
        assert_int_equal(rt_pool_threads(pool), threads);
        assert_int_equal((uintptr_t)rt_pool_scratch(pool) % 64, 0);
        const uint32_t sizes[] = {0, 1, 2, 3, 17, 5000};
        for (uint32_t round = 0; round < 300; round++) {
            uint32_t n = sizes[round % 6];
            if (round >= 60 && n == 5000)
                continue;
            memset(counting, 0, sizeof *counting);
            rt_pool_run(pool, count_chunk, counting, 3, n);
            for (uint32_t i = 0; i < 5000; i++)
                assert_int_equal(counting->hits[i], i < n);
            assert_int_equal(counting->wrong, 0);
        }
        rt_pool_free(pool);
    }
    free(counting);
    hush(heard);
}

/* -- executor -- */

static void run_steps(uint32_t threads, bool check)
{
    Heard *heard = listen();
    TestPlan *p = test_plan();
    StepProgram program = program_of(p);
    Rt *rt = open_rt(heard->s, &program, threads, check);
    assert_int_equal((uintptr_t)rt->arena.base % (2 << 20), 0);
    float *w = (void *)(rt->arena.base + AT_W), *acc = (void *)(rt->arena.base + AT_ACC);
    const float *sums = (void *)(rt->arena.base + AT_SUMS);
    for (int i = 0; i < WIDTH; i++)
        w[i] = (float)i;
    RtStepResult result;
    for (int64_t step = 1; step <= 3; step++) {
        assert_int_equal(rt_step(rt, 0.5f, NULL, NULL, &result), STATUS_OK);
        assert_int_equal(result.step, step);
        assert_int_equal(*(int64_t *)(void *)(rt->arena.base + AT_STEP), step);
        assert_int_equal(*(int64_t *)(void *)(rt->arena.base + AT_SAMPLE0), (step - 1) * 2);
        assert_false(result.skipped);
    }
    assert_true(result.lr == 0.5f && *(float *)(void *)(rt->arena.base + AT_LR) == 0.5f);
    assert_memory_equal(acc, w, WIDTH * 4);
    for (int64_t c = 0; c < COLUMNS; c++)
        assert_true(sums[c] == (float)(ROWS * (c % 7 + 7)));
    assert_int_equal(isnan(*(float *)(void *)(rt->arena.base + AT_X)) != 0, check);
    assert_string_equal(heard_text(heard), "");
    rt_close(rt, STATUS_OK);
    free(p);
    hush(heard);
}

static void test_steps(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 4; threads++) {
        run_steps(threads, false);
        run_steps(threads, true);
    }
}

static Status see_gradient(void *context)
{
    Rt *rt = context;
    const float *acc = (void *)(rt->arena.base + AT_ACC);
    assert_true(acc[5] == 5.0f);
    assert_int_equal(*(int64_t *)(void *)(rt->arena.base + AT_STEP),
                     1); /* nothing in this plan changes a parameter */
    return STATUS_OK;
}

static void test_hook_before_update(void **state)
{
    (void)state;
    Heard *heard = listen();
    TestPlan *p = test_plan();
    StepProgram program = program_of(p);
    Rt *rt = open_rt(heard->s, &program, 2, false);
    ((float *)(void *)(rt->arena.base + AT_W))[5] = 5;
    RtStepResult result;
    assert_int_equal(rt_step(rt, 0, see_gradient, rt, &result), STATUS_OK);
    assert_int_equal(*(int64_t *)(void *)(rt->arena.base + AT_STEP), 1);
    rt_close(rt, STATUS_OK);
    free(p);
    hush(heard);
}

/* A non-finite value is named where it is made, once; a state that is not finite as loaded is named
 * before. */
static void test_check_names_first(void **state)
{
    (void)state;
    Heard *heard = listen();
    TestPlan *p = test_plan();
    StepProgram program = program_of(p);
    Rt *rt = open_rt(heard->s, &program, 2, true);
    float *w = (void *)(rt->arena.base + AT_W);
    w[63] = INFINITY;
    RtStepResult result;
    assert_int_equal(rt_step(rt, 0, NULL, NULL, &result), STATUS_OK);
    assert_int_equal(rt_step(rt, 0, NULL, NULL, &result), STATUS_OK);
    assert_string_equal(heard_text(heard), "warning: check: the first non-finite value of the run: "
                                           "step 1, `layer %x` (kernel `concat`) "
                                           "made `%x` non-finite, at t.model:11\n");
    rt_check_loaded(rt);
    assert_non_null(
        strstr(heard_text(heard), "check: `w` has a non-finite value before the first step"));
    rt_close(rt, STATUS_OK);
    free(p);
    hush(heard);
}

static void test_nonfinite_scan(void **state)
{
    (void)state;
    uint16_t bf16[] = {0x3f80, 0x7f7f, 0x3f80, 0x7f80};
    PlanTensor t = dense(0, 3, DTYPE_BF16, 0);
    assert_false(rt_tensor_has_nonfinite(&t, bf16));
    t.numel = t.run = t.pitch = 4;
    assert_true(rt_tensor_has_nonfinite(&t, bf16));
    t = (PlanTensor){.numel = 2, .run = 1, .pitch = 2, .dtype = DTYPE_BF16}; /* elements 0 and 2 */
    assert_false(rt_tensor_has_nonfinite(&t, bf16));
    double f64[] = {1e308, -INFINITY};
    t = dense(0, 2, DTYPE_F64, 0);
    assert_true(rt_tensor_has_nonfinite(&t, f64));
    int32_t i32[] = {-1, 0x7f800000};
    t = dense(0, 2, DTYPE_I32, 0);
    assert_false(rt_tensor_has_nonfinite(&t, i32));
}

static void test_fault(void **state)
{
    (void)state;
    Heard *heard = listen();
    TestPlan *p = test_plan();
    StepProgram program = program_of(p);
    RtKernel kernels[PLAN_KERNEL_COUNT];
    kernel_table(kernels);
    kernels[PLAN_KERNEL_concat].run = fault_run;
    Rt *rt = NULL;
    assert_int_equal(
        rt_open(heard->s, &program, &(RtConfig){.threads = 3, .kernels = kernels}, &rt), STATUS_OK);
    RtStepResult result;
    assert_int_equal(rt_step(rt, 0, NULL, NULL, &result), STATUS_USER);
    assert_string_equal(heard_text(heard),
                        "error: step 1, `layer %x` (t.model:11): id 99 outside the table\n");
    rt_close(rt, STATUS_OK);
    free(p);
    hush(heard);
}

static void test_native_workspace(void **state)
{
    (void)state;
    Heard *heard = listen();
    TestPlan *p = test_plan();
    p->instrs[2].workspace_bytes -= 4;
    seal(p);
    StepProgram program = program_of(p);
    RtKernel kernels[PLAN_KERNEL_COUNT];
    kernel_table(kernels);
    Rt *rt = NULL;
    assert_int_equal(
        rt_open(heard->s, &program, &(RtConfig){.threads = 1, .kernels = kernels}, &rt),
        STATUS_ENV);
    assert_non_null(strstr(heard_text(heard), "instruction 2: the workspace is smaller"));
    free(p);
    hush(heard);
}

/* What the executable adds to a step: the plan without its fused region and its copies. */
static void test_step_overhead(void **state)
{
    (void)state;
    Heard *heard = listen();
    TestPlan *p = test_plan();
    p->header.instrs.offset += 3 * sizeof(PlanInstr);
    p->header.instrs.count = 1;
    seal(p);
    StepProgram program = program_of(p);
    Rt *rt = open_rt(heard->s, &program, 2, false);
    RtLog log = {.s = heard->s, .out = -1, .fd = -1, .tokens = 8, .arena_bytes = ARENA};
    RtStepResult result;
    assert_int_equal(rt_step(rt, 0, NULL, NULL, &result), STATUS_OK);
    int64_t best = INT64_MAX;
    uint64_t before = allocations();
    for (int round = 0; round < 200; round++) {
        int64_t begin = rt_clock_ns();
        rt_step(rt, 1e-3f, NULL, NULL, &result);
        rt_log_step(&log, &result, 1e-3);
        int64_t took = rt_clock_ns() - begin;
        best = took < best ? took : best;
    }
    assert_int_equal(allocations() - before, 0);
    print_message("empty step: %.2f us\n", (double)best / 1e3);
    assert_true(best < 50000);
    rt_close(rt, STATUS_OK);
    free(p);
    hush(heard);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_accepted),
        cmocka_unit_test(test_plan_header_faults),
        cmocka_unit_test(test_plan_hash),
        cmocka_unit_test(test_plan_record_faults),
        cmocka_unit_test(test_plan_instr_faults),
        cmocka_unit_test(test_plan_mutations),
        cmocka_unit_test(test_plan_short),
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_hook_before_update),
        cmocka_unit_test(test_check_names_first),
        cmocka_unit_test(test_nonfinite_scan),
        cmocka_unit_test(test_fault),
        cmocka_unit_test(test_native_workspace),
        cmocka_unit_test(test_step_overhead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
