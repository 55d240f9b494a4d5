/* attention_group_backward: gradients on wgmma. An item's results, of 128 keys or of 128 queries,
 * are sums over tiles of the other side in one order, so they are the same in every run, whichever
 * block takes the item. While the arithmetic of a tile's scores runs, the tensor cores have the
 * products of the tile before. */
#ifndef RUNTIME_KERNELS_CUDA_ATTENTION_GROUP_BACKWARD_CUH
#define RUNTIME_KERNELS_CUDA_ATTENTION_GROUP_BACKWARD_CUH

#include "runtime/kernels/cuda/attention_group.cuh"

constexpr int GROUP_GRAD_ITEMS = 256; /* of heads at once */

/* Own rows: k and v, or q and grad; tiles: q and grad, or k and v. Each warp has the statistics of
 * the queries for itself: of its own rows, or of two tiles in turn. */
struct GroupGradShape {
    static constexpr int N = 64, STAGES = 4, TILE_BYTES = N * 128;
    static constexpr int RING = 0, OWN = RING + STAGES * 2 * TILE_BYTES,
                         STATISTICS = OWN + GROUP_COMPUTING * 2 * GROUP_OWN_BYTES,
                         STATISTICS_BYTES = N * 8,
                         OUT = STATISTICS + GROUP_COMPUTING * 2 * STATISTICS_BYTES,
                         BARRIERS = OUT + GROUP_OWN * GROUP_LD * 2,
                         BYTES = BARRIERS + (2 + 2 * STAGES) * 8 + 8;
};

struct GradPlace { /* of an item */
    int first, b, head;
};

template <bool QUERIES> struct GroupGrad {
    using S = GroupGradShape;
    const CudaAttention &x;
    unsigned char *shared;
    GroupRing ring;
    int item_parity; /* of the next item's phase */
    GradPlace item;
    int head_first, heads, begin, end; /* tiles: of `heads` heads one after the other */

    __device__ inline GroupGrad(const CudaAttention &args, unsigned char *memory)
        : x(args), shared(memory), ring({0, 0}), item_parity(0)
    {
    }

    __device__ inline uint64_t *full(int stage) const
    {
        return (uint64_t *)(shared + S::BARRIERS) + stage;
    }

    __device__ inline uint64_t *empty(int stage) const
    {
        return full(S::STAGES + stage);
    }

    __device__ inline uint64_t *item_full() const
    {
        return full(2 * S::STAGES);
    }

    __device__ inline uint64_t *item_empty() const
    {
        return item_full() + 1;
    }

    __device__ inline int *item_at() const
    {
        return (int *)(item_full() + 2);
    }

    __device__ inline void open(const GradPlace &place)
    {
        item = place;
        head_first = QUERIES ? item.head / x.group : item.head * x.group;
        heads = QUERIES ? 1 : x.group;
        begin = (QUERIES ? keys_begin(x, item.first) : queries_begin(x, item.first)) / S::N * S::N;
        end = QUERIES ? keys_end(x, item.first + GROUP_OWN)
                      : queries_end(x, min(item.first + GROUP_OWN, x.seq));
    }

    /* One thread of the block takes the next item from the queue, and does not wait for it yet: an
     * addition the compiler would make one of the warp's, and share out what that gives. */
    __device__ inline int draw()
    {
        return (int)atomicInc((unsigned *)x.next + QUERIES, 0x7fffffff);
    }

    /* It hands the item to the warps, before its own takes it. */
    __device__ inline void put(int index)
    {
        phase_wait(item_empty(), item_parity ^ 1);
        atomicExch(item_at(), index);
        phase_arrive(item_full());
    }

    /* Each warp of the block takes the next item; false: no more. */
    __device__ inline bool take(GradPlace &place)
    {
        phase_wait(item_full(), item_parity);
        item_parity ^= 1;
        bool first_lane = thread_again() % WARP == 0;
        int index = uniform(first_lane ? atomicAdd(item_at(), 0) : 0);
        if (first_lane) /* all lanes have waited */
            phase_arrive(item_empty());
        if (index >= x.items)
            return false;
        int tiles = (x.seq + GROUP_OWN - 1) / GROUP_OWN;
        group_place<QUERIES>(x, index, max(1, GROUP_GRAD_ITEMS / tiles), place.first, place.b,
                             place.head);
        return true;
    }

    __device__ inline unsigned char *tile(int stage, int which) const
    {
        return shared + S::RING + (stage * 2 + which) * S::TILE_BYTES;
    }

    __device__ inline unsigned char *own(int which) const
    {
        return shared + S::OWN + ((int)threadIdx.x / WARP * 2 + which) * GROUP_OWN_BYTES;
    }

    __device__ inline float *statistics(int turn) const
    {
        int place = (int)threadIdx.x / WARP * 2 + turn;
        return (float *)(shared + S::STATISTICS + place * S::STATISTICS_BYTES);
    }
};

/* -- the group that copies -- */

template <bool QUERIES> __device__ inline void grad_copy_tile(GroupGrad<QUERIES> &g, int head,
                                                              int at)
{
    const CudaAttention &x = g.x;
    const CudaHeads &left = QUERIES ? x.k : x.q, &right = QUERIES ? x.v : x.grad;
    int stage = g.ring.stage;
    phase_wait(g.empty(stage), g.ring.parity ^ 1);
    int b = g.item.b;
    copy_tile<64>(g.tile(stage, 0), head_at<bf16>(left, b, head), left.row, at, x.seq, x.dim);
    copy_tile<64>(g.tile(stage, 1), head_at<bf16>(right, b, head), right.row, at, x.seq, x.dim);
    phase_arrive_after_copies(g.full(stage));
    g.ring.step(GroupGradShape::STAGES);
}

template <bool QUERIES> __device__ inline void grad_copy(GroupGrad<QUERIES> &g)
{
    using S = GroupGradShape;
    int drawn = 0;
    if (thread_again() % 128 == 0)
        drawn = g.draw();
    for (;;) {
        if (thread_again() % 128 == 0)
            g.put(drawn);
        if (!g.take(g.item))
            break;
        g.open(g.item);
        for (int h = 0; h < g.heads; h++)
            for (int at = g.begin; at < g.end; at += S::N) {
                bool last = h + 1 == g.heads && at + S::N >= g.end;
                if (last && thread_again() % 128 == 0)
                    drawn = g.draw();
                grad_copy_tile(g, g.head_first + h, at);
            }
    }
}

/* -- the groups that compute -- */

/* Where a group is: heads counted from the item's first, the tile's first row. */
struct GradTile {
    int head, at;
};

/* Tiles from `from` on and before `to` are seen by some of the group's own rows, from `all_from` on
 * and before `all_to` by all, and wholly. */
struct GradReach {
    int from, to, all_from, all_to;
};

template <bool QUERIES>
__device__ inline GradReach grad_reach(const CudaAttention &x, int own_first)
{
    constexpr int LAST = GROUP_ROWS - 1, N = GroupGradShape::N, ALWAYS = 0x7fffffff;
    GradReach r = {-ALWAYS, ALWAYS, -ALWAYS, ALWAYS};
    if (QUERIES) {
        r.all_to = own_first + LAST < x.seq ? x.seq - N + 1 : -ALWAYS;
        if (x.causal) {
            r.to = own_first + LAST + 1;
            r.all_to = min(r.all_to, own_first - N + 2);
        }
        if (x.window) {
            r.from = own_first - x.window - N + 2;
            r.all_from = own_first + LAST - x.window + 1;
        }
    } else { /* queries behind seq have no probabilities, keys there are not stored */
        if (x.causal) {
            r.from = own_first - N + 1;
            r.all_from = own_first + LAST;
        }
        if (x.window) {
            r.to = own_first + LAST + x.window;
            r.all_to = own_first - N + 1 + x.window;
        }
    }
    if (own_first >= x.seq)
        r.to = -ALWAYS;
    return r;
}

/* Of a head: the first tile that the group sees, if it sees any. */
__device__ inline int grad_first(const GradReach &reach)
{
    constexpr int N = GroupGradShape::N;
    return (max(reach.from, 0) + N - 1) / N * N;
}

/* The next tile that the group sees; head == heads: none. */
template <bool QUERIES>
__device__ inline GradTile grad_behind(const GroupGrad<QUERIES> &g, const GradReach &reach,
                                       const GradTile &t)
{
    int at = t.at + GroupGradShape::N;
    if (at < min(g.end, reach.to))
        return {t.head, at};
    return {t.head + 1, grad_first(reach)};
}

template <bool QUERIES> __device__ inline void grad_release(GroupGrad<QUERIES> &g, int stage)
{
    __syncwarp();
    if (threadIdx.x % WARP == 0)
        phase_arrive(g.empty(stage));
}

/* Waits for the next tile that the group sees, at or behind t; hands back those that it does
 * not. */
template <bool QUERIES>
__device__ inline bool grad_seek(GroupGrad<QUERIES> &g, GradTile &t, const GradReach &reach)
{
    for (;; t.at += GroupGradShape::N) {
        if (t.at >= g.end)
            t = {t.head + 1, g.begin};
        if (t.head >= g.heads || g.begin >= g.end)
            return false;
        phase_wait(g.full(g.ring.stage), g.ring.parity);
        if (t.at >= reach.from && t.at < reach.to)
            break;
        grad_release(g, g.ring.stage);
        g.ring.step(GroupGradShape::STAGES);
    }
    fence_async();
    return true;
}

/* Statistics of a thread's two queries, or of a tile's in shared memory: {lse, lse, delta, delta}
 * of two queries beside each other. */
struct GradStatistics {
    float lse[2], delta[2];
    const float *at;
};

/* Zeros where the query does not see the key. own: the thread's first row. */
template <bool QUERIES>
__device__ inline void grad_mask(const CudaAttention &x, float (&s)[8][4], int own, int at)
{
    int pair = (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int mine = own + i / 2 * 8, other = at + n * 8 + pair + i % 2;
            int q = QUERIES ? mine : other, k = QUERIES ? other : mine;
            s[n][i] = k > row_low(x, q) && k <= row_high(x, q) ? s[n][i] : 0.0f;
        }
}

/* Scores to probabilities. */
template <bool QUERIES>
__device__ inline void grad_probabilities(const float2 (&of)[8], float (&s)[8][4], float unit)
{
#pragma unroll
    for (int n = 0; n < 8; n++) {
        const float lse[2] = {of[n].x, of[n].y};
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[n][i] = exp2_fast(s[n][i] * unit - lse[QUERIES ? i / 2 : i % 2]);
    }
}

/* Gradients of the scores, but for their scale. */
template <bool QUERIES>
__device__ inline void grad_scores(const GradStatistics &of, const float (&p)[8][4],
                                   float (&dp)[8][4])
{
    int pair = (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < 8; n++) {
        float delta[2] = {of.delta[0], of.delta[1]};
        if (!QUERIES) {
            float2 both = *(const float2 *)(of.at + (n * 8 + pair) * 2 + 2);
            delta[0] = both.x, delta[1] = both.y;
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            dp[n][i] = p[n][i] * (dp[n][i] - delta[QUERIES ? i / 2 : i % 2]);
    }
}

/* What a group keeps of an item from tile to tile. */
template <bool QUERIES> struct GradState {
    float ds_sum[1][8][4], p_sum[1][8][4]; /* the results; p_sum: of keys */
    uint32_t left[4][4], right[4][4];      /* the own rows */
    uint32_t ds_left[4][4], p_left[4][4];  /* of the tile before, whose products are to come */
    GradStatistics of;
    GradReach reach;
    int own, before; /* before: that tile's place in the ring */
    int turn;        /* of the next tile's statistics */
    bool more;       /* there is a next item */
    GradPlace next;
};

/* Begins to copy statistics of a head's queries from `first` on, two by each lane; zeros behind the
 * padding. */
__device__ inline void copy_statistics(const CudaAttention &x, float *to, int b, int head,
                                       int first, int queries)
{
    int padded = (x.seq + 63) / 64 * 64, lane = thread_again() % WARP;
    const float *from = x.delta + 2 * (((int64_t)b * x.heads + head) * padded + first) + lane * 4;
    bool inside = first < padded;
    if (lane * 2 < queries)
        cp_async16(to + lane * 4, inside ? from : x.delta, inside);
}

/* Takes the next item and begins to copy its own rows, and statistics of them or of its first tile.
 * The item before may have products under way. */
template <bool QUERIES>
__device__ inline void grad_ahead(GroupGrad<QUERIES> &g, GradState<QUERIES> &r)
{
    const CudaAttention &x = g.x;
    const CudaHeads &left = QUERIES ? x.q : x.k, &right = QUERIES ? x.grad : x.v;
    r.more = g.take(r.next);
    if (!r.more)
        return;
    int warp = uniform((int)threadIdx.x / WARP), rows = r.next.first + warp * 16, b = r.next.b,
        head = r.next.head;
    __syncwarp(); /* all lanes have read those before */
    copy_own(g.own(0), head_at<bf16>(left, b, head), left.row, rows, x.seq, x.dim);
    copy_own(g.own(1), head_at<bf16>(right, b, head), right.row, rows, x.seq, x.dim);
    if constexpr (QUERIES) {
        copy_statistics(x, g.statistics(0), b, head, rows, 16);
    } else {
        int first = r.next.first + warp / 4 * GROUP_ROWS;
        copy_statistics(x, g.statistics(r.turn), b, head * x.group,
                        grad_first(grad_reach<QUERIES>(x, first)), GroupGradShape::N);
    }
    cp_async_commit();
}

template <bool QUERIES>
__device__ inline void grad_products(GroupGrad<QUERIES> &g, GradState<QUERIES> &r)
{
    if constexpr (!QUERIES)
        group_product(r.p_sum[0], r.p_left, tile_place(g.tile(r.before, 1)));
    group_product(r.ds_sum[0], r.ds_left, tile_place(g.tile(r.before, 0)));
    group_commit();
}

template <bool QUERIES>
__device__ inline void grad_products_end(GroupGrad<QUERIES> &g, GradState<QUERIES> &r)
{
    group_wait<0>();
    group_pin(r.ds_sum[0]);
    if constexpr (!QUERIES)
        group_pin(r.p_sum[0]);
    grad_release(g, r.before);
}

/* The tile at t, and the products of the one before. */
template <bool QUERIES, bool FIRST>
__device__ inline void grad_step(GroupGrad<QUERIES> &g, GradState<QUERIES> &r, GradTile &t)
{
    float s[8][4], dp[8][4];
    int stage = g.ring.stage;
    bool all_seen = t.at >= r.reach.all_from && t.at < r.reach.all_to;
    if constexpr (!QUERIES) {
        if constexpr (!FIRST)
            copies_end();
        r.of.at = g.statistics(r.turn);
        r.turn ^= 1; /* what is there has been read before this tile's sync */
    }
    float2 lse[8]; /* before the products, whose issue hides the loads */
#pragma unroll
    for (int n = 0; n < 8; n++)
        lse[n] = QUERIES ? float2{r.of.lse[0], r.of.lse[1]}
                         : *(const float2 *)(r.of.at + (n * 8 + (int)threadIdx.x % 4 * 2) * 2);
    group_fence();
    group_scores(s, r.left, tile_place(g.tile(stage, 0)));
    group_commit();
    group_scores(dp, r.right, tile_place(g.tile(stage, 1)));
    group_commit();
    if constexpr (!FIRST)
        grad_products(g, r);
    GradTile next = grad_behind(g, r.reach, t);
    if (next.head >= g.heads) {
        grad_ahead(g, r);
    } else if constexpr (!QUERIES) {
        copy_statistics(g.x, g.statistics(r.turn), g.item.b, g.head_first + next.head, next.at,
                        GroupGradShape::N);
        cp_async_commit();
    }
    /* The branches keep the waits behind the arithmetic: the assembler would move them up. */
    group_wait<FIRST ? 1 : 2>();
    group_pin(s);
    grad_probabilities<QUERIES>(lse, s, score_unit<false>(g.x));
    if (!all_seen)
        grad_mask<QUERIES>(g.x, s, r.own, t.at);
    group_pin(s);
    group_wait<FIRST ? 0 : 1>();
    group_pin(dp);
    grad_scores<QUERIES>(r.of, s, dp);
    if (!all_seen)
        grad_mask<QUERIES>(g.x, dp, r.own, t.at);
    group_pin(dp);
    if constexpr (!FIRST)
        grad_products_end(g, r);
    if constexpr (!QUERIES)
        pack_left(r.p_left, s);
    pack_left(r.ds_left, dp);
    r.before = stage;
    g.ring.step(GroupGradShape::STAGES);
    t.at += GroupGradShape::N;
}

/* The next item, whose own rows and statistics are on their way. */
template <bool QUERIES>
__device__ inline void grad_open(GroupGrad<QUERIES> &g, GradState<QUERIES> &r)
{
    int warp = uniform((int)threadIdx.x / WARP), lane = (int)threadIdx.x % WARP;
    g.open(r.next);
    r.own = g.item.first + warp * 16 + lane / 4;
    r.reach = grad_reach<QUERIES>(g.x, g.item.first + warp / 4 * GROUP_ROWS);
    copies_end();
    load_own(r.left, g.own(0));
    load_own(r.right, g.own(1));
    if constexpr (QUERIES) {
        const float *of = g.statistics(0) + lane / 8 * 4 + lane / 4 % 2;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            r.of.lse[half] = of[half * 16];
            r.of.delta[half] = of[half * 16 + 2];
        }
    }
}

/* An item, which is open. */
template <bool QUERIES>
__device__ inline void grad_item(GroupGrad<QUERIES> &g, GradState<QUERIES> &r)
{
    clear(r.ds_sum);
    clear(r.p_sum);
    GradTile t = {0, g.begin};
    if (!grad_seek(g, t, r.reach)) {
        grad_ahead(g, r);
        return;
    }
    grad_step<QUERIES, true>(g, r, t);
    while (grad_seek(g, t, r.reach))
        grad_step<QUERIES, false>(g, r, t);
    group_fence();
    grad_products(g, r);
    grad_products_end(g, r);
}

template <bool QUERIES> __device__ inline void grad_compute(GroupGrad<QUERIES> &g)
{
    const CudaAttention &x = g.x;
    int warp = uniform((int)threadIdx.x / WARP);
    GradState<QUERIES> r;
    r.turn = 0;
    for (grad_ahead(g, r); r.more;) {
        grad_open(g, r);
        grad_item(g, r);
        int rows = g.item.first + warp * 16, b = g.item.b, head = g.item.head;
        const float scale[2] = {x.scale, x.scale}, one[2] = {1, 1};
        const CudaHeads &to = QUERIES ? x.dq : x.dk;
        unsigned char *out = g.shared + GroupGradShape::OUT;
        if (to.at)
            store_own(out, r.ds_sum[0], scale, head_at<bf16>(to, b, head), to.row, rows, x.seq,
                      x.dim);
        if (!QUERIES && x.dv.at)
            store_own(out, r.p_sum[0], one, head_at<bf16>(x.dv, b, head), x.dv.row, rows, x.seq,
                      x.dim);
    }
}

template <bool QUERIES> __device__ inline void attention_group_grad(const CudaAttention &x)
{
    using S = GroupGradShape;
    DYNAMIC_SHARED(shared);
    GroupGrad<QUERIES> g(x, shared);
    int warp = (int)threadIdx.x / WARP;
    if (threadIdx.x == 0) {
        phase_init(g.item_full(), 1);
        phase_init(g.item_empty(), GROUP_THREADS / WARP);
        for (int i = 0; i < S::STAGES; i++) {
            phase_init(g.full(i), 128);
            phase_init(g.empty(i), GROUP_COMPUTING);
        }
    }
    __syncthreads();
    if (warp < GROUP_COMPUTING) {
        group_takes_registers<GROUP_REGISTERS>();
        grad_compute(g);
    } else {
        group_gives_registers<GROUP_COPYING_REGISTERS>();
        grad_copy(g);
    }
}

/* -- statistics: of each query {lse in units of log 2, rowsum(grad * o)}, two queries' {lse, lse,
 * delta, delta} beside each other, seq rounded up to 64; eight lanes per row -- */

__device__ inline void group_statistics(const CudaAttention &x)
{
    int padded = (x.seq + 63) / 64 * 64, lane = (int)threadIdx.x % 8;
    int64_t index = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 8; /* [batch, seq, heads] */
    if (blockIdx.x == 0 && threadIdx.x < 2)
        x.next[threadIdx.x] = 0;
    if (index >= (int64_t)x.batch * padded * x.heads)
        index = (int64_t)x.batch * padded * x.heads - 1; /* all lanes of a warp stay */
    int head = (int)(index % x.heads), row = (int)(index / x.heads % padded),
        b = (int)(index / x.heads / padded);
    float sum = 0, lse = infinity();
    if (row < x.seq) {
        if (lane * 8 < x.dim) {
            float a[8], g[8];
            load8(a, head_at<bf16>(x.o, b, head) + row * x.o.row + lane * 8);
            load8(g, head_at<bf16>(x.grad, b, head) + row * x.grad.row + lane * 8);
#pragma unroll
            for (int i = 0; i < 8; i++)
                sum += a[i] * g[i];
        }
        lse = x.lse[((int64_t)b * x.heads + head) * x.seq + row] * LOG2_E;
    }
#pragma unroll
    for (int by = 4; by; by /= 2)
        sum += __shfl_xor_sync(ALL_LANES, sum, by);
    float *to = x.delta + 2 * ((int64_t)b * x.heads + head) * padded + row / 2 * 4 + row % 2;
    if (lane == 0) {
        to[0] = lse;
        to[2] = sum;
    }
}

#endif
