// The activation of a gated feed-forward network.
#pragma once
#include "bw_math.cuh"

namespace bw {

// silu(min(gate, limit)) · clamp(up, −limit, limit). The gate is bounded from above only, and before silu. A limit of +inf changes
// nothing, and NaN stays NaN: the comparisons are false for it.
__device__ __forceinline__ float swiglu(float gate, float up, float limit) {
  const float g = gate > limit ? limit : gate;
  const float u = up > limit ? limit : (up < -limit ? -limit : up);
  return silu(g) * u;
}

}  // namespace bw
