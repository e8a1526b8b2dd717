// Weight formats with five bits, and ggml's "k" formats: super-blocks of 256 weights whose eight sub-blocks of 32 have quantised
// scales. Interface and walk as in formats.cuh; a 16-byte vector, with the words that belong to it, is a sub-block, so that the
// eight lanes of a row take a super-block in a turn.
//
// Words hold four neighbouring weights, a byte each; where a byte has room to spare, the bits of further weights are spread over it
// (engine/src/quant/k_planes.rs).
#pragma once
#include "formats.cuh"

namespace bw {

struct SubBlocksFloat : NoRowScale, FloatBlock {
  static constexpr uint32_t SUMS = 1;
};

struct SubBlocksInt16 : NoRowScale, Int16Block {};

// ---- unpacking ----------------------------------------------------------------------------------------------------------------

// Adds the products of four int16s, two a word, and four unsigned bytes.
__device__ __forceinline__ int32_t dot4(uint32_t x0, uint32_t x1, uint32_t bytes, int32_t sum) {
  int32_t s;
  asm("dp2a.lo.s32.u32 %0, %1, %2, %3;" : "=r"(s) : "r"(x0), "r"(bytes), "r"(sum));
  asm("dp2a.hi.s32.u32 %0, %1, %2, %3;" : "=r"(s) : "r"(x1), "r"(bytes), "r"(s));
  return s;
}

// Adds Σ (q − CENTRE) · x over a word whose bytes are q << SHIFT: a byte becomes the low mantissa byte of 2^(23 − SHIFT), whose last
// place counts 2^-SHIFT.
template <uint32_t SHIFT, uint32_t CENTRE>
__device__ __forceinline__ void float_dot4(uint32_t bytes, float4 x, float& s0, float& s1) {
  constexpr uint32_t MAGIC = (127u + 23u - SHIFT) << 23;
  constexpr float BIAS = static_cast<float>((1u << (23u - SHIFT)) + CENTRE);
  s0 = fmaf(float_from_bytes<0x7640u>(bytes, MAGIC) - BIAS, x.x, s0);
  s1 = fmaf(float_from_bytes<0x7641u>(bytes, MAGIC) - BIAS, x.y, s1);
  s0 = fmaf(float_from_bytes<0x7642u>(bytes, MAGIC) - BIAS, x.z, s0);
  s1 = fmaf(float_from_bytes<0x7643u>(bytes, MAGIC) - BIAS, x.w, s1);
}

// 32 weights of five bits in five words: those of quads 0–4 are the upper five bits of each byte, those of 5–7 lie in the lower three.
struct FiveBits {
  uint4 q;
  uint32_t t;
  static __device__ __forceinline__ uint32_t upper(uint32_t word) { return word & 0xf8f8f8f8u; }  // eight times a quad of 0–4
  __device__ __forceinline__ uint32_t quad5() const { return (q.x & 0x07070707u) | ((q.w << 3) & 0x18181818u); }
  __device__ __forceinline__ uint32_t quad6() const { return (q.y & 0x07070707u) | ((t << 3) & 0x18181818u); }
  __device__ __forceinline__ uint32_t quad7() const {
    return (q.z & 0x07070707u) | ((q.w << 1) & 0x08080808u) | ((t << 2) & 0x10101010u);
  }
};

// Σ (q − 16) · x, even and odd elements into two sums.
__device__ __forceinline__ float centred(const FiveBits& w, const float4 (&v)[8]) {
  float s0 = 0.0f, s1 = 0.0f;
  float_dot4<3, 16>(FiveBits::upper(w.q.x), v[0], s0, s1);
  float_dot4<3, 16>(FiveBits::upper(w.q.y), v[1], s0, s1);
  float_dot4<3, 16>(FiveBits::upper(w.q.z), v[2], s0, s1);
  float_dot4<3, 16>(FiveBits::upper(w.q.w), v[3], s0, s1);
  float_dot4<3, 16>(FiveBits::upper(w.t), v[4], s0, s1);
  float_dot4<0, 16>(w.quad5(), v[5], s0, s1);
  float_dot4<0, 16>(w.quad6(), v[6], s0, s1);
  float_dot4<0, 16>(w.quad7(), v[7], s0, s1);
  return s0 + s1;
}

// `first` + Σ q · x, exact: |Σ 8q·x| ≤ 20 · 248 · 32768 < 2^28.
__device__ __forceinline__ int32_t products(const FiveBits& w, const uint4 (&v)[4], int32_t first) {
  int32_t eights = dot4(v[0].x, v[0].y, FiveBits::upper(w.q.x), 0);
  eights = dot4(v[0].z, v[0].w, FiveBits::upper(w.q.y), eights);
  eights = dot4(v[1].x, v[1].y, FiveBits::upper(w.q.z), eights);
  eights = dot4(v[1].z, v[1].w, FiveBits::upper(w.q.w), eights);
  eights = dot4(v[2].x, v[2].y, FiveBits::upper(w.t), eights);
  int32_t ones = dot4(v[2].z, v[2].w, w.quad5(), first);
  ones = dot4(v[3].x, v[3].y, w.quad6(), ones);
  ones = dot4(v[3].z, v[3].w, w.quad7(), ones);
  return ones + (eights >> 3);
}

// ---- Q5_0: qs four words and qt one for each 32 weights, d f16 [rows, cols/32] --------------------------------------------------

template <class Base>
struct Q5_0Base : Base {
  struct Planes {
    const uint32_t* qs;
    const uint32_t* qt;
    const uint16_t* d;
  };
  struct Cursor {
    const uint4* data;
    const uint32_t* qt;
    const uint16_t* d;
  };
  struct Raw {
    FiveBits q;
    uint16_t d;
  };
  static __device__ __forceinline__ Cursor cursor(const Planes& p, uint32_t row, uint32_t cols) {
    const uint64_t at = static_cast<uint64_t>(row) * (cols / 32);
    return {reinterpret_cast<const uint4*>(p.qs) + at, p.qt + at, p.d + at};
  }
  static constexpr uint32_t SIDE = 2;
  static __device__ __forceinline__ void copy_side(const Cursor& c, uint32_t v, uint32_t vectors, SideWords side) {
    side.word(0, c.qt, v, vectors);
    side.half(1, c.d, v, vectors);
  }
  static __device__ __forceinline__ Raw raw(uint4 q, SideWords side, uint32_t v) { return {{q, side[0]}, half_of(side[1], v)}; }
};

// w = d · (q − 16)
struct Q5_0 : Q5_0Base<SubBlocksFloat> {
  static __device__ __forceinline__ float accumulate(const Raw& w, const Activations& a, float sum) {
    return fmaf(f32_from_f16(w.d), centred(w.q, a.v), sum);
  }
};

struct Q5_0Int16 : Q5_0Base<SubBlocksInt16> {
  static constexpr uint32_t SUMS = 1;
  // |Σ (q − 16) · x| ≤ 32 · 16 · 32767 < 2^24: exact in float32.
  static __device__ __forceinline__ float accumulate(const Raw& w, const Activations& a, float sum) {
    return fmaf(f32_from_f16(w.d) * a.scale, static_cast<float>(products(w.q, a.v, -16 * a.sum[0])), sum);
  }
};

// ---- Q4_K: qs as Q4_0, scales (s, m) bytes a sub-block, dm f16 pairs a super-block: w = (d·s) · q − dm·m ------------------------

// d·s and dm·m of a sub-block, both exact in float32.
struct ScaleAndMinimum {
  float scale, minimum;
  __device__ __forceinline__ ScaleAndMinimum(uint32_t dm, uint32_t pair) {
    scale = f32_from_f16(static_cast<uint16_t>(dm)) * static_cast<float>(pair & 0xffu);
    minimum = f32_from_f16(static_cast<uint16_t>(dm >> 16)) * static_cast<float>(pair >> 8);
  }
};

// The sub-block's Σ w · x of integer sums Σ q · x and Σ x, scaled by the activations' scale into the row's sum. Scales and minima
// are multiplied in integers, |s · Σ q·x| ≤ 63 · 32 · 31 · 32767 < 2^31, and each product is rounded once.
__device__ __forceinline__ float scaled_sub_block(uint32_t dm, uint32_t pair, int32_t products, int32_t total, float scale,
                                                  float sum) {
  const int32_t s = static_cast<int32_t>(pair & 0xffu), m = static_cast<int32_t>(pair >> 8);
  const float d = f32_from_f16(static_cast<uint16_t>(dm)), dmin = f32_from_f16(static_cast<uint16_t>(dm >> 16));
  return fmaf(scale, fmaf(-dmin, static_cast<float>(m * total), d * static_cast<float>(s * products)), sum);
}

template <class Base>
struct Q4_KBase : Base {
  struct Planes {
    const uint8_t* qs;
    const uint8_t* scales;
    const uint16_t* dm;
  };
  struct Cursor {
    const uint4* data;
    const uint16_t* scales;
    const uint32_t* dm;
  };
  struct Raw {
    uint4 q;
    uint32_t scales;  // two bytes
    uint32_t dm;
  };
  static __device__ __forceinline__ Cursor cursor(const Planes& p, uint32_t row, uint32_t cols) {
    const uint64_t at = static_cast<uint64_t>(row) * (cols / 256);
    return {reinterpret_cast<const uint4*>(p.qs) + at * 8, reinterpret_cast<const uint16_t*>(p.scales) + at * 8,
            reinterpret_cast<const uint32_t*>(p.dm) + at};
  }
  static constexpr uint32_t SIDE = 2;
  static __device__ __forceinline__ void copy_side(const Cursor& c, uint32_t v, uint32_t vectors, SideWords side) {
    __builtin_assume(vectors % 8 == 0);
    side.half(0, c.scales, v, vectors);
    side.word(1, c.dm, v / 8, vectors / 8);
  }
  static __device__ __forceinline__ Raw raw(uint4 q, SideWords side, uint32_t v) { return {q, half_of(side[0], v), side[1]}; }
};

// As Q4_1: w = ds · (q − 8) + (8 ds − dm).
struct Q4_K : Q4_KBase<SubBlocksFloat> {
  static __device__ __forceinline__ float accumulate(const Raw& w, const Activations& a, float sum) {
    const ScaleAndMinimum s(w.dm, w.scales);
    float s0 = 0.0f, s1 = 0.0f;
    nibble_products(w.q.x, a.v[0], a.v[4], s0, s1);
    nibble_products(w.q.y, a.v[1], a.v[5], s0, s1);
    nibble_products(w.q.z, a.v[2], a.v[6], s0, s1);
    nibble_products(w.q.w, a.v[3], a.v[7], s0, s1);
    return fmaf(fmaf(8.0f, s.scale, -s.minimum), a.sum, fmaf(s.scale, s0 + s1, sum));
  }
};

struct Q4_KInt16 : Q4_KBase<SubBlocksInt16> {
  static constexpr uint32_t SUMS = 1;
  // High nibbles are left where they are, so their products count sixteen times: |Σ| ≤ 16 · 240 · 32768 < 2^27.
  static __device__ __forceinline__ float accumulate(const Raw& w, const Activations& a, float sum) {
    constexpr uint32_t LOW = 0x0f0f0f0fu, HIGH = 0xf0f0f0f0u;
    int32_t low = dot4(a.v[0].x, a.v[0].y, w.q.x & LOW, 0), high = dot4(a.v[2].x, a.v[2].y, w.q.x & HIGH, 0);
    low = dot4(a.v[0].z, a.v[0].w, w.q.y & LOW, low), high = dot4(a.v[2].z, a.v[2].w, w.q.y & HIGH, high);
    low = dot4(a.v[1].x, a.v[1].y, w.q.z & LOW, low), high = dot4(a.v[3].x, a.v[3].y, w.q.z & HIGH, high);
    low = dot4(a.v[1].z, a.v[1].w, w.q.w & LOW, low), high = dot4(a.v[3].z, a.v[3].w, w.q.w & HIGH, high);
    return scaled_sub_block(w.dm, w.scales, low + (high >> 4), a.sum[0], a.scale, sum);
  }
};

// ---- Q5_K: qs and qt as Q5_0, scales and dm as Q4_K -----------------------------------------------------------------------------

template <class Base>
struct Q5_KBase : Base {
  struct Planes {
    const uint32_t* qs;
    const uint32_t* qt;
    const uint8_t* scales;
    const uint16_t* dm;
  };
  struct Cursor {
    const uint4* data;
    const uint32_t* qt;
    const uint16_t* scales;
    const uint32_t* dm;
  };
  struct Raw {
    FiveBits q;
    uint32_t scales;  // two bytes
    uint32_t dm;
  };
  static __device__ __forceinline__ Cursor cursor(const Planes& p, uint32_t row, uint32_t cols) {
    const uint64_t at = static_cast<uint64_t>(row) * (cols / 256);
    return {reinterpret_cast<const uint4*>(p.qs) + at * 8, p.qt + at * 8, reinterpret_cast<const uint16_t*>(p.scales) + at * 8,
            reinterpret_cast<const uint32_t*>(p.dm) + at};
  }
  static constexpr uint32_t SIDE = 3;
  static __device__ __forceinline__ void copy_side(const Cursor& c, uint32_t v, uint32_t vectors, SideWords side) {
    side.word(0, c.qt, v, vectors);
    __builtin_assume(vectors % 8 == 0);
    side.half(1, c.scales, v, vectors);
    side.word(2, c.dm, v / 8, vectors / 8);
  }
  static __device__ __forceinline__ Raw raw(uint4 q, SideWords side, uint32_t v) {
    return {{q, side[0]}, half_of(side[1], v), side[2]};
  }
};

// w = ds · (q − 16) + (16 ds − dm)
struct Q5_K : Q5_KBase<SubBlocksFloat> {
  static __device__ __forceinline__ float accumulate(const Raw& w, const Activations& a, float sum) {
    const ScaleAndMinimum s(w.dm, w.scales);
    return fmaf(fmaf(16.0f, s.scale, -s.minimum), a.sum, fmaf(s.scale, centred(w.q, a.v), sum));
  }
};

struct Q5_KInt16 : Q5_KBase<SubBlocksInt16> {
  static constexpr uint32_t SUMS = 1;
  static __device__ __forceinline__ float accumulate(const Raw& w, const Activations& a, float sum) {
    return scaled_sub_block(w.dm, w.scales, products(w.q, a.v, 0), a.sum[0], a.scale, sum);
  }
};

// ---- Q6_K: qs four words and qt two for each 32 weights, scales int8 for each 16, d f16 a super-block, in a word: w = (d·s) · (q − 32) -----

template <class Base>
struct Q6_KBase : Base {
  struct Planes {
    const uint32_t* qs;
    const uint32_t* qt;
    const int8_t* scales;
    const uint16_t* d;
  };
  struct Cursor {
    const uint4* data;
    const uint32_t* qt;
    const uint16_t* scales;
    const uint32_t* d;
  };
  struct Raw {
    uint4 q;
    uint2 t;
    uint32_t scales;  // two bytes
    uint16_t d;
  };
  static __device__ __forceinline__ Cursor cursor(const Planes& p, uint32_t row, uint32_t cols) {
    const uint64_t at = static_cast<uint64_t>(row) * (cols / 256);
    return {reinterpret_cast<const uint4*>(p.qs) + at * 8, p.qt + at * 16,
            reinterpret_cast<const uint16_t*>(p.scales) + at * 8, reinterpret_cast<const uint32_t*>(p.d) + at};
  }
  static constexpr uint32_t SIDE = 4;
  static __device__ __forceinline__ void copy_side(const Cursor& c, uint32_t v, uint32_t vectors, SideWords side) {
    side.word(0, c.qt, 2 * v, 2 * vectors);
    side.word(1, c.qt, 2 * v + 1, 2 * vectors);
    __builtin_assume(vectors % 8 == 0);
    side.half(2, c.scales, v, vectors);
    side.word(3, c.d, v / 8, vectors / 8);
  }
  static __device__ __forceinline__ Raw raw(uint4 q, SideWords side, uint32_t v) {
    return {q, make_uint2(side[0], side[1]), half_of(side[2], v), static_cast<uint16_t>(side[3])};
  }
  static __device__ __forceinline__ float first(uint32_t scales) {
    return static_cast<float>(static_cast<int8_t>(scales));
  }
  static __device__ __forceinline__ float second(uint32_t scales) {
    return static_cast<float>(static_cast<int8_t>(scales >> 8));
  }
  // Four times quad 0 of a half; quads 1 and 2; quad 3, from the bits that those leave.
  static __device__ __forceinline__ uint32_t quad0(uint32_t a) { return a & 0xfcfcfcfcu; }
  static __device__ __forceinline__ uint32_t lower(uint32_t b) { return b & 0x3f3f3f3fu; }
  static __device__ __forceinline__ uint32_t quad3(uint32_t a, uint32_t b, uint32_t c) {
    return (a & 0x03030303u) | ((b >> 4) & 0x0c0c0c0cu) | ((c >> 2) & 0x30303030u);
  }
};

struct Q6_K : Q6_KBase<SubBlocksFloat> {
  static constexpr uint32_t SUMS = 0;
  // Even and odd elements of 16 into two sums, added.
  static __device__ __forceinline__ float half(uint32_t a, uint32_t b, uint32_t c, const float4* v) {
    float s0 = 0.0f, s1 = 0.0f;
    float_dot4<2, 32>(quad0(a), v[0], s0, s1);
    float_dot4<0, 32>(lower(b), v[1], s0, s1);
    float_dot4<0, 32>(lower(c), v[2], s0, s1);
    float_dot4<0, 32>(quad3(a, b, c), v[3], s0, s1);
    return s0 + s1;
  }
  // Scaled into the row's sum, the first half before the second; d·s is exact.
  static __device__ __forceinline__ float accumulate(const Raw& w, const Activations& a, float sum) {
    const float d = f32_from_f16(w.d);
    sum = fmaf(d * first(w.scales), half(w.q.x, w.q.y, w.q.z, a.v), sum);
    return fmaf(d * second(w.scales), half(w.q.w, w.t.x, w.t.y, a.v + 4), sum);
  }
};

struct Q6_KInt16 : Q6_KBase<SubBlocksInt16> {
  static constexpr uint32_t SUMS = 2;
  // Σ (q − 32) · x of 16 elements, exact, in int32 and in float32: |Σ| ≤ 16 · 32 · 32767 < 2^24, |Σ 4q·x| ≤ 4 · 252 · 32767 < 2^25.
  static __device__ __forceinline__ float half(uint32_t a, uint32_t b, uint32_t c, uint4 x, uint4 y, int32_t sum) {
    const int32_t fours = dot4(x.x, x.y, quad0(a), 0);
    int32_t s = dot4(x.z, x.w, lower(b), -32 * sum);
    s = dot4(y.x, y.y, lower(c), s);
    s = dot4(y.z, y.w, quad3(a, b, c), s);
    return static_cast<float>(s + (fours >> 2));
  }
  // The halves, scaled by their integers, are added, the second to the first, and scaled by both blocks' scales into the row's sum.
  static __device__ __forceinline__ float accumulate(const Raw& w, const Activations& a, float sum) {
    const float product = first(w.scales) * half(w.q.x, w.q.y, w.q.z, a.v[0], a.v[1], a.sum[0]);
    const float both = fmaf(second(w.scales), half(w.q.w, w.t.x, w.t.y, a.v[2], a.v[3], a.sum[1]), product);
    return fmaf(f32_from_f16(w.d) * a.scale, both, sum);
  }
};

}  // namespace bw
