// Kimi Delta Attention: a short causal convolution over the projections, and the gated delta rule on a matrix of state a head,
// which is updated in place. Tokens of a chunk are taken one after the other, so its length changes no bit.
#include "bw_math.cuh"
#include "bw_prototypes.cuh"
#include "dependent.cuh"
#include "warp.cuh"

using namespace bw;

namespace bw {

constexpr uint32_t MAX_TAPS = 8;
constexpr uint32_t ROWS = 32;       // of a head's state that a thread holds
constexpr float L2_EPS = 1e-6f;     // under the root of the queries' and keys' norms

// The convolution's window in registers, the newest value last. All indices are constants, so that it stays there.
struct Window {
  float v[MAX_TAPS];

  __device__ __forceinline__ void push(float x) {
#pragma unroll
    for (uint32_t i = 1; i < MAX_TAPS; ++i) v[i - 1] = v[i];
    v[MAX_TAPS - 1] = x;
  }
};

// sums[0][column] + sums[1][column] + … in order.
template <uint32_t GROUPS, uint32_t D>
__device__ __forceinline__ float group_sum(const float (&sums)[GROUPS][D], uint32_t column) {
  float sum = sums[0][column];
#pragma unroll
  for (uint32_t g = 1; g < GROUPS; ++g) sum += sums[g][column];
  return sum;
}

// A block a head. Thread (group, column) holds rows 32·group … + 31 of the state's column; a sum over the rows is each thread's
// chain over its own, in order, and then the groups' sums in order. Sums of squares over D: each lane its columns 32 apart in
// order, then a butterfly; every warp takes them for itself, which saves barriers.
template <uint32_t D>
__device__ __forceinline__ void kda_step(const float* qkv, const float* decay, const float* dt_bias, const float* a_log,
                                         const float* beta, const float* gate, const float* norm_weight, float* state,
                                         const uint32_t* position, float* y, uint32_t heads, float bound, uint32_t bounded,
                                         float eps, uint32_t tokens, uint32_t beta_stride) {
  constexpr uint32_t GROUPS = D / ROWS;
  constexpr float QUERY_SCALE = D == 128 ? 0.0883883461f : D == 64 ? 0.125f : 0.176776692f;  // D^-½
  __shared__ __align__(16) float q_row[D], k_row[D], decay_row[D];
  __shared__ float predicted[GROUPS][D], read_out[GROUPS][D];
  const uint32_t head = blockIdx.x, group = threadIdx.x / D, column = threadIdx.x % D, lane = lane_id();
  const uint32_t inner = heads * D, channel = head * D + column;
  const float rate = bw::exp(a_log[head]), own_dt_bias = dt_bias[channel], own_norm_weight = norm_weight[column];
  dependent_begin();
  float* own = state + (static_cast<uint64_t>(head) * D + group * ROWS) * D + column;
  float s[ROWS];
  if (*position == 0) {
#pragma unroll
    for (uint32_t i = 0; i < ROWS; ++i) s[i] = 0.0f;
  } else {
#pragma unroll
    for (uint32_t i = 0; i < ROWS; ++i) s[i] = own[i * D];
  }
  const float4* q_own = reinterpret_cast<const float4*>(q_row + group * ROWS);
  const float4* k_own = reinterpret_cast<const float4*>(k_row + group * ROWS);
  const float4* decay_own = reinterpret_cast<const float4*>(decay_row + group * ROWS);

#pragma unroll 1
  for (uint32_t token = 0; token < tokens; ++token) {
    const float* q = qkv + static_cast<uint64_t>(token) * 3 * inner + head * D;
    const float* k = q + inner;
    const uint64_t at = static_cast<uint64_t>(token) * inner + channel;
    const float value = k[inner + column];
    const float strength = bw::sigmoid(beta[static_cast<uint64_t>(token) * beta_stride + head]);
    float q_squares = 0.0f, k_squares = 0.0f;
#pragma unroll
    for (uint32_t c = 0; c < D; c += WARP) {
      const float a = q[c + lane], b = k[c + lane];
      q_squares = fmaf(a, a, q_squares);
      k_squares = fmaf(b, b, k_squares);
    }
    q_squares = butterfly_sum<WARP>(q_squares);
    k_squares = butterfly_sum<WARP>(k_squares);
    if (threadIdx.x < D) {
      q_row[column] = q[column] / sqrtf(q_squares + L2_EPS) * QUERY_SCALE;
      k_row[column] = k[column] / sqrtf(k_squares + L2_EPS);
      const float r = decay[at] + own_dt_bias;
      decay_row[column] = bw::exp(bounded != 0 ? bound * bw::sigmoid(rate * r) : -(rate * bw::softplus(r)));
    }
    __syncthreads();

    float sum = 0.0f;
#pragma unroll
    for (uint32_t i = 0; i < ROWS / 4; ++i) {
      const float4 d = decay_own[i], b = k_own[i];
      s[4 * i] *= d.x;
      s[4 * i + 1] *= d.y;
      s[4 * i + 2] *= d.z;
      s[4 * i + 3] *= d.w;
      sum = fmaf(s[4 * i], b.x, sum);
      sum = fmaf(s[4 * i + 1], b.y, sum);
      sum = fmaf(s[4 * i + 2], b.z, sum);
      sum = fmaf(s[4 * i + 3], b.w, sum);
    }
    predicted[group][column] = sum;
    __syncthreads();

    const float delta = strength * (value - group_sum<GROUPS, D>(predicted, column));
    sum = 0.0f;
#pragma unroll
    for (uint32_t i = 0; i < ROWS / 4; ++i) {
      const float4 a = q_own[i], b = k_own[i];
      s[4 * i] = fmaf(b.x, delta, s[4 * i]);
      s[4 * i + 1] = fmaf(b.y, delta, s[4 * i + 1]);
      s[4 * i + 2] = fmaf(b.z, delta, s[4 * i + 2]);
      s[4 * i + 3] = fmaf(b.w, delta, s[4 * i + 3]);
      sum = fmaf(s[4 * i], a.x, sum);
      sum = fmaf(s[4 * i + 1], a.y, sum);
      sum = fmaf(s[4 * i + 2], a.z, sum);
      sum = fmaf(s[4 * i + 3], a.w, sum);
    }
    read_out[group][column] = sum;
    __syncthreads();  // the last reads of q_row, k_row, decay_row and predicted lie before it

    if (threadIdx.x < D) {
      float squares = 0.0f, o = 0.0f;
#pragma unroll
      for (uint32_t c = 0; c < D; c += WARP) {
        const float v = group_sum<GROUPS, D>(read_out, c + lane);
        squares = fmaf(v, v, squares);
        if (c / WARP == warp_id()) o = v;
      }
      const float inverse = 1.0f / sqrtf(butterfly_sum<WARP>(squares) / static_cast<float>(D) + eps);
      y[at] = o * inverse * own_norm_weight * bw::sigmoid(gate[at]);
    }
  }
#pragma unroll
  for (uint32_t i = 0; i < ROWS; ++i) own[i * D] = s[i];
}

}  // namespace bw

// y[t, c] = silu(Σ_k weight[c, k] · x at token t − (taps − 1) + k), in order of k. ring[p mod taps] holds what x was at position p;
// positions before 0 count as zeros. A thread a channel.
extern "C" __global__ void __launch_bounds__(128) conv_silu(const float* x, const float* weight, float* ring, const uint32_t* position, float* y, uint32_t channels, uint32_t taps, uint32_t tokens, uint32_t x_stride) {
  const uint32_t channel = blockIdx.x * blockDim.x + threadIdx.x, unused = MAX_TAPS - taps;
  float w[MAX_TAPS];
#pragma unroll
  for (uint32_t i = 0; i < MAX_TAPS; ++i)
    w[i] = channel < channels && i >= unused ? weight[static_cast<uint64_t>(channel) * taps + i - unused] : 0.0f;
  dependent_begin();
  if (channel >= channels) return;
  const uint32_t first = *position;
  Window window;
#pragma unroll
  for (uint32_t i = 0; i < MAX_TAPS; ++i) {
    // Place i is, before the first push, MAX_TAPS − i tokens before the first.
    const uint32_t age = MAX_TAPS - i;
    window.v[i] = age < taps && age <= first ? ring[static_cast<uint64_t>((first - age) % taps) * channels + channel] : 0.0f;
  }
  float next = x[channel];
#pragma unroll 1
  for (uint32_t token = 0; token < tokens; ++token) {
    const float now = next;
    if (token + 1 < tokens) next = x[static_cast<uint64_t>(token + 1) * x_stride + channel];
    window.push(now);
    float sum = 0.0f;
#pragma unroll
    for (uint32_t i = 0; i < MAX_TAPS; ++i)
      if (i >= unused) sum = fmaf(w[i], window.v[i], sum);
    y[static_cast<uint64_t>(token) * channels + channel] = bw::silu(sum);
    if (tokens - token <= taps) ring[static_cast<uint64_t>((first + token) % taps) * channels + channel] = now;
  }
}

extern "C" __global__ void __launch_bounds__(32) kda_step_32(const float* qkv, const float* decay, const float* dt_bias, const float* a_log, const float* beta, const float* gate, const float* norm_weight, float* state, const uint32_t* position, float* y, uint32_t heads, float bound, uint32_t bounded, float eps, uint32_t tokens, uint32_t beta_stride) {
  kda_step<32>(qkv, decay, dt_bias, a_log, beta, gate, norm_weight, state, position, y, heads, bound, bounded, eps, tokens, beta_stride);
}

extern "C" __global__ void __launch_bounds__(128) kda_step_64(const float* qkv, const float* decay, const float* dt_bias, const float* a_log, const float* beta, const float* gate, const float* norm_weight, float* state, const uint32_t* position, float* y, uint32_t heads, float bound, uint32_t bounded, float eps, uint32_t tokens, uint32_t beta_stride) {
  kda_step<64>(qkv, decay, dt_bias, a_log, beta, gate, norm_weight, state, position, y, heads, bound, bounded, eps, tokens, beta_stride);
}

extern "C" __global__ void __launch_bounds__(512) kda_step_128(const float* qkv, const float* decay, const float* dt_bias, const float* a_log, const float* beta, const float* gate, const float* norm_weight, float* state, const uint32_t* position, float* y, uint32_t heads, float bound, uint32_t bounded, float eps, uint32_t tokens, uint32_t beta_stride) {
  kda_step<128>(qkv, decay, dt_bias, a_log, beta, gate, norm_weight, state, position, y, heads, bound, bounded, eps, tokens, beta_stride);
}
