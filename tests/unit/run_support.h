/* run_support: the step executable's program, started as its main starts it, on a hand-made plan of
 * a small model: an embedding, a head and its loss, AdamW. Two micro-batches of [2, 8] tokens,
 * vocabulary 32, width 16. */
#ifndef TESTS_UNIT_RUN_SUPPORT_H
#define TESTS_UNIT_RUN_SUPPORT_H

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/dtype.h"
#include "runtime/abi/workspace.h"
#include "runtime/kernels/cpu/kernels.h"
#include "runtime/run.h"

enum {
    MICRO = 2,
    BATCH = 2,
    SEQ = 8,
    VOCAB = 32,
    WIDTH = 16,
    TOKENS = BATCH * SEQ,
    TABLE = VOCAB * WIDTH
};

/* -- the plan's builder -- */

typedef struct Plan {
    PlanHeader header;
    PlanInstr instrs[32], eval_instrs[8];
    PlanTensor tensors[160];
    PlanParam params[160];
    PlanRange deaths[32];
    PlanState states[24];
    PlanInput inputs[2];
    PlanKept kept[1];
    PlanGrad grads[2];
    char strings[4096];
    uint64_t n_instrs, n_eval, n_tensors, n_params, n_deaths, n_states;
    uint32_t n_strings;
    uint64_t arena, scratch;
} Plan;

static inline uint32_t text(Plan *p, const char *value)
{
    uint32_t at = p->n_strings;
    memcpy(p->strings + at, value, strlen(value) + 1);
    p->n_strings += (uint32_t)strlen(value) + 1;
    assert_true(p->n_strings <= sizeof p->strings);
    return at;
}

static inline PlanTensor buffer(Plan *p, const char *name, DType dtype, int64_t numel)
{
    PlanTensor t = {.offset = p->arena,
                    .numel = numel,
                    .run = numel,
                    .pitch = numel,
                    .dtype = dtype,
                    .name = text(p, name)};
    p->arena = (p->arena + (uint64_t)numel * dtype_bytes(dtype) + 63) / 64 * 64;
    return t;
}

static inline PlanTensor part(PlanTensor t, int64_t first, int64_t numel)
{
    t.offset += (uint64_t)first * dtype_bytes((DType)t.dtype);
    t.numel = t.run = t.pitch = numel;
    return t;
}

static inline PlanTensor state(Plan *p, const char *name, uint32_t kind, uint32_t of, DType dtype,
                               int64_t rows, int64_t cols)
{
    PlanTensor t = buffer(p, name, dtype, rows * cols);
    assert_true(p->n_states < sizeof p->states / sizeof *p->states);
    PlanState *s = &p->states[p->n_states];
    *s = (PlanState){.name = t.name,
                     .kind = kind,
                     .dtype = dtype,
                     .rank = cols > 1 ? 2 : 0,
                     .dim = {rows, cols},
                     .offset = t.offset,
                     .bytes = (uint64_t)(rows * cols) * dtype_bytes(dtype),
                     .of = of,
                     .trainable = kind == PLAN_STATE_PARAM,
                     .init = 2 /* normal */,
                     .init_value = 0.5};
    if (kind == PLAN_STATE_PARAM || kind == PLAN_STATE_SCALAR)
        s->of = (uint32_t)p->n_states;
    p->n_states++;
    return t;
}

static const PlanTensor none = {.offset = PLAN_ABSENT, .dtype = DTYPE_F32};

/* One instruction of the step, or of the evaluation. Its workspace is its own piece of the arena.
 */
static inline PlanInstr *emit(Plan *p, PlanPhase phase, PlanKernel kernel, const char *name,
                              uint32_t n_tensors, const PlanTensor *tensors, uint32_t n_params,
                              const PlanParam *params)
{
    PlanInstr *i = phase == PLAN_EVAL ? &p->eval_instrs[p->n_eval++] : &p->instrs[p->n_instrs++];
    *i = (PlanInstr){.kernel = kernel,
                     .first_tensor = (uint32_t)p->n_tensors,
                     .n_tensors = n_tensors,
                     .first_param = (uint32_t)p->n_params,
                     .n_params = n_params,
                     .workspace = PLAN_ABSENT,
                     .name = text(p, name),
                     .file = text(p, "tiny.model"),
                     .line = (uint32_t)p->n_instrs,
                     .phase = phase,
                     .flops = 1000,
                     .first_death = (uint32_t)p->n_deaths};
    memcpy(p->tensors + p->n_tensors, tensors, n_tensors * sizeof *tensors);
    for (uint32_t k = 0; k < n_params; k++)
        p->params[p->n_params + k] = params[k];
    p->n_tensors += n_tensors;
    p->n_params += n_params;
    i->workspace_bytes = plan_workspace_bytes(kernel, params, tensors);
    if (i->workspace_bytes)
        i->workspace = buffer(p, "", DTYPE_U8, (int64_t)i->workspace_bytes).offset;
    uint64_t scratch = plan_scratch_bytes(kernel, params, tensors);
    p->scratch = scratch > p->scratch ? scratch : p->scratch;
    return i;
}

static inline void dies(Plan *p, PlanInstr *i, PlanTensor t)
{
    p->deaths[p->n_deaths++] =
        (PlanRange){t.offset, (uint64_t)t.numel * dtype_bytes((DType)t.dtype), t.dtype, t.name};
    i->n_deaths++;
}

#define TENSORS(...)                                                                               \
    (sizeof((PlanTensor[]){__VA_ARGS__}) / sizeof(PlanTensor)), (PlanTensor[])                     \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define NUMBERS(...)                                                                               \
    (sizeof((PlanParam[]){__VA_ARGS__}) / sizeof(PlanParam)), (PlanParam[])                        \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define I(x)                                                                                       \
    {                                                                                              \
        .i = (x)                                                                                   \
    }
#define F(x)                                                                                       \
    {                                                                                              \
        .f = (x)                                                                                   \
    }

typedef struct Model {
    PlanTensor ids, targets, e, w, acc_e, acc_w;
    PlanTensor lr, step, seed, count, inverse, loss_sum, loss, norm, coef, skipped, eval_sum,
        sample0;
} Model;

static inline PlanTensor emit_forward(Plan *p, const Model *m, PlanPhase phase, int64_t micro,
                                      PlanTensor *out_lse, PlanTensor *out_loss)
{
    PlanTensor ids = part(m->ids, micro * TOKENS, TOKENS),
               targets = part(m->targets, micro * TOKENS, TOKENS);
    PlanTensor h = buffer(p, "%h", DTYPE_F32, TOKENS * WIDTH);
    *out_lse = buffer(p, "%lse", DTYPE_F32, TOKENS);
    *out_loss = buffer(p, "%loss", DTYPE_F32, 1);
    emit(p, phase, PLAN_KERNEL_embed, "embed %h", TENSORS(h, m->e, ids),
         NUMBERS(I(TOKENS), I(WIDTH), I(VOCAB)));
    emit(p, phase, PLAN_KERNEL_lm_loss, "lm_loss %loss",
         TENSORS(*out_loss, *out_lse, h, m->w, targets),
         NUMBERS(I(TOKENS), I(WIDTH), I(VOCAB), F(0), I(-100)));
    return h;
}

static inline void emit_micro_batch(Plan *p, const Model *m, int64_t micro)
{
    PlanTensor ids = part(m->ids, micro * TOKENS, TOKENS),
               targets = part(m->targets, micro * TOKENS, TOKENS);
    PlanTensor lse, loss, h = emit_forward(p, m, PLAN_FWD, micro, &lse, &loss);
    if (!micro)
        p->kept[0] = (PlanKept){.tensor = h, .rank = 2, .dim = {TOKENS, WIDTH}};
    int first = micro == 0;
    PlanInstr *i = emit(p, PLAN_FWD, PLAN_KERNEL_accumulate, "accumulate $loss_sum",
                        TENSORS(m->loss_sum, loss), NUMBERS(I(first)));
    dies(p, i, loss);
    PlanTensor dh = buffer(p, "%h.grad", DTYPE_F32, TOKENS * WIDTH),
               de = buffer(p, "%e.grad", DTYPE_F32, TABLE);
    PlanTensor dw = buffer(p, "%w.grad", DTYPE_F32, TABLE);
    i = emit(p, PLAN_BWD, PLAN_KERNEL_lm_loss_grad, "lm_loss_grad %h.grad",
             TENSORS(dh, dw, m->inverse, h, m->w, targets, lse),
             NUMBERS(I(TOKENS), I(WIDTH), I(VOCAB), F(0), I(-100)));
    dies(p, i, lse);
    i = emit(p, PLAN_BWD, PLAN_KERNEL_accumulate, "accumulate $w.acc", TENSORS(m->acc_w, dw),
             NUMBERS(I(first)));
    dies(p, i, dw);
    i = emit(p, PLAN_BWD, PLAN_KERNEL_embed_grad, "embed_grad %e.grad", TENSORS(de, ids, dh),
             NUMBERS(I(TOKENS), I(WIDTH), I(VOCAB), I(-1)));
    dies(p, i, dh);
    i = emit(p, PLAN_BWD, PLAN_KERNEL_accumulate, "accumulate $e.acc", TENSORS(m->acc_e, de),
             NUMBERS(I(first)));
    dies(p, i, de);
}

static inline void emit_update(Plan *p, const Model *m, const PlanTensor *moments)
{
    PlanTensor norm_e = buffer(p, "%norm_e", DTYPE_F64, 1),
               norm_w = buffer(p, "%norm_w", DTYPE_F64, 1);
    emit(p, PLAN_UPDATE, PLAN_KERNEL_norm_sq, "norm_sq e", TENSORS(norm_e, m->acc_e),
         NUMBERS(I(TABLE), I(0), I(0), I(0)));
    emit(p, PLAN_UPDATE, PLAN_KERNEL_norm_sq, "norm_sq w", TENSORS(norm_w, m->acc_w),
         NUMBERS(I(TABLE), I(0), I(0), I(0)));
    emit(p, PLAN_UPDATE, PLAN_KERNEL_grad_norm, "grad_norm",
         TENSORS(m->norm, m->coef, norm_e, norm_w), NUMBERS(I(2), F(1)));
    emit(p, PLAN_UPDATE, PLAN_KERNEL_adamw, "adamw e",
         TENSORS(m->e, m->acc_e, moments[0], moments[1], none, m->coef, m->lr, m->step),
         NUMBERS(F(0.9), F(0.95), F(1e-8), F(0.01), I(0), I(0), I(0)));
    emit(p, PLAN_UPDATE, PLAN_KERNEL_adamw, "adamw w",
         TENSORS(m->w, m->acc_w, moments[2], moments[3], none, m->coef, m->lr, m->step),
         NUMBERS(F(0.9), F(0.95), F(1e-8), F(0.01), I(0), I(0), I(0)));
    emit(p, PLAN_UPDATE, PLAN_KERNEL_loss_mean, "loss_mean",
         TENSORS(m->loss, m->loss_sum, m->inverse), 0, NULL);
    emit(p, PLAN_UPDATE, PLAN_KERNEL_advance, "advance", TENSORS(m->step, m->skipped, m->coef), 0,
         NULL);
}

static inline void emit_all(Plan *p, const Model *m, const PlanTensor *moments)
{
    PlanTensor lse, loss;
    emit(p, PLAN_BEGIN, PLAN_KERNEL_count_targets, "count_targets",
         TENSORS(m->targets, m->count, m->inverse), NUMBERS(I(MICRO * TOKENS), I(-100), I(1)));
    for (int64_t micro = 0; micro < MICRO; micro++)
        emit_micro_batch(p, m, micro);
    emit_update(p, m, moments);
    emit_forward(p, m, PLAN_EVAL, 0, &lse, &loss);
    emit(p, PLAN_EVAL, PLAN_KERNEL_accumulate, "accumulate $eval_sum", TENSORS(m->eval_sum, loss),
         NUMBERS(I(0)));
}

static inline PlanTensor scalar(Plan *p, const char *name, DType dtype)
{
    return state(p, name, PLAN_STATE_SCALAR, 0, dtype, 1, 1);
}

static inline Model make_states(Plan *p, PlanTensor moments[4])
{
    Model m = {
        .ids = buffer(p, "input_ids", DTYPE_I32, MICRO * TOKENS),
        .targets = buffer(p, "targets", DTYPE_I32, MICRO * TOKENS),
        .e = state(p, "e", PLAN_STATE_PARAM, 0, DTYPE_F32, VOCAB, WIDTH),
        .w = state(p, "w", PLAN_STATE_PARAM, 0, DTYPE_F32, VOCAB, WIDTH),
        .acc_e = state(p, "e.acc", PLAN_STATE_ACC, 0, DTYPE_F32, VOCAB, WIDTH),
        .acc_w = state(p, "w.acc", PLAN_STATE_ACC, 1, DTYPE_F32, VOCAB, WIDTH),
        .lr = scalar(p, "lr", DTYPE_F32),
        .step = scalar(p, "step", DTYPE_I64),
        .seed = scalar(p, "seed", DTYPE_I64),
        .count = scalar(p, "count", DTYPE_I64),
        .inverse = scalar(p, "inverse", DTYPE_F32),
        .loss_sum = scalar(p, "loss_sum", DTYPE_F64),
        .loss = scalar(p, "loss", DTYPE_F64),
        .norm = scalar(p, "norm", DTYPE_F64),
        .coef = scalar(p, "coef", DTYPE_F32),
        .skipped = scalar(p, "skipped", DTYPE_I64),
        .eval_sum = scalar(p, "eval_sum", DTYPE_F64),
        .sample0 = scalar(p, "sample0", DTYPE_I64),
    };
    static const char *const names[] = {"e.exp_avg", "e.exp_avg_sq", "w.exp_avg", "w.exp_avg_sq"};
    for (uint32_t i = 0; i < 4; i++)
        moments[i] = state(p, names[i], i % 2 ? PLAN_STATE_MOMENT2 : PLAN_STATE_MOMENT1, i / 2,
                           DTYPE_F32, VOCAB, WIDTH);
    return m;
}

static inline PlanTable table(const Plan *p, const void *at, uint64_t count)
{
    return (PlanTable){(uint64_t)((const char *)at - (const char *)p), count};
}

static const char settings_json[] =
    "{\"recipe\": \"tiny.yaml\", \"seed\": 7, \"max_steps\": 8, \"num_epochs\": null, "
    "\"ckpt_every_steps\": 3, "
    "\"val_every_steps\": 2, \"save_dir\": null, \"weights_dir\": null, \"max_skips\": 3, "
    "\"max_norm\": 1.0, "
    "\"data\": {\"path\": null, \"eval_path\": null, \"dataset\": \"a/b\", \"seed\": 3}, "
    "\"labels\": {\"ignore_index\": -100}, "
    "\"lr\": {\"style\": \"cosine\", \"max\": 0.05, \"min\": 0.0001, \"init\": 0, "
    "\"warmup_steps\": 0, "
    "\"decay_steps\": null, \"wsd_decay_steps\": null, \"wsd_style\": \"linear\"}, "
    "\"optimizer\": {\"name\": \"adamw\"}}";

static inline PlanInput input(Plan *p, PlanTensor t)
{
    return (PlanInput){.name = text(p, p->strings + t.name),
                       .dtype = DTYPE_I32,
                       .rank = 2,
                       .stride_bytes = TOKENS * 4,
                       .dim = {BATCH, SEQ},
                       .offset = t.offset,
                       .eval = 1};
}

static inline void fill_header(Plan *p, const Model *m)
{
    p->header = (PlanHeader){
        .magic = PLAN_MAGIC,
        .version = PLAN_VERSION,
        .total_bytes = sizeof *p,
        .arena_bytes = p->arena,
        .micro_batches = MICRO,
        .batch = BATCH,
        .seq = SEQ,
        .flops_per_step = 1000000,
        .thread_scratch_bytes = p->scratch,
        .model = text(p, "tiny"),
        .model_config = text(p, "{\"model_type\": \"tiny\"}\n"),
        .settings = text(p, settings_json),
        .report = text(p, "{\"report\": true}"),
        .scalars = {m->lr.offset, m->step.offset, m->seed.offset, m->count.offset,
                    m->inverse.offset, m->loss_sum.offset, m->loss.offset, m->norm.offset,
                    m->coef.offset, m->skipped.offset, m->eval_sum.offset, m->sample0.offset},
        .instrs = table(p, p->instrs, p->n_instrs),
        .eval_instrs = table(p, p->eval_instrs, p->n_eval),
        .tensors = table(p, p->tensors, p->n_tensors),
        .params = table(p, p->params, p->n_params),
        .deaths = table(p, p->deaths, p->n_deaths),
        .states = table(p, p->states, p->n_states),
        .inputs = table(p, p->inputs, 2),
        .kept = table(p, p->kept, 1),
        .grads = table(p, p->grads, 2),
        .outside = table(p, p->strings, 0),
        .strings = table(p, p->strings, sizeof p->strings),
    };
}

static inline void seal(Plan *p)
{
    p->header.hash = map_hash((const char *)p + sizeof p->header, sizeof *p - sizeof p->header, 0);
}

static inline Plan *tiny_plan(void)
{
    Plan *p = calloc(1, sizeof *p);
    PlanTensor moments[4];
    text(p, "");
    Model m = make_states(p, moments);
    emit_all(p, &m, moments);
    p->inputs[0] = input(p, m.ids);
    p->inputs[1] = input(p, m.targets);
    p->grads[0] = (PlanGrad){.state = 0, .tensor = m.acc_e};
    p->grads[1] = (PlanGrad){.state = 1, .layout = 1, .tensor = m.acc_w};
    fill_header(p, &m);
    seal(p);
    return p;
}

/* -- running the program -- */

typedef struct Ran {
    Status status;
    char out[16384], err[16384]; /* the ends of its standard output and its diagnostics */
} Ran;

static inline void slurp(FILE *file, char *to, size_t size)
{
    long length = ftell(file);
    fseek(file, length < (long)size ? 0 : length - (long)size + 1, SEEK_SET);
    to[fread(to, 1, size - 1, file)] = 0;
    fclose(file);
}

/* Arguments are one string, split at spaces. */
static inline Ran run_plan(const Plan *p, const char *arguments)
{
    char words[1024], *argv[32] = {(char *)(uintptr_t) "tiny.step"};
    int argc = 1;
    snprintf(words, sizeof words, "%s", arguments);
    for (char *save, *word = strtok_r(words, " ", &save); word; word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    Ran ran;
    FILE *err = tmpfile(), *out = tmpfile();
    fflush(stdout);
    int kept = dup(STDOUT_FILENO);
    dup2(fileno(out), STDOUT_FILENO);
    Session *s = session_new(err);
    StepProgram program = {.plan = p, .plan_bytes = sizeof *p};
    rt_cpu_kernels_start();
    ran.status = rt_run_program(s, &program, rt_kernels, argc, argv);
    session_free(s);
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    slurp(out, ran.out, sizeof ran.out);
    slurp(err, ran.err, sizeof ran.err);
    return ran;
}

static inline Ran run(const char *arguments)
{
    Plan *p = tiny_plan();
    Ran ran = run_plan(p, arguments);
    free(p);
    return ran;
}

static inline Ran run_well(const char *arguments)
{
    Ran ran = run(arguments);
    if (ran.status != STATUS_OK || *ran.err)
        fail_msg("%s: status %d, %s", arguments, (int)ran.status, ran.err);
    return ran;
}

static inline char *file_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("no file %s", path);
    char *bytes = calloc(1, 1 << 16);
    size_t n = fread(bytes, 1, (1 << 16) - 1, file);
    bytes[n] = 0;
    fclose(file);
    return bytes;
}

static inline void same_files(const char *a, const char *b)
{
    char *x = file_text(a), *y = file_text(b);
    if (memcmp(x, y, 1 << 16))
        fail_msg("%s and %s differ", a, b);
    free(x);
    free(y);
}

/* Everything of each step's log line up to its `mem_bytes`, one after another: what does not depend
 * on time. */
static inline char *log_results(const char *path, uint32_t *out_steps)
{
    char *log = file_text(path), *results = calloc(1, 1 << 16);
    *out_steps = 0;
    for (char *save, *line = strtok_r(log, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *end = strstr(line, ", \"mem_bytes\"");
        if (!end)
            continue;
        *end = 0;
        strcat(strcat(results, line), "\n");
        ++*out_steps;
    }
    free(log);
    return results;
}

static inline void same_results(const char *a, const char *b, uint32_t steps)
{
    uint32_t n, m;
    char *x = log_results(a, &n), *y = log_results(b, &m);
    assert_int_equal(n, steps);
    assert_string_equal(x, y);
    free(x);
    free(y);
}

/* The BLAS library's own threads would take the signal of test_interrupt; as in runtime/rt_main.c.
 */
__attribute__((constructor(101))) static void keep_blas_single_threaded(void)
{
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
}

/* -- tests, in a folder of their own -- */

static inline int enter_folder(void **unused)
{
    (void)unused;
    char *path = strdup("/tmp/stepc-run-test-XXXXXX");
    int status = mkdtemp(path) ? chdir(path) : -1;
    free(path);
    return status;
}

static inline int leave_folder(void **unused)
{
    (void)unused;
    char path[256], command[512];
    if (!getcwd(path, sizeof path) || strncmp(path, "/tmp/stepc-run-test-", 20))
        return -1;
    snprintf(command, sizeof command, "rm -rf %s", path);
    return chdir("/") || system(command);
}

static inline double number_after(const char *line, const char *key)
{
    const char *at = strstr(line, key);
    if (!at)
        fail_msg("no `%s` in: %s", key, line);
    return strtod(at + strlen(key), NULL);
}

/* Puts `line` in the place of the line that begins with `key`; "": takes it out. */
static inline void edit_counters(const char *path, const char *key, const char *line)
{
    char *text = file_text(path), *at = strstr(text, key), *end = strchr(at, '\n') + 1;
    FILE *file = fopen(path, "wb");
    fprintf(file, "%.*s%s%s", (int)(at - text), text, line, end);
    fclose(file);
    free(text);
}

static inline void write_text(const char *path, int bytes)
{
    FILE *file = fopen(path, "wb");
    for (int i = 0; i < bytes; i++)
        fputc(i * i % VOCAB, file);
    fclose(file);
}

/* Tokens of one byte each. */
static inline void write_npy(const char *path, int tokens)
{
    FILE *file = fopen(path, "wb");
    char header[119];
    snprintf(header, sizeof header,
             "{'descr': '|u1', 'fortran_order': False, 'shape': (%d,), }%60s", tokens, "");
    header[117] = '\n';
    fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, file);
    fwrite(header, 1, 118, file);
    for (int i = 0; i < tokens; i++)
        fputc(i * i % VOCAB, file);
    fclose(file);
}

static inline void refuse(const char *arguments, Status status, const char *message)
{
    Ran ran = run(arguments);
    assert_int_equal(ran.status, status);
    if (!strstr(ran.err, message))
        fail_msg("%s: %s", arguments, ran.err);
    assert_null(strstr(ran.out, "step 1 |"));
}

#endif
