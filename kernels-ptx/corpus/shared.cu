// Shared memory: what a barrier must stand between, and what needs none.
#include "corpus.cuh"

CORPUS_KERNEL(reverse_without_barrier) {
    __shared__ uint32_t tile[128];
    for (uint32_t i = threadIdx.x; i < 128; i += blockDim.x) tile[i] = i;
    __syncthreads();
    tile[threadIdx.x] = in[threadIdx.x];
    out[threadIdx.x] = tile[127 - threadIdx.x];
    (void)state;
}

CORPUS_KERNEL(reverse_with_barrier) {
    __shared__ uint32_t tile[128];
    tile[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[127 - threadIdx.x];
    (void)state;
}

// Several rounds through one tile: the second barrier keeps the next round's writes from this one's reads.
template <bool SECOND>
__device__ void rounds(const uint32_t* in, uint32_t* out) {
    __shared__ uint32_t tile[128];
    uint32_t value = in[threadIdx.x];
    for (uint32_t round = 0; round < 4; ++round) {
        tile[threadIdx.x] = value;
        __syncthreads();
        value += tile[127 - threadIdx.x];
        if (SECOND) __syncthreads();
    }
    out[threadIdx.x] = value;
}

CORPUS_KERNEL(rounds_with_one_barrier) {
    rounds<false>(in, out);
    (void)state;
}

CORPUS_KERNEL(rounds_with_two_barriers) {
    rounds<true>(in, out);
    (void)state;
}

CORPUS_KERNEL(double_buffered) {
    __shared__ uint32_t tile[2][128];
    uint32_t value = in[threadIdx.x];
    for (uint32_t round = 0; round < 6; ++round) {
        uint32_t* now = tile[round & 1];
        now[threadIdx.x] = value;
        __syncthreads();
        value += now[127 - threadIdx.x];
    }
    out[threadIdx.x] = value;
    (void)state;
}

template <bool SYNC>
__device__ void neighbours(const uint32_t* in, uint32_t* out) {
    __shared__ uint32_t tile[32];
    tile[threadIdx.x] = in[threadIdx.x];
    if (SYNC) __syncwarp();
    out[threadIdx.x] = tile[threadIdx.x ^ 1];
}

CORPUS_KERNEL(lanes_without_syncwarp) {
    neighbours<false>(in, out);
    (void)state;
}

CORPUS_KERNEL(lanes_with_syncwarp) {
    neighbours<true>(in, out);
    (void)state;
}

// Warp-synchronous: shuffles within warps, one barrier between them.
CORPUS_KERNEL(shuffle_sum) {
    __shared__ uint32_t sums[4];
    uint32_t value = in[threadIdx.x];
    for (uint32_t step = 16; step > 0; step >>= 1) value += __shfl_xor_sync(0xffffffffu, value, step);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
    __syncthreads();
    out[threadIdx.x] = sums[0] + sums[1] + sums[2] + sums[3];
    (void)state;
}

CORPUS_KERNEL(histogram) {
    __shared__ uint32_t bins[32];
    if (threadIdx.x < 32) bins[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&bins[in[threadIdx.x] % 32], 1u);
    __syncthreads();
    if (threadIdx.x < 32) out[threadIdx.x] = bins[threadIdx.x];
    (void)state;
}

CORPUS_KERNEL(histogram_read_early) {
    __shared__ uint32_t bins[32];
    if (threadIdx.x < 32) bins[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&bins[in[threadIdx.x] % 32], 1u);
    if (threadIdx.x < 32) out[threadIdx.x] = bins[threadIdx.x];
    (void)state;
}

// Bytes of one word, each written by another warp, are different places.
CORPUS_KERNEL(bytes_of_shared_words) {
    __shared__ uint8_t bytes[128];
    uint32_t place = (threadIdx.x % 32) * 4 + threadIdx.x / 32;
    bytes[place] = static_cast<uint8_t>(in[threadIdx.x]);
    __syncthreads();
    out[threadIdx.x] = bytes[threadIdx.x];
    (void)state;
}
