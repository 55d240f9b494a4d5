/* What ranks do around their exchanges: sums of parts, flat buffers, and the parts of an embedding
 * and a loss, which all members run here one after the other. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/device/harness.h"

/* -- sums -- */

typedef struct SumCase {
    int64_t n;
    int ranks, self;
    DType from, to;
    bool is_max;
    int64_t skew; /* elements that the parts stand off a multiple of 16 bytes */
} SumCase;

static double sum_of(const SumCase *c, const Tensor *parts, int64_t i)
{
    double wide = tensor_get(&parts[0], c->skew + i);
    float sum = (float)wide;
    for (int r = 1; r < c->ranks; r++) {
        double x = tensor_get(&parts[r], c->skew + i);
        wide = c->is_max ? fmax(wide, x) : wide + x;
        sum = c->is_max ? fmaxf(sum, (float)x) : sum + (float)x;
    }
    if (c->from == DTYPE_F64 || c->from == DTYPE_I64)
        return wide;
    return c->to == DTYPE_BF16 ? bf16_to_f32(f32_to_bf16(sum)) : sum;
}

static int32_t type_of(DType dtype)
{
    return rt_cuda_type(dtype);
}

static void check_sum(const SumCase *c)
{
    int64_t room = c->skew + c->n, stride = plan_round_up(room, 64);
    Tensor y = tensor_dense(c->to, room), parts[8];
    uint64_t size = dtype_bytes(c->from);
    unsigned char *others = device_alloc((size_t)(c->ranks * stride) * size);
    for (int r = 0; r < c->ranks; r++) {
        parts[r] = tensor_dense(c->from, room);
        for (int64_t i = 0; i < room; i++)
            tensor_put(&parts[r], i,
                       c->from == DTYPE_I64 ? (double)(next_random() % 1000) : random_normal());
        tensor_upload(&parts[r]);
        if (r != c->self)
            device_write(others + (uint64_t)(r * stride) * size, parts[r].host, parts[r].bytes);
    }
    tensor_poison(&y);
    CudaSumParts x = {
        .y = (unsigned char *)y.device + (uint64_t)c->skew * dtype_bytes(c->to),
        .own = (unsigned char *)parts[c->self].device + (uint64_t)c->skew * size,
        .others = others + (uint64_t)c->skew * size,
        .n = c->n,
        .stride = stride,
        .ranks = c->ranks,
        .self = c->self,
        .from_type = type_of(c->from),
        .to_type = type_of(c->to),
        .is_max = c->is_max,
    };
    rt_cuda_run(&test_cuda, "sum_parts", 3, 256, 0, &x);
    device_wait();
    tensor_download(&y);
    bool right = tensor_guarded(&y);
    for (int64_t i = 0; i < c->n; i++)
        right &= tensor_get(&y, c->skew + i) == sum_of(c, parts, i);
    char name[128];
    snprintf(name, sizeof name, "sum_parts %lld of %d ranks %s to %s%s%s", (long long)c->n,
             c->ranks, dtype_name(c->from), dtype_name(c->to), c->is_max ? " max" : "",
             c->skew ? " skewed" : "");
    report(name, right, 0, 0, 0);
    device_free(others);
    tensor_free(&y);
    for (int r = 0; r < c->ranks; r++)
        tensor_free(&parts[r]);
}

/* -- flat buffers -- */

static void check_pack(DType dtype, DType from)
{
    enum { PARTS = 40 };
    Tensor t[1 + PARTS];
    int64_t begin[PARTS + 1] = {0};
    for (int i = 0; i < PARTS; i++) {
        int64_t n = 1 + next_random() % 300 / (i % 3 ? 1 : 10) * 8 + (i % 5 == 0);
        t[1 + i] = i % 7 == 3   ? tensor_absent()
                   : i % 4 == 1 ? tensor_new(from, n, plan_min(n, 16), plan_min(n, 16) + 8)
                                : tensor_dense(from, n);
        if (i % 7 == 3)
            t[1 + i].view = (PlanTensor){.offset = PLAN_ABSENT, .numel = n, .run = n, .pitch = n};
        else
            tensor_normal(&t[1 + i], 1);
        begin[i + 1] = plan_flat_next(begin[i] + n);
    }
    begin[PARTS] += 96;
    t[0] = tensor_dense(dtype, begin[PARTS]);
    Call call = {.tensor = t,
                 .n_tensors = 1 + PARTS,
                 .kernel = PLAN_KERNEL_flat_pack,
                 .launch = rt_cuda_launch_flat_pack};
    call.param[PLAN_flat_pack_n].i = PARTS;
    for (int i = 0; i <= PARTS; i++) /* nothing lies where it belongs */
        if (t[i].memory)
            t[i].view.offset = (uint64_t)(i + 1) << 32;
    call_open(&call);
    bool right = call_run(&call);
    call_close(&call);
    for (int i = 0; i < PARTS; i++)
        for (int64_t e = begin[i]; e < begin[i + 1]; e++) {
            bool given = t[1 + i].memory && e - begin[i] < t[1 + i].view.numel;
            double want = given ? tensor_get(&t[1 + i], e - begin[i]) : 0;
            if (dtype == DTYPE_BF16)
                want = bf16_to_f32(f32_to_bf16((float)want));
            right &= tensor_get(&t[0], e) == want;
        }
    char name[128];
    snprintf(name, sizeof name, "flat_pack %d parts %s to %s", PARTS, dtype_name(from),
             dtype_name(dtype));
    report(name, right && tensor_guarded(&t[0]), 0, 0, 0);
    call_release(&call);
}

/* -- scalars -- */

static void check_scalars(void)
{
    enum { PARTS = 130 };
    Tensor t[1 + PARTS];
    double want = 0;
    for (int i = 0; i <= PARTS; i++) {
        t[i] = tensor_dense(DTYPE_F64, 1);
        if (!i)
            continue;
        tensor_put(&t[i], 0, random_normal());
        want += tensor_get(&t[i], 0);
    }
    Call call = {.tensor = t,
                 .n_tensors = 1 + PARTS,
                 .kernel = PLAN_KERNEL_sum_scalars,
                 .launch = rt_cuda_launch_sum_scalars};
    call.param[PLAN_sum_scalars_n].i = PARTS;
    call.param[PLAN_sum_scalars_factor].f = 0.5;
    call_open(&call);
    bool right = call_run(&call);
    call_close(&call);
    report("sum_scalars", right && tensor_get(&t[0], 0) == 0.5 * want, 0, 0, 0);
    call_release(&call);
}

/* -- an embedding whose rows are divided -- */

enum { RANKS = 3 };

static void run_part(Call *call, const PlanInstr *instr, uint32_t member)
{
    call_open(call);
    call->call.instr = instr;
    call->call.member = member;
    call_run(call);
    call_close(call);
}

static void check_embed_part(DType dtype)
{
    enum { TOKENS = 90, WIDTH = 24, ROWS = 17, TOTAL = 50, PADDING = 20 };
    static const PlanInstr forward = {.kernel = PLAN_KERNEL_embed_part},
                           backward = {.kernel = PLAN_KERNEL_embed_part_grad};
    bool right = true;
    int32_t id[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        id[i] = (int32_t)(next_random() % TOTAL);
    for (uint32_t member = 0; member < RANKS; member++) {
        Tensor y[] = {tensor_dense(dtype, TOKENS * WIDTH), tensor_dense(dtype, ROWS * WIDTH),
                      tensor_dense(DTYPE_I32, TOKENS)};
        Tensor d[] = {tensor_dense(dtype, ROWS * WIDTH), tensor_dense(DTYPE_I32, TOKENS),
                      tensor_dense(dtype, TOKENS * WIDTH)};
        int64_t first = (int64_t)member * ROWS;
        tensor_normal(&y[1], 1);
        for (int i = 0; i < TOKENS * WIDTH; i++)
            tensor_put(&d[2], i, (double)(next_random() % 64)); /* sums are exact */
        for (int i = 0; i < TOKENS; i++) {
            tensor_put(&y[2], i, id[i]);
            tensor_put(&d[1], i, id[i]);
        }
        Call look = {.tensor = y, .n_tensors = 3, .kernel = PLAN_KERNEL_embed_part,
                     .launch = rt_cuda_launch_embed_part};
        look.param[PLAN_embed_part_tokens].i = TOKENS;
        look.param[PLAN_embed_part_width].i = WIDTH;
        look.param[PLAN_embed_part_rows].i = ROWS;
        look.param[PLAN_embed_part_total].i = TOTAL;
        run_part(&look, &forward, member);
        Call sum = {.tensor = d, .n_tensors = 3, .kernel = PLAN_KERNEL_embed_part_grad,
                    .launch = rt_cuda_launch_embed_part_grad};
        memcpy(sum.param, look.param, sizeof sum.param);
        sum.param[PLAN_embed_part_grad_padding].i = PADDING;
        run_part(&sum, &backward, member);
        for (int e = 0; e < TOKENS * WIDTH; e++) {
            int64_t row = id[e / WIDTH] - first;
            double want = row >= 0 && row < ROWS ? tensor_get(&y[1], row * WIDTH + e % WIDTH) : 0;
            right &= tensor_get(&y[0], e) == want;
        }
        for (int e = 0; e < ROWS * WIDTH; e++) {
            double want = 0;
            for (int i = 0; i < TOKENS && first + e / WIDTH != PADDING; i++)
                want += id[i] - first == e / WIDTH ? tensor_get(&d[2], i * WIDTH + e % WIDTH) : 0;
            right &= tensor_get(&d[0], e) == want;
        }
        right &= tensor_guarded(&y[0]) && tensor_guarded(&d[0]);
        call_release(&look);
        call_release(&sum);
    }
    char name[64];
    snprintf(name, sizeof name, "embed_part and its gradient %s", dtype_name(dtype));
    report(name, right, 0, 0, 0);
}

/* -- a head whose words are divided, with words behind the last one -- */

typedef struct Head {
    DType dtype;
    Tensor h, w, targets; /* of all */
    int64_t tokens, width, vocab, part;
} Head;

enum { IGNORE = -100 };

static Call loss_call(const Head *x, Tensor *t, int n, PlanKernel kernel, LaunchFn launch)
{
    Call call = {.tensor = t, .n_tensors = n, .kernel = kernel, .launch = launch};
    call.param[PLAN_lm_loss_part_tokens].i = x->tokens;
    call.param[PLAN_lm_loss_part_width].i = x->width;
    call.param[PLAN_lm_loss_part_vocab].i = x->part;
    call.param[PLAN_lm_loss_part_softcap].f = 2.5;
    call.param[PLAN_lm_loss_part_ignore].i = IGNORE;
    call.param[PLAN_lm_loss_part_total].i = x->vocab;
    return call;
}

static Tensor copy_of(const Tensor *t)
{
    Tensor copy = tensor_dense((DType)t->view.dtype, t->view.numel);
    memcpy(copy.host, t->host, t->bytes);
    return copy;
}

/* Rows of w of one member; those behind the last word are zeros. */
static Tensor words_of(const Head *x, uint32_t member)
{
    Tensor part = tensor_dense(x->dtype, x->part * x->width);
    for (int64_t i = 0; i < x->part * x->width; i++) {
        int64_t e = member * x->part * x->width + i;
        tensor_put(&part, i, e < x->vocab * x->width ? tensor_get(&x->w, e) : 0);
    }
    return part;
}

static void whole_loss(const Head *x, double *out_loss, double *lse)
{
    *out_loss = 0;
    for (int64_t t = 0; t < x->tokens; t++) {
        double sum = 0, logit = 0;
        for (int64_t v = 0; v < x->vocab; v++) {
            double s = 0;
            for (int64_t i = 0; i < x->width; i++)
                s += tensor_get(&x->h, t * x->width + i) * tensor_get(&x->w, v * x->width + i);
            s = 2.5 * tanh(s / 2.5);
            sum += exp(s);
            if (v == (int64_t)tensor_get(&x->targets, t))
                logit = s;
        }
        lse[t] = log(sum);
        *out_loss += tensor_get(&x->targets, t) == IGNORE ? 0 : lse[t] - logit;
    }
}

/* dh and dw of the whole op by the kernels, against the sum of the parts' dh and the parts' dw. */
static double check_head_grad(const Head *x, const Tensor *lse)
{
    static const PlanInstr instr = {.kernel = PLAN_KERNEL_lm_loss_part_grad};
    Tensor seed = tensor_dense(DTYPE_F32, 1);
    tensor_put(&seed, 0, 0.01);
    Tensor whole[] = {tensor_dense(DTYPE_F32, x->tokens * x->width),
                      tensor_dense(DTYPE_F32, x->vocab * x->width), seed, copy_of(&x->h),
                      copy_of(&x->w), copy_of(&x->targets), copy_of(lse)};
    Call all = loss_call(x, whole, 7, PLAN_KERNEL_lm_loss_grad, rt_cuda_launch_lm_loss_grad);
    all.param[PLAN_lm_loss_grad_vocab].i = x->vocab;
    call_open(&all);
    call_run(&all);
    call_close(&all);
    double *dh = calloc((size_t)(x->tokens * x->width), 8);
    Error e = {0};
    for (uint32_t member = 0; member < RANKS; member++) {
        Tensor t[] = {tensor_dense(DTYPE_F32, x->tokens * x->width),
                      tensor_dense(DTYPE_F32, x->part * x->width), copy_of(&seed), copy_of(&x->h),
                      words_of(x, member), copy_of(&x->targets), copy_of(lse)};
        Call call = loss_call(x, t, 7, PLAN_KERNEL_lm_loss_part_grad,
                              rt_cuda_launch_lm_loss_part_grad);
        run_part(&call, &instr, member);
        for (int64_t i = 0; i < x->tokens * x->width; i++)
            dh[i] += tensor_get(&t[0], i);
        for (int64_t i = 0; i < x->part * x->width; i++) {
            int64_t at = member * x->part * x->width + i;
            error_add(&e, tensor_get(&t[1], i),
                      at < x->vocab * x->width ? tensor_get(&whole[1], at) : 0);
        }
        call_release(&call);
    }
    for (int64_t i = 0; i < x->tokens * x->width; i++)
        error_add(&e, dh[i], tensor_get(&whole[0], i));
    free(dh);
    call_release(&all);
    return error_relative(&e);
}

static void check_head(DType dtype)
{
    static const PlanInstr instr = {.kernel = PLAN_KERNEL_lm_loss_part};
    Head x = {.dtype = dtype, .tokens = 19, .width = 16, .vocab = 1001, .part = 336};
    double loss, lse[19];
    x.h = tensor_dense(dtype, x.tokens * x.width);
    x.w = tensor_dense(dtype, x.vocab * x.width);
    x.targets = tensor_dense(DTYPE_I32, x.tokens);
    tensor_normal(&x.h, 1);
    tensor_normal(&x.w, 0.5);
    for (int64_t t = 0; t < x.tokens; t++)
        tensor_put(&x.targets, t, t % 5 == 2 ? IGNORE : (double)(next_random() % 1001));
    whole_loss(&x, &loss, lse);
    Tensor parts = tensor_dense(DTYPE_F32, RANKS * 2 * x.tokens);
    for (uint32_t member = 0; member < RANKS; member++) {
        Tensor t[] = {tensor_dense(DTYPE_F32, 2 * x.tokens), copy_of(&x.h), words_of(&x, member),
                      copy_of(&x.targets)};
        Call call = loss_call(&x, t, 4, PLAN_KERNEL_lm_loss_part, rt_cuda_launch_lm_loss_part);
        run_part(&call, &instr, member);
        memcpy(parts.host + member * t[0].bytes, t[0].host, t[0].bytes);
        call_release(&call);
    }
    Tensor t[] = {tensor_dense(DTYPE_F32, 1), tensor_dense(DTYPE_F32, x.tokens), parts,
                  copy_of(&x.targets)};
    Call join = {.tensor = t, .n_tensors = 4, .kernel = PLAN_KERNEL_lm_loss_join,
                 .launch = rt_cuda_launch_lm_loss_join};
    join.param[PLAN_lm_loss_join_tokens].i = x.tokens;
    join.param[PLAN_lm_loss_join_n].i = RANKS;
    join.param[PLAN_lm_loss_join_ignore].i = IGNORE;
    call_open(&join);
    call_run(&join);
    call_close(&join);
    Error e = {0};
    error_add(&e, tensor_get(&t[0], 0), loss);
    for (int64_t i = 0; i < x.tokens; i++)
        error_add(&e, tensor_get(&t[1], i), lse[i]);
    char name[64];
    snprintf(name, sizeof name, "lm_loss_part and join %s", dtype_name(dtype));
    report(name, error_relative(&e) < 2e-6 && tensor_guarded(&t[0]), error_relative(&e), 0, 0);
    double error = check_head_grad(&x, &t[1]);
    snprintf(name, sizeof name, "lm_loss_part_grad %s", dtype_name(dtype));
    report(name, error < 1e-6, error, 0, 0);
    call_release(&join);
    tensor_free(&x.h);
    tensor_free(&x.w);
    tensor_free(&x.targets);
}

void check_ranks(void)
{
    if (!test_wanted("ranks") || test_bench)
        return;
    random_seed(15);
    static const SumCase sums[] = {
        {.n = 5000, .ranks = 2, .self = 0, .from = DTYPE_BF16, .to = DTYPE_F32},
        {.n = 5001, .ranks = 2, .self = 1, .from = DTYPE_BF16, .to = DTYPE_BF16},
        {.n = 777, .ranks = 8, .self = 5, .from = DTYPE_F32, .to = DTYPE_F32},
        {.n = 777, .ranks = 3, .self = 2, .from = DTYPE_F32, .to = DTYPE_BF16, .skew = 3},
        {.n = 100, .ranks = 3, .self = 0, .from = DTYPE_F32, .to = DTYPE_F64},
        {.n = 100, .ranks = 4, .self = 1, .from = DTYPE_F64, .to = DTYPE_F64},
        {.n = 3, .ranks = 4, .self = 1, .from = DTYPE_I64, .to = DTYPE_I64},
        {.n = 300, .ranks = 4, .self = 3, .from = DTYPE_F32, .to = DTYPE_F32, .is_max = true},
    };
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        check_sum(&sums[i]);
    check_pack(DTYPE_BF16, DTYPE_BF16);
    check_pack(DTYPE_F32, DTYPE_BF16);
    check_pack(DTYPE_F32, DTYPE_F32);
    check_scalars();
    check_embed_part(DTYPE_BF16);
    check_embed_part(DTYPE_F32);
    check_head(DTYPE_BF16);
    check_head(DTYPE_F32);
}
