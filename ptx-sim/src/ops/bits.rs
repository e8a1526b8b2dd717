//! Logic, shifts and bit fields.

use super::lanes::{all, finish, get, map3, put_all};
use super::{Handle, Handler, Isa, Level, Op, select};
use crate::exec::warp::Warp;

lanes! {
    And32(a: u32, b: u32) -> u32 [16] { a & b }
    Or32(a: u32, b: u32) -> u32 [16] { a | b }
    Xor32(a: u32, b: u32) -> u32 [16] { a ^ b }
    Not32(a: u32) -> u32 [16] { !a }
    Cnot32(a: u32) -> u32 [1] { u32::from(a == 0) }
    Not16(a: u32) -> u32 [1] { !a & 0xffff }
    And64(a: u64, b: u64) -> u64 [8] { a & b }
    Or64(a: u64, b: u64) -> u64 [8] { a | b }
    Xor64(a: u64, b: u64) -> u64 [8] { a ^ b }
    Not64(a: u64) -> u64 [8] { !a }
    Cnot64(a: u64) -> u64 [1] { u64::from(a == 0) }

    // Shift counts clamp to the width (PTX ISA, shl and shr).
    Shl32(a: u32, b: u32) -> u32 [16] { if b > 31 { 0 } else { a << (b & 31) } }
    ShrU32(a: u32, b: u32) -> u32 [16] { if b > 31 { 0 } else { a >> (b & 31) } }
    ShrS32(a: i32, b: u32) -> i32 [16] { a >> b.min(31) }
    Shl16(a: u32, b: u32) -> u32 [16] { if b > 15 { 0 } else { a << (b & 15) & 0xffff } }
    ShrU16(a: u32, b: u32) -> u32 [16] { if b > 15 { 0 } else { a >> (b & 15) } }
    ShrS16(a: u32, b: u32) -> u32 [1] { (i32::from(a as i16) >> b.min(15)) as u32 & 0xffff }
    Shl64(a: u64, b: u32) -> u64 [8] { if b > 63 { 0 } else { a << (b & 63) } }
    ShrU64(a: u64, b: u32) -> u64 [8] { if b > 63 { 0 } else { a >> (b & 63) } }
    ShrS64(a: i64, b: u32) -> i64 [8] { a >> b.min(63) }

    ShfLWrap(a: u32, b: u32, c: u32) -> u32 [16] { funnel_left(a, b, c & 31) }
    ShfLClamp(a: u32, b: u32, c: u32) -> u32 [1] { funnel_left(a, b, c.min(32)) }
    ShfRWrap(a: u32, b: u32, c: u32) -> u32 [16] { funnel_right(a, b, c & 31) }
    ShfRClamp(a: u32, b: u32, c: u32) -> u32 [1] { funnel_right(a, b, c.min(32)) }

    Popc32(a: u32) -> u32 [16] { a.count_ones() }
    Popc64(a: u64) -> u32 [1] { a.count_ones() }
    Clz32(a: u32) -> u32 [16] { a.leading_zeros() }
    Clz64(a: u64) -> u32 [1] { a.leading_zeros() }
    Brev32(a: u32) -> u32 [1] { a.reverse_bits() }
    Brev64(a: u64) -> u64 [1] { a.reverse_bits() }
    BfindU32(a: u32) -> u32 [1] { 31u32.wrapping_sub(a.leading_zeros()) }
    BfindS32(a: i32) -> u32 [1] { 31u32.wrapping_sub((a ^ (a >> 31)).leading_zeros()) }
    BfindU64(a: u64) -> u32 [1] { 63u32.wrapping_sub(a.leading_zeros()) }
    BfindS64(a: i64) -> u32 [1] { 63u32.wrapping_sub((a ^ (a >> 63)).leading_zeros()) }
    // The distance that would bring the found bit to the top.
    BfindShiftU32(a: u32) -> u32 [1] { if a == 0 { u32::MAX } else { a.leading_zeros() } }
    BfindShiftS32(a: i32) -> u32 [1] {
        let a = a ^ (a >> 31);
        if a == 0 { u32::MAX } else { a.leading_zeros() }
    }
    BfindShiftU64(a: u64) -> u32 [1] { if a == 0 { u32::MAX } else { a.leading_zeros() } }
    BfindShiftS64(a: i64) -> u32 [1] {
        let a = a ^ (a >> 63);
        if a == 0 { u32::MAX } else { a.leading_zeros() }
    }
    Fns(a: u32, b: u32, c: u32) -> u32 [1] { find_nth_set(a, b, c as i32) }

    // Position and length are taken modulo 256 (PTX ISA, bfe and bfi).
    BfeU32(a: u32, b: u32, c: u32) -> u32 [16] {
        let (at, len) = (b & 0xff, c & 0xff);
        let shifted = if at > 31 { 0 } else { a >> (at & 31) };
        if len > 31 { shifted } else { shifted & ((1 << (len & 31)) - 1) }
    }
    BfeS32(a: i32, b: u32, c: u32) -> i32 [16] {
        // Shifting arithmetically supplies the sign for a field that reaches beyond the top.
        let (at, len) = (b & 0xff, c & 0xff);
        let rest = 32 - len.min(32);
        if len == 0 { 0 } else { (a >> at.min(31)) << (rest & 31) >> (rest & 31) }
    }
    BfeU64(a: u64, b: u32, c: u32) -> u64 [1] {
        let (at, len) = (b & 0xff, c & 0xff);
        let shifted = if at > 63 { 0 } else { a >> (at & 63) };
        if len > 63 { shifted } else { shifted & ((1 << (len & 63)) - 1) }
    }
    BfeS64(a: i64, b: u32, c: u32) -> i64 [1] {
        let (at, len) = (b & 0xff, c & 0xff);
        let rest = 64 - len.min(64);
        if len == 0 { 0 } else { (a >> at.min(63)) << (rest & 63) >> (rest & 63) }
    }
    BmskClamp(a: u32, b: u32) -> u32 [1] { if a > 31 { 0 } else { ones(b) << (a & 31) } }
    BmskWrap(a: u32, b: u32) -> u32 [1] { ones(b & 31) << (a & 31) }
    SzextClampU32(a: u32, b: u32) -> u32 [1] { a & ones(b) }
    SzextWrapU32(a: u32, b: u32) -> u32 [1] { a & ones(b & 31) }
    SzextClampS32(a: u32, b: u32) -> u32 [1] { sign_extend(a, b.min(32)) }
    SzextWrapS32(a: u32, b: u32) -> u32 [1] { sign_extend(a, b & 31) }
    Prmt(a: u32, b: u32, c: u32) -> u32 [16] {
        permute_bytes(a, b, [c & 0xf, c >> 4 & 0xf, c >> 8 & 0xf, c >> 12 & 0xf])
    }
    // The special modes of prmt, by the table in the PTX ISA; only the selector's lowest two bits count.
    PrmtF4e(a: u32, b: u32, c: u32) -> u32 [1] { let s = c & 3; permute_bytes(a, b, [s, s + 1, s + 2, s + 3]) }
    PrmtB4e(a: u32, b: u32, c: u32) -> u32 [1] {
        let s = c & 3;
        permute_bytes(a, b, [s, s.wrapping_sub(1) & 7, s.wrapping_sub(2) & 7, s.wrapping_sub(3) & 7])
    }
    PrmtRc8(a: u32, b: u32, c: u32) -> u32 [1] { let s = c & 3; permute_bytes(a, b, [s, s, s, s]) }
    PrmtEcl(a: u32, b: u32, c: u32) -> u32 [1] {
        let s = c & 3;
        permute_bytes(a, b, [s, s.max(1), s.max(2), 3])
    }
    PrmtEcr(a: u32, b: u32, c: u32) -> u32 [1] {
        let s = c & 3;
        permute_bytes(a, b, [0, s.min(1), s.min(2), s])
    }
    PrmtRc16(a: u32, b: u32, c: u32) -> u32 [1] { let s = (c & 1) * 2; permute_bytes(a, b, [s, s + 1, s, s + 1]) }
}

#[inline(always)]
fn ones(n: u32) -> u32 {
    if n > 31 { u32::MAX } else { (1 << (n & 31)) - 1 }
}

/// The lowest `n` bits, sign-extended; 0 when `n` is.
#[inline(always)]
fn sign_extend(a: u32, n: u32) -> u32 {
    let rest = 32 - n;
    if n == 0 { 0 } else { ((a << (rest & 31)) as i32 >> (rest & 31)) as u32 }
}

#[inline(always)]
fn funnel_left(low: u32, high: u32, n: u32) -> u32 {
    ((u64::from(high) << 32 | u64::from(low)) << n >> 32) as u32
}

#[inline(always)]
fn funnel_right(low: u32, high: u32, n: u32) -> u32 {
    ((u64::from(high) << 32 | u64::from(low)) >> n) as u32
}

/// Picks four of the eight bytes of `b:a`; bit 3 of a selector spreads the byte's sign instead.
#[inline(always)]
fn permute_bytes(a: u32, b: u32, selectors: [u32; 4]) -> u32 {
    let mut out = 0;
    for (i, s) in selectors.into_iter().enumerate() {
        let word = if s & 4 != 0 { b } else { a };
        let byte = word >> (8 * (s & 3)) & 0xff;
        let sign = (byte >> 7).wrapping_neg() & 0xff;
        out |= if s & 8 != 0 { sign } else { byte } << (8 * i);
    }
    out
}

/// `prmt` by the constant selector `imm`, none of whose parts spreads a sign.
pub(crate) struct PrmtBy;

impl Handle for PrmtBy {
    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: the decoder gave the op 32-bit registers; the CPU has `I`.
        unsafe {
            for chunk in 0..2 {
                let (a, b) = (get::<u32, 16>(warp, op.a, chunk), get::<u32, 16>(warp, op.b, chunk));
                let r = I::pick_bytes(&a, &b, op.imm as u32);
                finish(warp, op.d, chunk, r);
            }
        }
        op.next()
    }
}

/// The position of the `n`-th set bit of `mask` counted from bit `base`: upwards for positive `n` (1 is the first at
/// or above `base`), downwards for negative; for 0 `base` itself if set. All ones when there is none (PTX ISA, fns).
fn find_nth_set(mask: u32, base: u32, n: i32) -> u32 {
    let base = base as i32;
    if n == 0 {
        return if base < 32 && mask >> base & 1 == 1 { base as u32 } else { u32::MAX };
    }
    let step = n.signum();
    let (mut at, mut left) = (base, n.unsigned_abs());
    while (0..32).contains(&at) {
        if mask >> at & 1 == 1 {
            left -= 1;
            if left == 0 {
                return at as u32;
            }
        }
        at += step;
    }
    u32::MAX
}

/// Four operands, so by hand: `d = a` inserted into `b` at `c` for `e` bits.
pub(crate) struct Bfi32;
/// [`Bfi32`] for 64 bits.
pub(crate) struct Bfi64;

macro_rules! bfi {
    ($name:ident, $t:ty, $bits:literal) => {
        impl Handle for $name {
            #[inline(always)]
            unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
                // SAFETY: the decoder gave the op registers of these sizes.
                unsafe {
                    let (a, b) = (all::<$t>(warp, op.a), all::<$t>(warp, op.b));
                    let (at, len) = (all::<u32>(warp, op.c), all::<u32>(warp, op.e));
                    let out = std::array::from_fn(|i| {
                        let (at, len) = (at[i] & 0xff, len[i] & 0xff);
                        if at >= $bits {
                            return b[i];
                        }
                        let field = if len >= $bits { <$t>::MAX } else { (1 << len) - 1 } << at;
                        b[i] & !field | a[i] << at & field
                    });
                    put_all::<$t>(warp, op.d, &out);
                }
                op.next()
            }
        }
    };
}
bfi!(Bfi32, u32, 32);
bfi!(Bfi64, u64, 64);

/// Any function of three bits, given as its table in `imm`.
pub(crate) struct Lop3;
/// The function of three bits with the table `T`, a constant that the compiler simplifies.
pub(crate) struct Lop3Of<const T: u8>;

/// The function with `table` of three words, row by row.
#[inline(always)]
fn lop3(table: u8, a: u32, b: u32, c: u32) -> u32 {
    let mut out = 0;
    for row in 0..8 {
        let pick = |x: u32, bit: u8| if row & bit != 0 { x } else { !x };
        let value = u32::from(table >> row & 1).wrapping_neg();
        out |= pick(a, 4) & pick(b, 2) & pick(c, 1) & value;
    }
    out
}

impl Handle for Lop3 {
    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        let table = op.imm as u8;
        // SAFETY: the decoder gave the op 32-bit registers.
        unsafe { map3::<I, u32, u32, u32, u32, 16>(warp, op, |a, b, c| lop3(table, a, b, c)) };
        op.next()
    }
}

impl<const T: u8> Handle for Lop3Of<T> {
    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: the decoder gave the op 32-bit registers.
        unsafe { map3::<I, u32, u32, u32, u32, 16>(warp, op, |a, b, c| lop3(T, a, b, c)) };
        op.next()
    }
}

/// The op for a table: its own where it is one that kernels use much.
pub(crate) fn lop3_for(table: u8, level: Level) -> Handler {
    match table {
        0xea => select::<Lop3Of<0xea>>(level), // a & b | c
        0xf8 => select::<Lop3Of<0xf8>>(level), // a | b & c
        0x6a => select::<Lop3Of<0x6a>>(level), // (a & b) ^ c
        0xca => select::<Lop3Of<0xca>>(level), // a ? b : c
        0x96 => select::<Lop3Of<0x96>>(level), // a ^ b ^ c
        0xfe => select::<Lop3Of<0xfe>>(level), // a | b | c
        0x80 => select::<Lop3Of<0x80>>(level), // a & b & c
        _ => select::<Lop3>(level),
    }
}
