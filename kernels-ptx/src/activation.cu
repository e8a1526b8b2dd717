// The gate of a feed-forward network, where gate and up projections are separate.
#include "bw_math.cuh"
#include "bw_prototypes.cuh"

// y[i] = silu(gate[i]) · up[i]
extern "C" __global__ void __launch_bounds__(256) swiglu(const float* gate, const float* up, float* y, uint32_t n) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = bw::silu(gate[i]) * up[i];
}
