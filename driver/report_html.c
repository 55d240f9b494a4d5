/* --html: the report as one page without anything from outside. */
#include <stdlib.h>
#include <string.h>

#include "driver/paths.h"
#include "driver/report.h"

static const char style[] =
    "body{font:15px/1.45 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 "
    "1em;color:#222}"
    "h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}"
    "table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.2em .8em .2em 0;"
    "border-bottom:1px solid "
    "#e4e4e4;vertical-align:top}td.n,th.n{text-align:right;white-space:nowrap}"
    "code{font:13px ui-monospace,monospace}.bar{display:flex;height:1.6em;margin:.6em 0}"
    ".bar div{overflow:hidden;white-space:nowrap;font-size:12px;padding:.25em .3em;color:#fff}"
    ".no{color:#b00020}";

static const char *const colours[] = {"#33658a", "#86bbd8", "#2f4858", "#f26419", "#f6ae2d",
                                      "#758e4f", "#6f4a8e", "#8a817c", "#463f3a"};

static const cJSON *get(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static void put(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            fputs("&lt;", out);
        else if (*text == '>')
            fputs("&gt;", out);
        else if (*text == '&')
            fputs("&amp;", out);
        else if (*text == '"')
            fputs("&quot;", out);
        else
            fputc(*text, out);
    }
}

static void put_cell(FILE *out, const char *text, bool code)
{
    fprintf(out, "<td>%s", code ? "<code>" : "");
    put(out, text);
    fprintf(out, "%s</td>", code ? "</code>" : "");
}

static void put_bytes(FILE *out, double bytes)
{
    char text[32];
    fprintf(out, "<td class=n title=\"%.0f bytes\">%s</td>", bytes, driver_bytes_text(text, bytes));
}

static void put_fact(FILE *out, const char *name, const char *value)
{
    fprintf(out, "<tr><th>%s</th>", name);
    put_cell(out, value, false);
    fputs("</tr>\n", out);
}

static void put_head(FILE *out, Session *s, const cJSON *r)
{
    char total[32], trained[32], flops[32];
    const cJSON *batch = get(r, "batch"), *parameters = get(r, "parameters");
    fputs("<!doctype html><meta charset=utf-8><title>", out);
    put(out, driver_json_text(r, "pretrained"));
    fprintf(out, "</title><style>%s</style>\n<h1>", style);
    put(out, driver_json_text(r, "model"));
    fputs(" · ", out);
    put(out, driver_json_text(r, "pretrained"));
    fputs("</h1>\n<table>\n", out);
    put_fact(out, "target", driver_json_text(r, "target"));
    put_fact(out, "recipe", driver_json_text(r, "recipe"));
    put_fact(out, "parameters",
             arena_printf(s->arena, "%s, %s trained",
                          driver_count_text(total, driver_json_number(parameters, "total")),
                          driver_count_text(trained, driver_json_number(parameters, "trained"))));
    put_fact(out, "step",
             arena_printf(s->arena, "%.0f micro-batches of %.0f × %.0f tokens",
                          driver_json_number(batch, "micro_batches"),
                          driver_json_number(batch, "rows"), driver_json_number(batch, "seq")));
    put_fact(out, "FLOPs per step",
             driver_count_text(flops, driver_json_number(r, "flops_per_step")));
    fputs("</table>\n", out);
}

static void put_bar(FILE *out, const cJSON *rank)
{
    const cJSON *item;
    double arena = driver_json_number(rank, "arena_bytes");
    unsigned colour = 0;
    fputs("<div class=bar>", out);
    cJSON_ArrayForEach(item, get(rank, "breakdown"))
    {
        unsigned at = colour++ % (sizeof colours / sizeof *colours);
        char bytes[32];
        if (item->valuedouble <= 0 || arena <= 0)
            continue;
        fprintf(out, "<div style=\"width:%.3f%%;background:%s\" title=\"%s %s\">%s</div>",
                100 * item->valuedouble / arena, colours[at], item->string,
                driver_bytes_text(bytes, item->valuedouble), item->string);
    }
    fputs("</div>\n<table>\n", out);
    cJSON_ArrayForEach(item, get(rank, "breakdown"))
    {
        if (item->valuedouble <= 0)
            continue;
        fputs("<tr>", out);
        put_bytes(out, item->valuedouble);
        put_cell(out, item->string, false);
        fputs("</tr>\n", out);
    }
    fputs("</table>\n", out);
}

static void put_tensors(FILE *out, const cJSON *list, const char *last_key)
{
    const cJSON *item;
    fputs("<table>\n", out);
    cJSON_ArrayForEach(item, list)
    {
        fputs("<tr>", out);
        put_bytes(out, driver_json_number(item, "bytes"));
        put_cell(out, driver_json_text(item, "name"), true);
        put_cell(out, driver_json_text(item, "type"), true);
        put_cell(out, driver_json_text(item, last_key), false);
        put_cell(out, driver_json_text(item, "at"), true);
        fputs("</tr>\n", out);
    }
    fputs("</table>\n", out);
}

/* many: one of a pipeline's stages */
static void put_rank(FILE *out, const cJSON *rank, bool many)
{
    char bytes[32], stage[32] = "";
    if (many)
        snprintf(stage, sizeof stage, " of stage %.0f", driver_json_number(rank, "stage"));
    fprintf(out, "<h2>Memory%s: one arena of %s</h2>\n", stage,
            driver_bytes_text(bytes, driver_json_number(rank, "arena_bytes")));
    put_bar(out, rank);
    fputs("<p>Peak at <code>", out);
    put(out, driver_json_text(rank, "peak_op"));
    fputs("</code> ", out);
    put(out, driver_json_text(get(rank, "peak"), "at"));
    fputs("</p>\n<h2>Live at the peak</h2>\n", out);
    put_tensors(out, get(rank, "live"), "class");
    fputs("<h2>Outside the arena</h2>\n", out);
    put_tensors(out, get(rank, "outside_arena"), "class");
}

static void put_recompute(FILE *out, const cJSON *recompute)
{
    char bytes[32], flops[32];
    const cJSON *item;
    fprintf(out,
            "<h2>Recompute: %s, %.0f of %.0f blocks%s</h2>\n<p>Saved per micro-batch: %s; "
            "replayed: %s FLOPs</p>\n",
            driver_json_text(recompute, "policy"), driver_json_number(recompute, "blocks_covered"),
            driver_json_number(recompute, "blocks_total"),
            get(recompute, "pointwise") ? ", and pointwise ops of what is kept" : "",
            driver_bytes_text(bytes, driver_json_number(recompute, "saved_bytes")),
            driver_count_text(flops, driver_json_number(recompute, "replayed_flops")));
    fputs("<table>\n", out);
    cJSON_ArrayForEach(item, get(recompute, "blocks"))
    {
        bool covered = cJSON_IsTrue(get(item, "covered"));
        fputs("<tr>", out);
        put_bytes(out, driver_json_number(item, "saved_bytes"));
        put_cell(out, driver_json_text(item, "name"), true);
        fprintf(out, "<td%s>%.0f of %.0f parts</td></tr>\n", covered ? "" : " class=no",
                driver_json_number(item, "parts_recomputed"),
                driver_json_number(item, "parts_total"));
    }
    fputs("</table>\n", out);
    if (cJSON_GetArraySize(get(recompute, "uncovered"))) {
        fputs("<h2>Escaped from recompute</h2>\n", out);
        put_tensors(out, get(recompute, "uncovered"), "role");
    }
}

static void put_kernels(FILE *out, const cJSON *list)
{
    char flops[32];
    const cJSON *item;
    fputs("<h2>Kernels</h2>\n<table>\n", out);
    cJSON_ArrayForEach(item, list)
    {
        fprintf(out, "<tr><td class=n>%.0f</td>", driver_json_number(item, "count"));
        put_cell(out, driver_json_text(item, "name"), true);
        fprintf(out, "<td class=n>%s FLOPs</td><td class=n>%.0f replays</td></tr>\n",
                driver_count_text(flops, driver_json_number(item, "flops")),
                driver_json_number(item, "replays"));
    }
    fputs("</table>\n", out);
}

static void put_records(FILE *out, const cJSON *list)
{
    const cJSON *item;
    fprintf(out, "<h2>Records: %d</h2>\n<table>\n", cJSON_GetArraySize(list));
    cJSON_ArrayForEach(item, list)
    {
        fputs("<tr>", out);
        put_cell(out, driver_json_text(item, "at"), true);
        put_cell(out, driver_json_text(item, "message"), false);
        fputs("</tr>\n", out);
    }
    fputs("</table>\n", out);
}

Status driver_report_html(Session *s, const char *path, const cJSON *report)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    const cJSON *rank;
    put_head(out, s, report);
    bool many = cJSON_GetArraySize(get(report, "ranks")) > 1;
    cJSON_ArrayForEach(rank, get(report, "ranks")) put_rank(out, rank, many);
    put_recompute(out, get(report, "recompute"));
    put_kernels(out, get(report, "kernels"));
    put_records(out, get(report, "records"));
    fclose(out);
    Status status = driver_write_file(s, path, text, length);
    free(text);
    return status;
}
