/* check_replicas: what --check asks of several ranks: that those who hold the same have the same
 * bits. */
#ifndef RUNTIME_CHECK_REPLICAS_H
#define RUNTIME_CHECK_REPLICAS_H

#include "runtime/comm.h"
#include "runtime/plan_map.h"

/* Compares weights, moments and masters between all ranks; an error names the first that
 * differs. */
Status rt_check_replicas(Session *s, RtWorld *world, const RtPlan *plan,
                         const unsigned char *arena);

#endif
