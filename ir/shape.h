/* shape: the shape functions that ops.def names, ir_shape_NAME each: operand types and attributes
 * to result types. False means that the operands do not fit; call->why then says so. */
#ifndef IR_SHAPE_H
#define IR_SHAPE_H

#include "ir/ir.h"

#include "ir/op_columns.h"
#undef SHAPE
#define SHAPE(f) bool ir_shape_##f(IrShapeCall *call);
#define OP(name, doc, ins, outs, attrs, ...) __VA_ARGS__
#include "ir/ops.def"
#undef OP
#include "ir/op_columns.h"

/* Shared by the files of shape functions. */
bool ir_shape_fail(IrShapeCall *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
const IrTypeInfo *ir_shape_in(const IrShapeCall *call, uint32_t i);
const char *ir_shape_text(const IrShapeCall *call, uint32_t i); /* operand i's type, for messages */
bool ir_shape_is_int(const IrTypeInfo *info);
bool ir_shape_float(IrShapeCall *call, uint32_t i, const char *name);
bool ir_shape_same_dims(const IrTypeInfo *a, const IrTypeInfo *b);
/* Are dims [0, n) of both equal? Each must have that many. */
bool ir_shape_same_leading(const IrTypeInfo *a, const IrTypeInfo *b, uint32_t n);
DType ir_shape_statistics(DType dtype); /* f64 of f64, else f32 */
/* Sets result i; a result that the caller asked for keeps its dtype when `any_dtype`. */
void ir_shape_out(IrShapeCall *call, uint32_t i, IrTypeInfo info, bool any_dtype);

#endif
