/* Collectives against sums done by hand, bit for bit, on every communicator of a mesh and over
 * whatever transport the ranks were started with: comm_check TP DP DPR [fault]. */
#include <stdlib.h>
#include <unistd.h>

#include "base/dtype.h"
#include "runtime/abi/workspace.h"
#include "runtime/comm.h"

enum { MOST = 700001, RANKS = 16 };

static const int64_t sizes[] = {1, 3, 4096, 4097, 100003, MOST};

static uint64_t bits_of(uint32_t rank, int64_t i)
{
    uint64_t z = ((uint64_t)rank << 40) + (uint64_t)i * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static double value_of(uint32_t rank, int64_t i)
{
    return (double)(int64_t)bits_of(rank, i) * 0x1p-63;
}

static void put(void *to, uint32_t dtype, int64_t i, uint32_t rank, int64_t from)
{
    if (dtype == DTYPE_F64)
        ((double *)to)[i] = value_of(rank, from);
    else if (dtype == DTYPE_F32)
        ((float *)to)[i] = (float)value_of(rank, from);
    else if (dtype == DTYPE_BF16)
        ((uint16_t *)to)[i] = f32_to_bf16((float)value_of(rank, from));
    else
        ((int64_t *)to)[i] = (int64_t)(bits_of(rank, from) >> 20);
}

static double get(const void *from, uint32_t dtype, int64_t i)
{
    return dtype == DTYPE_F64    ? ((const double *)from)[i]
           : dtype == DTYPE_F32  ? (double)((const float *)from)[i]
           : dtype == DTYPE_BF16 ? (double)bf16_to_f32(((const uint16_t *)from)[i])
                                 : (double)((const int64_t *)from)[i];
}

/* The sum or maximum of element i over the members, as the type has it. */
static double expected(const RtGroup *g, uint32_t dtype, PlanReduce op, int64_t i)
{
    char one[8];
    double sum = 0;
    for (uint32_t r = 0; r < g->n; r++) {
        put(one, dtype, 0, g->ranks[r], i);
        double x = get(one, dtype, 0);
        if (!r)
            sum = x;
        else if (op == PLAN_MAX)
            sum = x > sum ? x : sum;
        else
            sum = dtype == DTYPE_F64 || dtype == DTYPE_I64 ? sum + x
                                                           : (double)((float)sum + (float)x);
    }
    return dtype == DTYPE_BF16 ? (double)bf16_to_f32(f32_to_bf16((float)sum)) : sum;
}

static void demand(const RtGroup *g, bool holds, const char *what, int64_t n)
{
    if (holds)
        return;
    fprintf(stderr, "rank %u of %u in `%s`: %s of %lld is wrong: %s\n", g->self, g->n, g->name,
            what, (long long)n, g->world->lost);
    g->world->transport->abort(g->world->link, 1);
    exit(1);
}

static void check_reduce(RtGroup *g, uint32_t dtype, PlanReduce op, int64_t n, char *x, char *y,
                         void *work, bool in_place)
{
    for (int64_t i = 0; i < n; i++)
        put(x, dtype, i, g->ranks[g->self], i);
    RtReduction sum = {dtype, dtype, op, in_place ? x : y, x, n, work};
    demand(g, rt_all_reduce(g, &sum), "all_reduce", n);
    for (int64_t i = 0; i < n; i++)
        demand(g, get(sum.to, dtype, i) == expected(g, dtype, op, i), "all_reduce", n);
}

static void check_scatter(RtGroup *g, uint32_t dtype, int64_t n, char *x, char *y, void *work)
{
    for (int64_t i = 0; i < n * g->n; i++)
        put(x, dtype, i, g->ranks[g->self], i);
    RtReduction sum = {dtype, dtype, PLAN_SUM, y, x, n, work};
    demand(g, rt_reduce_scatter(g, &sum), "reduce_scatter", n);
    for (int64_t i = 0; i < n; i++)
        demand(g, get(y, dtype, i) == expected(g, dtype, PLAN_SUM, g->self * n + i),
               "reduce_scatter", n);
}

static void check_gather(RtGroup *g, int64_t n, char *x, char *y)
{
    for (int64_t i = 0; i < n; i++)
        put(x, DTYPE_F32, i, g->ranks[g->self], i);
    demand(g, rt_all_gather(g, y, x, (uint64_t)n * 4), "all_gather", n);
    for (uint32_t r = 0; r < g->n; r++)
        for (int64_t i = 0; i < n; i++)
            demand(g, get(y, DTYPE_F32, r * n + i) == (double)(float)value_of(g->ranks[r], i),
                   "all_gather", n);
}

static void check_group(RtWorld *world, const PlanComm *comm, const char *name, char *x, char *y,
                        void *work)
{
    static const uint32_t dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F64, DTYPE_I64};
    RtGroup g;
    rt_group_open(world, comm, name, &g);
    for (uint32_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (uint32_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            bool sums = dtypes[d] != DTYPE_I64;
            check_reduce(&g, dtypes[d], PLAN_SUM, sizes[s], x, y, work, d % 2 == 0);
            check_reduce(&g, dtypes[d], PLAN_MAX, sizes[s], x, y, work, d % 2 == 1);
            if (sums)
                check_scatter(&g, dtypes[d], sizes[s] / g.n + 1, x, y, work);
        }
        check_gather(&g, sizes[s] / g.n + 1, x, y);
    }
}

int main(int argc, char **argv)
{
    static const PlanComm comms[] = {
        {.axes = PLAN_AXIS_TP},
        {.axes = PLAN_AXIS_DP},
        {.axes = PLAN_AXIS_DPR},
        {.axes = PLAN_AXIS_DP | PLAN_AXIS_DPR},
        {.axes = PLAN_AXIS_TP | PLAN_AXIS_DP | PLAN_AXIS_DPR},
    };
    static const char *const names[] = {"tp", "dp", "dpr", "data", "world"};
    if (argc < 4)
        return 2;
    Session *s = session_new(stderr);
    PlanHeader header = {
        .mesh = {(uint32_t)atoi(argv[1]), (uint32_t)atoi(argv[2]), (uint32_t)atoi(argv[3]), 1}};
    RtWorld *world;
    const char *odd = getenv("ODD_RANK"), *rank = getenv("RANK");
    header.hash = odd && rank && !strcmp(odd, rank) ? 2 : 1;
    Status status = rt_world_open(s, &header, header.hash, argc > 4 ? 3 : 60, &world);
    if (status == STATUS_OK && argc > 4 && world->rank == 1) {
        if (!strcmp(argv[4], "dies"))
            _exit(9);
        if (!strcmp(argv[4], "hangs"))
            sleep(60);
    }
    if (status == STATUS_OK && argc <= 4) {
        char *x = malloc((MOST + RANKS) * 8), *y = malloc((MOST + RANKS) * 8);
        void *work = malloc(RANKS * COMM_CHUNK * 8);
        for (uint32_t i = 0; i < sizeof comms / sizeof *comms; i++)
            check_group(world, &comms[i], names[i], x, y, work);
        free(x);
        free(y);
        free(work);
    }
    bool agreed = true;
    if (status == STATUS_OK) {
        status = rt_world_agree(world, STATUS_OK);
        agreed = status == STATUS_OK;
        if (agreed && !world->rank)
            printf("%u ranks over %s: all right\n", world->size, world->transport->name);
        if (!agreed)
            fprintf(world->first_out, "rank %u, exit %d\n", world->rank, (int)status);
    }
    rt_world_close(world, status, agreed);
    session_free(s);
    return (int)status;
}
