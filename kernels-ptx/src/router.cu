// The router of a layer of experts: which experts a token goes to, and with what weights.
#include "bw_math.cuh"
#include "bw_prototypes.cuh"
#include "dependent.cuh"
#include "warp.cuh"

using namespace bw;

namespace bw {

constexpr uint32_t MAX_EXPERTS = 1024;  // a thread each
constexpr uint32_t NO_EXPERT = 0xffffffffu;

// Floats in order as unsigned integers from 0x007fffff for -inf on; NaN is 0, below all.
__device__ __forceinline__ uint32_t ordered(float v) {
  const uint32_t bits = __float_as_uint(v);
  return v != v ? 0u : bits ^ ((bits >> 31) != 0 ? 0xffffffffu : 0x80000000u);
}

}  // namespace bw

// Block a token, thread an expert. s = sigmoid(logit); an expert is chosen when fewer than k have a larger s + bias, or an equal one and
// a lower id. Chosen ids are listed ascending, with s · scaling or, normalised, s / (Σ s + 1e-20) · scaling, the sum in that order.
// Places that no expert is left for hold NO_EXPERT and NaN.
extern "C" __global__ void __launch_bounds__(1024) router_topk(const float* logits, const float* bias, uint32_t* ids, float* weights, uint32_t experts, uint32_t k, float scaling, uint32_t normalise, uint32_t tokens) {
  __shared__ __align__(16) uint32_t keys[MAX_EXPERTS];
  __shared__ float chosen[MAX_EXPERTS];
  __shared__ uint32_t warp_count[MAX_EXPERTS / WARP];
  __shared__ float divisor;
  const uint32_t e = threadIdx.x;
  const bool expert = e < experts;
  const float own_bias = expert ? bias[e] : 0.0f;
  dependent_begin();
  const float s = expert ? bw::sigmoid(logits[static_cast<uint64_t>(blockIdx.x) * experts + e]) : 0.0f;
  const uint32_t key = expert ? ordered(s + own_bias) : 0u;  // a place past the experts is the last of the lowest
  keys[e] = key;
  __syncthreads();

  uint32_t rank = 0;
  for (uint32_t first = 0; first < blockDim.x; first += 4) {
    const uint4 other = *reinterpret_cast<const uint4*>(&keys[first]);
    // An equal one counts when it is before e.
    rank += other.x >= key + (first >= e ? 1u : 0u) ? 1u : 0u;
    rank += other.y >= key + (first + 1 >= e ? 1u : 0u) ? 1u : 0u;
    rank += other.z >= key + (first + 2 >= e ? 1u : 0u) ? 1u : 0u;
    rank += other.w >= key + (first + 3 >= e ? 1u : 0u) ? 1u : 0u;
  }
  const bool mine = expert && rank < k;
  const uint32_t votes = __ballot_sync(FULL_MASK, mine);
  if (lane_id() == 0) warp_count[warp_id()] = __popc(votes);
  __syncthreads();
  uint32_t place = __popc(votes & ((1u << lane_id()) - 1u));
  for (uint32_t w = 0; w < warp_id(); ++w) place += warp_count[w];
  const uint64_t row = static_cast<uint64_t>(blockIdx.x) * k;
  if (mine) {
    chosen[place] = s;
    ids[row + place] = e;
  }
  __syncthreads();

  const uint32_t count = min(k, experts);
  if (threadIdx.x == 0) {
    float sum = 0.0f;
    for (uint32_t i = 0; i < count; ++i) sum += chosen[i];
    divisor = sum + 1e-20f;
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < k; i += blockDim.x) {
    if (i < count) {
      weights[row + i] = (normalise != 0 ? chosen[i] / divisor : chosen[i]) * scaling;
    } else {
      weights[row + i] = __int_as_float(0x7fffffff);
      ids[row + i] = NO_EXPERT;
    }
  }
}
