// matvec.cu for formats with five bits and ggml's "k" formats.
#include "bw_prototypes.cuh"
#include "formats_k.cuh"
#include "products.cuh"

using namespace bw;

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_q5_0(const uint32_t* qs, const uint32_t* qt, const uint16_t* d, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec<Q5_0>({qs, qt, d}, FloatRow<FloatStage>{x + token_row(x_stride), norm, eps}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_q4_k(const uint8_t* qs, const uint8_t* scales, const uint16_t* dm, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec<Q4_K>({qs, scales, dm}, FloatRow<FloatStage>{x + token_row(x_stride), norm, eps}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_q5_k(const uint32_t* qs, const uint32_t* qt, const uint8_t* scales, const uint16_t* dm, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec<Q5_K>({qs, qt, scales, dm}, FloatRow<FloatStage>{x + token_row(x_stride), norm, eps}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_q6_k(const uint32_t* qs, const uint32_t* qt, const int8_t* scales, const uint16_t* d, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec<Q6_K>({qs, qt, scales, d}, FloatRow<FloatStage>{x + token_row(x_stride), norm, eps}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_swiglu_q5_0(const uint32_t* qs, const uint32_t* qt, const uint16_t* d, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec_swiglu<Q5_0>({qs, qt, d}, FloatRow<FloatStage>{x + token_row(x_stride), norm, eps}, y, rows, cols, limit);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_swiglu_q4_k(const uint8_t* qs, const uint8_t* scales, const uint16_t* dm, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec_swiglu<Q4_K>({qs, scales, dm}, FloatRow<FloatStage>{x + token_row(x_stride), norm, eps}, y, rows, cols, limit);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_swiglu_q5_k(const uint32_t* qs, const uint32_t* qt, const uint8_t* scales, const uint16_t* dm, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec_swiglu<Q5_K>({qs, qt, scales, dm}, FloatRow<FloatStage>{x + token_row(x_stride), norm, eps}, y, rows, cols, limit);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_swiglu_q6_k(const uint32_t* qs, const uint32_t* qt, const int8_t* scales, const uint16_t* d, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec_swiglu<Q6_K>({qs, qt, scales, d}, FloatRow<FloatStage>{x + token_row(x_stride), norm, eps}, y, rows, cols, limit);
}
