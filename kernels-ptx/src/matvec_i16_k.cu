// matvec_i16.cu for formats with five bits and ggml's "k" formats.
#include "bw_prototypes.cuh"
#include "formats_k.cuh"
#include "products.cuh"

using namespace bw;

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_i16_q5_0(const uint32_t* qs, const uint32_t* qt, const uint16_t* d, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec<Q5_0Int16>({qs, qt, d}, FloatRow<Int16Stage>{x + token_row(x_stride), norm, eps}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_i16_q4_k(const uint8_t* qs, const uint8_t* scales, const uint16_t* dm, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec<Q4_KInt16>({qs, scales, dm}, FloatRow<Int16Stage>{x + token_row(x_stride), norm, eps}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_i16_q5_k(const uint32_t* qs, const uint32_t* qt, const uint8_t* scales, const uint16_t* dm, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec<Q5_KInt16>({qs, qt, scales, dm}, FloatRow<Int16Stage>{x + token_row(x_stride), norm, eps}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_i16_q6_k(const uint32_t* qs, const uint32_t* qt, const int8_t* scales, const uint16_t* d, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec<Q6_KInt16>({qs, qt, scales, d}, FloatRow<Int16Stage>{x + token_row(x_stride), norm, eps}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_swiglu_i16_q5_0(const uint32_t* qs, const uint32_t* qt, const uint16_t* d, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec_swiglu<Q5_0Int16>({qs, qt, d}, FloatRow<Int16Stage>{x + token_row(x_stride), norm, eps}, y, rows, cols, limit);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_swiglu_i16_q4_k(const uint8_t* qs, const uint8_t* scales, const uint16_t* dm, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec_swiglu<Q4_KInt16>({qs, scales, dm}, FloatRow<Int16Stage>{x + token_row(x_stride), norm, eps}, y, rows, cols, limit);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_swiglu_i16_q5_k(const uint32_t* qs, const uint32_t* qt, const uint8_t* scales, const uint16_t* dm, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec_swiglu<Q5_KInt16>({qs, qt, scales, dm}, FloatRow<Int16Stage>{x + token_row(x_stride), norm, eps}, y, rows, cols, limit);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_swiglu_i16_q6_k(const uint32_t* qs, const uint32_t* qt, const int8_t* scales, const uint16_t* d, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec_swiglu<Q6_KInt16>({qs, qt, scales, d}, FloatRow<Int16Stage>{x + token_row(x_stride), norm, eps}, y, rows, cols, limit);
}
