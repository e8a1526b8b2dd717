// Root-mean-square norm of rows, and the block-scaled int16 quantisation, as launches of their own. A row a token: rows of x are
// x_stride apart, results are contiguous, and a row's bits do not depend on how many there are.
#include "bw_prototypes.cuh"
#include "dependent.cuh"
#include "norm.cuh"

using namespace bw;

extern "C" __global__ void __launch_bounds__(256) rms_norm(const float* x, const float* weight, float* y, uint32_t cols, float eps, uint32_t tokens, uint32_t x_stride) {
  dependent_begin();
  x += static_cast<uint64_t>(blockIdx.x) * x_stride;
  y += static_cast<uint64_t>(blockIdx.x) * cols;
  const float scale = inverse_rms(x, cols, eps);
  for (uint32_t i = threadIdx.x; i < cols / 4; i += NORM_LANES) {
    reinterpret_cast<float4*>(y)[i] =
        normalised(reinterpret_cast<const float4*>(x)[i], scale, reinterpret_cast<const float4*>(weight)[i]);
  }
}

extern "C" __global__ void __launch_bounds__(256) quantise_i16(const float* x, int16_t* q, float* scale, uint32_t cols, uint32_t tokens, uint32_t x_stride) {
  dependent_begin();
  x += static_cast<uint64_t>(blockIdx.y) * x_stride;
  q += static_cast<uint64_t>(blockIdx.y) * cols;
  scale += static_cast<uint64_t>(blockIdx.y) * (cols / 32);
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  const uint32_t quads = cols / 4;
  float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (i < quads) v = reinterpret_cast<const float4*>(x)[i];
  const float s = int16_scale(block_largest(v));
  if (i >= quads) return;
  reinterpret_cast<uint2*>(q)[i] = quantised_quad(v, s);
  if (i % 8 == 0) scale[i / 8] = s;
}
