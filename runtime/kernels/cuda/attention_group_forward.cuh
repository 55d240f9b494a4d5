/* attention_group_forward: o and lse on wgmma for head sizes up to 128. While the exponents of a
 * tile's scores are taken, the tensor cores multiply the probabilities of the tile before with its
 * values. Blocks take items in turn, forth and back, so that each gets long and short ones. */
#ifndef RUNTIME_KERNELS_CUDA_ATTENTION_GROUP_FORWARD_CUH
#define RUNTIME_KERNELS_CUDA_ATTENTION_GROUP_FORWARD_CUH

#include "runtime/kernels/cuda/attention_forward.cuh"
#include "runtime/kernels/cuda/attention_group.cuh"

/* For head sizes up to D, 64 or 128. Own rows: queries; tiles: keys and their values; all in PARTS
 * of 64 columns beside each other. SPLIT: keys and values come and go by themselves, where there is
 * room for two tiles alone: the next keys come while the values before are still multiplied. */
template <int D> struct GroupForwardShape {
    static constexpr int N = 128, PARTS = D / GROUP_DIM, STAGES = 4 / PARTS;
    static constexpr bool SPLIT = PARTS > 1;
    static_assert(GROUP_OWN <= N, "no tile to hand back behind one whose values are kept");
    static constexpr int PART_BYTES = N * 128, TILE_BYTES = PARTS * PART_BYTES,
                         OWN_BYTES = PARTS * GROUP_OWN_BYTES, PHASES = SPLIT ? 2 * STAGES : STAGES;
    static constexpr int RING = 0, OWN = RING + STAGES * 2 * TILE_BYTES,
                         OUT = OWN + GROUP_COMPUTING * OWN_BYTES,
                         BARRIERS = OUT + GROUP_OWN * GROUP_LD * 2,
                         BYTES = BARRIERS + 2 * PHASES * 8;
};

template <int D> struct GroupForward {
    using S = GroupForwardShape<D>;
    const CudaAttention &x;
    unsigned char *shared;
    GroupRing ring;
    int items;
    ForwardPlace item;
    int begin, end; /* keys */

    __device__ inline GroupForward(const CudaAttention &args, unsigned char *memory)
        : x(args), shared(memory), ring({0, 0}),
          items((x.seq + GROUP_OWN - 1) / GROUP_OWN * x.batch * x.heads)
    {
    }

    /* which: 0 keys, 1 values */
    __device__ inline uint64_t *full(int stage, int which) const
    {
        return (uint64_t *)(shared + S::BARRIERS) + (S::SPLIT ? stage * 2 + which : stage);
    }

    __device__ inline uint64_t *empty(int stage, int which) const
    {
        return full(stage, which) + S::PHASES;
    }

    /* The block's item of a round; false: it has none, which can only be in the last. */
    __device__ inline bool find(int round, ForwardPlace &place) const
    {
        int blocks = (int)gridDim.x, block = (int)blockIdx.x,
            index = round * blocks + (round % 2 ? blocks - 1 - block : block);
        if (index >= items)
            return false;
        group_place<true>(x, index, x.batch * x.heads, place.first, place.b, place.head);
        return true;
    }

    __device__ inline void open(const ForwardPlace &place)
    {
        item = place;
        begin = keys_begin(x, item.first) / S::N * S::N;
        end = keys_end(x, item.first + GROUP_OWN);
    }

    __device__ inline unsigned char *tile(int stage, int which) const
    {
        return shared + S::RING + (stage * 2 + which) * S::TILE_BYTES;
    }

    __device__ inline unsigned char *own() const
    {
        return shared + S::OWN + (int)threadIdx.x / WARP * S::OWN_BYTES;
    }
};

/* Keys or values from row `at` on; without SPLIT both are one phase. */
template <int D>
__device__ inline void forward_copy_tile(GroupForward<D> &g, int which, const CudaHeads &from,
                                         int b, int kv_head, int at)
{
    using S = GroupForwardShape<D>;
    const CudaAttention &x = g.x;
    int stage = g.ring.stage;
    if (S::SPLIT || which == 0)
        phase_wait(g.empty(stage, which), g.ring.parity ^ 1);
#pragma unroll 1
    for (int part = 0; part < S::PARTS; part++)
        copy_tile<S::N>(g.tile(stage, which) + part * S::PART_BYTES,
                        head_at<bf16>(from, b, kv_head) + part * GROUP_DIM, from.row, at, x.seq,
                        x.dim - part * GROUP_DIM);
    if (S::SPLIT || which == 1)
        phase_arrive_after_copies(g.full(stage, which));
}

template <int D> __device__ inline void forward_copy(GroupForward<D> &g)
{
    using S = GroupForwardShape<D>;
    ForwardPlace place;
    for (int round = 0; g.find(round, place); round++) {
        g.open(place);
        int b = place.b, kv_head = place.head / g.x.group;
        for (int at = g.begin; at < g.end; at += S::N) {
            forward_copy_tile(g, 0, g.x.k, b, kv_head, at);
            forward_copy_tile(g, 1, g.x.v, b, kv_head, at);
            g.ring.step(S::STAGES);
        }
    }
}

/* What a group keeps of an item from tile to tile. */
template <int D> struct ForwardState {
    float o[1][D / 8][4], most[1][2], sum[1][2];
    uint32_t left[D / GROUP_DIM][4][4]; /* the queries */
    uint32_t p_left[8][4]; /* probabilities of the tile before, whose product is to come */
    float unit;
    int group, warp; /* first rows, of the item's */
    int own_first, warp_first;
    GroupRing before; /* that tile's place in the ring */
    int round;        /* of the item after the next */
    bool more;        /* there is a next item */
    ForwardPlace next;
};

/* Finds the next item and begins to copy its queries. */
template <int D> __device__ inline void forward_ahead(GroupForward<D> &g, ForwardState<D> &r)
{
    const CudaAttention &x = g.x;
    r.more = g.find(r.round++, r.next);
    if (!r.more)
        return;
    __syncwarp(); /* all lanes have read the queries before */
#pragma unroll
    for (int part = 0; part < GroupForwardShape<D>::PARTS; part++)
        copy_own(g.own() + part * GROUP_OWN_BYTES,
                 head_at<bf16>(x.q, r.next.b, r.next.head) + part * GROUP_DIM, x.q.row,
                 r.next.first + r.warp, x.seq, x.dim - part * GROUP_DIM);
    cp_async_commit();
}

template <int D> __device__ inline void forward_open(GroupForward<D> &g, ForwardState<D> &r)
{
    g.open(r.next);
    r.own_first = g.item.first + r.group;
    r.warp_first = g.item.first + r.warp;
    copies_end();
#pragma unroll
    for (int part = 0; part < GroupForwardShape<D>::PARTS; part++)
        load_own(r.left[part], g.own() + part * GROUP_OWN_BYTES);
}

template <int D> __device__ inline void forward_release(GroupForward<D> &g, int stage, int which)
{
    __syncwarp();
    if (threadIdx.x % WARP == 0)
        phase_arrive(g.empty(stage, which));
}

/* Waits for the next tile that the group sees, at or behind `at`; hands back those that it does
 * not. */
template <int D> __device__ inline bool forward_seek(GroupForward<D> &g, int &at, int own_first)
{
    using S = GroupForwardShape<D>;
    for (; at < g.end; at += S::N) {
        phase_wait(g.full(g.ring.stage, 0), g.ring.parity);
        if (!sees_none(g.x, own_first, own_first + GROUP_ROWS - 1, at, at + S::N - 1))
            return true;
        if (S::SPLIT) {
            forward_release(g, g.ring.stage, 0);
            phase_wait(g.full(g.ring.stage, 1), g.ring.parity);
        }
        forward_release(g, g.ring.stage, 1);
        g.ring.step(S::STAGES);
    }
    return false;
}

/* Of the tile that is next. */
template <int D>
__device__ inline void forward_scores(GroupForward<D> &g, ForwardState<D> &r, float (&s)[16][4])
{
    using S = GroupForwardShape<D>;
    uint32_t keys = tile_place(g.tile(g.ring.stage, 0));
    group_scores(s, r.left[0], keys);
#pragma unroll
    for (int part = 1; part < S::PARTS; part++)
        group_scores<true>(s, r.left[part], keys + part * (S::PART_BYTES / 16));
    group_commit();
}

/* With SPLIT: waits for the values of the tile before. */
template <int D> __device__ inline void forward_values(GroupForward<D> &g, ForwardState<D> &r)
{
    phase_wait(g.full(r.before.stage, 1), r.before.parity);
}

template <int D> __device__ inline void forward_product(GroupForward<D> &g, ForwardState<D> &r)
{
    using S = GroupForwardShape<D>;
    group_product(r.o[0], r.p_left,
                  tile_place(g.tile(r.before.stage, 1), S::PARTS > 1 ? S::PART_BYTES : 16));
    group_commit();
}

template <int D> __device__ inline void forward_product_end(GroupForward<D> &g, ForwardState<D> &r)
{
    group_wait<0>();
    group_pin(r.o[0]);
    forward_release(g, r.before.stage, 1);
}

/* Scores to probabilities, and what sums so far are to be multiplied with. */
template <int D>
__device__ inline void forward_softmax(ForwardState<D> &r, float (&s)[1][16][4],
                                       float (&rescale)[2])
{
    const float before[2] = {r.most[0][0], r.most[0][1]};
    row_most(s, r.most);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float most = r.most[0][half], shift = most == minus_infinity() ? 0.0f : most * r.unit,
              total = 0;
        rescale[half] = exp2_fast(before[half] * r.unit - shift);
#pragma unroll
        for (int n = 0; n < 16; n++) {
            float *p = &s[0][n][half * 2]; /* rounded as the product takes them, summed so */
            uint32_t rounded =
                pack_bf16(exp2_fast(p[0] * r.unit - shift), exp2_fast(p[1] * r.unit - shift));
            p[0] = low_f32(rounded);
            p[1] = high_f32(rounded);
            total += p[0];
            total += p[1];
        }
        r.sum[0][half] = r.sum[0][half] * rescale[half] + total;
    }
}

/* The tile at `at`, and the product of the one before. */
template <bool FIRST, int D>
__device__ inline void forward_step(GroupForward<D> &g, ForwardState<D> &r, int &at)
{
    using S = GroupForwardShape<D>;
    float s[1][16][4], rescale[2];
    if constexpr (S::SPLIT && !FIRST)
        forward_values(g, r);
    fence_async();
    group_fence();
    forward_scores(g, r, s[0]);
    if constexpr (FIRST)
        forward_ahead(g, r);
    else
        forward_product(g, r);
    group_wait<FIRST ? 0 : 1>();
    group_pin(s[0]);
    if (S::SPLIT)
        forward_release(g, g.ring.stage, 0);
    if (sees_all(g.x, r.warp_first, r.warp_first + 15, at, at + S::N - 1)) {
        forward_softmax(r, s, rescale);
    } else { /* the branch keeps the wait behind the arithmetic: the assembler would move it up */
        mask_scores<false>(g.x, g.item.b, s, r.warp_first, at);
        forward_softmax(r, s, rescale);
    }
    group_pin(s[0]); /* the arithmetic comes before the wait */
    if constexpr (!FIRST) {
        forward_product_end(g, r);
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                r.o[0][n][i] *= rescale[i / 2];
    }
    pack_left(r.p_left, s[0]);
    r.before = g.ring;
    g.ring.step(S::STAGES);
    at += S::N;
}

/* An item, which is open. */
template <int D> __device__ inline void forward_item(GroupForward<D> &g, ForwardState<D> &r)
{
    clear(r.o);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        r.most[0][half] = minus_infinity();
        r.sum[0][half] = 0;
    }
    int at = g.begin;
    if (!forward_seek(g, at, r.own_first)) {
        forward_ahead(g, r);
        return;
    }
    forward_step<true>(g, r, at);
    while (forward_seek(g, at, r.own_first))
        forward_step<false>(g, r, at);
    if (GroupForwardShape<D>::SPLIT) {
        forward_values(g, r);
        fence_async();
    }
    group_fence();
    forward_product(g, r);
    forward_product_end(g, r);
}

template <int D> __device__ inline void forward_compute(GroupForward<D> &g)
{
    const CudaAttention &x = g.x;
    int warp = uniform((int)threadIdx.x / WARP);
    ForwardState<D> r;
    r.unit = score_unit<false>(x);
    r.group = warp / 4 * GROUP_ROWS;
    r.warp = warp * 16;
    r.round = 0;
    for (forward_ahead(g, r); r.more;) {
        forward_open(g, r);
        forward_item(g, r);
        float factor[1][2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            r.sum[0][half] += __shfl_xor_sync(ALL_LANES, r.sum[0][half], 1);
            r.sum[0][half] += __shfl_xor_sync(ALL_LANES, r.sum[0][half], 2);
        }
        finish_rows<1>(x, r.unit, r.most, r.sum, g.item, r.warp_first, true, factor);
        const float(*o)[8][4] = (const float(*)[8][4])r.o[0];
#pragma unroll
        for (int part = 0; part < GroupForwardShape<D>::PARTS; part++)
            store_own(g.shared + GroupForwardShape<D>::OUT, o[part], factor[0],
                      head_at<bf16>(x.o, g.item.b, g.item.head) + part * GROUP_DIM, x.o.row,
                      r.warp_first, x.seq, x.dim - part * GROUP_DIM);
    }
}

template <int D> __device__ inline void attention_group_forward(const CudaAttention &x)
{
    using S = GroupForwardShape<D>;
    DYNAMIC_SHARED(shared);
    GroupForward<D> g(x, shared);
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::PHASES; i++) { /* all of full, then all of empty */
            phase_init(g.full(0, 0) + i, 128);
            phase_init(g.empty(0, 0) + i, GROUP_COMPUTING);
        }
    }
    __syncthreads();
    if ((int)threadIdx.x / WARP < GROUP_COMPUTING) {
        group_takes_registers<GROUP_REGISTERS>();
        forward_compute(g);
    } else {
        group_gives_registers<GROUP_COPYING_REGISTERS>();
        forward_copy(g);
    }
}

#endif
