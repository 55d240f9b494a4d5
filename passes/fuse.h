/* fuse: kernel regions over LOCAL graphs, and the one-op regions of what stays alone. */
#ifndef PASSES_FUSE_H
#define PASSES_FUSE_H

#include "passes/memplan_views.h"
#include "passes/pass.h"

/* The views of every graph of a LOCAL module, by graph index: what @bwd reads of @fwd is laid out
 * as there. */
PassViews *pass_fuse_views(const IrModule *m, PassTarget target, Arena *arena);

/* Gives every fused-class op without a region one of its own, and takes the ops out of their
 * recompute regions, which autodiff has expanded. */
void pass_fuse_rest(PassContext *c, IrGraph *g, PassViews views);

#endif
