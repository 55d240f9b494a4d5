/* The step executable's program on the plan of a small model: training, resuming, evaluating, and
 * what its options ask for. */
#include "tests/unit/run_support.h"

static void test_trains(void **unused)
{
    (void)unused;
    Ran ran = run_well("--log a.jsonl --threads 1");
    const char *first = strstr(ran.out, "step 1 | loss "),
               *last = strstr(ran.out, "step 8 | loss ");
    assert_non_null(first);
    assert_non_null(last);
    assert_null(strstr(ran.out, "step 9 |"));
    assert_non_null(strstr(ran.out, "weights | from seed 7\n"));
    assert_non_null(
        strstr(ran.out, "note: dataset `a/b` is not read: tokens are drawn from seed 3\n"));
    assert_non_null(strstr(ran.out, "note: nothing is evaluated"));
    assert_non_null(strstr(ran.out, "| 1 threads | 2 micro-batches of 2 x 8\n"));
    double loss = number_after(first, "loss ");
    assert_true(loss > 2 && loss < 8);
    assert_int_equal((int64_t)number_after(first, "num_label_tokens "), MICRO * TOKENS);
    uint32_t steps;
    char *log = log_results("a.jsonl", &steps);
    assert_int_equal(steps, 8);
    assert_true(number_after(log, "\"lr\": ") == 0.05 ||
                fabs(number_after(log, "\"lr\": ") - 0.05) < 1e-8);
    free(log);
}

static void test_same_bits(void **unused)
{
    (void)unused;
    run_well("--log one.jsonl --threads 1 --dump-grads one.st --dump-values one.v.st");
    run_well("--log two.jsonl --threads 2 --dump-grads two.st --dump-values two.v.st");
    run_well("--log check.jsonl --threads 3 --check --profile check.json --dump-grads check.st "
             "--dump-values check.v.st");
    same_results("one.jsonl", "two.jsonl", 8);
    same_results("one.jsonl", "check.jsonl", 8);
    same_files("one.st", "two.st");
    same_files("one.st", "check.st");
    same_files("one.v.st", "check.v.st");
    run_well("--log other.jsonl --seed 8");
    uint32_t n;
    char *a = log_results("one.jsonl", &n), *b = log_results("other.jsonl", &n);
    assert_string_not_equal(a, b);
    free(a);
    free(b);
    char *profile = file_text("check.json");
    assert_non_null(strstr(profile, "\"name\": \"step 2\""));
    assert_non_null(strstr(profile, "\"name\": \"lm_loss %loss\", \"cat\": \"lm_loss\""));
    assert_non_null(strstr(profile, "\"source\": \"tiny.model:"));
    assert_null(strstr(profile, "\"name\": \"step 1\""));
    free(profile);
}

static void test_resume(void **unused)
{
    (void)unused;
    run_well("--steps 8 --log whole.jsonl --save whole");
    Ran ran = run_well("--steps 4 --log parts.jsonl --save parts");
    assert_non_null(strstr(ran.out, "saved | step 3 | parts\n"));
    assert_non_null(strstr(ran.out, "saved | step 4 | parts\n"));
    ran = run_well("--resume parts --log parts.jsonl --save parts");
    assert_non_null(strstr(ran.out, "resumed | step 4 | parts\n"));
    assert_non_null(strstr(ran.out, "step 8 |"));
    same_results("whole.jsonl", "parts.jsonl", 8);
    same_files("whole/model.safetensors", "parts/model.safetensors");
    same_files("whole/state/optimizer.safetensors", "parts/state/optimizer.safetensors");
    same_files("whole/state/trainer.json", "parts/state/trainer.json");
    ran = run_well("--resume parts");
    assert_null(strstr(ran.out, "step 9 |"));
    ran = run_well("--weights parts --steps 1");
    assert_non_null(strstr(ran.out, "weights | parts\n"));
}

/* Steps and samples are counted apart: a run may go on with another global batch. A checkpoint
 * without the steps has taken equal ones. */
static void test_resume_counters(void **unused)
{
    (void)unused;
    run_well("--steps 8 --log eight.jsonl");
    run_well("--steps 4 --log old.jsonl --save old");
    edit_counters("old/state/trainer.json", "  \"steps_done\"", "");
    Ran ran = run_well("--resume old --log old.jsonl");
    assert_non_null(strstr(ran.out, "resumed | step 4 | old\n"));
    same_results("eight.jsonl", "old.jsonl", 8);
    edit_counters("old/state/trainer.json", "  \"sample0\"",
                  "  \"steps_done\": 6,\n  \"sample0\": 16,\n");
    ran = run_well("--resume old --save old");
    assert_non_null(strstr(ran.out, "resumed | step 6 | old\n"));
    assert_non_null(strstr(ran.out, "step 8 |"));
    char *trainer = file_text("old/state/trainer.json");
    assert_int_equal((int)number_after(trainer, "\"steps_done\": "), 8);
    assert_int_equal((int)number_after(trainer, "\"sample0\": "), 16 + 2 * MICRO * BATCH);
    free(trainer);
}

/* Drawn tokens go on with the seed that they began with. */
static void test_resume_seed(void **unused)
{
    (void)unused;
    run_well("--seed 5 --log seven.jsonl");
    run_well("--seed 5 --steps 4 --log five.jsonl --save five");
    Ran ran = run_well("--resume five --log five.jsonl");
    assert_non_null(strstr(ran.out, "tokens are drawn from seed 5\n"));
    assert_null(strstr(ran.out, "note: the run before"));
    same_results("seven.jsonl", "five.jsonl", 8);
    ran = run_well("--resume five --seed 6");
    assert_non_null(strstr(ran.out, "tokens are drawn from seed 6\n"));
    edit_counters("five/state/trainer.json", "  \"data_seed\"", "");
    ran = run_well("--resume five"); /* an older checkpoint: the recipe's */
    assert_non_null(strstr(ran.out, "tokens are drawn from seed 3\n"));
}

/* 4 samples of a step, of which the file has 3. */
static void test_resume_data(void **unused)
{
    (void)unused;
    write_npy("three.npy", 3 * SEQ + 1);
    write_npy("five.npy", 5 * SEQ + 1);
    run_well("--steps 4 --data three.npy --save data");
    char *trainer = file_text("data/state/trainer.json");
    assert_non_null(strstr(trainer, "\"data\": \"file\""));
    free(trainer);
    Ran ran = run_well("--steps 0 --data three.npy --resume data");
    assert_null(strstr(ran.out, "note: the run before"));
    ran = run_well("--steps 0 --data five.npy --resume data");
    assert_non_null(strstr(
        ran.out, "note: the run before read data of 3 samples, this one reads data of 5\n"));
    edit_counters("data/state/trainer.json", "  \"data_seq\"", "  \"data_seq\": 16,\n");
    ran = run_well("--steps 0 --data three.npy --resume data");
    assert_non_null(strstr(ran.out, "note: the run before read samples of 16 tokens, this one "
                                    "reads samples of 8 and goes on at sample 16\n"));
    edit_counters("data/state/trainer.json", "  \"data_seq\"", "");
    ran = run_well("--steps 0 --data three.npy --resume data");
    assert_null(strstr(ran.out, "note: the run before"));
}

static void test_eval(void **unused)
{
    (void)unused;
    /* tokens as .npy of one byte each: 5 samples of 8 make 3 batches of 2, the last half empty */
    write_npy("eval.npy", 41);
    Ran ran = run_well("--steps 5 --eval eval.npy --log eval.jsonl");
    const char *at = ran.out;
    for (int step = 2; step <= 5; step += step == 4 ? 1 : 2) {
        at = strstr(at, "eval | loss ");
        assert_non_null(at);
        assert_int_equal((int)number_after(at, "| step "), step);
        assert_int_equal((int)number_after(at, "| batches "), 3);
        assert_int_equal((int)number_after(at, "| num_label_tokens "), 40);
        assert_true(number_after(at, "loss ") > 1 && number_after(at, "loss ") < 9);
        at++;
    }
    assert_null(strstr(at, "eval | "));
    char *log = file_text("eval.jsonl");
    assert_non_null(strstr(log, "{\"step\": 2, \"eval_loss\": "));
    free(log);
    run_well("--steps 5 --log plain.jsonl");
    same_results("eval.jsonl", "plain.jsonl", 5); /* evaluation changes nothing */
}

static void test_all_ignored(void **unused)
{
    (void)unused;
    Session *s = session_new(stderr);
    int64_t ids[MICRO * TOKENS] = {0}, labels[MICRO * TOKENS];
    for (int i = 0; i < MICRO * TOKENS; i++)
        labels[i] = -100;
    const int64_t dim[] = {MICRO * BATCH, SEQ};
    RtOutTensor tensors[] = {rt_out_tensor("input_ids", DTYPE_I64, 2, dim, ids),
                             rt_out_tensor("labels", DTYPE_I64, 2, dim, labels)};
    assert_int_equal(rt_tensors_write(s, "ignored.st", tensors, 2), STATUS_OK);
    session_free(s);
    Ran ran = run_well("--steps 2 --batch ignored.st --log ignored.jsonl");
    assert_non_null(strstr(ran.out, "step 2 | loss 0.0000 | grad_norm 0.0000 |"));
    const char *note = strstr(ran.out, "note: step 1 has 0 label tokens");
    assert_non_null(note);
    assert_null(strstr(note + 1, "note: step 2"));
}

/* A weight so large that the norm overflows: updates are skipped, the weights stay, and the run
 * ends. */
static void test_skips(void **unused)
{
    (void)unused;
    Plan *p = tiny_plan();
    p->states[0].init = 3; /* const */
    p->states[0].init_value = INFINITY;
    seal(p);
    Ran ran = run_plan(p, "--log skips.jsonl");
    assert_int_equal(ran.status, STATUS_USER);
    assert_non_null(strstr(ran.out, "step 3 |"));
    assert_null(strstr(ran.out, "step 4 |"));
    assert_non_null(strstr(ran.out, "| skipped\n"));
    assert_string_equal(ran.err,
                        "error: 3 updates in a row were skipped: the gradients are not finite\n");
    char *log = file_text("skips.jsonl");
    assert_non_null(strstr(log, "\"grad_norm\": null"));
    assert_non_null(strstr(log, "\"skipped\": true"));
    free(log);
    ran = run_plan(p, "--check");
    assert_non_null(strstr(ran.err, "check: `e` has a non-finite value before the first step\n"));
    free(p);
}

static void *press(void *unused)
{
    (void)unused;
    usleep(150000);
    kill(getpid(), SIGINT);
    return NULL;
}

static Ran run_interrupted(const char *arguments)
{
    sigset_t set; /* the test's own threads must leave the signal to the program's */
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, press, NULL);
    Ran ran = run_well(arguments);
    pthread_join(thread, NULL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    return ran;
}

static void test_interrupt(void **unused)
{
    (void)unused;
    Ran ran = run_interrupted("--steps 1000000000 --save stopped");
    assert_non_null(strstr(ran.out, "interrupted | step "));
    assert_int_equal(access("stopped/state/trainer.json", F_OK), 0);
    char *trainer = file_text("stopped/state/trainer.json");
    int64_t step = (int64_t)number_after(trainer, "\"step\": ");
    free(trainer);
    assert_true(step > 0 && step < 1000000000);
    ran = run_interrupted("--bench 1000000");
    assert_non_null(strstr(ran.out, "interrupted | step "));
    assert_null(strstr(ran.out, "bench |"));
}

static void test_bench_and_describe(void **unused)
{
    (void)unused;
    Ran ran = run_well("--bench 5 --threads 2 --profile bench.json");
    assert_non_null(strstr(ran.out, "bench | steps 5 | threads 2 | ms_per_step median "));
    assert_non_null(strstr(ran.out, "bench | tokens_per_s "));
    assert_non_null(strstr(ran.out, "\nlm_loss_grad "));
    assert_non_null(strstr(ran.out, "memory | arena "));
    assert_null(strstr(ran.out, "step 1 |"));
#if !defined(__SANITIZE_ADDRESS__)
    assert_true(fabs(number_after(ran.out, "memory | not listed")) < 8 << 20);
#endif
    ran = run_well("--describe --threads 3");
    assert_non_null(strstr(ran.out, "model | tiny\n"));
    assert_non_null(
        strstr(ran.out, "step | 2 micro-batches of 2 x 8 tokens | 22 instructions, 3 to evaluate"));
    assert_non_null(strstr(ran.out, "state | parameters                    2 tensors"));
    assert_non_null(strstr(ran.out, "report | {\"report\": true}\n"));
    ran = run_well("--help");
    assert_non_null(strstr(ran.out, "usage: tiny.step [option]...\n"));
    assert_non_null(strstr(ran.out, "--dump-grads F.safetensors"));
}

static void test_errors(void **unused)
{
    (void)unused;
    write_text("text.txt", 40);
    refuse("--setps 3", STATUS_USER,
           "error: unknown option `--setps`\nhint: did you mean `--steps`?\n");
    refuse("--bench 2 --save x", STATUS_USER, "`--bench` and `--save` exclude each other");
    refuse("--steps 0 --dump-grads x", STATUS_USER,
           "`--dump-grads` and `--steps 0` exclude each other");
    refuse("--threads 5000", STATUS_USER, "`--threads` needs a number up to 1024");
    refuse("--weights nowhere", STATUS_ENV, "nowhere");
    refuse("--data nowhere", STATUS_ENV, "nowhere");
    refuse("--log no/where/log", STATUS_ENV, "cannot open `no/where/log`");
    refuse("--resume nowhere", STATUS_ENV, "nowhere");
    refuse("--data text.txt", STATUS_USER, "text.txt");
    Plan *p = tiny_plan();
    p->header.kept.count = 0;
    p->header.eval_instrs.count = 0;
    seal(p);
    Ran ran = run_plan(p, "--dump-values x");
    assert_int_equal(ran.status, STATUS_USER);
    assert_non_null(strstr(
        ran.err, "option `--dump-values` needs values in the plan: build with `--keep=GLOB`"));
    ran = run_plan(p, "--eval text.txt");
    assert_int_equal(ran.status, STATUS_USER);
    assert_non_null(strstr(ran.err, "option `--eval` needs an evaluation in the plan"));
    p->header.hash++;
    assert_int_equal(run_plan(p, "--describe").status, STATUS_ENV);
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trains),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_resume_counters),
        cmocka_unit_test(test_resume_seed),
        cmocka_unit_test(test_resume_data),
        cmocka_unit_test(test_eval),
        cmocka_unit_test(test_all_ignored),
        cmocka_unit_test(test_skips),
        cmocka_unit_test(test_bench_and_describe),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_interrupt),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
