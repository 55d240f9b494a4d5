/* weights: the parameters and buffers of a plan, from a folder in the Hugging Face layout or from
 * the seed, and the names they have in files. The arena comes zeroed: moments and accumulators
 * begin at zero and are not touched here. */
#ifndef RUNTIME_WEIGHTS_H
#define RUNTIME_WEIGHTS_H

#include "base/session.h"
#include "runtime/pieces.h"
#include "runtime/safetensors.h"

typedef struct RtWeights {
    RtTensors tensors;
    const char **
        file_names; /* by tensor: a parameter's or buffer's name in files, as it was loaded; a
                     * moment's or master's: `exp_avg.NAME`, `master.NAME`; NULL for others */
    RtTensorSet source; /* open while `carried` has tensors */
    uint64_t fingerprint; /* of the files that they were read from; 0: from the seed */
    VEC(const RtFileTensor *)
    carried; /* what the model does not read and a save copies, bit for bit */
} RtWeights;

/* Checks every name, shape and dtype, reports all that is wrong, and only then copies: float dtypes
 * are converted, rounded once; a parameter with a master is its master, rounded. Buffers that the
 * file lacks keep their init. */
Status rt_weights_load(Session *s, const RtWorld *world, const RtPlan *plan, unsigned char *arena,
                       const char *dir, RtWeights *out_weights);

/* The same for a folder that a save wrote: another dtype than the state's is an error, and nothing
 * is rounded. Masters are filled all the same and then overwritten from the training state. */
Status rt_weights_restore(Session *s, const RtWorld *world, const RtPlan *plan,
                          unsigned char *arena, const char *dir, RtWeights *out_weights);

/* From the seed; files get the plan's own names. */
Status rt_weights_init(Session *s, const RtWorld *world, const RtPlan *plan, unsigned char *arena,
                       uint64_t seed, RtWeights *out_weights);

void rt_weights_release(RtWeights *weights);

/* The i-th tensor as one to write, under its name in files; all ranks hand over what they hold
 * of it. `world` is NULL where there is one rank. */
RtOutTensor rt_weights_out(Arena *scratch, RtWorld *world, const unsigned char *arena,
                           const RtWeights *weights, uint32_t i);
/* The same for something else that is laid out like the tensor's state. */
RtOutTensor rt_tensor_out(Arena *scratch, RtWorld *world, const RtTensors *tensors, uint32_t i,
                          DType dtype, const char *name, const unsigned char *base);
/* What this rank holds of a tensor, from the whole in a file: float dtypes are converted,
 * rounded once, or twice where there is a master. */
void rt_tensor_fill(const RtTensors *tensors, uint32_t i, unsigned char *arena,
                    const RtFileTensor *from);

#endif
