// Elementary functions from IEEE 754 operations only (add, mul, fma, div.rn, exact scaling by powers of two) and integer
// arithmetic, so that every device that follows the standard gives the same bits. Compile with -fmad=false: each fused
// operation is written fmaf. Errors are stated in units in the last place against float64, over the stated range, and a gate
// sweeps them through the entries of math_probe.cu.
#pragma once
#include <stdint.h>

namespace bw {

// exp(x) as p · 2^e with p in [0.70, 1.42): x in [-126, 89]. Cody–Waite reduction r = x − e·ln 2 with ln 2 in two parts, then a
// minimax polynomial of degree 6 on |r| ≤ ln 2 / 2.
__device__ __forceinline__ float exp_parts(float x, int32_t& e) {
  const float shifted = fmaf(x, 1.44269504f, 12582912.0f);  // 1.5·2^23: the low bits hold round-to-nearest-even(x / ln 2)
  e = __float_as_int(shifted) - 0x4b400000;
  const float n = shifted - 12582912.0f;
  float r = fmaf(n, -0.693145752f, x);
  r = fmaf(n, -1.42860677e-6f, r);
  float p = 1.37805939e-3f;
  p = fmaf(p, r, 8.37312452e-3f);
  p = fmaf(p, r, 4.16695364e-2f);
  p = fmaf(p, r, 1.66664720e-1f);
  p = fmaf(p, r, 4.99999851e-1f);
  p = fmaf(p, r, 1.0f);
  return fmaf(p, r, 1.0f);
}

// v · 2^e in two exact steps and one rounding, so that results below the normal range are rounded once.
__device__ __forceinline__ float scale_by_power(float v, int32_t e) {
  const int32_t half = e >> 1;
  return (v * __int_as_float((half + 127) << 23)) * __int_as_float((e - half + 127) << 23);
}

// exp: every float. ≤ 0.86 ulp; overflows to +inf above 88.7228, underflows through the denormals to 0, NaN stays NaN.
__device__ __forceinline__ float exp(float x) {
  int32_t e;
  const float p = exp_parts(fminf(fmaxf(x, -104.0f), 89.0f), e);
  const float y = scale_by_power(p, e);
  return x != x ? x : y;
}

// (numerator + low) / (1 + z) for z in [0, 1] and |low| far below |numerator|: a quotient by the reciprocal, then one correction by
// the residual, in which the rounding errors of 1 + z and of the numerator are put back. About half an ulp.
__device__ __forceinline__ float over_one_plus(float numerator, float low, float z) {
  const float d = 1.0f + z;
  const float lost = z - (d - 1.0f);
  const float reciprocal = 1.0f / d;
  const float q = numerator * reciprocal;
  const float residual = fmaf(-q, d, numerator) + fmaf(-q, lost, low);
  return fmaf(residual, reciprocal, q);
}

// 1 / (1 + exp(−x)): every float. ≤ 1.47 ulp. Written with exp(−|x|), which cannot overflow.
__device__ __forceinline__ float sigmoid(float x) {
  int32_t e;
  const float p = exp_parts(fmaxf(-fabsf(x), -104.0f), e);
  const float z = scale_by_power(p, e);
  const bool negative = x < 0.0f;
  const float q = over_one_plus(negative ? p : 1.0f, 0.0f, z);
  const float y = negative ? scale_by_power(q, e) : q;
  return x != x ? x : y;
}

// x · sigmoid(x): every float. ≤ 1.63 ulp. The factor 2^e is applied last, so that a denormal exp(x) costs no precision.
// silu(−inf) is −0, its limit; silu(+inf) is +inf.
__device__ __forceinline__ float silu(float x) {
  int32_t e;
  const float clamped = fmaxf(x, -112.0f);  // below, the product rounds to −0
  const float p = exp_parts(fmaxf(-fabsf(x), -112.0f), e);
  const float z = scale_by_power(p, e);
  const bool negative = x < 0.0f;
  const float numerator = negative ? clamped * p : x;
  const float low = negative ? fmaf(clamped, p, -numerator) : 0.0f;
  const float q = over_one_plus(numerator, low, z);
  const float y = negative ? scale_by_power(q, e) : q;
  return x > 104.0f || x != x ? x : y;  // above, sigmoid(x) is 1; the quotient would turn +inf into NaN
}

// log(1 + z) for z in [0, 1]. With 1 + z = 2^k · (1 + f), k in {0, 1}, and s = f / (2 + f),
// log(1 + f) = f − (f²/2 − s · (f²/2 + R(s²))): the classical reduction; R is a polynomial in s². When k = 1 the rounding error of
// 1 + z is put back as c.
__device__ __forceinline__ float log1p_unit(float z) {
  const float u = 1.0f + z;
  const bool halve = u > 1.41421354f;
  const float f = halve ? fmaf(0.5f, u, -1.0f) : z;
  const float c = halve ? (z - (u - 1.0f)) / u : 0.0f;
  const float s = f / (2.0f + f);
  const float s2 = s * s;
  float r = 0.148198f;
  r = fmaf(r, s2, 0.181835f);
  r = fmaf(r, s2, 0.222221985f);
  r = fmaf(r, s2, 0.285714298f);
  r = fmaf(r, s2, 0.400000006f);
  r = fmaf(r, s2, 0.666666687f);
  r = r * s2;
  const float h = 0.5f * f * f;
  const float k_low = halve ? fmaf(1.0f, 1.42860677e-6f, c) : 0.0f;
  const float k_high = halve ? 0.693145752f : 0.0f;
  return k_high - ((h - fmaf(s, h + r, k_low)) - f);
}

// log(1 + exp(x)): every float. ≤ 1.55 ulp.
__device__ __forceinline__ float softplus(float x) {
  const float z = bw::exp(-fabsf(x));
  const float y = log1p_unit(z) + fmaxf(x, 0.0f);
  return x != x ? x : y;
}

// x − n·π/2 with π/2 in three parts and n = round(x·2/π): the first step is exact, since x and n·P1 are multiples of 2^-23 (or of
// x's last place) and their difference is below 1. Returns r with |r| ≤ π/4 + 0.06 and n's low bits.
__device__ __forceinline__ float reduce_half_pi(float x, int32_t& n) {
  const float shifted = fmaf(x, 0.636619747f, 12582912.0f);
  n = __float_as_int(shifted);
  const float k = shifted - 12582912.0f;
  float r = fmaf(k, -1.57079637f, x);
  r = fmaf(k, 4.37113883e-8f, r);
  return fmaf(k, 1.71512489e-15f, r);
}

__device__ __forceinline__ float sin_kernel(float r) {
  const float r2 = r * r;
  float p = 2.60831598e-6f;
  p = fmaf(p, r2, -1.98106974e-4f);
  p = fmaf(p, r2, 8.33307206e-3f);
  p = fmaf(p, r2, -1.66666597e-1f);
  return fmaf(r * r2, p, r);
}

__device__ __forceinline__ float cos_kernel(float r) {
  const float r2 = r * r;
  float p = 2.44251708e-5f;
  p = fmaf(p, r2, -1.38873036e-3f);
  p = fmaf(p, r2, 4.16666493e-2f);
  const float h = 0.5f * r2;
  const float w = 1.0f - h;  // the rounding error of w is put back below
  return w + (((1.0f - w) - h) + r2 * r2 * p);
}

// sin and cos together: |x| ≤ 2^20. ≤ 1.56 and 1.52 ulp. NaN beyond, and for infinities and NaN: a wrong angle must not look like one.
__device__ __forceinline__ void sincos(float x, float& sine, float& cosine) {
  int32_t n;
  const float r = reduce_half_pi(x, n);
  const float s = sin_kernel(r), c = cos_kernel(r);
  float a = (n & 1) ? c : s;
  float b = (n & 1) ? s : c;
  a = (n & 2) ? -a : a;
  b = ((n + 1) & 2) ? -b : b;
  const bool inside = fabsf(x) <= 1048576.0f;
  const float nan = __int_as_float(0x7fffffff);
  sine = inside ? a : nan;
  cosine = inside ? b : nan;
}

__device__ __forceinline__ float sin(float x) {
  float s, c;
  bw::sincos(x, s, c);
  return s;
}

__device__ __forceinline__ float cos(float x) {
  float s, c;
  bw::sincos(x, s, c);
  return c;
}

// float32 -> fp8 e4m3 (1 sign, 4 exponent bits of bias 7, 3 mantissa bits, no infinities): every float. Correctly rounded,
// ties to even, saturating at ±448; NaN is 0x7f with the sign kept.
__device__ __forceinline__ uint32_t e4m3_from_f32(float x) {
  const uint32_t bits = __float_as_uint(x);
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Below 2^-6 the codes are multiples of 2^-9, the last place of 16384: the addition rounds.
  const uint32_t small = __float_as_uint(__uint_as_float(magnitude) + 16384.0f) - 0x46800000u;
  const uint32_t normal = ((magnitude + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20) - ((127u - 7u) << 3);
  uint32_t code = magnitude < 0x3c800000u ? small : (normal < 0x7eu ? normal : 0x7eu);
  code = magnitude > 0x7f800000u ? 0x7fu : code;
  return code | ((bits >> 24) & 0x80u);
}

// fp8 e4m3 -> float32, exact for every code (denormal codes through a float32 denormal scaled by 2^120); 0x7f and 0xff are NaN.
__device__ __forceinline__ float f32_from_e4m3(uint32_t code) {
  const uint32_t magnitude = code & 0x7fu;
  const float v = __uint_as_float(((code & 0x80u) << 24) | (magnitude << 20)) * __uint_as_float(0x7b800000u);
  return magnitude == 0x7fu ? __int_as_float(0x7fffffff) : v;
}

// float16 <-> float32: widening is exact; narrowing rounds to nearest even and overflows to infinity.
__device__ __forceinline__ float f32_from_f16(uint16_t h) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
}

__device__ __forceinline__ uint16_t f16_from_f32(float f) {
  uint16_t h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
}

__device__ __forceinline__ float f32_from_bf16(uint16_t h) { return __uint_as_float(static_cast<uint32_t>(h) << 16); }

}  // namespace bw
