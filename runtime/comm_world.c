#include <stdlib.h>
#include <unistd.h>

#include "base/diag.h"
#include "base/dtype.h"
#include "runtime/comm.h"

/* -- what ranks other than 0 say -- */

static void hold_back(RtWorld *world)
{
    Session *s = world->s;
    world->first_out = s->diag_out;
    if (world->rank && (world->own_out = open_memstream(&world->said, &world->said_bytes)))
        s->diag_out = world->own_out;
}

static void drop(RtWorld *world)
{
    if (world->own_out)
        rewind(world->own_out);
}

/* Everything that was held back, each line with the rank in front. */
void rt_world_say(RtWorld *world)
{
    if (!world || !world->own_out)
        return;
    fflush(world->own_out);
    for (char *line = world->said, *end = line + world->said_bytes; line < end;) {
        char *stop = memchr(line, '\n', (size_t)(end - line));
        int length = (int)((stop ? stop : end) - line);
        fprintf(world->first_out, "rank %u: %.*s\n", world->rank, length, line);
        line += length + 1;
    }
    fflush(world->first_out);
    drop(world);
}

/* -- opening -- */

static uint64_t number_of(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : 0;
}

/* The first of them that is set; `none` where none is. */
static uint64_t first_of(const char *const *names, uint32_t n, uint64_t none)
{
    for (uint32_t i = 0; i < n; i++)
        if (getenv(names[i]))
            return number_of(names[i]);
    return none;
}

void rt_machine(char out[RT_MACHINE_TEXT])
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    memset(out, 0, RT_MACHINE_TEXT);
    if (file && !fgets(out, RT_MACHINE_TEXT, file))
        out[0] = 0;
    if (file)
        fclose(file);
}

uint32_t rt_local_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK",
                                        "MPI_LOCALRANKID", "SLURM_LOCALID"};
    return (uint32_t)first_of(names, sizeof names / sizeof *names, 0);
}

typedef enum Launch { LAUNCH_NONE, LAUNCH_MPI, LAUNCH_VARIABLES } Launch;

static Launch launch_of(uint64_t *out_size)
{
    static const char *const mpi[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS",
                                      "SLURM_NTASKS"};
    bool started = getenv("OMPI_COMM_WORLD_RANK") || getenv("PMIX_RANK") || getenv("PMI_RANK");
    *out_size = 0;
    for (uint32_t i = 0; started && i < sizeof mpi / sizeof *mpi && !*out_size; i++)
        *out_size = number_of(mpi[i]);
    if (started && *out_size > 1)
        return LAUNCH_MPI;
    if (!getenv("RANK") || !getenv("WORLD_SIZE"))
        return started ? LAUNCH_MPI : LAUNCH_NONE;
    *out_size = number_of("WORLD_SIZE");
    return LAUNCH_VARIABLES;
}

static uint64_t rank_of(Launch launch)
{
    static const char *const mpi[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
    if (launch == LAUNCH_VARIABLES)
        return number_of("RANK");
    return first_of(mpi, sizeof mpi / sizeof *mpi, 0);
}

bool rt_is_launched(void)
{
    uint64_t size;
    launch_of(&size);
    return size > 1;
}

static bool is_count(const char *text)
{
    size_t n = strlen(text);
    return n && n < 10 && strspn(text, "0123456789") == n;
}

/* A mistyped variable must not make another rank, or a job of one, of this process. */
static Status check_variables(Session *s, Launch launch)
{
    static const char *const names[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
    for (uint32_t i = 0; launch == LAUNCH_VARIABLES && i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        if (!text || is_count(text))
            continue;
        diag(s, no_span, ranks_variable, names[i], text);
        return STATUS_USER;
    }
    return STATUS_OK;
}

/* Every rank finds this by itself; the first one says it. */
static Status wrong_size(Session *s, Launch launch, uint64_t have, uint32_t want)
{
    if (rank_of(launch))
        return STATUS_USER;
    if (launch == LAUNCH_NONE)
        diag(s, no_span, ranks_none, want, want);
    else
        diag(s, no_span, ranks_size, (unsigned long long)have, want);
    return STATUS_USER;
}

enum { FEW_POLLS = 20, MANY_POLLS = 2000 };
enum { ALL_AXES = PLAN_AXIS_TP | PLAN_AXIS_DP | PLAN_AXIS_DPR | PLAN_AXIS_PP };

/* All ranks run the same plan, or none does. */
static Status compare(RtWorld *world, uint64_t hash)
{
    RtGroup all;
    rt_group_open_world(world, &all);
    uint64_t *hashes = ARENA_ARRAY(world->s->arena, uint64_t, world->size);
    if (!rt_all_gather(&all, hashes, &hash, sizeof hash))
        return rt_world_lost(world, "comparing the ranks' plans");
    for (uint32_t r = 1; r < world->size; r++) {
        if (hashes[r] == hashes[0])
            continue;
        if (!world->rank)
            diag(world->s, no_span, ranks_differ, r, (unsigned long long)hashes[r],
                 (unsigned long long)hashes[0]);
        return STATUS_USER;
    }
    return STATUS_OK;
}

/* A rank that shares its processor must let the one go on that it waits for. */
static Status count_neighbours(RtWorld *world)
{
    RtGroup all;
    char own[RT_MACHINE_TEXT];
    char(*of)[RT_MACHINE_TEXT] = arena_alloc(world->s->arena, world->size * sizeof *of);
    rt_machine(own);
    rt_group_open_world(world, &all);
    if (!rt_all_gather(&all, of, own, sizeof own))
        return rt_world_lost(world, "counting the ranks of a machine");
    world->local = 0;
    for (uint32_t r = 0; r < world->size; r++)
        world->local += !memcmp(of[r], own, sizeof own);
    if (world->local <= (uint64_t)sysconf(_SC_NPROCESSORS_ONLN))
        world->eager_polls = MANY_POLLS;
    return STATUS_OK;
}

/* Ranks that a launcher of MPI has started on machines without its library meet as others do, where
 * they are told where. */
static Status meet(RtWorld *world, Launch launch)
{
    bool told = getenv("MASTER_ADDR") && getenv("MASTER_PORT");
    if (launch == LAUNCH_MPI && (!told || rt_mpi_is_there()))
        return rt_mpi_open(world);
    world->rank = (uint32_t)rank_of(launch);
    return rt_tcp_open(world);
}

Status rt_world_open(Session *s, const PlanHeader *header, uint64_t hash, double timeout_s,
                     RtWorld **out_world)
{
    PlanMesh mesh = rt_mesh(header);
    uint32_t size = rt_mesh_size(&mesh);
    uint64_t have;
    Launch launch = launch_of(&have);
    *out_world = NULL;
    TRY(check_variables(s, launch));
    if (size == 1 && have <= 1)
        return STATUS_OK;
    if (have != size)
        return wrong_size(s, launch, have, size);
    RtWorld *world = ARENA_NEW(s->arena, RtWorld);
    world->s = s;
    world->mesh = mesh;
    world->size = size;
    world->timeout_s = timeout_s;
    world->local = 1;
    world->eager_polls = FEW_POLLS;
    TRY(meet(world, launch));
    *out_world = world;
    hold_back(world);
    TRY(compare(world, hash));
    return count_neighbours(world);
}

void rt_world_close(RtWorld *world, Status status, bool agreed)
{
    if (!world)
        return;
    if (!agreed)
        rt_world_say(world);
    if (world->own_out) {
        world->s->diag_out = world->first_out;
        fclose(world->own_out);
        free(world->said);
    }
    fflush(NULL);
    if (agreed)
        world->transport->close(world->link);
    else
        world->transport->abort(world->link, (int)status);
}

void rt_group_open(RtWorld *world, const PlanComm *comm, const char *name, RtGroup *out_group)
{
    Arena *arena = world->s->arena;
    const PlanMesh *mesh = &world->mesh;
    uint32_t n = rt_mesh_axes_size(mesh, comm->axes),
             place = rt_mesh_axes_place(mesh, comm->axes, world->rank);
    uint32_t others = rt_mesh_axes_place(mesh, ~comm->axes, world->rank),
             size = comm->group ? comm->group : n;
    uint32_t *ranks = ARENA_ARRAY(arena, uint32_t, n), found = 0;
    for (uint32_t r = 0; r < world->size; r++) {
        uint32_t stage = rt_mesh_at(mesh, r).pp;
        if (rt_mesh_axes_place(mesh, ~comm->axes, r) != others ||
            (comm->stages && !(stage < 64 && comm->stages >> stage & 1)))
            continue;
        if (r == world->rank && comm->stages)
            place = found;
        ranks[found++] = r;
    }
    size = comm->stages ? found : size;
    *out_group = (RtGroup){world, name, size, place % size, ranks + place / size * size,
                           ARENA_ARRAY(arena, RtTransfer, size + 1)};
}

void rt_group_open_world(RtWorld *world, RtGroup *out_group)
{
    rt_group_open(world, &(PlanComm){.axes = ALL_AXES}, "world", out_group);
}

/* -- small things -- */

static const char waiting[] = "waiting for all ranks";

void rt_world_allow(RtWorld *world, uint64_t bytes)
{
    enum { SLOW_DISK = 10 << 20 }; /* bytes per second */
    if (world)
        world->files_s = (double)bytes / SLOW_DISK;
}

Status rt_world_lost(RtWorld *world, const char *what)
{
    if (!world->told)
        diag(world->s, no_span, ranks_lost, what, world->lost, (long long)world->steps_done);
    world->told = true;
    return STATUS_ENV;
}

/* A word of each member, in `out_words`; false: world->lost says why not. */
static bool gather_words(RtWorld *world, uint32_t axes, const uint64_t *own, uint64_t **out_words,
                         uint32_t *out_n)
{
    Arena *arena = arena_new();
    RtGroup group;
    PlanComm comm = {.axes = axes};
    Session *s = world->s;
    Arena *kept = s->arena;
    s->arena = arena;
    rt_group_open(world, &comm, "world", &group);
    s->arena = kept;
    uint64_t *words = malloc(group.n * sizeof *words);
    bool done = words && rt_all_gather(&group, words, own, sizeof *own);
    *out_n = group.n;
    arena_free(arena);
    if (!done)
        free(words);
    *out_words = done ? words : NULL;
    return done;
}

bool rt_world_ask(RtWorld *world)
{
    uint64_t own = 0, *words;
    uint32_t n;
    bool answer = gather_words(world, ALL_AXES, &own, &words, &n);
    free(words);
    return answer;
}

void rt_world_end(RtWorld *world, Status status)
{
    rt_world_say(world);
    fflush(NULL);
    world->transport->abort(world->link, (int)status);
    _Exit((int)status);
}

Status rt_world_agree(RtWorld *world, Status status)
{
    uint64_t own = (uint64_t)status, *words;
    uint32_t n, first = 0;
    if (!world)
        return status;
    if (!gather_words(world, ALL_AXES, &own, &words, &n))
        return rt_world_lost(world, waiting);
    while (first < n && words[first] == STATUS_OK)
        first++;
    if (first == world->rank)
        rt_world_say(world);
    else
        drop(world);
    Status worst = first < n ? (Status)words[first] : STATUS_OK;
    free(words);
    return worst;
}

Status rt_world_same(RtWorld *world, const RtWord *words, uint32_t n)
{
    for (uint32_t i = 0; world && i < n; i++) {
        uint64_t *all;
        uint32_t size, r = 1;
        if (!gather_words(world, ALL_AXES, &words[i].value, &all, &size))
            return rt_world_lost(world, waiting);
        while (r < size && all[r] == all[0])
            r++;
        if (r < size && !world->rank)
            diag(world->s, no_span, ranks_apart, r, words[i].what, (unsigned long long)all[r],
                 (unsigned long long)all[0]);
        free(all);
        if (r < size)
            return STATUS_USER;
    }
    return STATUS_OK;
}

bool rt_world_sum(RtWorld *world, uint32_t axes, int64_t *value)
{
    uint64_t own = (uint64_t)*value, *words;
    uint32_t n;
    if (!world)
        return true;
    if (!gather_words(world, axes, &own, &words, &n))
        return false;
    *value = 0;
    for (uint32_t r = 0; r < n; r++)
        *value += (int64_t)words[r];
    free(words);
    return true;
}

Status rt_world_sum_i64(RtWorld *world, uint32_t axes, int64_t *value)
{
    return rt_world_sum(world, axes, value) ? STATUS_OK : rt_world_lost(world, waiting);
}
