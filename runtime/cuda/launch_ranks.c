/* Kernels of plans for more than one rank, which target cuda does not run. */
#include "runtime/cuda/launch_view.h"

#define REFUSE(name)                                                                               \
    Status rt_cuda_launch_##name(RtCuda *cuda, const RtCall *call)                                 \
    {                                                                                              \
        return rt_cuda_refuse(cuda, call, "more than one rank does not run on this target");       \
    }

REFUSE(all_gather)
REFUSE(reduce_scatter)
REFUSE(all_reduce)
REFUSE(send)
REFUSE(recv)
REFUSE(flat_pack)
REFUSE(invert_count)
REFUSE(sum_scalars)
REFUSE(embed_part)
REFUSE(embed_part_grad)
REFUSE(lm_loss_part)
REFUSE(lm_loss_join)
REFUSE(lm_loss_part_grad)
