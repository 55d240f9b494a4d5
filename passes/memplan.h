/* memplan: the parts of the memory plan that have files of their own. */
#ifndef PASSES_MEMPLAN_H
#define PASSES_MEMPLAN_H

#include "passes/lifetime.h"
#include "passes/memplan_pack.h"
#include "passes/options.h"

/* Bytes of arena that the op's kernel needs beside its tensors; not for ops in kernel regions. */
uint64_t pass_op_workspace(PassTarget target, const IrGraph *g, const IrUses *uses, IrOp op);

/* Bytes at the end of the arena that matrix products share, target cuda; else 0. */
uint64_t pass_library_workspace(PassTarget target);

/* Offsets of all buffers, relative to the transient space, and its height. Micro-batches that
 * repeat each other are packed once: the same buffer of each has the same offset. */
uint64_t memplan_pack_buffers(const PassLifetimes *l, uint64_t bound, Arena *scratch,
                              uint64_t *out_offsets);

#endif
