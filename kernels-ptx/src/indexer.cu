// The indexer of sparse attention: keys pooled as pools of neighbouring tokens complete, the pools' scores for a query, and the
// selection of the best, all from the position on the device.
#include "block.cuh"
#include "bw_prototypes.cuh"
#include "dependent.cuh"

using namespace bw;

namespace bw {

constexpr uint32_t MAX_APPEND_DIM = 1024;
constexpr uint32_t SCORE_WARPS = 8;     // of an indexer_scores block
constexpr uint32_t POOLS = 4;           // of a warp, which share the queries' way from shared memory
constexpr uint32_t MAX_SCORE_DIM = 512;
constexpr uint32_t QUADS = MAX_SCORE_DIM / 4 / WARP;  // of a key, a lane
constexpr uint32_t SELECT_THREADS = 1024;

extern __shared__ __align__(16) float staged[];  // of indexer_scores: the heads' weights, and their queries [heads, dim]

// Sum over a block of whole warps: a butterfly over each, and then the warps in order.
__device__ __forceinline__ float whole_sum(float v, float* warp_sum) {
  v = butterfly_sum<WARP>(v);
  if (lane_id() == 0) warp_sum[warp_id()] = v;
  __syncthreads();
  float sum = warp_sum[0];
  for (uint32_t w = 1; w < blockDim.x / WARP; ++w) sum += warp_sum[w];
  return sum;
}

// The sum over the warp of each of four values, v[2 · b + a] in the lanes whose bits 4 and 3 are b and a, and with the bits that
// butterfly_sum gives: halves of the values cross with halves of the lanes, so that six shuffles do for twenty.
__device__ __forceinline__ float scattered_sum(const float (&v)[POOLS]) {
  const bool high = (lane_id() & 16) != 0, odd = (lane_id() & 8) != 0;
  const float even_sum = (high ? v[2] : v[0]) + __shfl_xor_sync(FULL_MASK, high ? v[0] : v[2], 16);
  const float odd_sum = (high ? v[3] : v[1]) + __shfl_xor_sync(FULL_MASK, high ? v[1] : v[3], 16);
  float s = (odd ? odd_sum : even_sum) + __shfl_xor_sync(FULL_MASK, odd ? even_sum : odd_sum, 8);
  s += __shfl_xor_sync(FULL_MASK, s, 4);
  s += __shfl_xor_sync(FULL_MASK, s, 2);
  s += __shfl_xor_sync(FULL_MASK, s, 1);
  return s;
}

// Keys order as scores do: NaN is the lowest, below −∞, and −0 is 0.
__device__ __forceinline__ uint32_t key_of(float v) {
  if (v != v) return 0;
  const uint32_t bits = __float_as_uint(v == 0.0f ? 0.0f : v);
  return bits ^ (static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31) | 0x80000000u);
}

// Of the keys of n scores: the one of rank `wanted` from the top, and how many of those equal to it are among the `wanted`.
// Eight bits of the key at a time. Every thread of a block of SELECT_THREADS calls, and gets both.
struct Cut {
  uint32_t key, ties;
};

__device__ __forceinline__ Cut find_cut(const float* scores, uint32_t n, uint32_t wanted) {
  __shared__ uint32_t bins[256];
  __shared__ uint32_t digit, left;
  uint32_t prefix = 0;
#pragma unroll 1
  for (int32_t shift = 24; shift >= 0; shift -= 8) {
    if (threadIdx.x < 256) bins[threadIdx.x] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n; i += SELECT_THREADS) {
      const uint32_t key = key_of(scores[i]);
      if (shift == 24 || ((key ^ prefix) >> (shift + 8)) == 0) atomicAdd(&bins[key >> shift & 255u], 1u);
    }
    __syncthreads();
    if (warp_id() == 0) {
      // Lane l has the eight digits from 255 − 8·l down.
      const uint32_t first = 255 - 8 * lane_id();
      uint32_t own = 0;
      for (uint32_t b = 0; b < 8; ++b) own += bins[first - b];
      uint32_t scanned = own;
#pragma unroll
      for (uint32_t step = 1; step != WARP; step <<= 1) {
        const uint32_t below = __shfl_up_sync(FULL_MASK, scanned, step);
        if (lane_id() >= step) scanned += below;
      }
      uint32_t before = scanned - own;
      if (before < wanted && wanted <= scanned) {
        uint32_t found = first;
        while (before + bins[found] < wanted) before += bins[found--];
        digit = found;
        left = wanted - before;
      }
    }
    __syncthreads();
    prefix |= digit << shift;
    wanted = left;
    __syncthreads();
  }
  return {prefix, wanted};
}

}  // namespace bw

// For each token of the chunk: its key, LayerNorm(k) · k_weight + k_bias, and its gate to their rings' slots (position mod
// kpool); and where it completes a pool, the pool's key, Σ_t softmax_t(gate_t + ape[t]) · k_t, a softmax for each channel, sums in
// order of t. One block, a thread a channel, token after token. Mean and variance are sums over the block: warps, then warps in
// order.
extern "C" __global__ void __launch_bounds__(1024) indexer_append(const float* k, const float* gate, const float* k_weight, const float* k_bias, const float* ape, float* k_ring, float* gate_ring, float* pool_keys, const uint32_t* position, uint32_t dim, uint32_t kpool, float eps, uint32_t tokens, uint32_t x_stride) {
  __shared__ float sums[MAX_APPEND_DIM / WARP];
  __shared__ float squares[MAX_APPEND_DIM / WARP];
  const uint32_t c = threadIdx.x;
  const float weight = k_weight[c], bias = k_bias[c], count = static_cast<float>(dim);
  dependent_begin();
  const uint32_t first = *position;
  for (uint32_t token = 0; token < tokens; ++token) {
    const uint64_t row = static_cast<uint64_t>(token) * x_stride;
    const uint32_t at = first + token, slot = at % kpool;
    const float x = k[row + c];
    const float centred = x - whole_sum(x, sums) / count;
    const float variance = whole_sum(centred * centred, squares) / count;
    k_ring[slot * dim + c] = fmaf(centred * (1.0f / sqrtf(variance + eps)), weight, bias);
    gate_ring[slot * dim + c] = gate[row + c];
    if (slot + 1 == kpool) {
      float largest = __int_as_float(0xff800000);
      for (uint32_t t = 0; t < kpool; ++t) largest = fmaxf(largest, gate_ring[t * dim + c] + ape[t * dim + c]);
      float sum = 0.0f, weighted = 0.0f;
      for (uint32_t t = 0; t < kpool; ++t) {
        const float w = bw::exp(gate_ring[t * dim + c] + ape[t * dim + c] - largest);
        sum += w;
        weighted = fmaf(w, k_ring[t * dim + c], weighted);
      }
      pool_keys[static_cast<uint64_t>(at / kpool) * dim + c] = weighted / sum;
    }
  }
}

// scores[token, p] = Σ_h (weights[h] · heads^-½) · relu(q[h] · pool_keys[p] · dim^-½) over the heads in order, for the pools that
// are complete at the token. Block (32 pools, token), a warp four pools: a lane takes quads 32 apart of a key, its chain over them,
// in order, and a butterfly give the product.
extern "C" __global__ void __launch_bounds__(256) indexer_scores(const float* q, const float* weights, const float* pool_keys, const uint32_t* position, float* scores, uint32_t heads, uint32_t dim, uint32_t kpool, uint32_t max_pools, uint32_t tokens, uint32_t w_stride) {
  dependent_begin();
  const uint32_t token = blockIdx.y, lane = lane_id(), quads = dim / 4;
  const uint32_t complete = (*position + token + 1) / kpool;
  if (blockIdx.x * SCORE_WARPS * POOLS >= complete) return;
  const float share = 1.0f / sqrtf(static_cast<float>(heads)), scale = 1.0f / sqrtf(static_cast<float>(dim));
  float* queries = staged + (heads + 3) / 4 * 4;
  for (uint32_t h = threadIdx.x; h < heads; h += SCORE_WARPS * WARP)
    staged[h] = weights[static_cast<uint64_t>(token) * w_stride + h] * share;
  for (uint32_t i = threadIdx.x; i < heads * quads; i += SCORE_WARPS * WARP)
    RowF32::store(queries, i, RowF32::quad(q + static_cast<uint64_t>(token) * heads * dim, i));
  __syncthreads();
  const uint32_t pool0 = (blockIdx.x * SCORE_WARPS + warp_id()) * POOLS;
  if (pool0 >= complete) return;
  const float4 zeros = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  float4 key[POOLS][QUADS];
#pragma unroll
  for (uint32_t p = 0; p < POOLS; ++p) {
    const float* row = pool_keys + static_cast<uint64_t>(min(pool0 + p, complete - 1)) * dim;
#pragma unroll
    for (uint32_t u = 0; u < QUADS; ++u) key[p][u] = lane + u * WARP < quads ? RowF32::quad(row, lane + u * WARP) : zeros;
  }
  float score = 0.0f;
#pragma unroll 2
  for (uint32_t h = 0; h < heads; ++h) {
    float dot[POOLS] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (uint32_t u = 0; u < QUADS; ++u) {
      if (u * WARP < quads) {
        const float4 a = lane + u * WARP < quads ? RowF32::quad(queries + h * dim, lane + u * WARP) : zeros;
#pragma unroll
        for (uint32_t p = 0; p < POOLS; ++p) {
          dot[p] = fmaf(a.x, key[p][u].x, dot[p]);
          dot[p] = fmaf(a.y, key[p][u].y, dot[p]);
          dot[p] = fmaf(a.z, key[p][u].z, dot[p]);
          dot[p] = fmaf(a.w, key[p][u].w, dot[p]);
        }
      }
    }
    const float product = scattered_sum(dot) * scale;
    score = fmaf(staged[h], product < 0.0f ? 0.0f : product, score);  // NaN stays
  }
  const uint32_t pool = pool0 + (lane >> 4) * 2 + (lane >> 3 & 1);
  if (lane % 8 == 0 && pool < complete) scores[static_cast<uint64_t>(token) * max_pools + pool] = score;
}

// The pools of a token's selection, ascending, and how many: all complete ones where they are no more than `top`, else the `top`
// with the highest scores, of equal ones the first, NaN the lowest. A block a token.
extern "C" __global__ void __launch_bounds__(1024) indexer_select(const float* scores, const uint32_t* position, uint32_t* pools, uint32_t* count, uint32_t kpool, uint32_t top, uint32_t max_pools, uint32_t tokens) {
  dependent_begin();
  __shared__ uint32_t warp_above[SELECT_THREADS / WARP];
  __shared__ uint32_t warp_ties[SELECT_THREADS / WARP];
  const uint32_t token = blockIdx.x;
  const uint32_t complete = (*position + token + 1) / kpool;
  const float* own = scores + static_cast<uint64_t>(token) * max_pools;
  uint32_t* out = pools + static_cast<uint64_t>(token) * top;
  if (threadIdx.x == 0) count[token] = min(complete, top);
  if (complete <= top) {
    for (uint32_t i = threadIdx.x; i < complete; i += SELECT_THREADS) out[i] = i;
    return;
  }
  const Cut cut = find_cut(own, complete, top);
  const uint32_t lower = (1u << lane_id()) - 1;
  uint32_t above = 0, ties = 0;  // before this turn
  for (uint32_t base = 0; base < complete; base += SELECT_THREADS) {
    const uint32_t i = base + threadIdx.x;
    const uint32_t key = i < complete ? key_of(own[i]) : 0;
    const bool is_above = i < complete && key > cut.key, is_tie = i < complete && key == cut.key;
    const uint32_t above_votes = __ballot_sync(FULL_MASK, is_above), tie_votes = __ballot_sync(FULL_MASK, is_tie);
    if (lane_id() == 0) {
      warp_above[warp_id()] = __popc(above_votes);
      warp_ties[warp_id()] = __popc(tie_votes);
    }
    __syncthreads();
    uint32_t above_here = above + __popc(above_votes & lower), ties_here = ties + __popc(tie_votes & lower);
#pragma unroll 8
    for (uint32_t w = 0; w < SELECT_THREADS / WARP; ++w) {
      if (w < warp_id()) {
        above_here += warp_above[w];
        ties_here += warp_ties[w];
      }
      above += warp_above[w];
      ties += warp_ties[w];
    }
    // Of the ties the first `cut.ties` are taken, so as many of those before this one are in the list.
    if (is_above || (is_tie && ties_here < cut.ties)) out[above_here + min(ties_here, cut.ties)] = i;
    __syncthreads();
  }
}
