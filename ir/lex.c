#include "ir/lex.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

bool ir_lex_starts_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool ir_lex_in_word(char c)
{
    return ir_lex_starts_word(c) || is_digit(c) || c == '.';
}

bool ir_lex_in_name(char c)
{
    return ir_lex_in_word(c) || c == '/';
}

void ir_lex_init(IrLexer *lexer, Session *s, const Source *source)
{
    *lexer = (IrLexer){.s = s,
                       .file = source->name,
                       .at = source->text,
                       .end = source->text + source->length,
                       .line_start = source->text,
                       .line = 1};
}

static char peek(const IrLexer *lexer, uint32_t ahead)
{
    return lexer->at + ahead < lexer->end ? lexer->at[ahead] : 0;
}

static void skip_blanks(IrLexer *lexer)
{
    while (lexer->at < lexer->end) {
        char c = *lexer->at;
        if (c == '#')
            while (lexer->at < lexer->end && *lexer->at != '\n')
                lexer->at++;
        else if (c == ' ' || c == '\t' || c == '\r')
            lexer->at++;
        else
            break;
    }
}

static int hex_digit(char c)
{
    return is_digit(c)            ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* The text between quotes, escapes resolved; NULL and one diagnostic where it is malformed. */
static Sym lex_quoted(IrLexer *lexer, Span span)
{
    VEC(char) text = {0};
    lexer->at++;
    for (;;) {
        char c = peek(lexer, 0);
        if (lexer->at >= lexer->end || c == '\n') {
            diag(lexer->s, span, ir_bad_string, "the closing quote is missing");
            return NULL;
        }
        lexer->at++;
        if (c == '"')
            break;
        if (c == '\\') {
            c = peek(lexer, 0);
            int high = hex_digit(peek(lexer, 1)), low = hex_digit(peek(lexer, 2));
            if (c == 'x' && high >= 0 && low >= 0 && (high || low)) {
                c = (char)(high * 16 + low);
                lexer->at += 3;
            } else if (c == '"' || c == '\\') {
                lexer->at++;
            } else {
                diag(lexer->s, span, ir_bad_string, "escapes are \\\", \\\\ and \\xNN, not \\x00");
                return NULL;
            }
        } else if (!c) {
            diag(lexer->s, span, ir_bad_string, "it contains a zero byte");
            return NULL;
        }
        vec_push(lexer->s->arena, &text, c);
    }
    return intern_n(&lexer->s->interner, text.n ? text.at : "", text.n);
}

static bool lex_number(IrLexer *lexer, IrToken *token)
{
    char digits[64];
    uint32_t n = peek(lexer, 0) == '-';
    bool whole = true;
    while (is_digit(peek(lexer, n)))
        n++;
    if (peek(lexer, n) == '.' && is_digit(peek(lexer, n + 1))) {
        whole = false;
        for (n++; is_digit(peek(lexer, n)); n++)
            ;
    }
    if (peek(lexer, n) == 'e' || peek(lexer, n) == 'E') {
        uint32_t sign = peek(lexer, n + 1) == '-' || peek(lexer, n + 1) == '+';
        if (is_digit(peek(lexer, n + 1 + sign))) {
            whole = false;
            for (n += 1 + sign; is_digit(peek(lexer, n)); n++)
                ;
        }
    }
    if (n >= sizeof digits)
        return false;
    memcpy(digits, lexer->at, n);
    digits[n] = 0;
    lexer->at += n;
    token->kind = IR_TOKEN_NUMBER;
    token->f = strtod(digits, NULL);
    errno = 0;
    token->i = whole ? strtoll(digits, NULL, 10) : 0;
    token->is_int = whole && !errno;
    return true;
}

static bool lex_name(IrLexer *lexer, IrToken *token)
{
    char sigil = *lexer->at++;
    token->kind = sigil == '%' ? IR_TOKEN_VALUE : sigil == '$' ? IR_TOKEN_STATE : IR_TOKEN_AT;
    if (peek(lexer, 0) == '"')
        return (token->text = lex_quoted(lexer, token->span)) != NULL;
    const char *start = lexer->at;
    while (lexer->at < lexer->end && ir_lex_in_name(*lexer->at))
        lexer->at++;
    token->text = intern_n(&lexer->s->interner, start, (size_t)(lexer->at - start));
    return lexer->at > start;
}

static void lex_word(IrLexer *lexer, IrToken *token)
{
    const char *start = lexer->at;
    bool negative = *lexer->at == '-';
    lexer->at += negative;
    while (lexer->at < lexer->end && ir_lex_in_word(*lexer->at))
        lexer->at++;
    token->kind = IR_TOKEN_WORD;
    token->text = intern_n(&lexer->s->interner, start, (size_t)(lexer->at - start));
    const char *word = token->text + negative;
    if (!strcmp(word, "inf") || !strcmp(word, "nan")) {
        token->kind = IR_TOKEN_NUMBER;
        token->f = *word == 'i' ? INFINITY : NAN;
        if (negative)
            token->f = -token->f;
    }
}

static bool lex_token(IrLexer *lexer, IrToken *token)
{
    char c = *lexer->at;
    if (c == '\n') {
        token->kind = IR_TOKEN_NEWLINE;
        lexer->at++;
        lexer->line++;
        lexer->line_start = lexer->at;
        return true;
    }
    if (c == '%' || c == '$' || c == '@')
        return lex_name(lexer, token);
    if (is_digit(c) || (c == '-' && is_digit(peek(lexer, 1))))
        return lex_number(lexer, token);
    if (ir_lex_starts_word(c) || (c == '-' && (peek(lexer, 1) == 'i' || peek(lexer, 1) == 'n'))) {
        lex_word(lexer, token);
        return true;
    }
    if (c == '"') {
        token->kind = IR_TOKEN_WORD;
        token->is_quoted = true;
        return (token->text = lex_quoted(lexer, token->span)) != NULL;
    }
    if (c && strchr("=,:(){}[]*/+!", c)) {
        token->kind = c;
        lexer->at++;
        return true;
    }
    return false;
}

IrToken ir_lex_next(IrLexer *lexer)
{
    skip_blanks(lexer);
    const char *start = lexer->at;
    IrToken token = {
        .kind = IR_TOKEN_END,
        .span = {lexer->file, lexer->line, (uint32_t)(start - lexer->line_start) + 1, 1}};
    if (start >= lexer->end)
        return token;
    uint32_t errors = lexer->s->n_errors;
    bool good = lex_token(lexer, &token);
    if (lexer->at > start)
        token.span.length = (uint32_t)(lexer->at - start);
    if (good)
        return token;
    if (lexer->s->n_errors == errors)
        diag(lexer->s, token.span, ir_bad_token, (unsigned char)*start >= 0x20 ? *start : '?');
    while (lexer->at < lexer->end && *lexer->at != '\n')
        lexer->at++;
    token.kind = IR_TOKEN_BAD;
    return token;
}

const char *ir_lex_describe(IrLexer *lexer, const IrToken *token)
{
    if (token->kind == IR_TOKEN_END)
        return "the end of the file";
    if (token->kind == IR_TOKEN_NEWLINE)
        return "the end of the line";
    if (token->text)
        return arena_printf(lexer->s->arena, "`%s%s`",
                            token->kind == IR_TOKEN_VALUE   ? "%"
                            : token->kind == IR_TOKEN_STATE ? "$"
                            : token->kind == IR_TOKEN_AT    ? "@"
                                                            : "",
                            token->text);
    if (token->kind == IR_TOKEN_NUMBER && token->is_int)
        return arena_printf(lexer->s->arena, "`%lld`", (long long)token->i);
    if (token->kind == IR_TOKEN_NUMBER)
        return arena_printf(lexer->s->arena, "`%g`", token->f);
    return arena_printf(lexer->s->arena, "`%c`", token->kind);
}
