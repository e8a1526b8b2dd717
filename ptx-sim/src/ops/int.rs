//! Integer arithmetic. 16-bit values sit zero-extended in 32-bit lanes, and every op leaves them so.

use super::lanes::{all, put_all};
use super::{Handle, Isa, Op};
use crate::exec::warp::Warp;

/// The lower 16 bits, as a signed number.
#[inline(always)]
fn s16(x: u32) -> i32 {
    i32::from(x as i16)
}

/// A result as a 16-bit lane.
#[inline(always)]
fn h(x: i32) -> u32 {
    x as u32 & 0xffff
}

/// The quotient of 32-bit integers by way of f64: |a / b| needs fewer than 53 bits to tell quotients apart, so
/// truncating the rounded one is exact. Division by zero gives all ones, as the GPU's does.
#[inline(always)]
fn div_u32(a: u32, b: u32) -> u32 {
    if b == 0 { u32::MAX } else { (f64::from(a) / f64::from(b)) as u32 }
}

#[inline(always)]
fn div_s32(a: u32, b: u32) -> u32 {
    let (a, b) = (a as i32, b as i32);
    if b == 0 { u32::MAX } else { (f64::from(a) / f64::from(b)) as i64 as u32 }
}

#[inline(always)]
fn mad_u32(a: u32, b: u32, c: u32) -> u32 {
    a.wrapping_mul(b).wrapping_add(c)
}

lanes! {
    Add32(a: u32, b: u32) -> u32 [16] { a.wrapping_add(b) }
    Sub32(a: u32, b: u32) -> u32 [16] { a.wrapping_sub(b) }
    MulLo32(a: u32, b: u32) -> u32 [16] { a.wrapping_mul(b) }
    MulHiU32(a: u32, b: u32) -> u32 [16] { ((u64::from(a) * u64::from(b)) >> 32) as u32 }
    MulHiS32(a: i32, b: i32) -> u32 [16] { ((i64::from(a) * i64::from(b)) >> 32) as u32 }
    MulWideU32(a: u32, b: u32) -> u64 [8] { u64::from(a) * u64::from(b) }
    MulWideS32(a: i32, b: i32) -> u64 [8] { (i64::from(a) * i64::from(b)) as u64 }
    MulWideU16(a: u32, b: u32) -> u32 [1] { (a & 0xffff).wrapping_mul(b & 0xffff) }
    MulWideS16(a: u32, b: u32) -> u32 [1] { s16(a).wrapping_mul(s16(b)) as u32 }
    MulHiU16(a: u32, b: u32) -> u32 [1] { (a & 0xffff).wrapping_mul(b & 0xffff) >> 16 }
    MulHiS16(a: u32, b: u32) -> u32 [1] { h(s16(a).wrapping_mul(s16(b)) >> 16) }
    MadLo32(a: u32, b: u32, c: u32) -> u32 [16] { mad_u32(a, b, c) }
    MadHiU32(a: u32, b: u32, c: u32) -> u32 [1] { (((u64::from(a) * u64::from(b)) >> 32) as u32).wrapping_add(c) }
    MadHiS32(a: i32, b: i32, c: u32) -> u32 [1] { (((i64::from(a) * i64::from(b)) >> 32) as u32).wrapping_add(c) }
    MadWideU32(a: u32, b: u32, c: u64) -> u64 [8] { (u64::from(a) * u64::from(b)).wrapping_add(c) }
    MadWideS32(a: i32, b: i32, c: u64) -> u64 [8] { ((i64::from(a) * i64::from(b)) as u64).wrapping_add(c) }
    MadWideU16(a: u32, b: u32, c: u32) -> u32 [1] { mad_u32(a & 0xffff, b & 0xffff, c) }
    MadWideS16(a: u32, b: u32, c: u32) -> u32 [1] { mad_u32(s16(a) as u32, s16(b) as u32, c) }
    Mul24LoU(a: u32, b: u32) -> u32 [1] { (a & 0xff_ffff).wrapping_mul(b & 0xff_ffff) }
    Mul24LoS(a: i32, b: i32) -> u32 [1] { ((a << 8) >> 8).wrapping_mul((b << 8) >> 8) as u32 }
    Mul24HiU(a: u32, b: u32) -> u32 [1] { ((u64::from(a & 0xff_ffff) * u64::from(b & 0xff_ffff)) >> 16) as u32 }
    Mul24HiS(a: i32, b: i32) -> u32 [1] { ((i64::from((a << 8) >> 8) * i64::from((b << 8) >> 8)) >> 16) as u32 }
    MadHiSatS32(a: i32, b: i32, c: i32) -> i32 [1] { (((i64::from(a) * i64::from(b)) >> 32) as i32).saturating_add(c) }
    DivU32(a: u32, b: u32) -> u32 [8] { div_u32(a, b) }
    DivS32(a: u32, b: u32) -> u32 [8] { div_s32(a, b) }
    RemU32(a: u32, b: u32) -> u32 [8] { a.wrapping_sub(div_u32(a, b).wrapping_mul(b)) }
    RemS32(a: u32, b: u32) -> u32 [8] { a.wrapping_sub(div_s32(a, b).wrapping_mul(b)) }
    MinU32(a: u32, b: u32) -> u32 [16] { a.min(b) }
    MinS32(a: i32, b: i32) -> i32 [16] { a.min(b) }
    MaxU32(a: u32, b: u32) -> u32 [16] { a.max(b) }
    MaxS32(a: i32, b: i32) -> i32 [16] { a.max(b) }
    MinReluS32(a: i32, b: i32) -> i32 [1] { a.min(b).max(0) }
    MaxReluS32(a: i32, b: i32) -> i32 [1] { a.max(b).max(0) }
    AbsS32(a: i32) -> i32 [16] { a.wrapping_abs() }
    Neg32(a: u32) -> u32 [16] { a.wrapping_neg() }
    AddSatS32(a: i32, b: i32) -> i32 [1] { a.saturating_add(b) }
    SubSatS32(a: i32, b: i32) -> i32 [1] { a.saturating_sub(b) }
    SadU32(a: u32, b: u32, c: u32) -> u32 [1] { a.abs_diff(b).wrapping_add(c) }
    SadS32(a: i32, b: i32, c: u32) -> u32 [1] { a.abs_diff(b).wrapping_add(c) }

    Add16(a: u32, b: u32) -> u32 [16] { a.wrapping_add(b) & 0xffff }
    Sub16(a: u32, b: u32) -> u32 [16] { a.wrapping_sub(b) & 0xffff }
    MulLo16(a: u32, b: u32) -> u32 [16] { a.wrapping_mul(b) & 0xffff }
    MadLo16(a: u32, b: u32, c: u32) -> u32 [1] { mad_u32(a, b, c) & 0xffff }
    DivU16(a: u32, b: u32) -> u32 [1] { div_u32(a, b) & 0xffff }
    DivS16(a: u32, b: u32) -> u32 [1] { div_s32(s16(a) as u32, s16(b) as u32) & 0xffff }
    RemU16(a: u32, b: u32) -> u32 [1] { a.wrapping_sub(div_u32(a, b).wrapping_mul(b)) & 0xffff }
    RemS16(a: u32, b: u32) -> u32 [1] {
        a.wrapping_sub(div_s32(s16(a) as u32, s16(b) as u32).wrapping_mul(b)) & 0xffff
    }
    MinU16(a: u32, b: u32) -> u32 [1] { a.min(b) }
    MinS16(a: u32, b: u32) -> u32 [1] { h(s16(a).min(s16(b))) }
    MaxU16(a: u32, b: u32) -> u32 [1] { a.max(b) }
    MaxS16(a: u32, b: u32) -> u32 [1] { h(s16(a).max(s16(b))) }
    AbsS16(a: u32) -> u32 [1] { h(s16(a).wrapping_abs()) }
    Neg16(a: u32) -> u32 [1] { a.wrapping_neg() & 0xffff }
    SadU16(a: u32, b: u32, c: u32) -> u32 [1] { a.abs_diff(b).wrapping_add(c) & 0xffff }
    SadS16(a: u32, b: u32, c: u32) -> u32 [1] { s16(a).abs_diff(s16(b)).wrapping_add(c) & 0xffff }

    AddX2(a: u32, b: u32) -> u32 [1] { a.wrapping_add(b) & 0xffff | (a & 0xffff_0000).wrapping_add(b & 0xffff_0000) }
    MinU16x2(a: u32, b: u32) -> u32 [1] { (a & 0xffff).min(b & 0xffff) | (a & 0xffff_0000).min(b & 0xffff_0000) }
    MaxU16x2(a: u32, b: u32) -> u32 [1] { (a & 0xffff).max(b & 0xffff) | (a & 0xffff_0000).max(b & 0xffff_0000) }
    MinS16x2(a: u32, b: u32) -> u32 [1] {
        h(s16(a).min(s16(b))) | (((a as i32) >> 16).min((b as i32) >> 16) << 16) as u32
    }
    MaxS16x2(a: u32, b: u32) -> u32 [1] {
        h(s16(a).max(s16(b))) | (((a as i32) >> 16).max((b as i32) >> 16) << 16) as u32
    }

    Add64(a: u64, b: u64) -> u64 [8] { a.wrapping_add(b) }
    Sub64(a: u64, b: u64) -> u64 [8] { a.wrapping_sub(b) }
    MulLo64(a: u64, b: u64) -> u64 [8] { a.wrapping_mul(b) }
    MulHiU64(a: u64, b: u64) -> u64 [1] { ((u128::from(a) * u128::from(b)) >> 64) as u64 }
    MulHiS64(a: i64, b: i64) -> u64 [1] { ((i128::from(a) * i128::from(b)) >> 64) as u64 }
    MadLo64(a: u64, b: u64, c: u64) -> u64 [8] { a.wrapping_mul(b).wrapping_add(c) }
    MadHiU64(a: u64, b: u64, c: u64) -> u64 [1] { (((u128::from(a) * u128::from(b)) >> 64) as u64).wrapping_add(c) }
    MadHiS64(a: i64, b: i64, c: u64) -> u64 [1] { (((i128::from(a) * i128::from(b)) >> 64) as u64).wrapping_add(c) }
    DivU64(a: u64, b: u64) -> u64 [1] { a.checked_div(b).unwrap_or(u64::MAX) }
    DivS64(a: i64, b: i64) -> i64 [1] { if b == 0 { -1 } else { a.wrapping_div(b) } }
    RemU64(a: u64, b: u64) -> u64 [1] { a.checked_rem(b).unwrap_or(a) }
    RemS64(a: i64, b: i64) -> i64 [1] { if b == 0 { a } else { a.wrapping_rem(b) } }
    MinU64(a: u64, b: u64) -> u64 [1] { a.min(b) }
    MinS64(a: i64, b: i64) -> i64 [1] { a.min(b) }
    MaxU64(a: u64, b: u64) -> u64 [1] { a.max(b) }
    MaxS64(a: i64, b: i64) -> i64 [1] { a.max(b) }
    AbsS64(a: i64) -> i64 [1] { a.wrapping_abs() }
    Neg64(a: u64) -> u64 [8] { a.wrapping_neg() }
    SadU64(a: u64, b: u64, c: u64) -> u64 [1] { a.abs_diff(b).wrapping_add(c) }
    SadS64(a: i64, b: i64, c: u64) -> u64 [1] { a.abs_diff(b).wrapping_add(c) }
}

#[inline(always)]
fn byte(x: u32, i: u32, signed: bool) -> i32 {
    let b = (x >> (8 * i)) as u8;
    if signed { i32::from(b as i8) } else { i32::from(b) }
}

#[inline(always)]
fn dp4a<const A: bool, const B: bool>(a: u32, b: u32, c: u32) -> u32 {
    let mut sum = c;
    for i in 0..4 {
        sum = sum.wrapping_add(byte(a, i, A).wrapping_mul(byte(b, i, B)) as u32);
    }
    sum
}

/// Two 16-bit by 8-bit products: `b`'s bytes 0 and 1, or 2 and 3 when `HIGH`.
#[inline(always)]
fn dp2a<const A: bool, const B: bool, const HIGH: bool>(a: u32, b: u32, c: u32) -> u32 {
    let (low, high) = if A { (s16(a), (a as i32) >> 16) } else { ((a & 0xffff) as i32, (a >> 16) as i32) };
    let first = if HIGH { 2 } else { 0 };
    c.wrapping_add(low.wrapping_mul(byte(b, first, B)) as u32).wrapping_add(high.wrapping_mul(byte(
        b,
        first + 1,
        B,
    )) as u32)
}

lanes! {
    Dp4aUU(a: u32, b: u32, c: u32) -> u32 [16] { dp4a::<false, false>(a, b, c) }
    Dp4aUS(a: u32, b: u32, c: u32) -> u32 [1] { dp4a::<false, true>(a, b, c) }
    Dp4aSU(a: u32, b: u32, c: u32) -> u32 [1] { dp4a::<true, false>(a, b, c) }
    Dp4aSS(a: u32, b: u32, c: u32) -> u32 [16] { dp4a::<true, true>(a, b, c) }
    Dp2aLoUU(a: u32, b: u32, c: u32) -> u32 [16] { dp2a::<false, false, false>(a, b, c) }
    Dp2aLoUS(a: u32, b: u32, c: u32) -> u32 [1] { dp2a::<false, true, false>(a, b, c) }
    Dp2aLoSU(a: u32, b: u32, c: u32) -> u32 [16] { dp2a::<true, false, false>(a, b, c) }
    Dp2aLoSS(a: u32, b: u32, c: u32) -> u32 [16] { dp2a::<true, true, false>(a, b, c) }
    Dp2aHiUU(a: u32, b: u32, c: u32) -> u32 [16] { dp2a::<false, false, true>(a, b, c) }
    Dp2aHiUS(a: u32, b: u32, c: u32) -> u32 [1] { dp2a::<false, true, true>(a, b, c) }
    Dp2aHiSU(a: u32, b: u32, c: u32) -> u32 [16] { dp2a::<true, false, true>(a, b, c) }
    Dp2aHiSS(a: u32, b: u32, c: u32) -> u32 [16] { dp2a::<true, true, true>(a, b, c) }
}

/// Addition and subtraction with the carry flag, 32 bits: `imm` bit 0 reads the flag, bit 1 sets it, bit 2 subtracts.
/// After a subtraction the flag is the borrow.
pub(crate) struct Carry32;
/// [`Carry32`] for 64 bits.
pub(crate) struct Carry64;

macro_rules! carry {
    ($name:ident, $t:ty) => {
        impl Handle for $name {
            const HOT: bool = false;

            #[inline(always)]
            unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
                // SAFETY: the decoder gave the op registers of this size.
                unsafe {
                    let (a, b) = (all::<$t>(warp, op.a), all::<$t>(warp, op.b));
                    let mut out = [0; 32];
                    let mut carry = 0u32;
                    for i in 0..32 {
                        let flag = op.imm & 1 != 0 && warp.carry >> i & 1 != 0;
                        let (first, second);
                        (out[i], first, second) = if op.imm & 4 != 0 {
                            let (x, first) = a[i].overflowing_sub(b[i]);
                            let (x, second) = x.overflowing_sub(<$t>::from(flag));
                            (x, first, second)
                        } else {
                            let (x, first) = a[i].overflowing_add(b[i]);
                            let (x, second) = x.overflowing_add(<$t>::from(flag));
                            (x, first, second)
                        };
                        carry |= u32::from(first | second) << i;
                    }
                    if op.imm & 2 != 0 {
                        warp.carry = warp.carry & !warp.mask | carry & warp.mask;
                    }
                    put_all(warp, op.d, &out);
                }
                op.next()
            }
        }
    };
}
carry!(Carry32, u32);
carry!(Carry64, u64);
