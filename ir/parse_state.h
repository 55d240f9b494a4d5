/* parse_state: what the files of the IR's parser share. Functions that parse return false where
 * they have reported an error; the line is then skipped. Internal to ir/. */
#ifndef IR_PARSE_STATE_H
#define IR_PARSE_STATE_H

#include "ir/ir.h"
#include "ir/lex.h"

typedef struct IrParser {
    Session *s;
    IrLexer lexer;
    IrToken t; /* the token to be taken next */
    IrModule *m;
    uint32_t errors_before;
    bool has_model; /* a scope of kind model has been declared */
    Sym file; /* of `!line:col`, by the last `file` directive */
    VEC(struct IrPendingOf {
        IrState state;
        Sym of;
        Span span;
    })
    pending_of;
    /* the graph that is being read */
    IrGraph *g;
    IrBuilder b;
    Sym instance_graph;
    uint32_t instance;
    Map poisoned; /* names whose definition failed: their uses fail in silence */
    VEC(struct IrPendingSave {
        Sym name;
        Span span;
    })
    saves; /* of the open region */
    VEC(struct IrPendingBase {
        IrValue view;
        IrToken base;
    })
    bases; /* that are not defined yet */
    uint32_t nested; /* regions that were refused inside it and are still open */
} IrParser;

IrToken ir_parse_take(IrParser *p);
bool ir_parse_fail(IrParser *p,
                   const char *expected); /* reports the next token as not that; returns false */
bool ir_parse_expect(IrParser *p, int kind, const char *what, IrToken *out);
bool ir_parse_punct(IrParser *p, char c);
bool ir_parse_at_word(const IrParser *p,
                      const char *word); /* is the next token this word, unquoted? */
bool ir_parse_line_end(IrParser *p);
bool ir_parse_int(IrParser *p, const char *what, int64_t least, int64_t most, int64_t *out);
bool ir_parse_scope(IrParser *p, IrScope *out); /* @name or none */
bool ir_parse_span(IrParser *p, Span *out);     /* optional `!line:col+length` */
bool ir_parse_type(IrParser *p, IrType *out);
/* Optional `at N` and `view(...)`. out_base: the view's base where none of that name is above;
 * NULL: there must be one. */
bool ir_parse_place(IrParser *p, IrPlace *out, IrToken *out_base);
bool ir_parse_value(IrParser *p, IrValue *out); /* %name, $name */
bool ir_parse_find(IrParser *p, const IrToken *name, IrValue *out); /* the graph's value */
void ir_parse_suggest(IrParser *p, const char *name, const char *const *names, uint32_t n);

bool ir_parse_op(IrParser *p);

#endif
