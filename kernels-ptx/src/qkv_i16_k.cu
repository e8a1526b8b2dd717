// qkv_i16.cu for formats with five bits and ggml's "k" formats.
#include "bw_prototypes.cuh"
#include "formats_k.cuh"
#include "products.cuh"

using namespace bw;

extern "C" __global__ void __launch_bounds__(ROW_THREADS) qkv_rope_i16_q5_0(const uint32_t* qs, const uint32_t* qt, const uint16_t* d, const float* x, const float* norm, float eps, const uint32_t* position, const float* inv_freq, float* q, float* k_cache, float* v_cache, uint32_t cache_format, uint32_t q_heads, uint32_t k_heads, uint32_t v_heads, uint32_t cache_heads, uint32_t head_dim, uint32_t interleaved, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  qkv_rope<Q5_0Int16>({qs, qt, d}, FloatRow<Int16Stage>{x + token_row(x_stride), norm, eps},
      {position, inv_freq, q, k_cache, v_cache, cache_format, q_heads, k_heads, v_heads, cache_heads, head_dim, interleaved}, cols);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) qkv_rope_i16_q4_k(const uint8_t* qs, const uint8_t* scales, const uint16_t* dm, const float* x, const float* norm, float eps, const uint32_t* position, const float* inv_freq, float* q, float* k_cache, float* v_cache, uint32_t cache_format, uint32_t q_heads, uint32_t k_heads, uint32_t v_heads, uint32_t cache_heads, uint32_t head_dim, uint32_t interleaved, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  qkv_rope<Q4_KInt16>({qs, scales, dm}, FloatRow<Int16Stage>{x + token_row(x_stride), norm, eps},
      {position, inv_freq, q, k_cache, v_cache, cache_format, q_heads, k_heads, v_heads, cache_heads, head_dim, interleaved}, cols);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) qkv_rope_i16_q5_k(const uint32_t* qs, const uint32_t* qt, const uint8_t* scales, const uint16_t* dm, const float* x, const float* norm, float eps, const uint32_t* position, const float* inv_freq, float* q, float* k_cache, float* v_cache, uint32_t cache_format, uint32_t q_heads, uint32_t k_heads, uint32_t v_heads, uint32_t cache_heads, uint32_t head_dim, uint32_t interleaved, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  qkv_rope<Q5_KInt16>({qs, qt, scales, dm}, FloatRow<Int16Stage>{x + token_row(x_stride), norm, eps},
      {position, inv_freq, q, k_cache, v_cache, cache_format, q_heads, k_heads, v_heads, cache_heads, head_dim, interleaved}, cols);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) qkv_rope_i16_q6_k(const uint32_t* qs, const uint32_t* qt, const int8_t* scales, const uint16_t* d, const float* x, const float* norm, float eps, const uint32_t* position, const float* inv_freq, float* q, float* k_cache, float* v_cache, uint32_t cache_format, uint32_t q_heads, uint32_t k_heads, uint32_t v_heads, uint32_t cache_heads, uint32_t head_dim, uint32_t interleaved, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  qkv_rope<Q6_KInt16>({qs, qt, scales, d}, FloatRow<Int16Stage>{x + token_row(x_stride), norm, eps},
      {position, inv_freq, q, k_cache, v_cache, cache_format, q_heads, k_heads, v_heads, cache_heads, head_dim, interleaved}, cols);
}
