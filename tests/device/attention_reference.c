#include "tests/device/attention_reference.h"

#include <math.h>
#include <stdlib.h>

#include "runtime/abi/random.h"

typedef struct Row {          /* of one query of one head */
    double *p, *slope, *kept; /* [seq]: probability, d score / d raw, dropout's factor */
    double lse;
} Row;

static bool sees(const AttentionCase *c, const AttentionData *d, int64_t b, int64_t q, int64_t k)
{
    if ((c->causal && k > q) || (c->window && k <= q - c->window))
        return false;
    if (d->segments && d->segments[b * c->seq + q] != d->segments[b * c->seq + k])
        return false;
    return !d->keep || d->keep[b * c->seq + k];
}

static void probabilities(const AttentionCase *c, const AttentionData *d, int64_t b, int64_t head,
                          int64_t q, Row *row)
{
    int64_t kv_head = head / (c->heads / c->kv_heads), dim = c->dim, n = c->seq;
    const double *query = d->q + ((b * n + q) * c->heads + head) * dim;
    RtStream stream = {0, 0};
    if (c->dropout > 0) {
        stream = rt_random_stream(d->random[1], d->random[0], c->key,
                                  d->random[2] + c->micro_batch * c->batch + b);
        stream = rt_random_absorb(rt_random_absorb(stream, (uint32_t)head), (uint32_t)q);
    }
    double most = -INFINITY, sum = 0;
    for (int64_t k = 0; k < n; k++) {
        row->p[k] = -INFINITY;
        row->slope[k] = c->scale;
        row->kept[k] = 1;
        if (!sees(c, d, b, q, k))
            continue;
        const double *key = d->k + ((b * n + k) * c->kv_heads + kv_head) * dim;
        double s = 0;
        for (int64_t i = 0; i < dim; i++)
            s += query[i] * key[i];
        s *= c->scale;
        if (c->softcap > 0) {
            double t = tanh(s / c->softcap);
            s = c->softcap * t;
            row->slope[k] = c->scale * (1 - t * t);
        }
        row->p[k] = s;
        most = s > most ? s : most;
        if (c->dropout > 0)
            row->kept[k] = rt_random_draw(stream, (uint64_t)k) >= rt_random_threshold(c->dropout)
                               ? 1 / (1 - c->dropout)
                               : 0;
    }
    for (int64_t k = 0; k < n; k++) {
        row->p[k] = row->p[k] == -INFINITY ? 0 : exp(row->p[k] - most);
        sum += row->p[k];
    }
    for (int64_t k = 0; k < n && sum > 0; k++)
        row->p[k] /= sum;
    row->lse = sum > 0 ? most + log(sum) : INFINITY;
}

void attention_reference(const AttentionCase *c, AttentionData *d)
{
    int64_t n = c->seq, dim = c->dim, group = c->heads / c->kv_heads;
    Row row = {calloc((size_t)n, 8), calloc((size_t)n, 8), calloc((size_t)n, 8), 0};
    memset(d->dk, 0, (size_t)(c->batch * n * c->kv_heads * dim) * 8);
    memset(d->dv, 0, (size_t)(c->batch * n * c->kv_heads * dim) * 8);
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t head = 0; head < c->heads; head++)
            for (int64_t q = 0; q < n; q++) {
                int64_t at = ((b * n + q) * c->heads + head) * dim;
                double *o = d->o + at, *dq = d->dq + at, delta = 0;
                const double *grad = d->grad + at;
                probabilities(c, d, b, head, q, &row);
                d->lse[(b * c->heads + head) * n + q] = row.lse;
                memset(o, 0, (size_t)dim * 8);
                memset(dq, 0, (size_t)dim * 8);
                for (int64_t k = 0; k < n; k++)
                    if (row.p[k] > 0)
                        for (int64_t i = 0; i < dim; i++)
                            o[i] += row.p[k] * row.kept[k] *
                                    d->v[((b * n + k) * c->kv_heads + head / group) * dim + i];
                for (int64_t i = 0; i < dim; i++)
                    delta += o[i] * grad[i];
                for (int64_t k = 0; k < n; k++) {
                    if (row.p[k] == 0)
                        continue;
                    int64_t kv = ((b * n + k) * c->kv_heads + head / group) * dim;
                    double dp = 0;
                    for (int64_t i = 0; i < dim; i++) {
                        dp += grad[i] * d->v[kv + i];
                        d->dv[kv + i] += row.p[k] * row.kept[k] * grad[i];
                    }
                    double ds = row.p[k] * (dp * row.kept[k] - delta) * row.slope[k];
                    for (int64_t i = 0; i < dim; i++) {
                        dq[i] += ds * d->k[kv + i];
                        d->dk[kv + i] += ds * d->q[at + i];
                    }
                }
            }
    free(row.p);
    free(row.slope);
    free(row.kept);
}
