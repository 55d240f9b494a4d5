/* attention_group_forward: o and lse on wgmma. While the exponents of a tile's scores are taken,
 * the tensor cores multiply the probabilities of the tile before with its values. Blocks take items
 * in turn, forth and back, so that each gets long and short ones. */
#ifndef RUNTIME_KERNELS_CUDA_ATTENTION_GROUP_FORWARD_CUH
#define RUNTIME_KERNELS_CUDA_ATTENTION_GROUP_FORWARD_CUH

#include "runtime/kernels/cuda/attention_forward.cuh"
#include "runtime/kernels/cuda/attention_group.cuh"

/* Own rows: queries; tiles: keys and their values. */
struct GroupForwardShape {
    static constexpr int N = 128, STAGES = 4, TILE_BYTES = N * 128;
    static constexpr int RING = 0, OWN = RING + STAGES * 2 * TILE_BYTES,
                         OUT = OWN + GROUP_COMPUTING * GROUP_OWN_BYTES,
                         BARRIERS = OUT + GROUP_OWN * GROUP_LD * 2,
                         BYTES = BARRIERS + 2 * STAGES * 8;
};

struct GroupForward {
    using S = GroupForwardShape;
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

    __device__ inline uint64_t *full(int stage) const
    {
        return (uint64_t *)(shared + S::BARRIERS) + stage;
    }

    __device__ inline uint64_t *empty(int stage) const
    {
        return full(S::STAGES + stage);
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
        return shared + S::OWN + (int)threadIdx.x / WARP * GROUP_OWN_BYTES;
    }
};

__device__ inline void forward_copy(GroupForward &g)
{
    using S = GroupForwardShape;
    const CudaAttention &x = g.x;
    ForwardPlace place;
    for (int round = 0; g.find(round, place); round++) {
        g.open(place);
        int b = place.b, kv_head = place.head / x.group;
        for (int at = g.begin; at < g.end; at += S::N) {
            int stage = g.ring.stage;
            phase_wait(g.empty(stage), g.ring.parity ^ 1);
            copy_tile<S::N>(g.tile(stage, 0), head_at<bf16>(x.k, b, kv_head), x.k.row, at, x.seq,
                            x.dim);
            copy_tile<S::N>(g.tile(stage, 1), head_at<bf16>(x.v, b, kv_head), x.v.row, at, x.seq,
                            x.dim);
            phase_arrive_after_copies(g.full(stage));
            g.ring.step(S::STAGES);
        }
    }
}

/* What a group keeps of an item from tile to tile. */
struct ForwardState {
    float o[1][8][4], most[1][2], sum[1][2];
    uint32_t left[4][4];   /* the queries */
    uint32_t p_left[8][4]; /* probabilities of the tile before, whose product is to come */
    float unit;
    int group, warp;                   /* first rows, of the item's */
    int own_first, warp_first, before; /* before: that tile's place in the ring */
    int round;                         /* of the item after the next */
    bool more;                         /* there is a next item */
    ForwardPlace next;
};

/* Finds the next item and begins to copy its queries. */
__device__ inline void forward_ahead(GroupForward &g, ForwardState &r)
{
    const CudaAttention &x = g.x;
    r.more = g.find(r.round++, r.next);
    if (!r.more)
        return;
    __syncwarp(); /* all lanes have read the queries before */
    copy_own(g.own(), head_at<bf16>(x.q, r.next.b, r.next.head), x.q.row, r.next.first + r.warp,
             x.seq, x.dim);
    cp_async_commit();
}

__device__ inline void forward_open(GroupForward &g, ForwardState &r)
{
    g.open(r.next);
    r.own_first = g.item.first + r.group;
    r.warp_first = g.item.first + r.warp;
    copies_end();
    load_own(r.left, g.own());
}

__device__ inline void forward_release(GroupForward &g, int stage)
{
    __syncwarp();
    if (threadIdx.x % WARP == 0)
        phase_arrive(g.empty(stage));
}

/* Waits for the next tile that the group sees, at or behind `at`; hands back those that it does
 * not. */
__device__ inline bool forward_seek(GroupForward &g, int &at, int own_first)
{
    for (; at < g.end; at += GroupForwardShape::N) {
        phase_wait(g.full(g.ring.stage), g.ring.parity);
        if (!sees_none(g.x, own_first, own_first + GROUP_ROWS - 1, at,
                       at + GroupForwardShape::N - 1)) {
            fence_async();
            return true;
        }
        forward_release(g, g.ring.stage);
        g.ring.step(GroupForwardShape::STAGES);
    }
    return false;
}

__device__ inline void forward_product(GroupForward &g, ForwardState &r)
{
    group_product(r.o[0], r.p_left, tile_place(g.tile(r.before, 1)));
    group_commit();
}

__device__ inline void forward_product_end(GroupForward &g, ForwardState &r)
{
    group_wait<0>();
    group_pin(r.o[0]);
    forward_release(g, r.before);
}

/* Scores to probabilities, and what sums so far are to be multiplied with. */
__device__ inline void forward_softmax(ForwardState &r, float (&s)[1][16][4], float (&rescale)[2])
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
template <bool FIRST>
__device__ inline void forward_step(GroupForward &g, ForwardState &r, int &at)
{
    float s[1][16][4], rescale[2];
    int stage = g.ring.stage;
    group_fence();
    group_scores(s[0], r.left, tile_place(g.tile(stage, 0)));
    group_commit();
    if constexpr (FIRST)
        forward_ahead(g, r);
    else
        forward_product(g, r);
    group_wait<FIRST ? 0 : 1>();
    group_pin(s[0]);
    if (sees_all(g.x, r.warp_first, r.warp_first + 15, at, at + GroupForwardShape::N - 1)) {
        forward_softmax(r, s, rescale);
    } else { /* the branch keeps the wait behind the arithmetic: the assembler would move it up */
        mask_scores<false>(g.x, g.item.b, s, r.warp_first, at);
        forward_softmax(r, s, rescale);
    }
    group_pin(s[0]); /* the arithmetic comes before the wait */
    if constexpr (!FIRST) {
        forward_product_end(g, r);
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                r.o[0][n][i] *= rescale[i / 2];
    }
    pack_left(r.p_left, s[0]);
    r.before = stage;
    g.ring.step(GroupForwardShape::STAGES);
    at += GroupForwardShape::N;
}

/* An item, which is open. */
__device__ inline void forward_item(GroupForward &g, ForwardState &r)
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
    group_fence();
    forward_product(g, r);
    forward_product_end(g, r);
}

__device__ inline void forward_compute(GroupForward &g)
{
    const CudaAttention &x = g.x;
    int warp = uniform((int)threadIdx.x / WARP);
    ForwardState r;
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
        store_own(g.shared + GroupForwardShape::OUT, r.o[0], factor[0],
                  head_at<bf16>(x.o, g.item.b, g.item.head), x.o.row, r.warp_first, x.seq, x.dim);
    }
}

__device__ inline void attention_group_forward(const CudaAttention &x)
{
    using S = GroupForwardShape;
    DYNAMIC_SHARED(shared);
    GroupForward g(x, shared);
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::STAGES; i++) {
            phase_init(g.full(i), 128);
            phase_init(g.empty(i), GROUP_COMPUTING);
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
