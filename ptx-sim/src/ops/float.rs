//! Single and double precision arithmetic. NaN results of f32 operations are [`NAN32`](crate::num::NAN32).

use super::lanes::{map1, map2, map3};
use super::{Handle, Isa, Op};
use crate::exec::warp::Warp;
use crate::num::{NAN32, Round, add_f32, bits32, div_f32, fma_f32, mul_f32, sqrt_f32};

/// The NaN of f64 operations that have no NaN operand.
const NAN64: u64 = 0xfff8_0000_0000_0000;

#[inline(always)]
fn bits64(value: f64) -> u64 {
    if value.is_nan() { NAN64 } else { value.to_bits() }
}

/// The lesser number: a NaN loses against a number, −0 is below +0.
#[inline(always)]
fn min32(a: f32, b: f32) -> f32 {
    let equal = f32::from_bits(a.to_bits() | b.to_bits()); // only zeros are equal with different bits
    let lesser = if a < b {
        a
    } else if b < a {
        b
    } else {
        equal
    };
    if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else {
        lesser
    }
}

#[inline(always)]
fn max32(a: f32, b: f32) -> f32 {
    let equal = f32::from_bits(a.to_bits() & b.to_bits());
    let greater = if a > b {
        a
    } else if b > a {
        b
    } else {
        equal
    };
    if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else {
        greater
    }
}

#[inline(always)]
fn min64(a: f64, b: f64) -> f64 {
    let equal = f64::from_bits(a.to_bits() | b.to_bits());
    let lesser = if a < b {
        a
    } else if b < a {
        b
    } else {
        equal
    };
    if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else {
        lesser
    }
}

#[inline(always)]
fn max64(a: f64, b: f64) -> f64 {
    let equal = f64::from_bits(a.to_bits() & b.to_bits());
    let greater = if a > b {
        a
    } else if b > a {
        b
    } else {
        equal
    };
    if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else {
        greater
    }
}

/// Clamps to [0, 1]; NaN and −0 become +0.
#[inline(always)]
pub(crate) fn saturate(a: f32) -> u32 {
    if a > 0.0 { a.min(1.0).to_bits() } else { 0 }
}

lanes! {
    AddF32(a: f32, b: f32) -> u32 [16] { bits32(a + b) }
    SubF32(a: f32, b: f32) -> u32 [16] { bits32(a - b) }
    MulF32(a: f32, b: f32) -> u32 [16] { bits32(a * b) }
    FmaF32(a: f32, b: f32, c: f32) -> u32 [16] { bits32(a.mul_add(b, c)) }
    DivF32(a: f32, b: f32) -> u32 [16] { bits32(a / b) }
    RcpF32(a: f32) -> u32 [1] { bits32(1.0 / a) }
    SqrtF32(a: f32) -> u32 [16] { bits32(a.sqrt()) }
    NegF32(a: f32) -> u32 [16] { bits32(-a) }
    AbsF32(a: f32) -> u32 [16] { bits32(a.abs()) }
    MinF32(a: f32, b: f32) -> u32 [16] { bits32(min32(a, b)) }
    MaxF32(a: f32, b: f32) -> u32 [16] { bits32(max32(a, b)) }
    MinNanF32(a: f32, b: f32) -> u32 [1] { if a.is_nan() | b.is_nan() { NAN32 } else { min32(a, b).to_bits() } }
    MaxNanF32(a: f32, b: f32) -> u32 [1] { if a.is_nan() | b.is_nan() { NAN32 } else { max32(a, b).to_bits() } }
    SatF32(a: f32) -> u32 [16] { saturate(a) }
    /// The sign of `a` with the magnitude of `b` (PTX's order of operands).
    CopysignF32(a: u32, b: u32) -> u32 [1] { a & 1 << 31 | b & !(1 << 31) }

    AddF64(a: f64, b: f64) -> u64 [8] { bits64(a + b) }
    SubF64(a: f64, b: f64) -> u64 [1] { bits64(a - b) }
    MulF64(a: f64, b: f64) -> u64 [8] { bits64(a * b) }
    FmaF64(a: f64, b: f64, c: f64) -> u64 [8] { bits64(a.mul_add(b, c)) }
    DivF64(a: f64, b: f64) -> u64 [1] { bits64(a / b) }
    RcpF64(a: f64) -> u64 [1] { bits64(1.0 / a) }
    SqrtF64(a: f64) -> u64 [1] { bits64(a.sqrt()) }
    NegF64(a: u64) -> u64 [1] { a ^ 1 << 63 }
    AbsF64(a: u64) -> u64 [1] { a & !(1 << 63) }
    MinF64(a: f64, b: f64) -> u64 [1] { bits64(min64(a, b)) }
    MaxF64(a: f64, b: f64) -> u64 [1] { bits64(max64(a, b)) }
    CopysignF64(a: u64, b: u64) -> u64 [1] { a & 1 << 63 | b & !(1 << 63) }
}

/// `imm` as a rounding direction: 1 towards zero, 2 down, 3 up.
#[inline(always)]
fn direction(imm: i32) -> Round {
    match imm {
        1 => Round::Zero,
        2 => Round::Down,
        3 => Round::Up,
        _ => Round::Nearest,
    }
}

/// Addition of f32, rounded as `imm` says.
pub(crate) struct AddF32Rounded;
/// Multiplication of f32, rounded as `imm` says.
pub(crate) struct MulF32Rounded;
/// Fused multiply-add of f32, rounded as `imm` says.
pub(crate) struct FmaF32Rounded;
/// Division of f32, rounded as `imm` says.
pub(crate) struct DivF32Rounded;
/// Square root of f32, rounded as `imm` says.
pub(crate) struct SqrtF32Rounded;
/// `testp.f32`: which property `imm` asks for; all ones for true.
pub(crate) struct TestF32;

impl Handle for AddF32Rounded {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        let round = direction(op.imm);
        // SAFETY: the decoder gave the op 32-bit registers.
        unsafe { map2::<I, f32, f32, u32, 8>(warp, op, |a, b| bits32(add_f32(a, b, round))) };
        op.next()
    }
}

impl Handle for MulF32Rounded {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        let round = direction(op.imm);
        // SAFETY: the decoder gave the op 32-bit registers.
        unsafe { map2::<I, f32, f32, u32, 8>(warp, op, |a, b| bits32(mul_f32(a, b, round))) };
        op.next()
    }
}

impl Handle for DivF32Rounded {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        let round = direction(op.imm);
        // SAFETY: the decoder gave the op 32-bit registers.
        unsafe { map2::<I, f32, f32, u32, 8>(warp, op, |a, b| bits32(div_f32(a, b, round))) };
        op.next()
    }
}

impl Handle for SqrtF32Rounded {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        let round = direction(op.imm);
        // SAFETY: the decoder gave the op 32-bit registers.
        unsafe { map1::<I, f32, u32, 8>(warp, op, |a| bits32(sqrt_f32(a, round))) };
        op.next()
    }
}

impl Handle for FmaF32Rounded {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        let round = direction(op.imm);
        // SAFETY: the decoder gave the op 32-bit registers.
        unsafe { map3::<I, f32, f32, f32, u32, 8>(warp, op, |a, b, c| bits32(fma_f32(a, b, c, round))) };
        op.next()
    }
}

/// The properties that `testp` knows, in the order of `imm`.
pub(crate) const PROPERTIES: [&str; 6] =
    ["finite", "infinite", "number", "notanumber", "normal", "subnormal"];

impl Handle for TestF32 {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        let property = op.imm;
        let holds = |a: f32| match property {
            0 => a.is_finite(),
            1 => a.is_infinite(),
            2 => !a.is_nan(),
            3 => a.is_nan(),
            4 => a.is_normal() || a == 0.0,
            _ => a.is_subnormal(),
        };
        // SAFETY: the decoder gave the op 32-bit registers.
        unsafe { map1::<I, f32, u32, 8>(warp, op, |a| if holds(a) { u32::MAX } else { 0 }) };
        op.next()
    }
}
