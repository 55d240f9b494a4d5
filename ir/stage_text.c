#include "ir/stage_text.h"

#include <inttypes.h>

#include "base/diag.h"
#include "ir/print.h"

/* -- printing -- */

static void print_narrow(FILE *out, const char *name, const IrNarrow *narrow)
{
    if (!narrow->whole)
        return;
    fputs("narrow ", out);
    ir_print_name(out, '$', name);
    fprintf(out, " dim=%u begin=%" PRId64 " whole=%" PRId64 "\n", narrow->dim, narrow->begin,
            narrow->whole);
}

void ir_print_stage(FILE *out, const IrModule *m)
{
    if (m->mesh.pp > 1)
        fprintf(out, "stage %u chunks=%u\n", m->stage, m->chunks);
    for (uint32_t i = 0; i < m->ties.n; i++) {
        const IrTie *tie = &m->ties.at[i];
        fputs("tie ", out);
        ir_print_name(out, '$', tie->name);
        fputs(" comm=", out);
        ir_print_word(out, tie->comm);
        fprintf(out, " ranks=%" PRId64 " first=%d\n", tie->ranks, tie->first);
    }
    for (uint32_t i = 1; i < m->states.n; i++)
        print_narrow(out, m->states.at[i].name, &m->states.at[i].narrow);
    for (uint32_t i = 0; i < m->pieces.n; i++)
        print_narrow(out, m->pieces.at[i].name, &m->pieces.at[i].narrow);
}

/* -- parsing -- */

static bool parse_number(IrParser *p, const char *key, int64_t least, int64_t *out)
{
    IrToken word;
    if (!ir_parse_at_word(p, key))
        return ir_parse_fail(p, key);
    ir_parse_expect(p, IR_TOKEN_WORD, key, &word);
    return ir_parse_punct(p, '=') && ir_parse_int(p, "a number", least, INT32_MAX, out);
}

static bool parse_stage(IrParser *p)
{
    int64_t stage, chunks;
    if (!ir_parse_int(p, "a stage", 0, INT32_MAX, &stage) ||
        !parse_number(p, "chunks", 1, &chunks) || !ir_parse_line_end(p))
        return false;
    p->m->stage = (uint32_t)stage;
    p->m->chunks = (uint32_t)chunks;
    return true;
}

static bool parse_tie(IrParser *p)
{
    IrToken name, word;
    IrTie tie = {0};
    int64_t first;
    if (!ir_parse_expect(p, IR_TOKEN_STATE, "a parameter, $name", &name) ||
        !ir_parse_at_word(p, "comm") || !ir_parse_expect(p, IR_TOKEN_WORD, "comm", &word) ||
        !ir_parse_punct(p, '=') || !ir_parse_expect(p, IR_TOKEN_WORD, "mesh axes", &word) ||
        !parse_number(p, "ranks", 1, &tie.ranks) || !parse_number(p, "first", 0, &first) ||
        !ir_parse_line_end(p))
        return false;
    tie.name = name.text;
    tie.comm = word.text;
    tie.first = first != 0;
    vec_push(p->s->arena, &p->m->ties, tie);
    return true;
}

/* Of a parameter of that name, or of a piece. */
static IrNarrow *find_narrow(IrModule *m, Sym name)
{
    IrState state = ir_state_find(m, name);
    for (uint32_t i = 0; !state.i && i < m->pieces.n; i++)
        if (m->pieces.at[i].name == name)
            return &m->pieces.at[i].narrow;
    return state.i ? &ir_state_rec(m, state)->narrow : NULL;
}

static bool parse_narrow(IrParser *p)
{
    IrToken name;
    int64_t dim, begin, whole;
    if (!ir_parse_expect(p, IR_TOKEN_STATE, "a parameter, $name", &name) ||
        !parse_number(p, "dim", 0, &dim) || !parse_number(p, "begin", 0, &begin) ||
        !parse_number(p, "whole", 1, &whole) || !ir_parse_line_end(p))
        return false;
    IrNarrow *narrow = find_narrow(p->m, name.text);
    if (!narrow) {
        diag(p->s, name.span, ir_narrow_of, name.text);
        return false;
    }
    *narrow = (IrNarrow){(uint32_t)dim, begin, whole};
    return true;
}

bool ir_parse_stage(IrParser *p, const char *word, bool *out_found)
{
    static const struct {
        const char *word;
        bool (*parse)(IrParser *p);
    } lines[] = {{"stage", parse_stage}, {"tie", parse_tie}, {"narrow", parse_narrow}};
    *out_found = false;
    for (uint32_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        if (strcmp(word, lines[i].word))
            continue;
        *out_found = true;
        return lines[i].parse(p);
    }
    return false;
}
