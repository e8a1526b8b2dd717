//! Half-precision arithmetic (f16 and bf16), by way of wider formats. NaN results are 0x7fff.
//!
//! A sum or product computed in f32 and rounded again is the correctly rounded one, because 24 bits are at least
//! twice a half's 11 (or bf16's 8) and two more. A fused multiply-add goes through f64 rounded to odd.

use super::lanes::{finish, get, map2, map3};
use super::{Handle, Isa, Op};
use crate::exec::warp::Warp;
use crate::num::{
    NAN16, NAN32, Round, bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16, f64_to_bf16, f64_to_f16, fma_odd,
};

/// One of the two formats.
pub(crate) trait Format {
    fn wide(bits: u16) -> f32;
    fn narrow(value: f32) -> u16;
    fn narrow64(value: f64) -> u16;
}

/// IEEE binary16.
pub(crate) struct F16;
/// bfloat16.
pub(crate) struct Bf16;

impl Format for F16 {
    #[inline(always)]
    fn wide(bits: u16) -> f32 {
        f16_to_f32(bits)
    }
    #[inline(always)]
    fn narrow(value: f32) -> u16 {
        f32_to_f16(value)
    }
    fn narrow64(value: f64) -> u16 {
        f64_to_f16(value, Round::Nearest)
    }
}

impl Format for Bf16 {
    #[inline(always)]
    fn wide(bits: u16) -> f32 {
        bf16_to_f32(bits)
    }
    #[inline(always)]
    fn narrow(value: f32) -> u16 {
        f32_to_bf16(value)
    }
    fn narrow64(value: f64) -> u16 {
        f64_to_bf16(value, Round::Nearest)
    }
}

/// The operations of two operands.
pub(crate) trait Binary {
    fn apply<F: Format>(a: u16, b: u16) -> u16;
}

/// Addition.
pub(crate) struct Add;
/// Subtraction.
pub(crate) struct Sub;
/// Multiplication.
pub(crate) struct Mul;
/// The lesser number.
pub(crate) struct Min;
/// The greater number.
pub(crate) struct Max;
/// The lesser, or NaN where one is.
pub(crate) struct MinNan;
/// The greater, or NaN where one is.
pub(crate) struct MaxNan;

impl Binary for Add {
    fn apply<F: Format>(a: u16, b: u16) -> u16 {
        F::narrow(F::wide(a) + F::wide(b))
    }
}

impl Binary for Sub {
    fn apply<F: Format>(a: u16, b: u16) -> u16 {
        F::narrow(F::wide(a) - F::wide(b))
    }
}

impl Binary for Mul {
    fn apply<F: Format>(a: u16, b: u16) -> u16 {
        F::narrow(F::wide(a) * F::wide(b))
    }
}

/// Orders the codes of numbers: −0 just below +0.
fn rank(bits: u16) -> i32 {
    let magnitude = i32::from(bits & 0x7fff);
    if bits & 0x8000 != 0 { -1 - magnitude } else { magnitude }
}

fn pick<F: Format>(a: u16, b: u16, nan: bool, least: bool) -> u16 {
    match (F::wide(a).is_nan(), F::wide(b).is_nan()) {
        (true, true) => NAN16,
        (true, false) => {
            if nan {
                NAN16
            } else {
                b
            }
        }
        (false, true) => {
            if nan {
                NAN16
            } else {
                a
            }
        }
        (false, false) => {
            if (rank(a) < rank(b)) == least {
                a
            } else {
                b
            }
        }
    }
}

impl Binary for Min {
    fn apply<F: Format>(a: u16, b: u16) -> u16 {
        pick::<F>(a, b, false, true)
    }
}

impl Binary for Max {
    fn apply<F: Format>(a: u16, b: u16) -> u16 {
        pick::<F>(a, b, false, false)
    }
}

impl Binary for MinNan {
    fn apply<F: Format>(a: u16, b: u16) -> u16 {
        pick::<F>(a, b, true, true)
    }
}

impl Binary for MaxNan {
    fn apply<F: Format>(a: u16, b: u16) -> u16 {
        pick::<F>(a, b, true, false)
    }
}

/// Changed sign, or none: the operations of one operand, which have two operands for uniformity.
pub(crate) struct Neg;
/// The magnitude.
pub(crate) struct Abs;

impl Binary for Neg {
    fn apply<F: Format>(a: u16, _: u16) -> u16 {
        if F::wide(a).is_nan() { NAN16 } else { a ^ 0x8000 }
    }
}

impl Binary for Abs {
    fn apply<F: Format>(a: u16, _: u16) -> u16 {
        if F::wide(a).is_nan() { NAN16 } else { a & 0x7fff }
    }
}

/// `f` on both halves of a word.
#[inline(always)]
fn both(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
    u32::from(f(a as u16, b as u16)) | u32::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16
}

/// `d = a ∘ b`, one value a lane.
pub(crate) struct One<F, O>(F, O);
/// `d = a ∘ b`, two values a lane.
pub(crate) struct Two<F, O>(F, O);

impl<F: Format, O: Binary> Handle for One<F, O> {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: the decoder gave the op 32-bit lanes.
        unsafe { map2::<I, u32, u32, u32, 8>(warp, op, |a, b| O::apply::<F>(a as u16, b as u16).into()) };
        op.next()
    }
}

impl<F: Format, O: Binary> Handle for Two<F, O> {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: the decoder gave the op 32-bit lanes.
        unsafe { map2::<I, u32, u32, u32, 8>(warp, op, |a, b| both(a, b, O::apply::<F>)) };
        op.next()
    }
}

fn fused<F: Format>(a: u16, b: u16, c: u16) -> u16 {
    F::narrow64(fma_odd(F::wide(a).into(), F::wide(b).into(), F::wide(c).into()))
}

/// Fused multiply-add, one value a lane.
pub(crate) struct FmaOne<F>(F);
/// Fused multiply-add, two values a lane.
pub(crate) struct FmaTwo<F>(F);

impl<F: Format> Handle for FmaOne<F> {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: the decoder gave the op 32-bit lanes.
        unsafe {
            map3::<I, u32, u32, u32, u32, 8>(warp, op, |a, b, c| {
                fused::<F>(a as u16, b as u16, c as u16).into()
            });
        }
        op.next()
    }
}

impl<F: Format> Handle for FmaTwo<F> {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: the decoder gave the op 32-bit lanes.
        unsafe {
            map3::<I, u32, u32, u32, u32, 8>(warp, op, |a, b, c| {
                let low = fused::<F>(a as u16, b as u16, c as u16);
                let high = fused::<F>((a >> 16) as u16, (b >> 16) as u16, (c >> 16) as u16);
                u32::from(low) | u32::from(high) << 16
            });
        }
        op.next()
    }
}

lanes! {
    Bf16ToF32(a: u32) -> u32 [16] { a << 16 }
    F32ToBf16(a: f32) -> u32 [16] { f32_to_bf16(a).into() }
    /// Two conversions packed: `a` to the upper half, `b` to the lower.
    F32ToBf16x2(a: f32, b: f32) -> u32 [1] { u32::from(f32_to_bf16(a)) << 16 | u32::from(f32_to_bf16(b)) }
    F32ToF16Rz(a: f32) -> u32 [1] { f64_to_f16(a.into(), Round::Zero).into() }
    F32ToBf16Rz(a: f32) -> u32 [1] { f64_to_bf16(a.into(), Round::Zero).into() }
    F64ToBf16(a: f64) -> u32 [1] { f64_to_bf16(a, Round::Nearest).into() }
    F64ToF16(a: f64) -> u32 [1] { f64_to_f16(a, Round::Nearest).into() }
}

/// f16 to f32.
pub(crate) struct F16ToF32;
/// f32 to f16, to nearest even.
pub(crate) struct F32ToF16;
/// Two f32 to f16x2: `a` to the upper half, `b` to the lower.
pub(crate) struct F32ToF16x2;

impl Handle for F16ToF32 {
    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: the decoder gave the op 32-bit lanes; the CPU has `I`.
        unsafe {
            for chunk in 0..2 {
                let a = get::<u32, 16>(warp, op.a, chunk);
                let wide = I::from_half(&a);
                let r: [u32; 16] =
                    std::array::from_fn(|i| if wide[i].is_nan() { NAN32 } else { wide[i].to_bits() });
                finish(warp, op.d, chunk, r);
            }
        }
        op.next()
    }
}

/// # Safety
/// The CPU must have `I`.
#[inline(always)]
unsafe fn narrow<I: Isa>(a: &[f32; 16]) -> [u32; 16] {
    // SAFETY: the caller's promise.
    let bits = unsafe { I::to_half(a) };
    std::array::from_fn(|i| if a[i].is_nan() { NAN16.into() } else { bits[i] })
}

impl Handle for F32ToF16 {
    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: the decoder gave the op 32-bit lanes; the CPU has `I`.
        unsafe {
            for chunk in 0..2 {
                let r = narrow::<I>(&get::<f32, 16>(warp, op.a, chunk));
                finish(warp, op.d, chunk, r);
            }
        }
        op.next()
    }
}

impl Handle for F32ToF16x2 {
    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: the decoder gave the op 32-bit lanes; the CPU has `I`.
        unsafe {
            for chunk in 0..2 {
                let high = narrow::<I>(&get::<f32, 16>(warp, op.a, chunk));
                let low = narrow::<I>(&get::<f32, 16>(warp, op.b, chunk));
                let r: [u32; 16] = std::array::from_fn(|i| high[i] << 16 | low[i]);
                finish(warp, op.d, chunk, r);
            }
        }
        op.next()
    }
}
