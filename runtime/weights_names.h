/* weights_names: how a plan's weight names stand in a file: families store the same tensors under
 * different prefixes, and a tied pair under either of its two names. */
#ifndef RUNTIME_WEIGHTS_NAMES_H
#define RUNTIME_WEIGHTS_NAMES_H

#include "runtime/pieces.h"
#include "runtime/safetensors.h"

typedef struct RtNaming { /* prefixes of one layout: of the text model's tensors, and of its head
                             (`lm_head.`) */
    const char *body, *head;
} RtNaming;

/* `alias` may stand in a file beside or in place of the plan's state `name` */
typedef struct RtTie {
    const char *alias, *name;
} RtTie;

typedef struct RtNames {
    RtNaming plan, file;
    VEC(RtTie) ties;
} RtNames;

/* Finds the plan's layout from its own names, and the file's as the one that finds the most of
 * them. Ties come from the settings (`"tied": {"lm_head.weight": "model.embed_tokens.weight"}`);
 * without that key, a plan that has no head is taken to use its embedding for it. */
Status rt_names_detect(Session *s, const RtTensors *tensors, const RtTensorSet *set,
                       RtNames *out_names);

/* The name of a plan's weight, or of an alias, in the file's layout. */
const char *rt_names_in_file(Session *s, const RtNames *names, const char *name);

/* The tensor that an alias of `name` has in the set, or NULL. */
const RtFileTensor *rt_names_alias(Session *s, const RtNames *names, const RtTensorSet *set,
                                   const char *name);

/* A buffer that older exporters wrote and every loader skips (`h.0.attn.bias`, a causal mask). */
bool rt_names_ignorable(const RtNames *names, const char *file_name);

/* Names with the digits of each run replaced by `*`, each pattern once with its count:
 * `h.*.attn.bias (12)`. */
const char *rt_names_summary(Session *s, const char *const *names, uint32_t n);

#endif
