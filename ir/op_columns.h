/* op_columns: every column of ir/ops.def, empty. A layer includes this, redefines the columns
 * that it reads, defines OP, includes the table, and undefines OP. No include guard: each
 * expansion starts afresh. */
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
#undef GRAD
#undef SHARD
#undef COST
#undef CPU
#undef CUDA
#define INS(...)
#define OUTS(...)
#define ATTRS(...)
#define IN(x)
#define OPT(x)
#define STATE(x) IN(x) /* a layer that does not care sees a plain operand */
#define OPT_STATE(x) OPT(x)
#define OUT(x)
#define I64(name, value)
#define F64(name, value)
#define BOOL(name, value)
#define WORD(name, words)
#define TRAITS(bits)
#define LEVELS(first, last)
#define SHAPE(f)
#define GRAD(f)
#define SHARD(text)
#define COST(f)
#define CPU(class, f)
#define CUDA(class, f)
