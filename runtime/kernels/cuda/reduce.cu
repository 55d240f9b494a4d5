#include "runtime/kernels/cuda/device.cuh"

/* -- the step's scalars: one block each -- */

KERNEL_ENTRY(count_targets, 1024, 1, CudaCountTargets)
{
    __shared__ int of_warp[WARP];
    int sum = 0;
    for (int64_t i = threadIdx.x; i < x.n; i += 1024)
        sum += x.targets[i] != x.ignore;
    for (int by = 16; by; by /= 2)
        sum += __shfl_xor_sync(ALL_LANES, sum, by);
    if (threadIdx.x % WARP == 0)
        of_warp[threadIdx.x / WARP] = sum;
    __syncthreads();
    if (threadIdx.x)
        return;
    int64_t count = x.first ? 0 : *x.count;
    for (int i = 0; i < WARP; i++)
        count += of_warp[i];
    *x.count = count;
    store_scalar(x.inverse, 1 / (double)(count > 1 ? count : 1));
}

KERNEL_ENTRY(loss_mean, 32, 1, CudaLossMean)
{
    if (threadIdx.x == 0)
        store_scalar(x.loss, load_scalar(x.sum) * load_scalar(x.inverse));
}

/* The parts are read together and added in order; norm carries the sum from one launch to the
 * next. */
KERNEL_ENTRY(grad_norm, 512, 1, CudaGradNorm)
{
    __shared__ double part[512];
    if (threadIdx.x < x.count)
        part[threadIdx.x] = *x.part[threadIdx.x];
    __syncthreads();
    if (threadIdx.x)
        return;
    double sum = x.first ? 0 : load_scalar(x.norm);
    for (int i = 0; i < x.count; i++)
        sum += part[i];
    if (!x.last) {
        store_scalar(x.norm, sum);
        return;
    }
    double norm = sqrt(sum), coef = 1;
    if (!(norm - norm == 0)) /* not finite */
        coef = 0;
    else if (x.max_norm > 0)
        coef = fmin(1.0, x.max_norm / (norm + 1e-6));
    store_scalar(x.norm, norm);
    store_scalar(x.coef, coef);
}

KERNEL_ENTRY(advance, 32, 1, CudaAdvance)
{
    if (threadIdx.x)
        return;
    if (load_scalar(x.coef) == 0) {
        ++*x.skipped;
        return;
    }
    ++*x.step;
    *x.skipped = 0;
}

/* -- accumulate -- */

KERNEL_ENTRY(accumulate, 256, 4, CudaAccumulate)
{
    if (x.state.type == CUDA_F64) { /* the sum of losses: one element */
        if (blockIdx.x || threadIdx.x)
            return;
        for (int64_t i = 0; i < x.n; i++) {
            double *to = (double *)x.state.at + view_at(x.state, i);
            double v = x.x.type == CUDA_F64 ? ((const double *)x.x.at)[view_at(x.x, i)]
                                            : (double)load_f32(x.x.at, x.x.type, view_at(x.x, i));
            *to = x.first ? v : *to + v;
        }
        return;
    }
    bool by_eight = view_by_eight(x.state) && view_by_eight(x.x);
    int64_t step = by_eight ? 8 : 1, stride = (int64_t)gridDim.x * 256 * step;
    for (int64_t i = ((int64_t)blockIdx.x * 256 + threadIdx.x) * step; i < x.n; i += stride) {
        int64_t to = view_at(x.state, i), from = view_at(x.x, i);
        if (by_eight && i + 8 <= x.n) {
            float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0}, v[8];
            if (!x.first)
                load8(sum, x.state.at, x.state.type, to);
            load8(v, x.x.at, x.x.type, from);
#pragma unroll
            for (int j = 0; j < 8; j++)
                sum[j] = x.first ? v[j] : sum[j] + v[j];
            store8(x.state.at, x.state.type, to, sum);
            continue;
        }
        for (int64_t j = 0; j < step && i + j < x.n; j++) {
            float v = load_f32(x.x.at, x.x.type, from + j);
            store_f32(x.state.at, x.state.type, to + j,
                      x.first ? v : load_f32(x.state.at, x.state.type, to + j) + v);
        }
    }
}

/* -- norm_sq: per block of 4096 elements thirty-two sums in f32, element e in sum e % 32, in order;
 * these by halves; then pairs of blocks in f64, pairs of those, and so on. A pair that has no
 * second half is the first: adding zero -- */

constexpr int NORM_BLOCK = 4096, NORM_THREADS = 128, NORM_ROUND = 8;

/* A thread sums elements of PER neighbouring sums; 32 / PER threads share a block. */
template <typename T, int PER>
__device__ static inline float norm_block(const T *at, int64_t n, int part)
{
    constexpr int STEPS = NORM_BLOCK / 32;
    float sum[PER];
#pragma unroll
    for (int i = 0; i < PER; i++)
        sum[i] = 0;
    for (int step = 0; step < STEPS && step * 32 < n; step += NORM_ROUND) {
        uint4 raw[NORM_ROUND];
#pragma unroll
        for (int j = 0; j < NORM_ROUND; j++) {
            int64_t e = (step + j) * 32 + part * PER;
            raw[j] = e + PER <= n ? *(const uint4 *)(at + e) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int j = 0; j < NORM_ROUND; j++) {
            int64_t e = (step + j) * 32 + part * PER;
            const uint32_t word[4] = {raw[j].x, raw[j].y, raw[j].z, raw[j].w};
#pragma unroll
            for (int i = 0; i < PER; i++) {
                float v = PER == 4 ? __uint_as_float(word[i % 4])
                          : i % 2  ? high_f32(word[i / 2])
                                   : low_f32(word[i / 2]);
                if (e + PER > n)
                    v = e + i < n ? to_f32(at[e + i]) : 0.0f;
                sum[i] = __fmaf_rn(v, v, sum[i]);
            }
        }
    }
#pragma unroll
    for (int by = 16 / PER; by; by /= 2)
#pragma unroll
        for (int i = 0; i < PER; i++)
            sum[i] += __shfl_xor_sync(ALL_LANES, sum[i], by);
#pragma unroll
    for (int width = PER / 2; width; width /= 2)
#pragma unroll
        for (int i = 0; i < width; i++)
            sum[i] += sum[i + width];
    return sum[0];
}

/* The same of any view: a warp per block, a lane per sum. */
__device__ static inline float norm_block_of_view(const CudaNormEntry &e, int64_t first, int64_t n)
{
    CudaView view = {nullptr, e.run, e.pitch, 0, 0};
    float sum = 0;
    for (int64_t i = threadIdx.x % WARP; i < n; i += WARP) {
        float v = load_f32(e.x, e.type, view_at(view, first + i));
        sum = __fmaf_rn(v, v, sum);
    }
    return warp_sum(sum);
}

__device__ static inline const CudaNormEntry &norm_entry(const CudaNorm &x, int64_t block)
{
    if (!x.entries)
        return x.alone;
    int64_t low = 0, high = x.n_entries;
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (x.entries[middle].first <= block)
            low = middle;
        else
            high = middle;
    }
    return x.entries[low];
}

KERNEL_ENTRY(norm_sq, 128, 4, CudaNorm)
{
    __shared__ double sums[CUDA_NORM_BLOCKS];
    const CudaNormEntry &e = norm_entry(x, blockIdx.x);
    int64_t span = blockIdx.x - e.first, first = span * CUDA_NORM_BLOCKS * NORM_BLOCK;
    bool plain = e.run == e.pitch && (uintptr_t)e.x % 16 == 0;
    int thread = (int)threadIdx.x, threads = !plain                ? WARP
                                             : e.type == CUDA_BF16 ? 4
                                                                   : 8; /* per block */
    for (int round = 0; round < CUDA_NORM_BLOCKS; round += NORM_THREADS / threads) {
        int block = round + thread / threads;
        int64_t at = first + (int64_t)block * NORM_BLOCK, n = min((int64_t)NORM_BLOCK, e.n - at);
        float sum;
        if (!plain)
            sum = norm_block_of_view(e, at, n);
        else if (e.type == CUDA_BF16)
            sum = norm_block<bf16, 8>((const bf16 *)e.x + at, n, thread % 4);
        else
            sum = norm_block<float, 4>((const float *)e.x + at, n, thread % 8);
        if (thread % threads == 0)
            sums[block] = sum;
    }
    __syncthreads();
    if (thread >= WARP)
        return;
    double sum = sums[thread];
    for (int by = 1; by < WARP; by *= 2)
        sum += __shfl_xor_sync(ALL_LANES, sum, by);
    if (thread == 0)
        e.sums[span] = sum;
}

constexpr int PAIR_THREADS = 256, PAIR_CHUNK = PAIR_THREADS * 8, PAIR_CHUNKS = 1024;

/* A block per entry: the entry's sums to one. */
KERNEL_ENTRY(norm_pairs, 256, 1, CudaNorm)
{
    __shared__ double tops[PAIR_CHUNKS], of_warp[PAIR_THREADS / WARP];
    const CudaNormEntry &e = x.entries ? x.entries[blockIdx.x] : x.alone;
    int thread = (int)threadIdx.x;
    int64_t n = (e.n + (int64_t)NORM_BLOCK * CUDA_NORM_BLOCKS - 1) /
                ((int64_t)NORM_BLOCK * CUDA_NORM_BLOCKS);
    int chunks = (int)((n + PAIR_CHUNK - 1) / PAIR_CHUNK);
    for (int chunk = 0; chunk < chunks; chunk++) {
        double v[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int64_t at = (int64_t)chunk * PAIR_CHUNK + thread * 8 + i;
            v[i] = at < n ? e.sums[at] : 0;
        }
#pragma unroll
        for (int width = 4; width; width /= 2)
#pragma unroll
            for (int i = 0; i < width; i++)
                v[i] = v[2 * i] + v[2 * i + 1];
        for (int by = 1; by < WARP; by *= 2)
            v[0] += __shfl_xor_sync(ALL_LANES, v[0], by);
        __syncthreads();
        if (thread % WARP == 0)
            of_warp[thread / WARP] = v[0];
        __syncthreads();
        if (thread == 0)
            tops[chunk] = ((of_warp[0] + of_warp[1]) + (of_warp[2] + of_warp[3])) +
                          ((of_warp[4] + of_warp[5]) + (of_warp[6] + of_warp[7]));
    }
    if (thread)
        return;
    for (int m = chunks; m > 1; m = (m + 1) / 2)
        for (int i = 0; i < m; i += 2)
            tops[i / 2] = i + 1 < m ? tops[i] + tops[i + 1] : tops[i];
    *e.y = chunks ? tops[0] : 0;
}
