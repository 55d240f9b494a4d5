/* Target cuda without a GPU: the test runs itself as a child over fake libraries (fake_cuda/),
 * whose behaviour it sets by $FAKE_CUDA, and reads what the child says. */
/* diag: cuda_no_driver, cuda_driver_old, cuda_no_device, cuda_capability, cuda_library_old */
/* diag: cuda_memory, cuda_lost, cuda_tune_line */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/cuda/device.h"
#include "runtime/cuda/handover.h"
#include "runtime/cuda/memory.h"
#include "runtime/rt.h"

enum { SIDE = 8, WIDTH = SIDE * SIDE, STEPS = 4, CHILD_TEXT = 1 << 16 };
/* Offsets of the scalars, */
enum { AT_LR = 0, AT_COEF = 4, AT_STEP = 8, AT_SEED = 16, AT_COUNT = 24, AT_LOSS = 32 };
enum { AT_NORM = 40, AT_SKIPPED = 48, AT_SAMPLE0 = 56, AT_INVERSE = 64, AT_LOSS_SUM = 72 };
/* and of the rest. */
enum { AT_EVAL_SUM = 80, AT_INPUT = 512, AT_W = 1024, AT_ACC = 2048, AT_ACC2 = 3072, AT_X = 4096 };
enum { AT_C = 8192, AT_LIBRARY = 65536, LIBRARY = 65536, ARENA = AT_LIBRARY + LIBRARY };

typedef struct TestPlan {
    PlanHeader header;
    PlanInstr instrs[5], eval_instrs[1];
    PlanTensor tensors[13];
    PlanParam params[10];
    PlanRange deaths[2];
    PlanState states[3];
    PlanInput inputs[1];
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
    "\"lr\": {\"style\": \"constant\", \"max\": 0.001, \"min\": 0.0001, \"init\": 0, "
    "\"warmup_steps\": null, "
    "\"decay_steps\": 100, \"wsd_decay_steps\": null, \"wsd_style\": \"linear\"}, "
    "\"optimizer\": {\"name\": \"adamw\"}}";

/* -- a plan: x = scale(w), c = w' x + bias, acc += x, acc2 += c, step += 1 -- */

static uint32_t text(TestPlan *p, const char *value)
{
    uint32_t at = p->n_strings, length = (uint32_t)strlen(value) + 1;
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

static PlanInstr instr(TestPlan *p, PlanKernel kernel, const char *name, uint32_t line,
                       PlanPhase phase)
{
    return (PlanInstr){.kernel = kernel,
                       .name = text(p, name),
                       .file = p->instrs[0].file,
                       .line = line,
                       .phase = phase,
                       .workspace = PLAN_ABSENT};
}

static void give(PlanInstr *i, uint32_t first_tensor, uint32_t n_tensors, uint32_t first_param,
                 uint32_t n_params)
{
    i->first_tensor = first_tensor;
    i->n_tensors = n_tensors;
    i->first_param = first_param;
    i->n_params = n_params;
}

static void fill_instrs(TestPlan *p)
{
    p->instrs[0].file = text(p, "t.model");
    p->instrs[0] = instr(p, PLAN_KERNEL_concat, "layer %x", 11, PLAN_FWD);
    give(&p->instrs[0], 0, 2, 0, PLAN_concat_PARAMS);
    p->instrs[1] = instr(p, PLAN_KERNEL_gemm, "layer %c", 12, PLAN_FWD);
    give(&p->instrs[1], 2, 4, 3, PLAN_gemm_PARAMS);
    p->instrs[2] = instr(p, PLAN_KERNEL_accumulate, "accumulate $w.acc", 13, PLAN_BWD);
    give(&p->instrs[2], 6, 2, 8, PLAN_accumulate_PARAMS);
    p->instrs[3] = instr(p, PLAN_KERNEL_accumulate, "accumulate $w.acc2", 13, PLAN_BWD);
    give(&p->instrs[3], 8, 2, 9, PLAN_accumulate_PARAMS);
    p->instrs[3].n_deaths = 2;
    p->instrs[4] = instr(p, PLAN_KERNEL_advance, "advance", 0, PLAN_UPDATE);
    give(&p->instrs[4], 10, 3, 0, 0);
    p->eval_instrs[0] = p->instrs[0];
    p->eval_instrs[0].phase = PLAN_EVAL;
    const int64_t params[] = {1, WIDTH, 1, SIDE, SIDE, SIDE, 1, 0, 0, 0};
    for (unsigned i = 0; i < sizeof params / sizeof *params; i++)
        p->params[i].i = params[i];
}

static void fill_tensors(TestPlan *p)
{
    uint32_t x = text(p, "%x"), w = text(p, "$w"), c = text(p, "%c"), acc = text(p, "$w.acc"),
             n = text(p, "$n");
    const PlanTensor tensors[] = {
        dense(AT_X, WIDTH, DTYPE_F32, x),      dense(AT_W, WIDTH, DTYPE_F32, w),
        dense(AT_C, WIDTH, DTYPE_F32, c),      dense(AT_W, WIDTH, DTYPE_F32, w),
        dense(AT_X, WIDTH, DTYPE_F32, x),      dense(AT_W, SIDE, DTYPE_F32, w),
        dense(AT_ACC, WIDTH, DTYPE_F32, acc),  dense(AT_X, WIDTH, DTYPE_F32, x),
        dense(AT_ACC2, WIDTH, DTYPE_F32, acc), dense(AT_C, WIDTH, DTYPE_F32, c),
        dense(AT_STEP, 1, DTYPE_I64, n),       dense(AT_SKIPPED, 1, DTYPE_I64, n),
        dense(AT_COEF, 1, DTYPE_F32, n),
    };
    memcpy(p->tensors, tensors, sizeof tensors);
    p->deaths[0] = (PlanRange){AT_X, WIDTH * 4, DTYPE_F32, x};
    p->deaths[1] = (PlanRange){AT_C, WIDTH * 4, DTYPE_F32, c};
    const uint64_t offsets[] = {AT_W, AT_ACC, AT_ACC2};
    const char *const names[] = {"w", "v", "u"};
    for (int i = 0; i < 3; i++)
        p->states[i] = (PlanState){.name = text(p, names[i]),
                                   .kind = PLAN_STATE_PARAM,
                                   .dtype = DTYPE_F32,
                                   .rank = 2,
                                   .dim = {SIDE, SIDE},
                                   .offset = offsets[i],
                                   .bytes = WIDTH * 4,
                                   .of = (uint32_t)i};
    p->inputs[0] = (PlanInput){.name = text(p, "input_ids"),
                               .dtype = DTYPE_I32,
                               .rank = 2,
                               .stride_bytes = 64,
                               .dim = {1, 4},
                               .offset = AT_INPUT,
                               .eval = 1};
    p->grads[0] = (PlanGrad){.state = 0, .tensor = p->tensors[2]};
    p->outside[0] = (PlanOutside){.name = text(p, "cuBLASLt"), .bytes = 4096};
}

static PlanTable table(const TestPlan *p, const void *at, uint64_t count)
{
    return (PlanTable){(uint64_t)((const char *)at - (const char *)p), count};
}

static TestPlan *test_plan(void)
{
    TestPlan *p = calloc(1, sizeof *p);
    text(p, "");
    fill_instrs(p);
    fill_tensors(p);
    p->header = (PlanHeader){
        .magic = PLAN_MAGIC,
        .version = PLAN_VERSION,
        .total_bytes = sizeof *p,
        .arena_bytes = ARENA,
        .micro_batches = 1,
        .batch = 1,
        .seq = 4,
        .flops_per_step = 1000,
        .library_workspace = AT_LIBRARY,
        .library_workspace_bytes = LIBRARY,
        .target = PLAN_TARGET_CUDA,
        .model = text(p, "tiny"),
        .model_config = text(p, "{}"),
        .settings = text(p, settings_json),
        .report = text(p, "{}"),
        .scalars = {AT_LR, AT_STEP, AT_SEED, AT_COUNT, AT_INVERSE, AT_LOSS_SUM, AT_LOSS, AT_NORM,
                    AT_COEF, AT_SKIPPED, AT_EVAL_SUM, AT_SAMPLE0},
        .instrs = table(p, p->instrs, 5),
        .eval_instrs = table(p, p->eval_instrs, 1),
        .tensors = table(p, p->tensors, 13),
        .params = table(p, p->params, 10),
        .deaths = table(p, p->deaths, 2),
        .states = table(p, p->states, 3),
        .inputs = table(p, p->inputs, 1),
        .kept = table(p, p->grads, 0),
        .grads = table(p, p->grads, 1),
        .outside = table(p, p->outside, 1),
        .strings = table(p, p->strings, sizeof p->strings),
    };
    p->header.hash = map_hash(&p->header + 1, sizeof *p - sizeof p->header, 0);
    return p;
}

/* -- the kernels that the fake driver knows -- */

static bool faulty(void)
{
    return getenv("TEST_FAULT") != NULL;
}

static Status launch_scale(RtCuda *cuda, const RtCall *call)
{
    void *ids = (void *)(uintptr_t)(cuda->arena.at + AT_INPUT);
    int64_t n = call->tensor[0].numel, number = rt_cuda_number(cuda, call);
    void *scale[] = {(void *)&call->at[0], (void *)&call->at[1], (void *)&call->random, &ids, &n};
    void *fault[] = {&cuda->fault_device, &number};
    TRY(rt_cuda_start_named(cuda, "test_scale", (RtCudaShape){.grid = 1, .threads = 32}, scale));
    return faulty() ? rt_cuda_start_named(cuda, "test_fault",
                                          (RtCudaShape){.grid = 1, .threads = 32}, fault)
                    : STATUS_OK;
}

static Status add(RtCuda *cuda, void *y, void *x, int64_t n)
{
    void *args[] = {&y, &x, &n};
    return rt_cuda_start_named(cuda, "test_add", (RtCudaShape){.grid = 1, .threads = 32}, args);
}

static Status launch_add(RtCuda *cuda, const RtCall *call)
{
    return add(cuda, call->at[0], call->at[1], call->tensor[0].numel);
}

static Status launch_advance(RtCuda *cuda, const RtCall *call)
{
    void *args[] = {(void *)&call->at[0]};
    return rt_cuda_start_named(cuda, "test_advance", (RtCudaShape){.grid = 1, .threads = 1}, args);
}

typedef struct Entry {
    void *y, *x, *self; /* self: the entry's own address on the device */
    int64_t n;
} Entry;

static uint64_t group_bytes(const RtCall *calls, uint32_t n)
{
    (void)calls;
    return n * sizeof(Entry);
}

static void group_fill(const RtCall *calls, uint32_t n, void *out_table, void *at)
{
    for (uint32_t i = 0; i < n; i++)
        ((Entry *)out_table)[i] =
            (Entry){calls[i].at[0], calls[i].at[1], (Entry *)at + i, calls[i].tensor[0].numel};
}

static Status group_launch(RtCuda *cuda, const RtCall *calls, uint32_t n, void *at)
{
    (void)calls;
    for (uint32_t i = 0; i < n && !cuda->rehearsing; i++) {
        const Entry *entry = (Entry *)at + i; /* the fake device's memory is the host's */
        if (entry->self != entry)
            return STATUS_BUG;
        TRY(add(cuda, entry->y, entry->x, entry->n));
    }
    return STATUS_OK;
}

static const RtCudaGroupKernel group_add = {group_bytes, group_fill, group_launch, 1, false};

const RtCudaKernel rt_cuda_kernels[PLAN_KERNEL_COUNT] = {
    [PLAN_KERNEL_concat] = {launch_scale, NULL},
    [PLAN_KERNEL_gemm] = {rt_cuda_launch_gemm, NULL},
    [PLAN_KERNEL_accumulate] = {launch_add, &group_add},
    [PLAN_KERNEL_advance] = {launch_advance, NULL},
};

/* -- the child -- */

static void set_ids(const Rt *rt, int32_t id)
{
    int32_t *ids = rt_input(rt, "input_ids", 0);
    for (int i = 0; i < 4; i++)
        ids[i] = id;
}

static Status see_gradient(void *context)
{
    const Rt *rt = context;
    const float *c = (const void *)(rt->arena.base + AT_C);
    printf("hook %.9g %.9g\n", (double)c[0], (double)c[WIDTH - 1]);
    return STATUS_OK;
}

/* Four steps; an evaluation between, with ids of its own, while the next step's are already on
 * their way. */
static Status run_steps(Rt *rt, bool hook)
{
    RtStepResult result;
    double sum;
    set_ids(rt, 10);
    for (int step = 0; step < STEPS; step++) {
        TRY(rt_step_begin(rt, 0.5f, hook && step == 0 ? see_gradient : NULL, rt));
        set_ids(rt, 11 + step);
        TRY(rt_stage(rt));
        TRY(rt_step_end(rt, &result));
        if (step == 1) {
            set_ids(rt, 1000);
            TRY(rt_eval(rt, &sum));
        }
    }
    printf("done %lld lr %.9g\n", (long long)result.step,
           (double)*(float *)(void *)(rt->arena.base + AT_LR));
    return STATUS_OK;
}

static void print_results(Rt *rt)
{
    const float *acc = (const void *)(rt->arena.base + AT_ACC),
                *acc2 = (const void *)(rt->arena.base + AT_ACC2);
    printf("step %lld\n", (long long)*(int64_t *)(void *)(rt->arena.base + AT_STEP));
    for (int i = 0; i < WIDTH; i++)
        printf("%.9g %.9g\n", (double)acc[i], (double)acc2[i]);
}

static Status profile_step(Rt *rt)
{
    RtProfile profile;
    RtStepResult result;
    rt_profile_init(rt->s, rt->plan.n_instrs, &profile);
    rt->profile = &profile;
    TRY(rt_step(rt, 0.5f, NULL, NULL, &result));
    rt->profile = NULL;
    rt_profile_kernels(&rt->plan, &profile, stdout);
    return rt_cuda_print_memory(&rt->device->cuda, stdout);
}

static Status use(Rt *rt, const char *mode)
{
    float *w = (void *)(rt->arena.base + AT_W);
    for (int i = 0; i < WIDTH; i++)
        w[i] = 0.5f * (float)(i - 20);
    if (getenv("TEST_INFINITE"))
        w[3] = (float)(1.0 / 0.0);
    TRY(rt_loaded(rt));
    if (!strcmp(mode, "profile"))
        return profile_step(rt);
    TRY(run_steps(rt, !strcmp(mode, "hook")));
    TRY(rt_before_save(rt));
    print_results(rt);
    return STATUS_OK;
}

static Status describe(Session *s, const StepProgram *program)
{
    RtPlan plan;
    RtDevice *device = NULL;
    TRY(rt_plan_map(s, program->plan, program->plan_bytes, 0, &plan));
    Status status = rt_device_cuda.open(s, &device);
    if (status == STATUS_OK)
        status = rt_device_cuda.describe(device, &plan, program, stdout);
    rt_device_cuda.close(device);
    return status;
}

static int child(const char *mode)
{
    Session *s = session_new(stdout);
    TestPlan *plan = test_plan();
    StepProgram program = {.plan = plan, .plan_bytes = sizeof *plan};
    RtConfig config = {
        .device = &rt_device_cuda,
        .check = !strcmp(mode, "check"),
        .no_graph = !strcmp(mode, "plain"),
        .tune = getenv("TEST_TUNE"),
    };
    Rt *rt = NULL;
    Status status =
        !strcmp(mode, "describe") ? describe(s, &program) : rt_open(s, &program, &config, &rt);
    if (rt && status == STATUS_OK)
        status = use(rt, mode);
    if (rt)
        rt_close(rt, STATUS_OK);
    session_free(s);
    free(plan);
    fflush(stdout);
    return status;
}

/* -- the parent -- */

typedef struct Said {
    int status;
    char text[CHILD_TEXT];
} Said;

/* fake: NULL: no fake libraries at all. */
static Said *run_child(const char *mode, const char *fake)
{
    static Said said; /* of the latest child */
    char self[512], command[2048];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = 0;
    snprintf(command, sizeof command, "LD_LIBRARY_PATH='%s' FAKE_CUDA='%s' '%s' --child %s 2>&1",
             fake ? FAKE_CUDA_DIR : "/nowhere", fake ? fake : "", self, mode);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t n = fread(said.text, 1, sizeof said.text - 1, pipe);
    said.text[n] = 0;
    int status = pclose(pipe);
    said.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return &said;
}

static void assert_said(const Said *said, int status, const char *part)
{
    if (said->status != status || !strstr(said->text, part))
        print_error("exit %d, said:\n%s\n", said->status, said->text);
    assert_int_equal(said->status, status);
    assert_non_null(strstr(said->text, part));
}

static void test_errors(void **state)
{
    (void)state;
    assert_said(run_child("graph", "no_device"), STATUS_ENV,
                "needs an NVIDIA GPU, and the driver offers none: no CUDA-capable device");
    assert_said(run_child("graph", "capability"), STATUS_ENV,
                "`Fake H200` has compute capability 8.0");
    assert_said(run_child("graph", "old"), STATUS_ENV, "the CUDA driver is for CUDA 12.4");
    assert_said(run_child("graph", "lt_old"), STATUS_ENV, "`libcublasLt.so.13` has version 120000");
    assert_said(run_child("graph", "memory"), STATUS_ENV,
                "needs 2097152 bytes (2.00 MiB) of memory on `Fake H200`");
    assert_said(run_child("graph", "image"), STATUS_ENV, "the fake driver compiles nothing");
    assert_said(run_child("graph", "lost"), STATUS_ENV,
                "the device stopped: CUDA_ERROR_ILLEGAL_ADDRESS");
}

static void test_no_driver(void **state)
{
    (void)state;
    const Said *said = run_child("graph", NULL);
    if (said->status == STATUS_OK)
        skip(); /* this machine has one, and a GPU */
    assert_said(said, STATUS_ENV, "there is no CUDA driver: libcuda.so.1: cannot open");
}

/* The same by plain arithmetic; small numbers, exact in f32. */
static void expect_results(char *out, size_t size)
{
    double acc[WIDTH] = {0}, acc2[WIDTH] = {0}, w[WIDTH];
    for (int i = 0; i < WIDTH; i++)
        w[i] = 0.5 * (i - 20);
    for (int step = 0; step < STEPS; step++)
        for (int i = 0; i < WIDTH; i++) {
            double c = w[i % SIDE]; /* the bias, by column */
            for (int k = 0; k < SIDE; k++)
                c += w[k * SIDE + i / SIDE] * (w[k * SIDE + i % SIDE] * step + 10 + step);
            acc[i] += w[i] * step + 10 + step;
            acc2[i] += c;
        }
    size_t n = (size_t)snprintf(out, size, "done %d lr 0.5\nstep %d\n", STEPS, STEPS);
    for (int i = 0; i < WIDTH; i++)
        n += (size_t)snprintf(out + n, size - n, "%.9g %.9g\n", acc[i], acc2[i]);
}

static void test_steps(void **state)
{
    (void)state;
    static char expected[CHILD_TEXT];
    expect_results(expected, sizeof expected);
    assert_said(run_child("graph", "works"), STATUS_OK, expected);
    assert_said(run_child("plain", "works"), STATUS_OK, expected);
    assert_said(run_child("check", "works"), STATUS_OK, expected);
    assert_said(run_child("hook", "works"), STATUS_OK, expected);
    assert_said(run_child("hook", "works"), STATUS_OK, "hook ");
    const Said *said = run_child("profile", "works");
    assert_said(said, STATUS_OK, "gemm ");
    assert_said(
        said, STATUS_OK,
        "| CUDA context                     planned              0 B  measured      524288000 B");
    assert_said(
        said, STATUS_OK,
        "| arena                            planned         131072 B  measured         131072 B");
    assert_said(said, STATUS_OK,
                "| not listed                                                            0 B");
}

static void test_reports(void **state)
{
    (void)state;
    setenv("TEST_FAULT", "1", 1);
    assert_said(
        run_child("graph", "works"), STATUS_USER,
        "step 1, `layer %x` (t.model:11): id 99 of token 7 is outside the table of 50 rows");
    unsetenv("TEST_FAULT");
    setenv("TEST_INFINITE", "1", 1);
    assert_said(run_child("check", "works"), STATUS_OK,
                "step 1, `layer %x` (kernel `concat`) made `%x` non-finite");
    unsetenv("TEST_INFINITE");
}

static void test_describe(void **state)
{
    (void)state;
    const Said *said = run_child("describe", "works");
    assert_said(said, STATUS_OK, "device | Fake H200 | 132 multiprocessors");
    assert_said(said, STATUS_OK, "launches | 5 instructions in 4");
    assert_said(said, STATUS_OK,
                "product | 8x8x8 tn f32 f32 f32 ld 8,8,8 bias f32 | 1 times | id 1 ");
}

static void test_tune(void **state)
{
    (void)state;
    char path[] = "/tmp/stepc-tune-XXXXXX", line[512] = "";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    unlink(path);
    setenv("TEST_TUNE", path, 1);
    assert_said(run_child("graph", "works"), STATUS_OK, "done 4");
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    assert_string_equal(line, "stepc-tune 1 | cublasLt 130100 | Fake H200 | workspace 65536\n");
    assert_non_null(fgets(line, sizeof line, file));
    assert_non_null(strstr(line, " | 8x8x8 tn f32 f32 f32 ld 8,8,8 bias f32 align 256,256,256\n"));
    fclose(file);
    assert_said(run_child("graph", "works"), STATUS_OK, "done 4");
    file = fopen(path, "a");
    fputs("1 2 three\n", file);
    fclose(file);
    assert_said(run_child("graph", "works"), STATUS_USER, "malformed tuning file");
    unsetenv("TEST_TUNE");
    unlink(path);
}

/* A descriptor goes over with the secret alone; what others send is dropped. */
static void test_handover(void **state)
{
    RtHandoverName here, there, wrong;
    uint32_t from = 0;
    char byte = 0;
    int ends[2], a = rt_handover_open(&here), b = rt_handover_open(&there);
    (void)state;
    assert_true(a >= 0 && b >= 0 && !pipe(ends));
    assert_int_equal(rt_handover_receive(a, &here, &from), -1);
    wrong = here;
    wrong.secret++;
    assert_true(rt_handover_send(b, &wrong, 5, ends[0]));
    assert_true(rt_handover_send(b, &here, 7, ends[1]));
    int fd = rt_handover_receive(a, &here, &from);
    assert_true(fd >= 0);
    assert_int_equal(from, 7);
    assert_int_equal(write(fd, "x", 1), 1);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(byte, 'x');
    assert_int_equal(rt_handover_receive(a, &here, &from), -1);
    wrong.name[0]++;
    assert_false(rt_handover_send(b, &wrong, 7, ends[1]));
    const int all[] = {fd, ends[0], ends[1], a, b};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        close(all[i]);
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "--child"))
        return child(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors),   cmocka_unit_test(test_no_driver),
        cmocka_unit_test(test_steps),    cmocka_unit_test(test_reports),
        cmocka_unit_test(test_describe), cmocka_unit_test(test_tune),
        cmocka_unit_test(test_handover),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
