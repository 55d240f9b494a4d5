#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/cuda/launch_attention.h"
#include "tests/device/attention_reference.h"
#include "tests/device/harness.h"

/* -- calls -- */

static void set_params(const AttentionCase *c, PlanParam *p)
{
    p[PLAN_attention_batch].i = c->batch;
    p[PLAN_attention_seq].i = c->seq;
    p[PLAN_attention_heads].i = c->heads;
    p[PLAN_attention_kv_heads].i = c->kv_heads;
    p[PLAN_attention_dim].i = c->dim;
    p[PLAN_attention_causal].i = c->causal;
    p[PLAN_attention_window].i = c->window;
    p[PLAN_attention_scale].f = c->scale;
    p[PLAN_attention_softcap].f = c->softcap;
    p[PLAN_attention_dropout].f = c->dropout;
    p[PLAN_attention_key].i = c->key;
    p[PLAN_attention_micro_batch].i = c->micro_batch;
}

/* [batch, seq, heads, dim]; in a view the rows have a gap that keeps 16-byte places. */
static Tensor heads_tensor(const AttentionCase *c, int64_t heads)
{
    int64_t row = heads * c->dim, numel = c->batch * c->seq * row;
    return tensor_new(c->is_f32 ? DTYPE_F32 : DTYPE_BF16, numel, c->view ? row : numel,
                      c->view ? row + 24 : numel);
}

static Tensor rows_tensor(const AttentionCase *c, bool given, bool is_keep)
{
    if (!given)
        return tensor_absent();
    Tensor t = tensor_dense(DTYPE_I32, c->batch * c->seq);
    for (int64_t b = 0, at = 0; b < c->batch; b++)
        for (int64_t i = 0, segment = 3; i < c->seq; i++, at++) {
            if (!is_keep && next_random() % 37 == 0)
                segment++;
            /* the end of a row is padding, and single keys are not kept */
            tensor_put(&t, at,
                       is_keep ? i < c->seq - c->seq / 5 - b && next_random() % 11 != 0 : segment);
        }
    return t;
}

typedef struct Pair { /* a forward call and its backward call, on the same tensors */
    Tensor forward[PLAN_T_attention_TENSORS], backward[PLAN_T_attention_grad_TENSORS];
    Call f, b;
} Pair;

static Pair *pair_new(const AttentionCase *c)
{
    Pair *x = calloc(1, sizeof *x);
    Tensor *f = x->forward, *b = x->backward;
    f[PLAN_T_attention_o] = heads_tensor(c, c->heads);
    f[PLAN_T_attention_lse] = tensor_dense(DTYPE_F32, c->batch * c->heads * c->seq);
    f[PLAN_T_attention_q] = heads_tensor(c, c->heads);
    f[PLAN_T_attention_k] = heads_tensor(c, c->kv_heads);
    f[PLAN_T_attention_v] = heads_tensor(c, c->kv_heads);
    f[PLAN_T_attention_segments] = rows_tensor(c, c->segments, false);
    f[PLAN_T_attention_keep] = rows_tensor(c, c->keep, true);
    b[PLAN_T_attention_grad_dq] = heads_tensor(c, c->heads);
    b[PLAN_T_attention_grad_dk] = heads_tensor(c, c->kv_heads);
    b[PLAN_T_attention_grad_dv] = heads_tensor(c, c->kv_heads);
    b[PLAN_T_attention_grad_do] = heads_tensor(c, c->heads);
    tensor_normal(&f[PLAN_T_attention_q], c->std);
    tensor_normal(&f[PLAN_T_attention_k], 1);
    tensor_normal(&f[PLAN_T_attention_v], 1);
    tensor_normal(&b[PLAN_T_attention_grad_do], 1);
    b[PLAN_T_attention_grad_q] = f[PLAN_T_attention_q];
    b[PLAN_T_attention_grad_k] = f[PLAN_T_attention_k];
    b[PLAN_T_attention_grad_v] = f[PLAN_T_attention_v];
    b[PLAN_T_attention_grad_o] = f[PLAN_T_attention_o];
    b[PLAN_T_attention_grad_lse] = f[PLAN_T_attention_lse];
    b[PLAN_T_attention_grad_segments] = f[PLAN_T_attention_segments];
    b[PLAN_T_attention_grad_keep] = f[PLAN_T_attention_keep];
    x->f = (Call){.tensor = f,
                  .n_tensors = PLAN_T_attention_TENSORS,
                  .kernel = PLAN_KERNEL_attention,
                  .launch = c->plain ? rt_cuda_attention_plain : rt_cuda_launch_attention};
    x->b =
        (Call){.tensor = b,
               .n_tensors = PLAN_T_attention_grad_TENSORS,
               .kernel = PLAN_KERNEL_attention_grad,
               .launch = c->plain ? rt_cuda_attention_grad_plain : rt_cuda_launch_attention_grad};
    set_params(c, x->f.param);
    set_params(c, x->b.param);
    call_open(&x->f);
    call_open(&x->b);
    return x;
}

static bool pair_run(Pair *x)
{
    tensor_poison(&x->forward[PLAN_T_attention_o]);
    tensor_poison(&x->forward[PLAN_T_attention_lse]);
    for (int i = PLAN_T_attention_grad_dq; i <= PLAN_T_attention_grad_dv; i++)
        tensor_poison(&x->backward[i]);
    if (!call_run(&x->f) || !call_run(&x->b))
        return false;
    call_close(&x->f);
    call_close(&x->b);
    return true;
}

static void pair_free(Pair *x)
{
    x->f.n_tensors = 0; /* the backward call has those that it needs */
    call_release(&x->f);
    call_release(&x->b);
    free(x);
}

static const int results[] = {PLAN_T_attention_grad_o, PLAN_T_attention_grad_lse,
                              PLAN_T_attention_grad_dq, PLAN_T_attention_grad_dk,
                              PLAN_T_attention_grad_dv};
enum { N_RESULTS = 5 };

static uint64_t fingerprint(const Tensor *t)
{
    uint64_t hash = 14695981039346656037u, word;
    size_t i = 0;
    for (; i + 8 <= t->bytes; i += 8) {
        memcpy(&word, t->host + i, 8);
        hash = (hash ^ word) * 1099511628211u;
        hash ^= hash >> 29;
    }
    for (; i < t->bytes; i++)
        hash = (hash ^ t->host[i]) * 1099511628211u;
    return hash;
}

static void name_of(const AttentionCase *c, const char *what, char *out, size_t bytes)
{
    int n = snprintf(out, bytes, "attention %s %lld,%lld/%lld,%lld,%lld %s %s", what,
                     (long long)c->batch, (long long)c->heads, (long long)c->kv_heads,
                     (long long)c->seq, (long long)c->dim,
                     c->is_f32  ? "f32"
                     : c->plain ? "bf16 plain"
                                : "bf16",
                     c->causal ? "causal" : "full");
    if (c->window)
        n += snprintf(out + n, bytes - (size_t)n, " window %lld", (long long)c->window);
    n += snprintf(out + n, bytes - (size_t)n, "%s%s%s", c->segments ? " segments" : "",
                  c->keep ? " keep" : "", c->view ? " view" : "");
    if (c->softcap > 0)
        n += snprintf(out + n, bytes - (size_t)n, " softcap");
    if (c->dropout > 0)
        snprintf(out + n, bytes - (size_t)n, " dropout");
}

/* -- against the formula -- */

static double *values(const Tensor *t)
{
    double *x = malloc((size_t)t->view.numel * 8);
    for (int64_t e = 0; e < t->view.numel; e++)
        x[e] = tensor_get(t, e);
    return x;
}

static bool near_enough(const AttentionCase *c, int tensor, const Error *e)
{
    double limit = c->is_f32 ? 1e-5 : tensor == PLAN_T_attention_grad_o ? 8e-3 : 1.2e-2;
    if (c->plain && !c->is_f32)
        limit = 6e-3;
    if (tensor == PLAN_T_attention_grad_lse)
        return e->bad == 0 && e->most < (c->is_f32 ? 2e-5 : 1e-3) * (1 + e->largest);
    return error_relative(e) < limit &&
           e->most <= (c->is_f32 ? 1e-4 : 0.06) * fmax(e->largest, 1e-3);
}

static void check_case(const AttentionCase *c)
{
    static const char *const names[] = {"o", "lse", "dq", "dk", "dv"};
    if (test_size && c->dim != test_size)
        return;
    Pair *x = pair_new(c);
    char name[200];
    AttentionData d = {.q = values(&x->forward[PLAN_T_attention_q]),
                       .k = values(&x->forward[PLAN_T_attention_k]),
                       .v = values(&x->forward[PLAN_T_attention_v]),
                       .grad = values(&x->backward[PLAN_T_attention_grad_do]),
                       .segments = (const int32_t *)x->forward[PLAN_T_attention_segments].host,
                       .keep = (const int32_t *)x->forward[PLAN_T_attention_keep].host,
                       .random = test_random};
    size_t q_bytes = (size_t)(c->batch * c->seq * c->heads * c->dim) * 8;
    d.o = malloc(q_bytes);
    d.dq = malloc(q_bytes);
    d.dk = malloc(q_bytes);
    d.dv = malloc(q_bytes);
    d.lse = malloc(q_bytes);
    attention_reference(c, &d);
    const double *wanted[] = {d.o, d.lse, d.dq, d.dk, d.dv};
    uint64_t before[N_RESULTS] = {0};
    for (int run = 0; run < 2; run++) {
        bool done = pair_run(x);
        for (int r = 0; r < N_RESULTS && done; r++) {
            const Tensor *t = &x->backward[results[r]];
            uint64_t now = fingerprint(t);
            bool same = run == 0 || now == before[r];
            before[r] = now;
            if (run && same)
                continue;
            Error e = {0};
            for (int64_t i = 0; i < t->view.numel; i++)
                error_add(&e, tensor_get(t, i), wanted[r][i]);
            name_of(c, same ? names[r] : "CHANGED", name, sizeof name);
            report(name, same && near_enough(c, results[r], &e) && tensor_guarded(t),
                   error_relative(&e), 0, 0);
        }
        if (!done) {
            name_of(c, "refused", name, sizeof name);
            report(name, false, INFINITY, 0, 0);
        }
    }
    free(d.q), free(d.k), free(d.v), free(d.grad), free(d.o), free(d.lse), free(d.dq), free(d.dk),
        free(d.dv);
    pair_free(x);
}

/* -- against the plain kernel, and timed -- */

static double visible_pairs(const AttentionCase *c)
{
    double pairs = 0;
    for (int64_t q = 0; q < c->seq; q++) {
        int64_t last = c->causal ? q : c->seq - 1,
                first = c->window && q >= c->window ? q - c->window + 1 : 0;
        pairs += (double)(last - first + 1);
    }
    return pairs * (double)(c->batch * c->heads);
}

static void time_case(const AttentionCase *c)
{
    static const char *const names[] = {"o", "lse", "dq", "dk", "dv"};
    char name[200];
    if (test_size && c->dim != test_size)
        return;
    Pair *x = pair_new(c);
    double work = visible_pairs(c) * (double)c->dim * 2;
    if (!pair_run(x)) {
        name_of(c, "refused", name, sizeof name);
        report(name, false, INFINITY, 0, 0);
        pair_free(x);
        return;
    }
    uint64_t before[N_RESULTS];
    for (int r = 0; r < N_RESULTS; r++)
        before[r] = fingerprint(&x->backward[results[r]]);
    double forward = device_seconds(call_again, &x->f),
           backward = device_seconds(call_again, &x->b);
    pair_run(x);
    double *have[N_RESULTS];
    bool same[N_RESULTS];
    for (int r = 0; r < N_RESULTS; r++) {
        same[r] = before[r] == fingerprint(&x->backward[results[r]]);
        have[r] = values(&x->backward[results[r]]);
    }
    x->f.launch = rt_cuda_attention_plain;
    x->b.launch = rt_cuda_attention_grad_plain;
    pair_run(x);
    for (int r = 0; r < N_RESULTS; r++) {
        const Tensor *t = &x->backward[results[r]];
        Error e = {0};
        for (int64_t i = 0; i < t->view.numel; i++)
            error_add(&e, have[r][i], tensor_get(t, i));
        free(have[r]);
        name_of(c, same[r] ? names[r] : "CHANGED", name, sizeof name);
        bool first = r == 0, second = r == 2;
        report(name, same[r] && near_enough(c, results[r], &e), error_relative(&e),
               first    ? forward
               : second ? backward
                        : 0,
               first ? 2 * work : 5 * work);
    }
    pair_free(x);
}

/* -- cases -- */

static AttentionCase typical(int64_t batch, int64_t heads, int64_t kv_heads, int64_t seq,
                             int64_t dim)
{
    return (AttentionCase){.batch = batch,
                           .seq = seq,
                           .heads = heads,
                           .kv_heads = kv_heads,
                           .dim = dim,
                           .causal = true,
                           .scale = 1 / sqrt((double)dim),
                           .key = 99,
                           .micro_batch = 2,
                           .std = 1};
}

/* Every head size with every kind of mask, over lengths around the tiles' edges. */
static void check_masks(int64_t dim, bool is_f32, int64_t n)
{
    AttentionCase c = typical(1, 2, 1, n, dim);
    c.is_f32 = is_f32;
    c.plain = is_f32;
    check_case(&c);
    c.causal = false;
    check_case(&c);
    c.causal = true;
    c.window = n / 3 + 1;
    c.view = true;
    check_case(&c);
    if (test_small && is_f32 && dim > 128) /* slow under racecheck, and alike for all sizes */
        return;
    c.view = false;
    c.window = 0;
    c.batch = 2;
    c.segments = true;
    check_case(&c);
    c.keep = true;
    c.segments = false;
    c.causal = false;
    check_case(&c);
    c.keep = false;
    c.causal = true;
    c.batch = 1;
    c.softcap = 1.5;
    c.std = 3;
    check_case(&c);
    c.softcap = 0;
    c.std = 1;
    c.dropout = 0.25;
    check_case(&c);
}

static void check_lengths(int64_t dim)
{
    static const int64_t lengths[] = {1, 65, 128, 257, 31, 63, 64, 127, 129, 256, 385};
    int n = test_small ? 4 : 11;
    for (int i = 0; i < n; i++) {
        AttentionCase c = typical(1, 3, 1, lengths[i], dim);
        check_case(&c);
        c.heads = c.kv_heads = 1;
        c.causal = false;
        check_case(&c);
    }
}

static void check_windows(int64_t dim)
{
    static const int64_t windows[] = {1, 64, 129, 200, 2, 63, 65, 127, 128, 300, 1000};
    int n = test_small ? 4 : 11;
    for (int i = 0; i < n; i++) {
        AttentionCase c = typical(1, 2, 1, !test_small ? 430 : dim > 256 ? 210 : 290, dim);
        c.window = windows[i];
        check_case(&c);
        if (i % 4 == 0) {
            c.causal = false;
            check_case(&c);
        }
    }
}

static void check_logits(int64_t dim)
{
    static const double stds[] = {4, 22};
    for (int i = 0; i < 2; i++) {
        AttentionCase c = typical(1, 2, 2, 200, dim);
        c.std = stds[i];
        check_case(&c);
    }
}

static void check_all_formulas(void)
{
    static const int64_t sizes[] = {64, 80, 96, 128, 256, 512};
    static const int64_t odd[] = {8, 40, 72, 104, 120, 136, 192, 320, 504};
    for (int i = 0; i < 6; i++) {
        check_masks(sizes[i], false, test_small ? 130 : 200);
        check_lengths(sizes[i]);
        check_windows(sizes[i]);
        check_logits(sizes[i]);
    }
    for (int i = 0; i < 9; i++) {
        AttentionCase c = typical(2, 4, 2, 150, odd[i]);
        check_case(&c);
        c.window = 70;
        c.view = true;
        check_case(&c);
    }
    static const int64_t plain[] = {64, 5, 100, 128, 250, 512};
    for (int i = 0; i < 6; i++)
        check_masks(plain[i], true, test_small && plain[i] > 128 ? 40 : 90);
    AttentionCase c = typical(2, 4, 2, 100, 72);
    c.plain = true;
    check_case(&c);
    c = typical(2, 4, 4, 150, 64); /* parts of rows that hold q, k and v, or their gradients */
    c.view = true;
    check_case(&c);
    c = typical(2, 160, 160, 20, 64); /* more heads than the queue has at once */
    check_case(&c);
    c = typical(2, 4, 2, 100, 72);
    c.plain = true;
    c.dim = 20; /* not in pieces of 16 bytes: the plain kernels take it */
    check_case(&c);
}

static void time_all(void)
{
    static const int64_t shapes[][7] = {
        /* batch, heads, kv heads, seq, head size, window, segments */
        {8, 32, 8, 2048, 64, 0, 0},   {64, 12, 12, 1024, 64, 0, 0}, {1, 32, 8, 8192, 128, 0, 0},
        {4, 32, 8, 2048, 96, 0, 0},   {1, 8, 2, 2048, 256, 0, 0},   {2, 32, 16, 4096, 256, 0, 0},
        {1, 8, 2, 2048, 256, 512, 0}, {4, 8, 2, 2048, 256, 512, 0}, {2, 32, 16, 4096, 256, 1024, 0},
        {1, 8, 2, 2048, 512, 0, 0},   {2, 32, 4, 4096, 512, 0, 0},  {1, 8, 2, 2048, 512, 0, 1},
        {8, 32, 8, 2048, 64, 0, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t *s = shapes[i];
        AttentionCase c = typical(s[0], s[1], s[2], s[3], s[4]);
        c.window = s[5];
        c.segments = s[6];
        time_case(&c);
    }
}

void check_attention(void)
{
    if (!test_wanted("attention"))
        return;
    random_seed(11);
    if (test_bench)
        time_all();
    else
        check_all_formulas();
}
