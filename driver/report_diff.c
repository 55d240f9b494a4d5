/* --diff: what changed between two reports, by name: sizes, tensors, blocks, parts, kernels,
 * records. */
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "driver/report.h"

typedef struct Diff {
    Session *s;
    FILE *out;
    const cJSON *a, *b;
    uint32_t n_changes;
    const char *growth; /* what grew, for --fail-on */
} Diff;

static const cJSON *get(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

/* Of a pipeline's stages the one with the largest arena. */
static const cJSON *largest_rank(const cJSON *report)
{
    const cJSON *largest = NULL, *rank;
    cJSON_ArrayForEach(rank, get(report, "ranks"))
    {
        double bytes = driver_json_number(rank, "arena_bytes");
        if (!largest || bytes > driver_json_number(largest, "arena_bytes"))
            largest = rank;
    }
    return largest;
}

static void grew(Diff *d, const char *what)
{
    d->growth = d->growth ? arena_printf(d->s->arena, "%s, %s", d->growth, what) : what;
}

/* -- sizes -- */

static void diff_bytes(Diff *d, const char *what, double a, double b)
{
    char from[32], to[32], by[32];
    if (a == b)
        return;
    d->n_changes++;
    fprintf(d->out, "%s: %s -> %s (%c%s)\n", what, driver_bytes_text(from, a),
            driver_bytes_text(to, b), b > a ? '+' : '-',
            driver_bytes_text(by, b > a ? b - a : a - b));
}

static void diff_number(Diff *d, const char *what, double a, double b)
{
    if (a == b)
        return;
    d->n_changes++;
    fprintf(d->out, "%s: %.17g -> %.17g\n", what, a, b);
}

static void diff_text(Diff *d, const char *what, const char *a, const char *b)
{
    if (!strcmp(a, b))
        return;
    d->n_changes++;
    fprintf(d->out, "%s: %s -> %s\n", what, *a ? a : "none", *b ? b : "none");
}

static void diff_sizes(Diff *d)
{
    const cJSON *a = largest_rank(d->a), *b = largest_rank(d->b), *item;
    double from = driver_json_number(a, "arena_bytes"), to = driver_json_number(b, "arena_bytes");
    diff_bytes(d, "arena_bytes", from, to);
    if (to > from)
        grew(d, "arena_bytes");
    cJSON_ArrayForEach(item, get(b, "breakdown"))
        diff_bytes(d, arena_printf(d->s->arena, "breakdown.%s", item->string),
                   driver_json_number(get(a, "breakdown"), item->string), item->valuedouble);
    diff_text(d, "peak_op", driver_json_text(a, "peak_op"), driver_json_text(b, "peak_op"));
}

/* -- named items -- */

/* Items of a list by name; the n-th of equal names counts as another one. */
typedef struct Named {
    const char *name;
    uint32_t nth;
    const cJSON *item;
} Named;

static int by_name(const void *a, const void *b)
{
    const Named *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->nth > y->nth) - (x->nth < y->nth);
}

static Named *sorted(Diff *d, const cJSON *list, const char *key, uint32_t *out_n)
{
    uint32_t n = 0;
    Named *at = ARENA_ARRAY(d->s->arena, Named, cJSON_GetArraySize(list) + 1);
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        at[n] = (Named){driver_json_text(item, key), n, item};
        n++;
    }
    qsort(at, n, sizeof *at, by_name);
    for (uint32_t i = 0; i < n; i++)
        at[i].nth = i && !strcmp(at[i].name, at[i - 1].name) ? at[i - 1].nth + 1 : 0;
    *out_n = n;
    return at;
}

/* Called with NULL for the side that lacks the item. */
typedef void (*DiffFn)(Diff *d, const cJSON *a, const cJSON *b);

static void diff_lists(Diff *d, const cJSON *a_list, const cJSON *b_list, const char *key,
                       DiffFn fn)
{
    uint32_t n, m, i = 0, j = 0;
    Named *a = sorted(d, a_list, key, &n), *b = sorted(d, b_list, key, &m);
    while (i < n || j < m) {
        int order = i == n ? 1 : j == m ? -1 : by_name(&a[i], &b[j]);
        fn(d, order <= 0 ? a[i].item : NULL, order >= 0 ? b[j].item : NULL);
        i += order <= 0;
        j += order >= 0;
    }
}

static void print_tensor(Diff *d, char sign, const char *what, const cJSON *item)
{
    char bytes[32];
    d->n_changes++;
    fprintf(d->out, "%c %s %s %s %s  %s\n", sign, what, driver_json_text(item, "name"),
            driver_json_text(item, "type"),
            driver_bytes_text(bytes, driver_json_number(item, "bytes")),
            driver_json_text(item, "at"));
}

static void diff_tensor(Diff *d, const char *what, const cJSON *a, const cJSON *b)
{
    if (a && b && driver_json_number(a, "bytes") == driver_json_number(b, "bytes") &&
        !strcmp(driver_json_text(a, "type"), driver_json_text(b, "type")))
        return;
    if (a)
        print_tensor(d, '-', what, a);
    if (b)
        print_tensor(d, '+', what, b);
}

static void diff_live(Diff *d, const cJSON *a, const cJSON *b)
{
    diff_tensor(d, "live", a, b);
}

static void diff_saved(Diff *d, const cJSON *a, const cJSON *b)
{
    diff_tensor(d, "saved", a, b);
}

static void diff_uncovered(Diff *d, const cJSON *a, const cJSON *b)
{
    diff_tensor(d, "escaped", a, b);
}

static void diff_block(Diff *d, const cJSON *a, const cJSON *b)
{
    const char *name = driver_json_text(a ? a : b, "name");
    if (!a || !b) {
        d->n_changes++;
        fprintf(d->out, "%c block %s\n", a ? '-' : '+', name);
        return;
    }
    bool was = cJSON_IsTrue(get(a, "covered")), is = cJSON_IsTrue(get(b, "covered"));
    if (was != is) {
        d->n_changes++;
        fprintf(d->out, "block %s: %s -> %s  %s\n", name, was ? "recomputed" : "not recomputed",
                is ? "recomputed" : "not recomputed", driver_json_text(b, "at"));
    }
    diff_bytes(d, arena_printf(d->s->arena, "block %s: saved_bytes", name),
               driver_json_number(a, "saved_bytes"), driver_json_number(b, "saved_bytes"));
}

static void diff_kernel(Diff *d, const cJSON *a, const cJSON *b)
{
    const char *name = driver_json_text(a ? a : b, "name");
    diff_number(d, arena_printf(d->s->arena, "kernel %s: count", name),
                driver_json_number(a, "count"), driver_json_number(b, "count"));
}

static void diff_record(Diff *d, const cJSON *a, const cJSON *b)
{
    if (a && b)
        return;
    d->n_changes++;
    fprintf(d->out, "%c record %s\n", a ? '-' : '+', driver_json_text(a ? a : b, "message"));
}

/* -- recompute -- */

static void diff_parts(Diff *d, const cJSON *a, const cJSON *b)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, b)
    {
        const cJSON *was = get(a, item->string);
        diff_number(d, arena_printf(d->s->arena, "part %s: recomputed", item->string),
                    driver_json_number(was, "recomputed"), driver_json_number(item, "recomputed"));
        diff_number(d, arena_printf(d->s->arena, "part %s: total", item->string),
                    driver_json_number(was, "total"), driver_json_number(item, "total"));
    }
    cJSON_ArrayForEach(item, a) if (!get(b, item->string))
        diff_number(d, arena_printf(d->s->arena, "part %s: total", item->string),
                    driver_json_number(item, "total"), 0);
}

static void diff_recompute(Diff *d)
{
    const cJSON *a = get(d->a, "recompute"), *b = get(d->b, "recompute");
    diff_text(d, "policy", driver_json_text(a, "policy"), driver_json_text(b, "policy"));
    double covered = driver_json_number(a, "blocks_covered"),
           covers = driver_json_number(b, "blocks_covered");
    diff_number(d, "blocks_covered", covered, covers);
    if (covers < covered &&
        driver_json_number(a, "blocks_total") == driver_json_number(b, "blocks_total"))
        grew(d, "blocks that are not recomputed");
    double saved = driver_json_number(a, "saved_bytes"),
           saves = driver_json_number(b, "saved_bytes");
    diff_bytes(d, "saved_bytes", saved, saves);
    if (saves > saved)
        grew(d, "saved_bytes");
    diff_number(d, "replayed_flops", driver_json_number(a, "replayed_flops"),
                driver_json_number(b, "replayed_flops"));
    diff_parts(d, get(a, "parts"), get(b, "parts"));
    diff_lists(d, get(a, "blocks"), get(b, "blocks"), "name", diff_block);
    diff_lists(d, get(a, "uncovered"), get(b, "uncovered"), "name", diff_uncovered);
    diff_lists(d, get(a, "saved"), get(b, "saved"), "name", diff_saved);
}

/* -- files -- */

static Status read_report(Session *s, const char *path, cJSON **out)
{
    Source source;
    TRY(session_read_source(s, path, no_span, &source));
    const char *end = NULL;
    *out = cJSON_ParseWithLengthOpts(source.text, source.length + 1, &end, false);
    const char *fault = !*out ? "not JSON" : !largest_rank(*out) ? "it has no `ranks`" : NULL;
    if (!fault)
        return STATUS_OK;
    diag(s, ((Span){source.name, 0, 0, 0}), driver_report_file, path, fault);
    return STATUS_USER;
}

static void diff_all(Diff *d)
{
    diff_text(d, "model", driver_json_text(d->a, "model"), driver_json_text(d->b, "model"));
    diff_sizes(d);
    diff_number(d, "flops_per_step", driver_json_number(d->a, "flops_per_step"),
                driver_json_number(d->b, "flops_per_step"));
    diff_recompute(d);
    diff_lists(d, get(largest_rank(d->a), "live"), get(largest_rank(d->b), "live"), "name",
               diff_live);
    diff_lists(d, get(largest_rank(d->a), "outside_arena"),
               get(largest_rank(d->b), "outside_arena"), "name", diff_live);
    diff_lists(d, get(d->a, "kernels"), get(d->b, "kernels"), "name", diff_kernel);
    diff_lists(d, get(d->a, "records"), get(d->b, "records"), "message", diff_record);
    if (!d->n_changes)
        fprintf(d->out, "no change\n");
}

Status driver_report_diff(Session *s, FILE *out, const char *a_path, const char *b_path,
                          bool fail_on_growth)
{
    cJSON *a = NULL, *b = NULL;
    Status status = read_report(s, a_path, &a);
    if (status == STATUS_OK)
        status = read_report(s, b_path, &b);
    if (status == STATUS_OK) {
        Diff d = {.s = s, .out = out, .a = a, .b = b};
        diff_all(&d);
        fflush(out);
        if (fail_on_growth && d.growth) {
            diag(s, no_span, driver_growth, d.growth);
            status = STATUS_CHECK;
        }
    }
    cJSON_Delete(a);
    cJSON_Delete(b);
    return status;
}
