// Root-mean-square norm of rows, and the block-scaled int16 quantisation of what feeds the linear layers. A row a token: rows of x
// are x_stride apart, results are contiguous, and a row's bits do not depend on how many there are.
#include "bw_prototypes.cuh"
#include "warp.cuh"

using namespace bw;

namespace bw {

constexpr uint32_t NORM_THREADS = 256;

// 1 / sqrt(mean(x²) + eps), in every thread of a block of NORM_THREADS. A thread squares its quads of columns in turn into four
// sums, folds them pairwise, then butterflies over the warp and over the warps.
__device__ __forceinline__ float inverse_rms(const float* x, uint32_t cols, float eps) {
  __shared__ float warp_sum[NORM_THREADS / WARP];
  float4 s = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  for (uint32_t i = threadIdx.x; i < cols / 4; i += NORM_THREADS) {
    const float4 v = reinterpret_cast<const float4*>(x)[i];
    s.x = fmaf(v.x, v.x, s.x);
    s.y = fmaf(v.y, v.y, s.y);
    s.z = fmaf(v.z, v.z, s.z);
    s.w = fmaf(v.w, v.w, s.w);
  }
  const float sum = butterfly_sum<WARP>((s.x + s.y) + (s.z + s.w));
  if (lane_id() == 0) warp_sum[warp_id()] = sum;
  __syncthreads();
  const float total = butterfly_sum<NORM_THREADS / WARP>(warp_sum[threadIdx.x % (NORM_THREADS / WARP)]);
  return 1.0f / sqrtf(total / static_cast<float>(cols) + eps);
}

__device__ __forceinline__ float4 normalised(float4 v, float scale, float4 w) {
  return make_float4(v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w);
}

__device__ __forceinline__ uint32_t magnitude(float v) { return __float_as_uint(v) & 0x7fffffffu; }

__device__ __forceinline__ int32_t quantised(float v, float scale) {
  return min(max(__float2int_rn(v / scale), -32767), 32767);
}

// Quantises the quad `i` of a row; the eight threads of a block of 32 columns are neighbours in a warp, and all of the warp must
// call. The largest magnitude is taken on the bits, where infinities and NaN are largest: they reach the scale, and through it
// every product, instead of vanishing in the integers. A block of zeros has scale 0.
__device__ __forceinline__ void quantise_quad(float4 v, uint32_t i, uint32_t quads, int16_t* q, float* scale) {
  uint32_t largest = max(max(magnitude(v.x), magnitude(v.y)), max(magnitude(v.z), magnitude(v.w)));
  largest = max(largest, __shfl_xor_sync(FULL_MASK, largest, 4));
  largest = max(largest, __shfl_xor_sync(FULL_MASK, largest, 2));
  largest = max(largest, __shfl_xor_sync(FULL_MASK, largest, 1));
  if (i >= quads) return;
  const float s = __uint_as_float(largest) / 32512.0f;
  int32_t a = 0, b = 0, c = 0, d = 0;
  if (s != 0.0f) {
    a = quantised(v.x, s);
    b = quantised(v.y, s);
    c = quantised(v.z, s);
    d = quantised(v.w, s);
  }
  const uint32_t low = (static_cast<uint32_t>(a) & 0xffffu) | (static_cast<uint32_t>(b) << 16);
  const uint32_t high = (static_cast<uint32_t>(c) & 0xffffu) | (static_cast<uint32_t>(d) << 16);
  reinterpret_cast<uint2*>(q)[i] = make_uint2(low, high);
  if (i % 8 == 0) scale[i / 8] = s;
}

}  // namespace bw

extern "C" __global__ void __launch_bounds__(256) rms_norm(const float* x, const float* weight, float* y, uint32_t cols, float eps, uint32_t tokens, uint32_t x_stride) {
  x += static_cast<uint64_t>(blockIdx.x) * x_stride;
  y += static_cast<uint64_t>(blockIdx.x) * cols;
  const float scale = inverse_rms(x, cols, eps);
  for (uint32_t i = threadIdx.x; i < cols / 4; i += NORM_THREADS) {
    reinterpret_cast<float4*>(y)[i] =
        normalised(reinterpret_cast<const float4*>(x)[i], scale, reinterpret_cast<const float4*>(weight)[i]);
  }
}

extern "C" __global__ void __launch_bounds__(256) rms_norm_i16(const float* x, const float* weight, int16_t* q, float* scale, uint32_t cols, float eps, uint32_t tokens, uint32_t x_stride) {
  x += static_cast<uint64_t>(blockIdx.x) * x_stride;
  q += static_cast<uint64_t>(blockIdx.x) * cols;
  scale += static_cast<uint64_t>(blockIdx.x) * (cols / 32);
  const float inverse = inverse_rms(x, cols, eps);
  const uint32_t quads = cols / 4;
  for (uint32_t base = threadIdx.x & ~31u; base < quads; base += NORM_THREADS) {
    const uint32_t i = base + lane_id();
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (i < quads)
      v = normalised(reinterpret_cast<const float4*>(x)[i], inverse, reinterpret_cast<const float4*>(weight)[i]);
    quantise_quad(v, i, quads, q, scale);
  }
}

extern "C" __global__ void __launch_bounds__(256) quantise_i16(const float* x, int16_t* q, float* scale, uint32_t cols, uint32_t tokens, uint32_t x_stride) {
  x += static_cast<uint64_t>(blockIdx.y) * x_stride;
  q += static_cast<uint64_t>(blockIdx.y) * cols;
  scale += static_cast<uint64_t>(blockIdx.y) * (cols / 32);
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  const uint32_t quads = cols / 4;
  float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (i < quads) v = reinterpret_cast<const float4*>(x)[i];
  quantise_quad(v, i, quads, q, scale);
}
