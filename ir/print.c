#include "ir/print.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>

#include "ir/lex.h"
#include "ir/stage_text.h"

typedef struct Printer {
    FILE *out;
    const IrModule *m;
    Arena *arena;       /* the printer's own */
    const char **types; /* text by type, filled as needed */
    int indent;
    Sym file; /* what the last directives said */
    IrScope scope;
    Sym graph;
    uint32_t instance;
} Printer;

static const char *const level_names[] = {"model", "step", "local", "planned"};

/* -- words, names, numbers -- */

static void print_quoted(FILE *out, const char *text)
{
    fputc('"', out);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p == '"' || *p == '\\')
            fprintf(out, "\\%c", *p);
        else if (*p < 0x20 || *p == 0x7f)
            fprintf(out, "\\x%02x", *p);
        else
            fputc(*p, out);
    }
    fputc('"', out);
}

void ir_print_word(FILE *out, const char *text)
{
    bool plain = ir_lex_starts_word(*text);
    for (const char *p = text; plain && *p; p++)
        plain = ir_lex_in_word(*p);
    if (plain)
        fputs(text, out);
    else
        print_quoted(out, text);
}

void ir_print_name(FILE *out, char sigil, const char *name)
{
    bool plain = *name;
    for (const char *p = name; plain && *p; p++)
        plain = ir_lex_in_name(*p);
    fputc(sigil, out);
    if (plain)
        fputs(name, out);
    else
        print_quoted(out, name);
}

void ir_print_f64(FILE *out, double value)
{
    char digits[40];
    if (value != value) {
        fputs("nan", out);
        return;
    }
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value)
            break;
    }
    fputs(digits, out);
}

static void print_value(const IrGraph *g, FILE *out, IrValue v)
{
    if (!v.i)
        fputc('_', out);
    else
        ir_print_name(out, ir_value(g, v)->def == IR_DEF_STATE ? '$' : '%', ir_value(g, v)->name);
}

static void print_scope_name(Printer *p, IrScope scope)
{
    if (scope.i)
        ir_print_name(p->out, '@', ir_scope_rec(p->m, scope)->name);
    else
        fputs("none", p->out);
}

static const char *type_text(Printer *p, IrType type)
{
    if (!p->types[type.i])
        p->types[type.i] = ir_type_text_in(p->m, type, p->arena);
    return p->types[type.i];
}

static void print_indent(Printer *p)
{
    for (int i = 0; i < p->indent; i++)
        fputs("  ", p->out);
}

/* -- places in the model's source: `!line:col+length`, the file by a directive -- */

static bool has_span(Span span)
{
    return span.file || span.line;
}

static void print_file(Printer *p, Span span)
{
    if (!has_span(span) || span.file == p->file)
        return;
    p->file = span.file;
    print_indent(p);
    fputs("file ", p->out);
    print_quoted(p->out, span.file ? span.file : "");
    fputc('\n', p->out);
}

static void print_span(Printer *p, Span span)
{
    if (!has_span(span))
        return;
    fprintf(p->out, " !%u:%u", span.line, span.col);
    if (span.length)
        fprintf(p->out, "+%u", span.length);
}

/* -- the module's tables -- */

static void print_scope(Printer *p, IrScope scope)
{
    static const char *const kinds[] = {"model", "block", "part"};
    const IrScopeRec *rec = ir_scope_rec(p->m, scope);
    if (scope.i == 1 && !*rec->name && !rec->def && !has_span(rec->span))
        return;
    print_file(p, rec->span);
    fputs("scope ", p->out);
    print_scope_name(p, scope);
    fprintf(p->out, " %s", kinds[rec->kind]);
    if (rec->role) {
        fputs(" role=", p->out);
        ir_print_word(p->out, rec->role);
    }
    if (rec->def) {
        fputs(" def=", p->out);
        ir_print_word(p->out, rec->def);
    }
    if (rec->parent.i > 1) {
        fputs(" in=", p->out);
        print_scope_name(p, rec->parent);
    }
    print_span(p, rec->span);
    fputc('\n', p->out);
}

static void print_init(Printer *p, IrInitKind init, double value)
{
    switch (init) {
    case IR_INIT_ZERO:
        break;
    case IR_INIT_ONE:
        fputs(" init=one", p->out);
        break;
    case IR_INIT_NORMAL:
    case IR_INIT_CONST:
        fputs(init == IR_INIT_NORMAL ? " init=normal(" : " init=const(", p->out);
        ir_print_f64(p->out, value);
        fputc(')', p->out);
        break;
    }
}

static void print_state(Printer *p, const IrStateRec *rec)
{
    static const char *const kinds[] = {
#define IR_STATE_NAME(id, name) #name,
        IR_STATE_KINDS(IR_STATE_NAME)
#undef IR_STATE_NAME
    };
    print_file(p, rec->span);
    fprintf(p->out, "%s ", kinds[rec->kind]);
    ir_print_name(p->out, '$', rec->name);
    fprintf(p->out, " : %s", type_text(p, rec->type));
    if (rec->offset >= 0)
        fprintf(p->out, " at %" PRId64, rec->offset);
    print_init(p, rec->init, rec->init_value);
    if (rec->of.i) {
        fputs(" of=", p->out);
        ir_print_name(p->out, '$', ir_state_rec(p->m, rec->of)->name);
    }
    if (rec->scope.i) {
        fputs(" in=", p->out);
        print_scope_name(p, rec->scope);
    }
    if (rec->trainable != (rec->kind == IR_STATE_PARAM))
        fputs(rec->trainable ? " trainable" : " frozen", p->out);
    if (rec->n_pieces) {
        fputs(" pieces=", p->out);
        ir_print_name(p->out, '$', p->m->pieces.at[rec->first_piece].name);
        fprintf(p->out, "+%u", rec->n_pieces);
    }
    if (rec->cut) {
        fputs(" cut=", p->out);
        ir_print_word(p->out, rec->cut);
    }
    print_span(p, rec->span);
    fputc('\n', p->out);
}

static void print_piece(Printer *p, const IrPiece *piece)
{
    print_file(p, piece->span);
    fputs("piece ", p->out);
    ir_print_name(p->out, '$', piece->name);
    fprintf(p->out, " : %s begin=%" PRId64, type_text(p, piece->type), piece->begin);
    print_init(p, piece->init, piece->init_value);
    print_span(p, piece->span);
    fputc('\n', p->out);
}

static void print_mesh(Printer *p)
{
    const IrMeshSizes *mesh = &p->m->mesh;
    const int64_t sizes[] = {mesh->tp, mesh->dp, mesh->dpr, mesh->pp};
    bool any = false;
    for (uint32_t i = 0; i < IR_MESH_SIZES; i++) {
        if (sizes[i] == 1)
            continue;
        fprintf(p->out, "%s %s=%" PRId64, any ? "" : "mesh", ir_mesh_size_names[i], sizes[i]);
        any = true;
    }
    if (any)
        fputc('\n', p->out);
}

static void print_header(Printer *p)
{
    const IrModule *m = p->m;
    fprintf(p->out, "module level=%s", level_names[m->level]);
    if (m->model && *m->model) {
        fputs(" model=", p->out);
        ir_print_word(p->out, m->model);
    }
    if (m->micro_batches)
        fprintf(p->out, " micro_batches=%" PRId64, m->micro_batches);
    if (m->arena_bytes)
        fprintf(p->out, " arena_bytes=%" PRIu64, m->arena_bytes);
    fputc('\n', p->out);
    print_mesh(p);
    for (uint32_t i = 0; i < m->axes.n; i++) {
        fputs("axis ", p->out);
        ir_print_word(p->out, m->axes.at[i].name);
        fprintf(p->out, " = %" PRId64 "\n", m->axes.at[i].size);
    }
    for (uint32_t i = 1; i < m->scopes.n; i++)
        print_scope(p, (IrScope){i});
    for (uint32_t i = 0; i < m->pieces.n; i++)
        print_piece(p, &m->pieces.at[i]);
    for (uint32_t i = 1; i < m->states.n; i++)
        print_state(p, &m->states.at[i]);
    ir_print_stage(p->out, m);
}

/* -- ops -- */

static void print_attr(FILE *out, const IrOpInfo *info, uint32_t i, IrAttr attr)
{
    const char *name = info->attr[i].name, *text = info->attr[i].text;
    double number = info->attr[i].number;
    switch (info->attr[i].type) {
    case IR_ATTR_I64:
        if (attr.i != (int64_t)number)
            fprintf(out, " %s=%" PRId64, name, attr.i);
        break;
    case IR_ATTR_F64:
        if (memcmp(&attr.f, &number, sizeof number)) {
            fprintf(out, " %s=", name);
            ir_print_f64(out, attr.f);
        }
        break;
    case IR_ATTR_BOOL:
        if (attr.b != (number != 0))
            fprintf(out, " %s=%s", name, attr.b ? "true" : "false");
        break;
    case IR_ATTR_SYM: {
        size_t length = strcspn(text, "|");
        if (strncmp(attr.sym, text, length) || attr.sym[length]) {
            fprintf(out, " %s=", name);
            ir_print_word(out, attr.sym);
        }
        break;
    }
    }
}

/* Absent optional operands at the end are left out, except where their number says something. */
static uint32_t operands_to_print(const IrGraph *g, IrOp op)
{
    uint32_t n = ir_op(g, op)->n_in;
    if (ir_op_info(ir_op_kind(g, op))->traits & IR_VARIADIC)
        return n;
    while (n && !ir_in(g, op, n - 1).i)
        n--;
    return n;
}

static void print_call(FILE *out, const IrGraph *g, IrOp op)
{
    const IrOpRec *rec = ir_op(g, op);
    const IrOpInfo *info = ir_op_info((IrOpKind)rec->kind);
    for (uint32_t i = 0; i < rec->n_out; i++) {
        if (i)
            fputs(", ", out);
        print_value(g, out, ir_out(g, op, i));
    }
    fprintf(out, "%s%s", rec->n_out ? " = " : "", info->name);
    for (uint32_t i = 0, n = operands_to_print(g, op); i < n; i++) {
        fputs(i ? ", " : " ", out);
        print_value(g, out, ir_in(g, op, i));
    }
    for (uint32_t i = 0; i < info->n_attr; i++)
        print_attr(out, info, i, g->attrs.at[rec->first_attr + i]);
}

static void print_place(Printer *p, const IrGraph *g, const IrPlace *place)
{
    if (place->offset >= 0)
        fprintf(p->out, " at %" PRId64, place->offset);
    if (!place->base.i)
        return;
    fputs(" view(", p->out);
    print_value(g, p->out, place->base);
    fprintf(p->out, ", %" PRId64 ", %" PRId64 ", %" PRId64 ")", place->view_offset, place->run,
            place->pitch);
}

static void print_typed(Printer *p, const IrGraph *g, IrValue v)
{
    fputs(type_text(p, ir_value_type(g, v)), p->out);
    print_place(p, g, &ir_value(g, v)->place);
}

static void print_op(Printer *p, const IrGraph *g, IrOp op)
{
    static const char *const serves[] = {"", "input", "weight", "both"};
    const IrOpRec *rec = ir_op(g, op);
    print_indent(p);
    print_call(p->out, g, op);
    for (uint32_t i = 0; i < rec->n_out; i++) {
        fputs(i ? ", " : " : ", p->out);
        print_typed(p, g, ir_out(g, op, i));
    }
    if (op.i < g->workspaces.n && g->workspaces.at[op.i].offset >= 0)
        fprintf(p->out, " workspace(%" PRId64 ", %" PRId64 ")", g->workspaces.at[op.i].offset,
                g->workspaces.at[op.i].run);
    if (rec->re) {
        fputs(" re=", p->out);
        ir_print_name(p->out, '%', rec->re);
    }
    if (rec->serves)
        fprintf(p->out, " serves=%s", serves[rec->serves]);
    print_span(p, rec->span);
    fputc('\n', p->out);
}

/* -- graphs -- */

/* What holds for this op and those behind it, where it changes. */
static void print_directives(Printer *p, const IrOpRec *rec)
{
    if (rec->graph != p->graph || rec->instance != p->instance) {
        p->graph = rec->graph;
        p->instance = rec->instance;
        print_indent(p);
        fputs("instance ", p->out);
        if (rec->graph)
            ir_print_name(p->out, '@', rec->graph);
        else
            fputs("none", p->out);
        fprintf(p->out, " %u\n", rec->instance);
    }
    if (rec->scope.i != p->scope.i) {
        p->scope = rec->scope;
        print_indent(p);
        fputs("in ", p->out);
        print_scope_name(p, rec->scope);
        fputc('\n', p->out);
    }
    print_file(p, rec->span);
}

static void open_region(Printer *p, const IrGraph *g, const IrRegionRec *region)
{
    print_indent(p);
    if (region->kind == IR_REGION_KERNEL) {
        fputs("kernel ", p->out);
        ir_print_name(p->out, '@', region->policy ? region->policy : "");
    } else {
        fputs("recompute ", p->out);
        print_scope_name(p, region->scope);
        if (region->policy) {
            fputs(" policy=", p->out);
            ir_print_word(p->out, region->policy);
        }
    }
    if (region->workspace)
        fprintf(p->out, " workspace=%" PRIu64, region->workspace);
    if (region->saves.n) {
        fputs(" saves(", p->out);
        for (uint32_t i = 0; i < region->saves.n; i++) {
            fputs(i ? ", " : "", p->out);
            print_value(g, p->out, region->saves.at[i]);
        }
        fputc(')', p->out);
    }
    fputs(" {\n", p->out);
    p->indent++;
}

static void close_region(Printer *p)
{
    p->indent--;
    print_indent(p);
    fputs("}\n", p->out);
}

static void print_body(Printer *p, const IrGraph *g)
{
    IrRegion region = {0};
    for (uint32_t i = 0; i < g->order.n; i++) {
        const IrOpRec *rec = ir_op(g, g->order.at[i]);
        if (rec->dead)
            continue;
        if (rec->region.i != region.i) {
            if (region.i)
                close_region(p);
            region = rec->region;
            if (region.i)
                open_region(p, g, &g->regions.at[region.i]);
        }
        print_directives(p, rec);
        print_op(p, g, g->order.at[i]);
    }
    if (region.i)
        close_region(p);
}

static void print_graph(Printer *p, const IrGraph *g)
{
    p->file = NULL;
    p->scope = (IrScope){1};
    p->graph = NULL;
    p->instance = 0;
    fputs("graph ", p->out);
    ir_print_name(p->out, '@', g->name);
    fputs(" {\n", p->out);
    p->indent = 1;
    for (uint32_t i = 0; i < g->params.n; i++) {
        const IrValueRec *rec = ir_value(g, g->params.at[i]);
        print_file(p, rec->span);
        fputs("  param ", p->out);
        ir_print_name(p->out, '%', rec->name);
        fputs(" : ", p->out);
        print_typed(p, g, g->params.at[i]);
        print_span(p, rec->span);
        fputc('\n', p->out);
    }
    print_body(p, g);
    for (uint32_t i = 0; i < g->results.n; i++) {
        fputs("  result ", p->out);
        print_value(g, p->out, g->results.at[i]);
        fputc('\n', p->out);
    }
    fputs("}\n", p->out);
    p->indent = 0;
}

static Printer printer(FILE *out, const IrModule *m)
{
    Arena *arena = arena_new();
    return (Printer){
        .out = out, .m = m, .arena = arena, .types = ARENA_ARRAY(arena, const char *, m->types.n)};
}

void ir_print(FILE *out, const IrModule *m)
{
    Printer p = printer(out, m);
    print_header(&p);
    for (uint32_t i = 0; i < m->graphs.n; i++) {
        fputc('\n', out);
        print_graph(&p, m->graphs.at[i]);
    }
    arena_free(p.arena);
}
