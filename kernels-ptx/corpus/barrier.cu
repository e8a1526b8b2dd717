// Barriers: who reaches them.
#include "corpus.cuh"

CORPUS_KERNEL(barrier_in_some_lanes) {
    if (in[threadIdx.x] % 32 < 7) {
        __syncthreads();
        out[threadIdx.x] = 1;
    }
    (void)state;
}

CORPUS_KERNEL(barriers_on_both_sides) {
    if (threadIdx.x < 32) {
        out[threadIdx.x] = in[threadIdx.x];
        __syncthreads();
    } else {
        out[threadIdx.x] = in[threadIdx.x] + 1;
        __syncthreads();
        out[threadIdx.x] += 1;
    }
    (void)state;
}

CORPUS_KERNEL(barrier_in_a_loop) {
    for (uint32_t round = 0; round < in[0] % 4 + 3; ++round) __syncthreads();
    out[threadIdx.x] = in[threadIdx.x];
    (void)state;
}

// Waits for 64 threads, of which 32 come: never ends on a GPU.
CORPUS_KERNEL(barrier_nobody_joins) {
    if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;" ::: "memory");
    out[threadIdx.x] = in[threadIdx.x];
    (void)state;
}

CORPUS_KERNEL(arrival_nobody_waits_for) {
    if (threadIdx.x < 32) asm volatile("bar.arrive 1, 64;" ::: "memory");
    out[threadIdx.x] = in[threadIdx.x];
    (void)state;
}

// The first warp produces, the second waits for it; the third has nothing to do with it.
CORPUS_KERNEL(producer_and_consumer) {
    __shared__ uint32_t tile[32];
    if (threadIdx.x < 32) {
        tile[threadIdx.x] = in[threadIdx.x];
        asm volatile("bar.arrive 1, 64;" ::: "memory");
    } else if (threadIdx.x < 64) {
        asm volatile("bar.sync 1, 64;" ::: "memory");
        out[threadIdx.x - 32] = tile[63 - threadIdx.x];
    }
    (void)state;
}
