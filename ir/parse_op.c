/* The text's lines: tokens, types, places, operands and ops. */
#include "ir/parse_state.h"

IrToken ir_parse_take(IrParser *p)
{
    IrToken token = p->t;
    p->t = ir_lex_next(&p->lexer);
    return token;
}

bool ir_parse_fail(IrParser *p, const char *expected)
{
    if (p->t.kind == IR_TOKEN_BAD)
        return false;
    diag(p->s, p->t.span, ir_syntax, expected, ir_lex_describe(&p->lexer, &p->t));
    return false;
}

bool ir_parse_expect(IrParser *p, int kind, const char *what, IrToken *out)
{
    if (p->t.kind != kind)
        return ir_parse_fail(p, what);
    *out = ir_parse_take(p);
    return true;
}

bool ir_parse_punct(IrParser *p, char c)
{
    if (p->t.kind == c) {
        ir_parse_take(p);
        return true;
    }
    char what[] = {'`', c, '`', 0};
    return ir_parse_fail(p, what);
}

bool ir_parse_at_word(const IrParser *p, const char *word)
{
    return p->t.kind == IR_TOKEN_WORD && !p->t.is_quoted && !strcmp(p->t.text, word);
}

bool ir_parse_line_end(IrParser *p)
{
    return p->t.kind == IR_TOKEN_NEWLINE || p->t.kind == IR_TOKEN_END ||
           ir_parse_fail(p, "the end of the line");
}

bool ir_parse_int(IrParser *p, const char *what, int64_t least, int64_t most, int64_t *out)
{
    if (p->t.kind != IR_TOKEN_NUMBER || !p->t.is_int)
        return ir_parse_fail(p, what);
    if (p->t.i < least || p->t.i > most) {
        diag(p->s, p->t.span, ir_number_range, (long long)p->t.i, (long long)least,
             (long long)most);
        return false;
    }
    *out = ir_parse_take(p).i;
    return true;
}

void ir_parse_suggest(IrParser *p, const char *name, const char *const *names, uint32_t n)
{
    const char *nearest = diag_nearest(name, names, n);
    if (nearest)
        diag(p->s, no_span, did_you_mean, nearest);
}

bool ir_parse_scope(IrParser *p, IrScope *out)
{
    IrToken name;
    *out = (IrScope){0};
    if (ir_parse_at_word(p, "none")) {
        ir_parse_take(p);
        return true;
    }
    if (!ir_parse_expect(p, IR_TOKEN_AT, "a scope, @name", &name))
        return false;
    *out = ir_scope_find(p->m, name.text);
    if (out->i)
        return true;
    diag(p->s, name.span, ir_unknown_scope, name.text);
    return false;
}

bool ir_parse_span(IrParser *p, Span *out)
{
    int64_t line, col, length = 0;
    *out = (Span){0};
    if (p->t.kind != '!')
        return true;
    ir_parse_take(p);
    if (!ir_parse_int(p, "a line", 0, UINT32_MAX, &line) || !ir_parse_punct(p, ':') ||
        !ir_parse_int(p, "a column", 0, UINT32_MAX, &col))
        return false;
    if (p->t.kind == '+') {
        ir_parse_take(p);
        if (!ir_parse_int(p, "a length", 0, UINT32_MAX, &length))
            return false;
    }
    *out = (Span){p->file, (uint32_t)line, (uint32_t)col, (uint32_t)length};
    return true;
}

/* -- types -- */

static const char *const mesh_names[] = {"", "tp", "dp", "ep"};

static bool parse_axis_name(IrParser *p, IrFactor *f)
{
    IrToken name = ir_parse_take(p);
    const IrAxis *axis = ir_axis_find(p->m, name.text);
    f->axis = name.text;
    if (p->t.kind == '=') {
        ir_parse_take(p);
        return ir_parse_int(p, "the axis' size here", 1, INT64_MAX, &f->size);
    }
    if (axis) {
        f->size = axis->size;
        return true;
    }
    const char **names = ARENA_ARRAY(p->s->arena, const char *, p->m->axes.n + 1);
    for (uint32_t i = 0; i < p->m->axes.n; i++)
        names[i] = p->m->axes.at[i].name;
    diag(p->s, name.span, ir_unknown_axis, name.text, name.text);
    ir_parse_suggest(p, name.text, names, p->m->axes.n);
    return false;
}

/* (heads/tp=4): the factor is divided among 4 ranks. */
static bool parse_divided(IrParser *p, IrFactor *f)
{
    IrToken mesh;
    int64_t parts;
    ir_parse_take(p);
    if (p->t.kind == IR_TOKEN_WORD
            ? !parse_axis_name(p, f)
            : !ir_parse_int(p, "an axis or a number", 1, INT64_MAX, &f->size))
        return false;
    if (!ir_parse_punct(p, '/') || !ir_parse_expect(p, IR_TOKEN_WORD, "a mesh axis", &mesh))
        return false;
    uint32_t i = 1;
    while (i < 4 && strcmp(mesh_names[i], mesh.text))
        i++;
    if (i == 4) {
        diag(p->s, mesh.span, ir_unknown_word, "mesh axis", mesh.text);
        return false;
    }
    if (!ir_parse_punct(p, '=') || !ir_parse_int(p, "a number of parts", 1, INT32_MAX, &parts) ||
        !ir_parse_punct(p, ')'))
        return false;
    f->mesh = (IrMesh)i;
    f->parts = (int32_t)parts;
    return true;
}

static bool parse_dim(IrParser *p, IrDim *dim)
{
    *dim = (IrDim){0};
    for (;; ir_parse_take(p)) {
        Span span = p->t.span;
        IrFactor f = {.parts = 1};
        bool good = p->t.kind == '('             ? parse_divided(p, &f)
                    : p->t.kind == IR_TOKEN_WORD ? parse_axis_name(p, &f)
                                                 : ir_parse_int(p, "a dim", 1, INT64_MAX, &f.size);
        if (!good)
            return false;
        for (uint32_t i = 0; i < dim->n; i++) {
            if (f.mesh && dim->f[i].mesh == f.mesh) {
                diag(p->s, span, ir_bad_type, "one mesh axis divides two factors of one dim");
                return false;
            }
        }
        if (f.axis || f.mesh || f.size != 1) {
            if (dim->n == IR_MAX_FACTORS) {
                diag(p->s, span, ir_bad_type, "a dim has at most 4 factors");
                return false;
            }
            dim->f[dim->n++] = f;
        }
        if (p->t.kind != '*')
            return true;
    }
}

bool ir_parse_type(IrParser *p, IrType *out)
{
    IrTypeInfo info = {0};
    IrToken word;
    if (!ir_parse_expect(p, IR_TOKEN_WORD, "a type", &word))
        return false;
    info.dtype = dtype_parse(word.text);
    if (info.dtype == DTYPE_NONE || strcmp(dtype_name(info.dtype), word.text)) {
        const char *names[DTYPE_COUNT];
        for (unsigned i = 0; i < DTYPE_COUNT; i++)
            names[i] = dtype_name((DType)i);
        diag(p->s, word.span, ir_unknown_word, "dtype", word.text);
        ir_parse_suggest(p, word.text, names, DTYPE_COUNT);
        return false;
    }
    if (!ir_parse_punct(p, '['))
        return false;
    while (p->t.kind != ']') {
        if (info.rank == IR_MAX_RANK) {
            diag(p->s, p->t.span, ir_bad_type, "a type has at most 5 dims");
            return false;
        }
        if (!parse_dim(p, &info.dim[info.rank++]))
            return false;
        if (p->t.kind != ']' && !ir_parse_punct(p, ','))
            return false;
    }
    ir_parse_take(p);
    *out = ir_type(p->m, &info);
    if (ir_type_bytes(p->m, *out) <= IR_MOST_BYTES)
        return true;
    diag(p->s, word.span, ir_bad_type, "it is larger than any machine's memory");
    return false;
}

/* -- values -- */

static bool unknown_value(IrParser *p, const IrToken *name)
{
    if (map_get(&p->poisoned, map_key(name->text), NULL))
        return false;
    VEC(const char *) names = {0};
    for (uint32_t i = 1; i < p->g->values.n; i++)
        if (p->g->values.at[i].def != IR_DEF_STATE)
            vec_push(p->s->arena, &names, p->g->values.at[i].name);
    diag(p->s, name->span, ir_unknown_value, name->text, p->g->name);
    ir_parse_suggest(p, name->text, names.at, names.n);
    return false;
}

static bool unknown_state(IrParser *p, const IrToken *name)
{
    const char **names = ARENA_ARRAY(p->s->arena, const char *, p->m->states.n);
    for (uint32_t i = 1; i < p->m->states.n; i++)
        names[i - 1] = p->m->states.at[i].name;
    diag(p->s, name->span, ir_unknown_state, name->text);
    ir_parse_suggest(p, name->text, names, p->m->states.n - 1);
    return false;
}

bool ir_parse_find(IrParser *p, const IrToken *name, IrValue *out)
{
    *out = ir_value_find(p->g, name->text);
    return out->i || unknown_value(p, name);
}

bool ir_parse_value(IrParser *p, IrValue *out)
{
    if (p->t.kind != IR_TOKEN_VALUE && p->t.kind != IR_TOKEN_STATE)
        return ir_parse_fail(p, "a value, %name or $name");
    IrToken name = ir_parse_take(p);
    if (name.kind == IR_TOKEN_STATE) {
        IrState state = ir_state_find(p->m, name.text);
        if (!state.i)
            return unknown_state(p, &name);
        *out = ir_graph_state(p->g, state);
        return true;
    }
    return ir_parse_find(p, &name, out);
}

static bool parse_base(IrParser *p, IrValue *out, IrToken *out_later)
{
    if (!out_later || p->t.kind != IR_TOKEN_VALUE || ir_value_find(p->g, p->t.text).i)
        return ir_parse_value(p, out);
    *out_later = ir_parse_take(p);
    return true;
}

bool ir_parse_place(IrParser *p, IrPlace *out, IrToken *out_base)
{
    *out = (IrPlace){.offset = -1};
    if (ir_parse_at_word(p, "at")) {
        ir_parse_take(p);
        if (!ir_parse_int(p, "an offset in bytes", 0, INT64_MAX, &out->offset))
            return false;
    }
    if (!ir_parse_at_word(p, "view"))
        return true;
    ir_parse_take(p);
    return ir_parse_punct(p, '(') && parse_base(p, &out->base, out_base) &&
           ir_parse_punct(p, ',') &&
           ir_parse_int(p, "the first element", 0, INT64_MAX, &out->view_offset) &&
           ir_parse_punct(p, ',') && ir_parse_int(p, "the run", 0, INT64_MAX, &out->run) &&
           ir_parse_punct(p, ',') && ir_parse_int(p, "the pitch", 0, INT64_MAX, &out->pitch) &&
           ir_parse_punct(p, ')');
}

/* -- ops -- */

typedef struct OpText { /* one op's line, as read */
    IrToken results[IR_MAX_OUTS];
    uint32_t n_results;
    IrToken op;
    const IrOpInfo *info;
    VEC(IrValue) in;
    IrOpArgs args;
    uint32_t n_attrs;
    IrPlace place[IR_MAX_OUTS];
    IrToken base[IR_MAX_OUTS]; /* of a view, where it is to come */
    IrPlace workspace;
    Sym re;
    uint8_t serves;
    Span span;
} OpText;

static bool parse_results(IrParser *p, OpText *text)
{
    if (p->t.kind != IR_TOKEN_VALUE)
        return true;
    for (;; ir_parse_take(p)) {
        IrToken name;
        if (text->n_results == IR_MAX_OUTS)
            return ir_parse_fail(p, "`=`; no op has more than 4 results");
        if (!ir_parse_expect(p, IR_TOKEN_VALUE, "a value, %name", &name))
            return false;
        bool again = ir_value_find(p->g, name.text).i;
        for (uint32_t i = 0; i < text->n_results; i++)
            again |= text->results[i].text == name.text;
        if (again) {
            diag(p->s, name.span, ir_duplicate, "value", name.text);
            return false;
        }
        text->results[text->n_results++] = name;
        if (p->t.kind != ',')
            return ir_parse_punct(p, '=');
    }
}

static bool parse_op_name(IrParser *p, OpText *text)
{
    if (!ir_parse_expect(p, IR_TOKEN_WORD, "an op", &text->op))
        return false;
    text->args.kind = ir_op_find(text->op.text);
    text->info = ir_op_info(text->args.kind);
    if (text->args.kind == IR_OP_none) {
        const char *names[IR_OP_COUNT];
        for (unsigned i = 1; i < IR_OP_COUNT; i++)
            names[i - 1] = ir_op_info((IrOpKind)i)->name;
        diag(p->s, text->op.span, ir_unknown_op, text->op.text);
        ir_parse_suggest(p, text->op.text, names, IR_OP_COUNT - 1);
        return false;
    }
    if (text->n_results == text->info->n_out)
        return true;
    diag(p->s, text->op.span, ir_result_count, text->info->name, text->info->n_out,
         text->n_results);
    return false;
}

static bool parse_operands(IrParser *p, OpText *text)
{
    bool known = true;
    for (bool more = p->t.kind == IR_TOKEN_VALUE || p->t.kind == IR_TOKEN_STATE ||
                     ir_parse_at_word(p, "_");
         more; ir_parse_take(p)) {
        IrValue v = {0};
        if (ir_parse_at_word(p, "_"))
            ir_parse_take(p);
        else if (p->t.kind != IR_TOKEN_VALUE && p->t.kind != IR_TOKEN_STATE)
            return ir_parse_fail(p, "an operand, %name, $name or _");
        else
            known &= ir_parse_value(p, &v);
        vec_push(p->s->arena, &text->in, v);
        if (p->t.kind != ',')
            break;
    }
    return known;
}

static bool bad_attr(IrParser *p, const OpText *text, uint32_t i, const char *must)
{
    if (p->t.kind == IR_TOKEN_BAD)
        return false;
    diag(p->s, p->t.span, ir_attr_value, text->info->attr[i].name, text->info->name, must,
         ir_lex_describe(&p->lexer, &p->t));
    return false;
}

static bool parse_attr_value(IrParser *p, OpText *text, uint32_t i, IrAttr *out)
{
    switch (text->info->attr[i].type) {
    case IR_ATTR_I64:
        if (p->t.kind != IR_TOKEN_NUMBER || !p->t.is_int)
            return bad_attr(p, text, i, "a whole number");
        out->i = p->t.i;
        break;
    case IR_ATTR_F64:
        if (p->t.kind != IR_TOKEN_NUMBER)
            return bad_attr(p, text, i, "a number");
        out->f = p->t.f;
        break;
    case IR_ATTR_BOOL:
        if (!ir_parse_at_word(p, "true") && !ir_parse_at_word(p, "false"))
            return bad_attr(p, text, i, "`true` or `false`");
        out->b = *p->t.text == 't';
        break;
    case IR_ATTR_SYM:
        if (p->t.kind != IR_TOKEN_WORD || !ir_attr_is_choice(text->info->attr[i].text, p->t.text))
            return bad_attr(p, text, i,
                            *text->info->attr[i].text ? text->info->attr[i].text : "a word");
        out->sym = p->t.text;
        break;
    }
    ir_parse_take(p);
    return true;
}

static bool is_annotation(const IrParser *p)
{
    return ir_parse_at_word(p, "re") || ir_parse_at_word(p, "serves") ||
           ir_parse_at_word(p, "workspace");
}

static bool parse_attr(IrParser *p, OpText *text)
{
    const IrOpInfo *info = text->info;
    IrToken key = ir_parse_take(p);
    uint32_t i = 0;
    while (i < info->n_attr && strcmp(info->attr[i].name, key.text))
        i++;
    if (i == info->n_attr) {
        const char *names[IR_MAX_ATTRS + 1];
        for (uint32_t j = 0; j < info->n_attr; j++)
            names[j] = info->attr[j].name;
        diag(p->s, key.span, ir_unknown_attr, info->name, key.text);
        ir_parse_suggest(p, key.text, names, info->n_attr);
        return false;
    }
    for (uint32_t j = 0; j < text->n_attrs; j++) {
        if (!strcmp(text->args.attrs[j], key.text)) {
            diag(p->s, key.span, ir_duplicate, "attribute", key.text);
            return false;
        }
    }
    if (!ir_parse_punct(p, '='))
        return false;
    text->args.attrs[text->n_attrs] = info->attr[i].name;
    return parse_attr_value(p, text, i, &text->args.values[text->n_attrs++]);
}

static bool parse_types(IrParser *p, OpText *text)
{
    if (p->t.kind != ':')
        return true;
    ir_parse_take(p);
    for (uint32_t i = 0; i < text->info->n_out; i++) {
        if (i && !ir_parse_punct(p, ','))
            return false;
        if (!ir_parse_type(p, &text->args.out[i]) ||
            !ir_parse_place(p, &text->place[i], &text->base[i]))
            return false;
    }
    return true;
}

static bool parse_serves(IrParser *p, OpText *text)
{
    static const char *const words[] = {"input", "weight", "both"};
    IrToken word;
    if (!ir_parse_expect(p, IR_TOKEN_WORD, "`input`, `weight` or `both`", &word))
        return false;
    for (uint8_t i = 0; i < 3; i++)
        if (!strcmp(words[i], word.text))
            text->serves = i + 1;
    if (text->serves)
        return true;
    diag(p->s, word.span, ir_unknown_word, "purpose", word.text);
    ir_parse_suggest(p, word.text, words, 3);
    return false;
}

static bool parse_annotations(IrParser *p, OpText *text)
{
    while (is_annotation(p)) {
        IrToken key = ir_parse_take(p), name;
        if (*key.text == 'w') {
            if (!ir_parse_punct(p, '(') ||
                !ir_parse_int(p, "an offset in bytes", 0, INT64_MAX, &text->workspace.offset) ||
                !ir_parse_punct(p, ',') ||
                !ir_parse_int(p, "bytes", 0, INT64_MAX, &text->workspace.run) ||
                !ir_parse_punct(p, ')'))
                return false;
            continue;
        }
        if (!ir_parse_punct(p, '='))
            return false;
        if (*key.text == 'r') {
            if (!ir_parse_expect(p, IR_TOKEN_VALUE, "the original's result, %name", &name))
                return false;
            text->re = name.text;
        } else if (!parse_serves(p, text)) {
            return false;
        }
    }
    return ir_parse_span(p, &text->span) && ir_parse_line_end(p);
}

static bool parse_op_line(IrParser *p, OpText *text)
{
    if (!parse_results(p, text) || !parse_op_name(p, text) || !parse_operands(p, text))
        return false;
    while (p->t.kind == IR_TOKEN_WORD && !is_annotation(p))
        if (!parse_attr(p, text))
            return false;
    return parse_types(p, text) && parse_annotations(p, text);
}

static void set_workspace(IrParser *p, IrOp op, IrPlace workspace)
{
    IrGraph *g = p->g;
    if (workspace.offset < 0)
        return;
    while (g->workspaces.n <= op.i)
        vec_push(p->s->arena, &g->workspaces, ((IrPlace){.offset = -1}));
    g->workspaces.at[op.i] = workspace;
}

static bool build_op(IrParser *p, OpText *text)
{
    text->args.in = text->in.at;
    text->args.n_in = text->in.n;
    text->args.name = text->results[0].text;
    for (uint32_t i = 1; i < text->n_results; i++)
        text->args.out_names[i] = text->results[i].text;
    p->b.span = text->op.span; /* for diagnostics; the op's own span is what the text says */
    p->b.serves = (IrServes)text->serves;
    p->b.re = text->re;
    IrOp op = ir_build(&p->b, &text->args);
    if (!op.i)
        return false;
    IrOpRec *rec = ir_op(p->g, op);
    rec->span = text->span;
    rec->graph = p->instance_graph;
    rec->instance = p->instance;
    for (uint32_t i = 0; i < rec->n_out; i++) {
        IrValue v = ir_out(p->g, op, i);
        ir_value(p->g, v)->span = text->span;
        ir_value(p->g, v)->place = text->place[i];
        if (text->base[i].text)
            vec_push(p->s->arena, &p->bases, ((struct IrPendingBase){v, text->base[i]}));
    }
    set_workspace(p, op, text->workspace);
    return true;
}

bool ir_parse_op(IrParser *p)
{
    OpText text = {.workspace = {.offset = -1}};
    for (uint32_t i = 0; i < IR_MAX_OUTS; i++)
        text.place[i].offset = -1;
    if (parse_op_line(p, &text) && build_op(p, &text))
        return true;
    for (uint32_t i = 0; i < text.n_results; i++)
        map_put(&p->poisoned, map_key(text.results[i].text), 1);
    return false;
}
