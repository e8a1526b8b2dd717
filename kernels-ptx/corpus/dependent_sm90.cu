// Launches that may begin before the one ahead of them has ended.
#include "corpus.cuh"

__device__ inline void wait() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

__device__ inline void let_next_begin() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// The launch ahead: reads `in`, writes `out`.
CORPUS_KERNEL(produces) {
    out[threadIdx.x] = in[threadIdx.x] + 1;
    let_next_begin();
    (void)state;
}

// `in` comes from elsewhere and may be read at once.
CORPUS_KERNEL(waits_before_it_reads) {
    uint32_t weight = in[threadIdx.x];
    wait();
    state[threadIdx.x] = out[threadIdx.x] * weight;
}

CORPUS_KERNEL(reads_before_it_waits) {
    uint32_t early = out[threadIdx.x];
    wait();
    state[threadIdx.x] = early + in[threadIdx.x];
}

CORPUS_KERNEL(writes_before_it_waits) {
    out[threadIdx.x] = in[threadIdx.x];
    wait();
    (void)state;
}

CORPUS_KERNEL(some_threads_never_wait) {
    if (in[threadIdx.x] % 32 > 5) return;
    wait();
    state[threadIdx.x] = out[threadIdx.x];
}

// No thread takes the path without a wait; another input would lead there.
CORPUS_KERNEL(a_path_without_a_wait) {
    if (in[threadIdx.x] > 5000) {
        state[threadIdx.x] = 1;
        return;
    }
    wait();
    state[threadIdx.x] = out[threadIdx.x];
}
