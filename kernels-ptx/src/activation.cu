// The gate of a feed-forward network, where gate and up projections are separate.
#include "bw_prototypes.cuh"
#include "dependent.cuh"
#include "swiglu.cuh"

// y[t, i] = silu(min(gate[t, i], limit)) · clamp(up[t, i], ±limit); rows of gate and up are x_stride apart.
extern "C" __global__ void __launch_bounds__(256) swiglu(const float* gate, const float* up, float* y, uint32_t n, float limit, uint32_t tokens, uint32_t x_stride) {
  bw::dependent_begin();
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  const uint64_t token = blockIdx.y;
  if (i < n) y[token * n + i] = bw::swiglu(gate[token * x_stride + i], up[token * x_stride + i], limit);
}
