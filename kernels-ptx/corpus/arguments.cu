// What a launch declares about its arguments.
#include "corpus.cuh"

CORPUS_KERNEL(writes_its_input) {
    const_cast<uint32_t*>(in)[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = 0;
    (void)state;
}

CORPUS_KERNEL(reads_its_output) {
    out[threadIdx.x] += in[threadIdx.x];
    (void)state;
}

CORPUS_KERNEL(reads_back_its_output) {
    volatile uint32_t* result = out;
    result[threadIdx.x] = in[threadIdx.x];
    result[threadIdx.x] = result[threadIdx.x] + 1;
    (void)state;
}

// Two words beyond the 256 that the launch gives it of the buffer.
CORPUS_KERNEL(writes_beside_its_argument) {
    out[threadIdx.x + 2] = in[threadIdx.x];
    (void)state;
}

CORPUS_KERNEL(writes_its_argument) {
    out[threadIdx.x] = in[threadIdx.x];
    (void)state;
}
