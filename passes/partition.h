/* partition: what may be divided between tensor-parallel ranks. */
#ifndef PASSES_PARTITION_H
#define PASSES_PARTITION_H

#include "passes/pass.h"

/* Of a module whose types are the local ones and whose ops are still those of one rank: do ranks
 * that each run them on their part, with sums where partition puts them, make what one rank makes?
 * If not, the first op that does not is the user's error. */
Status partition_check(PassContext *c, int64_t tp);

#endif
