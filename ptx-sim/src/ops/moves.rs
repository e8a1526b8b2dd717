//! Moves, selection, packing, predicates, and values that the launch supplies.

use super::lanes::{all, compare, finish, get, predicate, put_all, put_predicate};
use super::{Handle, Isa, Op};
use crate::exec::warp::Warp;

lanes! {
    Mov32(a: u32) -> u32 [16] { a }
    Mov64(a: u64) -> u64 [8] { a }
    Pack2x16(a: u32, b: u32) -> u32 [16] { a & 0xffff | b << 16 }
    Pack2x32(a: u32, b: u32) -> u64 [8] { u64::from(a) | u64::from(b) << 32 }
    Low16(a: u32) -> u32 [16] { a & 0xffff }
    High16(a: u32) -> u32 [16] { a >> 16 }
    Low32(a: u64) -> u32 [8] { a as u32 }
    High32(a: u64) -> u32 [8] { (a >> 32) as u32 }
    Pack4x8Low(a: u32, b: u32) -> u32 [1] { a & 0xff | (b & 0xff) << 8 }
    /// Picks `a` where `c`, as a signed integer, is not negative.
    Slct32(a: u32, b: u32, c: i32) -> u32 [1] { if c >= 0 { a } else { b } }
    Slct64(a: u64, b: u64, c: i32) -> u64 [1] { if c >= 0 { a } else { b } }
    /// Picks `a` where `c`, as a float, is not negative (−0 and NaN: the PTX ISA picks `a` for −0 and `b` for NaN).
    SlctF32(a: u32, b: u32, c: f32) -> u32 [1] { if c >= 0.0 { a } else { b } }
    Slct64F32(a: u64, b: u64, c: f32) -> u64 [1] { if c >= 0.0 { a } else { b } }
}

/// Byte `imm` of each lane.
pub(crate) struct Byte;

impl Handle for Byte {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        let shift = 8 * (op.imm as u32 & 3);
        // SAFETY: the decoder gave the op 32-bit lanes.
        unsafe { super::lanes::map1::<I, u32, u32, 16>(warp, op, |a| a >> shift & 0xff) };
        op.next()
    }
}

/// Picks `a` where predicate `c` holds, `b` elsewhere, 32 bits.
pub(crate) struct Sel32;
/// [`Sel32`] for 64 bits.
pub(crate) struct Sel64;

macro_rules! select {
    ($name:ident, $t:ty, $n:literal) => {
        impl Handle for $name {
            #[inline(always)]
            unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
                // SAFETY: the decoder gave the op registers of this size and a predicate.
                unsafe {
                    let holds = predicate(warp, op.c);
                    for chunk in 0..32 / $n {
                        let a = get::<$t, $n>(warp, op.a, chunk);
                        let b = get::<$t, $n>(warp, op.b, chunk);
                        let bits = holds >> (chunk * $n);
                        let r: [$t; $n] =
                            std::array::from_fn(|i| if bits >> i & 1 != 0 { a[i] } else { b[i] });
                        finish(warp, op.d, chunk, r);
                    }
                }
                op.next()
            }
        }
    };
}
select!(Sel32, u32, 16);
select!(Sel64, u64, 8);

/// A comparison of two lanes.
pub(crate) trait Compare<T> {
    fn holds(a: T, b: T) -> bool;
}

macro_rules! comparisons {
    ($($(#[$meta:meta])* $name:ident |$a:ident, $b:ident| $body:expr;)+) => { $(
        $(#[$meta])*
        pub(crate) struct $name;
        impl<T: PartialOrd + Copy> Compare<T> for $name {
            #[inline(always)]
            #[allow(clippy::eq_op, clippy::double_comparisons, reason = "NaN is neither")]
            fn holds($a: T, $b: T) -> bool {
                $body
            }
        }
    )+ };
}
comparisons! {
    Eq |a, b| a == b;
    Lt |a, b| a < b;
    Le |a, b| a <= b;
    /// Unequal numbers: false where one is NaN.
    Ne |a, b| a < b || a > b;
    /// One is NaN.
    Nan |a, b| !(a == a && b == b);
}

/// `setp`: predicate `d` = the comparison of `a` and `b`, or, where `imm` is 1, its contrary. With the operands exchanged
/// these make all comparisons, the unordered ones being contraries of ordered ones.
pub(crate) struct SetP<T, C>(T, C);

impl<T: super::lanes::Lane + PartialOrd, C: Compare<T>> Handle for SetP<T, C> {
    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: the decoder gave the op registers of `T`'s size and a predicate; the CPU has `I`.
        unsafe {
            let mask = compare::<I, T>(warp, op, C::holds);
            put_predicate(warp, op.d, mask ^ (op.imm as u32).wrapping_neg());
        }
        op.next()
    }
}

/// Predicate logic on masks.
macro_rules! predicates {
    ($($name:ident |$a:ident, $b:ident| $body:expr;)+) => { $(
        /// A function of two predicates.
        pub(crate) struct $name;
        impl Handle for $name {
            #[inline(always)]
            unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
                // SAFETY: the decoder gave the op predicates.
                unsafe {
                    let ($a, $b) = (predicate(warp, op.a), predicate(warp, op.b));
                    put_predicate(warp, op.d, $body);
                }
                op.next()
            }
        }
    )+ };
}
predicates! {
    AndP |a, b| a & b;
    OrP |a, b| a | b;
    XorP |a, b| a ^ b;
    NotP |a, _b| !a;
    MovP |a, _b| a;
}

/// The sign bits of 32-bit lanes `a` to predicate `d`.
pub(crate) struct SignP;

impl Handle for SignP {
    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: the decoder gave the op a 32-bit register and a predicate; the CPU has `I`.
        unsafe {
            let low = I::sign_mask(&get::<u32, 16>(warp, op.a, 0));
            let high = I::sign_mask(&get::<u32, 16>(warp, op.a, 1));
            put_predicate(warp, op.d, low | high << 16);
        }
        op.next()
    }
}

/// The address of the module's variable number `a`, plus `imm`.
pub(crate) struct Symbol;
/// A clock: `imm` 0 is `%clock`, 1 `%clock64`, 2 `%globaltimer`, 3 and 4 its halves. Nanoseconds since the launch began.
pub(crate) struct Clock;
/// Bytes of shared memory: `imm` 0 dynamic, 1 all.
pub(crate) struct SharedSize;

impl Handle for Symbol {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: the launch supplies as many symbols as the kernel names; `d` has 64-bit lanes.
        unsafe {
            let address = *warp.block.symbols.add(op.a as usize);
            put_all(warp, op.d, &[address.wrapping_add(op.imm as i64 as u64); 32]);
        }
        op.next()
    }
}

impl Handle for Clock {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        let now = warp.block.started.elapsed().as_nanos() as u64;
        // SAFETY: `d` has 64-bit lanes for 1 and 2, 32-bit lanes otherwise.
        unsafe {
            match op.imm {
                1 | 2 => put_all(warp, op.d, &[now; 32]),
                4 => put_all(warp, op.d, &[(now >> 32) as u32; 32]),
                _ => put_all(warp, op.d, &[now as u32; 32]),
            }
        }
        op.next()
    }
}

impl Handle for SharedSize {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        let bytes = if op.imm == 0 { warp.block.dynamic_shared } else { warp.block.shared_bytes };
        // SAFETY: `d` has 32-bit lanes.
        unsafe { put_all(warp, op.d, &[bytes; 32]) };
        op.next()
    }
}

/// The address space that a generic address lies in: predicate `d` holds where `a` is in the window `imm` (0 global,
/// 1 shared, 2 local, 3 constant).
pub(crate) struct IsSpace;

impl Handle for IsSpace {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        use crate::memory::{OFFSET_BITS, window};
        // SAFETY: `a` has 64-bit lanes and `d` is a predicate.
        unsafe {
            let a = all::<u64>(warp, op.a);
            let mut mask = 0;
            for (i, a) in a.into_iter().enumerate() {
                let holds = match op.imm {
                    0 => a >> OFFSET_BITS != 0,
                    1 => a.wrapping_sub(window::SHARED) < window::SIZE,
                    2 => a.wrapping_sub(window::LOCAL) < window::SIZE,
                    _ => false,
                };
                mask |= u32::from(holds) << i;
            }
            put_predicate(warp, op.d, mask);
        }
        op.next()
    }
}
