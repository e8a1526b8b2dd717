//! Loops over the lanes of a warp, and the macro that defines an op from the arithmetic of one lane.

use super::Op;
use super::isa::Isa;
use crate::exec::warp::Warp;

/// Lane values that live in a frame.
pub(crate) trait Lane: Copy {}
impl Lane for u32 {}
impl Lane for i32 {}
impl Lane for f32 {}
impl Lane for u64 {}
impl Lane for i64 {}
impl Lane for f64 {}

/// Reads `N` lanes of the operand at `offset`, the `chunk`-th group of them.
///
/// # Safety
/// `offset` must be a register of `T`'s size in the warp's frame, and `chunk < 32 / N`.
#[inline(always)]
pub(crate) unsafe fn get<T: Lane, const N: usize>(warp: &Warp, offset: u32, chunk: usize) -> [T; N] {
    // SAFETY: within a register of the frame, which is aligned to 64 bytes.
    unsafe { warp.frame.add(offset as usize).cast::<[T; N]>().add(chunk).read() }
}

/// Writes `N` lanes of the operand at `offset`.
///
/// # Safety
/// As [`get`].
#[inline(always)]
pub(crate) unsafe fn put<T: Lane, const N: usize>(warp: &mut Warp, offset: u32, chunk: usize, value: [T; N]) {
    // SAFETY: as in `get`.
    unsafe { warp.frame.add(offset as usize).cast::<[T; N]>().add(chunk).write(value) }
}

/// Writes the lanes of `value` whose bit in `mask` is set.
///
/// # Safety
/// As [`get`].
#[inline(always)]
pub(crate) unsafe fn put_masked<T: Lane, const N: usize>(
    warp: &mut Warp,
    offset: u32,
    chunk: usize,
    value: [T; N],
    mask: u32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let old = get::<T, N>(warp, offset, chunk);
        let bits = mask >> (chunk * N);
        let merged: [T; N] = std::array::from_fn(|i| if bits >> i & 1 != 0 { value[i] } else { old[i] });
        put(warp, offset, chunk, merged);
    }
}

/// All 32 lanes of the operand at `offset`.
///
/// # Safety
/// As [`get`].
#[inline(always)]
pub(crate) unsafe fn all<T: Lane>(warp: &Warp, offset: u32) -> [T; 32] {
    // SAFETY: the caller's promise.
    unsafe { get::<T, 32>(warp, offset, 0) }
}

/// Writes all active lanes of the register at `offset`.
///
/// # Safety
/// As [`get`].
#[inline(always)]
pub(crate) unsafe fn put_all<T: Lane>(warp: &mut Warp, offset: u32, value: &[T; 32]) {
    // SAFETY: the caller's promise.
    unsafe {
        if warp.mask == u32::MAX {
            put(warp, offset, 0, *value);
        } else {
            for chunk in 0..4 {
                let part: [T; 8] = std::array::from_fn(|i| value[chunk * 8 + i]);
                put_masked::<T, 8>(warp, offset, chunk, part, warp.mask);
            }
        }
    }
}

/// The predicate at `offset`.
///
/// # Safety
/// `offset` must be a predicate of the warp's frame.
#[inline(always)]
pub(crate) unsafe fn predicate(warp: &Warp, offset: u32) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { warp.frame.add(offset as usize).cast::<u32>().read() }
}

/// Sets the active lanes of the predicate at `offset`.
///
/// # Safety
/// As [`predicate`].
#[inline(always)]
pub(crate) unsafe fn put_predicate(warp: &mut Warp, offset: u32, value: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        let place = warp.frame.add(offset as usize).cast::<u32>();
        place.write(place.read() & !warp.mask | value & warp.mask);
    }
}

/// Writes `N` lanes of the destination, those that are active.
///
/// # Safety
/// As [`get`].
#[inline(always)]
pub(crate) unsafe fn finish<T: Lane, const N: usize>(
    warp: &mut Warp,
    offset: u32,
    chunk: usize,
    value: [T; N],
) {
    // SAFETY: the caller's promise.
    unsafe {
        if warp.mask == u32::MAX {
            put(warp, offset, chunk, value);
        } else {
            put_masked(warp, offset, chunk, value, warp.mask);
        }
    }
}

/// Lane `i` of the operand at `offset`.
///
/// # Safety
/// As [`get`].
#[inline(always)]
unsafe fn one<T: Lane>(warp: &Warp, offset: u32, i: usize) -> T {
    // SAFETY: the caller's promise.
    unsafe { warp.frame.add(offset as usize).cast::<T>().add(i).read() }
}

/// Calls `f` for each active lane and writes what it returns to the register at `offset`.
///
/// # Safety
/// As [`get`].
#[inline(always)]
unsafe fn by_lane<R: Lane>(warp: &mut Warp, offset: u32, f: impl Fn(&Warp, usize) -> R) {
    for i in 0..32 {
        if warp.mask >> i & 1 != 0 {
            let value = f(warp, i);
            // SAFETY: the caller's promise.
            unsafe { warp.frame.add(offset as usize).cast::<R>().add(i).write(value) };
        }
    }
}

/// `d = f(a)` in every active lane.
///
/// # Safety
/// As [`get`], for the operands of `op`.
#[inline(always)]
pub(crate) unsafe fn map1<I: Isa, A: Lane, R: Lane, const N: usize>(
    warp: &mut Warp,
    op: &Op,
    f: impl Fn(A) -> R,
) {
    // SAFETY: the caller's promise.
    unsafe {
        if !I::WIDE {
            return by_lane(warp, op.d, |warp, i| f(one(warp, op.a, i)));
        }
        for chunk in 0..32 / N {
            let a = get::<A, N>(warp, op.a, chunk);
            let r: [R; N] = std::array::from_fn(|i| f(a[i]));
            finish(warp, op.d, chunk, r);
        }
    }
}

/// `d = f(a, b)` in every active lane.
///
/// # Safety
/// As [`get`], for the operands of `op`.
#[inline(always)]
pub(crate) unsafe fn map2<I: Isa, A: Lane, B: Lane, R: Lane, const N: usize>(
    warp: &mut Warp,
    op: &Op,
    f: impl Fn(A, B) -> R,
) {
    // SAFETY: the caller's promise.
    unsafe {
        if !I::WIDE {
            return by_lane(warp, op.d, |warp, i| f(one(warp, op.a, i), one(warp, op.b, i)));
        }
        for chunk in 0..32 / N {
            let a = get::<A, N>(warp, op.a, chunk);
            let b = get::<B, N>(warp, op.b, chunk);
            let r: [R; N] = std::array::from_fn(|i| f(a[i], b[i]));
            finish(warp, op.d, chunk, r);
        }
    }
}

/// `d = f(a, b, c)` in every active lane.
///
/// # Safety
/// As [`get`], for the operands of `op`.
#[inline(always)]
pub(crate) unsafe fn map3<I: Isa, A: Lane, B: Lane, C: Lane, R: Lane, const N: usize>(
    warp: &mut Warp,
    op: &Op,
    f: impl Fn(A, B, C) -> R,
) {
    // SAFETY: the caller's promise.
    unsafe {
        if !I::WIDE {
            return by_lane(warp, op.d, |warp, i| {
                f(one(warp, op.a, i), one(warp, op.b, i), one(warp, op.c, i))
            });
        }
        for chunk in 0..32 / N {
            let a = get::<A, N>(warp, op.a, chunk);
            let b = get::<B, N>(warp, op.b, chunk);
            let c = get::<C, N>(warp, op.c, chunk);
            let r: [R; N] = std::array::from_fn(|i| f(a[i], b[i], c[i]));
            finish(warp, op.d, chunk, r);
        }
    }
}

/// The mask of lanes for which `f(a, b)` holds.
///
/// # Safety
/// As [`get`], for the operands of `op`; the CPU must have `I`.
#[inline(always)]
pub(crate) unsafe fn compare<I: Isa, T: Lane>(warp: &Warp, op: &Op, f: impl Fn(T, T) -> bool) -> u32 {
    // SAFETY: the caller's promise.
    unsafe {
        if !I::WIDE {
            return (0..32)
                .fold(0, |mask, i| mask | u32::from(f(one(warp, op.a, i), one(warp, op.b, i))) << i);
        }
        let mut mask = 0;
        for chunk in 0..2 {
            let a = get::<T, 16>(warp, op.a, chunk);
            let b = get::<T, 16>(warp, op.b, chunk);
            let lanes: [u32; 16] = std::array::from_fn(|i| if f(a[i], b[i]) { u32::MAX } else { 0 });
            mask |= I::sign_mask(&lanes) << (16 * chunk);
        }
        mask
    }
}

/// Defines ops from the arithmetic of one lane:
/// `lanes! { /// doc  Name(a: u32, b: u32) -> u32 [16] { … } }`, with the number of lanes handled together in
/// brackets: 16 for 32-bit lanes, 8 where one is 64 bits wide, 1 for ops too rare to be worth a wide variant.
macro_rules! lanes {
    (@map $warp:ident $op:ident [$n:literal] ($a:ident: $ta:ty) $r:ty $body:block) => {
        $crate::ops::lanes::map1::<I, $ta, $r, $n>($warp, $op, #[inline(always)] |$a: $ta| -> $r { $body })
    };
    (@map $warp:ident $op:ident [$n:literal] ($a:ident: $ta:ty, $b:ident: $tb:ty) $r:ty $body:block) => {
        $crate::ops::lanes::map2::<I, $ta, $tb, $r, $n>($warp, $op, #[inline(always)] |$a: $ta, $b: $tb| -> $r { $body })
    };
    (@map $warp:ident $op:ident [$n:literal] ($a:ident: $ta:ty, $b:ident: $tb:ty, $c:ident: $tc:ty) $r:ty $body:block) => {
        $crate::ops::lanes::map3::<I, $ta, $tb, $tc, $r, $n>(
            $warp, $op, #[inline(always)] |$a: $ta, $b: $tb, $c: $tc| -> $r { $body })
    };
    ($( $(#[$meta:meta])* $name:ident ($($arg:ident : $ty:ty),+) -> $r:ty [$n:literal] $body:block )+) => { $(
        $(#[$meta])*
        pub(crate) struct $name;
        impl $crate::ops::Handle for $name {
            const HOT: bool = $n > 1;

            #[inline(always)]
            unsafe fn run<I: $crate::ops::Isa>(
                warp: &mut $crate::exec::warp::Warp, op: &$crate::ops::Op,
            ) -> *const $crate::ops::Op {
                // SAFETY: the decoder gave the op registers of these sizes.
                unsafe { lanes!(@map warp op [$n] ($($arg: $ty),+) $r $body) };
                op.next()
            }
        }
    )+ };
}
