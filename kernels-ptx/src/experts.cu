// The experts that a router chose, all of them in one launch, and the sum of what they gave. The matrices of all experts of a layer
// are stacked by rows. Block (token and place, block of rows): a row is reduced as in `matvec` (see matvec.cuh), so the results have
// the bits of `matvec_swiglu` and `matvec` over that expert's rows alone. An id past the experts writes NaN.
#include "bw_prototypes.cuh"
#include "dependent.cuh"
#include "formats.cuh"

using namespace bw;

namespace bw {

constexpr uint32_t COMBINE_THREADS = 128;

// The result's element of this thread's group of lanes, or null: a group past the rows, or a lane that is not its group's first.
template <class K>
__device__ __forceinline__ float* result(float* y, uint32_t row, uint32_t rows) {
  const bool writes = threadIdx.x % K::LANES == 0 && row < rows;
  return writes ? y + (static_cast<uint64_t>(blockIdx.x) * rows + row) : nullptr;
}

// act[token, place, row] = swiglu of rows `row` and `rows + row` of the 2·rows of expert ids[token, place].
template <class K>
__device__ __forceinline__ void gate_up(const typename K::Planes& planes, const uint32_t* ids, const typename K::Input& input,
                                        float* act, uint32_t rows, uint32_t cols, uint32_t experts, float limit) {
  const uint32_t row = (blockIdx.y * blockDim.x + threadIdx.x) / K::LANES;
  float* y = result<K>(act, row, rows);
  const uint32_t id = ids[blockIdx.x];
  if (id >= experts) {
    if (y != nullptr) *y = __int_as_float(0x7fffffff);
    return;
  }
  float total[2];
  row_sums<K, 2>(planes, input, id * 2 * rows + min(row, rows - 1), rows, cols, total);
  if (y != nullptr) *y = swiglu(total[0], total[1], limit);
}

// y[token, place, row] = row `row` of expert ids[token, place] times act[token, place].
template <class K>
__device__ __forceinline__ void down(const typename K::Planes& planes, const uint32_t* ids, const typename K::Input& input, float* out,
                                     uint32_t rows, uint32_t cols, uint32_t experts) {
  const uint32_t row = (blockIdx.y * blockDim.x + threadIdx.x) / K::LANES;
  float* y = result<K>(out, row, rows);
  const uint32_t id = ids[blockIdx.x];
  if (id >= experts) {
    if (y != nullptr) *y = __int_as_float(0x7fffffff);
    return;
  }
  float total[1];
  row_sums<K, 1>(planes, input, id * rows + min(row, rows - 1), 0, cols, total);
  if (y != nullptr) *y = total[0];
}

}  // namespace bw

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) experts_gate_up_f32(const float* data, const uint32_t* ids, const float* x, float* act, uint32_t rows, uint32_t cols, uint32_t experts, uint32_t k, float limit, uint32_t tokens) {
  dependent_begin();
  gate_up<F32>({data}, ids, {x, blockIdx.x / k * cols}, act, rows, cols, experts, limit);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) experts_gate_up_f16(const uint16_t* data, const uint32_t* ids, const float* x, float* act, uint32_t rows, uint32_t cols, uint32_t experts, uint32_t k, float limit, uint32_t tokens) {
  dependent_begin();
  gate_up<F16>({data}, ids, {x, blockIdx.x / k * cols}, act, rows, cols, experts, limit);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) experts_gate_up_bf16(const uint16_t* data, const uint32_t* ids, const float* x, float* act, uint32_t rows, uint32_t cols, uint32_t experts, uint32_t k, float limit, uint32_t tokens) {
  dependent_begin();
  gate_up<BF16>({data}, ids, {x, blockIdx.x / k * cols}, act, rows, cols, experts, limit);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) experts_gate_up_nvfp4(const uint8_t* qs, const uint8_t* scales, const float* global, const uint32_t* ids, const float* x, float* act, uint32_t rows, uint32_t cols, uint32_t experts, uint32_t k, float limit, uint32_t tokens) {
  dependent_begin();
  gate_up<NVFP4>({qs, scales, global}, ids, {x, blockIdx.x / k * cols}, act, rows, cols, experts, limit);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) experts_gate_up_i16_nvfp4(const uint8_t* qs, const uint8_t* scales, const float* global, const uint32_t* ids, const int16_t* xq, const float* xs, float* act, uint32_t rows, uint32_t cols, uint32_t experts, uint32_t k, float limit, uint32_t tokens) {
  dependent_begin();
  gate_up<NVFP4Int16>({qs, scales, global}, ids, {xq, xs, blockIdx.x / k * cols}, act, rows, cols, experts, limit);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) experts_down_f32(const float* data, const uint32_t* ids, const float* act, float* y, uint32_t rows, uint32_t cols, uint32_t experts, uint32_t k, uint32_t tokens) {
  dependent_begin();
  down<F32>({data}, ids, {act, blockIdx.x * cols}, y, rows, cols, experts);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) experts_down_f16(const uint16_t* data, const uint32_t* ids, const float* act, float* y, uint32_t rows, uint32_t cols, uint32_t experts, uint32_t k, uint32_t tokens) {
  dependent_begin();
  down<F16>({data}, ids, {act, blockIdx.x * cols}, y, rows, cols, experts);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) experts_down_bf16(const uint16_t* data, const uint32_t* ids, const float* act, float* y, uint32_t rows, uint32_t cols, uint32_t experts, uint32_t k, uint32_t tokens) {
  dependent_begin();
  down<BF16>({data}, ids, {act, blockIdx.x * cols}, y, rows, cols, experts);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) experts_down_nvfp4(const uint8_t* qs, const uint8_t* scales, const float* global, const uint32_t* ids, const float* act, float* y, uint32_t rows, uint32_t cols, uint32_t experts, uint32_t k, uint32_t tokens) {
  dependent_begin();
  down<NVFP4>({qs, scales, global}, ids, {act, blockIdx.x * cols}, y, rows, cols, experts);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) experts_down_i16_nvfp4(const uint8_t* qs, const uint8_t* scales, const float* global, const uint32_t* ids, const int16_t* actq, const float* acts, float* y, uint32_t rows, uint32_t cols, uint32_t experts, uint32_t k, uint32_t tokens) {
  dependent_begin();
  down<NVFP4Int16>({qs, scales, global}, ids, {actq, acts, blockIdx.x * cols}, y, rows, cols, experts);
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
