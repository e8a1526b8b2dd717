// Values that nobody wrote, bounds, alignment, freed memory.
#include "corpus.cuh"

CORPUS_KERNEL(copy_words) {
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i] + state[0];
}

CORPUS_KERNEL(read_past_the_end) {
    out[threadIdx.x] = in[1024 - 32 + threadIdx.x + 1];
    (void)state;
}

CORPUS_KERNEL(write_past_the_end) {
    out[1024 - 32 + threadIdx.x + 1] = in[threadIdx.x];
    (void)state;
}

CORPUS_KERNEL(misaligned_pair) {
    const uint64_t* pairs = reinterpret_cast<const uint64_t*>(in + 1);
    // Both halves, or the load is narrowed to one, which is aligned.
    const uint64_t pair = pairs[threadIdx.x];
    out[threadIdx.x] = static_cast<uint32_t>(pair ^ (pair >> 32));
    (void)state;
}

// Half of the tile is filled, all of it is read.
CORPUS_KERNEL(shared_half_filled) {
    __shared__ uint32_t tile[64];
    if (threadIdx.x < 32) tile[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x];
    (void)state;
}

CORPUS_KERNEL(shared_filled) {
    __shared__ uint32_t tile[64];
    tile[63 - threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x];
    (void)state;
}

// The element that is read is another one than the one that is written, unless state says so.
CORPUS_KERNEL(local_not_filled) {
    volatile uint32_t stack[8];
    stack[in[threadIdx.x] & 3] = threadIdx.x;
    out[threadIdx.x] = stack[4 + (in[threadIdx.x] & 3)];
    (void)state;
}

CORPUS_KERNEL(local_filled) {
    volatile uint32_t stack[8];
    for (uint32_t i = 0; i < 8; ++i) stack[(in[threadIdx.x] + i) & 7] = i;
    out[threadIdx.x] = stack[in[threadIdx.x] & 7];
    (void)state;
}
