// x[t, c] = row tokens[*position + t] of the embedding matrix, widened to float32, for each of `copies` c. An id past the vocabulary
// writes NaN, so that a bad prompt cannot pass for a good one. Grid (blocks of columns, tokens), one thread eight columns.
#include "bw_math.cuh"
#include "bw_prototypes.cuh"
#include "dependent.cuh"

using namespace bw;

namespace bw {

// The eight columns of this thread: `decode(row, column, out)` fills out[8].
template <class Decode>
__device__ __forceinline__ void embed(const uint32_t* tokens, const uint32_t* position, float* x, uint32_t cols, uint32_t vocab,
                                      uint32_t copies, Decode decode) {
  const uint32_t column = (blockIdx.x * blockDim.x + threadIdx.x) * 8;
  if (column >= cols) return;
  const uint32_t token = tokens[*position + blockIdx.y];
  float v[8];
  if (token < vocab) {
    decode(token, column, v);
  } else {
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) v[i] = __int_as_float(0x7fffffff);
  }
  for (uint32_t copy = 0; copy < copies; ++copy) {
    float4* out = reinterpret_cast<float4*>(x + (static_cast<uint64_t>(blockIdx.y) * copies + copy) * cols + column);
    out[0] = make_float4(v[0], v[1], v[2], v[3]);
    out[1] = make_float4(v[4], v[5], v[6], v[7]);
  }
}

// Four consecutive bytes' low or high nibbles of a block of 32: columns 0–15 of a block are low nibbles, 16–31 high ones.
__device__ __forceinline__ void nibbles(const uint8_t* qs, uint32_t row, uint32_t column, uint32_t cols, float (&n)[8]) {
  const uint64_t block = static_cast<uint64_t>(row) * (cols / 32) + column / 32;
  const uint2 q = *reinterpret_cast<const uint2*>(qs + block * 16 + column % 16);
  const uint32_t shift = column % 32 < 16 ? 0 : 4;
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    n[i] = static_cast<float>((q.x >> (8 * i + shift)) & 0xfu);
    n[i + 4] = static_cast<float>((q.y >> (8 * i + shift)) & 0xfu);
  }
}

__device__ __forceinline__ void bytes(uint32_t word, float (&v)[8], uint32_t first) {
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) v[first + i] = static_cast<float>((word >> (8 * i)) & 0xffu);
}

// Eight consecutive weights of five bits: quads 0–4 of a block of 32 are the upper bits of its words, 5–7 lie in the lower three
// (engine/src/quant/k_planes.rs).
__device__ __forceinline__ void five_bits(const uint32_t* qs, const uint32_t* qt, uint64_t block, uint32_t column, float (&v)[8]) {
  const uint4 q = reinterpret_cast<const uint4*>(qs)[block];
  const uint32_t t = qt[block];
  uint32_t first = q.x >> 3, second = q.y >> 3;
  if (column == 8) first = q.z >> 3, second = q.w >> 3;
  if (column == 16) first = t >> 3, second = (q.x & 0x07070707u) | ((q.w << 3) & 0x18181818u);
  if (column == 24) {
    first = (q.y & 0x07070707u) | ((t << 3) & 0x18181818u);
    second = (q.z & 0x07070707u) | ((q.w << 1) & 0x08080808u) | ((t << 2) & 0x10101010u);
  }
  bytes(first & 0x1f1f1f1fu, v, 0);
  bytes(second & 0x1f1f1f1fu, v, 4);
}

// Scale and minimum of a sub-block of 32, w = scale · q − minimum.
__device__ __forceinline__ float2 scale_and_minimum(const uint8_t* scales, const uint16_t* dm, uint64_t block) {
  const float scale = static_cast<float>(scales[2 * block]), minimum = static_cast<float>(scales[2 * block + 1]);
  return make_float2(f32_from_f16(dm[block / 8 * 2]) * scale, f32_from_f16(dm[block / 8 * 2 + 1]) * minimum);
}

}  // namespace bw

extern "C" __global__ void __launch_bounds__(128) embed_f32(const float* data, const uint32_t* tokens, const uint32_t* position, float* x, uint32_t cols, uint32_t vocab, uint32_t count, uint32_t copies) {
  dependent_begin();
  embed(tokens, position, x, cols, vocab, copies, [&](uint32_t row, uint32_t column, float(&v)[8]) {
    const float4* p = reinterpret_cast<const float4*>(data + static_cast<uint64_t>(row) * cols + column);
    const float4 a = p[0], b = p[1];
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
  });
}

extern "C" __global__ void __launch_bounds__(128) embed_f16(const uint16_t* data, const uint32_t* tokens, const uint32_t* position, float* x, uint32_t cols, uint32_t vocab, uint32_t count, uint32_t copies) {
  dependent_begin();
  embed(tokens, position, x, cols, vocab, copies, [&](uint32_t row, uint32_t column, float(&v)[8]) {
    const uint4 w = *reinterpret_cast<const uint4*>(data + static_cast<uint64_t>(row) * cols + column);
    const uint32_t words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      v[2 * i] = f32_from_f16(static_cast<uint16_t>(words[i]));
      v[2 * i + 1] = f32_from_f16(static_cast<uint16_t>(words[i] >> 16));
    }
  });
}

extern "C" __global__ void __launch_bounds__(128) embed_bf16(const uint16_t* data, const uint32_t* tokens, const uint32_t* position, float* x, uint32_t cols, uint32_t vocab, uint32_t count, uint32_t copies) {
  dependent_begin();
  embed(tokens, position, x, cols, vocab, copies, [&](uint32_t row, uint32_t column, float(&v)[8]) {
    const uint4 w = *reinterpret_cast<const uint4*>(data + static_cast<uint64_t>(row) * cols + column);
    const uint32_t words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      v[2 * i] = __uint_as_float(words[i] << 16);
      v[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
  });
}

extern "C" __global__ void __launch_bounds__(128) embed_q8_0(const int8_t* qs, const uint16_t* d, const uint32_t* tokens, const uint32_t* position, float* x, uint32_t cols, uint32_t vocab, uint32_t count, uint32_t copies) {
  dependent_begin();
  embed(tokens, position, x, cols, vocab, copies, [&](uint32_t row, uint32_t column, float(&v)[8]) {
    const uint2 q = *reinterpret_cast<const uint2*>(qs + static_cast<uint64_t>(row) * cols + column);
    const float scale = f32_from_f16(d[static_cast<uint64_t>(row) * (cols / 32) + column / 32]);
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      v[i] = scale * static_cast<float>(static_cast<int32_t>(q.x << (24 - 8 * i)) >> 24);
      v[i + 4] = scale * static_cast<float>(static_cast<int32_t>(q.y << (24 - 8 * i)) >> 24);
    }
  });
}

extern "C" __global__ void __launch_bounds__(128) embed_q4_0(const uint8_t* qs, const uint16_t* d, const uint32_t* tokens, const uint32_t* position, float* x, uint32_t cols, uint32_t vocab, uint32_t count, uint32_t copies) {
  dependent_begin();
  embed(tokens, position, x, cols, vocab, copies, [&](uint32_t row, uint32_t column, float(&v)[8]) {
    const float scale = f32_from_f16(d[static_cast<uint64_t>(row) * (cols / 32) + column / 32]);
    nibbles(qs, row, column, cols, v);
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) v[i] = scale * (v[i] - 8.0f);
  });
}

extern "C" __global__ void __launch_bounds__(128) embed_q4_1(const uint8_t* qs, const uint16_t* dm, const uint32_t* tokens, const uint32_t* position, float* x, uint32_t cols, uint32_t vocab, uint32_t count, uint32_t copies) {
  dependent_begin();
  embed(tokens, position, x, cols, vocab, copies, [&](uint32_t row, uint32_t column, float(&v)[8]) {
    const uint32_t pair = reinterpret_cast<const uint32_t*>(dm)[static_cast<uint64_t>(row) * (cols / 32) + column / 32];
    const float scale = f32_from_f16(static_cast<uint16_t>(pair)), minimum = f32_from_f16(static_cast<uint16_t>(pair >> 16));
    nibbles(qs, row, column, cols, v);
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) v[i] = fmaf(scale, v[i], minimum);
  });
}

extern "C" __global__ void __launch_bounds__(128) embed_q5_0(const uint32_t* qs, const uint32_t* qt, const uint16_t* d, const uint32_t* tokens, const uint32_t* position, float* x, uint32_t cols, uint32_t vocab, uint32_t count, uint32_t copies) {
  dependent_begin();
  embed(tokens, position, x, cols, vocab, copies, [&](uint32_t row, uint32_t column, float(&v)[8]) {
    const uint64_t block = static_cast<uint64_t>(row) * (cols / 32) + column / 32;
    five_bits(qs, qt, block, column % 32, v);
    const float scale = f32_from_f16(d[block]);
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) v[i] = scale * (v[i] - 16.0f);
  });
}

extern "C" __global__ void __launch_bounds__(128) embed_q4_k(const uint8_t* qs, const uint8_t* scales, const uint16_t* dm, const uint32_t* tokens, const uint32_t* position, float* x, uint32_t cols, uint32_t vocab, uint32_t count, uint32_t copies) {
  dependent_begin();
  embed(tokens, position, x, cols, vocab, copies, [&](uint32_t row, uint32_t column, float(&v)[8]) {
    const float2 s = scale_and_minimum(scales, dm, static_cast<uint64_t>(row) * (cols / 32) + column / 32);
    nibbles(qs, row, column, cols, v);
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) v[i] = fmaf(s.x, v[i], -s.y);
  });
}

extern "C" __global__ void __launch_bounds__(128) embed_q5_k(const uint32_t* qs, const uint32_t* qt, const uint8_t* scales, const uint16_t* dm, const uint32_t* tokens, const uint32_t* position, float* x, uint32_t cols, uint32_t vocab, uint32_t count, uint32_t copies) {
  dependent_begin();
  embed(tokens, position, x, cols, vocab, copies, [&](uint32_t row, uint32_t column, float(&v)[8]) {
    const uint64_t block = static_cast<uint64_t>(row) * (cols / 32) + column / 32;
    const float2 s = scale_and_minimum(scales, dm, block);
    five_bits(qs, qt, block, column % 32, v);
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) v[i] = fmaf(s.x, v[i], -s.y);
  });
}

extern "C" __global__ void __launch_bounds__(128) embed_q6_k(const uint32_t* qs, const uint32_t* qt, const int8_t* scales, const uint16_t* d, const uint32_t* tokens, const uint32_t* position, float* x, uint32_t cols, uint32_t vocab, uint32_t count, uint32_t copies) {
  dependent_begin();
  embed(tokens, position, x, cols, vocab, copies, [&](uint32_t row, uint32_t column, float(&v)[8]) {
    const uint64_t block = static_cast<uint64_t>(row) * (cols / 32) + column / 32;
    const uint4 q = reinterpret_cast<const uint4*>(qs)[block];
    const uint2 t = reinterpret_cast<const uint2*>(qt)[block];
    const bool second_half = column % 32 >= 16;
    const uint32_t a = second_half ? q.w : q.x, b = second_half ? t.x : q.y, c = second_half ? t.y : q.z;
    const uint32_t last = (a & 0x03030303u) | ((b >> 4) & 0x0c0c0c0cu) | ((c >> 2) & 0x30303030u);
    bytes(column % 16 == 0 ? (a >> 2) & 0x3f3f3f3fu : c & 0x3f3f3f3fu, v, 0);
    bytes(column % 16 == 0 ? b & 0x3f3f3f3fu : last, v, 4);
    const float scale = f32_from_f16(d[block / 8 * 2]) * static_cast<float>(scales[block * 2 + (second_half ? 1 : 0)]);
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) v[i] = scale * (v[i] - 32.0f);
  });
}
