// Hyper-connections: a layer reads a weighted sum of n residual streams and writes its output back to all of them, with weights
// that are functions of the streams. hc_project takes the inner products, hc_collapse makes weights of them and the layer's
// input, hc_expand updates the streams; mean_norm ends the walk. A block has a token, so chunks of tokens change no bit.
#include "block.cuh"
#include "bw_prototypes.cuh"
#include "dependent.cuh"

using namespace bw;

namespace bw {

constexpr uint32_t MAX_STREAMS = 5;    // n·n fits a warp
constexpr uint32_t ROW_THREADS = 512;  // that reduce a row; their sums: quads of columns in turn to the threads, four sums each

extern __shared__ __align__(16) float staged[];  // [hidden]: the row between its sum of squares and its norm

// Block (token, row): a row's inner product with the token's streams, or, past the last row, the mean of their squares.
template <class Row>
__device__ __forceinline__ void hc_project(const typename Row::Element* w, const float* streams, float* m, uint32_t rows,
                                           uint32_t cols) {
  __shared__ float warp_sum[ROW_THREADS / WARP];
  const uint32_t token = blockIdx.x, row = blockIdx.y, quads = cols / 4;
  const float* x = streams + static_cast<uint64_t>(token) * cols;
  float4 s = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (row < rows) {
    const typename Row::Element* weights = w + static_cast<uint64_t>(row) * cols;
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < quads; i += ROW_THREADS) s = fma4(Row::quad(weights, i), RowF32::quad(x, i), s);
  } else {
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < quads; i += ROW_THREADS) {
      const float4 v = RowF32::quad(x, i);
      s = fma4(v, v, s);
    }
  }
  const float sum = block_sum<ROW_THREADS>(folded(s), warp_sum);
  if (threadIdx.x == 0) m[token * (rows + 1) + row] = row < rows ? sum : sum / static_cast<float>(cols);
}

// A token's row of m as the arguments of the weights.
struct Mix {
  const float* m;
  const float* base;
  const float* scale;
  float inverse;  // of the streams' root mean square

  __device__ __forceinline__ float operator()(uint32_t row, uint32_t part) const {
    return fmaf(m[row] * inverse, scale[part], base[row]);
  }
};

// The n·n combination weights, one a lane (row i, column j); lanes past them repeat the last row's. Softmax over each row, + eps,
// then columns / (sum + eps), then iters − 1 times rows and columns. Sums are in order of index, by shuffles.
__device__ __forceinline__ float sinkhorn(float c, uint32_t i, uint32_t j, uint32_t n, uint32_t iters, float eps) {
  float largest = c;
#pragma unroll
  for (uint32_t k = 0; k < MAX_STREAMS; ++k) {
    const float other = __shfl_sync(FULL_MASK, c, i * n + k);
    if (k < n) largest = fmaxf(largest, other);
  }
  const auto sum = [&](uint32_t first, uint32_t step) {
    float s = __shfl_sync(FULL_MASK, c, first);
#pragma unroll
    for (uint32_t k = 1; k < MAX_STREAMS; ++k) {
      const float other = __shfl_sync(FULL_MASK, c, first + k * step);
      if (k < n) s += other;
    }
    return s;
  };
  c = bw::exp(c - largest);
  c = c / sum(i * n, 1) + eps;
  c = c / (sum(j, n) + eps);
#pragma unroll 1
  for (uint32_t round = 1; round < iters; ++round) {
    c = c / (sum(i * n, 1) + eps);
    c = c / (sum(j, n) + eps);
  }
  return c;
}

// RMSNorm of the row in `staged`, whose squares this thread has summed over the quads it holds, to y.
__device__ __forceinline__ void norm_staged(float4 squares, const float* weight, float* y, uint32_t hidden, float eps,
                                            float* warp_sum) {
  const float total = block_sum<ROW_THREADS>(folded(squares), warp_sum);
  const float inverse = 1.0f / sqrtf(total / static_cast<float>(hidden) + eps);
  for (uint32_t i = threadIdx.x; i < hidden / 4; i += ROW_THREADS)
    RowF32::store(y, i, normalised(RowF32::quad(staged, i), inverse, RowF32::quad(weight, i)));
}

}  // namespace bw

extern "C" __global__ void __launch_bounds__(512) hc_project_f32(const float* w, const float* streams, float* m, uint32_t rows, uint32_t cols, uint32_t tokens) {
  dependent_begin();
  hc_project<RowF32>(w, streams, m, rows, cols);
}

extern "C" __global__ void __launch_bounds__(512) hc_project_f16(const uint16_t* w, const float* streams, float* m, uint32_t rows, uint32_t cols, uint32_t tokens) {
  dependent_begin();
  hc_project<RowF16>(w, streams, m, rows, cols);
}

extern "C" __global__ void __launch_bounds__(512) hc_project_bf16(const uint16_t* w, const float* streams, float* m, uint32_t rows, uint32_t cols, uint32_t tokens) {
  dependent_begin();
  hc_project<RowBF16>(w, streams, m, rows, cols);
}

// A block a token. The last warp makes post and comb, in registers, while the others collapse the streams and norm the sum.
extern "C" __global__ void __launch_bounds__(544) hc_collapse(const float* streams, const float* m, const float* base, const float* scale, const float* norm_weight, float* collapsed, float* normed, float* post, float* comb, uint32_t hidden, uint32_t n, uint32_t iters, float hc_eps, float eps, uint32_t tokens) {
  dependent_begin();
  __shared__ float warp_sum[ROW_THREADS / WARP];
  const uint32_t token = blockIdx.x, lane = lane_id(), rows = n * (n + 2);
  const float* row = m + token * (rows + 1);
  const Mix mix = {row, base, scale, 1.0f / sqrtf(row[rows] + eps)};
  if (threadIdx.x >= ROW_THREADS) {
    if (lane < n) post[token * n + lane] = 2.0f * bw::sigmoid(mix(n + lane, 1));
    const uint32_t i = min(lane / n, n - 1), j = lane % n;
    const float c = sinkhorn(mix((2 + i) * n + j, 2), i, j, n, iters, hc_eps);
    if (lane < n * n) comb[token * n * n + lane] = c;
    return;
  }
  float own = 0.0f, pre[MAX_STREAMS];
  if (lane < n) own = bw::sigmoid(mix(lane, 0)) + hc_eps;
#pragma unroll
  for (uint32_t k = 0; k < MAX_STREAMS; ++k) pre[k] = __shfl_sync(FULL_MASK, own, k);
  const float* s = streams + static_cast<uint64_t>(token) * n * hidden;
  float* out = collapsed + static_cast<uint64_t>(token) * hidden;
  float4 squares = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 2
  for (uint32_t i = threadIdx.x; i < hidden / 4; i += ROW_THREADS) {
    float4 v[MAX_STREAMS];
#pragma unroll
    for (uint32_t k = 0; k < MAX_STREAMS; ++k)
      if (k < n) v[k] = RowF32::quad(s + k * hidden, i);
    float4 x = scaled(pre[0], v[0]);
#pragma unroll
    for (uint32_t k = 1; k < MAX_STREAMS; ++k)
      if (k < n) x = fma4(pre[k], v[k], x);
    RowF32::store(staged, i, x);
    RowF32::store(out, i, x);
    squares = fma4(x, x, squares);
  }
  norm_staged(squares, norm_weight, normed + static_cast<uint64_t>(token) * hidden, hidden, eps, warp_sum);
}

// streams[j] = post[j] · y, then + comb[i, j] · streams[i] for i in order, with the streams from before. A thread a quad of
// columns of all streams.
extern "C" __global__ void __launch_bounds__(64) hc_expand(float* streams, const float* y, const float* post, const float* comb, uint32_t hidden, uint32_t n, uint32_t tokens) {
  dependent_begin();
  const uint32_t at = blockIdx.x * blockDim.x + threadIdx.x, token = blockIdx.y;
  if (at >= hidden / 4) return;
  float* s = streams + static_cast<uint64_t>(token) * n * hidden;
  const float4 out = RowF32::quad(y + static_cast<uint64_t>(token) * hidden, at);
  float4 v[MAX_STREAMS];
#pragma unroll
  for (uint32_t k = 0; k < MAX_STREAMS; ++k)
    if (k < n) v[k] = RowF32::quad(s + k * hidden, at);
#pragma unroll
  for (uint32_t j = 0; j < MAX_STREAMS; ++j) {
    if (j < n) {
      float4 x = scaled(post[token * n + j], out);
#pragma unroll
      for (uint32_t i = 0; i < MAX_STREAMS; ++i)
        if (i < n) x = fma4(comb[(token * n + i) * n + j], v[i], x);
      RowF32::store(s + j * hidden, at, x);
    }
  }
}

// y = RMSNorm(mean of the streams) · weight; the mean is their sum in order, over n. A block a token.
extern "C" __global__ void __launch_bounds__(512) mean_norm(const float* streams, const float* weight, float* y, uint32_t hidden, uint32_t n, float eps, uint32_t tokens) {
  dependent_begin();
  __shared__ float warp_sum[ROW_THREADS / WARP];
  const uint32_t token = blockIdx.x;
  const float* s = streams + static_cast<uint64_t>(token) * n * hidden;
  const float count = static_cast<float>(n);
  float4 squares = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  for (uint32_t i = threadIdx.x; i < hidden / 4; i += ROW_THREADS) {
    float4 x = RowF32::quad(s, i);
#pragma unroll 4
    for (uint32_t k = 1; k < n; ++k) {
      const float4 v = RowF32::quad(s + k * hidden, i);
      x = make_float4(x.x + v.x, x.y + v.y, x.z + v.z, x.w + v.w);
    }
    x = make_float4(x.x / count, x.y / count, x.z / count, x.w / count);
    RowF32::store(staged, i, x);
    squares = fma4(x, x, squares);
  }
  norm_staged(squares, weight, y + static_cast<uint64_t>(token) * hidden, hidden, eps, warp_sum);
}
