// The same products with block-scaled int16 activations: a block's inner product is exact in integers (dp2a), then scaled by the
// two blocks' scales in float32.
#include "bw_prototypes.cuh"
#include "formats.cuh"

using namespace bw;

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) matvec_i16_q8_0(const int8_t* qs, const uint16_t* d, const int16_t* xq, const float* xs, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens) {
  matvec<Q8_0Int16>({qs, d}, {xq, xs, blockIdx.x * cols}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) matvec_i16_q4_0(const uint8_t* qs, const uint16_t* d, const int16_t* xq, const float* xs, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens) {
  matvec<Q4_0Int16>({qs, d}, {xq, xs, blockIdx.x * cols}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) matvec_i16_q4_1(const uint8_t* qs, const uint16_t* dm, const int16_t* xq, const float* xs, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens) {
  matvec<Q4_1Int16>({qs, reinterpret_cast<const uint32_t*>(dm)}, {xq, xs, blockIdx.x * cols}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) matvec_i16_nvfp4(const uint8_t* qs, const uint8_t* scales, const float* global, const int16_t* xq, const float* xs, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens) {
  matvec<NVFP4Int16>({qs, scales, global}, {xq, xs, blockIdx.x * cols}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) matvec_swiglu_i16_q8_0(const int8_t* qs, const uint16_t* d, const int16_t* xq, const float* xs, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens) {
  matvec_swiglu<Q8_0Int16>({qs, d}, {xq, xs, blockIdx.x * cols}, y, rows, cols, limit);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) matvec_swiglu_i16_q4_0(const uint8_t* qs, const uint16_t* d, const int16_t* xq, const float* xs, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens) {
  matvec_swiglu<Q4_0Int16>({qs, d}, {xq, xs, blockIdx.x * cols}, y, rows, cols, limit);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) matvec_swiglu_i16_q4_1(const uint8_t* qs, const uint16_t* dm, const int16_t* xq, const float* xs, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens) {
  matvec_swiglu<Q4_1Int16>({qs, reinterpret_cast<const uint32_t*>(dm)}, {xq, xs, blockIdx.x * cols}, y, rows, cols, limit);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) matvec_swiglu_i16_nvfp4(const uint8_t* qs, const uint8_t* scales, const float* global, const int16_t* xq, const float* xs, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens) {
  matvec_swiglu<NVFP4Int16>({qs, scales, global}, {xq, xs, blockIdx.x * cols}, y, rows, cols, limit);
}
