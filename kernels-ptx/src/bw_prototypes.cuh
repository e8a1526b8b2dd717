// A prototype of each kernel entry, from its Rust declaration: a definition that differs does not compile.
// Written by `cargo xtask ptx`; do not edit.
#pragma once
#include <stdint.h>

// activation.cu
extern "C" __global__ void swiglu(const float* gate, const float* up, float* y, uint32_t n, float limit, uint32_t tokens, uint32_t x_stride);

// attention.cu
extern "C" __global__ void attn_fold(const float* partial, const float* max_sum, const uint32_t* position, float* out, uint32_t q_heads, uint32_t head_dim, uint32_t max_chunks, uint32_t tokens);
extern "C" __global__ void attn_split_f16_128(const float* q, const uint16_t* k, const uint16_t* v, const uint32_t* position, float* partial, float* max_sum, uint32_t* arrived, float* out, uint32_t q_heads, uint32_t kv_heads, float scale, uint32_t max_chunks, uint32_t n_splits, uint32_t tokens, uint32_t q_stride, uint32_t folds);
extern "C" __global__ void attn_split_f16_256(const float* q, const uint16_t* k, const uint16_t* v, const uint32_t* position, float* partial, float* max_sum, uint32_t* arrived, float* out, uint32_t q_heads, uint32_t kv_heads, float scale, uint32_t max_chunks, uint32_t n_splits, uint32_t tokens, uint32_t q_stride, uint32_t folds);
extern "C" __global__ void attn_split_f16_64(const float* q, const uint16_t* k, const uint16_t* v, const uint32_t* position, float* partial, float* max_sum, uint32_t* arrived, float* out, uint32_t q_heads, uint32_t kv_heads, float scale, uint32_t max_chunks, uint32_t n_splits, uint32_t tokens, uint32_t q_stride, uint32_t folds);
extern "C" __global__ void attn_split_f32_128(const float* q, const float* k, const float* v, const uint32_t* position, float* partial, float* max_sum, uint32_t* arrived, float* out, uint32_t q_heads, uint32_t kv_heads, float scale, uint32_t max_chunks, uint32_t n_splits, uint32_t tokens, uint32_t q_stride, uint32_t folds);
extern "C" __global__ void attn_split_f32_256(const float* q, const float* k, const float* v, const uint32_t* position, float* partial, float* max_sum, uint32_t* arrived, float* out, uint32_t q_heads, uint32_t kv_heads, float scale, uint32_t max_chunks, uint32_t n_splits, uint32_t tokens, uint32_t q_stride, uint32_t folds);
extern "C" __global__ void attn_split_f32_64(const float* q, const float* k, const float* v, const uint32_t* position, float* partial, float* max_sum, uint32_t* arrived, float* out, uint32_t q_heads, uint32_t kv_heads, float scale, uint32_t max_chunks, uint32_t n_splits, uint32_t tokens, uint32_t q_stride, uint32_t folds);
extern "C" __global__ void attn_split_fp8_128(const float* q, const uint8_t* k, const uint8_t* v, const uint32_t* position, float* partial, float* max_sum, uint32_t* arrived, float* out, uint32_t q_heads, uint32_t kv_heads, float scale, uint32_t max_chunks, uint32_t n_splits, uint32_t tokens, uint32_t q_stride, uint32_t folds);
extern "C" __global__ void attn_split_fp8_256(const float* q, const uint8_t* k, const uint8_t* v, const uint32_t* position, float* partial, float* max_sum, uint32_t* arrived, float* out, uint32_t q_heads, uint32_t kv_heads, float scale, uint32_t max_chunks, uint32_t n_splits, uint32_t tokens, uint32_t q_stride, uint32_t folds);
extern "C" __global__ void attn_split_fp8_64(const float* q, const uint8_t* k, const uint8_t* v, const uint32_t* position, float* partial, float* max_sum, uint32_t* arrived, float* out, uint32_t q_heads, uint32_t kv_heads, float scale, uint32_t max_chunks, uint32_t n_splits, uint32_t tokens, uint32_t q_stride, uint32_t folds);
extern "C" __global__ void rope_kv_f16(float* qkv, const uint32_t* position, const float* inv_freq, uint16_t* k_cache, uint16_t* v_cache, uint32_t q_heads, uint32_t kv_heads, uint32_t head_dim, uint32_t interleaved, uint32_t tokens);
extern "C" __global__ void rope_kv_f32(float* qkv, const uint32_t* position, const float* inv_freq, float* k_cache, float* v_cache, uint32_t q_heads, uint32_t kv_heads, uint32_t head_dim, uint32_t interleaved, uint32_t tokens);
extern "C" __global__ void rope_kv_fp8(float* qkv, const uint32_t* position, const float* inv_freq, uint8_t* k_cache, uint8_t* v_cache, uint32_t q_heads, uint32_t kv_heads, uint32_t head_dim, uint32_t interleaved, uint32_t tokens);

// ceiling.cu
extern "C" __global__ void read_only(const uint32_t* words, uint32_t* folded, uint32_t quads, uint32_t blocks);

// embed.cu
extern "C" __global__ void embed_bf16(const uint16_t* w, const uint32_t* tokens, const uint32_t* position, float* x, uint32_t cols, uint32_t vocab, uint32_t count, uint32_t copies);
extern "C" __global__ void embed_f16(const uint16_t* w, const uint32_t* tokens, const uint32_t* position, float* x, uint32_t cols, uint32_t vocab, uint32_t count, uint32_t copies);
extern "C" __global__ void embed_f32(const float* w, const uint32_t* tokens, const uint32_t* position, float* x, uint32_t cols, uint32_t vocab, uint32_t count, uint32_t copies);
extern "C" __global__ void embed_q4_0(const uint8_t* w_qs, const uint16_t* w_d, const uint32_t* tokens, const uint32_t* position, float* x, uint32_t cols, uint32_t vocab, uint32_t count, uint32_t copies);
extern "C" __global__ void embed_q4_1(const uint8_t* w_qs, const uint16_t* w_dm, const uint32_t* tokens, const uint32_t* position, float* x, uint32_t cols, uint32_t vocab, uint32_t count, uint32_t copies);
extern "C" __global__ void embed_q4_k(const uint8_t* w_qs, const uint8_t* w_scales, const uint16_t* w_dm, const uint32_t* tokens, const uint32_t* position, float* x, uint32_t cols, uint32_t vocab, uint32_t count, uint32_t copies);
extern "C" __global__ void embed_q5_0(const uint32_t* w_qs, const uint32_t* w_qt, const uint16_t* w_d, const uint32_t* tokens, const uint32_t* position, float* x, uint32_t cols, uint32_t vocab, uint32_t count, uint32_t copies);
extern "C" __global__ void embed_q5_k(const uint32_t* w_qs, const uint32_t* w_qt, const uint8_t* w_scales, const uint16_t* w_dm, const uint32_t* tokens, const uint32_t* position, float* x, uint32_t cols, uint32_t vocab, uint32_t count, uint32_t copies);
extern "C" __global__ void embed_q6_k(const uint32_t* w_qs, const uint32_t* w_qt, const int8_t* w_scales, const uint16_t* w_d, const uint32_t* tokens, const uint32_t* position, float* x, uint32_t cols, uint32_t vocab, uint32_t count, uint32_t copies);
extern "C" __global__ void embed_q8_0(const int8_t* w_qs, const uint16_t* w_d, const uint32_t* tokens, const uint32_t* position, float* x, uint32_t cols, uint32_t vocab, uint32_t count, uint32_t copies);

// experts.cu
extern "C" __global__ void experts_combine(const float* y, const float* weights, const float* shared, float* out, uint32_t cols, uint32_t k, uint32_t tokens);
extern "C" __global__ void experts_down_bf16(const uint16_t* w, const uint32_t* ids, const float* act, float* y, uint32_t rows, uint32_t cols, uint32_t experts, uint32_t k, uint32_t tokens, uint32_t blocks, uint32_t threads);
extern "C" __global__ void experts_down_f16(const uint16_t* w, const uint32_t* ids, const float* act, float* y, uint32_t rows, uint32_t cols, uint32_t experts, uint32_t k, uint32_t tokens, uint32_t blocks, uint32_t threads);
extern "C" __global__ void experts_down_f32(const float* w, const uint32_t* ids, const float* act, float* y, uint32_t rows, uint32_t cols, uint32_t experts, uint32_t k, uint32_t tokens, uint32_t blocks, uint32_t threads);
extern "C" __global__ void experts_down_i16_nvfp4(const uint8_t* w_qs, const uint8_t* w_scales, const float* w_global, const uint32_t* ids, const int16_t* actq, const float* acts, float* y, uint32_t rows, uint32_t cols, uint32_t experts, uint32_t k, uint32_t tokens, uint32_t blocks, uint32_t threads);
extern "C" __global__ void experts_down_nvfp4(const uint8_t* w_qs, const uint8_t* w_scales, const float* w_global, const uint32_t* ids, const float* act, float* y, uint32_t rows, uint32_t cols, uint32_t experts, uint32_t k, uint32_t tokens, uint32_t blocks, uint32_t threads);
extern "C" __global__ void experts_gate_up_bf16(const uint16_t* w, const uint32_t* ids, const float* x, float* act, uint32_t rows, uint32_t cols, uint32_t experts, uint32_t k, float limit, uint32_t tokens, uint32_t blocks, uint32_t threads);
extern "C" __global__ void experts_gate_up_f16(const uint16_t* w, const uint32_t* ids, const float* x, float* act, uint32_t rows, uint32_t cols, uint32_t experts, uint32_t k, float limit, uint32_t tokens, uint32_t blocks, uint32_t threads);
extern "C" __global__ void experts_gate_up_f32(const float* w, const uint32_t* ids, const float* x, float* act, uint32_t rows, uint32_t cols, uint32_t experts, uint32_t k, float limit, uint32_t tokens, uint32_t blocks, uint32_t threads);
extern "C" __global__ void experts_gate_up_i16_nvfp4(const uint8_t* w_qs, const uint8_t* w_scales, const float* w_global, const uint32_t* ids, const int16_t* xq, const float* xs, float* act, uint32_t rows, uint32_t cols, uint32_t experts, uint32_t k, float limit, uint32_t tokens, uint32_t blocks, uint32_t threads);
extern "C" __global__ void experts_gate_up_nvfp4(const uint8_t* w_qs, const uint8_t* w_scales, const float* w_global, const uint32_t* ids, const float* x, float* act, uint32_t rows, uint32_t cols, uint32_t experts, uint32_t k, float limit, uint32_t tokens, uint32_t blocks, uint32_t threads);

// fill.cu
extern "C" __global__ void fill_bf16(uint16_t* out, uint32_t k0, uint32_t k1, float scale, float offset, uint32_t n);
extern "C" __global__ void fill_f16(uint16_t* out, uint32_t k0, uint32_t k1, float scale, float offset, uint32_t n);
extern "C" __global__ void fill_f32(float* out, uint32_t k0, uint32_t k1, float scale, float offset, uint32_t n);
extern "C" __global__ void fill_words(uint32_t* out, uint32_t k0, uint32_t k1, uint32_t mask, uint32_t base, uint32_t n);

// hyper.cu
extern "C" __global__ void hc_collapse(const float* streams, const float* m, const float* base, const float* scale, const float* norm_weight, float* collapsed, float* normed, float* post, float* comb, uint32_t hidden, uint32_t n, uint32_t iters, float hc_eps, float eps, uint32_t tokens);
extern "C" __global__ void hc_expand(float* streams, const float* y, const float* post, const float* comb, uint32_t hidden, uint32_t n, uint32_t tokens);
extern "C" __global__ void hc_project_bf16(const uint16_t* w, const float* streams, float* m, uint32_t rows, uint32_t cols, uint32_t tokens);
extern "C" __global__ void hc_project_f16(const uint16_t* w, const float* streams, float* m, uint32_t rows, uint32_t cols, uint32_t tokens);
extern "C" __global__ void hc_project_f32(const float* w, const float* streams, float* m, uint32_t rows, uint32_t cols, uint32_t tokens);
extern "C" __global__ void mean_norm(const float* streams, const float* weight, float* y, uint32_t hidden, uint32_t n, float eps, uint32_t tokens);

// indexer.cu
extern "C" __global__ void indexer_append(const float* k, const float* gate, const float* k_weight, const float* k_bias, const float* ape, float* k_ring, float* gate_ring, float* pool_keys, const uint32_t* position, uint32_t dim, uint32_t kpool, float eps, uint32_t tokens, uint32_t x_stride);
extern "C" __global__ void indexer_scores(const float* q, const float* weights, const float* pool_keys, const uint32_t* position, float* scores, uint32_t heads, uint32_t dim, uint32_t kpool, uint32_t max_pools, uint32_t tokens, uint32_t w_stride);
extern "C" __global__ void indexer_select(const float* scores, const uint32_t* position, uint32_t* pools, uint32_t* count, uint32_t kpool, uint32_t top, uint32_t max_pools, uint32_t tokens);

// kda.cu
extern "C" __global__ void conv_silu(const float* x, const float* weight, float* ring, const uint32_t* position, float* y, uint32_t channels, uint32_t taps, uint32_t tokens, uint32_t x_stride);
extern "C" __global__ void kda_step_128(const float* qkv, const float* decay, const float* dt_bias, const float* a_log, const float* beta, const float* gate, const float* norm_weight, float* state, const uint32_t* position, float* y, uint32_t heads, float bound, uint32_t bounded, float eps, uint32_t tokens, uint32_t beta_stride);
extern "C" __global__ void kda_step_32(const float* qkv, const float* decay, const float* dt_bias, const float* a_log, const float* beta, const float* gate, const float* norm_weight, float* state, const uint32_t* position, float* y, uint32_t heads, float bound, uint32_t bounded, float eps, uint32_t tokens, uint32_t beta_stride);
extern "C" __global__ void kda_step_64(const float* qkv, const float* decay, const float* dt_bias, const float* a_log, const float* beta, const float* gate, const float* norm_weight, float* state, const uint32_t* position, float* y, uint32_t heads, float bound, uint32_t bounded, float eps, uint32_t tokens, uint32_t beta_stride);

// latent.cu
extern "C" __global__ void heads_matvec_bf16(const uint16_t* w, const float* x, float* y, uint32_t heads, uint32_t rows, uint32_t cols, uint32_t tokens);
extern "C" __global__ void heads_matvec_f16(const uint16_t* w, const float* x, float* y, uint32_t heads, uint32_t rows, uint32_t cols, uint32_t tokens);
extern "C" __global__ void heads_matvec_f32(const float* w, const float* x, float* y, uint32_t heads, uint32_t rows, uint32_t cols, uint32_t tokens);
extern "C" __global__ void latent_append_f16(const float* x, const float* weight, uint16_t* cache, const uint32_t* position, uint32_t cols, float eps, uint32_t tokens, uint32_t x_stride);
extern "C" __global__ void latent_append_f32(const float* x, const float* weight, float* cache, const uint32_t* position, uint32_t cols, float eps, uint32_t tokens, uint32_t x_stride);
extern "C" __global__ void latent_fold(const float* partial, const float* max_sum, const uint32_t* count, const uint32_t* position, float* y, uint32_t heads, uint32_t dim, uint32_t kpool, uint32_t max_chunks, uint32_t tokens);
extern "C" __global__ void latent_split_f16(const float* q, const uint16_t* cache, const uint32_t* pools, const uint32_t* count, const uint32_t* position, float* partial, float* max_sum, uint32_t heads, uint32_t dim, float scale, uint32_t kpool, uint32_t max_pools, uint32_t max_chunks, uint32_t tokens);
extern "C" __global__ void latent_split_f32(const float* q, const float* cache, const uint32_t* pools, const uint32_t* count, const uint32_t* position, float* partial, float* max_sum, uint32_t heads, uint32_t dim, float scale, uint32_t kpool, uint32_t max_pools, uint32_t max_chunks, uint32_t tokens);

// math_probe.cu
extern "C" __global__ void math_cos(const float* x, float* y, uint32_t n);
extern "C" __global__ void math_e4m3_from_f32(const float* x, uint8_t* y, uint32_t n);
extern "C" __global__ void math_exp(const float* x, float* y, uint32_t n);
extern "C" __global__ void math_f16_from_f32(const float* x, uint16_t* y, uint32_t n);
extern "C" __global__ void math_f32_from_e4m3(const uint8_t* x, float* y, uint32_t n);
extern "C" __global__ void math_f32_from_f16(const uint16_t* x, float* y, uint32_t n);
extern "C" __global__ void math_sigmoid(const float* x, float* y, uint32_t n);
extern "C" __global__ void math_silu(const float* x, float* y, uint32_t n);
extern "C" __global__ void math_sin(const float* x, float* y, uint32_t n);
extern "C" __global__ void math_softplus(const float* x, float* y, uint32_t n);

// matvec.cu
extern "C" __global__ void matvec_bf16(const uint16_t* w, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_f16(const uint16_t* w, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_f32(const float* w, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_nvfp4(const uint8_t* w_qs, const uint8_t* w_scales, const float* w_global, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_q4_0(const uint8_t* w_qs, const uint16_t* w_d, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_q4_1(const uint8_t* w_qs, const uint16_t* w_dm, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_q8_0(const int8_t* w_qs, const uint16_t* w_d, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_swiglu_bf16(const uint16_t* w, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_swiglu_f16(const uint16_t* w, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_swiglu_f32(const float* w, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_swiglu_nvfp4(const uint8_t* w_qs, const uint8_t* w_scales, const float* w_global, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_swiglu_q4_0(const uint8_t* w_qs, const uint16_t* w_d, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_swiglu_q4_1(const uint8_t* w_qs, const uint16_t* w_dm, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_swiglu_q8_0(const int8_t* w_qs, const uint16_t* w_d, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);

// matvec_i16.cu
extern "C" __global__ void matvec_i16_nvfp4(const uint8_t* w_qs, const uint8_t* w_scales, const float* w_global, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_i16_q4_0(const uint8_t* w_qs, const uint16_t* w_d, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_i16_q4_1(const uint8_t* w_qs, const uint16_t* w_dm, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_i16_q8_0(const int8_t* w_qs, const uint16_t* w_d, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_swiglu_i16_nvfp4(const uint8_t* w_qs, const uint8_t* w_scales, const float* w_global, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_swiglu_i16_q4_0(const uint8_t* w_qs, const uint16_t* w_d, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_swiglu_i16_q4_1(const uint8_t* w_qs, const uint16_t* w_dm, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_swiglu_i16_q8_0(const int8_t* w_qs, const uint16_t* w_d, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);

// matvec_i16_k.cu
extern "C" __global__ void matvec_i16_q4_k(const uint8_t* w_qs, const uint8_t* w_scales, const uint16_t* w_dm, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_i16_q5_0(const uint32_t* w_qs, const uint32_t* w_qt, const uint16_t* w_d, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_i16_q5_k(const uint32_t* w_qs, const uint32_t* w_qt, const uint8_t* w_scales, const uint16_t* w_dm, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_i16_q6_k(const uint32_t* w_qs, const uint32_t* w_qt, const int8_t* w_scales, const uint16_t* w_d, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_swiglu_i16_q4_k(const uint8_t* w_qs, const uint8_t* w_scales, const uint16_t* w_dm, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_swiglu_i16_q5_0(const uint32_t* w_qs, const uint32_t* w_qt, const uint16_t* w_d, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_swiglu_i16_q5_k(const uint32_t* w_qs, const uint32_t* w_qt, const uint8_t* w_scales, const uint16_t* w_dm, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_swiglu_i16_q6_k(const uint32_t* w_qs, const uint32_t* w_qt, const int8_t* w_scales, const uint16_t* w_d, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);

// matvec_k.cu
extern "C" __global__ void matvec_q4_k(const uint8_t* w_qs, const uint8_t* w_scales, const uint16_t* w_dm, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_q5_0(const uint32_t* w_qs, const uint32_t* w_qt, const uint16_t* w_d, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_q5_k(const uint32_t* w_qs, const uint32_t* w_qt, const uint8_t* w_scales, const uint16_t* w_dm, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_q6_k(const uint32_t* w_qs, const uint32_t* w_qt, const int8_t* w_scales, const uint16_t* w_d, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_swiglu_q4_k(const uint8_t* w_qs, const uint8_t* w_scales, const uint16_t* w_dm, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_swiglu_q5_0(const uint32_t* w_qs, const uint32_t* w_qt, const uint16_t* w_d, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_swiglu_q5_k(const uint32_t* w_qs, const uint32_t* w_qt, const uint8_t* w_scales, const uint16_t* w_dm, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void matvec_swiglu_q6_k(const uint32_t* w_qs, const uint32_t* w_qt, const int8_t* w_scales, const uint16_t* w_d, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);

// norm.cu
extern "C" __global__ void quantise_i16(const float* x, int16_t* q, float* scale, uint32_t cols, uint32_t tokens, uint32_t x_stride);
extern "C" __global__ void rms_norm(const float* x, const float* weight, float* y, uint32_t cols, float eps, uint32_t tokens, uint32_t x_stride);

// pipeline.cu
extern "C" __global__ void hop(const float* x, float* y, uint32_t n);
extern "C" __global__ void hop_token(const uint32_t* tokens, const uint32_t* position, uint32_t* out);
extern "C" __global__ void take_token(const uint32_t* incoming, uint32_t* tokens, const uint32_t* position);

// qkv.cu
extern "C" __global__ void qkv_rope_bf16(const uint16_t* w, const float* x, const float* norm, float eps, const uint32_t* position, const float* inv_freq, float* q, float* k_cache, float* v_cache, uint32_t cache_format, uint32_t q_heads, uint32_t k_heads, uint32_t v_heads, uint32_t cache_heads, uint32_t head_dim, uint32_t interleaved, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void qkv_rope_f16(const uint16_t* w, const float* x, const float* norm, float eps, const uint32_t* position, const float* inv_freq, float* q, float* k_cache, float* v_cache, uint32_t cache_format, uint32_t q_heads, uint32_t k_heads, uint32_t v_heads, uint32_t cache_heads, uint32_t head_dim, uint32_t interleaved, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void qkv_rope_f32(const float* w, const float* x, const float* norm, float eps, const uint32_t* position, const float* inv_freq, float* q, float* k_cache, float* v_cache, uint32_t cache_format, uint32_t q_heads, uint32_t k_heads, uint32_t v_heads, uint32_t cache_heads, uint32_t head_dim, uint32_t interleaved, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void qkv_rope_q4_0(const uint8_t* w_qs, const uint16_t* w_d, const float* x, const float* norm, float eps, const uint32_t* position, const float* inv_freq, float* q, float* k_cache, float* v_cache, uint32_t cache_format, uint32_t q_heads, uint32_t k_heads, uint32_t v_heads, uint32_t cache_heads, uint32_t head_dim, uint32_t interleaved, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void qkv_rope_q4_1(const uint8_t* w_qs, const uint16_t* w_dm, const float* x, const float* norm, float eps, const uint32_t* position, const float* inv_freq, float* q, float* k_cache, float* v_cache, uint32_t cache_format, uint32_t q_heads, uint32_t k_heads, uint32_t v_heads, uint32_t cache_heads, uint32_t head_dim, uint32_t interleaved, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void qkv_rope_q8_0(const int8_t* w_qs, const uint16_t* w_d, const float* x, const float* norm, float eps, const uint32_t* position, const float* inv_freq, float* q, float* k_cache, float* v_cache, uint32_t cache_format, uint32_t q_heads, uint32_t k_heads, uint32_t v_heads, uint32_t cache_heads, uint32_t head_dim, uint32_t interleaved, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);

// qkv_i16.cu
extern "C" __global__ void qkv_rope_i16_q4_0(const uint8_t* w_qs, const uint16_t* w_d, const float* x, const float* norm, float eps, const uint32_t* position, const float* inv_freq, float* q, float* k_cache, float* v_cache, uint32_t cache_format, uint32_t q_heads, uint32_t k_heads, uint32_t v_heads, uint32_t cache_heads, uint32_t head_dim, uint32_t interleaved, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void qkv_rope_i16_q4_1(const uint8_t* w_qs, const uint16_t* w_dm, const float* x, const float* norm, float eps, const uint32_t* position, const float* inv_freq, float* q, float* k_cache, float* v_cache, uint32_t cache_format, uint32_t q_heads, uint32_t k_heads, uint32_t v_heads, uint32_t cache_heads, uint32_t head_dim, uint32_t interleaved, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void qkv_rope_i16_q8_0(const int8_t* w_qs, const uint16_t* w_d, const float* x, const float* norm, float eps, const uint32_t* position, const float* inv_freq, float* q, float* k_cache, float* v_cache, uint32_t cache_format, uint32_t q_heads, uint32_t k_heads, uint32_t v_heads, uint32_t cache_heads, uint32_t head_dim, uint32_t interleaved, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);

// qkv_i16_k.cu
extern "C" __global__ void qkv_rope_i16_q4_k(const uint8_t* w_qs, const uint8_t* w_scales, const uint16_t* w_dm, const float* x, const float* norm, float eps, const uint32_t* position, const float* inv_freq, float* q, float* k_cache, float* v_cache, uint32_t cache_format, uint32_t q_heads, uint32_t k_heads, uint32_t v_heads, uint32_t cache_heads, uint32_t head_dim, uint32_t interleaved, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void qkv_rope_i16_q5_0(const uint32_t* w_qs, const uint32_t* w_qt, const uint16_t* w_d, const float* x, const float* norm, float eps, const uint32_t* position, const float* inv_freq, float* q, float* k_cache, float* v_cache, uint32_t cache_format, uint32_t q_heads, uint32_t k_heads, uint32_t v_heads, uint32_t cache_heads, uint32_t head_dim, uint32_t interleaved, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void qkv_rope_i16_q5_k(const uint32_t* w_qs, const uint32_t* w_qt, const uint8_t* w_scales, const uint16_t* w_dm, const float* x, const float* norm, float eps, const uint32_t* position, const float* inv_freq, float* q, float* k_cache, float* v_cache, uint32_t cache_format, uint32_t q_heads, uint32_t k_heads, uint32_t v_heads, uint32_t cache_heads, uint32_t head_dim, uint32_t interleaved, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void qkv_rope_i16_q6_k(const uint32_t* w_qs, const uint32_t* w_qt, const int8_t* w_scales, const uint16_t* w_d, const float* x, const float* norm, float eps, const uint32_t* position, const float* inv_freq, float* q, float* k_cache, float* v_cache, uint32_t cache_format, uint32_t q_heads, uint32_t k_heads, uint32_t v_heads, uint32_t cache_heads, uint32_t head_dim, uint32_t interleaved, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);

// qkv_k.cu
extern "C" __global__ void qkv_rope_q4_k(const uint8_t* w_qs, const uint8_t* w_scales, const uint16_t* w_dm, const float* x, const float* norm, float eps, const uint32_t* position, const float* inv_freq, float* q, float* k_cache, float* v_cache, uint32_t cache_format, uint32_t q_heads, uint32_t k_heads, uint32_t v_heads, uint32_t cache_heads, uint32_t head_dim, uint32_t interleaved, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void qkv_rope_q5_0(const uint32_t* w_qs, const uint32_t* w_qt, const uint16_t* w_d, const float* x, const float* norm, float eps, const uint32_t* position, const float* inv_freq, float* q, float* k_cache, float* v_cache, uint32_t cache_format, uint32_t q_heads, uint32_t k_heads, uint32_t v_heads, uint32_t cache_heads, uint32_t head_dim, uint32_t interleaved, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void qkv_rope_q5_k(const uint32_t* w_qs, const uint32_t* w_qt, const uint8_t* w_scales, const uint16_t* w_dm, const float* x, const float* norm, float eps, const uint32_t* position, const float* inv_freq, float* q, float* k_cache, float* v_cache, uint32_t cache_format, uint32_t q_heads, uint32_t k_heads, uint32_t v_heads, uint32_t cache_heads, uint32_t head_dim, uint32_t interleaved, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);
extern "C" __global__ void qkv_rope_q6_k(const uint32_t* w_qs, const uint32_t* w_qt, const int8_t* w_scales, const uint16_t* w_d, const float* x, const float* norm, float eps, const uint32_t* position, const float* inv_freq, float* q, float* k_cache, float* v_cache, uint32_t cache_format, uint32_t q_heads, uint32_t k_heads, uint32_t v_heads, uint32_t cache_heads, uint32_t head_dim, uint32_t interleaved, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room);

// router.cu
extern "C" __global__ void router_topk(const float* logits, const float* bias, uint32_t* ids, float* weights, uint32_t experts, uint32_t k, float scaling, uint32_t normalise, uint32_t tokens);

// sample.cu
extern "C" __global__ void advance(uint32_t* position, uint32_t count);
extern "C" __global__ void argmax_advance(const float* value, const uint32_t* index, uint32_t* tokens, uint32_t* position, uint32_t parts);
extern "C" __global__ void argmax_partial(const float* logits, float* value, uint32_t* index, uint32_t vocab);

// sampling.cu
extern "C" __global__ void sample_adjust(const float* logits, const uint32_t* tokens, const uint32_t* position, const uint32_t* parameters, float* adjusted, float* best, uint32_t* count, uint64_t* mass, uint32_t vocab, uint32_t parts);
extern "C" __global__ void sample_draw(const float* best, const uint32_t* parameters, const uint64_t* mass, const float* value, const uint32_t* index, const uint32_t* taken, uint32_t* tokens, uint32_t* position, uint32_t vocab, uint32_t parts);
extern "C" __global__ void sample_gather(const float* adjusted, const float* best, const uint32_t* parameters, const uint32_t* count, const uint64_t* mass, float* value, uint32_t* index, uint32_t* taken, uint32_t vocab, uint32_t parts);
extern "C" __global__ void sample_histogram(const float* adjusted, const float* best, uint32_t* count, uint64_t* mass, uint32_t vocab, uint32_t parts);
