// Warp-level pieces whose order of summation is part of the numeric contract.
#pragma once
#include <stdint.h>

namespace bw {

constexpr uint32_t FULL_MASK = 0xffffffffu;
constexpr uint32_t WARP = 32;

__device__ __forceinline__ uint32_t lane_id() { return threadIdx.x & 31u; }
__device__ __forceinline__ uint32_t warp_id() { return threadIdx.x >> 5; }

// Butterfly over groups of LANES neighbours (a power of two), widest step first: every lane ends with the same bits.
template <uint32_t LANES>
__device__ __forceinline__ float butterfly_sum(float v) {
#pragma unroll
  for (uint32_t step = LANES / 2; step != 0; step >>= 1) v += __shfl_xor_sync(FULL_MASK, v, step);
  return v;
}

template <uint32_t LANES>
__device__ __forceinline__ float butterfly_max(float v) {
#pragma unroll
  for (uint32_t step = LANES / 2; step != 0; step >>= 1) v = fmaxf(v, __shfl_xor_sync(FULL_MASK, v, step));
  return v;
}

// (a & MASK) | BITS in one instruction, as the bits of a float. PTX lets a 32-bit untyped instruction write a float register.
template <uint32_t MASK, uint32_t BITS>
__device__ __forceinline__ float float_and_or(uint32_t a) {
  float f;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=f"(f) : "r"(a), "n"(MASK), "n"(BITS));
  return f;
}

// The bytes of {a, b} that SELECTOR names, as the bits of a float.
template <uint32_t SELECTOR>
__device__ __forceinline__ float float_from_bytes(uint32_t a, uint32_t b) {
  float f;
  asm("prmt.b32 %0, %1, %2, %3;" : "=f"(f) : "r"(a), "r"(b), "n"(SELECTOR));
  return f;
}

// The bytes of {a, b} that four nibbles of `selector` name by three bits; the fourth repeats the byte's top bit (__byte_perm lacks it).
__device__ __forceinline__ uint32_t permuted(uint32_t a, uint32_t b, uint32_t selector) {
  uint32_t bytes;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(a), "r"(b), "r"(selector));
  return bytes;
}

__device__ __forceinline__ int32_t dp2a_lo(uint32_t a, uint32_t b, int32_t c) {
  int32_t d;
  asm("dp2a.lo.s32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

__device__ __forceinline__ int32_t dp2a_hi(uint32_t a, uint32_t b, int32_t c) {
  int32_t d;
  asm("dp2a.hi.s32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

}  // namespace bw
