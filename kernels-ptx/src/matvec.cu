// y = W · x (+ residual) and the gated pair of projections, float32 activations. One group of lanes a row; see matvec.cuh.
#include "bw_prototypes.cuh"
#include "formats.cuh"

using namespace bw;

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) matvec_f32(const float* data, const float* x, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride) {
  matvec<F32>({data}, {x, blockIdx.x * x_stride}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) matvec_f16(const uint16_t* data, const float* x, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride) {
  matvec<F16>({data}, {x, blockIdx.x * x_stride}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) matvec_bf16(const uint16_t* data, const float* x, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride) {
  matvec<BF16>({data}, {x, blockIdx.x * x_stride}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) matvec_q8_0(const int8_t* qs, const uint16_t* d, const float* x, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride) {
  matvec<Q8_0>({qs, d}, {x, blockIdx.x * x_stride}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) matvec_q4_0(const uint8_t* qs, const uint16_t* d, const float* x, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride) {
  matvec<Q4_0>({qs, d}, {x, blockIdx.x * x_stride}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) matvec_q4_1(const uint8_t* qs, const uint16_t* dm, const float* x, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride) {
  matvec<Q4_1>({qs, reinterpret_cast<const uint32_t*>(dm)}, {x, blockIdx.x * x_stride}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) matvec_nvfp4(const uint8_t* qs, const uint8_t* scales, const float* global, const float* x, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride) {
  matvec<NVFP4>({qs, scales, global}, {x, blockIdx.x * x_stride}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) matvec_swiglu_f32(const float* data, const float* x, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens) {
  matvec_swiglu<F32>({data}, {x, blockIdx.x * cols}, y, rows, cols, limit);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) matvec_swiglu_f16(const uint16_t* data, const float* x, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens) {
  matvec_swiglu<F16>({data}, {x, blockIdx.x * cols}, y, rows, cols, limit);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) matvec_swiglu_bf16(const uint16_t* data, const float* x, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens) {
  matvec_swiglu<BF16>({data}, {x, blockIdx.x * cols}, y, rows, cols, limit);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) matvec_swiglu_q8_0(const int8_t* qs, const uint16_t* d, const float* x, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens) {
  matvec_swiglu<Q8_0>({qs, d}, {x, blockIdx.x * cols}, y, rows, cols, limit);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) matvec_swiglu_q4_0(const uint8_t* qs, const uint16_t* d, const float* x, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens) {
  matvec_swiglu<Q4_0>({qs, d}, {x, blockIdx.x * cols}, y, rows, cols, limit);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) matvec_swiglu_q4_1(const uint8_t* qs, const uint16_t* dm, const float* x, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens) {
  matvec_swiglu<Q4_1>({qs, reinterpret_cast<const uint32_t*>(dm)}, {x, blockIdx.x * cols}, y, rows, cols, limit);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) matvec_swiglu_nvfp4(const uint8_t* qs, const uint8_t* scales, const float* global, const float* x, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens) {
  matvec_swiglu<NVFP4>({qs, scales, global}, {x, blockIdx.x * cols}, y, rows, cols, limit);
}
