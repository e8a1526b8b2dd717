// Block-level pieces and rows of quads, for kernels in which a block reduces a whole row.
#pragma once
#include "bw_math.cuh"
#include "warp.cuh"

namespace bw {

// The first THREADS threads of the block wait for each other; the other warps go on.
template <uint32_t THREADS>
__device__ __forceinline__ void sync_first() {
  asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}

// Sum over the first THREADS threads of the block (a power of two of warps, at most 32), in each of them: a butterfly over each
// warp, then one over the warps' sums. `warp_sum` has a place a warp and may be used again only after another barrier.
template <uint32_t THREADS>
__device__ __forceinline__ float block_sum(float v, float* warp_sum) {
  constexpr uint32_t WARPS = THREADS / WARP;
  v = butterfly_sum<WARP>(v);
  if (lane_id() == 0) warp_sum[warp_id()] = v;
  sync_first<THREADS>();
  return butterfly_sum<WARPS>(warp_sum[threadIdx.x % WARPS]);
}

__device__ __forceinline__ float4 scaled(float a, float4 v) { return make_float4(a * v.x, a * v.y, a * v.z, a * v.w); }

__device__ __forceinline__ float4 fma4(float a, float4 v, float4 s) {
  return make_float4(fmaf(a, v.x, s.x), fmaf(a, v.y, s.y), fmaf(a, v.z, s.z), fmaf(a, v.w, s.w));
}

__device__ __forceinline__ float4 fma4(float4 a, float4 v, float4 s) {
  return make_float4(fmaf(a.x, v.x, s.x), fmaf(a.y, v.y, s.y), fmaf(a.z, v.z, s.z), fmaf(a.w, v.w, s.w));
}

// The four sums of a thread, in pairs.
__device__ __forceinline__ float folded(float4 s) { return (s.x + s.y) + (s.z + s.w); }

__device__ __forceinline__ float4 normalised(float4 v, float scale, float4 w) {
  return make_float4(v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w);
}

// Rows of float32, float16 and bfloat16 by quads of neighbours.
struct RowF32 {
  using Element = float;
  static __device__ __forceinline__ float4 quad(const float* row, uint32_t i) { return reinterpret_cast<const float4*>(row)[i]; }
  static __device__ __forceinline__ void store(float* row, uint32_t i, float4 v) { reinterpret_cast<float4*>(row)[i] = v; }
};

struct RowF16 {
  using Element = uint16_t;
  static __device__ __forceinline__ float4 quad(const uint16_t* row, uint32_t i) {
    const uint2 w = reinterpret_cast<const uint2*>(row)[i];
    return make_float4(f32_from_f16(static_cast<uint16_t>(w.x)), f32_from_f16(static_cast<uint16_t>(w.x >> 16)),
                       f32_from_f16(static_cast<uint16_t>(w.y)), f32_from_f16(static_cast<uint16_t>(w.y >> 16)));
  }
  static __device__ __forceinline__ void store(uint16_t* row, uint32_t i, float4 v) {
    const uint32_t low = f16_from_f32(v.x) | static_cast<uint32_t>(f16_from_f32(v.y)) << 16;
    const uint32_t high = f16_from_f32(v.z) | static_cast<uint32_t>(f16_from_f32(v.w)) << 16;
    reinterpret_cast<uint2*>(row)[i] = make_uint2(low, high);
  }
};

struct RowBF16 {
  using Element = uint16_t;
  static __device__ __forceinline__ float4 quad(const uint16_t* row, uint32_t i) {
    const uint2 w = reinterpret_cast<const uint2*>(row)[i];
    return make_float4(__uint_as_float(w.x << 16), __uint_as_float(w.x & 0xffff0000u), __uint_as_float(w.y << 16),
                       __uint_as_float(w.y & 0xffff0000u));
  }
};

}  // namespace bw
