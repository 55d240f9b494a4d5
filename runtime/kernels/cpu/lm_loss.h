/* lm_loss: what the loss and its gradient share. */
#ifndef RUNTIME_KERNELS_CPU_LM_LOSS_H
#define RUNTIME_KERNELS_CPU_LM_LOSS_H

#include "runtime/kernels/cpu/product.h"

#include "runtime/kernels/cpu/real_f32.h"
#include "runtime/kernels/cpu/lm_loss_tile.inc.h"
#include "runtime/kernels/cpu/real_f64.h"
#include "runtime/kernels/cpu/lm_loss_tile.inc.h"

#endif
