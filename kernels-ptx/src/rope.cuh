// Rotary embedding of a pair of elements, as a launch of its own (attention.cu) and behind the projections (products.cuh).
#pragma once
#include "bw_math.cuh"

namespace bw {

struct Rotation {
  float sine, cosine;
};

// The angle is a float32 product, as in the models' own code.
__device__ __forceinline__ Rotation rotation_at(uint32_t position, float inv_freq) {
  Rotation r;
  bw::sincos(static_cast<float>(position) * inv_freq, r.sine, r.cosine);
  return r;
}

__device__ __forceinline__ void rotate(Rotation r, float& a, float& b) {
  const float rotated_a = fmaf(a, r.cosine, -(b * r.sine)), rotated_b = fmaf(b, r.cosine, a * r.sine);
  a = rotated_a;
  b = rotated_b;
}

}  // namespace bw
