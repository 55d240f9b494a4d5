/* model_grammar: the syntax of the model language. docs/language.md is its reference. */
%require "3.8"
%define api.pure full
%define api.prefix {model_yy}
%define api.token.prefix {MODEL_}
%define api.location.type {Span}
%define parse.lac full
%define parse.error custom
%locations
%param {yyscan_t scanner}
%parse-param {FrontParse *p}
%expect 0

%code requires {
#include "frontend/model_ast.h"

#ifndef YY_TYPEDEF_YY_SCANNER_T
#define YY_TYPEDEF_YY_SCANNER_T
typedef void *yyscan_t;
#endif
}

%code provides {
int model_yylex(MODEL_YYSTYPE *value, MODEL_YYLTYPE *span, yyscan_t scanner);
}

%code {
#define YYLLOC_DEFAULT(current, rhs, n)                                                     \
    ((current) = (n) ? front_span_join(YYRHSLOC(rhs, 1), YYRHSLOC(rhs, n))                  \
                     : (Span){YYRHSLOC(rhs, 0).file, YYRHSLOC(rhs, 0).line,                 \
                              YYRHSLOC(rhs, 0).col + YYRHSLOC(rhs, 0).length, 0})

#define PUSH(list, item) vec_push(p->s->arena, &(list), (item))
#define CHECK(call)  \
    do {             \
        if (!(call)) \
            YYABORT; \
    } while (0)

static void model_yyerror(Span *span, yyscan_t scanner, FrontParse *p, const char *message);
}

%union {
    int64_t integer;
    double real;
    Sym sym;
    FrontExpr *expr;
    FrontExprs exprs;
    FrontArg arg;
    FrontArgs args;
    FrontStmt *stmt;
    FrontStmts stmts;
    FrontName name;
    FrontNames names;
    FrontInit init;
    FrontTypeExpr type;
    FrontParam param;
    FrontParams params;
    FrontConfigKey key;
    FrontConfigKeys keys;
    bool yes;
    FrontInputDecl input;
    FrontInputDecls inputs;
    FrontAxisDecl axis;
    FrontAxisDecls axes;
}

%token END 0 "the end of the file"
%token BAD /* the lexer has said what is wrong */
%token MODEL "`model`" FOR "`for`" IN "`in`" CONFIG "`config`" IGNORE "`ignore`" AXIS "`axis`"
%token INPUT "`input`"
%token OPTIONAL "`optional`" BLOCK "`block`" PART "`part`" WEIGHT "`weight`" WEIGHTS "`weights`"
%token BUFFER "`buffer`"
%token INIT "`init`" AT "`at`" LET "`let`" IF "`if`" ELSE "`else`" RETURN "`return`"
%token REQUIRE "`require`"
%token INCLUDE "`include`" TRUE "`true`" FALSE "`false`" NONE "`none`" AND "`and`" OR "`or`"
%token NOT "`not`"
%token UNDERSCORE "`_`" DOTS "`..`" ORELSE "`??`" EQ "`==`" NE "`!=`" LE "`<=`" GE "`>=`" LT "`<`"
%token GT "`>`"
%token ASSIGN "`=`" PLUS "`+`" MINUS "`-`" STAR "`*`" SLASH "`/`" PERCENT "`%`" QUESTION "`?`"
%token COLON "`:`"
%token COMMA "`,`" DOT "`.`" LPAREN "`(`" RPAREN "`)`" LBRACKET "`[`" RBRACKET "`]`" LBRACE "`{`"
%token RBRACE "`}`"
%token <sym> NAME "a name" STRING "a string"
%token <integer> INT "a number"
%token <real> FLOAT "a number with a fraction"

%right QUESTION COLON
%left OR
%left AND
%precedence NOT
%nonassoc EQ NE LT LE GT GE
%right ORELSE
%left PLUS MINUS
%left STAR SLASH PERCENT
%precedence NEGATE

%type <expr> expr postfix primary string fallback
%type <exprs> exprs exprs1 dims shape shape_dims
%type <arg> arg
%type <args> args args1
%type <stmt> stmt else
%type <stmts> stmts body
%type <name> name
%type <names> names strings
%type <init> init init_value
%type <type> type
%type <param> param
%type <params> params params1
%type <key> key
%type <keys> keys config_items
%type <yes> nullable
%type <input> input
%type <inputs> inputs
%type <axis> axis
%type <axes> axes

%%

file
    : %empty
    | file item
    ;

item
    : INCLUDE STRING                            { PUSH(p->includes, ((FrontName){$2, @2})); }
    | MODEL name FOR strings body               { CHECK(front_model_add(p, $2, $4, $5)); }
    | BLOCK name LPAREN params RPAREN body      { CHECK(front_block_add(p, $2, $4, $6)); }
    | BLOCK name LPAREN params RPAREN ASSIGN expr
        {
            FrontStmt *result = front_stmt_new(p, FRONT_STMT_RETURN, @7);
            FrontStmts body = {0};
            PUSH(result->u.results, $7);
            PUSH(body, result);
            CHECK(front_block_add(p, $2, $4, body));
        }
    ;

strings
    : STRING
        { $$ = (FrontNames){0}; PUSH($$, ((FrontName){$1, @1})); }
    | strings COMMA STRING                      { $$ = $1; PUSH($$, ((FrontName){$3, @3})); }
    ;

name: NAME                                      { $$ = (FrontName){$1, @1}; };

names
    : name                                      { $$ = (FrontNames){0}; PUSH($$, $1); }
    | names COMMA name                          { $$ = $1; PUSH($$, $3); }
    ;

/* -- declarations -- */

params
    : %empty                                    { $$ = (FrontParams){0}; }
    | params1
    | params1 COMMA
    ;

params1
    : param                                     { $$ = (FrontParams){0}; PUSH($$, $1); }
    | params1 COMMA param                       { $$ = $1; PUSH($$, $3); }
    ;

param: name COLON type fallback                 { $$ = (FrontParam){$1, $3, $4}; };

fallback
    : %empty                                    { $$ = NULL; }
    | ASSIGN expr                               { $$ = $2; }
    ;

type
    : name                                      { CHECK(front_type_new(p, $1, &$$)); }
    | shape
        { $$ = (FrontTypeExpr){.kind = FRONT_TYPE_TENSOR, .dims = $1, .span = @$}; }
    | name shape
        {
            $$ = (FrontTypeExpr){
                .kind = FRONT_TYPE_TENSOR, .dtype = $1.name, .dims = $2, .span = @$};
        }
    | type QUESTION                             { $$ = $1; $$.nullable = true; }
    ;

shape
    : LBRACKET RBRACKET                         { $$ = (FrontExprs){0}; }
    | LBRACKET shape_dims RBRACKET              { $$ = $2; }
    ;

shape_dims
    : expr                                      { $$ = (FrontExprs){0}; PUSH($$, $1); }
    | UNDERSCORE                                { $$ = (FrontExprs){0}; PUSH($$, NULL); }
    | shape_dims COMMA expr                     { $$ = $1; PUSH($$, $3); }
    | shape_dims COMMA UNDERSCORE               { $$ = $1; PUSH($$, NULL); }
    ;

config_items
    : %empty                                    { $$ = (FrontConfigKeys){0}; }
    | config_items name nullable keys
        {
            FrontTypeExpr type;
            CHECK(front_type_new(p, $2, &type));
            $$ = $1;
            for (uint32_t i = 0; i < $4.n; i++) {
                $4.at[i].type = type.kind;
                $4.at[i].nullable = $3;
                PUSH($$, $4.at[i]);
            }
        }
    | config_items IGNORE names
        {
            $$ = $1;
            for (uint32_t i = 0; i < $3.n; i++)
                PUSH($$, ((FrontConfigKey){.name = $3.at[i], .ignored = true}));
        }
    ;

nullable
    : %empty                                    { $$ = false; }
    | QUESTION                                  { $$ = true; }
    ;

keys
    : key                                       { $$ = (FrontConfigKeys){0}; PUSH($$, $1); }
    | keys COMMA key                            { $$ = $1; PUSH($$, $3); }
    ;

key: name fallback
        { $$ = (FrontConfigKey){.name = $1, .fallback = $2}; };

inputs
    : input                                     { $$ = (FrontInputDecls){0}; PUSH($$, $1); }
    | inputs COMMA input                        { $$ = $1; PUSH($$, $3); }
    ;

input
    : name COLON type                           { $$ = (FrontInputDecl){$1, $3, false}; }
    | name COLON type OPTIONAL                  { $$ = (FrontInputDecl){$1, $3, true}; }
    ;

axes
    : axis                                      { $$ = (FrontAxisDecls){0}; PUSH($$, $1); }
    | axes COMMA axis                           { $$ = $1; PUSH($$, $3); }
    ;

axis: name ASSIGN expr                          { $$ = (FrontAxisDecl){$1, $3}; };

/* -- statements -- */

body: LBRACE stmts RBRACE                       { $$ = $2; };

stmts
    : %empty                                    { $$ = (FrontStmts){0}; }
    | stmts stmt                                { $$ = $1; PUSH($$, $2); }
    ;

stmt
    : CONFIG LBRACE config_items RBRACE
        { $$ = front_stmt_new(p, FRONT_STMT_CONFIG, @1); $$->u.keys = $3; }
    | AXIS axes
        { $$ = front_stmt_new(p, FRONT_STMT_AXIS, @$); $$->u.axes = $2; }
    | INPUT inputs
        { $$ = front_stmt_new(p, FRONT_STMT_INPUT, @$); $$->u.inputs = $2; }
    | WEIGHTS INIT init_value
        { $$ = front_stmt_new(p, FRONT_STMT_INIT, @$); $$->u.init = $3; }
    | LET names ASSIGN expr
        {
            $$ = front_stmt_new(p, FRONT_STMT_LET, @$);
            $$->u.assign.names = $2;
            $$->u.assign.value = $4;
        }
    | names ASSIGN expr
        {
            $$ = front_stmt_new(p, FRONT_STMT_ASSIGN, @$);
            $$->u.assign.names = $1;
            $$->u.assign.value = $3;
        }
    | FOR name IN expr DOTS expr body
        {
            $$ = front_stmt_new(p, FRONT_STMT_FOR, front_span_join(@1, @6));
            $$->u.loop.name = $2;
            $$->u.loop.from = $4;
            $$->u.loop.to = $6;
            $$->u.loop.body = $7;
        }
    | IF expr body else
        {
            $$ = front_stmt_new(p, FRONT_STMT_IF, front_span_join(@1, @2));
            $$->u.choice.condition = $2;
            $$->u.choice.yes = $3;
            if ($4)
                $$->u.choice.no = $4->u.choice.yes;
        }
    | PART name body
        {
            $$ = front_stmt_new(p, FRONT_STMT_PART, front_span_join(@1, @2));
            $$->u.part.role = $2;
            $$->u.part.body = $3;
        }
    | RETURN exprs1
        { $$ = front_stmt_new(p, FRONT_STMT_RETURN, @$); $$->u.results = $2; }
    | REQUIRE expr COMMA string
        {
            $$ = front_stmt_new(p, FRONT_STMT_REQUIRE, @2);
            $$->u.require.condition = $2;
            $$->u.require.message = $4;
        }
    ;

/* What follows an `if`, as the `yes` of a statement; an `else if` is a list of one. */
else
    : %empty                                    { $$ = NULL; }
    | ELSE body
        { $$ = front_stmt_new(p, FRONT_STMT_IF, @1); $$->u.choice.yes = $2; }
    | ELSE IF expr body else
        {
            FrontStmt *inner = front_stmt_new(p, FRONT_STMT_IF, front_span_join(@2, @3));
            inner->u.choice.condition = $3;
            inner->u.choice.yes = $4;
            if ($5)
                inner->u.choice.no = $5->u.choice.yes;
            $$ = front_stmt_new(p, FRONT_STMT_IF, @1);
            PUSH($$->u.choice.yes, inner);
        }
    ;

init
    : %empty                                    { $$ = (FrontInit){0}; }
    | INIT init_value                           { $$ = $2; }
    ;

init_value
    : name                                      { CHECK(front_init_new(p, $1, NULL, @$, &$$)); }
    | name LPAREN expr RPAREN                   { CHECK(front_init_new(p, $1, $3, @$, &$$)); }
    ;

/* -- expressions -- */

expr
    : postfix
    | expr QUESTION expr COLON expr
        {
            $$ = front_expr_new(p, FRONT_EXPR_CHOICE, @$);
            $$->u.choice.condition = $1;
            $$->u.choice.yes = $3;
            $$->u.choice.no = $5;
        }
    | expr OR expr                              { $$ = front_expr_binary(p, FRONT_OR, $1, $3, @2); }
    | expr AND expr
        { $$ = front_expr_binary(p, FRONT_AND, $1, $3, @2); }
    | expr EQ expr                              { $$ = front_expr_binary(p, FRONT_EQ, $1, $3, @2); }
    | expr NE expr                              { $$ = front_expr_binary(p, FRONT_NE, $1, $3, @2); }
    | expr LT expr                              { $$ = front_expr_binary(p, FRONT_LT, $1, $3, @2); }
    | expr LE expr                              { $$ = front_expr_binary(p, FRONT_LE, $1, $3, @2); }
    | expr GT expr                              { $$ = front_expr_binary(p, FRONT_GT, $1, $3, @2); }
    | expr GE expr                              { $$ = front_expr_binary(p, FRONT_GE, $1, $3, @2); }
    | expr ORELSE expr
        { $$ = front_expr_binary(p, FRONT_ELSE, $1, $3, @2); }
    | expr PLUS expr
        { $$ = front_expr_binary(p, FRONT_ADD, $1, $3, @2); }
    | expr MINUS expr
        { $$ = front_expr_binary(p, FRONT_SUB, $1, $3, @2); }
    | expr STAR expr
        { $$ = front_expr_binary(p, FRONT_MUL, $1, $3, @2); }
    | expr SLASH expr
        { $$ = front_expr_binary(p, FRONT_DIV, $1, $3, @2); }
    | expr PERCENT expr
        { $$ = front_expr_binary(p, FRONT_MOD, $1, $3, @2); }
    | NOT expr                                  { $$ = front_expr_unary(p, FRONT_NOT, $2, @$); }
    | WEIGHT string dims init
        { $$ = front_expr_weight(p, $2, $3, @3, $4, false, @$); }
    | BUFFER string dims init
        { $$ = front_expr_weight(p, $2, $3, @3, $4, true, @$); }
    | MINUS expr %prec NEGATE                   { $$ = front_expr_unary(p, FRONT_NEGATE, $2, @$); }
    ;

postfix
    : primary
    | postfix DOT name
        {
            $$ = front_expr_new(p, FRONT_EXPR_MEMBER, @$);
            $$->u.member.of = $1;
            $$->u.member.name = $3;
        }
    | postfix LBRACKET expr RBRACKET
        { $$ = front_expr_new(p, FRONT_EXPR_INDEX, @$); $$->u.index.of = $1; $$->u.index.at = $3; }
    | postfix LPAREN args RPAREN                { CHECK($$ = front_call_new(p, $1, $3, @$)); }
    | postfix AT string
        { CHECK(front_call_set_at(p, $1, $3, @$)); $$ = $1; }
    ;

primary
    : NAME
        { $$ = front_expr_new(p, FRONT_EXPR_NAME, @1); $$->u.s = $1; }
    | INT
        { $$ = front_expr_new(p, FRONT_EXPR_INT, @1); $$->u.i = $1; }
    | FLOAT
        { $$ = front_expr_new(p, FRONT_EXPR_FLOAT, @1); $$->u.f = $1; }
    | TRUE
        { $$ = front_expr_new(p, FRONT_EXPR_BOOL, @1); $$->u.b = true; }
    | FALSE                                     { $$ = front_expr_new(p, FRONT_EXPR_BOOL, @1); }
    | NONE                                      { $$ = front_expr_new(p, FRONT_EXPR_NONE, @1); }
    | string
    | LPAREN expr RPAREN                        { $$ = $2; $$->span = @$; }
    | LBRACKET exprs RBRACKET
        { $$ = front_expr_new(p, FRONT_EXPR_LIST, @$); $$->u.list = $2; }
    | LBRACKET expr FOR name IN expr DOTS expr RBRACKET
        {
            $$ = front_expr_new(p, FRONT_EXPR_EACH, @$);
            $$->u.each.item = $2;
            $$->u.each.name = $4;
            $$->u.each.from = $6;
            $$->u.each.to = $8;
        }
    ;

string: STRING
        { $$ = front_expr_new(p, FRONT_EXPR_STRING, @1); $$->u.s = $1; };

dims
    : LBRACKET RBRACKET                         { $$ = (FrontExprs){0}; }
    | LBRACKET exprs1 RBRACKET                  { $$ = $2; }
    ;

exprs
    : %empty                                    { $$ = (FrontExprs){0}; }
    | exprs1
    ;

exprs1
    : expr                                      { $$ = (FrontExprs){0}; PUSH($$, $1); }
    | exprs1 COMMA expr                         { $$ = $1; PUSH($$, $3); }
    ;

args
    : %empty                                    { $$ = (FrontArgs){0}; }
    | args1
    | args1 COMMA
    ;

args1
    : arg                                       { $$ = (FrontArgs){0}; PUSH($$, $1); }
    | args1 COMMA arg                           { $$ = $1; PUSH($$, $3); }
    ;

arg
    : expr                                      { $$ = (FrontArg){NULL, $1, @1}; }
    | NAME ASSIGN expr                          { $$ = (FrontArg){$1, $3, @1}; }
    ;

%%

/* -- errors: "expected X or Y, saw Z" -- */

/* Tokens that a message names by their class, when both `signs` of the class are expected. */
typedef struct TokenClass {
    const char *name;
    yysymbol_kind_t signs[2];
    yysymbol_kind_t members[24]; /* ends with YYSYMBOL_YYEMPTY */
} TokenClass;

static const TokenClass token_classes[] = {
    {"a statement",
     {YYSYMBOL_LET, YYSYMBOL_IF},
     {YYSYMBOL_CONFIG, YYSYMBOL_AXIS, YYSYMBOL_INPUT, YYSYMBOL_WEIGHTS, YYSYMBOL_LET, YYSYMBOL_NAME,
      YYSYMBOL_FOR, YYSYMBOL_IF, YYSYMBOL_PART, YYSYMBOL_RETURN, YYSYMBOL_REQUIRE,
      YYSYMBOL_YYEMPTY}},
    {"an expression",
     {YYSYMBOL_INT, YYSYMBOL_NOT},
     {YYSYMBOL_NAME, YYSYMBOL_STRING, YYSYMBOL_INT, YYSYMBOL_FLOAT, YYSYMBOL_TRUE, YYSYMBOL_FALSE,
      YYSYMBOL_NONE, YYSYMBOL_LPAREN, YYSYMBOL_LBRACKET, YYSYMBOL_WEIGHT, YYSYMBOL_BUFFER,
      YYSYMBOL_NOT, YYSYMBOL_MINUS, YYSYMBOL_YYEMPTY}},
    {"an operator",
     {YYSYMBOL_PLUS, YYSYMBOL_STAR},
     {YYSYMBOL_PLUS, YYSYMBOL_MINUS,    YYSYMBOL_STAR,   YYSYMBOL_SLASH,  YYSYMBOL_PERCENT,
      YYSYMBOL_EQ,   YYSYMBOL_NE,       YYSYMBOL_LT,     YYSYMBOL_LE,     YYSYMBOL_GT,
      YYSYMBOL_GE,   YYSYMBOL_AND,      YYSYMBOL_OR,     YYSYMBOL_ORELSE, YYSYMBOL_QUESTION,
      YYSYMBOL_DOT,  YYSYMBOL_LBRACKET, YYSYMBOL_LPAREN, YYSYMBOL_AT,     YYSYMBOL_YYEMPTY}},
    {"a definition (`model`, `block` or `include`)",
     {YYSYMBOL_MODEL, YYSYMBOL_BLOCK},
     {YYSYMBOL_MODEL, YYSYMBOL_BLOCK, YYSYMBOL_INCLUDE, YYSYMBOL_YYEMPTY}},
};

static bool symbol_among(yysymbol_kind_t symbol, const yysymbol_kind_t *symbols, int n)
{
    for (int i = 0; i < n && symbols[i] != YYSYMBOL_YYEMPTY; i++)
        if (symbols[i] == symbol)
            return true;
    return false;
}

static bool class_stands_for(const TokenClass *class, const yysymbol_kind_t *expected, int n,
                             yysymbol_kind_t symbol)
{
    return symbol_among(class->signs[0], expected, n) &&
           symbol_among(class->signs[1], expected, n) && symbol_among(symbol, class->members, 24);
}

static const char *expected_text(FrontParse *p, const yysymbol_kind_t *expected, int n)
{
    enum { CLASSES = sizeof token_classes / sizeof token_classes[0], NAMED = 8 };
    const char *names[CLASSES + NAMED];
    int n_names = 0;
    bool in_class[YYNTOKENS] = {false};
    for (int c = 0; c < CLASSES; c++) {
        bool used = false;
        for (int i = 0; i < n; i++)
            if (class_stands_for(&token_classes[c], expected, n, expected[i]))
                used = in_class[expected[i]] = true;
        if (used)
            names[n_names++] = token_classes[c].name;
    }
    for (int i = 0; i < n && n_names < NAMED; i++)
        if (!in_class[expected[i]])
            names[n_names++] = yysymbol_name(expected[i]);
    const char *text = n_names ? names[0] : "nothing more";
    for (int i = 1; i < n_names; i++)
        text =
            arena_printf(p->s->arena, "%s%s%s", text, i + 1 == n_names ? " or " : ", ", names[i]);
    return text;
}

static const char *seen_text(FrontParse *p, const yypcontext_t *context)
{
    const Span *span = yypcontext_location(context);
    switch (yypcontext_token(context)) {
    case YYSYMBOL_NAME:
    case YYSYMBOL_STRING:
    case YYSYMBOL_INT:
    case YYSYMBOL_FLOAT:
        break;
    default:
        return yysymbol_name(yypcontext_token(context));
    }
    for (uint32_t i = 0; i < p->s->sources.n; i++) {
        const Source *source = &p->s->sources.at[i];
        if (source->name != p->file)
            continue;
        const char *at = source->text;
        for (uint32_t line = 1; at && line < span->line; line++) {
            at = strchr(at, '\n');
            at = at ? at + 1 : NULL;
        }
        if (at)
            return arena_printf(p->s->arena, "`%.*s`", (int)span->length, at + span->col - 1);
    }
    return yysymbol_name(yypcontext_token(context));
}

static int yyreport_syntax_error(const yypcontext_t *context, yyscan_t scanner, FrontParse *p)
{
    (void)scanner;
    if (p->failed)
        return 0;
    yysymbol_kind_t expected[YYNTOKENS];
    int n = yypcontext_expected_tokens(context, expected, YYNTOKENS);
    diag(p->s, *yypcontext_location(context), front_syntax,
         expected_text(p, expected, n < 0 ? 0 : n), seen_text(p, context));
    p->failed = true;
    return 0;
}

/* Reached only when the parser's stack is full. */
static void model_yyerror(Span *span, yyscan_t scanner, FrontParse *p, const char *message)
{
    (void)scanner;
    (void)message;
    diag(p->s, *span, front_nesting);
    p->failed = true;
}
