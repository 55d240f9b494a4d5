/* attention_reference: attention and its gradients as the plain formula in f64. */
#ifndef TESTS_DEVICE_ATTENTION_REFERENCE_H
#define TESTS_DEVICE_ATTENTION_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef struct AttentionCase {
    int64_t batch, seq, heads, kv_heads, dim;
    bool causal;
    int64_t window;
    double scale, softcap, dropout;
    int64_t key, micro_batch;
    bool segments, keep;
    bool view; /* q, k, v are columns of one tensor, with gaps; so are their gradients */
    bool is_f32, plain;
    double std; /* of q */
} AttentionCase;

typedef struct AttentionData { /* laid out as the tensors are, dense */
    double *q, *k, *v, *grad, *o, *lse, *dq, *dk, *dv;
    const int32_t *segments, *keep;
    const int64_t *random;
} AttentionData;

/* o, lse, dq, dk, dv from the rest. */
void attention_reference(const AttentionCase *c, AttentionData *d);

#endif
