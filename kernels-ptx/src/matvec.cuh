// Matrix-vector products over row-major weight planes: the walk shared by every format and both activation programs.
//
// A row is read by LANES neighbouring lanes of a warp, each taking 16-byte vectors of the row in turn: vector v goes to lane
// v mod LANES. A lane adds its vectors alternately into two sums (even and odd turns), the two are added, and a butterfly over the
// LANES lanes finishes the row. That order is the numeric contract: it depends on the format alone, not on grid, block, or on
// how many rows a lane carries, so `matvec_swiglu` has the bits of two `matvec`s.
//
// Activations are staged in shared memory CHUNK columns at a time, in blocks of 32 padded so that 16-byte reads by neighbouring
// lanes fall in different banks. Weights are loaded one step ahead of the step that is being multiplied, and the first two steps
// are on their way before the activations are waited for.
#pragma once
#include "bw_math.cuh"
#include "warp.cuh"

namespace bw {

constexpr uint32_t CHUNK = 2048;               // columns of activations in shared memory at a time
constexpr uint32_t CHUNK_BLOCKS = CHUNK / 32;
constexpr uint32_t MATVEC_THREADS = 256;       // the largest block; any multiple of 32 up to it works

// float32 activations: a block of 32 floats, then their sum (for formats with an offset) and three floats of padding.
struct FloatInput {
  static constexpr uint32_t STRIDE = 36;
  static constexpr uint32_t WORDS = CHUNK_BLOCKS * STRIDE;
  const float* x;

  // Stages columns [first, first + padded) of which those past `width` are zeros; `padded` is a multiple of 32.
  template <bool SUMS>
  __device__ __forceinline__ void stage(float* shared, uint32_t first, uint32_t width, uint32_t padded) const {
    for (uint32_t base = threadIdx.x & ~31u; base < padded / 4; base += blockDim.x) {
      const uint32_t i = base + lane_id();  // quad of columns
      float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (i < width / 4) v = *reinterpret_cast<const float4*>(x + first + 4 * i);
      const uint32_t at = (i >> 3) * STRIDE + (i & 7u) * 4;
      if (i < padded / 4) *reinterpret_cast<float4*>(shared + at) = v;
      if (SUMS) {
        const float sum = butterfly_sum<8>((v.x + v.y) + (v.z + v.w));
        if ((i & 7u) == 0 && i < padded / 4) shared[at + 32] = sum;
      }
    }
  }
};

// Block-scaled int16 activations: 32 values (16 words), the block's scale, the block's integer sum, two words of padding.
struct Int16Input {
  static constexpr uint32_t STRIDE = 20;
  static constexpr uint32_t WORDS = CHUNK_BLOCKS * STRIDE;
  const int16_t* q;
  const float* scale;

  template <bool SUMS>
  __device__ __forceinline__ void stage(float* shared, uint32_t first, uint32_t width, uint32_t padded) const {
    for (uint32_t base = threadIdx.x & ~31u; base < padded / 8; base += blockDim.x) {
      const uint32_t i = base + lane_id();  // eight columns
      const bool inside = i < width / 8;
      uint4 v = make_uint4(0, 0, 0, 0);
      if (inside) v = *reinterpret_cast<const uint4*>(q + first + 8 * i);
      const uint32_t at = (i >> 2) * STRIDE + (i & 3u) * 4;
      if (i < padded / 8) *reinterpret_cast<uint4*>(shared + at) = v;
      int32_t sum = 0;
      if (SUMS) {
        constexpr uint32_t ONES = 0x01010101u;
        sum = dp2a_lo(v.x, ONES, dp2a_lo(v.y, ONES, dp2a_lo(v.z, ONES, dp2a_lo(v.w, ONES, 0))));
        sum += __shfl_xor_sync(FULL_MASK, sum, 2);
        sum += __shfl_xor_sync(FULL_MASK, sum, 1);
      }
      if ((i & 3u) == 0 && i < padded / 8) {
        shared[at + 16] = inside ? scale[(first >> 5) + (i >> 2)] : 0.0f;
        if (SUMS) shared[at + 17] = __int_as_float(sum);
      }
    }
  }
};

// The sums of rows row + r·row_step, r < R, over all columns, in every lane of the group that shares them. K names a format and
// the arithmetic on one 16-byte vector of it. Rows must be valid; every thread of the block must call.
template <class K, uint32_t R>
__device__ __forceinline__ void row_sums(const typename K::Planes& planes, const typename K::Input& input, uint32_t row,
                                         uint32_t row_step, uint32_t cols, float (&total)[R]) {
  constexpr uint32_t VECTORS = 4 / R;                              // of each row, in a step
  constexpr uint32_t SPAN = K::LANES * K::WEIGHTS;                 // columns that one vector a lane covers
  constexpr uint32_t STEP_COLS = VECTORS * SPAN;
  constexpr uint32_t CHUNK_STEPS = CHUNK / STEP_COLS;
  static_assert(CHUNK % STEP_COLS == 0 && CHUNK_STEPS >= 1, "a chunk is a whole number of steps");
  __shared__ __align__(16) float staged[K::Input::WORDS];

  const uint32_t lane = threadIdx.x % K::LANES;
  const uint32_t vectors = cols / K::WEIGHTS;
  const uint32_t steps = (cols + STEP_COLS - 1) / STEP_COLS;
  typename K::Raw next[R][VECTORS], current[R][VECTORS];
  float sum[R][2];
#pragma unroll
  for (uint32_t r = 0; r < R; ++r) sum[r][0] = sum[r][1] = 0.0f;
  typename K::Cursor cursor[R];
#pragma unroll
  for (uint32_t r = 0; r < R; ++r) cursor[r] = K::cursor(planes, row + r * row_step, cols);

  // Vectors past the end are read at the last one: their activations are staged as zeros.
  auto load = [&](uint32_t step) {
    const uint32_t first = step * (VECTORS * K::LANES);
    if (first + VECTORS * K::LANES <= vectors) {
#pragma unroll
      for (uint32_t r = 0; r < R; ++r)
#pragma unroll
        for (uint32_t u = 0; u < VECTORS; ++u) next[r][u] = K::load(cursor[r], first + lane, u * K::LANES);
    } else {
#pragma unroll
      for (uint32_t u = 0; u < VECTORS; ++u) {
        if (first + u * K::LANES < vectors) {
          const uint32_t v = min(first + u * K::LANES + lane, vectors - 1);
#pragma unroll
          for (uint32_t r = 0; r < R; ++r) next[r][u] = K::load(cursor[r], v, 0);
        }
      }
    }
  };

  load(0);
  for (uint32_t step = 0; step < steps; ++step) {
#pragma unroll
    for (uint32_t r = 0; r < R; ++r)
#pragma unroll
      for (uint32_t u = 0; u < VECTORS; ++u) current[r][u] = next[r][u];
    if (step + 1 < steps) load(step + 1);
    if (step % CHUNK_STEPS == 0) {
      const uint32_t first = step * STEP_COLS;
      const uint32_t width = min(cols - first, CHUNK);
      if (step != 0) __syncthreads();  // the chunk before is still being read
      input.template stage<K::SUMS>(staged, first, width, (width + SPAN - 1) / SPAN * SPAN);
      __syncthreads();
    }
    const uint32_t first = step * (VECTORS * K::LANES);
    const float* at = staged + K::offset((step % CHUNK_STEPS) * (VECTORS * K::LANES), lane);
#pragma unroll
    for (uint32_t u = 0; u < VECTORS; ++u) {
      if (first + u * K::LANES < vectors) {
        typename K::Activations a = K::activations(at + K::offset(u * K::LANES, 0), lane);
#pragma unroll
        for (uint32_t r = 0; r < R; ++r) sum[r][u & 1] = K::accumulate(current[r][u], a, sum[r][u & 1]);
      }
    }
  }
#pragma unroll
  for (uint32_t r = 0; r < R; ++r) total[r] = butterfly_sum<K::LANES>(sum[r][0] + sum[r][1]);
}

// y[row] = (residual[row] +) w[row] · x, blockDim.x / LANES rows a block.
template <class K>
__device__ __forceinline__ void matvec(const typename K::Planes& planes, const typename K::Input& input, const float* residual,
                                       float* y, uint32_t rows, uint32_t cols) {
  const uint32_t row = (blockIdx.x * blockDim.x + threadIdx.x) / K::LANES;
  float total[1];
  row_sums<K, 1>(planes, input, min(row, rows - 1), 0, cols, total);
  if (threadIdx.x % K::LANES == 0 && row < rows) {
    if (residual != nullptr) total[0] = residual[row] + total[0];
    y[row] = total[0];
  }
}

// y[row] = silu(w[row] · x) · (w[rows + row] · x), over a plane of 2·rows rows.
template <class K>
__device__ __forceinline__ void matvec_swiglu(const typename K::Planes& planes, const typename K::Input& input, float* y,
                                              uint32_t rows, uint32_t cols) {
  const uint32_t row = (blockIdx.x * blockDim.x + threadIdx.x) / K::LANES;
  float total[2];
  row_sums<K, 2>(planes, input, min(row, rows - 1), rows, cols, total);
  if (threadIdx.x % K::LANES == 0 && row < rows) y[row] = silu(total[0]) * total[1];
}

}  // namespace bw
