// Weight formats: the planes of each, and its arithmetic on one 16-byte vector, for float32 and for block-scaled int16
// activations. GGUF's block formats hold 32 weights a block; their nibbles are in ggml's order (byte j: element j low, j + 16 high).
#pragma once
#include "bw_math.cuh"
#include "rows.cuh"

namespace bw {

// A row of a plane of 16-byte vectors, and the row's scales.
struct VectorCursor {
  const uint4* data;
};
template <class Scale>
struct ScaledCursor {
  const uint4* data;
  const Scale* scale;
};

// Formats without side words.
struct NoSide {
  static constexpr uint32_t SIDE = 0;
  static __device__ __forceinline__ void copy_side(const VectorCursor&, uint32_t, uint32_t, SideWords) {}
};

// Formats without a scale of whole rows: a row's sum is its value.
struct NoRowScale {
  template <class Planes>
  static __device__ __forceinline__ float finish(const Planes&, uint32_t, float sum) {
    return sum;
  }
};

// ---- activations of a block of 32, for formats of which a vector has one ------------------------------------------------------

struct BlockVector {
  static constexpr uint32_t LANES = 8;
  static constexpr uint32_t WEIGHTS = 32;
  static __device__ __forceinline__ uint32_t offset(uint32_t vector, uint32_t lane) { return (vector + lane) * STRIDE; }
};

struct FloatBlock : BlockVector {
  struct Activations {
    float4 v[8];
    float sum;  // where the format has SUMS
  };
  static __device__ __forceinline__ Activations activations(const float* at, uint32_t) {
    Activations a;
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) a.v[i] = reinterpret_cast<const float4*>(at)[i];
    a.sum = at[32];
    return a;
  }
};

struct Int16Block : BlockVector {
  struct Activations {
    uint4 v[4];
    float scale;
    int32_t sum[2];  // of the block, or of its halves, as the format has SUMS
  };
  static __device__ __forceinline__ Activations activations(const float* at, uint32_t) {
    const uint4* v = reinterpret_cast<const uint4*>(at);
    return {{v[0], v[1], v[2], v[3]}, at[16], {__float_as_int(at[17]), __float_as_int(at[18])}};
  }
};

// ---- float planes: one pointer, [rows, cols] --------------------------------------------------------------------------------

template <uint32_t WEIGHTS_A_VECTOR>
struct FloatPlane : NoRowScale, NoSide {
  static constexpr uint32_t LANES = 32;
  static constexpr uint32_t WEIGHTS = WEIGHTS_A_VECTOR;
  static constexpr uint32_t SUMS = 0;
  using Raw = uint4;
  using Cursor = VectorCursor;
  struct Planes {
    const void* data;
  };
  struct Activations {
    float4 v[WEIGHTS / 4];
  };
  static __device__ __forceinline__ Cursor cursor(const Planes& p, uint32_t row, uint32_t cols) {
    return {static_cast<const uint4*>(p.data) + static_cast<uint64_t>(row) * (cols / WEIGHTS)};
  }
  static __device__ __forceinline__ Raw raw(uint4 q, SideWords, uint32_t) { return q; }
  static __device__ __forceinline__ uint32_t offset(uint32_t vector, uint32_t lane) {
    return vector * WEIGHTS / 32 * STRIDE + lane / (32 / WEIGHTS) * STRIDE + lane % (32 / WEIGHTS) * WEIGHTS;
  }
  static __device__ __forceinline__ Activations activations(const float* at, uint32_t) {
    Activations a;
#pragma unroll
    for (uint32_t i = 0; i < WEIGHTS / 4; ++i) a.v[i] = reinterpret_cast<const float4*>(at)[i];
    return a;
  }
};

struct F32 : FloatPlane<4> {
  static __device__ __forceinline__ float accumulate(const Raw& w, const Activations& a, float sum) {
    sum = fmaf(__uint_as_float(w.x), a.v[0].x, sum);
    sum = fmaf(__uint_as_float(w.y), a.v[0].y, sum);
    sum = fmaf(__uint_as_float(w.z), a.v[0].z, sum);
    return fmaf(__uint_as_float(w.w), a.v[0].w, sum);
  }
};

struct F16 : FloatPlane<8> {
  static __device__ __forceinline__ float pair(uint32_t w, float x0, float x1, float sum) {
    float lo, hi;
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }" : "=f"(lo), "=f"(hi) : "r"(w));
    return fmaf(hi, x1, fmaf(lo, x0, sum));
  }
  static __device__ __forceinline__ float accumulate(const Raw& w, const Activations& a, float sum) {
    sum = pair(w.x, a.v[0].x, a.v[0].y, sum);
    sum = pair(w.y, a.v[0].z, a.v[0].w, sum);
    sum = pair(w.z, a.v[1].x, a.v[1].y, sum);
    return pair(w.w, a.v[1].z, a.v[1].w, sum);
  }
};

struct BF16 : FloatPlane<8> {
  static __device__ __forceinline__ float pair(uint32_t w, float x0, float x1, float sum) {
    float lo, hi;
    asm("shl.b32 %0, %1, 16;" : "=f"(lo) : "r"(w));
    asm("and.b32 %0, %1, 0xffff0000;" : "=f"(hi) : "r"(w));
    return fmaf(hi, x1, fmaf(lo, x0, sum));
  }
  static __device__ __forceinline__ float accumulate(const Raw& w, const Activations& a, float sum) {
    sum = pair(w.x, a.v[0].x, a.v[0].y, sum);
    sum = pair(w.y, a.v[0].z, a.v[0].w, sum);
    sum = pair(w.z, a.v[1].x, a.v[1].y, sum);
    return pair(w.w, a.v[1].z, a.v[1].w, sum);
  }
};

// ---- unpacking ----------------------------------------------------------------------------------------------------------------

// A nibble at bit 4k of a word is placed, unshifted, in the mantissa of 2^(23 − 4k), whose last place it then counts; taking off
// 2^(23 − 4k) + 8 leaves the nibble − 8, exactly. k up to 4.
template <uint32_t K>
__device__ __forceinline__ float centred_nibble(uint32_t word) {
  constexpr uint32_t MAGIC = (127u + 23u - 4u * K) << 23;
  constexpr float BIAS = static_cast<float>((1u << (23u - 4u * K)) + 8u);
  return float_and_or<(0xfu << (4u * K)), MAGIC>(word) - BIAS;
}

// Byte k of a word of int8s biased by 128, as float: the byte becomes the low mantissa byte of 2^23.
template <uint32_t K>
__device__ __forceinline__ float biased_byte(uint32_t word) {
  return float_from_bytes<0x7440u + K>(word, 0x4b000000u) - 8388736.0f;
}

// Σ (nibble − 8) · x over the eight weights of one word: `low` are elements 4w…4w+3 of the block, `high` 16+4w…16+4w+3.
__device__ __forceinline__ void nibble_products(uint32_t word, float4 low, float4 high, float& s0, float& s1) {
  const uint32_t upper = word >> 12;
  s0 = fmaf(centred_nibble<0>(word), low.x, s0);
  s1 = fmaf(centred_nibble<1>(word), high.x, s1);
  s0 = fmaf(centred_nibble<2>(word), low.y, s0);
  s1 = fmaf(centred_nibble<3>(word), high.y, s1);
  s0 = fmaf(centred_nibble<4>(word), low.z, s0);
  s1 = fmaf(centred_nibble<2>(upper), high.z, s1);
  s0 = fmaf(centred_nibble<3>(upper), low.w, s0);
  s1 = fmaf(centred_nibble<4>(upper), high.w, s1);
}

// ---- Q8_0: qs int8 [rows, cols], d f16 [rows, cols/32] -------------------------------------------------------------------------

struct Q8_0Base : NoRowScale {
  static constexpr uint32_t LANES = 16;
  static constexpr uint32_t WEIGHTS = 16;
  static constexpr uint32_t SUMS = 0;
  using Cursor = ScaledCursor<uint16_t>;
  struct Planes {
    const int8_t* qs;
    const uint16_t* d;
  };
  struct Raw {
    uint4 q;
    uint16_t d;
  };
  static __device__ __forceinline__ Cursor cursor(const Planes& p, uint32_t row, uint32_t cols) {
    return {reinterpret_cast<const uint4*>(p.qs) + static_cast<uint64_t>(row) * (cols / 16),
            p.d + static_cast<uint64_t>(row) * (cols / 32)};
  }
  static constexpr uint32_t SIDE = 1;
  static __device__ __forceinline__ void copy_side(const Cursor& c, uint32_t v, uint32_t vectors, SideWords side) {
    side.half(0, c.scale, v / 2, vectors / 2);
  }
  static __device__ __forceinline__ Raw raw(uint4 q, SideWords side, uint32_t v) { return {q, half_of(side[0], v / 2)}; }
};

struct Q8_0 : Q8_0Base {
  struct Activations {
    float4 v[4];
  };
  static __device__ __forceinline__ uint32_t offset(uint32_t vector, uint32_t lane) {
    return vector / 2 * STRIDE + lane / 2 * STRIDE + lane % 2 * 16;
  }
  static __device__ __forceinline__ Activations activations(const float* at, uint32_t) {
    Activations a;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) a.v[i] = reinterpret_cast<const float4*>(at)[i];
    return a;
  }
  static __device__ __forceinline__ void word(uint32_t q, float4 x, float& s0, float& s1) {
    const uint32_t b = q ^ 0x80808080u;
    s0 = fmaf(biased_byte<0>(b), x.x, s0);
    s1 = fmaf(biased_byte<1>(b), x.y, s1);
    s0 = fmaf(biased_byte<2>(b), x.z, s0);
    s1 = fmaf(biased_byte<3>(b), x.w, s1);
  }
  static __device__ __forceinline__ float accumulate(const Raw& w, const Activations& a, float sum) {
    float s0 = 0.0f, s1 = 0.0f;
    word(w.q.x, a.v[0], s0, s1);
    word(w.q.y, a.v[1], s0, s1);
    word(w.q.z, a.v[2], s0, s1);
    word(w.q.w, a.v[3], s0, s1);
    return fmaf(f32_from_f16(w.d), s0 + s1, sum);
  }
};

struct Q8_0Int16 : Q8_0Base {
  struct Activations {
    uint4 v[2];
    float scale;
  };
  static __device__ __forceinline__ uint32_t offset(uint32_t vector, uint32_t lane) {
    return vector / 2 * STRIDE + lane / 2 * STRIDE + lane % 2 * 8;
  }
  static __device__ __forceinline__ Activations activations(const float* at, uint32_t lane) {
    const uint4* v = reinterpret_cast<const uint4*>(at);
    return {{v[0], v[1]}, at[16 - lane % 2 * 8]};
  }
  // |Σ| ≤ 16 · 128 · 32767 < 2^26: exact in int32, one rounding on the way to float32.
  static __device__ __forceinline__ float accumulate(const Raw& w, const Activations& a, float sum) {
    int32_t s = dp2a_lo(a.v[0].x, w.q.x, 0);
    s = dp2a_hi(a.v[0].y, w.q.x, s);
    s = dp2a_lo(a.v[0].z, w.q.y, s);
    s = dp2a_hi(a.v[0].w, w.q.y, s);
    s = dp2a_lo(a.v[1].x, w.q.z, s);
    s = dp2a_hi(a.v[1].y, w.q.z, s);
    s = dp2a_lo(a.v[1].z, w.q.w, s);
    s = dp2a_hi(a.v[1].w, w.q.w, s);
    return fmaf(f32_from_f16(w.d) * a.scale, static_cast<float>(s), sum);
  }
};

// ---- Q4_0: qs [rows, cols/2], d f16 [rows, cols/32]; Q4_1: dm f16 pairs ---------------------------------------------------------

template <class Scale>
struct Q4Base : NoRowScale {
  using Cursor = ScaledCursor<Scale>;
  struct Planes {
    const uint8_t* qs;
    const Scale* scale;
  };
  struct Raw {
    uint4 q;
    Scale scale;
  };
  static __device__ __forceinline__ Cursor cursor(const Planes& p, uint32_t row, uint32_t cols) {
    const uint64_t at = static_cast<uint64_t>(row) * (cols / 32);
    return {reinterpret_cast<const uint4*>(p.qs) + at, p.scale + at};
  }
  static constexpr uint32_t SIDE = 1;
  static __device__ __forceinline__ void copy_side(const Cursor& c, uint32_t v, uint32_t vectors, SideWords side) {
    if constexpr (sizeof(Scale) == 4)
      side.word(0, c.scale, v, vectors);
    else
      side.half(0, c.scale, v, vectors);
  }
  static __device__ __forceinline__ Raw raw(uint4 q, SideWords side, uint32_t v) {
    if constexpr (sizeof(Scale) == 4)
      return {q, side[0]};
    else
      return {q, half_of(side[0], v)};
  }
};

template <class Scale>
struct Q4Float : Q4Base<Scale>, FloatBlock {
  static __device__ __forceinline__ float centred(const uint4& q, const Activations& a) {
    float s0 = 0.0f, s1 = 0.0f;
    nibble_products(q.x, a.v[0], a.v[4], s0, s1);
    nibble_products(q.y, a.v[1], a.v[5], s0, s1);
    nibble_products(q.z, a.v[2], a.v[6], s0, s1);
    nibble_products(q.w, a.v[3], a.v[7], s0, s1);
    return s0 + s1;
  }
};

// w = d · (n − 8)
struct Q4_0 : Q4Float<uint16_t> {
  static constexpr uint32_t SUMS = 0;
  static __device__ __forceinline__ float accumulate(const Raw& w, const Activations& a, float sum) {
    return fmaf(f32_from_f16(w.scale), centred(w.q, a), sum);
  }
};

// w = d · n + m = d · (n − 8) + (m + 8d): m is near −8d, so the second term stays small.
struct Q4_1 : Q4Float<uint32_t> {
  static constexpr uint32_t SUMS = 1;
  static __device__ __forceinline__ float accumulate(const Raw& w, const Activations& a, float sum) {
    const float d = f32_from_f16(static_cast<uint16_t>(w.scale)), m = f32_from_f16(static_cast<uint16_t>(w.scale >> 16));
    return fmaf(fmaf(8.0f, d, m), a.sum, fmaf(d, centred(w.q, a), sum));
  }
};

template <class Scale>
struct Q4Int16 : Q4Base<Scale>, Int16Block {
  static constexpr uint32_t SUMS = 1;
  static __device__ __forceinline__ int32_t word(uint32_t q, uint32_t l0, uint32_t l1, uint32_t h0, uint32_t h1, int32_t s) {
    const uint32_t low = q & 0x0f0f0f0fu, high = (q >> 4) & 0x0f0f0f0fu;
    return dp2a_hi(h1, high, dp2a_lo(h0, high, dp2a_hi(l1, low, dp2a_lo(l0, low, s))));
  }
  // Σ (n − 8) · q, exact: |Σ| ≤ 32 · 15 · 32767 + 8 · 32 · 32767 < 2^25.
  static __device__ __forceinline__ int32_t centred(const uint4& q, const Activations& a) {
    int32_t s = -8 * a.sum[0];
    s = word(q.x, a.v[0].x, a.v[0].y, a.v[2].x, a.v[2].y, s);
    s = word(q.y, a.v[0].z, a.v[0].w, a.v[2].z, a.v[2].w, s);
    s = word(q.z, a.v[1].x, a.v[1].y, a.v[3].x, a.v[3].y, s);
    return word(q.w, a.v[1].z, a.v[1].w, a.v[3].z, a.v[3].w, s);
  }
};

struct Q4_0Int16 : Q4Int16<uint16_t> {
  static __device__ __forceinline__ float accumulate(const Raw& w, const Activations& a, float sum) {
    return fmaf(f32_from_f16(w.scale) * a.scale, static_cast<float>(centred(w.q, a)), sum);
  }
};

struct Q4_1Int16 : Q4Int16<uint32_t> {
  static __device__ __forceinline__ float accumulate(const Raw& w, const Activations& a, float sum) {
    const float d = f32_from_f16(static_cast<uint16_t>(w.scale)), m = f32_from_f16(static_cast<uint16_t>(w.scale >> 16));
    sum = fmaf(d * a.scale, static_cast<float>(centred(w.q, a)), sum);
    return fmaf(fmaf(8.0f, d, m) * a.scale, static_cast<float>(a.sum[0]), sum);
  }
};

// ---- NVFP4: qs [rows, cols/2] (byte j: element 2j low), scales e4m3 [rows, cols/16], global f32 [rows] ---------------------------
//
// w = e2m1 · e4m3 · global. A vector is two blocks of 16. Twice an e2m1 is an integer: sums are of those, and the half is put back
// with `global`, at the end of the row.

struct NVFP4Base {
  using Cursor = ScaledCursor<uint16_t>;
  struct Planes {
    const uint8_t* qs;
    const uint8_t* scales;
    const float* global;
  };
  struct Raw {
    uint4 q;
    uint16_t scales;
  };
  static __device__ __forceinline__ Cursor cursor(const Planes& p, uint32_t row, uint32_t cols) {
    const uint64_t at = static_cast<uint64_t>(row) * (cols / 32);
    return {reinterpret_cast<const uint4*>(p.qs) + at, reinterpret_cast<const uint16_t*>(p.scales) + at};
  }
  static constexpr uint32_t SIDE = 1;
  static __device__ __forceinline__ void copy_side(const Cursor& c, uint32_t v, uint32_t vectors, SideWords side) {
    side.half(0, c.scale, v, vectors);
  }
  static __device__ __forceinline__ Raw raw(uint4 q, SideWords side, uint32_t v) { return {q, half_of(side[0], v)}; }
  static __device__ __forceinline__ float finish(const Planes& p, uint32_t row, float sum) {
    return sum * (0.5f * p.global[row]);
  }
  // 16 + 2 · e2m1 of four nibbles, a byte each: 0, 1, 2, 3, 4, 6, 8 and 12 about 16. prmt takes a byte of its table by three bits of a
  // nibble; where the fourth is set it repeats the byte's top bit, which is 0 in both tables, so either of the two results is 0.
  static __device__ __forceinline__ uint32_t biased(uint32_t codes, uint32_t flipped) {
    return permuted(0x13121110u, 0x1c181614u, codes) | permuted(0x0d0e0f10u, 0x04080a0cu, flipped);
  }
};

struct NVFP4 : NVFP4Base, FloatBlock {
  static constexpr uint32_t SUMS = 0;
  // A byte b as 2^23 + b in the bits of a float, less 2^23 + 16.
  static __device__ __forceinline__ void four(uint32_t b, float4 x, float& s0, float& s1) {
    constexpr float BIAS = 8388624.0f;
    s0 = fmaf(float_from_bytes<0x7440u>(b, 0x4b000000u) - BIAS, x.x, s0);
    s1 = fmaf(float_from_bytes<0x7441u>(b, 0x4b000000u) - BIAS, x.y, s1);
    s0 = fmaf(float_from_bytes<0x7442u>(b, 0x4b000000u) - BIAS, x.z, s0);
    s1 = fmaf(float_from_bytes<0x7443u>(b, 0x4b000000u) - BIAS, x.w, s1);
  }
  static __device__ __forceinline__ void word(uint32_t q, float4 low, float4 high, float& s0, float& s1) {
    const uint32_t flipped = q ^ 0x88888888u;
    four(biased(q, flipped), low, s0, s1);
    four(biased(q >> 16, flipped >> 16), high, s0, s1);
  }
  // Even and odd elements of a block into two sums, added; scaled into the row's sum, the first block before the second.
  static __device__ __forceinline__ float accumulate(const Raw& w, const Activations& a, float sum) {
    float s0 = 0.0f, s1 = 0.0f, t0 = 0.0f, t1 = 0.0f;
    word(w.q.x, a.v[0], a.v[1], s0, s1);
    word(w.q.y, a.v[2], a.v[3], s0, s1);
    word(w.q.z, a.v[4], a.v[5], t0, t1);
    word(w.q.w, a.v[6], a.v[7], t0, t1);
    sum = fmaf(f32_from_e4m3(w.scales & 0xffu), s0 + s1, sum);
    return fmaf(f32_from_e4m3(w.scales >> 8), t0 + t1, sum);
  }
};

struct NVFP4Int16 : NVFP4Base, Int16Block {
  static constexpr uint32_t SUMS = 2;
  static __device__ __forceinline__ int32_t word(uint32_t q, uint4 x, int32_t s) {
    const uint32_t flipped = q ^ 0x88888888u;
    const uint32_t low = biased(q, flipped), high = biased(q >> 16, flipped >> 16);
    return dp2a_hi(x.w, high, dp2a_lo(x.z, high, dp2a_hi(x.y, low, dp2a_lo(x.x, low, s))));
  }
  // The blocks' sums are exact, in int32 (|Σ b·q| ≤ 16 · 28 · 32767 < 2^24, less 16 Σ q) and in float32 (|Σ| ≤ 16 · 12 · 32767 < 2^23).
  // Scaled by their e4m3 they are added, the second to the first, and scaled by the activations' scale into the row's sum.
  static __device__ __forceinline__ float accumulate(const Raw& w, const Activations& a, float sum) {
    const int32_t s = word(w.q.y, a.v[1], word(w.q.x, a.v[0], -16 * a.sum[0]));
    const int32_t t = word(w.q.w, a.v[3], word(w.q.z, a.v[2], -16 * a.sum[1]));
    const float first = f32_from_e4m3(w.scales & 0xffu) * static_cast<float>(s);
    return fmaf(a.scale, fmaf(f32_from_e4m3(w.scales >> 8), static_cast<float>(t), first), sum);
  }
};

}  // namespace bw
