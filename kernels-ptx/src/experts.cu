// The experts that a router chose, all of them in one launch, and the sum of what they gave. The matrices of all experts of a layer
// are stacked by rows. Grid (tokens and places, blocks): a row is reduced as in `matvec` (see rows.cuh), so the results have
// the bits of `matvec_swiglu` and `matvec` over that expert's rows alone. An id past the experts writes NaN.
#include "bw_prototypes.cuh"
#include "formats.cuh"
#include "products.cuh"

using namespace bw;

namespace bw {

constexpr uint32_t COMBINE_THREADS = 128;

// Which expert's matrices: the launch ahead may have chosen it, so nothing is copied before that has ended.
__device__ __forceinline__ uint32_t chosen(const uint32_t* ids) {
  dependent_wait();
  return ids[blockIdx.x];
}

__device__ __forceinline__ void fill_nan(float* y, uint32_t rows) {
  for (uint32_t row = blockIdx.y * blockDim.x + threadIdx.x; row < rows; row += gridDim.y * blockDim.x) y[row] = __int_as_float(0x7fffffff);
}

// act[token, place, row] = swiglu of rows `row` and `rows + row` of the 2·rows of expert ids[token, place].
template <class K, class Input>
__device__ __forceinline__ void gate_up(const typename K::Planes& planes, const uint32_t* ids, const Input& input, float* act,
                                        uint32_t rows, uint32_t cols, uint32_t experts, float limit) {
  act += token_row(rows);
  const uint32_t id = chosen(ids);
  if (id >= experts) return fill_nan(act, rows);
  gated_product<K>(planes, input, id * 2 * rows, act, rows, cols, limit);
}

// y[token, place, row] = row `row` of expert ids[token, place] times act[token, place].
template <class K, class Input>
__device__ __forceinline__ void down(const typename K::Planes& planes, const uint32_t* ids, const Input& input, float* y, uint32_t rows,
                                     uint32_t cols, uint32_t experts) {
  y += token_row(rows);
  const uint32_t id = chosen(ids);
  if (id >= experts) return fill_nan(y, rows);
  product<K>(planes, input, id * rows, nullptr, y, rows, cols);
}

}  // namespace bw

extern "C" __global__ void __launch_bounds__(ROW_THREADS) experts_gate_up_f32(const float* data, const uint32_t* ids, const float* x, float* act, uint32_t rows, uint32_t cols, uint32_t experts, uint32_t k, float limit, uint32_t tokens, uint32_t blocks, uint32_t threads) {
  gate_up<F32>({data}, ids, FloatRow<FloatStage>{x + static_cast<uint64_t>(blockIdx.x / k) * cols, nullptr, 0.0f}, act, rows, cols, experts, limit);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) experts_gate_up_f16(const uint16_t* data, const uint32_t* ids, const float* x, float* act, uint32_t rows, uint32_t cols, uint32_t experts, uint32_t k, float limit, uint32_t tokens, uint32_t blocks, uint32_t threads) {
  gate_up<F16>({data}, ids, FloatRow<FloatStage>{x + static_cast<uint64_t>(blockIdx.x / k) * cols, nullptr, 0.0f}, act, rows, cols, experts, limit);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) experts_gate_up_bf16(const uint16_t* data, const uint32_t* ids, const float* x, float* act, uint32_t rows, uint32_t cols, uint32_t experts, uint32_t k, float limit, uint32_t tokens, uint32_t blocks, uint32_t threads) {
  gate_up<BF16>({data}, ids, FloatRow<FloatStage>{x + static_cast<uint64_t>(blockIdx.x / k) * cols, nullptr, 0.0f}, act, rows, cols, experts, limit);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) experts_gate_up_nvfp4(const uint8_t* qs, const uint8_t* scales, const float* global, const uint32_t* ids, const float* x, float* act, uint32_t rows, uint32_t cols, uint32_t experts, uint32_t k, float limit, uint32_t tokens, uint32_t blocks, uint32_t threads) {
  gate_up<NVFP4>({qs, scales, global}, ids, FloatRow<FloatStage>{x + static_cast<uint64_t>(blockIdx.x / k) * cols, nullptr, 0.0f}, act, rows, cols, experts, limit);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) experts_gate_up_i16_nvfp4(const uint8_t* qs, const uint8_t* scales, const float* global, const uint32_t* ids, const int16_t* xq, const float* xs, float* act, uint32_t rows, uint32_t cols, uint32_t experts, uint32_t k, float limit, uint32_t tokens, uint32_t blocks, uint32_t threads) {
  gate_up<NVFP4Int16>({qs, scales, global}, ids, Int16Row{xq + static_cast<uint64_t>(blockIdx.x / k) * cols, xs + static_cast<uint64_t>(blockIdx.x / k) * (cols / 32)}, act, rows, cols, experts, limit);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) experts_down_f32(const float* data, const uint32_t* ids, const float* act, float* y, uint32_t rows, uint32_t cols, uint32_t experts, uint32_t k, uint32_t tokens, uint32_t blocks, uint32_t threads) {
  down<F32>({data}, ids, FloatRow<FloatStage>{act + token_row(cols), nullptr, 0.0f}, y, rows, cols, experts);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) experts_down_f16(const uint16_t* data, const uint32_t* ids, const float* act, float* y, uint32_t rows, uint32_t cols, uint32_t experts, uint32_t k, uint32_t tokens, uint32_t blocks, uint32_t threads) {
  down<F16>({data}, ids, FloatRow<FloatStage>{act + token_row(cols), nullptr, 0.0f}, y, rows, cols, experts);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) experts_down_bf16(const uint16_t* data, const uint32_t* ids, const float* act, float* y, uint32_t rows, uint32_t cols, uint32_t experts, uint32_t k, uint32_t tokens, uint32_t blocks, uint32_t threads) {
  down<BF16>({data}, ids, FloatRow<FloatStage>{act + token_row(cols), nullptr, 0.0f}, y, rows, cols, experts);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) experts_down_nvfp4(const uint8_t* qs, const uint8_t* scales, const float* global, const uint32_t* ids, const float* act, float* y, uint32_t rows, uint32_t cols, uint32_t experts, uint32_t k, uint32_t tokens, uint32_t blocks, uint32_t threads) {
  down<NVFP4>({qs, scales, global}, ids, FloatRow<FloatStage>{act + token_row(cols), nullptr, 0.0f}, y, rows, cols, experts);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) experts_down_i16_nvfp4(const uint8_t* qs, const uint8_t* scales, const float* global, const uint32_t* ids, const int16_t* actq, const float* acts, float* y, uint32_t rows, uint32_t cols, uint32_t experts, uint32_t k, uint32_t tokens, uint32_t blocks, uint32_t threads) {
  down<NVFP4Int16>({qs, scales, global}, ids, Int16Row{actq + token_row(cols), acts + token_row(cols / 32)}, y, rows, cols, experts);
}

// out[token] = Σ weights[token, place] · y[token, place] in the order of the places, a fused chain from 0; then + shared[token]. Grid
// (blocks of quads of columns, tokens), a thread a quad.
extern "C" __global__ void __launch_bounds__(128) experts_combine(const float* y, const float* weights, const float* shared, float* out, uint32_t cols, uint32_t k, uint32_t tokens) {
  dependent_begin();
  const uint32_t quad = blockIdx.x * COMBINE_THREADS + threadIdx.x, quads = cols / 4;
  if (quad >= quads) return;
  const uint64_t token = blockIdx.y;
  const float4* from = reinterpret_cast<const float4*>(y) + token * k * quads + quad;
  const float* weight = weights + token * k;
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
  for (uint32_t place = 0; place < k; ++place) {
    const float w = weight[place];
    const float4 v = from[static_cast<uint64_t>(place) * quads];
    sum = make_float4(fmaf(w, v.x, sum.x), fmaf(w, v.y, sum.y), fmaf(w, v.z, sum.z), fmaf(w, v.w, sum.w));
  }
  if (shared != nullptr) {
    const float4 v = reinterpret_cast<const float4*>(shared)[token * quads + quad];
    sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
  }
  reinterpret_cast<float4*>(out)[token * quads + quad] = sum;
}
