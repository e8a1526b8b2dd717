// Matrix-vector products over row-major weight planes: the walk shared by every format and both activation programs.
//
// A row is read by LANES neighbouring lanes of a warp, each taking 16-byte vectors of the row in turn: vector v goes to lane
// v mod LANES. A lane adds its vectors alternately into two sums (even and odd turns), the two are added, and a butterfly over the
// LANES lanes finishes the row, but for the scale that a format may have for a whole row. That order is the numeric contract: it depends on the format alone, not on grid, block, tokens, or
// on how many rows a lane carries, so `matvec_swiglu` has the bits of two `matvec`s, and a token the same bits alone and among others.
//
// The grid is (tokens, blocks of rows): the tokens of a block of rows run side by side, so that all but the first find its weights in
// the second-level cache. Activations of a launch are fewer than 2^32.
//
// Activations are staged in shared memory (dynamic, of the size that the launch gives: a chunk of at most CHUNK columns), in
// blocks of 32 padded so that 16-byte reads by neighbouring lanes fall in different banks. Each vector's registers are loaded
// anew as soon as it is multiplied, so that loads for the next step are always on their way, and those of the first step are
// before the activations are waited for.
#pragma once
#include "swiglu.cuh"
#include "warp.cuh"

namespace bw {

constexpr uint32_t CHUNK = 8192;          // columns of activations in shared memory at a time
constexpr uint32_t MATVEC_THREADS = 256;  // the largest block; any multiple of 32 up to it works
constexpr uint32_t STAGE = 4;             // 16-byte loads of activations that a thread has on their way

extern __shared__ __align__(16) float staged[];

// Calls load(k, i) for up to STAGE items i of this thread, then store(k, i) for the same. Whole warps take part: i may be past
// `items`, but a warp of which no lane is inside is left out.
template <class Load, class Store>
__device__ __forceinline__ void stage_items(uint32_t items, Load load, Store store) {
#pragma unroll 1
  for (uint32_t base = threadIdx.x & ~31u; base < items; base += STAGE * blockDim.x) {
#pragma unroll
    for (uint32_t k = 0; k < STAGE; ++k)
      if (base + k * blockDim.x < items) load(k, base + k * blockDim.x + lane_id());
#pragma unroll
    for (uint32_t k = 0; k < STAGE; ++k)
      if (base + k * blockDim.x < items) store(k, base + k * blockDim.x + lane_id());
  }
}

// float32 activations: a block of 32 floats, then their sum (for formats with an offset) and three floats of padding.
struct FloatInput {
  static constexpr uint32_t STRIDE = 36;
  const float* x;
  uint32_t base;  // of this token's row: an index of 32 bits costs no additions of pointers at each load

  // Stages columns [first, first + padded) of which those past `width` are zeros; `padded` is a multiple of 32.
  template <uint32_t SUMS>
  __device__ __forceinline__ void stage(uint32_t first, uint32_t width, uint32_t padded) const {
    float4 v[STAGE];
    stage_items(
        padded / 4,  // quads of columns
        [&](uint32_t k, uint32_t i) {
          v[k] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
          if (i < width / 4) v[k] = *reinterpret_cast<const float4*>(x + (base + first + 4 * i));
        },
        [&](uint32_t k, uint32_t i) {
          float* at = staged + (i >> 3) * STRIDE;
          if (i < padded / 4) *reinterpret_cast<float4*>(at + (i & 7u) * 4) = v[k];
          if (SUMS != 0) {
            const float sum = butterfly_sum<8>((v[k].x + v[k].y) + (v[k].z + v[k].w));
            if ((i & 7u) == 0 && i < padded / 4) at[32] = sum;
          }
        });
  }
};

// Block-scaled int16 activations: 32 values (16 words), the block's scale, its integer sum or those of its SUMS halves, padding.
struct Int16Input {
  static constexpr uint32_t STRIDE = 20;
  const int16_t* q;
  const float* scale;
  uint32_t base;  // of this token's row in q, a multiple of 32

  template <uint32_t SUMS>
  __device__ __forceinline__ void stage(uint32_t first, uint32_t width, uint32_t padded) const {
    uint4 v[STAGE];
    float s[STAGE];
    stage_items(
        padded / 8,  // eights of columns
        [&](uint32_t k, uint32_t i) {
          const bool inside = i < width / 8;
          v[k] = make_uint4(0, 0, 0, 0);
          if (inside) v[k] = *reinterpret_cast<const uint4*>(q + (base + first + 8 * i));
          s[k] = inside ? scale[((base + first) >> 5) + (i >> 2)] : 0.0f;
        },
        [&](uint32_t k, uint32_t i) {
          float* at = staged + (i >> 2) * STRIDE;
          if (i < padded / 8) *reinterpret_cast<uint4*>(at + (i & 3u) * 4) = v[k];
          int32_t sum = 0;
          if (SUMS != 0) {
            constexpr uint32_t ONES = 0x01010101u;
            sum = dp2a_lo(v[k].x, ONES, dp2a_lo(v[k].y, ONES, dp2a_lo(v[k].z, ONES, dp2a_lo(v[k].w, ONES, 0))));
            if (SUMS == 1) sum += __shfl_xor_sync(FULL_MASK, sum, 2);
            sum += __shfl_xor_sync(FULL_MASK, sum, 1);
          }
          if ((i & 3u) == 0 && i < padded / 8) {
            at[16] = s[k];
            if (SUMS != 0) at[17] = __int_as_float(sum);
          }
          // The fourth word is padding, but read with the other three.
          if (SUMS == 2 && (i & 3u) == 2 && i < padded / 8)
            *reinterpret_cast<float2*>(at + 18) = make_float2(__int_as_float(sum), 0.0f);
        });
  }
};

// The sums of rows row + r·row_step, r < R, over all columns, in every lane of the group that shares them. K names a format and
// the arithmetic on one 16-byte vector of it. Rows must be valid; every thread of the block must call.
template <class K, uint32_t R>
__device__ __forceinline__ void row_sums(const typename K::Planes& planes, const typename K::Input& input, uint32_t row,
                                         uint32_t row_step, uint32_t cols, float (&total)[R]) {
  constexpr uint32_t VECTORS = K::VECTORS / R;      // of each row, in a step
  constexpr uint32_t STEP = VECTORS * K::LANES;     // vectors of a row that a step covers
  constexpr uint32_t SPAN = K::LANES * K::WEIGHTS;  // columns that one vector a lane covers
  constexpr uint32_t CHUNK_STEPS = CHUNK / (VECTORS * SPAN);
  static_assert(CHUNK % (VECTORS * SPAN) == 0 && VECTORS % 2 == 0, "a chunk is whole steps, a step whole pairs of turns");

  const uint32_t lane = threadIdx.x % K::LANES;
  const uint32_t vectors = cols / K::WEIGHTS;
  const uint32_t steps = (vectors + STEP - 1) / STEP, full_steps = vectors / STEP;
  typename K::Raw raw[R][VECTORS];
  typename K::Cursor cursor[R];
  float sum[R][2];
#pragma unroll
  for (uint32_t r = 0; r < R; ++r) {
    cursor[r] = K::cursor(planes, row + r * row_step, cols);
    sum[r][0] = sum[r][1] = 0.0f;
  }

  // Vector u of the row's step `step`; where the step is not full, past the end the last vector: its activations are zeros.
  auto load_ragged = [&](uint32_t step, uint32_t u) {
    const uint32_t v = step * STEP + u * K::LANES;
    if (v < vectors) {
#pragma unroll
      for (uint32_t r = 0; r < R; ++r) raw[r][u] = K::load(cursor[r], min(v + lane, vectors - 1), 0);
    }
  };
  auto multiply = [&](const float* at, uint32_t u) {
    const typename K::Activations a = K::activations(at + K::offset(u * K::LANES, 0), lane);
#pragma unroll
    for (uint32_t r = 0; r < R; ++r) sum[r][u & 1] = K::accumulate(raw[r][u], a, sum[r][u & 1]);
  };

#pragma unroll
  for (uint32_t u = 0; u < VECTORS; ++u) load_ragged(0, u);
#pragma unroll 1
  for (uint32_t chunk = 0; chunk < steps; chunk += CHUNK_STEPS) {
    const uint32_t first = chunk * VECTORS * SPAN;
    const uint32_t width = min(cols - first, CHUNK);
    if (chunk != 0) __syncthreads();  // the chunk before is still being read
    input.template stage<K::SUMS>(first, width, (width + SPAN - 1) / SPAN * SPAN);
    __syncthreads();
    const uint32_t end = min(chunk + CHUNK_STEPS, steps);
    const float* at = staged + K::offset(0, lane);
    uint32_t step = chunk;
    // While the next step is full, its loads need no test.
#pragma unroll 1
    for (; step < end && step + 1 < full_steps; ++step) {
#pragma unroll
      for (uint32_t u = 0; u < VECTORS; ++u) {
        multiply(at, u);
#pragma unroll
        for (uint32_t r = 0; r < R; ++r) raw[r][u] = K::load(cursor[r], (step + 1) * STEP + lane, u * K::LANES);
      }
      at += K::offset(STEP, 0);
    }
#pragma unroll 1
    for (; step < end; ++step) {
#pragma unroll
      for (uint32_t u = 0; u < VECTORS; ++u) {
        if (step * STEP + u * K::LANES < vectors) multiply(at, u);
        load_ragged(step + 1, u);
      }
      at += K::offset(STEP, 0);
    }
  }
#pragma unroll
  for (uint32_t r = 0; r < R; ++r)
    total[r] = K::finish(planes, row + r * row_step, butterfly_sum<K::LANES>(sum[r][0] + sum[r][1]));
}

// y[token, row] = (residual[token, row] +) w[row] · x[token], blockDim.x / LANES rows a block; input.base is that of the token.
template <class K>
__device__ __forceinline__ void matvec(const typename K::Planes& planes, const typename K::Input& input, const float* residual,
                                       float* y, uint32_t rows, uint32_t cols) {
  const uint32_t row = (blockIdx.y * blockDim.x + threadIdx.x) / K::LANES;
  float total[1];
  row_sums<K, 1>(planes, input, min(row, rows - 1), 0, cols, total);
  if (threadIdx.x % K::LANES == 0 && row < rows) {
    const uint64_t at = static_cast<uint64_t>(blockIdx.x) * rows + row;
    if (residual != nullptr) total[0] = residual[at] + total[0];
    y[at] = total[0];
  }
}

// y[token, row] = swiglu(w[row] · x[token], w[rows + row] · x[token], limit), over a plane of 2·rows rows.
template <class K>
__device__ __forceinline__ void matvec_swiglu(const typename K::Planes& planes, const typename K::Input& input, float* y,
                                              uint32_t rows, uint32_t cols, float limit) {
  const uint32_t row = (blockIdx.y * blockDim.x + threadIdx.x) / K::LANES;
  float total[2];
  row_sums<K, 2>(planes, input, min(row, rows - 1), rows, cols, total);
  if (threadIdx.x % K::LANES == 0 && row < rows)
    y[static_cast<uint64_t>(blockIdx.x) * rows + row] = swiglu(total[0], total[1], limit);
}

}  // namespace bw
