// The root-mean-square norm and the block-scaled int16 quantisation, as launches of their own (norm.cu) and in the prologue of the
// products that read their results (rows.cuh): the same steps, so the same bits.
#pragma once
#include "block.cuh"

namespace bw {

constexpr uint32_t NORM_LANES = 256;  // that add up squares: the first of a block of at least as many threads

// 1 / sqrt(mean(x²) + eps), in every thread of a block. Each of NORM_LANES lanes squares its quads of columns in turn into four sums and
// folds them pairwise; butterflies over the lanes of each warp, and over the warps, follow.
__device__ __forceinline__ float4 squares(float4 v, float4 s) {
  return make_float4(fmaf(v.x, v.x, s.x), fmaf(v.y, v.y, s.y), fmaf(v.z, v.z, s.z), fmaf(v.w, v.w, s.w));
}

// The sums of NORM_LANES lanes, the block's first, folded and made into the inverse root. Every thread of the block calls.
__device__ __forceinline__ float inverse_rms_folded(float4 s, uint32_t cols, float eps) {
  constexpr uint32_t GROUPS = NORM_LANES / WARP;
  __shared__ float group_sum[GROUPS];
  if (threadIdx.x < NORM_LANES) {
    const float sum = butterfly_sum<WARP>((s.x + s.y) + (s.z + s.w));
    if (lane_id() == 0) group_sum[warp_id()] = sum;
  }
  __syncthreads();
  const float total = butterfly_sum<GROUPS>(group_sum[threadIdx.x % GROUPS]);
  return 1.0f / sqrtf(total / static_cast<float>(cols) + eps);
}

// Of a row in memory.
__device__ __forceinline__ float inverse_rms(const float* x, uint32_t cols, float eps) {
  float4 s = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (threadIdx.x < NORM_LANES) {
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < cols / 4; i += NORM_LANES) s = squares(reinterpret_cast<const float4*>(x)[i], s);
  }
  return inverse_rms_folded(s, cols, eps);
}

__device__ __forceinline__ uint32_t magnitude(float v) { return __float_as_uint(v) & 0x7fffffffu; }

// The largest magnitude (its bits) of a block of 32 columns, of which eight neighbouring lanes have a quad each. On the bits,
// infinities and NaN are largest: they reach the scale, and through it every product, instead of vanishing in the integers.
__device__ __forceinline__ uint32_t block_largest(float4 v) {
  uint32_t largest = max(max(magnitude(v.x), magnitude(v.y)), max(magnitude(v.z), magnitude(v.w)));
  largest = max(largest, __shfl_xor_sync(FULL_MASK, largest, 4));
  largest = max(largest, __shfl_xor_sync(FULL_MASK, largest, 2));
  return max(largest, __shfl_xor_sync(FULL_MASK, largest, 1));
}

// The scale of a block's int16s. 0, and with it all values, where it would be below the normal range (largest magnitudes below 4e-34):
// its reciprocal would overflow.
__device__ __forceinline__ float int16_scale(uint32_t largest) {
  const float scale = __uint_as_float(largest) / 32512.0f;
  return scale < 1.17549435e-38f ? 0.0f : scale;
}

__device__ __forceinline__ uint32_t quantised(float v, float reciprocal) {
  return static_cast<uint32_t>(min(max(__float2int_rn(v * reciprocal), -32767), 32767));
}

__device__ __forceinline__ uint2 quantised_quad(float4 v, float scale) {
  const float r = scale == 0.0f ? 0.0f : 1.0f / scale;
  return make_uint2((quantised(v.x, r) & 0xffffu) | quantised(v.y, r) << 16, (quantised(v.z, r) & 0xffffu) | quantised(v.w, r) << 16);
}

}  // namespace bw
