/* One text, and the files that it includes, to definitions. */
#include "frontend/model_ast.h"

#include <stdlib.h>

#define YYSTYPE MODEL_YYSTYPE
#define YYLTYPE MODEL_YYLTYPE
#include "frontend/model_grammar.h"
#include "frontend/model_lexer.h"

/* An `include` is relative to its file; `a/../b` is `b`, so that a file has one name. */
static Sym path_beside(Session *s, const char *file, const char *path)
{
    const char *slash = strrchr(file, '/');
    int folder = path[0] == '/' || !slash ? 0 : (int)(slash - file + 1);
    while (folder > 1 && !strncmp(path, "../", 3)) {
        int up = folder - 1;
        while (up && file[up - 1] != '/')
            up--;
        if (!strncmp(file + up, "../", 3) || !strncmp(file + up, "./", 2))
            break;
        folder = up;
        path += 3;
    }
    return intern_printf(&s->interner, "%.*s%s", folder, file, path);
}

static Status parse_includes(Session *s, const FrontParse *p)
{
    for (uint32_t i = 0; i < p->includes.n; i++)
        TRY(front_model_parse_file(s, path_beside(s, p->file, p->includes.at[i].name),
                                   p->includes.at[i].span, p->defs));
    return STATUS_OK;
}

static Status parse_text(Session *s, const Source *source, FrontDefs *defs)
{
    enum { LONGEST = 16 << 20 };
    if (source->length > LONGEST) {
        diag(s, ((Span){.file = source->name}), front_text_size);
        return STATUS_USER;
    }
    FrontParse p = {.s = s, .file = source->name, .defs = defs, .line = 1, .col = 1};
    yyscan_t scanner;
    if (model_yylex_init_extra(&p, &scanner))
        abort();
    model_yy_scan_bytes(source->text, (int)source->length, scanner);
    int failed = model_yyparse(scanner, &p);
    model_yylex_destroy(scanner);
    if (failed || p.failed)
        return STATUS_USER;
    return parse_includes(s, &p);
}

static bool known_file(FrontDefs *defs, Sym path)
{
    for (uint32_t i = 0; i < defs->files.n; i++)
        if (defs->files.at[i].name == path)
            return true;
    return false;
}

Status front_model_parse(Session *s, const char *path, const char *text, size_t length,
                         FrontDefs *defs)
{
    Source source = {sym(s, path), arena_strndup(s->arena, text, length), length};
    vec_push(s->arena, &defs->files, ((FrontName){source.name, no_span}));
    session_add_source(s, source);
    return parse_text(s, &source, defs);
}

Status front_model_parse_file(Session *s, const char *path, Span from, FrontDefs *defs)
{
    enum { MOST_FILES = 64 };
    Sym name = sym(s, path);
    Source source;
    if (known_file(defs, name))
        return STATUS_OK;
    if (defs->files.n == MOST_FILES) {
        diag(s, from, front_include_many, MOST_FILES);
        return STATUS_USER;
    }
    vec_push(s->arena, &defs->files, ((FrontName){name, from}));
    TRY(session_read_source(s, path, from, &source));
    return parse_text(s, &source, defs);
}
