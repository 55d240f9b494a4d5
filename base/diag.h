/* diag: messages with a place. Formats live in diag.def and are checked by the compiler at every
 * call. */
#ifndef BASE_DIAG_H
#define BASE_DIAG_H

#include <stdio.h>

#include "base/session.h"

typedef enum DiagSeverity {
    DIAG_ERROR,
    DIAG_WARNING,
    DIAG_NOTE, /* hangs off the diagnostic before it, with its own place */
    DIAG_HINT, /* the same, without a place */
    DIAG_RECORD
} DiagSeverity;

typedef enum DiagId {
#define DIAG(id, severity, format) DIAG_ID_##id,
#include "base/diag.def"
#undef DIAG
    DIAG_ID_COUNT
} DiagId;

#define DIAG(id, severity, format) static const char diag_format_##id[] = format;
#include "base/diag.def"
#undef DIAG

typedef struct DiagInfo {
    const char *name, *format;
    DiagSeverity severity;
} DiagInfo;

const DiagInfo *diag_info(DiagId id);

static const Span no_span = {0, 0, 0, 0};

/* diag(s, span, id, args...): prints `file:line:col: error: message`, the source line and a
 * caret; counts it. */
#define diag(s, span, id, ...)                                                       \
    ((void)(0 && printf(diag_format_##id, ##__VA_ARGS__)),                           \
     diag_emit((s), (span), DIAG_ID_##id, ##__VA_ARGS__))

void diag_emit(Session *s, Span span, DiagId id, ...);

/* The name of `names` nearest to `name` by edits, or NULL if none is near enough to suggest. */
const char *diag_nearest(const char *name, const char *const *names, uint32_t n);
/* The same of at most so many edits. */
const char *diag_nearest_within(const char *name, const char *const *names, uint32_t n,
                                uint32_t most);

#endif
