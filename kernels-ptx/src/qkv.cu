// The projections of attention with what follows them: the norm before, rotary embedding and cache write after; float32 activations.
#include "bw_prototypes.cuh"
#include "formats.cuh"
#include "products.cuh"

using namespace bw;

extern "C" __global__ void __launch_bounds__(ROW_THREADS) qkv_rope_f32(const float* data, const float* x, const float* norm, float eps, const uint32_t* position, const float* inv_freq, float* q, float* k_cache, float* v_cache, uint32_t cache_format, uint32_t q_heads, uint32_t k_heads, uint32_t v_heads, uint32_t cache_heads, uint32_t head_dim, uint32_t interleaved, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  qkv_rope<F32>({data}, FloatRow<FloatStage>{x + token_row(x_stride), norm, eps},
      {position, inv_freq, q, k_cache, v_cache, cache_format, q_heads, k_heads, v_heads, cache_heads, head_dim, interleaved}, cols);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) qkv_rope_f16(const uint16_t* data, const float* x, const float* norm, float eps, const uint32_t* position, const float* inv_freq, float* q, float* k_cache, float* v_cache, uint32_t cache_format, uint32_t q_heads, uint32_t k_heads, uint32_t v_heads, uint32_t cache_heads, uint32_t head_dim, uint32_t interleaved, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  qkv_rope<F16>({data}, FloatRow<FloatStage>{x + token_row(x_stride), norm, eps},
      {position, inv_freq, q, k_cache, v_cache, cache_format, q_heads, k_heads, v_heads, cache_heads, head_dim, interleaved}, cols);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) qkv_rope_bf16(const uint16_t* data, const float* x, const float* norm, float eps, const uint32_t* position, const float* inv_freq, float* q, float* k_cache, float* v_cache, uint32_t cache_format, uint32_t q_heads, uint32_t k_heads, uint32_t v_heads, uint32_t cache_heads, uint32_t head_dim, uint32_t interleaved, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  qkv_rope<BF16>({data}, FloatRow<FloatStage>{x + token_row(x_stride), norm, eps},
      {position, inv_freq, q, k_cache, v_cache, cache_format, q_heads, k_heads, v_heads, cache_heads, head_dim, interleaved}, cols);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) qkv_rope_q8_0(const int8_t* qs, const uint16_t* d, const float* x, const float* norm, float eps, const uint32_t* position, const float* inv_freq, float* q, float* k_cache, float* v_cache, uint32_t cache_format, uint32_t q_heads, uint32_t k_heads, uint32_t v_heads, uint32_t cache_heads, uint32_t head_dim, uint32_t interleaved, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  qkv_rope<Q8_0>({qs, d}, FloatRow<FloatStage>{x + token_row(x_stride), norm, eps},
      {position, inv_freq, q, k_cache, v_cache, cache_format, q_heads, k_heads, v_heads, cache_heads, head_dim, interleaved}, cols);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) qkv_rope_q4_0(const uint8_t* qs, const uint16_t* d, const float* x, const float* norm, float eps, const uint32_t* position, const float* inv_freq, float* q, float* k_cache, float* v_cache, uint32_t cache_format, uint32_t q_heads, uint32_t k_heads, uint32_t v_heads, uint32_t cache_heads, uint32_t head_dim, uint32_t interleaved, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  qkv_rope<Q4_0>({qs, d}, FloatRow<FloatStage>{x + token_row(x_stride), norm, eps},
      {position, inv_freq, q, k_cache, v_cache, cache_format, q_heads, k_heads, v_heads, cache_heads, head_dim, interleaved}, cols);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) qkv_rope_q4_1(const uint8_t* qs, const uint16_t* dm, const float* x, const float* norm, float eps, const uint32_t* position, const float* inv_freq, float* q, float* k_cache, float* v_cache, uint32_t cache_format, uint32_t q_heads, uint32_t k_heads, uint32_t v_heads, uint32_t cache_heads, uint32_t head_dim, uint32_t interleaved, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  qkv_rope<Q4_1>({qs, reinterpret_cast<const uint32_t*>(dm)}, FloatRow<FloatStage>{x + token_row(x_stride), norm, eps},
      {position, inv_freq, q, k_cache, v_cache, cache_format, q_heads, k_heads, v_heads, cache_heads, head_dim, interleaved}, cols);
}
