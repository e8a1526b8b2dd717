// One entry a function of bw_math.cuh: y[i] = f(x[i]), so that a gate can sweep each over its range on every device.
#include "bw_math.cuh"
#include "bw_prototypes.cuh"

namespace bw {

template <class In, class Out, class F>
__device__ __forceinline__ void map(const In* x, Out* y, uint32_t n, F f) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = f(x[i]);
}

}  // namespace bw

extern "C" __global__ void __launch_bounds__(256) math_exp(const float* x, float* y, uint32_t n) {
  bw::map(x, y, n, [](float v) { return bw::exp(v); });
}

extern "C" __global__ void __launch_bounds__(256) math_sigmoid(const float* x, float* y, uint32_t n) {
  bw::map(x, y, n, [](float v) { return bw::sigmoid(v); });
}

extern "C" __global__ void __launch_bounds__(256) math_silu(const float* x, float* y, uint32_t n) {
  bw::map(x, y, n, [](float v) { return bw::silu(v); });
}

extern "C" __global__ void __launch_bounds__(256) math_softplus(const float* x, float* y, uint32_t n) {
  bw::map(x, y, n, [](float v) { return bw::softplus(v); });
}

extern "C" __global__ void __launch_bounds__(256) math_sin(const float* x, float* y, uint32_t n) {
  bw::map(x, y, n, [](float v) { return bw::sin(v); });
}

extern "C" __global__ void __launch_bounds__(256) math_cos(const float* x, float* y, uint32_t n) {
  bw::map(x, y, n, [](float v) { return bw::cos(v); });
}

extern "C" __global__ void __launch_bounds__(256) math_e4m3_from_f32(const float* x, uint8_t* y, uint32_t n) {
  bw::map(x, y, n, [](float v) { return static_cast<uint8_t>(bw::e4m3_from_f32(v)); });
}

extern "C" __global__ void __launch_bounds__(256) math_f32_from_e4m3(const uint8_t* x, float* y, uint32_t n) {
  bw::map(x, y, n, [](uint8_t v) { return bw::f32_from_e4m3(v); });
}

extern "C" __global__ void __launch_bounds__(256) math_f16_from_f32(const float* x, uint16_t* y, uint32_t n) {
  bw::map(x, y, n, [](float v) { return bw::f16_from_f32(v); });
}

extern "C" __global__ void __launch_bounds__(256) math_f32_from_f16(const uint16_t* x, float* y, uint32_t n) {
  bw::map(x, y, n, [](uint16_t v) { return bw::f32_from_f16(v); });
}
