// Products of a weight plane's rows with one vector of activations: the walk shared by every format, both activation programs, and
// all kernels that multiply (matvec_*.cu, qkv, experts).
//
// A row is read by LANES neighbouring lanes of a warp, each taking 16-byte vectors of the row in turn: vector v goes to lane
// v mod LANES. A lane adds its vectors alternately into two sums (even and odd turns), the two are added, and a butterfly over the
// LANES lanes finishes the row, but for the scale that a format may have for a whole row. That order is the numeric contract: it
// depends on the format alone, not on grid, block, tokens, or on how many rows a lane carries, so a fused kernel has the bits of the
// kernels that it fuses, and a token the same bits alone and among others.
//
// A task is R rows that are needed together (two of a gated pair, two that rotate into each other). Tasks are dealt out to the
// blocks of a token in turn, and within a block to its groups of lanes, so that every block has as much to read as any other. Blocks stay: the
// activations are prepared once a block and serve all its tasks.
//
// Weights are copied asynchronously into a ring in shared memory, in which every thread has places of its own and reads only what
// it copied, so nothing but its own copies is ever waited for. The ring is filled before the launches ahead are waited for, and a
// place is filled anew as soon as it was read, over the ends of rows and tasks: memory always has something to do.
//
// Activations lie in shared memory (dynamic, of the size that the launch gives: a chunk of at most CHUNK columns), in blocks of 32
// padded so that 16-byte reads by neighbouring lanes fall in different banks.
#pragma once
#include "dependent.cuh"
#include "norm.cuh"

namespace bw {

constexpr uint32_t CHUNK = 16384;      // columns of activations in shared memory at a time
constexpr uint32_t ROW_THREADS = 512;  // the largest block; any multiple of 32 from NORM_LANES up to it works
constexpr uint32_t STAGE = 4;          // quads of activations that a thread has on their way
constexpr uint32_t RING = 8;           // 16-byte vectors of weights that a thread has on their way, of all its rows

extern __shared__ __align__(16) float staged[];

__device__ __forceinline__ uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// Copies `bytes` of 16 bytes, and zeros for the others.
__device__ __forceinline__ void copy_16(uint32_t to, const void* from, uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copy_16(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void copy_4(uint32_t to, const void* from, uint32_t bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <uint32_t PENDING>
__device__ __forceinline__ void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

__device__ __forceinline__ uint4 load_shared(uint32_t from) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from) : "memory");
  return v;
}

// The words that go with a 16-byte vector of weights (scales and the like): where this thread's copies of them are.
struct SideWords {
  uint32_t at;      // shared address of the first
  uint32_t stride;  // bytes between a vector's words

  __device__ __forceinline__ uint32_t operator[](uint32_t i) const {
    uint32_t w;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(w) : "r"(at + i * stride) : "memory");
    return w;
  }

  // Word `index` of a row at `row` that has `count` of them; zero past its end.
  __device__ __forceinline__ void word(uint32_t i, const uint32_t* row, uint32_t index, uint32_t count) const {
    copy_4(at + i * stride, row + index, index < count ? 4 : 0);
  }

  // Half-word `index` of a row at `row` that has `count` of them, as every row of the plane has. Copies are of whole words: that of an even
  // row's pair, of which `half_of` picks one. Rows of an odd count begin in the middle of a word: there, both halves.
  __device__ __forceinline__ void half(uint32_t i, const uint16_t* row, uint32_t index, uint32_t count) const {
    if (count % 2 == 0) {
      copy_4(at + i * stride, row + (index & ~1u), index < count ? 4 : 0);
    } else {
      const uint32_t h = index < count ? row[index] : 0;
      asm volatile("st.shared.u32 [%0], %1;" ::"r"(at + i * stride), "r"(h | h << 16) : "memory");
    }
  }
};
__device__ __forceinline__ uint16_t half_of(uint32_t word, uint32_t index) { return static_cast<uint16_t>(word >> (index % 2 * 16)); }

// Activations are staged in blocks of 32 columns, STRIDE words apart: 32 floats and their sum (for formats with an offset); or, in
// the block-scaled int16 form that takes their place, 16 words of values, the block's scale, and its integer sum or those of its SUMS halves.
constexpr uint32_t STRIDE = 36;

// The stages below replace the quad of columns in v, quad i of the row; groups of eight neighbouring lanes, which have a block's
// columns, call together.
struct FloatStage {
  template <uint32_t SUMS>
  static constexpr bool FINISHES = SUMS != 0;  // whether a quad that is staged as it was read is not yet what it should be
  template <uint32_t SUMS>
  static __device__ __forceinline__ void finish(float* block, uint32_t i, float4 v) {
    *reinterpret_cast<float4*>(block + (i & 7u) * 4) = v;
    if (SUMS != 0) {
      const float sum = butterfly_sum<8>((v.x + v.y) + (v.z + v.w));
      if ((i & 7u) == 0) block[32] = sum;
    }
  }
};

struct Int16Stage {
  template <uint32_t SUMS>
  static constexpr bool FINISHES = true;
  template <uint32_t SUMS>
  static __device__ __forceinline__ void store(float* block, uint32_t i, uint2 v, float scale) {
    *reinterpret_cast<uint2*>(block + (i & 7u) * 2) = v;
    int32_t sum = 0;
    if (SUMS != 0) {
      constexpr uint32_t ONES = 0x01010101u;
      sum = dp2a_lo(v.x, ONES, dp2a_lo(v.y, ONES, 0));
      sum += __shfl_xor_sync(FULL_MASK, sum, 2);
      sum += __shfl_xor_sync(FULL_MASK, sum, 1);
      if (SUMS == 1) sum += __shfl_xor_sync(FULL_MASK, sum, 4);
    }
    if ((i & 7u) == 0) {
      block[16] = scale;
      if (SUMS != 0) block[17] = __int_as_float(sum);
    }
    // The fourth word is padding, but read with the other three.
    if (SUMS == 2 && (i & 7u) == 4) *reinterpret_cast<float2*>(block + 18) = make_float2(__int_as_float(sum), 0.0f);
  }
  template <uint32_t SUMS>
  static __device__ __forceinline__ void finish(float* block, uint32_t i, float4 v) {
    const float scale = int16_scale(block_largest(v));
    const uint2 q = quantised_quad(v, scale);
    __syncwarp();  // the block's floats have been read
    store<SUMS>(block, i, q, scale);
  }
};

// A token's row of float32 activations, normed where `weight` is not null, staged as S.
template <class S>
struct FloatRow {
  const float* x;
  const float* weight;
  float eps;

  // Threads that stage: those that add up the squares, where there is a norm; every one reads, finishes and norms quads of its own.
  __device__ __forceinline__ uint32_t lanes() const { return weight != nullptr ? NORM_LANES : blockDim.x; }

  // Bytes of shared memory behind the activations that `prefetch` fills.
  __device__ __forceinline__ uint32_t prefetched(uint32_t cols) const { return weight != nullptr ? cols * 4 : 0; }

  // Copies of the norm's weights to `to`, before the launches ahead are done.
  __device__ __forceinline__ void prefetch(uint32_t to, uint32_t cols) const {
    if (weight == nullptr || threadIdx.x >= NORM_LANES) return;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < cols / 4; i += NORM_LANES) copy_16(to + 16 * i, weight + 4 * i);
  }

  // Stages columns [first, first + padded) of which those past `width` are zeros; called for a row's chunks in order. `prefetched` has
  // the norm's weights.
  template <uint32_t SUMS>
  __device__ __forceinline__ void stage(uint32_t first, uint32_t width, uint32_t padded, uint32_t cols, const float4* prefetched,
                                        float& scale) const {
    const float4* from = reinterpret_cast<const float4*>(x) + first / 4;
    const bool normed = weight != nullptr;
    const uint32_t step = lanes(), begin = threadIdx.x < step ? threadIdx.x : padded;
    float4 squared = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 1
    for (uint32_t base = begin; base < padded / 4; base += STAGE * step) {
      float4 v[STAGE];
#pragma unroll
      for (uint32_t k = 0; k < STAGE; ++k) {
        const uint32_t i = base + k * step;
        v[k] = i < width / 4 ? from[i] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      }
#pragma unroll
      for (uint32_t k = 0; k < STAGE; ++k) {
        const uint32_t i = base + k * step;
        squared = squares(v[k], squared);
        if (i < padded / 4) *reinterpret_cast<float4*>(staged + (i >> 3) * STRIDE + (i & 7u) * 4) = v[k];
      }
    }
    if (normed && first == 0) {
      if (width < cols) {  // a row of several chunks: its other chunks are squared where they are
#pragma unroll 1
        for (uint32_t i = begin; i < (cols - width) / 4; i += step) squared = squares(from[width / 4 + i], squared);
      }
      scale = inverse_rms_folded(squared, cols, eps);
    }
    if (!normed && !S::template FINISHES<SUMS>) return;
    // One quad at a time: this is short beside the code that it would take to have several at once.
#pragma unroll 1
    for (uint32_t i = begin; i < padded / 4; i += step) {
      float* block = staged + (i >> 3) * STRIDE;
      float4 v = *reinterpret_cast<const float4*>(block + (i & 7u) * 4);
      if (normed && i < width / 4) v = normalised(v, scale, prefetched[first / 4 + i]);
      S::template finish<SUMS>(block, i, v);
    }
  }
};

// Block-scaled int16 activations from memory.
struct Int16Row {
  const int16_t* q;
  const float* scales;

  __device__ __forceinline__ uint32_t prefetched(uint32_t) const { return 0; }
  __device__ __forceinline__ void prefetch(uint32_t, uint32_t) const {}

  template <uint32_t SUMS>
  __device__ __forceinline__ void stage(uint32_t first, uint32_t width, uint32_t padded, uint32_t, const float4*, float&) const {
    const uint2* from = reinterpret_cast<const uint2*>(q + first);
#pragma unroll 1
    for (uint32_t base = threadIdx.x; base < padded / 4; base += STAGE * blockDim.x) {
      uint2 v[STAGE];
      float s[STAGE];
#pragma unroll
      for (uint32_t k = 0; k < STAGE; ++k) {
        const uint32_t i = base + k * blockDim.x;
        const bool inside = i < width / 4;
        v[k] = inside ? from[i] : make_uint2(0, 0);
        s[k] = inside ? scales[first / 32 + i / 8] : 0.0f;
      }
#pragma unroll
      for (uint32_t k = 0; k < STAGE; ++k) {
        const uint32_t i = base + k * blockDim.x;
        if (i < padded / 4) Int16Stage::store<SUMS>(staged + (i >> 3) * STRIDE, i, v[k], s[k]);
      }
    }
  }
};

// The walk over `tasks` tasks. row_of(task, r) is the row of a task; begin(task) is called when the launches ahead are done, and its
// result is given to emit(task, totals, begun), which one lane of the group calls.
//
// The loop is written for few instructions: not only those that are executed count, but their number, since a kernel runs for a few
// microseconds and the first of them go by while its instructions are fetched.
template <class K, uint32_t R, class Input, class RowOf, class Begin, class Emit>
__device__ __forceinline__ void walk_rows(const typename K::Planes& planes, const Input& input, uint32_t tasks, uint32_t cols,
                                          RowOf row_of, Begin begin, Emit emit) {
  constexpr uint32_t DEPTH = RING / R;              // turns in the ring
  constexpr uint32_t SPAN = K::LANES * K::WEIGHTS;  // columns that a turn covers
  constexpr uint32_t CHUNK_TURNS = CHUNK / SPAN;
  static_assert(CHUNK % (2 * SPAN) == 0, "a chunk is whole pairs of turns");

  const uint32_t lane = threadIdx.x % K::LANES;
  const uint32_t vectors = cols / K::WEIGHTS;
  const uint32_t turns = (vectors + K::LANES - 1) / K::LANES;
  const uint32_t round = blockDim.x / K::LANES * gridDim.y;  // tasks that all groups of the token's blocks take at a time
  uint32_t task = threadIdx.x / K::LANES * gridDim.y + blockIdx.y;
  uint32_t warp_task = (threadIdx.x & ~31u) / K::LANES * gridDim.y + blockIdx.y;  // of the warp's first group: its smallest

  // Shared memory: the activations, what their staging prefetches, the ring's vectors, its side words.
  const uint32_t padded = (min(cols, CHUNK) + SPAN - 1) / SPAN * SPAN;
  const float* prefetched = staged + padded / 32 * STRIDE;
  const uint32_t ring_first = shared_address(prefetched) + input.prefetched(cols);
  const uint32_t slot_bytes = R * 16 * blockDim.x;
  uint32_t side = ring_first + DEPTH * slot_bytes;
  const uint32_t ring_end = side + threadIdx.x * 16;
  uint32_t reads = ring_first + threadIdx.x * 16, writes = reads;  // the slots that are read and filled next
  side += threadIdx.x * 4;
  auto words_of = [&](uint32_t slot, uint32_t r) {
    // Side words of a slot are where they are by proportion: K::SIDE words for 16 bytes.
    return SideWords{side + (slot - ring_first - threadIdx.x * 16) / 4 * K::SIDE + r * (K::SIDE * 4 * blockDim.x), blockDim.x * 4};
  };

  // What is copied next: vector `ahead_vector` of the rows of `ahead_task`.
  typename K::Cursor ahead[R];
  uint32_t ahead_task = task, ahead_warp = warp_task, ahead_vector = lane;
  auto seek = [&] {
#pragma unroll
    for (uint32_t r = 0; r < R; ++r) ahead[r] = K::cursor(planes, row_of(min(ahead_task, tasks - 1), r), cols);
  };
  auto copy = [&] {
    if (ahead_warp < tasks) {
      // Past the end of a row: zeros.
      const uint32_t bytes = ahead_vector < vectors ? 16 : 0;
#pragma unroll
      for (uint32_t r = 0; r < R; ++r) {
        copy_16(writes + r * 16 * blockDim.x, ahead[r].data + ahead_vector, bytes);
        K::copy_side(ahead[r], ahead_vector, vectors, words_of(writes, r));
      }
      ahead_vector += K::LANES;
      if (ahead_vector - lane >= vectors) {
        ahead_vector = lane;
        ahead_task += round;
        ahead_warp += round;
        seek();
      }
    }
    copies_commit();
    writes = writes + slot_bytes == ring_end ? ring_first + threadIdx.x * 16 : writes + slot_bytes;
  };

  dependent_trigger();
  input.prefetch(shared_address(prefetched), cols);
  seek();
#pragma unroll 1
  for (uint32_t i = 0; i < DEPTH; ++i) copy();
  dependent_wait();

  float scale = 0.0f;
  bool is_staged = false;
#pragma unroll 1
  for (uint32_t first_task = blockIdx.y; first_task < tasks; first_task += round) {
    const bool active = warp_task < tasks;
    const auto begun = begin(min(task, tasks - 1));
    float sum[R][2];
#pragma unroll
    for (uint32_t r = 0; r < R; ++r) sum[r][0] = sum[r][1] = 0.0f;
#pragma unroll 1
    for (uint32_t chunk = 0; chunk < turns; chunk += CHUNK_TURNS) {
      if (turns > CHUNK_TURNS || !is_staged) {
        const uint32_t first = chunk * SPAN;
        const uint32_t width = min(cols - first, CHUNK);
        if (is_staged)
          __syncthreads();  // the chunk before is still being read
        else
          copies_wait<DEPTH - 1>();  // for what was prefetched
        input.template stage<K::SUMS>(first, width, (width + SPAN - 1) / SPAN * SPAN, cols, reinterpret_cast<const float4*>(prefetched),
                                      scale);
        __syncthreads();
        is_staged = true;
      }
      if (!active) continue;
      const uint32_t end = min(chunk + CHUNK_TURNS, turns);
      const float* at = staged + K::offset(0, lane);
#pragma unroll 1
      for (uint32_t turn = chunk; turn < end; turn += 2) {
#pragma unroll
        for (uint32_t parity = 0; parity < 2; ++parity) {
          if (parity == 1 && turn + 1 >= end) break;
          copies_wait<DEPTH - 1>();
          const typename K::Activations a = K::activations(at, lane);
          at += K::offset(K::LANES, 0);
#pragma unroll
          for (uint32_t r = 0; r < R; ++r) {
            const typename K::Raw raw =
                K::raw(load_shared(reads + r * 16 * blockDim.x), words_of(reads, r), (turn + parity) * K::LANES + lane);
            sum[r][parity] = K::accumulate(raw, a, sum[r][parity]);
          }
          reads = reads + slot_bytes == ring_end ? ring_first + threadIdx.x * 16 : reads + slot_bytes;
          copy();
        }
      }
    }
    if (active) {
      float total[R];
#pragma unroll
      for (uint32_t r = 0; r < R; ++r)
        total[r] = K::finish(planes, row_of(min(task, tasks - 1), r), butterfly_sum<K::LANES>(sum[r][0] + sum[r][1]));
      if (lane == 0 && task < tasks) emit(task, total, begun);
    }
    task += round;
    warp_task += round;
  }
}

}  // namespace bw
