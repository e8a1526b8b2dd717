// What is done with the rows' sums: y = W · x with its residual, the gated pair, and the projections of attention.
#pragma once
#include "rope.cuh"
#include "rows.cuh"
#include "swiglu.cuh"

namespace bw {

struct Nothing {};

__device__ __forceinline__ uint64_t token_row(uint32_t stride) { return static_cast<uint64_t>(blockIdx.x) * stride; }

// y[row] = (residual[row] +) w[first + row] · x, of the token that `input` is; `rows` rows.
template <class K, class Input>
__device__ __forceinline__ void product(const typename K::Planes& planes, const Input& input, uint32_t first, const float* residual,
                                        float* y, uint32_t rows, uint32_t cols) {
  walk_rows<K, 1>(
      planes, input, rows, cols, [&](uint32_t task, uint32_t) { return first + task; },
      [&](uint32_t task) { return residual != nullptr ? residual[task] : 0.0f; },
      [&](uint32_t task, const float(&total)[1], float before) { y[task] = residual != nullptr ? before + total[0] : total[0]; });
}

// y[row] = swiglu(w[first + row] · x, w[first + rows + row] · x, limit): gate above up, of `rows` rows each.
template <class K, class Input>
__device__ __forceinline__ void gated_product(const typename K::Planes& planes, const Input& input, uint32_t first, float* y,
                                              uint32_t rows, uint32_t cols, float limit) {
  walk_rows<K, 2>(
      planes, input, rows, cols, [&](uint32_t task, uint32_t r) { return first + task + r * rows; },
      [](uint32_t) { return Nothing{}; },
      [&](uint32_t task, const float(&total)[2], Nothing) { y[task] = swiglu(total[0], total[1], limit); });
}

// y[token] = (residual[token] +) w · x[token]
template <class K, class Input>
__device__ __forceinline__ void matvec(const typename K::Planes& planes, const Input& input, const float* residual, float* y,
                                       uint32_t rows, uint32_t cols) {
  product<K>(planes, input, 0, residual != nullptr ? residual + token_row(rows) : nullptr, y + token_row(rows), rows, cols);
}

// y[token] = swiglu of both halves of w, times x[token]
template <class K, class Input>
__device__ __forceinline__ void matvec_swiglu(const typename K::Planes& planes, const Input& input, float* y, uint32_t rows,
                                              uint32_t cols, float limit) {
  gated_product<K>(planes, input, 0, y + token_row(rows), rows, cols, limit);
}

// Where the projections of attention go. Queries are rotated and kept as float32, keys are rotated and, as values are, narrowed
// into the cache at the token's position.
struct QkvOutput {
  const uint32_t* position;
  const float* inv_freq;
  float* q;        // [tokens, q_heads · head_dim]
  void* k_cache;   // [capacity, cache_heads, head_dim]
  void* v_cache;
  uint32_t cache_format;  // 0: float32, 1: float16, 2: fp8 e4m3
  uint32_t q_heads, k_heads, v_heads;  // of the plane, in this order by rows; k_heads and v_heads are 0 or cache_heads
  uint32_t cache_heads, head_dim, interleaved;
};

__device__ __forceinline__ void store_narrowed(void* cache, uint32_t format, uint64_t at, float v) {
  if (format == 0)
    static_cast<float*>(cache)[at] = v;
  else if (format == 1)
    static_cast<uint16_t*>(cache)[at] = f16_from_f32(v);
  else
    static_cast<uint8_t*>(cache)[at] = static_cast<uint8_t>(e4m3_from_f32(v));
}

// A task is two elements of a head that rotate into each other.
template <class K, class Input>
__device__ __forceinline__ void qkv_rope(const typename K::Planes& planes, const Input& input, const QkvOutput& out, uint32_t cols) {
  const uint32_t pairs = out.head_dim / 2;
  const uint32_t tasks = (out.q_heads + out.k_heads + out.v_heads) * pairs;
  auto element = [&](uint32_t pair, uint32_t r) { return out.interleaved ? 2 * pair + r : pair + r * pairs; };
  walk_rows<K, 2>(
      planes, input, tasks, cols,
      [&](uint32_t task, uint32_t r) { return task / pairs * out.head_dim + element(task % pairs, r); },
      [&](uint32_t task) {
        Rotation rotation = {0.0f, 1.0f};
        if (task < (out.q_heads + out.k_heads) * pairs && threadIdx.x % K::LANES == 0)
          rotation = rotation_at(*out.position + blockIdx.x, out.inv_freq[task % pairs]);
        return rotation;
      },
      [&](uint32_t task, const float(&total)[2], Rotation rotation) {
        const uint32_t head = task / pairs, pair = task % pairs;
        float a = total[0], b = total[1];
        if (head < out.q_heads + out.k_heads) rotate(rotation, a, b);
        if (head < out.q_heads) {
          float* q = out.q + token_row(out.q_heads * out.head_dim) + head * out.head_dim;
          q[element(pair, 0)] = a;
          q[element(pair, 1)] = b;
        } else {
          const bool key = head < out.q_heads + out.k_heads;
          const uint32_t cache_head = head - out.q_heads - (key ? 0 : out.k_heads);
          void* cache = key ? out.k_cache : out.v_cache;
          const uint64_t at = (static_cast<uint64_t>(*out.position + blockIdx.x) * out.cache_heads + cache_head) * out.head_dim;
          store_narrowed(cache, out.cache_format, at + element(pair, 0), a);
          store_narrowed(cache, out.cache_format, at + element(pair, 1), b);
        }
      });
}

}  // namespace bw
