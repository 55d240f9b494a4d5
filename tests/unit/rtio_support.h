/* rtio_support: what the tests of the runtime's files share: a session whose messages are kept, a
 * folder, a plan made by hand. */
#ifndef TESTS_UNIT_RTIO_SUPPORT_H
#define TESTS_UNIT_RTIO_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/diag.h"
#include "base/dtype.h"
#include "runtime/plan_map.h"

/* -- a session whose messages are kept, and a folder of its own -- */

typedef struct Fixture {
    Session *s;
    char *messages;
    size_t n_messages;
    FILE *out;
    char dir[64];
} Fixture;

static inline Fixture *begin(void)
{
    Fixture *f = calloc(1, sizeof *f);
    f->out = open_memstream(&f->messages, &f->n_messages);
    f->s = session_new(f->out);
    strcpy(f->dir, "/tmp/rtio-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    return f;
}

static inline void end(Fixture *f)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", f->dir);
    assert_int_equal(system(command), 0);
    session_free(f->s);
    fclose(f->out);
    free(f->messages);
    free(f);
}

static inline const char *in(Fixture *f, const char *name)
{
    return arena_printf(f->s->arena, "%s/%s", f->dir, name);
}

static inline void expect_message(Fixture *f, const char *text)
{
    fflush(f->out);
    if (!strstr(f->messages, text))
        fail_msg("expected `%s` in: %s", text, f->messages);
}

static inline void expect_record(Fixture *f, const char *code, const char *text)
{
    for (uint32_t i = 0; i < f->s->records.n; i++)
        if (!strcmp(f->s->records.at[i].code, code) && strstr(f->s->records.at[i].message, text))
            return;
    fail_msg("expected record %s with `%s`", code, text);
}

static inline void put_file(const char *path, const void *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    fclose(file);
}

static inline bool same_files(Fixture *f, const char *a, const char *b)
{
    Source x, y;
    assert_int_equal(session_read_source(f->s, a, no_span, &x), STATUS_OK);
    assert_int_equal(session_read_source(f->s, b, no_span, &y), STATUS_OK);
    return x.length == y.length && !memcmp(x.text, y.text, x.length);
}

/* -- a plan made by hand -- */

typedef struct Model {
    RtPlan plan;
    PlanHeader header;
    PlanState states[32];
    PlanInput inputs[5];
    PlanInstr instrs[4];
    PlanTensor tensors[8];
    PlanParam params[32];
    PlanGrad grads[2];
    PlanKept kept[1];
    char strings[4096];
    _Alignas(64) unsigned char arena[1 << 16];
    uint64_t used;
} Model;

static inline uint32_t text(Model *m, const char *string)
{
    uint32_t at = (uint32_t)m->plan.n_strings;
    strcpy(m->strings + at, string);
    m->plan.n_strings += strlen(string) + 1;
    return at;
}

static inline uint64_t take(Model *m, uint64_t bytes)
{
    uint64_t at = m->used;
    m->used = (at + bytes + 63) / 64 * 64;
    assert_true(m->used <= sizeof m->arena);
    return at;
}

static inline Model *model_new(int64_t micro_batches, int64_t batch, int64_t seq)
{
    Model *m = calloc(1, sizeof *m);
    PlanHeader *h = &m->header;
    m->plan = (RtPlan){.header = h, .all = &m->plan, .n_all = 1,
                       .instrs = m->instrs,
                       .tensors = m->tensors,
                       .params = m->params,
                       .states = m->states,
                       .inputs = m->inputs,
                       .strings = m->strings,
                       .grads = m->grads,
                       .kept = m->kept};
    text(m, "");
    *h = (PlanHeader){
        .micro_batches = micro_batches, .batch = batch, .seq = seq, .model = text(m, "toy")};
    h->model_config = text(m, "{\"model_type\": \"toy\"}\n");
    memset(&h->scalars, 0xff, sizeof h->scalars);
    h->scalars.step = take(m, 8);
    h->scalars.seed = take(m, 8);
    h->scalars.skipped = take(m, 8);
    return m;
}

#endif
