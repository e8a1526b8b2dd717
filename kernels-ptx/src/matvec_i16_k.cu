// matvec_i16.cu for formats with five bits and ggml's "k" formats.
#include "bw_prototypes.cuh"
#include "formats_k.cuh"

using namespace bw;

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) matvec_i16_q5_0(const uint32_t* qs, const uint32_t* qt, const uint16_t* d, const int16_t* xq, const float* xs, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens) {
  matvec<Q5_0Int16>({qs, qt, d}, {xq, xs, blockIdx.x * cols}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) matvec_i16_q4_k(const uint8_t* qs, const uint8_t* scales, const uint16_t* dm, const int16_t* xq, const float* xs, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens) {
  matvec<Q4_KInt16>({qs, scales, dm}, {xq, xs, blockIdx.x * cols}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) matvec_i16_q5_k(const uint32_t* qs, const uint32_t* qt, const uint8_t* scales, const uint16_t* dm, const int16_t* xq, const float* xs, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens) {
  matvec<Q5_KInt16>({qs, qt, scales, dm}, {xq, xs, blockIdx.x * cols}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) matvec_i16_q6_k(const uint32_t* qs, const uint32_t* qt, const int8_t* scales, const uint16_t* d, const int16_t* xq, const float* xs, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens) {
  matvec<Q6_KInt16>({qs, qt, scales, d}, {xq, xs, blockIdx.x * cols}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) matvec_swiglu_i16_q5_0(const uint32_t* qs, const uint32_t* qt, const uint16_t* d, const int16_t* xq, const float* xs, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens) {
  matvec_swiglu<Q5_0Int16>({qs, qt, d}, {xq, xs, blockIdx.x * cols}, y, rows, cols, limit);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) matvec_swiglu_i16_q4_k(const uint8_t* qs, const uint8_t* scales, const uint16_t* dm, const int16_t* xq, const float* xs, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens) {
  matvec_swiglu<Q4_KInt16>({qs, scales, dm}, {xq, xs, blockIdx.x * cols}, y, rows, cols, limit);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) matvec_swiglu_i16_q5_k(const uint32_t* qs, const uint32_t* qt, const uint8_t* scales, const uint16_t* dm, const int16_t* xq, const float* xs, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens) {
  matvec_swiglu<Q5_KInt16>({qs, qt, scales, dm}, {xq, xs, blockIdx.x * cols}, y, rows, cols, limit);
}

extern "C" __global__ void __launch_bounds__(MATVEC_THREADS) matvec_swiglu_i16_q6_k(const uint32_t* qs, const uint32_t* qt, const int8_t* scales, const uint16_t* d, const int16_t* xq, const float* xs, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens) {
  matvec_swiglu<Q6_KInt16>({qs, qt, scales, d}, {xq, xs, blockIdx.x * cols}, y, rows, cols, limit);
}
