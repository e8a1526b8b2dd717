// Greedy sampling on the device: the largest logit, the lowest index among equals. NaN never wins; a row of NaN gives 0.
#include "bw_prototypes.cuh"
#include "dependent.cuh"
#include "warp.cuh"

using namespace bw;

namespace bw {

constexpr uint32_t ARGMAX_THREADS = 256;
constexpr uint32_t NONE = 0xffffffffu;

struct Best {
  float value;
  uint32_t index;
};

__device__ __forceinline__ Best better(Best a, Best b) {
  const bool take = b.value > a.value || (b.value == a.value && b.index < a.index);
  return take ? b : a;
}

// The best of a block of ARGMAX_THREADS, in thread 0.
__device__ __forceinline__ Best block_best(Best best) {
  __shared__ Best warp_best[ARGMAX_THREADS / WARP];
#pragma unroll
  for (uint32_t step = 16; step != 0; step >>= 1) {
    const Best other = {__shfl_xor_sync(FULL_MASK, best.value, step), __shfl_xor_sync(FULL_MASK, best.index, step)};
    best = better(best, other);
  }
  if (lane_id() == 0) warp_best[warp_id()] = best;
  __syncthreads();
  if (threadIdx.x == 0) {
#pragma unroll
    for (uint32_t w = 1; w < ARGMAX_THREADS / WARP; ++w) best = better(best, warp_best[w]);
  }
  return best;
}

}  // namespace bw

// value[b], index[b] = the best of the b-th of gridDim.x equal runs of the vocabulary.
extern "C" __global__ void __launch_bounds__(256) argmax_partial(const float* logits, float* value, uint32_t* index, uint32_t vocab) {
  dependent_begin();
  const uint32_t run = (vocab + gridDim.x - 1) / gridDim.x;
  const uint32_t first = min(blockIdx.x * run, vocab), end = min(first + run, vocab);
  Best best = {__int_as_float(0xff800000), NONE};
  for (uint32_t i = first + threadIdx.x; i < end; i += ARGMAX_THREADS) {
    const float v = logits[i];
    best = better(best, {v, i});
  }
  best = block_best(best);
  if (threadIdx.x == 0) {
    value[blockIdx.x] = best.value;
    index[blockIdx.x] = best.index;
  }
}

// tokens[*position + 1] = the best of the parts; *position += 1.
extern "C" __global__ void __launch_bounds__(256) argmax_advance(const float* value, const uint32_t* index, uint32_t* tokens, uint32_t* position, uint32_t parts) {
  dependent_begin();
  Best best = {__int_as_float(0xff800000), NONE};
  for (uint32_t i = threadIdx.x; i < parts; i += ARGMAX_THREADS) best = better(best, {value[i], index[i]});
  best = block_best(best);
  if (threadIdx.x == 0) {
    const uint32_t next = *position + 1;
    tokens[next] = best.index == NONE ? 0 : best.index;
    *position = next;
  }
}

// *position += count: the prompt's walks, whose next tokens are known.
extern "C" __global__ void __launch_bounds__(32) advance(uint32_t* position, uint32_t count) {
  dependent_begin();
  if (threadIdx.x == 0) *position += count;
}
