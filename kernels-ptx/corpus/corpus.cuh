// What the corpus shares. Each kernel does on purpose what a checker must catch, or what looks like it and is right.
// All have one signature: `in` is declared read-only; `out` and `state` as the table of cases says
// (gates/src/checkers/cases.rs). Buffers have 1024 words.
#pragma once

#include <cstdint>

#define CORPUS_KERNEL(name) \
    extern "C" __global__ void name(const uint32_t* in, uint32_t* out, uint32_t* state)

// A use that the compiler cannot leave out.
__device__ inline void keep(uint32_t value) {
    asm volatile("" ::"r"(value));
}
