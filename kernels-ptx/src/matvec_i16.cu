// The same products with activations quantised to block-scaled int16: a block's inner product is exact in integers (dp2a), then
// scaled by the two blocks' scales in float32.
#include "bw_prototypes.cuh"
#include "formats.cuh"
#include "products.cuh"

using namespace bw;

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_i16_q8_0(const int8_t* qs, const uint16_t* d, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec<Q8_0Int16>({qs, d}, FloatRow<Int16Stage>{x + token_row(x_stride), norm, eps}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_i16_q4_0(const uint8_t* qs, const uint16_t* d, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec<Q4_0Int16>({qs, d}, FloatRow<Int16Stage>{x + token_row(x_stride), norm, eps}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_i16_q4_1(const uint8_t* qs, const uint16_t* dm, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec<Q4_1Int16>({qs, reinterpret_cast<const uint32_t*>(dm)}, FloatRow<Int16Stage>{x + token_row(x_stride), norm, eps}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_i16_nvfp4(const uint8_t* qs, const uint8_t* scales, const float* global, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec<NVFP4Int16>({qs, scales, global}, FloatRow<Int16Stage>{x + token_row(x_stride), norm, eps}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_swiglu_i16_q8_0(const int8_t* qs, const uint16_t* d, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec_swiglu<Q8_0Int16>({qs, d}, FloatRow<Int16Stage>{x + token_row(x_stride), norm, eps}, y, rows, cols, limit);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_swiglu_i16_q4_0(const uint8_t* qs, const uint16_t* d, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec_swiglu<Q4_0Int16>({qs, d}, FloatRow<Int16Stage>{x + token_row(x_stride), norm, eps}, y, rows, cols, limit);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_swiglu_i16_q4_1(const uint8_t* qs, const uint16_t* dm, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec_swiglu<Q4_1Int16>({qs, reinterpret_cast<const uint32_t*>(dm)}, FloatRow<Int16Stage>{x + token_row(x_stride), norm, eps}, y, rows, cols, limit);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_swiglu_i16_nvfp4(const uint8_t* qs, const uint8_t* scales, const float* global, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec_swiglu<NVFP4Int16>({qs, scales, global}, FloatRow<Int16Stage>{x + token_row(x_stride), norm, eps}, y, rows, cols, limit);
}
