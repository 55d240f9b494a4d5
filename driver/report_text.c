#include "driver/report.h"

#include <string.h>

enum { MOST_LIVE = 20, MOST_UNCOVERED = 20, MOST_KERNELS = 24 };

static const cJSON *get(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static void print_head(FILE *out, const cJSON *r)
{
    char total[32], trained[32], tokens[32];
    const cJSON *batch = get(r, "batch"), *parameters = get(r, "parameters"),
                *precision = get(r, "precision");
    fprintf(out, "%s (%s) for %s, %.0f rank%s\n", driver_json_text(r, "model"),
            driver_json_text(r, "pretrained"), driver_json_text(r, "target"),
            driver_json_number(r, "world"), driver_json_number(r, "world") > 1 ? "s" : "");
    fprintf(out, "  parameters  %s in %.0f tensors, %s trained\n",
            driver_count_text(total, driver_json_number(parameters, "total")),
            driver_json_number(parameters, "tensors"),
            driver_count_text(trained, driver_json_number(parameters, "trained")));
    double micro_batches = driver_json_number(batch, "micro_batches");
    fprintf(out, "  step        %.0f micro-batch%s of %.0f x %.0f tokens: %s tokens\n",
            micro_batches, micro_batches > 1 ? "es" : "", driver_json_number(batch, "rows"),
            driver_json_number(batch, "seq"),
            driver_count_text(tokens, driver_json_number(batch, "tokens_per_step")));
    fprintf(out,
            "  precision   param %s, compute %s, grad %s, accumulate %s, moments %s, master %s\n",
            driver_json_text(precision, "param"), driver_json_text(precision, "compute"),
            driver_json_text(precision, "grad"), driver_json_text(precision, "accumulate"),
            driver_json_text(precision, "moments"), driver_json_text(precision, "master"));
}

static void print_live(FILE *out, const cJSON *rank)
{
    char bytes[32];
    int shown = 0, left = 0;
    double left_bytes = 0;
    const cJSON *item;
    fprintf(out, "\n  live at the peak, without what outlives the step\n");
    cJSON_ArrayForEach(item, get(rank, "live"))
    {
        if (cJSON_IsTrue(get(item, "persistent")))
            continue;
        if (shown == MOST_LIVE) {
            left++;
            left_bytes += driver_json_number(item, "bytes");
            continue;
        }
        shown++;
        fprintf(out, "  %12s  %-11s %s %s  %s\n",
                driver_bytes_text(bytes, driver_json_number(item, "bytes")),
                driver_json_text(item, "class"), driver_json_text(item, "name"),
                driver_json_text(item, "type"), driver_json_text(item, "at"));
    }
    if (left)
        fprintf(out, "  %12s  in %d smaller ones\n", driver_bytes_text(bytes, left_bytes), left);
}

static void print_rank(FILE *out, const cJSON *rank, bool many)
{
    char bytes[32];
    const cJSON *item;
    fprintf(out, "\nmemory");
    if (many)
        fprintf(out, " of stage %.0f, %.0f block%s", driver_json_number(rank, "stage"),
                driver_json_number(rank, "blocks"),
                driver_json_number(rank, "blocks") > 1 ? "s" : "");
    fprintf(out, ": one arena of %s (%.0f bytes)\n",
            driver_bytes_text(bytes, driver_json_number(rank, "arena_bytes")),
            driver_json_number(rank, "arena_bytes"));
    cJSON_ArrayForEach(item, get(rank, "breakdown"))
    {
        if (item->valuedouble > 0)
            fprintf(out, "  %12s  %s\n", driver_bytes_text(bytes, item->valuedouble), item->string);
    }
    fprintf(out, "  peak at %s%s%s  %s\n", driver_json_text(rank, "peak_scope"),
            *driver_json_text(rank, "peak_scope") ? " " : "", driver_json_text(rank, "peak_op"),
            driver_json_text(get(rank, "peak"), "at"));
    double bound = driver_json_number(rank, "lower_bound_bytes");
    if (bound > 0)
        fprintf(out, "  transient part %s, %.2f %% above its lower bound\n",
                driver_bytes_text(bytes, driver_json_number(rank, "transient_bytes")),
                (driver_json_number(rank, "transient_bytes") / bound - 1) * 100);
    print_live(out, rank);
    if (cJSON_GetArraySize(get(rank, "outside_arena")))
        fprintf(out, "\n  outside the arena\n");
    cJSON_ArrayForEach(item, get(rank, "outside_arena"))
        fprintf(out, "  %12s  %s\n", driver_bytes_text(bytes, driver_json_number(item, "bytes")),
                driver_json_text(item, "name"));
}

static void print_uncovered(FILE *out, const cJSON *recompute)
{
    char bytes[32];
    int n = 0, total = cJSON_GetArraySize(get(recompute, "uncovered"));
    const cJSON *item;
    cJSON_ArrayForEach(item, get(recompute, "uncovered"))
    {
        if (n++ == MOST_UNCOVERED) {
            fprintf(out, "  ... and %d more\n", total - MOST_UNCOVERED);
            return;
        }
        const char *part = driver_json_text(item, "part");
        fprintf(out, "  escaped: %s  %s %s in %s, read by %s  %s\n",
                driver_bytes_text(bytes, driver_json_number(item, "bytes")),
                driver_json_text(item, "name"), driver_json_text(item, "type"),
                *part ? part : driver_json_text(item, "block"), driver_json_text(item, "read_by"),
                driver_json_text(item, "at"));
    }
}

static void print_recompute(FILE *out, const cJSON *r)
{
    char bytes[32], flops[32];
    const cJSON *recompute = get(r, "recompute"), *item;
    fprintf(out, "\nrecompute: policy %s, %.0f of %.0f blocks%s\n",
            driver_json_text(recompute, "policy"), driver_json_number(recompute, "blocks_covered"),
            driver_json_number(recompute, "blocks_total"),
            get(recompute, "pointwise") ? ", and pointwise ops of what is kept" : "");
    cJSON_ArrayForEach(item, get(recompute, "parts"))
        fprintf(out, "  %-12s %.0f of %.0f\n", item->string, driver_json_number(item, "recomputed"),
                driver_json_number(item, "total"));
    fprintf(out,
            "  saved for the backward pass: %s per micro-batch; replayed: %s FLOPs in %.0f ops\n",
            driver_bytes_text(bytes, driver_json_number(recompute, "saved_bytes")),
            driver_count_text(flops, driver_json_number(recompute, "replayed_flops")),
            driver_json_number(recompute, "replayed_ops"));
    print_uncovered(out, recompute);
}

static void print_work(FILE *out, const cJSON *r)
{
    char flops[32], bytes[32];
    int n = 0;
    const cJSON *item;
    fprintf(out, "\nwork: %s FLOPs per step (products, without replays), %s moved, about %.3g s\n",
            driver_count_text(flops, driver_json_number(r, "flops_per_step")),
            driver_bytes_text(bytes, driver_json_number(r, "bytes_per_step")),
            driver_json_number(r, "seconds_per_step"));
    if (get(r, "pipeline"))
        fprintf(out, "  pipeline of %.0f stages, %s: they wait %.1f %% of a step on average\n",
                driver_json_number(get(r, "pipeline"), "stages"),
                driver_json_text(get(r, "pipeline"), "schedule"),
                driver_json_number(get(r, "pipeline"), "bubble") * 100);
    fprintf(out, "  %.0f instructions\n", driver_json_number(r, "instructions"));
    cJSON_ArrayForEach(item, get(r, "kernels"))
    {
        if (n++ == MOST_KERNELS)
            break;
        fprintf(out, "  %6.0f  %-18s %s FLOPs", driver_json_number(item, "count"),
                driver_json_text(item, "name"),
                driver_count_text(flops, driver_json_number(item, "flops")));
        if (driver_json_number(item, "replays") > 0)
            fprintf(out, ", %.0f replays", driver_json_number(item, "replays"));
        fputc('\n', out);
    }
}

static void print_records(FILE *out, const cJSON *r)
{
    const cJSON *item;
    int n = cJSON_GetArraySize(get(r, "records"));
    fprintf(out, "\nrecords: %d\n", n);
    cJSON_ArrayForEach(item, get(r, "records"))
    {
        const char *at = driver_json_text(item, "at");
        fprintf(out, "  %s%s%s\n", at, *at ? ": " : "", driver_json_text(item, "message"));
    }
}

void driver_report_text(FILE *out, const cJSON *r)
{
    const cJSON *rank;
    print_head(out, r);
    bool many = cJSON_GetArraySize(get(r, "ranks")) > 1;
    cJSON_ArrayForEach(rank, get(r, "ranks")) print_rank(out, rank, many);
    print_recompute(out, r);
    print_work(out, r);
    print_records(out, r);
}
