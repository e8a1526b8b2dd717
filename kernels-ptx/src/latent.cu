// Attention over a cache of latents, one row a token that serves all heads as key and as value: the cache write, the products
// that take a head's queries into the latents' space and its sums out of it, attention over a selection of positions in chunks
// of 64, and the fold of the chunks. A chunk's result does not depend on how many chunks or tokens the launch covers.
//
// The selection of the token at position p is what the indexer left: `count` pools of `kpool` neighbouring positions each,
// listed ascending, and then the tail, the (p + 1) mod kpool positions of the pool that is not complete.
#include "block.cuh"
#include "bw_prototypes.cuh"
#include "dependent.cuh"
#include "formats.cuh"
#include "products.cuh"

using namespace bw;

namespace bw {

constexpr uint32_t APPEND_THREADS = 128;
constexpr uint32_t KEYS = 64;          // a chunk
constexpr uint32_t SPLIT_WARPS = 8;    // of a latent_split block; key k of a chunk is warp (k mod 8)'s
constexpr uint32_t HEADS = 4;          // that share one pass over a chunk
constexpr uint32_t MAX_DIM = 512;
constexpr uint32_t QUADS = MAX_DIM / 4 / WARP;  // of a row, a lane
constexpr uint32_t FOLD_CHUNKS = 128;  // chunk weights in shared memory at a time

// What a token sees.
struct Selection {
  uint32_t listed;    // positions in pools
  uint32_t complete;  // positions in complete pools, listed or not: where the tail begins
  uint32_t width;     // positions in all

  __device__ __forceinline__ Selection(uint32_t position, uint32_t pools, uint32_t kpool) {
    listed = pools * kpool;
    complete = (position + 1) / kpool * kpool;
    width = listed + (position + 1 - complete);
  }
};

// Row *position + token of the cache = RMSNorm(x) · weight. A block a token; sums as in the other norms: quads in turn to the
// threads, four sums each.
template <class Row>
__device__ __forceinline__ void latent_append(const float* x, const float* weight, typename Row::Element* cache,
                                              const uint32_t* position, uint32_t cols, float eps, uint32_t x_stride) {
  __shared__ float warp_sum[APPEND_THREADS / WARP];
  const uint32_t token = blockIdx.x;
  const float* row = x + static_cast<uint64_t>(token) * x_stride;
  float4 s = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  for (uint32_t i = threadIdx.x; i < cols / 4; i += APPEND_THREADS) {
    const float4 v = RowF32::quad(row, i);
    s = fma4(v, v, s);
  }
  const float total = block_sum<APPEND_THREADS>(folded(s), warp_sum);
  const float inverse = 1.0f / sqrtf(total / static_cast<float>(cols) + eps);
  typename Row::Element* out = cache + static_cast<uint64_t>(*position + token) * cols;
  for (uint32_t i = threadIdx.x; i < cols / 4; i += APPEND_THREADS)
    Row::store(out, i, normalised(RowF32::quad(row, i), inverse, RowF32::quad(weight, i)));
}

// y[token, head, r] = w[head · rows + r] · x[token, head], each row as in matvec. Grid (tokens, blocks of a head, heads).
template <class K>
__device__ __forceinline__ void heads_matvec(const typename K::Planes& planes, const float* x, float* y, uint32_t heads,
                                             uint32_t rows, uint32_t cols) {
  const uint64_t at = static_cast<uint64_t>(blockIdx.x) * heads + blockIdx.z;
  product<K>(planes, FloatRow<FloatStage>{x + at * cols, nullptr, 0.0f}, blockIdx.z * rows, nullptr, y + at * rows, rows, cols);
}

// Block (four heads, chunk, token): for each head the chunk's softmax-weighted latents, its largest score and the sum of its
// weights. A lane takes quads 32 apart of a row: a score is its chain over them, in order, and a butterfly. Latents are summed by
// each warp over its keys in order, and then over the eight warps in pairs.
template <class Row>
__device__ __forceinline__ void latent_split(const float* q, const typename Row::Element* cache, const uint32_t* pools,
                                             const uint32_t* count, const uint32_t* position, float* partial, float* max_sum,
                                             uint32_t heads, uint32_t dim, float scale, uint32_t kpool, uint32_t max_pools,
                                             uint32_t max_chunks) {
  __shared__ float score[HEADS][KEYS];
  __shared__ uint32_t places[KEYS];
  __shared__ __align__(16) float warp_out[SPLIT_WARPS][MAX_DIM];
  const uint32_t chunk = blockIdx.y, token = blockIdx.z;
  const Selection selection(*position + token, count[token], kpool);
  if (chunk * KEYS >= selection.width) return;
  const uint32_t keys = min(selection.width - chunk * KEYS, KEYS);
  const uint32_t lane = lane_id(), warp = warp_id(), quads = dim / 4;
  const uint32_t head0 = blockIdx.x * HEADS, count_heads = min(heads - head0, HEADS);
  const uint64_t out_row = static_cast<uint64_t>(token) * heads + head0;
  if (threadIdx.x < keys) {
    const uint32_t entry = chunk * KEYS + threadIdx.x;
    places[threadIdx.x] = entry < selection.listed
                              ? pools[static_cast<uint64_t>(token) * max_pools + entry / kpool] * kpool + entry % kpool
                              : selection.complete + (entry - selection.listed);
  }
  const float4 zeros = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  float4 acc[HEADS][QUADS];  // first the query, then the weighted latents
#pragma unroll
  for (uint32_t h = 0; h < HEADS; ++h)
#pragma unroll
    for (uint32_t u = 0; u < QUADS; ++u)
      acc[h][u] = h < count_heads && lane + u * WARP < quads ? RowF32::quad(q + (out_row + h) * dim, lane + u * WARP) : zeros;
  __syncthreads();

#pragma unroll 2
  for (uint32_t key = warp; key < keys; key += SPLIT_WARPS) {
    const typename Row::Element* row = cache + static_cast<uint64_t>(places[key]) * dim;
    float4 v[QUADS];
#pragma unroll
    for (uint32_t u = 0; u < QUADS; ++u) v[u] = lane + u * WARP < quads ? Row::quad(row, lane + u * WARP) : zeros;
#pragma unroll
    for (uint32_t h = 0; h < HEADS; ++h) {
      float dot = 0.0f;
#pragma unroll
      for (uint32_t u = 0; u < QUADS; ++u) {
        dot = fmaf(acc[h][u].x, v[u].x, dot);
        dot = fmaf(acc[h][u].y, v[u].y, dot);
        dot = fmaf(acc[h][u].z, v[u].z, dot);
        dot = fmaf(acc[h][u].w, v[u].w, dot);
      }
      dot = butterfly_sum<WARP>(dot);
      if (lane == 0) score[h][key] = dot * scale;
    }
  }
  __syncthreads();
  if (warp < count_heads) {
    const float minus_infinity = __int_as_float(0xff800000);
    const float s0 = lane < keys ? score[warp][lane] : minus_infinity;
    const float s1 = lane + WARP < keys ? score[warp][lane + WARP] : minus_infinity;
    const float largest = butterfly_max<WARP>(fmaxf(s0, s1));
    const float p0 = bw::exp(s0 - largest), p1 = bw::exp(s1 - largest);
    const float sum = butterfly_sum<WARP>(p0 + p1);
    score[warp][lane] = p0;
    score[warp][lane + WARP] = p1;
    if (lane == 0) {
      float* out = max_sum + ((out_row + warp) * max_chunks + chunk) * 2;
      out[0] = largest;
      out[1] = sum;
    }
  }
  __syncthreads();

#pragma unroll
  for (uint32_t h = 0; h < HEADS; ++h)
#pragma unroll
    for (uint32_t u = 0; u < QUADS; ++u) acc[h][u] = zeros;
#pragma unroll 2
  for (uint32_t key = warp; key < keys; key += SPLIT_WARPS) {
    const typename Row::Element* row = cache + static_cast<uint64_t>(places[key]) * dim;
    float4 v[QUADS];
#pragma unroll
    for (uint32_t u = 0; u < QUADS; ++u) v[u] = lane + u * WARP < quads ? Row::quad(row, lane + u * WARP) : zeros;
#pragma unroll
    for (uint32_t h = 0; h < HEADS; ++h) {
      if (h < count_heads) {
        const float p = score[h][key];
#pragma unroll
        for (uint32_t u = 0; u < QUADS; ++u) acc[h][u] = fma4(p, v[u], acc[h][u]);
      }
    }
  }
#pragma unroll
  for (uint32_t h = 0; h < HEADS; ++h) {
    if (h < count_heads) {
#pragma unroll
      for (uint32_t u = 0; u < QUADS; ++u)
        if (lane + u * WARP < quads) RowF32::store(warp_out[warp], lane + u * WARP, acc[h][u]);
      __syncthreads();
      float* out = partial + ((out_row + h) * max_chunks + chunk) * dim;
      for (uint32_t d = threadIdx.x; d < dim; d += SPLIT_WARPS * WARP)
        out[d] = ((warp_out[0][d] + warp_out[1][d]) + (warp_out[2][d] + warp_out[3][d])) +
                 ((warp_out[4][d] + warp_out[5][d]) + (warp_out[6][d] + warp_out[7][d]));
      __syncthreads();
    }
  }
}

}  // namespace bw

extern "C" __global__ void __launch_bounds__(128) latent_append_f32(const float* x, const float* weight, float* cache, const uint32_t* position, uint32_t cols, float eps, uint32_t tokens, uint32_t x_stride) {
  dependent_begin();
  latent_append<RowF32>(x, weight, cache, position, cols, eps, x_stride);
}

extern "C" __global__ void __launch_bounds__(128) latent_append_f16(const float* x, const float* weight, uint16_t* cache, const uint32_t* position, uint32_t cols, float eps, uint32_t tokens, uint32_t x_stride) {
  dependent_begin();
  latent_append<RowF16>(x, weight, cache, position, cols, eps, x_stride);
}

extern "C" __global__ void __launch_bounds__(256) heads_matvec_f32(const float* w, const float* x, float* y, uint32_t heads, uint32_t rows, uint32_t cols, uint32_t tokens) {
  dependent_begin();
  heads_matvec<F32>({w}, x, y, heads, rows, cols);
}

extern "C" __global__ void __launch_bounds__(256) heads_matvec_f16(const uint16_t* w, const float* x, float* y, uint32_t heads, uint32_t rows, uint32_t cols, uint32_t tokens) {
  dependent_begin();
  heads_matvec<F16>({w}, x, y, heads, rows, cols);
}

extern "C" __global__ void __launch_bounds__(256) heads_matvec_bf16(const uint16_t* w, const float* x, float* y, uint32_t heads, uint32_t rows, uint32_t cols, uint32_t tokens) {
  dependent_begin();
  heads_matvec<BF16>({w}, x, y, heads, rows, cols);
}

extern "C" __global__ void __launch_bounds__(256) latent_split_f32(const float* q, const float* cache, const uint32_t* pools, const uint32_t* count, const uint32_t* position, float* partial, float* max_sum, uint32_t heads, uint32_t dim, float scale, uint32_t kpool, uint32_t max_pools, uint32_t max_chunks, uint32_t tokens) {
  dependent_begin();
  latent_split<RowF32>(q, cache, pools, count, position, partial, max_sum, heads, dim, scale, kpool, max_pools, max_chunks);
}

extern "C" __global__ void __launch_bounds__(256) latent_split_f16(const float* q, const uint16_t* cache, const uint32_t* pools, const uint32_t* count, const uint32_t* position, float* partial, float* max_sum, uint32_t heads, uint32_t dim, float scale, uint32_t kpool, uint32_t max_pools, uint32_t max_chunks, uint32_t tokens) {
  dependent_begin();
  latent_split<RowF16>(q, cache, pools, count, position, partial, max_sum, heads, dim, scale, kpool, max_pools, max_chunks);
}

// y[token, head] = Σ_c exp(m_c − m) · partial[c] / Σ_c exp(m_c − m) · sum_c over the chunks c of the selection in order, m the
// largest m_c. A block a head and token, `dim` threads, a thread a column.
extern "C" __global__ void __launch_bounds__(512) latent_fold(const float* partial, const float* max_sum, const uint32_t* count, const uint32_t* position, float* y, uint32_t heads, uint32_t dim, uint32_t kpool, uint32_t max_chunks, uint32_t tokens) {
  dependent_begin();
  __shared__ float warp_max[MAX_DIM / WARP];
  __shared__ float weight[FOLD_CHUNKS];
  __shared__ float weighted_sum[FOLD_CHUNKS];
  const uint32_t head = blockIdx.x, token = blockIdx.y;
  const uint32_t chunks = (Selection(*position + token, count[token], kpool).width + KEYS - 1) / KEYS;
  const uint64_t row = static_cast<uint64_t>(token) * heads + head;
  const float* pairs = max_sum + row * max_chunks * 2;
  float largest = __int_as_float(0xff800000);
  for (uint32_t c = threadIdx.x; c < chunks; c += blockDim.x) largest = fmaxf(largest, pairs[2 * c]);
  largest = butterfly_max<WARP>(largest);
  if (lane_id() == 0) warp_max[warp_id()] = largest;
  __syncthreads();
  for (uint32_t w = 0; w < blockDim.x / WARP; ++w) largest = fmaxf(largest, warp_max[w]);

  float numerator = 0.0f, denominator = 0.0f;
  for (uint32_t first = 0; first < chunks; first += FOLD_CHUNKS) {
    const uint32_t some = min(chunks - first, FOLD_CHUNKS);
    for (uint32_t c = threadIdx.x; c < some; c += blockDim.x) {
      const float w = bw::exp(pairs[2 * (first + c)] - largest);
      weight[c] = w;
      weighted_sum[c] = w * pairs[2 * (first + c) + 1];
    }
    __syncthreads();
    const float* column = partial + (row * max_chunks + first) * dim + threadIdx.x;
#pragma unroll 4
    for (uint32_t c = 0; c < some; ++c) {
      numerator = fmaf(weight[c], column[static_cast<uint64_t>(c) * dim], numerator);
      denominator += weighted_sum[c];
    }
    __syncthreads();
  }
  y[row * dim + threadIdx.x] = numerator / denominator;
}
