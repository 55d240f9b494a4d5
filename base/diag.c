#include "base/diag.h"

#include <errno.h>
#include <string.h>

static const DiagInfo infos[] = {
#define DIAG(id, severity, format) {#id, format, DIAG_##severity},
#include "base/diag.def"
#undef DIAG
};

const DiagInfo *diag_info(DiagId id)
{
    return &infos[id];
}

static const Source *source_of(Session *s, Sym file)
{
    for (uint32_t i = 0; i < s->sources.n; i++)
        if (s->sources.at[i].name == file)
            return &s->sources.at[i];
    return NULL;
}

/* The line, or of a long one what stands around the place, and the caret below. */
static void print_marked(FILE *out, const char *line, uint32_t width, Span span)
{
    enum { WIDEST = 160 };
    uint32_t first = 0, last = width;
    if (!width)
        return; /* the end of the text */
    if (width > WIDEST) {
        first = span.col > WIDEST / 2 ? span.col - WIDEST / 2 : 0;
        first = first + WIDEST > width ? width - WIDEST : first;
        last = first + WIDEST;
    }
    fprintf(out, "  %s%.*s%s\n  %s", first ? "..." : "", (int)(last - first), line + first,
            last < width ? "..." : "", first ? "   " : "");
    for (uint32_t i = first + 1; i < span.col && i <= last; i++)
        fputc(line[i - 1] == '\t' ? '\t' : ' ', out);
    fputc('^', out);
    for (uint32_t i = 1; i < span.length && span.col + i <= last; i++)
        fputc('~', out);
    fputc('\n', out);
}

static void print_source_line(Session *s, Span span)
{
    const Source *source = source_of(s, span.file);
    if (!source)
        return;
    const char *line = source->text, *end = source->text + source->length;
    for (uint32_t i = 1; i < span.line && line < end; i++) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        if (!newline)
            return;
        line = newline + 1;
    }
    const char *newline = memchr(line, '\n', (size_t)(end - line));
    print_marked(s->diag_out, line, (uint32_t)((newline ? newline : end) - line), span);
}

void diag_emit(Session *s, Span span, DiagId id, ...)
{
    static const char *const words[] = {"error", "warning", "note", "hint", "record"};
    DiagSeverity severity = infos[id].severity;
    va_list args;
    va_start(args, id);
    char *message = arena_vprintf(s->arena, infos[id].format, args);
    va_end(args);
    if (severity == DIAG_RECORD) {
        vec_push(s->arena, &s->records, ((Record){infos[id].name, message, span}));
        if (!s->strict)
            return;
        severity = DIAG_ERROR;
    }
    s->n_errors += severity == DIAG_ERROR;
    s->n_warnings += severity == DIAG_WARNING;
    if (span.line && span.file)
        fprintf(s->diag_out, "%s:%u:%u: ", span.file, span.line, span.col);
    else if (span.file)
        fprintf(s->diag_out, "%s: ", span.file);
    fprintf(s->diag_out, "%s: %s\n", words[severity], message);
    if (span.line && span.file)
        print_source_line(s, span);
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Letters put in, left out, changed, or two that changed places. */
static uint32_t edits(const char *a, const char *b)
{
    enum { LONGEST = 64 };
    size_t n = strlen(a), m = strlen(b);
    uint32_t d[LONGEST + 1][LONGEST + 1];
    if (n > LONGEST || m > LONGEST)
        return LONGEST;
    for (uint32_t j = 0; j <= m; j++)
        d[0][j] = j;
    for (uint32_t i = 1; i <= n; i++) {
        d[i][0] = i;
        for (uint32_t j = 1; j <= m; j++) {
            d[i][j] = least(d[i - 1][j - 1] + (a[i - 1] != b[j - 1]),
                            least(d[i - 1][j], d[i][j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = least(d[i][j], d[i - 2][j - 2] + 1);
        }
    }
    return d[n][m];
}

const char *diag_nearest_within(const char *name, const char *const *names, uint32_t n,
                                uint32_t most)
{
    const char *best = NULL;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t distance = edits(name, names[i]);
        if (distance <= most && distance * 2 <= strlen(name) && (!best || distance < most)) {
            best = names[i];
            most = distance;
        }
    }
    return best;
}

const char *diag_nearest(const char *name, const char *const *names, uint32_t n)
{
    return diag_nearest_within(name, names, n, (uint32_t)strlen(name) / 3 + 1);
}
