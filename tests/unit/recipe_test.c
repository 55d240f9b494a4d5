#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/diag.h"
#include "frontend/recipe.h"

typedef struct Fixture { /* one recipe being read, and what was said about it */
    Session *s;
    char *said;
    size_t n_said;
    FILE *out;
    FrontRecipe recipe;
    Status status;
} Fixture;

static Fixture *load(const char *text, const char *const *sets, uint32_t n_sets)
{
    Fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    char path[] = "/tmp/recipe_test_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    f->out = open_memstream(&f->said, &f->n_said);
    f->s = session_new(f->out);
    f->status = front_recipe_load(f->s, path, sets, n_sets, &f->recipe);
    fflush(f->out);
    unlink(path);
    return f;
}

static void done(Fixture *f)
{
    session_free(f->s);
    fclose(f->out);
    free(f->said);
    free(f);
}

static const char *said(Fixture *f)
{
    fflush(f->out);
    return f->said;
}

/* The text is refused, and the message holds `place` and `message`. */
static void refuses(const char *text, const char *place, const char *message)
{
    Fixture *f = load(text, NULL, 0);
    if (f->status != STATUS_USER || !strstr(f->said, message) || !strstr(f->said, place))
        fail_msg("status %d for:\n%s\nsaid:\n%s\nwanted: %s: %s", f->status, text, f->said, place,
                 message);
    done(f);
}

#define MODEL "model: {pretrained_model_name_or_path: gpt2}\n"

static void reads_every_type(void **state)
{
    (void)state;
    Fixture *f = load(
        MODEL
        "step_scheduler: {global_batch_size: 8, local_batch_size: 2, max_steps: 1_000}\n"
        "optimizer: {lr: 1e-5, betas: [0.9, 0.95],\n"
        "  param_groups: [{match: '*norm*', weight_decay: 0}, {match: [a, b], weight_decay: 2}]}\n"
        "distributed: {activation_checkpointing: True, dp_size: none}\n"
        "freeze_config: {freeze_embeddings: true}\n"
        "stepc: {memory: 1.5 GiB, recompute: {parts: [mlp]}, precision: {master: f32,\n"
        "  compute: torch.bfloat16}}\n",
        NULL, 0);
    assert_string_equal(f->said, "");
    assert_int_equal(f->status, STATUS_OK);
    assert_int_equal(f->recipe.max_steps.v, 1000);
    assert_true(f->recipe.lr.v == 1e-5 && f->recipe.betas.v[1] == 0.95 && f->recipe.eps.v == 1e-8);
    assert_false(f->recipe.eps.given);
    assert_false(f->recipe.dp_size.given);
    assert_string_equal(f->recipe.checkpointing.v, "true");
    assert_true(f->recipe.freeze_embeddings.v);
    assert_int_equal(f->recipe.memory.v, 3ll << 29);
    assert_int_equal(f->recipe.compute.v, DTYPE_BF16);
    assert_int_equal(f->recipe.master.v, DTYPE_F32);
    assert_int_equal(f->recipe.groups.v.n, 2);
    assert_string_equal(f->recipe.groups.v.at[0].match.at[0].v, "*norm*");
    assert_true(f->recipe.groups.v.at[1].weight_decay == 2 &&
                f->recipe.groups.v.at[1].match.n == 2);
    assert_int_equal(f->recipe.rng_seed.v, 42);
    assert_int_equal(f->recipe.global_batch.span.line, 2);
    assert_int_equal(f->recipe.global_batch.span.col, 37);
    done(f);
}

static void refuses_unknown_keys(void **state)
{
    (void)state;
    refuses(MODEL "optimiser: {lr: 1}\n", ":2:1:", "unknown key `optimiser`");
    refuses(MODEL "optimiser: {lr: 1}\n", "hint", "did you mean `optimizer`?");
    refuses(MODEL "dataset: {seq_lenght: 4}\n", ":2:11:", "did you mean `dataset.seq_length`?");
    refuses(MODEL "tp_size: 2\n", ":2:1:", "did you mean `distributed.tp_size`?");
    refuses(MODEL "stepc: {recompute: {polici: block}}\n", "",
            "did you mean `stepc.recompute.policy`?");
    refuses(MODEL "optimizer: {param_groups: [{mach: a, weight_decay: 0}]}\n",
            ":2:29:", "unknown key `optimizer.param_groups.mach`");
}

static void refuses_wrong_values(void **state)
{
    (void)state;
    refuses(MODEL "optimizer: {lr: fast}\n",
            ":2:17:", "`optimizer.lr` must be a number, not `fast`");
    refuses(MODEL "optimizer: {lr: -1}\n", ":2:17:", "`optimizer.lr` is -1: must be at least 0");
    refuses(MODEL "optimizer: {betas: [0.9]}\n", ":2:20:", "a list of two numbers");
    refuses(MODEL "optimizer: {betas: [0.9, 1.0]}\n",
            ":2:26:", "must be at least 0 and less than 1");
    refuses(MODEL "optimizer: adam\n", ":2:12:", "`optimizer` must be a section, not `adam`");
    refuses(MODEL "step_scheduler: {max_steps: 1.5}\n", "", "must be an integer, not `1.5`");
    refuses(MODEL "step_scheduler: {max_steps: 0}\n", "", "must be at least 1");
    refuses(MODEL "step_scheduler: {max_steps: 99999999999999999999}\n", "", "must be an integer");
    refuses(MODEL "freeze_config: {freeze_embeddings: 'true'}\n", "", "must be true or false");
    refuses(MODEL "stepc: {recompute: {policy: blocks}}\n", "",
            "must be one of: none, block, submodule, selective");
    refuses(MODEL "stepc: {recompute: {policy: blocks}}\n", "", "did you mean `block`?");
    refuses(MODEL "stepc: {precision: {param: float16}}\n", "", "must be one of: f32, bf16, f64");
    refuses(MODEL "stepc: {memory: much}\n", "", "must be bytes such as `139GiB`");
    refuses(MODEL "optimizer: {param_groups: [{match: a}]}\n", "",
            "needs `match` and `weight_decay`");
    refuses("optimizer: {lr: 1}\n", "", "the recipe has no `model.pretrained_model_name_or_path`");
}

static void refuses_bad_yaml(void **state)
{
    (void)state;
    refuses(MODEL "seed: 1\nseed: 2\n", ":3:1:", "key `seed` is given twice");
    refuses(MODEL "seed: 1\nseed: 2\n", ":2:1: note", "first given here");
    refuses("model: [", ":2:1:", "not YAML");
    refuses("model: {a: b\n", "", "not YAML");
    refuses("a: *b\n", ":1:4:", "alias `*b` names no node");
    refuses("a: &x [*x]\n", ":1:8:", "alias `*x` names no node");
    refuses("a: 1\n---\nb: 2\n", ":2:1:", "one YAML document");
    refuses("[1, 2]\n", ":1:1:", "a mapping of sections");
    refuses("? [a]\n: b\n", ":1:3:", "a key must be a word");
    refuses("a: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]\n", "",
            "nested deeper");
    refuses("", "", "the recipe has no `model.pretrained_model_name_or_path`");
}

static const FrontBatch one_rank = {.world = 1, .dp = 1, .tp = 1, .pp = 1, .micro_batches = 1};

static void lists_unused_keys_once(void **state)
{
    (void)state;
    Fixture *f = load("recipe: R\n" MODEL "ci: {time: '00:20:00', anything: [1]}\n"
                      "dataloader: {num_workers: 0, collate_fn: {_target_: f}}\n",
                      NULL, 0);
    assert_int_equal(f->status, STATUS_OK);
    front_recipe_record_unused(f->s, &f->recipe, &one_rank, false);
    assert_int_equal(f->s->records.n, 1);
    assert_string_equal(f->s->records.at[0].code, "recipe_unused");
    assert_string_equal(f->s->records.at[0].message,
                        "keys not used: recipe, ci, dataloader.num_workers, dataloader.collate_fn");
    done(f);
}

static void overrides(void **state)
{
    (void)state;
    static const char *const sets[] = {
        "stepc.recompute.policy=block",
        "optimizer.lr=2",
        "optimizer.betas=[0.5, 0.6]",
        "model.text_config.num_hidden_layers=2",
        "model.text_config.use_cache=true",
        "dataset.max_length=",
        "dataset.path=../a.bin",
    };
    Fixture *f = load(MODEL "optimizer: {lr: 1}\ndataset: {max_length: 7}\n", sets, 7);
    assert_string_equal(f->said, "");
    assert_string_equal(f->recipe.recompute_policy.v, "block");
    assert_true(f->recipe.lr.v == 2 && f->recipe.betas.v[0] == 0.5);
    assert_string_equal(f->recipe.data_path.v, "../a.bin");
    assert_int_equal(f->recipe.lr.span.line, 2);
    assert_int_equal(f->recipe.lr.span.col, 14);
    assert_false(f->recipe.max_length.given);
    assert_string_equal(f->recipe.text_config.v, "{\"num_hidden_layers\":2}");
    done(f);
    static const char *const wrong[] = {"optimizer.lr=fast", "lr", "optimizer.lr.x=1", "a..b=1"};
    static const char *const messages[] = {
        "--set:1:14: error: `optimizer.lr` must be a number, not `fast`",
        "--set:1:1: error: `lr` is no override",
        "cannot set a key below `lr`, which is `1`",
        "`a..b=1` is no override",
    };
    for (unsigned i = 0; i < 4; i++) {
        Fixture *g = load(MODEL "optimizer: {lr: 1}\n", &wrong[i], 1);
        assert_int_equal(g->status, STATUS_USER);
        assert_non_null(strstr(g->said, messages[i]));
        done(g);
    }
}

static void shares_anchors(void **state)
{
    (void)state;
    Fixture *f = load(MODEL "optimizer: {lr: &x 3}\nlr_scheduler: {max_lr: *x}\n", NULL, 0);
    assert_int_equal(f->status, STATUS_OK);
    assert_true(f->recipe.max_lr.v == 3);
    done(f);
    refuses(MODEL
            "ci: {a: &a [1,1,1,1,1,1,1,1,1,1], b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a],\n"
            "  c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b], d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]}\n"
            "model2: 1\n",
            ":4:1:", "unknown key");
    static const char bomb[] =
        "model: {pretrained_model_name_or_path: x, text_config: {a: &a [1,1,1,1,1,1,1,1,1,1], "
        "b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a], c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b], "
        "d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c], e: [*d,*d]}}\n";
    refuses(bomb, ":1:56:", "has more than 10000 values");
}

/* -- rules between keys -- */

typedef struct BatchCase {
    const char *text;
    int64_t world;
    FrontBatch want;
    const char *error; /* NULL: none */
} BatchCase;

static void batches(void **state)
{
    (void)state;
#define SIZES(g, l, rest)                                                                          \
    "dataset: {seq_length: 16}\nstep_scheduler: {global_batch_size: " #g ", local_batch_size: " #l \
    "}\n" rest
    static const BatchCase cases[] = {
        {SIZES(8, 2, ""), 0, {1, 1, 1, 1, 2, 16, 4, 8}, NULL},
        {SIZES(8, 2, ""), 4, {4, 4, 1, 1, 2, 16, 1, 8}, NULL},
        {SIZES(8, 2, "distributed: {tp_size: 2}\n"), 4, {4, 2, 2, 1, 2, 16, 2, 8}, NULL},
        {SIZES(8, 4, "distributed: {tp_size: 4, pp_size: 4}\n"),
         32,
         {32, 2, 4, 4, 1, 16, 4, 8},
         NULL},
        {SIZES(8, 1, "distributed: {dp_size: 2}\n"), 0, {2, 2, 1, 1, 1, 16, 4, 8}, NULL},
        {SIZES(8, 1, "stepc: {world_size: 2}\n"), 0, {2, 2, 1, 1, 1, 16, 4, 8}, NULL},
        {"dataset: {max_length: 4}\n", 0, {1, 1, 1, 1, 1, 4, 1, 1}, NULL},
        {SIZES(8, 3, ""), 0, {0}, "global_batch_size 8 is no multiple of local_batch_size 3"},
        {SIZES(8, 1, ""), 16, {0}, "data-parallel size 16"},
        {SIZES(8, 1, "distributed: {tp_size: 4}\n"), 6, {0}, "world size 6 is no multiple"},
        {SIZES(8, 1, "distributed: {dp_size: 3}\n"), 4, {0}, "dp_size is 3, but world size 4"},
        {"step_scheduler: {global_batch_size: 8}\n",
         0,
         {0},
         "set `dataset.seq_length` or `dataset.max_length`"},
        {"dataset: {max_length: 4, seq_length: 8}\n",
         0,
         {0},
         "`dataset.seq_length` is 8, but `dataset.max_length` is 4"},
        {"dataset: {max_length: 100000}\nstep_scheduler: {local_batch_size: 100000}\n",
         0,
         {0},
         "more than 2^31 tokens"},
    };
#undef SIZES
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        snprintf(text, sizeof text, MODEL "%s", cases[i].text);
        Fixture *f = load(text, NULL, 0);
        FrontBatch b = {0};
        Status status = front_recipe_batch(f->s, &f->recipe, cases[i].world, &b);
        if (cases[i].error) {
            assert_int_equal(status, STATUS_USER);
            if (!strstr(said(f), cases[i].error))
                fail_msg("case %u said: %s", i, said(f));
        } else {
            assert_int_equal(status, STATUS_OK);
            assert_memory_equal(&b, &cases[i].want, sizeof b);
        }
        done(f);
    }
}

static void recompute_policies(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        /* activation_checkpointing, stepc.recompute, policy or error */
        {"none", "{}", "none"},
        {"true", "{}", "block"},
        {"Full", "{}", "block"},
        {"selective", "{}", "selective"},
        {"false", "{}", "none"},
        {"true", "{policy: block, keep_last: 2}", "block"},
        {"none", "{policy: submodule, parts: [mlp]}", "submodule"},
        {"false", "{policy: block}", "is policy `none`, but `stepc.recompute.policy` is `block`"},
        {"true", "{policy: submodule}", "is policy `block`, but"},
        {"true", "{parts: mlp}", "`stepc.recompute.parts` says more about policy `submodule`"},
        {"selective", "{keep_last: 1}",
         "`stepc.recompute.keep_last` says more about policy `block`"},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 MODEL "distributed: {activation_checkpointing: %s}\nstepc: {recompute: %s}\n",
                 cases[i][0], cases[i][1]);
        Fixture *f = load(text, NULL, 0);
        FrontRecompute r;
        assert_int_equal(f->status, STATUS_OK);
        if (front_recipe_recompute(f->s, &f->recipe, &r) == STATUS_OK)
            assert_string_equal(r.policy, cases[i][2]);
        else if (!strstr(said(f), cases[i][2]))
            fail_msg("case %u said: %s", i, said(f));
        done(f);
    }
}

static void precisions(void **state)
{
    (void)state;
    FrontPrecision p;
    Fixture *f = load(MODEL, NULL, 0);
    assert_int_equal(front_recipe_precision(f->s, &f->recipe, &p), STATUS_OK);
    assert_int_equal(p.param, DTYPE_F32);
    assert_int_equal(p.master, DTYPE_NONE);
    done(f);
    f = load("model: {pretrained_model_name_or_path: x, torch_dtype: torch.bfloat16}\n"
             "stepc: {precision: {moments: f32}}\n",
             NULL, 0);
    assert_int_equal(front_recipe_precision(f->s, &f->recipe, &p), STATUS_OK);
    assert_true(p.param == DTYPE_BF16 && p.compute == DTYPE_BF16 && p.grad == DTYPE_BF16);
    assert_true(p.moments == DTYPE_F32 && p.accumulate == DTYPE_F32 && p.reduce == DTYPE_F32);
    done(f);
    f = load("model: {pretrained_model_name_or_path: x, torch_dtype: bf16}\nstepc: {precision: "
             "{param: f32}}\n",
             NULL, 0);
    assert_int_equal(front_recipe_precision(f->s, &f->recipe, &p), STATUS_USER);
    assert_non_null(
        strstr(said(f), "`stepc.precision.param` is f32, but `model.torch_dtype` is bf16"));
    done(f);
}

static Status check_optimizer(const char *text, const char *error)
{
    Fixture *f = load(text, NULL, 0);
    FrontOptimizer o;
    FrontSchedule sch;
    assert_int_equal(f->status, STATUS_OK);
    Status status = front_recipe_optimizer(f->s, &f->recipe, &o);
    if (status == STATUS_OK)
        status = front_recipe_schedule(f->s, &f->recipe, &sch);
    if (status == STATUS_OK)
        status = front_recipe_supported(f->s, &f->recipe);
    if (error && !strstr(said(f), error))
        fail_msg("said: %s", said(f));
    done(f);
    return status;
}

static void optimizers(void **state)
{
    (void)state;
    Fixture *f =
        load(MODEL "optimizer: {lr: 1e-3}\nlr_scheduler: {lr_decay_style: linear}\n", NULL, 0);
    FrontOptimizer o;
    FrontSchedule sch;
    assert_int_equal(front_recipe_optimizer(f->s, &f->recipe, &o), STATUS_OK);
    assert_string_equal(o.name, "adamw");
    assert_true(o.weight_decay == 0.01);
    assert_int_equal(front_recipe_schedule(f->s, &f->recipe, &sch), STATUS_OK);
    assert_true(sch.max == 1e-3 && sch.min == 1e-3 * 0.01 && sch.init == 1e-3 * 0.1);
    done(f);
    assert_int_equal(
        check_optimizer(MODEL "optimizer: {_target_: torch.optim.SGD, momentum: 0.9}\n", NULL),
        STATUS_OK);
    check_optimizer(MODEL "optimizer: {_target_: torch.optim.Adam}\n",
                    "must be one of: torch.optim.AdamW");
    check_optimizer(MODEL "optimizer: {momentum: 0.5}\n", "only SGD has it");
    check_optimizer(MODEL "lr_scheduler: {lr_decay_style: wsd}\n",
                    "needs `lr_scheduler.wsd_decay_steps`");
    check_optimizer(MODEL "lr_scheduler: {min_lr: 1}\n",
                    "`lr_scheduler.min_lr` is 1: must be at most 0.001");
    check_optimizer(MODEL "lr_scheduler: {lr_warmup_steps: 5, lr_decay_steps: 5}\n",
                    "less than lr_decay_steps");
    check_optimizer(MODEL "loss_fn: {_target_: a.b.MeanSquares}\n",
                    "`loss_fn._target_` is `a.b.MeanSquares`");
    check_optimizer(MODEL "seed: 1\nrng: {seed: 2}\n", "`rng.seed` is 2, but `seed` is 1");
    check_optimizer(MODEL "distributed: {cp_size: 2}\n", "context parallelism is not supported");
    check_optimizer(MODEL "stepc: {recompute: {budget: 1GiB}}\n",
                    "recompute by budget is not supported");
}

static void bytes(void **state)
{
    (void)state;
    int64_t n;
    assert_true(front_parse_bytes("139GiB", &n) && n == 139ll << 30);
    assert_true(front_parse_bytes("1.5 kb", &n) && n == 1500);
    assert_true(front_parse_bytes("7", &n) && n == 7);
    assert_false(front_parse_bytes("-1", &n));
    assert_false(front_parse_bytes("1 parsec", &n));
    assert_false(front_parse_bytes("", &n));
    assert_false(front_parse_bytes("1e300GiB", &n));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_type),
        cmocka_unit_test(refuses_unknown_keys),
        cmocka_unit_test(refuses_wrong_values),
        cmocka_unit_test(refuses_bad_yaml),
        cmocka_unit_test(lists_unused_keys_once),
        cmocka_unit_test(overrides),
        cmocka_unit_test(shares_anchors),
        cmocka_unit_test(batches),
        cmocka_unit_test(recompute_policies),
        cmocka_unit_test(precisions),
        cmocka_unit_test(optimizers),
        cmocka_unit_test(bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
