/* coverage: what recompute came to, measured on @step: which values made in a block's part live on
 * into the backward pass of their micro-batch. Fills the recompute fields of PassFacts; the caller
 * has counted blocks' replayed FLOPs. */
#ifndef PASSES_COVERAGE_H
#define PASSES_COVERAGE_H

#include "passes/facts.h"
#include "passes/lifetime.h"

void pass_coverage(const PassLifetimes *l, const PassOptions *options, Arena *scratch,
                   PassFacts *f);

#endif
