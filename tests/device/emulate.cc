#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <vector>

#include "tests/device/emulate_host.h"
#include "tests/unit/emulate_switch.h"
#include "runtime/kernels/cuda/ptx.cuh"

/* The machine behind emulate.h. A fiber runs until it waits; what runs next is drawn at random,
 * sometimes one thread far ahead of the others, sometimes all in step. */

enum { STACK_BYTES = 1 << 18, MAX_THREADS = 1024, MAX_SHARED = 232448, BARRIERS = 16 };

struct Copy {
    void *to;
    const void *from; /* NULL: zeros */
    int bytes;
};

struct Fiber {
    void *sp;
    bool done;
    std::vector<std::vector<Copy>> groups; /* committed, oldest first */
    std::vector<Copy> open;
};

struct Warp {
    void *slot[EMULATED_WARP];
    EmulatedWarpFn fn;
    int n;
    std::vector<std::vector<EmulatedGroup>> groups; /* products under way, oldest first */
    std::vector<EmulatedGroup> open;
};

/* A barrier in shared memory: the copies that will arrive there, and who waits. */
struct Phase {
    void *at;
    int count, pending, parity;
    std::vector<std::vector<Copy>> landing;
    std::vector<int> waiting;
};

struct Barrier {
    int n, threads;
    std::vector<int> waiting;
};

EmulatedIndex emulated_block, emulated_grid, emulated_threads;

static Fiber fibers[MAX_THREADS];
static Warp warps[MAX_THREADS / EMULATED_WARP];
static Barrier barriers[BARRIERS];
static std::vector<Phase> phases;
static std::vector<int> runnable;
static int current;
static void *scheduler_sp;
static unsigned char *stacks, *shared_pages, *shared_base;
static size_t shared_bytes;
static const EmulatedEntry *running;
static const void *running_args;
static EmulatedEntry *entries;
static uint64_t random_state = 1;
static bool lifo, late;

static uint32_t next_random()
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}

void emulate_seed(uint64_t seed)
{
    random_state = seed * 2 + 1;
    next_random();
}

EmulatedEntry::EmulatedEntry(const char *entry_name, EmulatedKernel entry_kernel, int entry_threads,
                             int entry_bytes)
    : name(entry_name), kernel(entry_kernel), threads(entry_threads), args_bytes(entry_bytes),
      next(entries)
{
    entries = this;
}

static void fail(const char *what)
{
    fprintf(stderr, "emulator: %s in `%s`, block %u, thread %d\n", what, running->name,
            emulated_block.x, current);
    abort();
}

/* -- fibers -- */

static void wait_for_others()
{
    emulate_switch(&fibers[current].sp, scheduler_sp);
}

static void fiber_main()
{
    running->kernel(running_args);
    fibers[current].done = true;
    wait_for_others();
    abort();
}

static void fiber_start(int i)
{
    Fiber *f = &fibers[i];
    f->done = false;
    f->groups.clear();
    f->open.clear();
    f->sp = emulate_begin(stacks + (size_t)(i + 1) * STACK_BYTES, fiber_main);
}

static void shuffle(std::vector<int> *v)
{
    for (size_t i = v->size(); i > 1; i--)
        std::swap((*v)[i - 1], (*v)[next_random() % i]);
}

unsigned emulated_thread()
{
    return (unsigned)current;
}

unsigned char *emulated_shared()
{
    return shared_base;
}

void emulated_shared_check(const void *at, size_t bytes, size_t align)
{
    uintptr_t a = (uintptr_t)at, base = (uintptr_t)shared_base;
    if (a < base || a + bytes > base + shared_bytes)
        fail("an access outside shared memory");
    if ((a - base) % align)
        fail("a misaligned access to shared memory");
}

void emulated_warp(EmulatedWarpFn all, void *argument)
{
    int warp_index = current / EMULATED_WARP, lane = current % EMULATED_WARP;
    Warp *w = &warps[warp_index];
    if (w->n && w->fn != all)
        fail("lanes of a warp at different instructions");
    w->fn = all;
    w->slot[lane] = argument;
    if (++w->n < EMULATED_WARP) {
        wait_for_others();
        return;
    }
    w->n = 0;
    all(w->slot);
    int me = current;
    for (int i = 0; i < EMULATED_WARP; i++)
        if (warp_index * EMULATED_WARP + i != me)
            runnable.push_back(warp_index * EMULATED_WARP + i);
}

void emulated_barrier(int index, int threads)
{
    Barrier *b = &barriers[index];
    if (index < 0 || index >= BARRIERS || threads % EMULATED_WARP)
        fail("an impossible barrier");
    if (b->n && b->threads != threads)
        fail("a barrier with two counts");
    b->threads = threads;
    if (++b->n < threads) {
        b->waiting.push_back(current);
        wait_for_others();
        return;
    }
    b->n = 0;
    std::vector<int> woken;
    woken.swap(b->waiting);
    woken.push_back(current);
    shuffle(&woken);
    runnable.insert(runnable.end(), woken.begin(), woken.end());
    lifo = next_random() % 2;
    late = next_random() % 2;
    wait_for_others();
}

/* -- copies -- */

static void land(const Copy &copy)
{
    if (copy.from)
        memcpy(copy.to, copy.from, (size_t)copy.bytes);
    else
        memset(copy.to, 0, (size_t)copy.bytes);
}

void emulated_copy(void *to, const void *from, int bytes)
{
    Copy copy = {to, from, bytes};
    if (from && (uintptr_t)from % (size_t)bytes)
        fail("a misaligned asynchronous copy");
    if (late)
        fibers[current].open.push_back(copy);
    else
        land(copy);
}

void emulated_copy_commit()
{
    fibers[current].groups.push_back({});
    fibers[current].groups.back().swap(fibers[current].open);
}

void emulated_copy_wait(int pending)
{
    auto &groups = fibers[current].groups;
    while ((int)groups.size() > pending) {
        for (const Copy &copy : groups.front())
            land(copy);
        groups.erase(groups.begin());
    }
}

/* -- phases -- */

static Phase *phase_at(void *at)
{
    for (Phase &p : phases)
        if (p.at == at)
            return &p;
    fail("a barrier that nobody has set up");
    return nullptr;
}

void emulated_phase_init(void *barrier, int count)
{
    phases.push_back({barrier, count, count, 0, {}, {}});
}

static void phase_count(Phase *p)
{
    if (--p->pending)
        return;
    p->pending = p->count;
    p->parity ^= 1;
    runnable.insert(runnable.end(), p->waiting.begin(), p->waiting.end());
    p->waiting.clear();
    lifo = next_random() % 2;
    late = next_random() % 2;
}

void emulated_phase_arrive(void *barrier)
{
    phase_count(phase_at(barrier));
}

static void land_all(Phase *p)
{
    std::vector<std::vector<Copy>> landing;
    landing.swap(p->landing);
    for (const auto &copies : landing) {
        for (const Copy &copy : copies)
            land(copy);
        phase_count(p);
    }
}

/* Copies that are late land once somebody waits for them. */
void emulated_phase_arrive_after_copies(void *barrier)
{
    Phase *p = phase_at(barrier);
    p->landing.push_back({});
    p->landing.back().swap(fibers[current].open);
    if (!p->waiting.empty() || !late)
        land_all(p);
}

void emulated_phase_wait(void *barrier, int parity)
{
    Phase *p = phase_at(barrier);
    while (p->parity == parity) {
        land_all(p);
        if (p->parity != parity)
            break;
        p->waiting.push_back(current);
        wait_for_others();
    }
}

/* -- products by groups of warps -- */

/* Element (row, column) of a tile of bf16 in the 128-byte swizzle, at 16 `b`. Rows are 128 bytes,
 * eight of them 1024 from the next eight; it begins at a row, or inside one. */
static float group_element(uint32_t b, int row, int column)
{
    uint32_t begin = (b & 0x3fff) * 16;
    uint32_t at = begin + (uint32_t)row * 128 + (uint32_t)column * 2;
    if ((begin % 128 + (uint32_t)column * 2) >= 128)
        fail("a product's operand is wider than its rows");
    at ^= at >> 3 & 0x70;
    uint16_t bits;
    emulated_shared_check(shared_base + at, 2, 2);
    memcpy(&bits, shared_base + at, 2);
    return emulated_half(bits, 0);
}

static void multiply_group(const EmulatedGroup &g)
{
    float a[16][16];
    for (int i = 0; i < EMULATED_WARP && g.a[0]; i++)
        for (int r = 0; r < 4; r++)
            for (int high = 0; high < 2; high++)
                a[i / 4 + r % 2 * 8][i % 4 * 2 + high + r / 2 * 8] = emulated_half(g.a[i][r], high);
    for (int i = 0; i < 16 * 16 && !g.a[0]; i++)
        a[i / 16][i % 16] =
            group_element(g.a_place, current / EMULATED_WARP % 4 * 16 + i / 16, i % 16);
    for (int n = 0; n < g.columns; n++) {
        float b[16];
        for (int k = 0; k < 16; k++)
            b[k] = g.trans ? group_element((g.b & 0x3fff) + n / 64 * (g.b >> 16), k, n % 64)
                           : group_element(g.b, n, k);
        for (int row = 0; row < 16; row++) {
            float sum = 0, *d = &g.d[row % 8 * 4 + n % 8 / 2][n / 8 * 4 + row / 8 * 2 + n % 2];
            for (int k = 0; k < 16; k++)
                sum += a[row][k] * b[k];
            *d = g.add ? *d + sum : sum;
        }
    }
}

/* At once, or as late as the program allows. */
void emulated_group(const EmulatedGroup &product)
{
    Warp *w = &warps[current / EMULATED_WARP];
    if (late || !w->open.empty() || !w->groups.empty())
        w->open.push_back(product);
    else
        multiply_group(product);
}

void emulated_group_commit()
{
    emulated_warp(
        [](void *const *) {
            Warp *w = &warps[current / EMULATED_WARP];
            w->groups.push_back({});
            w->groups.back().swap(w->open);
        },
        nullptr);
}

static void group_land(int pending)
{
    Warp *w = &warps[current / EMULATED_WARP];
    while ((int)w->groups.size() > pending) {
        for (const EmulatedGroup &product : w->groups.front())
            multiply_group(product);
        w->groups.erase(w->groups.begin());
    }
}

void emulated_group_wait(int pending)
{
    switch (pending) {
    case 0:
        emulated_warp([](void *const *) { group_land(0); }, nullptr);
        break;
    case 1:
        emulated_warp([](void *const *) { group_land(1); }, nullptr);
        break;
    case 2:
        emulated_warp([](void *const *) { group_land(2); }, nullptr);
        break;
    default:
        fail("a wait for more than two groups");
    }
}

/* -- launches -- */

static void run_block(int threads)
{
    memset(shared_base, 0xff, shared_bytes);
    for (Warp &w : warps) {
        w.n = 0;
        w.groups.clear();
        w.open.clear();
    }
    phases.clear();
    for (Barrier &b : barriers) {
        b.n = 0;
        b.waiting.clear();
    }
    runnable.clear();
    for (int i = 0; i < threads; i++) {
        fiber_start(i);
        runnable.push_back(i);
    }
    shuffle(&runnable);
    size_t head = 0;
    while (head < runnable.size()) {
        if (lifo) {
            current = runnable.back();
            runnable.pop_back();
        } else {
            current = runnable[head++];
        }
        if (head > 4096) {
            runnable.erase(runnable.begin(), runnable.begin() + (long)head);
            head = 0;
        }
        emulate_switch(&scheduler_sp, fibers[current].sp);
    }
    for (current = 0; current < threads; current++) {
        if (!fibers[current].done)
            fail("a thread waits for ever");
        for (auto &group : fibers[current].groups)
            if (!group.empty())
                fail("a copy that nobody waits for");
    }
}

static void open_machine()
{
    stacks =
        (unsigned char *)mmap(nullptr, (size_t)MAX_THREADS * STACK_BYTES, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    shared_pages = (unsigned char *)mmap(nullptr, MAX_SHARED + 8192, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stacks == MAP_FAILED || shared_pages == MAP_FAILED)
        abort();
}

int emulate_args_bytes(const char *name)
{
    const EmulatedEntry *entry = entries;
    while (entry && strcmp(entry->name, name))
        entry = entry->next;
    return entry ? entry->args_bytes : 0;
}

int emulate_launch(const char *name, const uint32_t grid[3], uint32_t threads,
                   uint32_t dynamic_bytes, const void *args)
{
    const EmulatedEntry *entry = entries;
    while (entry && strcmp(entry->name, name))
        entry = entry->next;
    if (!entry || (int)threads != entry->threads || threads % EMULATED_WARP ||
        dynamic_bytes > MAX_SHARED)
        return 0;
    if (!stacks)
        open_machine();
    running = entry;
    running_args = args;
    shared_bytes = dynamic_bytes;
    shared_base = shared_pages;
    emulated_threads = {threads, 1, 1};
    emulated_grid = {grid[0], grid[1], grid[2]};
    std::vector<int> blocks;
    for (uint32_t i = 0; i < grid[0] * grid[1] * grid[2]; i++)
        blocks.push_back((int)i);
    shuffle(&blocks);
    for (int i : blocks) {
        uint32_t block = (uint32_t)i;
        emulated_block = {block % grid[0], block / grid[0] % grid[1], block / grid[0] / grid[1]};
        run_block((int)threads);
    }
    return 1;
}
