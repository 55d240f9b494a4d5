#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/diag.h"
#include "runtime/cuda/gemm.h"
#include "runtime/cuda/nccl.h"
#include "runtime/safetensors.h"

/* The file: a line that says what the choices hold for, then a line per product:
 *   stepc-tune 1 | cublasLt VERSION | DEVICE | workspace BYTES
 *   ALGORITHM (8 words in hex) WORKSPACE MICROSECONDS | KEY
 * Choices for other products stay in it, so that one file can serve several executables. */

enum { CANDIDATES_MEASURED = 8, REPEATS = 5, LINE = 512 };

static const char *head_line(const RtCuda *cuda)
{
    return arena_printf(cuda->s->arena, "stepc-tune 1 | cublasLt %llu | %s | workspace %llu",
                        (unsigned long long)cuda->lt.GetVersion(), cuda->device_name,
                        (unsigned long long)cuda->library_workspace_bytes);
}

static void key_line(const RtGemmEntry *e, RtGemmChoice *out)
{
    char text[RT_GEMM_TEXT];
    snprintf(out->key, sizeof out->key, "%s align %u,%u,%u", rt_gemm_key_text(&e->key, text),
             e->align_a, e->align_b, e->align_c);
}

/* -- reading -- */

static bool read_choice(const char *line, RtGemmChoice *out)
{
    const char *at = line;
    char *end;
    for (int i = 0; i < RT_GEMM_ALGO_WORDS; i++, at = end) {
        errno = 0;
        out->algo[i] = strtoull(at, &end, 16);
        if (end == at || errno)
            return false;
    }
    out->workspace_bytes = strtoull(at, &end, 10);
    if (end == at)
        return false;
    at = end;
    out->microseconds = strtod(at, &end);
    if (end == at || strncmp(end, " | ", 3))
        return false;
    int n = snprintf(out->key, sizeof out->key, "%s", end + 3);
    return n > 0 && (size_t)n < sizeof out->key;
}

static Status malformed(RtCuda *cuda, const char *path, uint32_t line, const char *what)
{
    diag(cuda->s, no_span, cuda_tune_line, path, line, what);
    return STATUS_USER;
}

/* A file of another device, library or workspace holds nothing for this one, and will be replaced.
 */
static Status read_file(RtCuda *cuda, const char *path, FILE *file, RtGemmChoices *out)
{
    char line[LINE];
    const char *head = head_line(cuda);
    for (uint32_t n = 1; fgets(line, sizeof line, file); n++) {
        size_t length = strcspn(line, "\n");
        if (!line[length])
            return malformed(cuda, path, n, "it is too long, or not ended");
        line[length] = 0;
        if (n == 1 && strncmp(line, "stepc-tune ", 11))
            return malformed(cuda, path, n, "this is no tuning file");
        if (n == 1 && strcmp(line, head))
            return STATUS_OK;
        RtGemmChoice choice;
        if (n > 1 && !read_choice(line, &choice))
            return malformed(cuda, path, n, "it is not `ALGORITHM WORKSPACE MICROSECONDS | KEY`");
        if (n > 1)
            vec_push(cuda->s->arena, &out->list, choice);
    }
    return STATUS_OK;
}

static Status read_choices(RtCuda *cuda, const char *path, RtGemmChoices *out)
{
    FILE *file = fopen(path, "r");
    if (!file && errno == ENOENT)
        return STATUS_OK;
    if (!file) {
        diag(cuda->s, no_span, file_read, path, strerror(errno));
        return STATUS_ENV;
    }
    Status status = read_file(cuda, path, file, out);
    fclose(file);
    return status;
}

static const RtGemmChoice *find_choice(const RtGemmChoices *choices, const char *key)
{
    for (uint32_t i = 0; i < choices->list.n; i++)
        if (!strcmp(choices->list.at[i].key, key))
            return &choices->list.at[i];
    return NULL;
}

/* -- measuring -- */

typedef struct Clock {
    CUevent begin, end;
} Clock;

static Status time_algo(RtCuda *cuda, const RtGemmEntry *e, const cublasLtMatmulAlgo_t *algo,
                        const Clock *clock, double *out_microseconds)
{
    static const char what[] = "measuring a matrix product";
    float ms = 0;
    TRY(rt_gemm_run(cuda, e, algo, &e->sample));
    TRY(rt_cuda_result(cuda, cuda->driver.EventRecord(clock->begin, cuda->stream), what));
    for (int i = 0; i < REPEATS; i++)
        TRY(rt_gemm_run(cuda, e, algo, &e->sample));
    TRY(rt_cuda_result(cuda, cuda->driver.EventRecord(clock->end, cuda->stream), what));
    TRY(rt_cuda_result(cuda, cuda->driver.EventSynchronize(clock->end), what));
    TRY(rt_cuda_result(cuda, cuda->driver.EventElapsedTime(&ms, clock->begin, clock->end), what));
    *out_microseconds = (double)ms * 1e3 / REPEATS;
    return STATUS_OK;
}

static Status measure(RtCuda *cuda, RtGemmEntry *e, const Clock *clock)
{
    cublasLtMatmulHeuristicResult_t found[RT_GEMM_CANDIDATES];
    int n;
    TRY(rt_gemm_candidates(cuda, e, found, &n));
    for (int i = 0; i < n && i < CANDIDATES_MEASURED; i++) {
        double microseconds;
        TRY(time_algo(cuda, e, &found[i].algo, clock, &microseconds));
        if (e->bound && microseconds >= e->microseconds)
            continue;
        e->algo = found[i].algo;
        e->workspace_bytes = found[i].workspaceSize;
        e->microseconds = microseconds;
        e->bound = e->tuned = true;
    }
    return STATUS_OK;
}

/* A choice that the library no longer takes for this product is measured again. */
static bool apply(RtCuda *cuda, RtGemmEntry *e, const RtGemmChoice *choice)
{
    cublasLtMatmulHeuristicResult_t checked;
    cublasLtMatmulAlgo_t algo;
    _Static_assert(sizeof algo == sizeof choice->algo, "an algorithm is eight words");
    memcpy(&algo, choice->algo, sizeof algo);
    if (cuda->lt.MatmulAlgoCheck(cuda->gemms->handle, e->desc, e->a, e->b, e->c, e->c, &algo,
                                 &checked) != CUBLAS_STATUS_SUCCESS ||
        checked.workspaceSize > cuda->library_workspace_bytes)
        return false;
    e->algo = algo;
    e->workspace_bytes = checked.workspaceSize;
    e->microseconds = choice->microseconds;
    e->bound = e->tuned = true;
    return true;
}

static Status choose(RtCuda *cuda, RtGemmChoices *choices, const Clock *clock)
{
    for (uint32_t i = 0; i < cuda->gemms->entries.n; i++) {
        RtGemmEntry *e = &cuda->gemms->entries.at[i];
        RtGemmChoice choice = {0};
        key_line(e, &choice);
        const RtGemmChoice *known = find_choice(choices, choice.key);
        if (!e->desc)
            TRY(rt_gemm_describe(cuda, e));
        if (known && apply(cuda, e, known))
            continue;
        TRY(measure(cuda, e, clock));
        choice.workspace_bytes = e->workspace_bytes;
        choice.microseconds = e->microseconds;
        memcpy(choice.algo, &e->algo, sizeof choice.algo);
        if (known)
            choices->list.at[known - choices->list.at] = choice;
        else
            vec_push(cuda->s->arena, &choices->list, choice);
        choices->changed = true;
    }
    return STATUS_OK;
}

/* -- writing -- */

static Status write_choices(RtCuda *cuda, const char *path, const RtGemmChoices *choices)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (!out) {
        diag(cuda->s, no_span, environment, "out of memory");
        return STATUS_ENV;
    }
    fprintf(out, "%s\n", head_line(cuda));
    for (uint32_t i = 0; i < choices->list.n; i++) {
        const RtGemmChoice *c = &choices->list.at[i];
        for (int w = 0; w < RT_GEMM_ALGO_WORDS; w++)
            fprintf(out, "%" PRIx64 " ", c->algo[w]);
        fprintf(out, "%" PRIu64 " %.3f | %s\n", c->workspace_bytes, c->microseconds, c->key);
    }
    fclose(out);
    Status status = rt_text_write(cuda->s, path, text);
    free(text);
    return status;
}

Status rt_cuda_gemms_tune(RtCuda *cuda, const char *path)
{
    RtGemmChoices *choices = &cuda->gemms->choices;
    Clock clock = {0};
    TRY(read_choices(cuda, path, choices));
    Status status = rt_cuda_result(cuda, cuda->driver.EventCreate(&clock.begin, CU_EVENT_DEFAULT),
                                   "making an event");
    if (status == STATUS_OK)
        status = rt_cuda_result(cuda, cuda->driver.EventCreate(&clock.end, CU_EVENT_DEFAULT),
                                "making an event");
    if (status == STATUS_OK)
        status = choose(cuda, choices, &clock);
    if (clock.begin)
        cuda->driver.EventDestroy(clock.begin);
    if (clock.end)
        cuda->driver.EventDestroy(clock.end);
    if (status != STATUS_OK || cuda->ranks || !choices->changed)
        return status;
    return write_choices(cuda, path, choices);
}

/* -- ranks -- */

typedef struct Summary {
    char head[LINE];
    uint64_t n; /* choices */
} Summary;

/* The choices of all ranks with this one's device and library: each product's by the first rank
 * that has it. */
static Status gather(RtCuda *cuda, Arena *scratch, const RtGemmChoices *own, RtGemmChoices *out)
{
    static const char what[] = "comparing the ranks' choices of algorithms";
    RtWorld *world = cuda->ranks->world;
    RtGroup all;
    Summary mine = {.n = own->list.n}, *of = ARENA_ARRAY(scratch, Summary, world->size);
    uint64_t most = 0;
    snprintf(mine.head, sizeof mine.head, "%s", head_line(cuda));
    rt_group_open_world(world, &all);
    if (!rt_all_gather(&all, of, &mine, sizeof mine))
        return rt_world_lost(world, what);
    for (uint32_t r = 0; r < world->size; r++)
        most = of[r].n > most ? of[r].n : most;
    if (!most)
        return STATUS_OK;
    RtGemmChoice *sent = ARENA_ARRAY(scratch, RtGemmChoice, most),
                 *got = ARENA_ARRAY(scratch, RtGemmChoice, most * world->size);
    if (own->list.n)
        memcpy(sent, own->list.at, own->list.n * sizeof *sent);
    if (!rt_all_gather(&all, got, sent, most * sizeof *sent))
        return rt_world_lost(world, what);
    for (uint32_t r = 0; r < world->size; r++)
        for (uint64_t i = 0; i < of[r].n && !strcmp(of[r].head, mine.head); i++)
            if (!find_choice(out, got[r * most + i].key))
                vec_push(cuda->s->arena, &out->list, got[r * most + i]);
    return STATUS_OK;
}

Status rt_cuda_gemms_agree(RtCuda *cuda, const char *path)
{
    RtGemmChoices *own = &cuda->gemms->choices, all = {.changed = own->changed};
    Arena *scratch = arena_new();
    Status status = gather(cuda, scratch, own, &all);
    arena_free(scratch);
    TRY(status);
    for (uint32_t i = 0; i < cuda->gemms->entries.n; i++) {
        RtGemmEntry *e = &cuda->gemms->entries.at[i];
        RtGemmChoice named;
        key_line(e, &named);
        const RtGemmChoice *choice = find_choice(&all, named.key);
        if (choice && !apply(cuda, e, choice)) {
            diag(cuda->s, no_span, cuda_tune_apart, choice->key);
            return STATUS_ENV;
        }
    }
    all.changed |= all.list.n > own->list.n;
    *own = all;
    return all.changed && rt_is_first(cuda->ranks->world) ? write_choices(cuda, path, own)
                                                          : STATUS_OK;
}
