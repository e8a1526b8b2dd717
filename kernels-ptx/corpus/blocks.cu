// Blocks of a launch that touch the same memory.
#include "corpus.cuh"

CORPUS_KERNEL(all_blocks_write_one_place) {
    out[threadIdx.x] = in[blockIdx.x];
    (void)state;
}

CORPUS_KERNEL(neighbour_block_reads) {
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t size = gridDim.x * blockDim.x;
    out[i] = in[i];
    state[i] = out[(i + blockDim.x) % size];
}

// Every block reads what the last one writes.
CORPUS_KERNEL(last_block_advances) {
    uint32_t position = state[0];
    out[blockIdx.x * blockDim.x + threadIdx.x] = in[position];
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) state[0] = position + 1;
}

CORPUS_KERNEL(one_counter) {
    atomicAdd(&state[0], in[threadIdx.x]);
    (void)out;
}

CORPUS_KERNEL(counter_read_plainly) {
    atomicAdd(&state[0], in[threadIdx.x]);
    out[blockIdx.x * blockDim.x + threadIdx.x] = *const_cast<const uint32_t*>(state);
}

CORPUS_KERNEL(bytes_of_global_words) {
    uint8_t* bytes = reinterpret_cast<uint8_t*>(out);
    bytes[threadIdx.x * gridDim.x + blockIdx.x] = static_cast<uint8_t>(in[threadIdx.x]);
    (void)state;
}

// A fold by the last block to arrive, as it is right, and without what makes it right.
template <bool FENCE, bool BARRIER>
__device__ void fold(const uint32_t* in, uint32_t* out, uint32_t* state) {
    __shared__ bool last;
    out[blockIdx.x * blockDim.x + threadIdx.x] = in[threadIdx.x] * (blockIdx.x + 1);
    if (FENCE) __threadfence();
    if (BARRIER) __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(&state[0], 1u) == gridDim.x - 1;
    __syncthreads();
    if (!last) return;
    uint32_t sum = 0;
    for (uint32_t block = 0; block < gridDim.x; ++block) sum += out[block * blockDim.x + 63 - threadIdx.x];
    state[1 + threadIdx.x] = sum;
}

CORPUS_KERNEL(last_block_fold) {
    fold<true, true>(in, out, state);
}

CORPUS_KERNEL(last_block_fold_without_fence) {
    fold<false, true>(in, out, state);
}

CORPUS_KERNEL(last_block_fold_without_barrier) {
    fold<true, false>(in, out, state);
}

// A barrier of the whole grid, for cooperative launches.
template <bool FENCE>
__device__ void grid_barrier(uint32_t* counter) {
    __syncthreads();
    if (threadIdx.x == 0) {
        if (FENCE) __threadfence();
        atomicAdd(counter, 1u);
        uint32_t arrived;
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(arrived) : "l"(counter) : "memory");
        } while (arrived < gridDim.x);
    }
    __syncthreads();
}

template <bool FENCE>
__device__ void exchange(const uint32_t* in, uint32_t* out, uint32_t* state) {
    uint32_t size = gridDim.x * blockDim.x;
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i];
    grid_barrier<FENCE>(&state[0]);
    state[1 + i] = out[size - 1 - i];
}

CORPUS_KERNEL(grid_barrier_with_fence) {
    exchange<true>(in, out, state);
}

CORPUS_KERNEL(grid_barrier_without_fence) {
    exchange<false>(in, out, state);
}

// The first block passes a message to the second, for cooperative launches.
CORPUS_KERNEL(release_and_acquire) {
    if (threadIdx.x != 0) return;
    if (blockIdx.x == 0) {
        out[0] = in[0] + 7;
        asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(&state[0]), "r"(1u) : "memory");
    } else if (blockIdx.x == 1) {
        uint32_t flag;
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(flag) : "l"(&state[0]) : "memory");
        } while (flag == 0);
        out[1] = out[0];
    }
}

CORPUS_KERNEL(relaxed_flag) {
    if (threadIdx.x != 0) return;
    if (blockIdx.x == 0) {
        out[0] = in[0] + 7;
        asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(&state[0]), "r"(1u) : "memory");
    } else if (blockIdx.x == 1) {
        uint32_t flag;
        do {
            asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(flag) : "l"(&state[0]) : "memory");
        } while (flag == 0);
        out[1] = out[0];
    }
}

// Warps of one block that meet in global memory.
template <bool BARRIER>
__device__ void reverse(const uint32_t* in, uint32_t* out, uint32_t* state) {
    out[threadIdx.x] = in[threadIdx.x];
    if (BARRIER) __syncthreads();
    state[threadIdx.x] = out[blockDim.x - 1 - threadIdx.x];
}

CORPUS_KERNEL(global_reverse_with_barrier) {
    reverse<true>(in, out, state);
}

CORPUS_KERNEL(global_reverse_without_barrier) {
    reverse<false>(in, out, state);
}
