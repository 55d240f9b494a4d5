/* plan_write: a PLANNED module to the bytes of runtime/abi/plan.h, and the kernels that its fused
 * instructions name. */
#ifndef BACKEND_PLAN_WRITE_H
#define BACKEND_PLAN_WRITE_H

#include "backend/backend.h"
#include "backend/plan_kernels.h"

typedef struct PlanWriter {
    Session *s;
    IrModule *m;
    const BackendOptions *options;
    Arena *arena; /* tables under construction */
    PlanKernels *kernels;
    PlanHeader header;
    VEC(PlanInstr) instrs, eval_instrs;
    VEC(PlanTensor) tensors;
    VEC(PlanParam) params;
    VEC(PlanRange) deaths;
    VEC(PlanState) states;
    VEC(PlanInput) inputs;
    VEC(PlanKept) kept;
    VEC(PlanGrad) grads;
    VEC(PlanOutside) outside;
    VEC(PlanComm) comms;
    VEC(PlanPiece) pieces;
    VEC(char) strings;
    Map string_at; /* Sym -> offset */
} PlanWriter;

Status plan_write(Session *s, IrModule *m, const BackendOptions *options, PlanKernels *kernels,
                  unsigned char **out_bytes, uint64_t *out_n_bytes);

/* -- shared by the plan_*.c files -- */

uint32_t plan_string(PlanWriter *w, Sym text);
uint32_t plan_string_format(PlanWriter *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A value as a kernel's tensor; PLAN_ABSENT where it has no memory. */
PlanTensor plan_tensor(PlanWriter *w, const IrGraph *g, IrValue v);

/* The communicator of a collective op, as an index into the plan's comms. */
uint32_t plan_comm(PlanWriter *w, const IrGraph *g, IrOp op);

/* One op as one instruction of a runtime kernel. */
typedef struct PlanCall {
    PlanWriter *w;
    const IrGraph *g;
    IrOp op;
    PlanKernel kernel;
    PlanTensor *tensor; /* room for all operands and results, absent at first */
    PlanParam param[16];
    uint32_t n_tensors, n_params;
} PlanCall;

/* plan_lower.c. False: the op has no kernel. */
bool plan_lower(PlanCall *call);
/* plan_instrs.c */
Status plan_write_graph(PlanWriter *w, const IrGraph *g, bool eval);
/* plan_tables.c: all that is not instructions. */
Status plan_write_tables(PlanWriter *w);

#endif
