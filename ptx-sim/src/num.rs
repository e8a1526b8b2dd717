//! Number formats and roundings that the CPU does not have, one value at a time.
//!
//! Sources: IEEE 754-2019 for binary16, binary32 and binary64; bfloat16 as the upper half of binary32; the OCP 8-bit
//! floating point specification for e4m3 and e5m2; the PTX ISA for what becomes of NaN and of values out of range.

/// The NaN that f32 operations make.
pub(crate) const NAN32: u32 = 0x7fff_ffff;
/// The NaN that f16 and bf16 operations make.
pub(crate) const NAN16: u16 = 0x7fff;

/// A rounding direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Round {
    /// To nearest, ties to even.
    Nearest,
    /// Towards zero.
    Zero,
    /// Towards minus infinity.
    Down,
    /// Towards plus infinity.
    Up,
}

/// Bits of a f32 with NaNs made canonical.
#[inline(always)]
pub(crate) fn bits32(value: f32) -> u32 {
    if value.is_nan() { NAN32 } else { value.to_bits() }
}

/// A f16 widened; a NaN becomes [`NAN32`].
#[inline(always)]
pub(crate) fn f16_to_f32(bits: u16) -> f32 {
    let magnitude = u32::from(bits & 0x7fff);
    let sign = u32::from(bits & 0x8000) << 16;
    // The exponent field lands 112 too low; the product by 2^112 is exact and normalises subnormals.
    let scaled = f32::from_bits(magnitude << 13) * f32::from_bits((112 + 127) << 23);
    let out = if magnitude > 0x7c00 {
        return f32::from_bits(NAN32);
    } else if magnitude == 0x7c00 {
        0x7f80_0000
    } else {
        scaled.to_bits()
    };
    f32::from_bits(out | sign)
}

/// A f32 rounded to f16, to nearest even; a NaN becomes [`NAN16`].
#[inline(always)]
pub(crate) fn f32_to_f16(value: f32) -> u16 {
    f64_to_f16(value.into(), Round::Nearest)
}

/// A bf16 widened, bit for bit.
#[inline(always)]
pub(crate) fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// A f32 rounded to bf16, to nearest even; a NaN becomes [`NAN16`].
#[inline(always)]
pub(crate) fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return NAN16;
    }
    (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// A binary format of up to 16 bits: exponent and fraction widths and the code of its largest finite value.
#[derive(Clone, Copy)]
struct Format {
    exponent: u32,
    fraction: u32,
    largest: u32,
}

const F16: Format = Format { exponent: 5, fraction: 10, largest: 0x7bff };
const BF16: Format = Format { exponent: 8, fraction: 7, largest: 0x7f7f };
const E4M3: Format = Format { exponent: 4, fraction: 3, largest: 0x7e };
const E5M2: Format = Format { exponent: 5, fraction: 2, largest: 0x7b };

/// The code (without sign) of a finite magnitude in a format, as if its exponent had no upper bound.
fn encode(magnitude: f64, format: Format, round: Round) -> u64 {
    let bits = magnitude.to_bits();
    let field = (bits >> 52) as i32;
    let significand = if field == 0 { bits } else { bits & ((1 << 52) - 1) | 1 << 52 };
    let exponent = field.max(1) - 1023;
    let bias = (1 << (format.exponent - 1)) - 1;
    let lowest = 1 - bias;
    let shift = 52 - format.fraction as i32 + (lowest - exponent).max(0);
    if shift > 60 {
        return 0; // far below half of the smallest subnormal
    }
    let quotient = significand >> shift;
    let rest = significand & ((1 << shift) - 1);
    let half = 1u64 << (shift - 1);
    let up = match round {
        Round::Nearest => rest > half || rest == half && quotient & 1 == 1,
        Round::Up => rest > 0, // of the magnitude; callers map the signed directions
        _ => false,
    };
    let base = (exponent.max(lowest) + bias - 1) as u64; // the hidden bit, if there, adds the missing 1
    (base << format.fraction) + quotient + u64::from(up)
}

fn signed(value: f64) -> u16 {
    u16::from(value.is_sign_negative())
}

fn to_16(value: f64, format: Format, round: Round, infinity: u16) -> u16 {
    if value.is_nan() {
        return NAN16;
    }
    let sign = signed(value) << 15;
    if value.is_infinite() {
        return sign | infinity;
    }
    let code = encode(value.abs(), format, round);
    if code > u64::from(format.largest) {
        return sign | if round == Round::Zero { format.largest as u16 } else { infinity };
    }
    sign | code as u16
}

/// A f64 rounded to f16 (nearest or towards zero); a NaN becomes [`NAN16`].
pub(crate) fn f64_to_f16(value: f64, round: Round) -> u16 {
    to_16(value, F16, round, 0x7c00)
}

/// A f64 rounded to bf16 (nearest or towards zero); a NaN becomes [`NAN16`].
pub(crate) fn f64_to_bf16(value: f64, round: Round) -> u16 {
    to_16(value, BF16, round, 0x7f80)
}

/// A value rounded to e4m3 to nearest even, saturating at ±448; NaN becomes 0x7f.
pub(crate) fn to_e4m3(value: f64) -> u8 {
    to_8(value, E4M3)
}

/// A value rounded to e5m2 to nearest even, saturating at ±57344; NaN becomes 0x7f.
pub(crate) fn to_e5m2(value: f64) -> u8 {
    to_8(value, E5M2)
}

fn to_8(value: f64, format: Format) -> u8 {
    if value.is_nan() {
        return 0x7f;
    }
    let largest = u64::from(format.largest);
    let code = if value.is_infinite() { largest } else { encode(value.abs(), format, Round::Nearest) };
    (signed(value) << 7) as u8 | code.min(largest) as u8
}

/// An e4m3 code's value as f16 bits, exact; NaN becomes [`NAN16`].
pub(crate) fn e4m3_to_f16(code: u8) -> u16 {
    let sign = u16::from(code & 0x80) << 8;
    let (exponent, fraction) = ((code >> 3) & 0xf, code & 7);
    if code & 0x7f == 0x7f {
        return NAN16;
    }
    let magnitude = if exponent == 0 {
        f64::from(fraction) / 512.0 // 2^-6 / 8
    } else {
        f64::from(8 + fraction) * 2f64.powi(i32::from(exponent) - 10)
    };
    sign | f64_to_f16(magnitude, Round::Nearest)
}

/// An e5m2 code's value as f16 bits: the upper byte of a f16; NaN becomes [`NAN16`].
pub(crate) fn e5m2_to_f16(code: u8) -> u16 {
    if code & 0x7f > 0x7c { NAN16 } else { u16::from(code) << 8 }
}

/// The sum of `a` and `b` and what rounding it lost, exactly (Knuth's two-sum); no lost part for infinities and NaN.
#[inline(always)]
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let other = sum - a;
    let lost = (a - (sum - other)) + (b - other);
    (sum, if sum.is_finite() { lost } else { 0.0 })
}

/// `a · b + c` to 53 bits, rounded to odd, for factors of at most 26 bits: rounding it again to 24 or fewer bits gives
/// what rounding the exact value would.
#[inline(always)]
pub(crate) fn fma_odd(a: f64, b: f64, c: f64) -> f64 {
    let (sum, lost) = two_sum(a * b, c);
    if lost == 0.0 || sum.to_bits() & 1 == 1 {
        return sum;
    }
    // The exact value lies beside `sum` on the side of `lost`; both neighbours' codes are odd.
    let outward = (lost > 0.0) == (sum > 0.0);
    f64::from_bits(if outward { sum.to_bits() + 1 } else { sum.to_bits() - 1 })
}

/// The exact value `high + low` rounded to f32 in a direction; `low` is what rounding to `high` lost.
fn pair_to_f32(high: f64, low: f64, round: Round) -> f32 {
    let nearest = high as f32;
    if !high.is_finite() || round == Round::Nearest {
        return nearest;
    }
    let wide = f64::from(nearest);
    // Where the nearest lies in relation to the exact value; when it equals `high`, `low` decides.
    let order = if wide == high { 0.0f64.partial_cmp(&low) } else { wide.partial_cmp(&high) };
    let (above, below) =
        (order == Some(std::cmp::Ordering::Greater), order == Some(std::cmp::Ordering::Less));
    match round {
        Round::Down if above => nearest.next_down(),
        Round::Up if below => nearest.next_up(),
        Round::Zero if above && high > 0.0 => nearest.next_down(),
        Round::Zero if below && high < 0.0 => nearest.next_up(),
        _ => nearest,
    }
}

/// A f64 rounded to f32 in a direction.
pub(crate) fn f64_to_f32(value: f64, round: Round) -> f32 {
    pair_to_f32(value, 0.0, round)
}

/// `a · b + c` rounded to f32 in a direction.
pub(crate) fn fma_f32(a: f32, b: f32, c: f32, round: Round) -> f32 {
    let product = f64::from(a) * f64::from(b); // exact: 48 bits
    let (high, low) = two_sum(product, c.into());
    if high == 0.0 && low == 0.0 && round == Round::Down && (product != 0.0 || c != 0.0) {
        return -0.0; // x − x is −0 when rounding down
    }
    if high == 0.0 && round == Round::Down && product.is_sign_negative() != c.is_sign_negative() {
        return -0.0;
    }
    pair_to_f32(high, low, round)
}

/// `a + b` rounded to f32 in a direction.
pub(crate) fn add_f32(a: f32, b: f32, round: Round) -> f32 {
    fma_f32(a, 1.0, b, round)
}

/// `a · b` rounded to f32 in a direction.
pub(crate) fn mul_f32(a: f32, b: f32, round: Round) -> f32 {
    pair_to_f32(f64::from(a) * f64::from(b), 0.0, round)
}

/// `a / b` rounded to f32 in a direction.
pub(crate) fn div_f32(a: f32, b: f32, round: Round) -> f32 {
    let (a, b) = (f64::from(a), f64::from(b));
    let quotient = a / b;
    // What the quotient lacks; the remainder is exact (a rounded quotient's always is, short of underflow).
    let rest = (-quotient).mul_add(b, a) / b;
    pair_to_f32(quotient, if rest.is_finite() { rest } else { 0.0 }, round)
}

/// The square root of `a` rounded to f32 in a direction.
pub(crate) fn sqrt_f32(a: f32, round: Round) -> f32 {
    let a = f64::from(a);
    let root = a.sqrt();
    let rest = (-root).mul_add(root, a);
    pair_to_f32(root, if rest.is_finite() { rest } else { 0.0 }, round)
}

/// An integer rounded to f32 in a direction.
pub(crate) fn int_to_f32(value: i128, round: Round) -> f32 {
    let nearest = value as f32;
    let order = (nearest as i128).cmp(&value);
    match round {
        Round::Down if order.is_gt() => nearest.next_down(),
        Round::Up if order.is_lt() => nearest.next_up(),
        Round::Zero if order.is_gt() && value > 0 => nearest.next_down(),
        Round::Zero if order.is_lt() && value < 0 => nearest.next_up(),
        _ => nearest,
    }
}

/// An integer rounded to f64 in a direction.
pub(crate) fn int_to_f64(value: i128, round: Round) -> f64 {
    let nearest = value as f64;
    let order = (nearest as i128).cmp(&value);
    match round {
        Round::Down if order.is_gt() => nearest.next_down(),
        Round::Up if order.is_lt() => nearest.next_up(),
        Round::Zero if order.is_gt() && value > 0 => nearest.next_down(),
        Round::Zero if order.is_lt() && value < 0 => nearest.next_up(),
        _ => nearest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_agrees_with_the_half_crate() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (f16_to_f32(bits), ::half::f16::from_bits(bits).to_f32());
            if theirs.is_nan() {
                assert_eq!(ours.to_bits(), NAN32);
            } else {
                assert_eq!(ours.to_bits(), theirs.to_bits(), "{bits:#x}");
                assert_eq!(f32_to_f16(ours), bits);
                assert_eq!(f64_to_f16(ours.into(), Round::Zero), bits);
            }
            let wide = bf16_to_f32(bits);
            if wide.is_nan() {
                assert_eq!(f32_to_bf16(wide), NAN16);
            } else {
                assert_eq!((f32_to_bf16(wide), f64_to_bf16(wide.into(), Round::Nearest)), (bits, bits));
            }
        }
    }

    #[test]
    fn rounding_to_16_bits_agrees_with_the_half_crate() {
        let mut state = 1u32;
        for _ in 0..200_000 {
            state = state.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
            let value = f32::from_bits(state);
            if !value.is_nan() {
                assert_eq!(f32_to_f16(value), ::half::f16::from_f32_const(value).to_bits(), "{value:e}");
                let bf = ::half::bf16::from_f32(value).to_bits();
                assert_eq!(
                    (f32_to_bf16(value), f64_to_bf16(value.into(), Round::Nearest)),
                    (bf, bf),
                    "{value:e}"
                );
            }
        }
    }

    #[test]
    fn eight_bit_formats() {
        // Codes and values from the OCP specification's tables.
        for (value, code) in [
            (0.0, 0x00),
            (-0.0, 0x80),
            (448.0, 0x7e),
            (464.0, 0x7e),
            (1e9, 0x7e),
            (f64::NEG_INFINITY, 0xfe),
            (0.015625, 0x08),  // smallest normal, 2^-6
            (0.001953125, 1),  // smallest subnormal, 2^-9
            (0.0009765625, 0), // half of it: to even
            (0.001, 1),
            (1.0, 0x38),
            (1.0625, 0x38), // halfway between 1 and 1.125: to even
            (1.1875, 0x3a), // halfway between 1.125 and 1.25: to even
        ] {
            assert_eq!(to_e4m3(value), code, "{value}");
        }
        for code in (0..=255u8).filter(|c| c & 0x7f != 0x7f) {
            assert_eq!(to_e4m3(f16_to_f32(e4m3_to_f16(code)).into()), code);
        }
        for code in (0..=255u8).filter(|c| c & 0x7f < 0x7c) {
            assert_eq!(to_e5m2(f16_to_f32(e5m2_to_f16(code)).into()), code);
        }
        assert_eq!((to_e5m2(1e9), to_e5m2(f64::NAN), to_e4m3(f64::NAN)), (0x7b, 0x7f, 0x7f));
        assert_eq!((f16_to_f32(e5m2_to_f16(0x7c)), e5m2_to_f16(0x7d)), (f32::INFINITY, NAN16));
    }

    #[test]
    fn directed_roundings_bracket_the_exact_value() {
        let tiny = f32::from_bits(1);
        assert_eq!(add_f32(1.0, tiny, Round::Up), 1.0f32.next_up());
        assert_eq!(add_f32(1.0, tiny, Round::Zero), 1.0);
        assert_eq!(add_f32(1.0, -tiny, Round::Zero), 1.0f32.next_down());
        assert_eq!(add_f32(-1.0, tiny, Round::Zero), (-1.0f32).next_up());
        assert_eq!(add_f32(-1.0, tiny, Round::Down), -1.0);
        assert_eq!(add_f32(f32::MAX, f32::MAX, Round::Zero), f32::MAX);
        assert_eq!(add_f32(f32::MAX, f32::MAX, Round::Up), f32::INFINITY);
        assert_eq!(add_f32(-f32::MAX, -f32::MAX, Round::Up), -f32::MAX);
        assert_eq!(add_f32(1.0, -1.0, Round::Down).to_bits(), (-0.0f32).to_bits());
        assert_eq!(add_f32(1.0, -1.0, Round::Up).to_bits(), 0);
        assert_eq!(div_f32(1.0, 3.0, Round::Down), 0.333_333_3);
        assert_eq!(div_f32(1.0, 3.0, Round::Up), 0.333_333_34);
        assert_eq!(div_f32(-1.0, 3.0, Round::Zero), -0.333_333_3);
        assert_eq!(div_f32(6.0, 3.0, Round::Up), 2.0);
        assert_eq!(div_f32(f32::MAX, tiny, Round::Zero), f32::MAX);
        assert_eq!(sqrt_f32(3.0, Round::Up), 1.732_050_9);
        assert_eq!(sqrt_f32(3.0, Round::Zero), 1.732_050_8);
        assert_eq!(sqrt_f32(9.0, Round::Up), 3.0);
        assert_eq!(mul_f32(tiny, 0.5, Round::Up), tiny);
        assert_eq!(mul_f32(-tiny, 0.5, Round::Up).to_bits(), (-0.0f32).to_bits());
        assert_eq!(mul_f32(-tiny, 0.5, Round::Down), -tiny);
        assert_eq!(int_to_f32(0x1ff_ffff, Round::Zero), 33554430.0);
        assert_eq!(int_to_f32(0x1ff_ffff, Round::Nearest), 33554432.0);
        assert_eq!(int_to_f32(-0x1ff_ffff, Round::Down), -33554432.0);
        assert_eq!(int_to_f32(i128::from(u64::MAX), Round::Zero), 18446742974197923840.0);
        assert_eq!(f64_to_f32(1.0 + 1e-12, Round::Up), 1.0f32.next_up());
        assert_eq!(f64_to_f32(-1e-60, Round::Down), -tiny);
    }

    #[test]
    fn odd_rounding_keeps_a_lost_half() {
        // 1 + 2^-11 is halfway between two f16s; a product far below 53 bits must still break the tie.
        let halfway = 1.0 + 2f64.powi(-11);
        let low = fma_odd(2f64.powi(-24), 2f64.powi(-24), halfway);
        assert_eq!(f64_to_f16(low, Round::Nearest), 0x3c01);
        let low = fma_odd(-(2f64.powi(-24)), 2f64.powi(-24), halfway + 2f64.powi(-10));
        assert_eq!(f64_to_f16(low, Round::Nearest), 0x3c01);
    }
}
