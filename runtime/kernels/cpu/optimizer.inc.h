/* optimizers, per arithmetic type. */

#define OPT_T(kernel, name)                                                                        \
    call->at[PLAN_T_##kernel##_##name], &call->tensor[PLAN_T_##kernel##_##name], at
#define OPT_W(kernel) call->at[PLAN_T_##kernel##_w], &call->tensor[PLAN_T_##kernel##_w], at + shift
#define OPT_LOAD(kernel, name, to) R(rt_view_load)(to, OPT_T(kernel, name), count)
#define OPT_STORE(kernel, name, from) R(rt_view_store)(OPT_T(kernel, name), from, count)

/* The weight's elements stand `shift` behind those of the others. */
static void R(adamw)(const RtCall *call, const Adamw *x, int64_t first, int64_t n, int64_t shift)
{
    REAL w[RT_BLOCK], g[RT_BLOCK], m[RT_BLOCK], v[RT_BLOCK];
    REAL rest1 = (REAL)(1 - x->beta1), beta2 = (REAL)x->beta2, rest2 = (REAL)(1 - x->beta2);
    REAL step_size = (REAL)x->step_size, root = (REAL)x->root, eps = (REAL)x->eps;
    REAL coef = (REAL)x->coef, decay = (REAL)x->decay;
    bool master = call->at[PLAN_T_adamw_master];
    for (int64_t at = first; at < first + n; at += RT_BLOCK) {
        int64_t count = plan_min(RT_BLOCK, first + n - at);
        if (master)
            OPT_LOAD(adamw, master, w);
        else
            R(rt_view_load)(w, OPT_W(adamw), count);
        OPT_LOAD(adamw, g, g);
        OPT_LOAD(adamw, m, m);
        OPT_LOAD(adamw, v, v);
        for (int64_t i = 0; i < count; i++) {
            REAL grad = g[i] * coef;
            m[i] += rest1 * (grad - m[i]);
            v[i] = beta2 * v[i] + rest2 * (grad * grad);
            w[i] = w[i] * decay - step_size * (m[i] / (REAL_SQRT(v[i]) / root + eps));
        }
        if (master)
            OPT_STORE(adamw, master, w);
        R(rt_view_store)(OPT_W(adamw), w, count);
        OPT_STORE(adamw, m, m);
        OPT_STORE(adamw, v, v);
    }
}

static void R(sgd)(const RtCall *call, const Sgd *x, int64_t first, int64_t n, int64_t shift)
{
    REAL w[RT_BLOCK], g[RT_BLOCK], m[RT_BLOCK];
    REAL coef = (REAL)x->coef, decay = (REAL)x->decay;
    REAL lr = (REAL)x->lr, momentum = (REAL)x->momentum;
    bool master = call->at[PLAN_T_sgd_master], moment = call->at[PLAN_T_sgd_m];
    for (int64_t at = first; at < first + n; at += RT_BLOCK) {
        int64_t count = plan_min(RT_BLOCK, first + n - at);
        if (master)
            OPT_LOAD(sgd, master, w);
        else
            R(rt_view_load)(w, OPT_W(sgd), count);
        OPT_LOAD(sgd, g, g);
        for (int64_t i = 0; i < count; i++)
            g[i] = g[i] * coef + decay * w[i];
        if (moment) {
            OPT_LOAD(sgd, m, m);
            for (int64_t i = 0; i < count; i++) {
                m[i] = momentum * m[i] + g[i];
                g[i] = x->nesterov ? g[i] + momentum * m[i] : m[i];
            }
            OPT_STORE(sgd, m, m);
        }
        for (int64_t i = 0; i < count; i++)
            w[i] -= lr * g[i];
        if (master)
            OPT_STORE(sgd, master, w);
        R(rt_view_store)(OPT_W(sgd), w, count);
    }
}

#undef OPT_T
#undef OPT_W
#undef OPT_LOAD
#undef OPT_STORE
