/* What a step executable reads and writes as text: settings, learning rates, options, lines. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runtime/log.h"
#include "runtime/memory.h"
#include "runtime/options.h"
#include "tests/unit/heard.h"

static const char settings_json[] =
    "{\"recipe\": \"t.yaml\", \"seed\": 9223372036854775807, \"max_steps\": 4, "
    "\"num_epochs\": null, "
    "\"ckpt_every_steps\": 0, "
    "\"val_every_steps\": 0, \"save_dir\": null, \"weights_dir\": null, \"max_skips\": 10, "
    "\"max_norm\": 1.0, "
    "\"data\": {\"path\": null, \"eval_path\": null, \"dataset\": null, \"seed\": 3}, "
    "\"labels\": {\"ignore_index\": -100}, "
    "\"lr\": {\"style\": \"cosine\", \"max\": 0.001, \"min\": 0.0001, \"init\": 0, "
    "\"warmup_steps\": null, "
    "\"decay_steps\": 100, \"wsd_decay_steps\": null, \"wsd_style\": \"linear\"}, "
    "\"optimizer\": {\"name\": \"adamw\"}}";

/* -- settings and schedules -- */

static void test_settings(void **state)
{
    (void)state;
    Heard *heard = listen();
    RtSettings settings;
    assert_int_equal(rt_settings_read(heard->s, settings_json, &settings), STATUS_OK);
    assert_true(settings.seed == INT64_MAX);
    assert_int_equal(settings.max_steps, 4);
    assert_int_equal(settings.num_epochs, -1);
    assert_int_equal(settings.lr.style, RT_LR_COSINE);
    assert_int_equal(settings.lr.wsd_style, RT_WSD_LINEAR);
    assert_true(settings.lr.max == 0.001);
    assert_null(settings.weights_dir);
    const struct {
        const char *json, *part;
    } bad[] = {
        {"[]", "settings: expected an object at byte 0"},
        {"{", "settings: expected a string at byte 1"},
        {"{\"max_norm\": nul}", "setting `max_norm` has a value"},
        {"{\"seed\": 1, \"seed\": 1}", "setting `seed` has a value"},
        {"{\"seed\": 1e99}", "setting `seed` has a value"},
        {"{\"seed\": 9223372036854775808}", "setting `seed` has a value"},
        {"{\"seed\": -}", "setting `seed` has a value"},
        {"{\"lr\": {\"max\": 1e999}}", "setting `lr.max` has a value"},
        {"{\"lr\": 1}", "setting `lr` has a value"},
        {"{\"seed\": 1} 2", "settings: text behind the end at byte 12"},
        {"{}", "setting `seed` is missing"},
        {"{\"sede\": 1}", "setting `sede` is not known"},
        {"{\"seed\": 1.5}", "setting `seed` has a value"},
        {"{\"seed\": null}", "setting `seed` has a value"},
        {"{\"lr\": {\"style\": \"step\"}}", "setting `lr.style` has a value"},
        {"{\"data\": {\"pat\": 1}}", "setting `data.pat` is not known"},
    };
    static const char *const minutes[] = {"0", "-1", "525601", "1e300"};
    for (unsigned i = 0; i < sizeof minutes / sizeof *minutes; i++) {
        Heard *h = listen();
        const char *json =
            arena_printf(h->s->arena, "%.*s, \"timeout_minutes\": %s}",
                         (int)strlen(settings_json) - 1, settings_json, minutes[i]);
        assert_int_equal(rt_settings_read(h->s, json, &settings), STATUS_ENV);
        assert_non_null(strstr(heard_text(h), "setting `timeout_minutes` has a value"));
        hush(h);
    }
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        Heard *h = listen();
        assert_int_equal(rt_settings_read(h->s, bad[i].json, &settings), STATUS_ENV);
        if (!strstr(heard_text(h), bad[i].part))
            fail_msg("%s: %s", bad[i].json, heard_text(h));
        hush(h);
    }
    hush(heard);
}

static void near(double got, double want)
{
    if (fabs(got - want) > 1e-12)
        fail_msg("%.17g is not %.17g", got, want);
}

static void test_schedules(void **state)
{
    (void)state;
    RtSchedule s = {.style = RT_LR_CONSTANT,
                    .max = 1,
                    .min = 0.1,
                    .init = 0.2,
                    .warmup_steps = 10,
                    .decay_steps = 110,
                    .wsd_decay_steps = 50};
    near(rt_schedule_lr(&s, 0), 0.2);
    near(rt_schedule_lr(&s, 5), 0.6);
    near(rt_schedule_lr(&s, 10), 1);
    near(rt_schedule_lr(&s, 5000), 1);
    s.style = RT_LR_LINEAR;
    near(rt_schedule_lr(&s, 60), 0.55);
    near(rt_schedule_lr(&s, 110), 0.1);
    near(rt_schedule_lr(&s, 111), 0.1);
    s.style = RT_LR_COSINE;
    near(rt_schedule_lr(&s, 60), 0.55);
    near(rt_schedule_lr(&s, 35), 0.1 + 0.9 * (cos(3.14159265358979323846 / 4) + 1) / 2);
    s.style = RT_LR_WSD;
    near(rt_schedule_lr(&s, 60), 1);
    s.wsd_style = RT_WSD_LINEAR;
    near(rt_schedule_lr(&s, 85), 0.55);
    s.wsd_style = RT_WSD_COSINE;
    near(rt_schedule_lr(&s, 85), 0.55);
    s.wsd_style = RT_WSD_EXPONENTIAL;
    near(rt_schedule_lr(&s, 85), 0.1 + 0.9 * (2 * sqrt(0.5) - 1));
    near(rt_schedule_lr(&s, 110), 0.1);
    s.wsd_style = RT_WSD_MINUS_SQRT;
    near(rt_schedule_lr(&s, 85), 0.1 + 0.9 * (1 - sqrt(0.5)));
    s.warmup_steps = 0;
    s.style = RT_LR_LINEAR;
    near(rt_schedule_lr(&s, 0), 1);
    RtSchedule open = {.style = RT_LR_COSINE,
                       .max = 1,
                       .warmup_steps = -1,
                       .decay_steps = -1,
                       .wsd_decay_steps = -1};
    rt_schedule_resolve(&open, 250);
    assert_int_equal(open.warmup_steps, 25);
    assert_int_equal(open.decay_steps, 250);
    RtSchedule decayless = {
        .style = RT_LR_LINEAR, .max = 1, .min = 0.5, .warmup_steps = 0, .decay_steps = 0};
    near(rt_schedule_lr(&decayless, 0), 0.5);
}

/* -- options -- */

static Status parse(Session *s, RtOptions *options, ...)
{
    char *argv[16] = {(char *)(uintptr_t) "x.step"};
    int argc = 1;
    va_list args;
    va_start(args, options);
    for (char *arg; (arg = va_arg(args, char *));)
        argv[argc++] = arg;
    va_end(args);
    return rt_options_parse(s, argc, argv, options);
}

static void test_options(void **state)
{
    (void)state;
    Heard *heard = listen();
    RtOptions o;
    assert_int_equal(
        parse(heard->s, &o, "--steps", "0", "--check", "--save=out", "--seed", "3", NULL),
        STATUS_OK);
    assert_int_equal(o.steps, 0);
    assert_int_equal(o.seed, 3);
    assert_true(o.check && !o.describe);
    assert_string_equal(o.save, "out");
    assert_int_equal(o.threads, RT_OPTION_ABSENT);
    assert_null(o.weights);
    hush(heard);
}

static void refuse(const char *part, const char *a, const char *b, const char *c, const char *d)
{
    Heard *heard = listen();
    RtOptions o;
    assert_int_equal(parse(heard->s, &o, a, b, c, d, NULL), STATUS_USER);
    assert_int_equal(heard->s->n_errors, 1);
    if (!strstr(heard_text(heard), part))
        fail_msg("%s: %s", part, heard_text(heard));
    hush(heard);
}

static void test_option_errors(void **state)
{
    (void)state;
    refuse("error: unknown option `--step`\nhint: did you mean `--steps`?", "--step", "3", NULL,
           NULL);
    refuse("unknown option `--dump-grad`\nhint: did you mean `--dump-grads`?", "--dump-grad=x",
           NULL, NULL, NULL);
    refuse("unknown option `--xyzzy`\n", "--xyzzy", NULL, NULL, NULL);
    refuse("`--steps` needs a number, 0 or more, and got `-1`", "--steps", "-1", NULL, NULL);
    refuse("`--steps` needs a number, 0 or more, and got `3x`", "--steps", "3x", NULL, NULL);
    refuse("`--threads` needs a number, 1 or more, and got `0`", "--threads=0", NULL, NULL, NULL);
    refuse("`--seed` needs a number, 0 or more, and got `99999999999999999999`", "--seed",
           "99999999999999999999", NULL, NULL);
    refuse("`--save` needs a path", "--save", NULL, NULL, NULL);
    refuse("`--save` needs a path", "--save", "--check", NULL, NULL);
    refuse("`--save` needs a path", "--save=", NULL, NULL, NULL);
    refuse("`--check` needs no value", "--check=1", NULL, NULL, NULL);
    refuse("argument `3` belongs to no option", "3", NULL, NULL, NULL);
    refuse("`--batch` and `--data` exclude each other", "--batch", "a", "--data", "b");
    refuse("`--weights` and `--resume` exclude each other", "--resume", "a", "--weights", "b");
}

/* -- lines -- */

static void test_lines(void **state)
{
    (void)state;
    RtLog log = {.out = -1,
                 .fd = -1,
                 .tokens = 2048,
                 .flops = 989.4e12,
                 .arena_bytes = 75226349240,
                 .ranks = 1};
    RtStepResult r = {.step = 1, .loss = 6.00851, .norm = 125.57912, .lr = 1e-5f, .targets = 2047};
    char line[RT_LOG_LINE];
    rt_log_step_line(&log, &r, 0.5, line);
    assert_string_equal(line,
                        "step 1 | loss 6.0085 | grad_norm 125.5791 | lr 1.00e-05 | mem 70.06 GiB | "
                        "tps 4096.00 | num_label_tokens 2047\n");
    r.skipped = true;
    r.norm = INFINITY;
    rt_log_step_line(&log, &r, 0.5, line);
    assert_non_null(strstr(line, "grad_norm inf"));
    assert_non_null(strstr(line, "num_label_tokens 2047 | skipped\n"));
    rt_log_step_json(&log, &r, 0.5, line);
    assert_string_equal(line, "{\"step\": 1, \"loss\": 6.0085100000000002, \"grad_norm\": null, "
                              "\"lr\": 9.99999975e-06, \"mem_bytes\": 75226349240, \"tps\": 4096, "
                              "\"tps_per_gpu\": 4096, \"mfu\": 2, \"num_label_tokens\": 2047, "
                              "\"step_time_s\": 0.5, \"skipped\": true}\n");
    char bytes[32];
    assert_string_equal(rt_bytes_text(512, bytes), "512 B");
    assert_string_equal(rt_bytes_text((uint64_t)3 << 29, bytes), "1.50 GiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settings), cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_options),  cmocka_unit_test(test_option_errors),
        cmocka_unit_test(test_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
