/* ir: the training IR. A module holds axes, types, scopes, persistent states and graphs; a graph
 * is an ordered list of ops over typed values. Handles are indices; 0 is "none". Records are
 * dense arrays; facts that one analysis owns live in that analysis. docs/ir.md specifies the
 * text form. */
#ifndef IR_IR_H
#define IR_IR_H

#include "base/dtype.h"
#include "base/session.h"

typedef struct IrValue { uint32_t i; } IrValue;
typedef struct IrOp { uint32_t i; } IrOp;
typedef struct IrType { uint32_t i; } IrType;
typedef struct IrScope { uint32_t i; } IrScope;   /* 1 is the model itself */
typedef struct IrRegion { uint32_t i; } IrRegion;
typedef struct IrState { uint32_t i; } IrState;

typedef enum IrLevel { IR_MODEL, IR_STEP, IR_LOCAL, IR_PLANNED } IrLevel;

enum { IR_MAX_RANK = 5, IR_MAX_FACTORS = 4 };

/* Of one value; sums over all values of a module then stay far from overflow. */
#define IR_MOST_BYTES ((int64_t)1 << 50)

/* -- types: a dtype and dims; a dim is a product of factors, each an axis or a plain number -- */

typedef enum IrMesh { IR_MESH_NONE, IR_MESH_TP, IR_MESH_DP, IR_MESH_EP } IrMesh;

typedef struct IrFactor {
    Sym axis;      /* NULL: a plain number */
    int64_t size;  /* before division */
    IrMesh mesh;   /* the mesh axis that divides it */
    int32_t parts; /* into how many parts; 1 = whole */
} IrFactor;

typedef struct IrDim {
    uint32_t n; /* 0 factors is the dim 1 */
    IrFactor f[IR_MAX_FACTORS];
} IrDim;

typedef struct IrTypeInfo {
    DType dtype;
    uint32_t rank;
    IrDim dim[IR_MAX_RANK];
} IrTypeInfo;

typedef struct IrAxis {
    Sym name;
    int64_t size;
} IrAxis;

/* -- scopes: the tree of the model -- */

typedef enum IrScopeKind { IR_SCOPE_MODEL, IR_SCOPE_BLOCK, IR_SCOPE_PART } IrScopeKind;

typedef struct IrScopeRec {
    Sym name; /* full path: `model.layers.3`, `model.layers.3/attention` */
    IrScopeKind kind;
    IrScope parent;
    Sym role; /* PART: attention, mlp, pre_norm ...; else NULL */
    Sym def;  /* BLOCK: the block definition's name */
    Span span;
} IrScopeRec;

/* -- states: what outlives a step -- */

#define IR_STATE_KINDS(X)                                                               \
    X(PARAM, param)     /* a weight under its checkpoint name */                        \
    X(BUFFER, buffer)   /* read from the checkpoint, never trained */                   \
    X(MASTER, master)   /* f32 copy of a parameter */                                   \
    X(MOMENT1, moment1) /* exp_avg, or SGD's momentum */                                \
    X(MOMENT2, moment2) /* exp_avg_sq */                                                \
    X(ACC, acc)         /* gradient accumulator over micro-batches */                   \
    X(SCALAR, scalar)   /* lr, step, seed, counts, norm, loss: data that steps change */

typedef enum IrStateKind {
#define IR_STATE_ENUM(id, name) IR_STATE_##id,
    IR_STATE_KINDS(IR_STATE_ENUM)
#undef IR_STATE_ENUM
        IR_STATE_KIND_COUNT
} IrStateKind;

typedef enum IrInitKind { IR_INIT_ZERO, IR_INIT_ONE, IR_INIT_NORMAL, IR_INIT_CONST } IrInitKind;

/* A pipeline stage may need only a run of one dim of a parameter: its first element there, and the
 * dim's size in the whole; whole 0: it has all of it. */
typedef struct IrNarrow {
    uint32_t dim;
    int64_t begin, whole;
} IrNarrow;

typedef struct IrStateRec {
    /* without `$`; a parameter's is its checkpoint name; `NAME.exp_avg` and the like for the
     * others */
    Sym name;
    IrStateKind kind;
    IrType type;
    IrState of; /* MASTER, MOMENTS, ACC: the parameter they belong to */
    bool trainable;
    IrInitKind init;
    double init_value; /* NORMAL: standard deviation; CONST: the value */
    IrScope scope;
    Span span;
    int64_t offset; /* bytes into the arena from PLANNED on; -1 before */
    /* A flat state holds several tensors, its pieces; 0 pieces: it is one tensor itself. */
    uint32_t first_piece, n_pieces; /* in IrModule.pieces */
    Sym cut; /* the mesh axes over which the flat buffer is cut, `dp`; NULL: this is all of it */
    IrNarrow narrow;
} IrStateRec;

/* A tensor in the flat buffer of a unit: a parameter as it was before it became a piece. */
typedef struct IrPiece {
    Sym name;
    IrType type;   /* what one rank has of it */
    int64_t begin; /* its first element in the flat buffer */
    IrInitKind init;
    double init_value;
    Span span;
    IrNarrow narrow;
} IrPiece;

/* A parameter that other stages of the pipeline hold too; its gradient is the sum of theirs. */
typedef struct IrTie {
    Sym name;
    Sym comm;      /* the stages that do: `pp`, `pp:0,3` */
    int64_t ranks; /* how many they are */
    bool first;    /* this stage is the first of them: its gradient counts in the norm */
} IrTie;

typedef struct IrMeshSizes { /* at least 1 each */
    int64_t tp, dp, dpr, pp; /* dp: ranks that share, dpr: groups of such ranks */
} IrMeshSizes;

enum { IR_MESH_SIZES = 4 };
extern const char *const ir_mesh_size_names[IR_MESH_SIZES]; /* in that order */

/* -- ops -- */

typedef enum IrOpKind {
    IR_OP_none,
#define OP(name, ...) IR_OP_##name,
#include "ir/ops.def"
#undef OP
    IR_OP_COUNT
} IrOpKind;

typedef enum IrAttrType { IR_ATTR_I64, IR_ATTR_F64, IR_ATTR_BOOL, IR_ATTR_SYM } IrAttrType;

typedef union IrAttr {
    int64_t i;
    double f;
    bool b;
    Sym sym;
} IrAttr;

/* What an op of a backward graph is for (zero-bubble schedules part them). */
typedef enum IrServes {
    IR_SERVES_NONE,
    IR_SERVES_INPUT,
    IR_SERVES_WEIGHT,
    IR_SERVES_BOTH
} IrServes;

typedef struct IrOpRec {
    uint16_t kind; /* IrOpKind */
    uint8_t serves; /* IrServes */
    bool dead;     /* taken out of the order; its record stays so that handles stay valid */
    uint32_t n_in, n_out;
    uint32_t first_in;   /* into graph->operands; an absent optional operand is value 0 */
    uint32_t first_out;  /* results are consecutive values */
    uint32_t first_attr; /* into graph->attrs, one per declared attribute in the table's order */
    IrScope scope;
    IrRegion region;
    Sym re;            /* a replay: the name of its original's first result; else NULL */
    uint32_t instance; /* PLANNED: micro-batch, counted from 0 */
    Sym graph;         /* PLANNED: the graph that the op was unrolled from */
    Span span;
} IrOpRec;

typedef enum IrValueDef { IR_DEF_NONE, IR_DEF_RESULT, IR_DEF_PARAM, IR_DEF_STATE } IrValueDef;

/* Where a value's elements are, from PLANNED on. A view's element e (row-major, logical) is
 * element view_offset + (e / run) * pitch + e % run of its base. Views of views are resolved:
 * base is never a view. The base of what an op writes is the result of a concat behind it. */
typedef struct IrPlace {
    /* bytes into the arena; -1: no memory (a value inside a fused kernel, or a view) */
    int64_t offset;
    IrValue base;   /* a view of this value; 0: none */
    int64_t view_offset, run, pitch;
} IrPlace;

typedef struct IrValueRec {
    /* without `%`; unique in its graph. A state's is the state's name (printed with `$`) */
    Sym name;
    IrType type;
    IrValueDef def;
    IrOp op;         /* RESULT */
    uint32_t result; /* RESULT: which */
    IrState state;   /* STATE */
    Span span;
    IrPlace place;
} IrValueRec;

typedef enum IrRegionKind { IR_REGION_RECOMPUTE, IR_REGION_KERNEL } IrRegionKind;

/* A contiguous run of a graph's order. RECOMPUTE: what the backward pass replays. KERNEL: one
 * fused launch. */
typedef struct IrRegionRec {
    IrRegionKind kind;
    IrScope scope; /* RECOMPUTE: the block or part it covers */
    Sym policy;    /* RECOMPUTE: block, submodule, selective; KERNEL: the kernel's name */
    VEC(IrValue) saves; /* RECOMPUTE: values made inside that are kept all the same */
    /* KERNEL: bytes; its place is IrGraph.workspaces, at the region's first op */
    uint64_t workspace;
} IrRegionRec;

typedef struct IrModule IrModule;

typedef struct IrGraph {
    IrModule *m;
    Sym name; /* without `@` */
    uint32_t index;
    VEC(IrOpRec) ops;       /* [0] is unused, as in every table that a handle indexes */
    VEC(IrValueRec) values;
    VEC(IrRegionRec) regions;
    VEC(IrValue) operands;
    VEC(IrAttr) attrs;
    VEC(IrOp) order;        /* the ops that run, in order */
    VEC(IrValue) params;
    VEC(IrValue) results;
    /* PLANNED: by op index (a kernel region's: its first op's): offset in the arena (-1: none),
     * run = bytes */
    VEC(IrPlace) workspaces;
    Map names;               /* Sym -> value */
    Map state_values;        /* state index -> value */
    uint32_t epoch;          /* changes with every edit; analyses are stamped with it */
} IrGraph;

typedef struct IrParameters { /* of the whole model, whatever a rank holds of it */
    uint64_t tensors, elements, trained; /* trained: of the elements */
} IrParameters;

struct IrModule {
    Session *s;
    IrLevel level;
    Sym model; /* the model definition's name */
    VEC(IrAxis) axes;
    VEC(IrTypeInfo) types;
    Map type_index;
    VEC(IrScopeRec) scopes;
    Map scope_index;
    VEC(IrStateRec) states;
    Map state_index;
    VEC(IrPiece) pieces; /* from LOCAL on; nothing is unused */
    IrMeshSizes mesh;
    VEC(IrGraph *) graphs;
    IrParameters parameters; /* known once it is known which are trained */
    int64_t micro_batches;   /* instances of @fwd and @bwd in a step; 0 until known */
    uint64_t arena_bytes;    /* PLANNED */
    bool exchanges_beside;   /* PLANNED: those between ranks run beside what does not need them */
    /* A pipeline: a module per stage, which the pass `stages` makes of the whole model's; a
     * stage's module knows which it is, what others hold of it too, and how many cuts of the model
     * (chunks) it has. */
    VEC(IrModule *) stages;
    uint32_t stage, chunks;
    VEC(IrTie) ties;
};

/* -- the op table -- */

typedef enum IrTrait {
    IR_PURE = 1 << 0,
    IR_RANDOM = 1 << 1,      /* keyed: replays draw the same numbers */
    IR_STATE_UPDATE = 1 << 2,/* writes its state operands */
    IR_CACHE = 1 << 3,       /* a K/V cache op: gone after kv-share */
    IR_COLLECTIVE = 1 << 4,
    IR_COMMUTATIVE = 1 << 5,
    IR_PRODUCT = 1 << 6,     /* a matrix product or attention: what `selective` recompute keeps */
    IR_DISCRETE = 1 << 7,    /* a discrete choice: saved, never replayed */
    IR_VIEW = 1 << 8,        /* its result is its operand's memory */
    IR_VARIADIC = 1 << 9,    /* the last declared operand repeats */
    IR_TUPLE = 1 << 10,      /* all results are values of the model, not residuals of the first */
    IR_POINTWISE = 1 << 11,  /* pure, one result: what pointwise recompute replays */
    IR_STRIDED = 1 << 12,    /* its kernels write results whose rows lie apart */
} IrTrait;

enum { IR_MAX_INS = 10, IR_MAX_OUTS = 4, IR_MAX_ATTRS = 12 };

/* one question to a shape function: operands and attributes in, result types out */
typedef struct IrShapeCall {
    IrModule *m;
    const IrType *in; /* {0} where absent */
    uint32_t n_in;
    const IrAttr *attr;
    IrType *out; /* on entry {0}, or the type that the text or the caller asks for */
    const char *why; /* on failure: what is wrong, lower case, with the two facts that disagree */
} IrShapeCall;

typedef struct IrOpInfo {
    const char *name, *doc;
    uint32_t n_in, n_out, n_attr;
    /* written: a state, changed by the op */
    struct { const char *name; bool optional, written; } in[IR_MAX_INS];
    struct { const char *name; } out[IR_MAX_OUTS];
    struct {
        const char *name;
        IrAttrType type;
        double number;    /* default of a number or bool */
        /* SYM: `default|choice|choice`, the first being the default; "" = any word */
        const char *text;
    } attr[IR_MAX_ATTRS];
    uint32_t traits; /* IrTrait */
    uint32_t levels; /* bit per IrLevel */
    bool (*shape)(IrShapeCall *call);
} IrOpInfo;

const IrOpInfo *ir_op_info(IrOpKind kind);
IrOpKind ir_op_find(const char *name); /* IR_OP_none if there is none */
bool ir_attr_is_choice(const char *choices, const char *word); /* of `a|b|c`; "" = any word */

/* -- modules, types, scopes, states -- */

IrModule *ir_module_new(Session *s);
/* One of its own, with equal handles. */
IrModule *ir_module_copy(const IrModule *m);
/* Does the loss come out of this module? Of a pipeline's, out of the last alone. */
static inline bool ir_module_has_loss(const IrModule *m)
{
    return m->mesh.pp < 2 || m->stage + 1 == m->mesh.pp;
}
void ir_axis_set(IrModule *m, Sym name, int64_t size);
const IrAxis *ir_axis_find(const IrModule *m, Sym name);

IrType ir_type(IrModule *m, const IrTypeInfo *info);
const IrTypeInfo *ir_type_info(const IrModule *m, IrType type);
IrType ir_type_with_dtype(IrModule *m, IrType type, DType dtype);
IrType ir_type_scalar(IrModule *m, DType dtype);
IrDim ir_dim_number(int64_t size);
IrDim ir_dim_axis(Sym axis, int64_t size);
IrDim ir_dim_product(IrDim a, IrDim b);
int64_t ir_dim_size(const IrDim *dim); /* the local size */
/* Do the dims hold the same elements on each rank, row-major? The same factors are divided, and the
 * sizes before, between and behind them are equal. */
bool ir_dims_alike(const IrDim *a, uint32_t n_a, const IrDim *b, uint32_t n_b);
bool ir_dim_equal(const IrDim *a, const IrDim *b); /* the same of one dim each */
int64_t ir_type_numel(const IrModule *m, IrType type);
int64_t ir_type_bytes(const IrModule *m, IrType type);
int64_t ir_type_last(const IrModule *m, IrType type); /* size of the last dim; 1 for a scalar */
/* one dtype, and dims equal one by one */
bool ir_type_agree(const IrModule *m, IrType a, IrType b);
const char *ir_type_text(IrModule *m, IrType type);
const char *ir_type_text_in(const IrModule *m, IrType type, Arena *arena);

IrScope ir_scope(IrModule *m, IrScopeRec rec); /* finds by name, or adds */
IrScope ir_scope_find(const IrModule *m, Sym name);
const IrScopeRec *ir_scope_rec(const IrModule *m, IrScope scope);
IrScope ir_scope_block(const IrModule *m, IrScope scope); /* the nearest enclosing block, or 0 */
/* the nearest enclosing part's role, or `other` */
Sym ir_scope_role(IrModule *m, IrScope scope);

IrState ir_state_add(IrModule *m, IrStateRec rec);
IrState ir_state_find(const IrModule *m, Sym name);
IrStateRec *ir_state_rec(const IrModule *m, IrState state);
/* Drops the states that are marked, by index; the others move up. No op may read a dropped one. */
void ir_states_drop(IrModule *m, const bool *drop);

/* -- graphs -- */

IrGraph *ir_graph_new(IrModule *m, Sym name);
IrGraph *ir_graph_find(const IrModule *m, const char *name);
IrValue ir_graph_param(IrGraph *g, Sym name, IrType type, Span span);
IrValue ir_graph_state(IrGraph *g, IrState state);
IrValue ir_value_find(const IrGraph *g, Sym name);
Sym ir_value_fresh_name(IrGraph *g, Sym wish); /* wish, or wish.1, wish.2 ... */
void ir_value_rename(IrGraph *g, IrValue v, Sym name);

static inline IrOpRec *ir_op(const IrGraph *g, IrOp op) { return &g->ops.at[op.i]; }
static inline IrValueRec *ir_value(const IrGraph *g, IrValue v) { return &g->values.at[v.i]; }
static inline IrOpKind ir_op_kind(const IrGraph *g, IrOp op)
{
    return (IrOpKind)g->ops.at[op.i].kind;
}
/* Does the op stand in a kernel region? */
static inline bool ir_in_kernel(const IrGraph *g, IrOp op)
{
    IrRegion region = g->ops.at[op.i].region;
    return region.i && g->regions.at[region.i].kind == IR_REGION_KERNEL;
}
static inline IrValue ir_in(const IrGraph *g, IrOp op, uint32_t i)
{
    const IrOpRec *rec = &g->ops.at[op.i];
    return i < rec->n_in ? g->operands.at[rec->first_in + i] : (IrValue){0};
}
static inline IrValue ir_out(const IrGraph *g, IrOp op, uint32_t i)
{
    return (IrValue){g->ops.at[op.i].first_out + i};
}
static inline IrType ir_value_type(const IrGraph *g, IrValue v) { return g->values.at[v.i].type; }
void ir_set_in(IrGraph *g, IrOp op, uint32_t i, IrValue v);

/* aborts on an unknown name: our bug */
int64_t ir_attr_i64(const IrGraph *g, IrOp op, const char *name);
double ir_attr_f64(const IrGraph *g, IrOp op, const char *name);
bool ir_attr_bool(const IrGraph *g, IrOp op, const char *name);
Sym ir_attr_sym(const IrGraph *g, IrOp op, const char *name);
IrAttr *ir_attr_at(const IrGraph *g, IrOp op, const char *name);

/* -- building: an insertion point with defaults for what every op carries -- */

typedef struct IrBuilder {
    IrGraph *g;
    /* position in the order; UINT32_MAX = the end. Moves behind each op that is built */
    uint32_t at;
    IrScope scope;
    IrRegion region;
    IrServes serves;
    Span span;
    Sym re;
} IrBuilder;

typedef struct IrOpArgs { /* what one op is built from; zeroed fields mean "default" */
    IrOpKind kind;
    const IrValue *in;
    uint32_t n_in;
    const char *attrs[IR_MAX_ATTRS]; /* names of attributes given, NULL-terminated */
    IrAttr values[IR_MAX_ATTRS];     /* and their values */
    /* wish for the first result's name; others get `.outname` behind it */
    Sym name;
    /* wishes for result 1, 2 ... where `.outname` does not do; [0] is unused */
    Sym out_names[IR_MAX_OUTS];
    /* result types where the shape function cannot know them (reshape, cast, ...) */
    IrType out[IR_MAX_OUTS];
} IrOpArgs;

IrBuilder ir_builder(IrGraph *g); /* at the end */
/* Infers result types; on a shape error emits one diagnostic at the builder's span and returns
 * {0}. */
IrOp ir_build(IrBuilder *b, const IrOpArgs *args);
/* The plain case: operands only; returns the first result. Variable length list of IrValue, n of
 * them. */
IrValue ir_build_simple(IrBuilder *b, IrOpKind kind, Sym name, uint32_t n, ...);
/* Clones an op with operands mapped by the caller's function; results get names `prefix + old +
 * suffix`. Scope, span, graph and instance are the original's; the region is the builder's;
 * serves and re are the builder's where it has any. */
typedef IrValue (*IrMapFn)(void *context, IrValue old);
IrOp ir_clone(IrBuilder *b, const IrGraph *from, IrOp op, IrMapFn map, void *context,
              const char *prefix, const char *suffix);

/* marks dead; ir_graph_compact drops it from the order */
void ir_op_remove(IrGraph *g, IrOp op);
void ir_graph_compact(IrGraph *g);
void ir_replace_uses(IrGraph *g, IrValue old, IrValue with); /* operands, results and saves */

/* -- uses: an analysis -- */

/* uses of value v: ops at[first[v] .. first[v+1]), in order; results count in `is_result` */
typedef struct IrUses {
    uint32_t *first;
    IrOp *at;
    unsigned char *is_result;
    uint32_t epoch;
} IrUses;
IrUses ir_uses(const IrGraph *g, Arena *arena);
/* By op index: its place in the order. */
uint32_t *ir_positions(const IrGraph *g, Arena *arena);

#endif
