/* emit_formula: what a fused region computes per element: a dag of nodes over rows x cols. The ops'
 * rules (emit_ops.c) write it; a target's walker (emit_cpu.c) reads it. */
#ifndef BACKEND_EMIT_FORMULA_H
#define BACKEND_EMIT_FORMULA_H

#include "backend/emit_region.h"

enum { EMIT_LANES = 16 }; /* of the fixed shape of sums, on every target */

typedef enum EmitClass { EMIT_LEAF, EMIT_REDUCE, EMIT_SWAP, EMIT_LANEWISE } EmitClass;

typedef enum EmitKind {
#define NODE(name, n_args, cost, class) NODE_##name,
#include "backend/emit_nodes.def"
#undef NODE
    NODE_COUNT
} EmitKind;

typedef struct EmitKindInfo {
    const char *name;
    uint32_t n_args, cost;
    EmitClass class;
} EmitKindInfo;

const EmitKindInfo *emit_kind_info(EmitKind kind);

typedef enum EmitElem { ELEM_F32, ELEM_F64, ELEM_I32, ELEM_I64, ELEM_BIT } EmitElem;

typedef struct EmitNode {
    uint32_t i;
} EmitNode; /* 0 is none */

/* How the lanes of a row read a tensor's row. */
typedef enum EmitWalk {
    WALK_ONE,     /* one element for the whole row */
    WALK_OWN,     /* element j */
    WALK_PARTNER, /* element (j + D/2) % D */
    WALK_WRAP,    /* element j % width */
    WALK_PAIR,    /* element j / 2 */
} EmitWalk;

/* Row (r / row_div) % row_mod of a tensor seen as rows of `width` elements. */
typedef struct EmitAccess {
    uint32_t tensor; /* index into the region's tensors */
    uint32_t walk;   /* EmitWalk */
    int64_t row_div, row_mod, width;
} EmitAccess;

typedef struct EmitNodeRec {
    uint8_t kind, elem; /* EmitKind, EmitElem */
    bool lanes;         /* differs between the columns of a row */
    bool rows;          /* differs between rows */
    uint32_t stage;     /* row reductions, or rows kept whole, that it has to wait for */
    uint32_t arg[3];
    union {
        double number;
        int64_t index; /* number as integer; random, param: which */
        EmitAccess access;
    };
} EmitNodeRec;

typedef struct EmitStore {
    EmitNode value;
    EmitAccess at; /* written by the rows below row_mod alone */
} EmitStore;

typedef struct EmitColumn { /* a sum over rows: of a, or of a * b by fma */
    EmitNode a, b;
    uint32_t tensor;
    uint64_t offset; /* bytes into a chunk's partials */
} EmitColumn;

typedef struct EmitFormula {
    Arena *arena;
    const EmitRegion *region;
    VEC(EmitNodeRec) nodes; /* [0] is unused; arguments come before their users */
    VEC(EmitStore) stores;
    VEC(EmitColumn) columns;
    uint64_t partial_bytes;
    uint32_t n_stages;
} EmitFormula;

/* The formula of a region, by its ops' rules. */
EmitFormula *emit_formula(const EmitRegion *region, Arena *arena);

/* Equal nodes are one node. `b` and `c` are none where the kind has fewer arguments. */
EmitNode emit_node(EmitFormula *f, EmitKind kind, EmitElem elem, EmitNode a, EmitNode b,
                   EmitNode c);
EmitNode emit_number(EmitFormula *f, EmitElem elem, double value);
EmitNode emit_integer(EmitFormula *f, EmitElem elem, int64_t value);
EmitNode emit_leaf(EmitFormula *f, EmitKind kind, EmitElem elem, int64_t index);
EmitNode emit_load(EmitFormula *f, EmitAccess access);

static inline const EmitNodeRec *emit_rec(const EmitFormula *f, EmitNode n)
{
    return &f->nodes.at[n.i];
}

/* -- what a rule may ask for and give: one op of the region -- */

typedef struct EmitRule {
    EmitFormula *f;
    const IrGraph *g;
    IrOp op;
    EmitElem elem;    /* of the op's arithmetic: f64 where an operand or a result is, else f32 */
    EmitNode *values; /* by the region's value number: what was computed for it */
    uint32_t *n_random;
} EmitRule;

bool emit_has(const EmitRule *r, uint32_t in);
EmitNode emit_in(EmitRule *r, uint32_t in); /* the operand's element: full, broadcast, or scalar */
EmitNode emit_in_part(EmitRule *r, uint32_t in, int64_t part, int64_t parts); /* of the last dim */
EmitNode emit_in_row(EmitRule *r, uint32_t in); /* an operand with one element per row */
/* A rotary table's angle for this element, and x's other half of the pair. */
EmitNode emit_in_angle(EmitRule *r, uint32_t in, bool interleaved);
EmitNode emit_in_partner(EmitRule *r, uint32_t in, bool interleaved);
EmitNode emit_round(EmitRule *r, EmitNode value, DType dtype);
/* Rounds to the result's dtype, stores it where it has memory, and returns what was rounded. */
EmitNode emit_out(EmitRule *r, uint32_t out, EmitNode value);
EmitNode emit_out_row(EmitRule *r, uint32_t out, EmitNode value);
/* The result is the sum over rows of a, or of a * b. */
void emit_out_column(EmitRule *r, uint32_t out, EmitNode a, EmitNode b);

#endif
