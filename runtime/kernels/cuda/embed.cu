#include "runtime/kernels/cuda/device.cuh"

/* -- forward: a block per token -- */

KERNEL_ENTRY(embed, 128, 8, CudaEmbed)
{
    int64_t t = blockIdx.x, id = x.ids[t];
    bool known = id >= 0 && id < x.total;
    bool inside = known && id >= x.first && id - x.first < x.rows;
    if (!known && threadIdx.x == 0)
        raise_fault(x.fault, CUDA_FAULT_ID, t, id, x.total);
    id -= x.first;
    if (x.width % 8 == 0 && view_by_eight(x.y) && view_by_eight(x.table)) {
        for (int64_t c = threadIdx.x * 8; c < x.width; c += 128 * 8) {
            float v[8] = {0, 0, 0, 0, 0, 0, 0, 0};
            if (inside)
                load8(v, x.table.at, x.table.type, view_at(x.table, id * x.width + c));
            store8(x.y.at, x.y.type, view_at(x.y, t * x.width + c), v);
        }
        return;
    }
    for (int64_t c = threadIdx.x; c < x.width; c += 128) {
        float v =
            inside ? load_f32(x.table.at, x.table.type, view_at(x.table, id * x.width + c)) : 0;
        store_f32(x.y.at, x.y.type, view_at(x.y, t * x.width + c), v);
    }
}

/* -- backward: tokens sorted by id, stably, then every row written once -- */

constexpr int SORT_THREADS = 1024, SORT_WARPS = SORT_THREADS / WARP, DIGITS = 256, AHEAD = 4;

/* An id outside the table goes behind all rows. */
__device__ static inline unsigned sort_key(const CudaEmbedGrad &x, int token)
{
    int64_t row = x.ids[token] - x.first;
    return row >= 0 && row < x.rows ? (unsigned)row : (unsigned)x.rows;
}

/* A warp's tokens of one digit of the key, in their order: counts them (to NULL), or puts each into
 * its place. */
__device__ static inline void sort_warp(const CudaEmbedGrad &x, const int32_t *from, int32_t *to,
                                        int shift, int *counts)
{
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, n = (int)x.tokens;
    int each = (n + SORT_THREADS - 1) / SORT_THREADS * WARP, first = warp * each,
        end = min(first + each, n);
    for (int i = first; i < end; i += WARP * AHEAD) {
        int token[AHEAD];
        unsigned digit[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            int at = i + j * WARP + lane;
            token[j] = at < end ? from ? from[at] : at : -1;
        }
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            digit[j] = token[j] >= 0 ? sort_key(x, token[j]) >> shift & (DIGITS - 1) : DIGITS;
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            unsigned same = __match_any_sync(ALL_LANES, digit[j]),
                     before = same & ((1u << lane) - 1);
            int place = token[j] >= 0 ? counts[digit[j]] : 0;
            __syncwarp();
            if (token[j] >= 0 && to)
                to[place + __popc(before)] = token[j];
            if (token[j] >= 0 && before == 0)
                counts[digit[j]] = place + __popc(same);
            __syncwarp();
        }
    }
}

KERNEL_ENTRY(embed_sort, 1024, 1, CudaEmbedGrad)
{
    __shared__ int counts[SORT_WARPS * DIGITS], digit_first[DIGITS];
    int thread = (int)threadIdx.x, warp = thread / WARP, lane = thread % WARP, n = (int)x.tokens,
        passes = 1;
    while (passes < 4 && (uint64_t)x.rows >> (8 * passes))
        passes++;
    const int32_t *from = nullptr;
    for (int pass = 0; pass < passes; pass++) {
        int32_t *to = (passes - pass) % 2 ? x.order : x.spare;
        for (int i = thread; i < SORT_WARPS * DIGITS; i += SORT_THREADS)
            counts[i] = 0;
        __syncthreads();
        sort_warp(x, from, nullptr, 8 * pass, counts + warp * DIGITS);
        __syncthreads();
        if (thread < DIGITS) {
            int sum = 0;
            for (int w = 0; w < SORT_WARPS; w++)
                sum += counts[w * DIGITS + thread];
            digit_first[thread] = sum;
        }
        __syncthreads();
        if (warp == 0) { /* exclusive sums: eight digits per lane */
            int own[8], sum = 0;
            for (int i = 0; i < 8; i++) {
                own[i] = sum;
                sum += digit_first[lane * 8 + i];
            }
            int before = sum;
            for (int by = 1; by < WARP; by *= 2) {
                int other = __shfl_up_sync(ALL_LANES, before, by);
                if (lane >= by)
                    before += other;
            }
            for (int i = 0; i < 8; i++)
                digit_first[lane * 8 + i] = before - sum + own[i];
        }
        __syncthreads();
        if (thread < DIGITS) {
            int sum = digit_first[thread];
            for (int w = 0; w < SORT_WARPS; w++) {
                int count = counts[w * DIGITS + thread];
                counts[w * DIGITS + thread] = sum;
                sum += count;
            }
        }
        __syncthreads();
        sort_warp(x, from, to, 8 * pass, counts + warp * DIGITS);
        __syncthreads();
        from = to;
    }
    for (int i = thread; i < n; i += SORT_THREADS) {
        unsigned key = sort_key(x, x.order[i]), before = i ? sort_key(x, x.order[i - 1]) : 0;
        if ((i == 0 || key != before) && key < x.rows)
            x.begin[key] = i;
        if (i && key != before)
            x.end[before] = i;
        if (i == n - 1 && key < x.rows)
            x.end[key] = n;
    }
}

/* A block per row; a thread sums its columns over the row's tokens, in their order. */
KERNEL_ENTRY(embed_grad_rows, 128, 8, CudaEmbedGrad)
{
    int64_t row = blockIdx.x;
    int begin = x.begin[row], end = row == x.padding ? begin : x.end[row];
    if (x.width % 8 == 0 && view_by_eight(x.dtable) && view_by_eight(x.dy)) {
        for (int64_t c = threadIdx.x * 8; c < x.width; c += 128 * 8) {
            float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
            for (int i = begin; i < end; i++) {
                float v[8];
                load8(v, x.dy.at, x.dy.type, view_at(x.dy, x.order[i] * x.width + c));
#pragma unroll
                for (int j = 0; j < 8; j++)
                    sum[j] = i == begin ? v[j] : sum[j] + v[j];
            }
            store8(x.dtable.at, x.dtable.type, view_at(x.dtable, row * x.width + c), sum);
        }
        return;
    }
    for (int64_t c = threadIdx.x; c < x.width; c += 128) {
        float sum = 0;
        for (int i = begin; i < end; i++) {
            float v = load_f32(x.dy.at, x.dy.type, view_at(x.dy, x.order[i] * x.width + c));
            sum = i == begin ? v : sum + v;
        }
        store_f32(x.dtable.at, x.dtable.type, view_at(x.dtable, row * x.width + c), sum);
    }
}
