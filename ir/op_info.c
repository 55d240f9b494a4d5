#include "ir/ir.h"

#include "ir/shape.h"

/* Every row has every column exactly once: each column adds one decimal digit. */
#include "ir/op_columns.h"
#undef INS
#undef OUTS
#undef ATTRS
#undef TRAITS
#undef LEVELS
#undef SHAPE
#undef GRAD
#undef SHARD
#undef COST
#undef CPU
#undef CUDA
#define INS(...) +1
#define OUTS(...) +10
#define ATTRS(...) +100
#define TRAITS(bits) +1000
#define LEVELS(first, last) +10000
#define SHAPE(f) +100000
#define GRAD(f) +1000000
#define SHARD(text) +10000000
#define COST(f) +100000000
#define CPU(class, f) +1000000000
#define CUDA(class, f) +10000000000
#define OP(name, doc, ins, outs, attrs, ...)                                                       \
    _Static_assert(0 ins outs attrs __VA_ARGS__ == 11111111111,                                    \
                   "ops.def, op `" #name "`: a column is missing or stands twice");
#include "ir/ops.def"
#undef OP

/* A row's operands, results and attributes must fit ir.h's limits. */
#include "ir/op_columns.h"
#undef INS
#undef OUTS
#undef ATTRS
#undef IN
#undef OPT
#undef STATE
#undef OPT_STATE
#undef OUT
#undef I64
#undef F64
#undef BOOL
#undef WORD
#define INS(...) __VA_ARGS__
#define OUTS(...) __VA_ARGS__
#define ATTRS(...) __VA_ARGS__
#define IN(x) +1
#define OPT(x) +1
#define STATE(x) +1
#define OPT_STATE(x) +1
#define OUT(x) +1
#define I64(name, value) +1
#define F64(name, value) +1
#define BOOL(name, value) +1
#define WORD(name, words) +1
#define OP(name, doc, ins, outs, attrs, ...)                                                       \
    _Static_assert(0 ins <= IR_MAX_INS && 0 outs <= IR_MAX_OUTS && 0 attrs <= IR_MAX_ATTRS,        \
                   "ops.def, op `" #name "`: too many operands, results or attributes");           \
    enum { N_IN_##name = 0 ins, N_OUT_##name = 0 outs, N_ATTR_##name = 0 attrs };
#include "ir/ops.def"
#undef OP

#include "ir/op_columns.h"
#undef INS
#undef OUTS
#undef ATTRS
#undef IN
#undef OPT
#undef STATE
#undef OPT_STATE
#undef OUT
#undef I64
#undef F64
#undef BOOL
#undef WORD
#undef TRAITS
#undef LEVELS
#undef SHAPE
#define INS(...) .in = {__VA_ARGS__},
#define OUTS(...) .out = {__VA_ARGS__},
#define ATTRS(...) .attr = {__VA_ARGS__},
#define IN(x) {#x, false, false},
#define OPT(x) {#x, true, false},
#define STATE(x) {#x, false, true},
#define OPT_STATE(x) {#x, true, true},
#define OUT(x) {#x},
#define I64(name, value) {#name, IR_ATTR_I64, value, NULL},
#define F64(name, value) {#name, IR_ATTR_F64, value, NULL},
#define BOOL(name, value) {#name, IR_ATTR_BOOL, value, NULL},
#define WORD(name, words) {#name, IR_ATTR_SYM, 0, words},
#define TRAITS(bits) .traits = (bits),
#define LEVELS(from, to) .levels = (2u << IR_##to) - (1u << IR_##from),
#define SHAPE(f) .shape = ir_shape_##f,
#define OP(id, text, ins, outs, attrs, ...)                                                        \
    {.name = #id,                                                                                  \
     .doc = text,                                                                                  \
     .n_in = N_IN_##id,                                                                            \
     .n_out = N_OUT_##id,                                                                          \
     .n_attr = N_ATTR_##id,                                                                        \
     ins outs attrs __VA_ARGS__},

static const IrOpInfo infos[IR_OP_COUNT] = {
    {.name = "none", .doc = "no op"},
#include "ir/ops.def"
};
#undef OP

const IrOpInfo *ir_op_info(IrOpKind kind)
{
    return &infos[kind < IR_OP_COUNT ? kind : IR_OP_none];
}

IrOpKind ir_op_find(const char *name)
{
    for (unsigned kind = 1; kind < IR_OP_COUNT; kind++)
        if (!strcmp(infos[kind].name, name))
            return (IrOpKind)kind;
    return IR_OP_none;
}

/* Is `word` one of `a|b|c`? No choices: any word will do. */
bool ir_attr_is_choice(const char *choices, const char *word)
{
    size_t length = strlen(word);
    if (!*choices)
        return true;
    for (const char *at = choices;; at++) {
        size_t n = strcspn(at, "|");
        if (n == length && !strncmp(at, word, n))
            return true;
        at += n;
        if (!*at)
            return false;
    }
}
