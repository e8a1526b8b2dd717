// Synthetic weights: element i is a function of its tensor's key and of i, in 32-bit integers and IEEE arithmetic alone, so that the
// CPU makes the same bits (engine/src/format/synthetic/hash.rs). One thread an element.
#include "bw_math.cuh"
#include "bw_prototypes.cuh"

using namespace bw;

namespace bw {

// Two rounds of finalisers: MurmurHash3's of the counter and k0, lowbias32 of that and k1.
__device__ __forceinline__ uint32_t counter_hash(uint32_t i, uint32_t k0, uint32_t k1) {
  uint32_t x = i * 0x9e3779b1u + k0;
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  x = (x ^ (x >> 16)) + k1;
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

// An odd integer of at most 24 bits, exact in float32, times the scale, plus the offset; each rounded.
__device__ __forceinline__ float spread(uint32_t i, uint32_t k0, uint32_t k1, float scale, float offset) {
  const int32_t v = static_cast<int32_t>(2 * (counter_hash(i, k0, k1) >> 8)) + 1 - (1 << 24);
  return static_cast<float>(v) * scale + offset;
}

// Round to nearest even; the values are finite.
__device__ __forceinline__ uint16_t bf16_from_f32(float f) {
  const uint32_t bits = __float_as_uint(f);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace bw

extern "C" __global__ void __launch_bounds__(256) fill_words(uint32_t* out, uint32_t k0, uint32_t k1, uint32_t mask, uint32_t base, uint32_t n) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = base + (counter_hash(i, k0, k1) & mask);
}

extern "C" __global__ void __launch_bounds__(256) fill_f32(float* out, uint32_t k0, uint32_t k1, float scale, float offset, uint32_t n) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = spread(i, k0, k1, scale, offset);
}

extern "C" __global__ void __launch_bounds__(256) fill_f16(uint16_t* out, uint32_t k0, uint32_t k1, float scale, float offset, uint32_t n) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = f16_from_f32(spread(i, k0, k1, scale, offset));
}

extern "C" __global__ void __launch_bounds__(256) fill_bf16(uint16_t* out, uint32_t k0, uint32_t k1, float scale, float offset, uint32_t n) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = bf16_from_f32(spread(i, k0, k1, scale, offset));
}
