/* lex: the tokens of the IR's text form. Internal to ir/. */
#ifndef IR_LEX_H
#define IR_LEX_H

#include "base/diag.h"
#include "base/session.h"

typedef enum IrTokenKind { /* punctuation is its own character */
                           IR_TOKEN_END = 256,
                           IR_TOKEN_NEWLINE,
                           IR_TOKEN_WORD,   /* rmsnorm, level, after_weight; also "quoted" */
                           IR_TOKEN_NUMBER, /* -100, 1e-06, inf, nan */
                           IR_TOKEN_VALUE,  /* %h2 */
                           IR_TOKEN_STATE,  /* $h.0.w */
                           IR_TOKEN_AT,     /* @fwd, @h.0/mlp */
    IR_TOKEN_BAD,    /* no token; already reported */
} IrTokenKind;

typedef struct IrToken {
    int kind;
    Sym text;       /* WORD: the word; VALUE, STATE, AT: the name without its sigil */
    bool is_quoted; /* WORD: was in quotes, so it is no keyword */
    bool is_int;    /* NUMBER: `i` holds it too */
    int64_t i;
    double f;
    Span span;
} IrToken;

typedef struct IrLexer {
    Session *s;
    Sym file;
    const char *at, *end, *line_start;
    uint32_t line;
} IrLexer;

void ir_lex_init(IrLexer *lexer, Session *s, const Source *source);
IrToken ir_lex_next(IrLexer *lexer);
/* The token as messages name it: `%h2`, the end of the line ... */
const char *ir_lex_describe(IrLexer *lexer, const IrToken *token);

bool ir_lex_starts_word(char c);
bool ir_lex_in_word(char c);
bool ir_lex_in_name(char c); /* behind a sigil, without quotes */

#endif
