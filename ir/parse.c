/* The text's frame: the module's tables, graphs, directives and regions. */
#include "ir/parse.h"

#include "ir/parse_state.h"
#include "ir/stage_text.h"

enum { MOST_ERRORS = 20 };

static void skip_line(IrParser *p)
{
    while (p->t.kind != IR_TOKEN_NEWLINE && p->t.kind != IR_TOKEN_END)
        ir_parse_take(p);
}

static bool unknown_word(IrParser *p, const IrToken *token, const char *what,
                         const char *const *words, uint32_t n)
{
    diag(p->s, token->span, ir_unknown_word, what, token->text);
    ir_parse_suggest(p, token->text, words, n);
    return false;
}

/* `key=` whose value follows. */
static bool parse_key(IrParser *p, IrToken *key)
{
    return ir_parse_expect(p, IR_TOKEN_WORD, "a key", key) && ir_parse_punct(p, '=');
}

static bool duplicate(IrParser *p, const IrToken *token, const char *what)
{
    diag(p->s, token->span, ir_duplicate, what, token->text);
    return false;
}

/* -- module, axis, file, scope -- */

static const char *const level_names[] = {"model", "step", "local", "planned"};

static bool parse_module(IrParser *p)
{
    bool has_level = false;
    while (p->t.kind == IR_TOKEN_WORD) {
        static const char *const keys[] = {"level", "model", "micro_batches", "arena_bytes"};
        IrToken key, word;
        int64_t number;
        if (!parse_key(p, &key))
            return false;
        if (!strcmp(key.text, "level")) {
            uint32_t level = 0;
            if (!ir_parse_expect(p, IR_TOKEN_WORD, "a level", &word))
                return false;
            while (level < 4 && strcmp(level_names[level], word.text))
                level++;
            if (level == 4)
                return unknown_word(p, &word, "level", level_names, 4);
            p->m->level = (IrLevel)level;
            has_level = true;
        } else if (!strcmp(key.text, "model")) {
            if (!ir_parse_expect(p, IR_TOKEN_WORD, "the model's name", &word))
                return false;
            p->m->model = word.text;
        } else if (!strcmp(key.text, "micro_batches")) {
            if (!ir_parse_int(p, "a number of micro-batches", 0, INT32_MAX, &p->m->micro_batches))
                return false;
        } else if (!strcmp(key.text, "arena_bytes")) {
            if (!ir_parse_int(p, "a number of bytes", 0, INT64_MAX, &number))
                return false;
            p->m->arena_bytes = (uint64_t)number;
        } else {
            return unknown_word(p, &key, "key of `module`", keys, 4);
        }
    }
    return (has_level || ir_parse_fail(p, "`level=`")) && ir_parse_line_end(p);
}

static bool parse_axis(IrParser *p)
{
    IrToken name;
    int64_t size;
    if (!ir_parse_expect(p, IR_TOKEN_WORD, "an axis name", &name) || !ir_parse_punct(p, '=') ||
        !ir_parse_int(p, "the axis' size", 1, INT64_MAX, &size) || !ir_parse_line_end(p))
        return false;
    if (ir_axis_find(p->m, name.text))
        return duplicate(p, &name, "axis");
    ir_axis_set(p->m, name.text, size);
    return true;
}

/* `mesh tp=2 dp=4`: axes that are not there have one rank. */
static bool parse_mesh(IrParser *p)
{
    IrMeshSizes *mesh = &p->m->mesh;
    int64_t *const sizes[] = {&mesh->tp, &mesh->dp, &mesh->dpr, &mesh->pp};
    while (p->t.kind == IR_TOKEN_WORD) {
        IrToken key;
        uint32_t i = 0;
        if (!parse_key(p, &key))
            return false;
        while (i < IR_MESH_SIZES && strcmp(ir_mesh_size_names[i], key.text))
            i++;
        if (i == IR_MESH_SIZES)
            return unknown_word(p, &key, "mesh axis", ir_mesh_size_names, IR_MESH_SIZES);
        if (!ir_parse_int(p, "a number of ranks", 1, INT32_MAX, sizes[i]))
            return false;
    }
    return ir_parse_line_end(p);
}

static bool parse_file(IrParser *p)
{
    IrToken name;
    if (!ir_parse_expect(p, IR_TOKEN_WORD, "a file name in quotes", &name) || !ir_parse_line_end(p))
        return false;
    p->file = *name.text ? name.text : NULL;
    return true;
}

static bool parse_scope_keys(IrParser *p, IrScopeRec *rec)
{
    while (p->t.kind == IR_TOKEN_WORD) {
        static const char *const keys[] = {"role", "def", "in"};
        IrToken key, word;
        if (!parse_key(p, &key))
            return false;
        if (!strcmp(key.text, "in")) {
            if (!ir_parse_scope(p, &rec->parent))
                return false;
        } else if (!strcmp(key.text, "role") || !strcmp(key.text, "def")) {
            if (!ir_parse_expect(p, IR_TOKEN_WORD, "a name", &word))
                return false;
            *(*key.text == 'r' ? &rec->role : &rec->def) = word.text;
        } else {
            return unknown_word(p, &key, "key of `scope`", keys, 3);
        }
    }
    return true;
}

static bool parse_scope_decl(IrParser *p)
{
    static const char *const kinds[] = {"model", "block", "part"};
    IrToken name, kind;
    IrScopeRec rec = {0};
    if (!ir_parse_expect(p, IR_TOKEN_AT, "a scope, @name", &name) ||
        !ir_parse_expect(p, IR_TOKEN_WORD, "the scope's kind", &kind))
        return false;
    uint32_t k = 0;
    while (k < 3 && strcmp(kinds[k], kind.text))
        k++;
    if (k == 3)
        return unknown_word(p, &kind, "kind of scope", kinds, 3);
    rec.name = name.text;
    rec.kind = (IrScopeKind)k;
    if (!parse_scope_keys(p, &rec) || !ir_parse_span(p, &rec.span) || !ir_parse_line_end(p))
        return false;
    IrScope old = ir_scope_find(p->m, name.text);
    if (rec.kind == IR_SCOPE_MODEL ? p->has_model || old.i > 1 : old.i)
        return duplicate(p, &name, rec.kind == IR_SCOPE_MODEL ? "a model before" : "scope");
    p->has_model |= rec.kind == IR_SCOPE_MODEL;
    ir_scope(p->m, rec);
    return true;
}

/* -- states -- */

static const char *const state_kinds[] = {
#define IR_STATE_NAME(id, name) #name,
    IR_STATE_KINDS(IR_STATE_NAME)
#undef IR_STATE_NAME
};

static bool parse_init(IrParser *p, IrInitKind *init, double *value)
{
    static const char *const inits[] = {"zero", "one", "normal", "const"};
    IrToken word, number;
    uint32_t kind = 0;
    if (!ir_parse_expect(p, IR_TOKEN_WORD, "an init", &word))
        return false;
    while (kind < 4 && strcmp(inits[kind], word.text))
        kind++;
    if (kind == 4)
        return unknown_word(p, &word, "init", inits, 4);
    *init = (IrInitKind)kind;
    if (*init != IR_INIT_NORMAL && *init != IR_INIT_CONST)
        return true;
    if (!ir_parse_punct(p, '(') || !ir_parse_expect(p, IR_TOKEN_NUMBER, "a number", &number) ||
        !ir_parse_punct(p, ')'))
        return false;
    *value = number.f;
    return true;
}

/* `$first+n`: so many pieces, from that one on. */
static bool parse_pieces(IrParser *p, IrStateRec *rec)
{
    IrToken first;
    int64_t n;
    if (!ir_parse_expect(p, IR_TOKEN_STATE, "a piece, $name", &first) || !ir_parse_punct(p, '+'))
        return false;
    uint32_t i = 0, most = p->m->pieces.n;
    while (i < most && p->m->pieces.at[i].name != first.text)
        i++;
    if (i == most) {
        diag(p->s, first.span, ir_unknown_piece, first.text);
        return false;
    }
    if (!ir_parse_int(p, "a number of pieces", 1, most - i, &n))
        return false;
    rec->first_piece = i;
    rec->n_pieces = (uint32_t)n;
    return true;
}

static bool parse_cut(IrParser *p, IrStateRec *rec)
{
    IrToken word;
    if (!ir_parse_expect(p, IR_TOKEN_WORD, "mesh axes", &word))
        return false;
    rec->cut = word.text;
    return true;
}

static bool parse_state_key(IrParser *p, Sym key, IrStateRec *rec, IrToken *of)
{
    if (!strcmp(key, "init"))
        return parse_init(p, &rec->init, &rec->init_value);
    if (!strcmp(key, "in"))
        return ir_parse_scope(p, &rec->scope);
    if (!strcmp(key, "pieces"))
        return parse_pieces(p, rec);
    if (!strcmp(key, "cut"))
        return parse_cut(p, rec);
    return ir_parse_expect(p, IR_TOKEN_STATE, "a parameter, $name", of);
}

static bool parse_state_keys(IrParser *p, IrStateRec *rec, IrToken *of)
{
    while (p->t.kind == IR_TOKEN_WORD) {
        static const char *const keys[] = {"init",      "of",     "in", "frozen",
                                           "trainable", "pieces", "cut"};
        enum { N_KEYS = sizeof keys / sizeof *keys };
        IrToken key = ir_parse_take(p);
        if (!strcmp(key.text, "frozen") || !strcmp(key.text, "trainable")) {
            rec->trainable = *key.text == 't';
            continue;
        }
        uint32_t k = 0;
        while (k < N_KEYS && strcmp(key.text, keys[k]))
            k++;
        if (k == N_KEYS)
            return unknown_word(p, &key, "key of a state", keys, N_KEYS);
        if (!ir_parse_punct(p, '=') || !parse_state_key(p, key.text, rec, of))
            return false;
    }
    return true;
}

static bool parse_state(IrParser *p, IrStateKind kind)
{
    IrStateRec rec = {.kind = kind, .trainable = kind == IR_STATE_PARAM};
    IrToken name, of = {0};
    int64_t offset = -1;
    if (!ir_parse_expect(p, IR_TOKEN_STATE, "a state, $name", &name) || !ir_parse_punct(p, ':') ||
        !ir_parse_type(p, &rec.type))
        return false;
    if (ir_parse_at_word(p, "at")) {
        ir_parse_take(p);
        if (!ir_parse_int(p, "an offset in bytes", 0, INT64_MAX, &offset))
            return false;
    }
    if (!parse_state_keys(p, &rec, &of) || !ir_parse_span(p, &rec.span) || !ir_parse_line_end(p))
        return false;
    if (ir_state_find(p->m, name.text).i)
        return duplicate(p, &name, "state");
    rec.name = name.text;
    IrState state = ir_state_add(p->m, rec);
    ir_state_rec(p->m, state)->offset = offset;
    if (of.text)
        vec_push(p->s->arena, &p->pending_of, ((struct IrPendingOf){state, of.text, of.span}));
    return true;
}

static bool parse_piece(IrParser *p)
{
    IrPiece piece = {0};
    IrToken name;
    if (!ir_parse_expect(p, IR_TOKEN_STATE, "a piece, $name", &name) || !ir_parse_punct(p, ':') ||
        !ir_parse_type(p, &piece.type))
        return false;
    while (p->t.kind == IR_TOKEN_WORD) {
        static const char *const keys[] = {"begin", "init"};
        IrToken key;
        if (!parse_key(p, &key))
            return false;
        bool init = !strcmp(key.text, "init");
        if (!init && strcmp(key.text, "begin"))
            return unknown_word(p, &key, "key of a piece", keys, 2);
        if (init ? !parse_init(p, &piece.init, &piece.init_value)
                 : !ir_parse_int(p, "an element", 0, INT64_MAX, &piece.begin))
            return false;
    }
    if (!ir_parse_span(p, &piece.span) || !ir_parse_line_end(p))
        return false;
    for (uint32_t i = 0; i < p->m->pieces.n; i++)
        if (p->m->pieces.at[i].name == name.text)
            return duplicate(p, &name, "piece");
    piece.name = name.text;
    vec_push(p->s->arena, &p->m->pieces, piece);
    return true;
}

/* A state may name a parameter that is declared behind it. */
static void resolve_of(IrParser *p)
{
    for (uint32_t i = 0; i < p->pending_of.n; i++) {
        struct IrPendingOf *pending = &p->pending_of.at[i];
        IrState of = ir_state_find(p->m, pending->of);
        if (!of.i)
            diag(p->s, pending->span, ir_unknown_state, pending->of);
        ir_state_rec(p->m, pending->state)->of = of;
    }
}

/* -- graphs -- */

static bool parse_param(IrParser *p)
{
    IrToken name;
    IrType type = {0};
    IrPlace place = {.offset = -1};
    Span span = {0};
    if (!ir_parse_expect(p, IR_TOKEN_VALUE, "a value, %name", &name))
        return false;
    bool good = ir_parse_punct(p, ':') && ir_parse_type(p, &type) &&
                ir_parse_place(p, &place, NULL) && ir_parse_span(p, &span) && ir_parse_line_end(p);
    if (ir_value_find(p->g, name.text).i)
        return duplicate(p, &name, "value");
    if (!good) {
        map_put(&p->poisoned, map_key(name.text), 1);
        return false;
    }
    IrValue v = ir_graph_param(p->g, name.text, type, span);
    ir_value(p->g, v)->place = place;
    return true;
}

static bool parse_instance(IrParser *p)
{
    IrToken graph = {0};
    int64_t instance;
    if (ir_parse_at_word(p, "none"))
        ir_parse_take(p);
    else if (!ir_parse_expect(p, IR_TOKEN_AT, "a graph, @name, or `none`", &graph))
        return false;
    if (!ir_parse_int(p, "the instance's number", 0, INT32_MAX, &instance) || !ir_parse_line_end(p))
        return false;
    p->instance_graph = graph.text;
    p->instance = (uint32_t)instance;
    return true;
}

static bool parse_saves(IrParser *p)
{
    if (!ir_parse_punct(p, '('))
        return false;
    for (;;) {
        IrToken name;
        if (!ir_parse_expect(p, IR_TOKEN_VALUE, "a value, %name", &name))
            return false;
        vec_push(p->s->arena, &p->saves, ((struct IrPendingSave){name.text, name.span}));
        if (p->t.kind != ',')
            return ir_parse_punct(p, ')');
        ir_parse_take(p);
    }
}

static bool parse_region_keys(IrParser *p, IrRegionRec *rec)
{
    while (p->t.kind == IR_TOKEN_WORD) {
        static const char *const keys[] = {"policy", "workspace", "saves"};
        IrToken key = ir_parse_take(p), word;
        int64_t bytes;
        if (!strcmp(key.text, "policy")) {
            if (!ir_parse_punct(p, '=') || !ir_parse_expect(p, IR_TOKEN_WORD, "a policy", &word))
                return false;
            rec->policy = word.text;
        } else if (!strcmp(key.text, "workspace")) {
            if (!ir_parse_punct(p, '=') || !ir_parse_int(p, "bytes", 0, INT64_MAX, &bytes))
                return false;
            rec->workspace = (uint64_t)bytes;
        } else if (!strcmp(key.text, "saves")) {
            if (!parse_saves(p))
                return false;
        } else {
            return unknown_word(p, &key, "key of a region", keys, 3);
        }
    }
    return true;
}

static bool parse_region_open(IrParser *p, IrRegionKind kind)
{
    IrRegionRec rec = {.kind = kind};
    IrToken name;
    if (p->b.region.i) {
        p->nested++;
        diag(p->s, p->t.span, ir_nested_region);
        return false;
    }
    /* the region is open even where its head is wrong, so that its closing brace is not taken for
     * the graph's */
    p->saves.n = 0;
    p->b.region.i = p->g->regions.n;
    vec_push(p->s->arena, &p->g->regions, rec);
    if (kind == IR_REGION_RECOMPUTE) {
        if (!ir_parse_scope(p, &rec.scope))
            return false;
    } else {
        if (!ir_parse_expect(p, IR_TOKEN_AT, "the kernel's name, @name", &name))
            return false;
        rec.policy = name.text;
    }
    if (!parse_region_keys(p, &rec) || !ir_parse_punct(p, '{') || !ir_parse_line_end(p))
        return false;
    p->g->regions.at[p->b.region.i] = rec;
    return true;
}

static bool parse_region_close(IrParser *p)
{
    if (p->nested) {
        p->nested--;
        return ir_parse_line_end(p);
    }
    IrRegionRec *rec = &p->g->regions.at[p->b.region.i];
    for (uint32_t i = 0; i < p->saves.n; i++) {
        IrValue v = ir_value_find(p->g, p->saves.at[i].name);
        if (v.i)
            vec_push(p->s->arena, &rec->saves, v);
        else if (!map_get(&p->poisoned, map_key(p->saves.at[i].name), NULL))
            diag(p->s, p->saves.at[i].span, ir_unknown_value, p->saves.at[i].name, p->g->name);
    }
    p->saves.n = 0;
    p->b.region.i = 0;
    return ir_parse_line_end(p);
}

static bool parse_result(IrParser *p)
{
    IrValue v;
    if (!ir_parse_value(p, &v) || !ir_parse_line_end(p))
        return false;
    vec_push(p->s->arena, &p->g->results, v);
    return true;
}

static bool parse_graph_line(IrParser *p)
{
    static const struct {
        const char *word;
        bool (*parse)(IrParser *p);
    } lines[] = {{"param", parse_param},
                 {"result", parse_result},
                 {"file", parse_file},
                 {"instance", parse_instance}};
    for (uint32_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        if (ir_parse_at_word(p, lines[i].word)) {
            ir_parse_take(p);
            return lines[i].parse(p);
        }
    }
    if (ir_parse_at_word(p, "in")) {
        ir_parse_take(p);
        return ir_parse_scope(p, &p->b.scope) && ir_parse_line_end(p);
    }
    if (ir_parse_at_word(p, "recompute") || ir_parse_at_word(p, "kernel")) {
        bool kernel = *ir_parse_take(p).text == 'k';
        return parse_region_open(p, kernel ? IR_REGION_KERNEL : IR_REGION_RECOMPUTE);
    }
    return ir_parse_op(p);
}

static bool too_many_errors(const IrParser *p)
{
    return p->s->n_errors - p->errors_before >= MOST_ERRORS;
}

static bool parse_graph_head(IrParser *p)
{
    IrToken name;
    if (!ir_parse_expect(p, IR_TOKEN_AT, "a graph, @name", &name) || !ir_parse_punct(p, '{') ||
        !ir_parse_line_end(p))
        return false;
    if (ir_graph_find(p->m, name.text))
        return duplicate(p, &name, "graph");
    p->g = ir_graph_new(p->m, name.text);
    p->b = ir_builder(p->g);
    p->instance_graph = NULL;
    p->instance = 0;
    p->file = NULL;
    map_init(&p->poisoned, p->s->arena);
    p->bases.n = 0;
    return true;
}

/* What an op writes may lie in a result of an op behind it. */
static bool resolve_bases(IrParser *p)
{
    bool good = true;
    for (uint32_t i = 0; i < p->bases.n; i++) {
        const struct IrPendingBase *pending = &p->bases.at[i];
        good &= ir_parse_find(p, &pending->base, &ir_value(p->g, pending->view)->place.base);
    }
    return good;
}

static bool parse_graph_body(IrParser *p)
{
    while (!too_many_errors(p)) {
        if (p->t.kind == IR_TOKEN_NEWLINE) {
            ir_parse_take(p);
            continue;
        }
        if (p->t.kind == IR_TOKEN_END)
            return ir_parse_fail(p, "`}`");
        bool closing = p->t.kind == '}', in_region = p->b.region.i;
        if (closing)
            ir_parse_take(p);
        if (closing && !in_region)
            return resolve_bases(p) && ir_parse_line_end(p);
        if (!(closing ? parse_region_close(p) : parse_graph_line(p)))
            skip_line(p);
    }
    return false;
}

/* -- the whole -- */

static bool parse_top_line(IrParser *p)
{
    static const char *const words[] = {"axis",  "mesh",   "file",   "scope",   "piece",   "graph",
                                        "param", "buffer", "master", "moment1", "moment2", "acc",
                                        "scalar"};
    IrToken word;
    if (!ir_parse_expect(p, IR_TOKEN_WORD, "a declaration", &word))
        return false;
    if (!strcmp(word.text, "axis"))
        return parse_axis(p);
    if (!strcmp(word.text, "mesh"))
        return parse_mesh(p);
    if (!strcmp(word.text, "piece"))
        return parse_piece(p);
    if (!strcmp(word.text, "file"))
        return parse_file(p);
    if (!strcmp(word.text, "scope"))
        return parse_scope_decl(p);
    bool found, good = ir_parse_stage(p, word.text, &found);
    if (found)
        return good;
    for (uint32_t kind = 0; kind < IR_STATE_KIND_COUNT; kind++)
        if (!strcmp(word.text, state_kinds[kind]))
            return parse_state(p, (IrStateKind)kind);
    if (strcmp(word.text, "graph"))
        return unknown_word(p, &word, "declaration", words, sizeof words / sizeof *words);
    if (parse_graph_head(p) && parse_graph_body(p))
        return true;
    p->t.kind = IR_TOKEN_END; /* what follows would be read out of place */
    return false;
}

static void parse_all(IrParser *p)
{
    while (p->t.kind == IR_TOKEN_NEWLINE)
        ir_parse_take(p);
    if (!ir_parse_at_word(p, "module")) {
        ir_parse_fail(p, "`module level=`");
        return;
    }
    ir_parse_take(p);
    if (!parse_module(p))
        return;
    while (p->t.kind != IR_TOKEN_END && !too_many_errors(p)) {
        if (p->t.kind == IR_TOKEN_NEWLINE)
            ir_parse_take(p);
        else if (!parse_top_line(p))
            skip_line(p);
    }
    resolve_of(p);
}

Status ir_parse(Session *s, const Source *source, IrModule **out)
{
    IrParser p = {.s = s, .m = ir_module_new(s), .errors_before = s->n_errors};
    ir_lex_init(&p.lexer, s, source);
    ir_parse_take(&p);
    parse_all(&p);
    bool good = s->n_errors == p.errors_before;
    *out = good ? p.m : NULL;
    return good ? STATUS_OK : STATUS_USER;
}
