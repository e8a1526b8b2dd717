// Attention of consecutive tokens over a cache of keys and values: rotary embedding and cache write, attention over chunks of 64
// keys, and the fold of the chunks. Token t of a launch is at *position + t and sees the keys up to itself. A chunk's result depends
// neither on how many chunks nor on how many tokens the launch covers, and the fold takes chunks in order, so the bits depend on
// neither.
#include "bw_math.cuh"
#include "bw_prototypes.cuh"
#include "dependent.cuh"
#include "rope.cuh"
#include "warp.cuh"

using namespace bw;

namespace bw {

constexpr uint32_t KEYS = 64;         // a chunk
constexpr uint32_t WARPS = 4;         // of an attn_split block; each takes 16 of the chunk's keys
constexpr uint32_t WARP_KEYS = KEYS / WARPS;
constexpr uint32_t HEADS = 4;         // query heads that share one pass over the chunk
constexpr uint32_t FOLD_CHUNKS = 128; // chunk weights in shared memory at a time

// The cache's element types: how eight neighbours are read and one is written.
struct CacheF32 {
  using Element = float;
  static __device__ __forceinline__ void load8(const float* p, float (&v)[8]) {
    const float4 a = reinterpret_cast<const float4*>(p)[0], b = reinterpret_cast<const float4*>(p)[1];
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
  }
  static __device__ __forceinline__ float narrow(float v) { return v; }
};

struct CacheF16 {
  using Element = uint16_t;
  static __device__ __forceinline__ void load8(const uint16_t* p, float (&v)[8]) {
    const uint4 w = *reinterpret_cast<const uint4*>(p);
    const uint32_t words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i)
      asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
          : "=f"(v[2 * i]), "=f"(v[2 * i + 1])
          : "r"(words[i]));
  }
  static __device__ __forceinline__ uint16_t narrow(float v) { return f16_from_f32(v); }
};

struct CacheFp8 {
  using Element = uint8_t;
  static __device__ __forceinline__ void load8(const uint8_t* p, float (&v)[8]) {
    const uint2 w = *reinterpret_cast<const uint2*>(p);
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      v[i] = f32_from_e4m3((w.x >> (8 * i)) & 0xffu);
      v[i + 4] = f32_from_e4m3((w.y >> (8 * i)) & 0xffu);
    }
  }
  static __device__ __forceinline__ uint8_t narrow(float v) { return static_cast<uint8_t>(e4m3_from_f32(v)); }
};

// Grid (blocks of threads, tokens). One thread two elements of one head: a rotated pair of a query (in place) or key head (to the cache), or two of a value head.
template <class Cache>
__device__ __forceinline__ void rope_kv(float* qkv, const uint32_t* position, const float* inv_freq,
                                        typename Cache::Element* k_cache, typename Cache::Element* v_cache, uint32_t q_heads,
                                        uint32_t kv_heads, uint32_t head_dim, uint32_t interleaved) {
  dependent_begin();
  const uint32_t pairs = head_dim / 2;
  const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  const uint32_t head = thread / pairs, pair = thread % pairs;
  if (head >= q_heads + 2 * kv_heads) return;
  const uint32_t first = interleaved ? 2 * pair : pair, second = interleaved ? 2 * pair + 1 : pair + pairs;
  const uint32_t at = *position + blockIdx.y;
  float* row = qkv + (static_cast<uint64_t>(blockIdx.y) * (q_heads + 2 * kv_heads) + head) * head_dim;
  float a = row[first], b = row[second];
  if (head < q_heads + kv_heads) rotate(rotation_at(at, inv_freq[pair]), a, b);
  if (head < q_heads) {
    row[first] = a;
    row[second] = b;
  } else {
    const bool key = head < q_heads + kv_heads;
    const uint32_t kv_head = head - q_heads - (key ? 0 : kv_heads);
    typename Cache::Element* out = (key ? k_cache : v_cache) + (static_cast<uint64_t>(at) * kv_heads + kv_head) * head_dim;
    out[first] = Cache::narrow(a);
    out[second] = Cache::narrow(b);
  }
}

// Block (kv head, token, chunk): for each query head of the group, the chunk's softmax-weighted values, its largest score and the sum of
// its weights. A key's score is summed by head_dim/8 lanes, eight elements each, and a butterfly. Values are summed by the same
// lanes over the keys they hold, in order; then over the lane groups (butterfly), then over the four warps in order.
template <class Cache, uint32_t DIM>
__device__ __forceinline__ void attn_split(const float* q, const typename Cache::Element* k, const typename Cache::Element* v,
                                           const uint32_t* position, float* partial, float* max_sum, uint32_t* arrived,
                                           float* out, uint32_t q_heads, uint32_t kv_heads, float scale, uint32_t max_chunks,
                                           uint32_t q_stride) {
  constexpr uint32_t LANES = DIM / 8;        // a key
  constexpr uint32_t PASS_KEYS = WARP / LANES;  // a warp and pass
  constexpr uint32_t PASSES = WARP_KEYS / PASS_KEYS;
  __shared__ float score[HEADS][KEYS];
  __shared__ __align__(16) float warp_out[WARPS][HEADS][DIM];

  dependent_trigger();  // the blocks of the projection behind have weights to fetch meanwhile
  dependent_wait();
  const uint32_t kv_head = blockIdx.x, token = blockIdx.y, chunk = blockIdx.z;
  const uint32_t t_kv = *position + token + 1;
  if (chunk * KEYS >= t_kv) return;
  const uint32_t keys = min(t_kv - chunk * KEYS, KEYS);
  const uint32_t group = q_heads / kv_heads;
  const uint32_t lane = lane_id(), warp = warp_id();
  const uint32_t part = lane % LANES * 8, lane_key = warp * WARP_KEYS + lane / LANES;
  const uint64_t base = (static_cast<uint64_t>(chunk) * KEYS * kv_heads + kv_head) * DIM + part;
  const uint32_t stride = kv_heads * DIM;
  const uint64_t first_head = static_cast<uint64_t>(token) * q_heads;  // of the token, in the results
  q += static_cast<uint64_t>(token) * q_stride;

  for (uint32_t head0 = 0; head0 < group; head0 += HEADS) {
    const uint32_t heads = min(group - head0, HEADS);
    const uint32_t q_head = kv_head * group + head0;
    float acc[HEADS][8];  // first the query, then the weighted values
#pragma unroll
    for (uint32_t h = 0; h < HEADS; ++h)
      if (h < heads) CacheF32::load8(q + (q_head + h) * DIM + part, acc[h]);
#pragma unroll 4
    for (uint32_t pass = 0; pass < PASSES; ++pass) {
      const uint32_t key = lane_key + pass * PASS_KEYS;
      if (warp * WARP_KEYS + pass * PASS_KEYS < keys) {
        float row[8];
        Cache::load8(k + base + min(key, keys - 1) * stride, row);
#pragma unroll
        for (uint32_t h = 0; h < HEADS; ++h) {
          if (h < heads) {
            float dot = 0.0f;
#pragma unroll
            for (uint32_t i = 0; i < 8; ++i) dot = fmaf(acc[h][i], row[i], dot);
            dot = butterfly_sum<LANES>(dot);
            if (lane % LANES == 0) score[h][key] = dot * scale;
          }
        }
      }
    }
    __syncthreads();
    for (uint32_t h = warp; h < heads; h += WARPS) {
      const float minus_infinity = __int_as_float(0xff800000);
      const float s0 = lane < keys ? score[h][lane] : minus_infinity;
      const float s1 = lane + WARP < keys ? score[h][lane + WARP] : minus_infinity;
      const float largest = butterfly_max<WARP>(fmaxf(s0, s1));
      const float p0 = bw::exp(s0 - largest), p1 = bw::exp(s1 - largest);
      const float sum = butterfly_sum<WARP>(p0 + p1);
      score[h][lane] = p0;
      score[h][lane + WARP] = p1;
      if (lane == 0) {
        float* out = max_sum + ((first_head + q_head + h) * max_chunks + chunk) * 2;
        out[0] = largest;
        out[1] = sum;
      }
    }
    __syncthreads();
#pragma unroll
    for (uint32_t h = 0; h < HEADS; ++h)
#pragma unroll
      for (uint32_t i = 0; i < 8; ++i) acc[h][i] = 0.0f;
#pragma unroll 4
    for (uint32_t pass = 0; pass < PASSES; ++pass) {
      const uint32_t key = lane_key + pass * PASS_KEYS;
      if (warp * WARP_KEYS + pass * PASS_KEYS < keys) {
        float row[8];
        Cache::load8(v + base + min(key, keys - 1) * stride, row);
#pragma unroll
        for (uint32_t h = 0; h < HEADS; ++h) {
          if (h < heads) {
            const float p = score[h][key];  // 0 past the last key
#pragma unroll
            for (uint32_t i = 0; i < 8; ++i) acc[h][i] = fmaf(p, row[i], acc[h][i]);
          }
        }
      }
    }
#pragma unroll
    for (uint32_t h = 0; h < HEADS; ++h) {
      if (h < heads) {
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i)
#pragma unroll
          for (uint32_t step = WARP / 2; step >= LANES; step >>= 1)
            acc[h][i] += __shfl_xor_sync(FULL_MASK, acc[h][i], step);
        if (lane < LANES) {
          float4* out = reinterpret_cast<float4*>(&warp_out[warp][h][part]);
          out[0] = make_float4(acc[h][0], acc[h][1], acc[h][2], acc[h][3]);
          out[1] = make_float4(acc[h][4], acc[h][5], acc[h][6], acc[h][7]);
        }
      }
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < heads * DIM; i += WARPS * WARP) {
      const uint32_t h = i / DIM, d = i % DIM;
      const float sum = (warp_out[0][h][d] + warp_out[1][h][d]) + (warp_out[2][h][d] + warp_out[3][h][d]);
      partial[((first_head + q_head + h) * max_chunks + chunk) * DIM + d] = sum;
    }
    __syncthreads();  // the next heads reuse score and warp_out
  }
  if (arrived == nullptr) return;

  // The last of the chunks' blocks folds them. Its arrival is seen after all others', and with it what they wrote before theirs.
  __shared__ uint32_t before;
  const uint32_t chunks = (t_kv + KEYS - 1) / KEYS;
  __threadfence();
  __syncthreads();
  uint32_t* count = arrived + token * kv_heads + kv_head;
  if (threadIdx.x == 0) before = atomicAdd(count, 1u);
  __syncthreads();
  if (before + 1 != chunks) return;
  __threadfence();
  if (threadIdx.x == 0) atomicExch(count, 0u);  // as the next launch expects it
  for (uint32_t h = warp; h < group; h += WARPS) {
    const uint64_t head = first_head + kv_head * group + h;
    const float* pairs = max_sum + head * max_chunks * 2;
    float largest = __int_as_float(0xff800000);
    for (uint32_t c = lane; c < chunks; c += WARP) largest = fmaxf(largest, pairs[2 * c]);
    largest = butterfly_max<WARP>(largest);
    constexpr uint32_t QUADS = DIM / 4 / WARP == 0 ? 1 : DIM / 4 / WARP;  // columns of a lane, by four; half of the lanes idle at 64
    float4 numerator[QUADS];
#pragma unroll
    for (uint32_t i = 0; i < QUADS; ++i) numerator[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    float denominator = 0.0f;
#pragma unroll 4
    for (uint32_t c = 0; c < chunks; ++c) {
      const float w = bw::exp(pairs[2 * c] - largest);
      denominator += w * pairs[2 * c + 1];
#pragma unroll
      for (uint32_t i = 0; i < QUADS; ++i) {
        const uint32_t quad = min(lane + i * WARP, DIM / 4 - 1);
        const float4 v = reinterpret_cast<const float4*>(partial + (head * max_chunks + c) * DIM)[quad];
        numerator[i] = make_float4(fmaf(w, v.x, numerator[i].x), fmaf(w, v.y, numerator[i].y), fmaf(w, v.z, numerator[i].z),
                                   fmaf(w, v.w, numerator[i].w));
      }
    }
#pragma unroll
    for (uint32_t i = 0; i < QUADS; ++i) {
      const uint32_t quad = lane + i * WARP;
      if (quad < DIM / 4)
        reinterpret_cast<float4*>(out + head * DIM)[quad] = make_float4(numerator[i].x / denominator, numerator[i].y / denominator,
                                                                         numerator[i].z / denominator, numerator[i].w / denominator);
    }
  }
}

}  // namespace bw

extern "C" __global__ void __launch_bounds__(128) rope_kv_f32(float* qkv, const uint32_t* position, const float* inv_freq, float* k_cache, float* v_cache, uint32_t q_heads, uint32_t kv_heads, uint32_t head_dim, uint32_t interleaved, uint32_t tokens) {
  rope_kv<CacheF32>(qkv, position, inv_freq, k_cache, v_cache, q_heads, kv_heads, head_dim, interleaved);
}

extern "C" __global__ void __launch_bounds__(128) rope_kv_f16(float* qkv, const uint32_t* position, const float* inv_freq, uint16_t* k_cache, uint16_t* v_cache, uint32_t q_heads, uint32_t kv_heads, uint32_t head_dim, uint32_t interleaved, uint32_t tokens) {
  rope_kv<CacheF16>(qkv, position, inv_freq, k_cache, v_cache, q_heads, kv_heads, head_dim, interleaved);
}

extern "C" __global__ void __launch_bounds__(128) rope_kv_fp8(float* qkv, const uint32_t* position, const float* inv_freq, uint8_t* k_cache, uint8_t* v_cache, uint32_t q_heads, uint32_t kv_heads, uint32_t head_dim, uint32_t interleaved, uint32_t tokens) {
  rope_kv<CacheFp8>(qkv, position, inv_freq, k_cache, v_cache, q_heads, kv_heads, head_dim, interleaved);
}

// n_splits is the launch's capacity in chunks; it and tokens are for the grid alone.
extern "C" __global__ void __launch_bounds__(128) attn_split_f32_64(const float* q, const float* k, const float* v, const uint32_t* position, float* partial, float* max_sum, uint32_t* arrived, float* out, uint32_t q_heads, uint32_t kv_heads, float scale, uint32_t max_chunks, uint32_t n_splits, uint32_t tokens, uint32_t q_stride, uint32_t folds) {
  attn_split<CacheF32, 64>(q, k, v, position, partial, max_sum, folds ? arrived : nullptr, out, q_heads, kv_heads, scale, max_chunks, q_stride);
}

extern "C" __global__ void __launch_bounds__(128) attn_split_f32_128(const float* q, const float* k, const float* v, const uint32_t* position, float* partial, float* max_sum, uint32_t* arrived, float* out, uint32_t q_heads, uint32_t kv_heads, float scale, uint32_t max_chunks, uint32_t n_splits, uint32_t tokens, uint32_t q_stride, uint32_t folds) {
  attn_split<CacheF32, 128>(q, k, v, position, partial, max_sum, folds ? arrived : nullptr, out, q_heads, kv_heads, scale, max_chunks, q_stride);
}

extern "C" __global__ void __launch_bounds__(128) attn_split_f32_256(const float* q, const float* k, const float* v, const uint32_t* position, float* partial, float* max_sum, uint32_t* arrived, float* out, uint32_t q_heads, uint32_t kv_heads, float scale, uint32_t max_chunks, uint32_t n_splits, uint32_t tokens, uint32_t q_stride, uint32_t folds) {
  attn_split<CacheF32, 256>(q, k, v, position, partial, max_sum, folds ? arrived : nullptr, out, q_heads, kv_heads, scale, max_chunks, q_stride);
}

extern "C" __global__ void __launch_bounds__(128) attn_split_f16_64(const float* q, const uint16_t* k, const uint16_t* v, const uint32_t* position, float* partial, float* max_sum, uint32_t* arrived, float* out, uint32_t q_heads, uint32_t kv_heads, float scale, uint32_t max_chunks, uint32_t n_splits, uint32_t tokens, uint32_t q_stride, uint32_t folds) {
  attn_split<CacheF16, 64>(q, k, v, position, partial, max_sum, folds ? arrived : nullptr, out, q_heads, kv_heads, scale, max_chunks, q_stride);
}

extern "C" __global__ void __launch_bounds__(128) attn_split_f16_128(const float* q, const uint16_t* k, const uint16_t* v, const uint32_t* position, float* partial, float* max_sum, uint32_t* arrived, float* out, uint32_t q_heads, uint32_t kv_heads, float scale, uint32_t max_chunks, uint32_t n_splits, uint32_t tokens, uint32_t q_stride, uint32_t folds) {
  attn_split<CacheF16, 128>(q, k, v, position, partial, max_sum, folds ? arrived : nullptr, out, q_heads, kv_heads, scale, max_chunks, q_stride);
}

extern "C" __global__ void __launch_bounds__(128) attn_split_f16_256(const float* q, const uint16_t* k, const uint16_t* v, const uint32_t* position, float* partial, float* max_sum, uint32_t* arrived, float* out, uint32_t q_heads, uint32_t kv_heads, float scale, uint32_t max_chunks, uint32_t n_splits, uint32_t tokens, uint32_t q_stride, uint32_t folds) {
  attn_split<CacheF16, 256>(q, k, v, position, partial, max_sum, folds ? arrived : nullptr, out, q_heads, kv_heads, scale, max_chunks, q_stride);
}

extern "C" __global__ void __launch_bounds__(128) attn_split_fp8_64(const float* q, const uint8_t* k, const uint8_t* v, const uint32_t* position, float* partial, float* max_sum, uint32_t* arrived, float* out, uint32_t q_heads, uint32_t kv_heads, float scale, uint32_t max_chunks, uint32_t n_splits, uint32_t tokens, uint32_t q_stride, uint32_t folds) {
  attn_split<CacheFp8, 64>(q, k, v, position, partial, max_sum, folds ? arrived : nullptr, out, q_heads, kv_heads, scale, max_chunks, q_stride);
}

extern "C" __global__ void __launch_bounds__(128) attn_split_fp8_128(const float* q, const uint8_t* k, const uint8_t* v, const uint32_t* position, float* partial, float* max_sum, uint32_t* arrived, float* out, uint32_t q_heads, uint32_t kv_heads, float scale, uint32_t max_chunks, uint32_t n_splits, uint32_t tokens, uint32_t q_stride, uint32_t folds) {
  attn_split<CacheFp8, 128>(q, k, v, position, partial, max_sum, folds ? arrived : nullptr, out, q_heads, kv_heads, scale, max_chunks, q_stride);
}

extern "C" __global__ void __launch_bounds__(128) attn_split_fp8_256(const float* q, const uint8_t* k, const uint8_t* v, const uint32_t* position, float* partial, float* max_sum, uint32_t* arrived, float* out, uint32_t q_heads, uint32_t kv_heads, float scale, uint32_t max_chunks, uint32_t n_splits, uint32_t tokens, uint32_t q_stride, uint32_t folds) {
  attn_split<CacheFp8, 256>(q, k, v, position, partial, max_sum, folds ? arrived : nullptr, out, q_heads, kv_heads, scale, max_chunks, q_stride);
}

// out[h, d] = Σ_c exp(m_c − m) · partial[h, c, d] / Σ_c exp(m_c − m) · sum_c over the chunks c in order, m the largest m_c. One
// block (query head, token); head_dim threads (a multiple of 32, at most 256), a thread a column.
extern "C" __global__ void __launch_bounds__(256) attn_fold(const float* partial, const float* max_sum, const uint32_t* position, float* out, uint32_t q_heads, uint32_t head_dim, uint32_t max_chunks, uint32_t tokens) {
  __shared__ float warp_max[256 / WARP];
  __shared__ float weight[FOLD_CHUNKS];
  __shared__ float weighted_sum[FOLD_CHUNKS];
  dependent_begin();
  const uint64_t head = static_cast<uint64_t>(blockIdx.y) * q_heads + blockIdx.x;
  const uint32_t chunks = (*position + blockIdx.y + KEYS) / KEYS;  // of t_kv = *position + token + 1 keys
  const float* pairs = max_sum + head * max_chunks * 2;
  float largest = __int_as_float(0xff800000);
  for (uint32_t c = threadIdx.x; c < chunks; c += blockDim.x) largest = fmaxf(largest, pairs[2 * c]);
  largest = butterfly_max<WARP>(largest);
  if (lane_id() == 0) warp_max[warp_id()] = largest;
  __syncthreads();
  for (uint32_t w = 0; w < blockDim.x / WARP; ++w) largest = fmaxf(largest, warp_max[w]);

  float numerator = 0.0f, denominator = 0.0f;
  for (uint32_t first = 0; first < chunks; first += FOLD_CHUNKS) {
    const uint32_t count = min(chunks - first, FOLD_CHUNKS);
    for (uint32_t c = threadIdx.x; c < count; c += blockDim.x) {
      const float w = bw::exp(pairs[2 * (first + c)] - largest);
      weight[c] = w;
      weighted_sum[c] = w * pairs[2 * (first + c) + 1];
    }
    __syncthreads();
    {
      const float* column = partial + (head * max_chunks + first) * head_dim + threadIdx.x;
#pragma unroll 16
      for (uint32_t c = 0; c < count; ++c) {
        numerator = fmaf(weight[c], column[c * head_dim], numerator);
        denominator += weighted_sum[c];
      }
    }
    __syncthreads();
  }
  out[head * head_dim + threadIdx.x] = numerator / denominator;
}
