//! Conversions between number formats.

use super::lanes::map1;
use super::{Handle, Isa, Op};
use crate::exec::warp::Warp;
use crate::num::{
    NAN16, NAN32, Round, bits32, e4m3_to_f16, e5m2_to_f16, f16_to_f32, f64_to_f32, int_to_f32, int_to_f64,
    to_e4m3, to_e5m2,
};

/// The NaN that widening a f32's gives.
const WIDE_NAN: u64 = 0x7fff_ffff_e000_0000;

lanes! {
    Truncate64(a: u64) -> u32 [8] { a as u32 }
    Zext64(a: u32) -> u64 [8] { a.into() }
    Sext64(a: i32) -> i64 [8] { a.into() }

    S32ToF32(a: i32) -> f32 [16] { a as f32 }
    U32ToF32(a: u32) -> f32 [16] { a as f32 }
    S64ToF32(a: i64) -> f32 [1] { a as f32 }
    U64ToF32(a: u64) -> f32 [1] { a as f32 }
    S32ToF64(a: i32) -> f64 [8] { a.into() }
    U32ToF64(a: u32) -> f64 [8] { a.into() }
    S64ToF64(a: i64) -> f64 [1] { a as f64 }
    U64ToF64(a: u64) -> f64 [1] { a as f64 }

    F32ToF64(a: f32) -> u64 [8] { if a.is_nan() { WIDE_NAN } else { f64::from(a).to_bits() } }
    F64ToF32(a: f64) -> u32 [8] { bits32(a as f32) }

    F32ToE4m3x2(a: f32, b: f32) -> u32 [1] { u32::from(to_e4m3(a.into())) << 8 | u32::from(to_e4m3(b.into())) }
    F32ToE5m2x2(a: f32, b: f32) -> u32 [1] { u32::from(to_e5m2(a.into())) << 8 | u32::from(to_e5m2(b.into())) }
    F16x2ToE4m3x2(a: u32) -> u32 [1] {
        let byte = |half: u32| u32::from(to_e4m3(f16_to_f32(half as u16).into()));
        byte(a >> 16) << 8 | byte(a)
    }
    F16x2ToE5m2x2(a: u32) -> u32 [1] {
        let byte = |half: u32| u32::from(to_e5m2(f16_to_f32(half as u16).into()));
        byte(a >> 16) << 8 | byte(a)
    }
    E4m3x2ToF16x2(a: u32) -> u32 [1] { u32::from(e4m3_to_f16((a >> 8) as u8)) << 16 | u32::from(e4m3_to_f16(a as u8)) }
    E5m2x2ToF16x2(a: u32) -> u32 [1] { u32::from(e5m2_to_f16((a >> 8) as u8)) << 16 | u32::from(e5m2_to_f16(a as u8)) }
    /// Half precision clamped to [0, 1]; NaN becomes +0.
    SatF16(a: u32) -> u32 [1] {
        let negative = a & 0x8000 != 0;
        if negative || a & 0x7fff > 0x7c00 { 0 } else { (a & 0x7fff).min(0x3c00) }
    }
    /// Half precision with negative numbers, and −0, made +0; NaN stays.
    ReluF16(a: u32) -> u32 [1] { if a & 0x7fff > 0x7c00 { NAN16.into() } else if a & 0x8000 != 0 { 0 } else { a } }
    ReluF16x2(a: u32) -> u32 [1] {
        let relu = |h: u32| if h & 0x7fff > 0x7c00 { u32::from(NAN16) } else if h & 0x8000 != 0 { 0 } else { h };
        relu(a >> 16) << 16 | relu(a & 0xffff)
    }
    /// f32 to tf32, to nearest with ties away from zero: the lower 13 bits cleared.
    F32ToTf32Away(a: u32) -> u32 [1] {
        if a & 0x7fff_ffff > 0x7f80_0000 { NAN32 } else if a & 0x7f80_0000 == 0x7f80_0000 { a } else {
            a.wrapping_add(0x1000) & !0x1fff
        }
    }
}

/// Sign-extends the low `32 - imm` bits to 32.
pub(crate) struct SignExtend;
/// Sign-extends the low `32 - imm` bits to a 16-bit lane.
pub(crate) struct SignExtend16;
/// Keeps the bits of `imm`.
pub(crate) struct Keep;

impl Handle for SignExtend {
    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        let shift = op.imm & 31;
        // SAFETY: the decoder gave the op 32-bit lanes.
        unsafe { map1::<I, i32, i32, 16>(warp, op, |a| a << shift >> shift) };
        op.next()
    }
}

impl Handle for SignExtend16 {
    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        let shift = op.imm & 31;
        // SAFETY: the decoder gave the op 32-bit lanes.
        unsafe { map1::<I, i32, i32, 16>(warp, op, |a| (a << shift >> shift) & 0xffff) };
        op.next()
    }
}

impl Handle for Keep {
    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        let mask = op.imm as u32;
        // SAFETY: the decoder gave the op 32-bit lanes.
        unsafe { map1::<I, u32, u32, 16>(warp, op, |a| a & mask) };
        op.next()
    }
}

/// A rounding to an integral value.
pub(crate) trait Integral {
    fn f32(x: f32) -> f32;
    fn f64(x: f64) -> f64;
}

macro_rules! integral {
    ($($(#[$meta:meta])* $name:ident: $method:ident,)+) => { $(
        $(#[$meta])*
        pub(crate) struct $name;
        impl Integral for $name {
            #[inline(always)]
            fn f32(x: f32) -> f32 {
                x.$method()
            }
            #[inline(always)]
            fn f64(x: f64) -> f64 {
                x.$method()
            }
        }
    )+ };
}
integral! {
    /// To nearest, ties to even.
    Rni: round_ties_even,
    /// Towards zero.
    Rzi: trunc,
    /// Down.
    Rmi: floor,
    /// Up.
    Rpi: ceil,
}

macro_rules! float_ops {
    ($($(#[$meta:meta])* $name:ident($from:ty) -> $to:ty [$n:literal] |$x:ident, $r:ident| $body:expr;)+) => { $(
        $(#[$meta])*
        pub(crate) struct $name<R>(R);
        impl<$r: Integral> Handle for $name<$r> {
            const HOT: bool = $n > 1;

            #[inline(always)]
            unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
                // SAFETY: the decoder gave the op registers of these sizes.
                unsafe { map1::<I, $from, $to, $n>(warp, op, |$x| $body) };
                op.next()
            }
        }
    )+ };
}

// Where a NaN goes: to 0, or, from f64 or to 64 bits, to the integer with only its top bit set (PTX ISA, cvt).
float_ops! {
    /// f32 to an integral f32.
    RoundF32(f32) -> u32 [16] |x, R| bits32(R::f32(x));
    /// f64 to an integral f64.
    RoundF64(f64) -> f64 [1] |x, R| R::f64(x);
    /// f32 to s32, saturating.
    F32ToS32(f32) -> i32 [16] |x, R| R::f32(x) as i32;
    /// f32 to u32, saturating.
    F32ToU32(f32) -> u32 [16] |x, R| R::f32(x) as u32;
    /// f32 to s64, saturating.
    F32ToS64(f32) -> i64 [1] |x, R| if x.is_nan() { i64::MIN } else { R::f32(x) as i64 };
    /// f32 to u64, saturating.
    F32ToU64(f32) -> u64 [1] |x, R| if x.is_nan() { 1 << 63 } else { R::f32(x) as u64 };
    /// f64 to s32, saturating.
    F64ToS32(f64) -> i32 [1] |x, R| if x.is_nan() { i32::MIN } else { R::f64(x) as i32 };
    /// f64 to u32, saturating.
    F64ToU32(f64) -> u32 [1] |x, R| if x.is_nan() { 1 << 31 } else { R::f64(x) as u32 };
    /// f64 to s64, saturating.
    F64ToS64(f64) -> i64 [1] |x, R| if x.is_nan() { i64::MIN } else { R::f64(x) as i64 };
    /// f64 to u64, saturating.
    F64ToU64(f64) -> u64 [1] |x, R| if x.is_nan() { 1 << 63 } else { R::f64(x) as u64 };
}

/// A rounding direction other than to nearest.
pub(crate) trait Direction {
    const ROUND: Round;
}

/// Towards zero.
pub(crate) struct TowardsZero;
/// Down.
pub(crate) struct Downwards;
/// Up.
pub(crate) struct Upwards;

impl Direction for TowardsZero {
    const ROUND: Round = Round::Zero;
}
impl Direction for Downwards {
    const ROUND: Round = Round::Down;
}
impl Direction for Upwards {
    const ROUND: Round = Round::Up;
}

macro_rules! directed_ops {
    ($($name:ident($from:ty) -> $to:ty |$x:ident, $round:ident| $body:expr;)+) => { $(
        /// A conversion rounded in a direction.
        pub(crate) struct $name<D>(D);
        impl<D: Direction> Handle for $name<D> {
            const HOT: bool = false;

            #[inline(always)]
            unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
                let $round = D::ROUND;
                // SAFETY: the decoder gave the op registers of these sizes.
                unsafe { map1::<I, $from, $to, 8>(warp, op, |$x| $body) };
                op.next()
            }
        }
    )+ };
}

directed_ops! {
    S32ToF32Directed(i32) -> f32 |x, round| int_to_f32(x.into(), round);
    U32ToF32Directed(u32) -> f32 |x, round| int_to_f32(x.into(), round);
    S64ToF32Directed(i64) -> f32 |x, round| int_to_f32(x.into(), round);
    U64ToF32Directed(u64) -> f32 |x, round| int_to_f32(x.into(), round);
    S64ToF64Directed(i64) -> f64 |x, round| int_to_f64(x.into(), round);
    U64ToF64Directed(u64) -> f64 |x, round| int_to_f64(x.into(), round);
    F64ToF32Directed(f64) -> u32 |x, round| bits32(f64_to_f32(x, round));
}
