// y = W · norm(x) (+ residual) and the gated pair of projections, float32 activations; see rows.cuh.
#include "bw_prototypes.cuh"
#include "formats.cuh"
#include "products.cuh"

using namespace bw;

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_f32(const float* data, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec<F32>({data}, FloatRow<FloatStage>{x + token_row(x_stride), norm, eps}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_f16(const uint16_t* data, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec<F16>({data}, FloatRow<FloatStage>{x + token_row(x_stride), norm, eps}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_bf16(const uint16_t* data, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec<BF16>({data}, FloatRow<FloatStage>{x + token_row(x_stride), norm, eps}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_q8_0(const int8_t* qs, const uint16_t* d, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec<Q8_0>({qs, d}, FloatRow<FloatStage>{x + token_row(x_stride), norm, eps}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_q4_0(const uint8_t* qs, const uint16_t* d, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec<Q4_0>({qs, d}, FloatRow<FloatStage>{x + token_row(x_stride), norm, eps}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_q4_1(const uint8_t* qs, const uint16_t* dm, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec<Q4_1>({qs, reinterpret_cast<const uint32_t*>(dm)}, FloatRow<FloatStage>{x + token_row(x_stride), norm, eps}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_nvfp4(const uint8_t* qs, const uint8_t* scales, const float* global, const float* x, const float* norm, float eps, const float* residual, float* y, uint32_t rows, uint32_t cols, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec<NVFP4>({qs, scales, global}, FloatRow<FloatStage>{x + token_row(x_stride), norm, eps}, residual, y, rows, cols);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_swiglu_f32(const float* data, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec_swiglu<F32>({data}, FloatRow<FloatStage>{x + token_row(x_stride), norm, eps}, y, rows, cols, limit);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_swiglu_f16(const uint16_t* data, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec_swiglu<F16>({data}, FloatRow<FloatStage>{x + token_row(x_stride), norm, eps}, y, rows, cols, limit);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_swiglu_bf16(const uint16_t* data, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec_swiglu<BF16>({data}, FloatRow<FloatStage>{x + token_row(x_stride), norm, eps}, y, rows, cols, limit);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_swiglu_q8_0(const int8_t* qs, const uint16_t* d, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec_swiglu<Q8_0>({qs, d}, FloatRow<FloatStage>{x + token_row(x_stride), norm, eps}, y, rows, cols, limit);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_swiglu_q4_0(const uint8_t* qs, const uint16_t* d, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec_swiglu<Q4_0>({qs, d}, FloatRow<FloatStage>{x + token_row(x_stride), norm, eps}, y, rows, cols, limit);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_swiglu_q4_1(const uint8_t* qs, const uint16_t* dm, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec_swiglu<Q4_1>({qs, reinterpret_cast<const uint32_t*>(dm)}, FloatRow<FloatStage>{x + token_row(x_stride), norm, eps}, y, rows, cols, limit);
}

extern "C" __global__ void __launch_bounds__(ROW_THREADS) matvec_swiglu_nvfp4(const uint8_t* qs, const uint8_t* scales, const float* global, const float* x, const float* norm, float eps, float* y, uint32_t rows, uint32_t cols, float limit, uint32_t tokens, uint32_t x_stride, uint32_t blocks, uint32_t threads, uint32_t room) {
  matvec_swiglu<NVFP4>({qs, scales, global}, FloatRow<FloatStage>{x + token_row(x_stride), norm, eps}, y, rows, cols, limit);
}
