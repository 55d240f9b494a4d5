/* emit: fused regions to one native object, with the table of kernels and the plan's bytes beside
 * them. */
#ifndef BACKEND_EMIT_H
#define BACKEND_EMIT_H

#include "backend/emit_region.h"

typedef struct EmitUnit EmitUnit;

/* cpu: `host` or one of the names that the diagnostic of a wrong one lists. */
Status emit_unit_new(Session *s, const char *cpu, EmitUnit **out_unit);
/* Target cuda: kernels go into a device image, which the object carries. */
Status emit_unit_new_cuda(Session *s, EmitUnit **out_unit);
void emit_unit_free(EmitUnit *unit);

/* Adds a kernel; they are numbered in the order of calls. */
void emit_unit_kernel(EmitUnit *unit, const EmitRegion *region);
uint32_t emit_unit_n_kernels(const EmitUnit *unit);

/* Optimises, and writes an object file that defines `step_program` (plan.h). dump_dir: for .ll
 * files, or NULL. */
Status emit_unit_write(EmitUnit *unit, const void *plan, uint64_t plan_bytes,
                       const char *object_path, const char *dump_dir);

/* Target cuda, instead of emit_unit_write: the device code alone. */
Status emit_unit_ptx(EmitUnit *unit, const char **out_text);

#endif
