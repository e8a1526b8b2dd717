//! Atomic operations on integers, one lane after the other.

use super::lanes::{Lane, all};
use super::memory::{Address, Space, resolve};
use super::{Handle, Isa, Op};
use crate::exec::warp::Warp;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What an atomic operation does, as `imm` of the op says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
#[repr(i32)]
pub(crate) enum Action {
    Add,
    And,
    Or,
    Xor,
    Exchange,
    MinU,
    MaxU,
    MinS,
    MaxS,
    /// `old >= b ? 0 : old + 1`
    Inc,
    /// `old == 0 || old > b ? b : old - 1`
    Dec,
    CompareSwap,
}

impl Action {
    const ALL: [Action; 12] = [
        Action::Add,
        Action::And,
        Action::Or,
        Action::Xor,
        Action::Exchange,
        Action::MinU,
        Action::MaxU,
        Action::MinS,
        Action::MaxS,
        Action::Inc,
        Action::Dec,
        Action::CompareSwap,
    ];
}

/// A width that atomics come in.
pub(crate) trait Word: Lane + Default {
    /// Applies `action` to the word at `place` and returns what was there.
    ///
    /// # Safety
    /// `place` must be valid and aligned.
    unsafe fn apply(place: *mut u8, action: Action, b: Self, c: Self) -> Self;
}

macro_rules! word {
    ($t:ty, $s:ty, $atomic:ty) => {
        impl Word for $t {
            unsafe fn apply(place: *mut u8, action: Action, b: $t, c: $t) -> $t {
                // SAFETY: the caller's promise.
                let word = unsafe { <$atomic>::from_ptr(place.cast()) };
                let order = Ordering::SeqCst;
                let update =
                    |f: fn($t, $t) -> $t| match word.fetch_update(order, order, |old| Some(f(old, b))) {
                        Ok(old) | Err(old) => old,
                    };
                match action {
                    Action::Add => word.fetch_add(b, order),
                    Action::And => word.fetch_and(b, order),
                    Action::Or => word.fetch_or(b, order),
                    Action::Xor => word.fetch_xor(b, order),
                    Action::Exchange => word.swap(b, order),
                    Action::MinU => word.fetch_min(b, order),
                    Action::MaxU => word.fetch_max(b, order),
                    Action::MinS => update(|old, b| (old as $s).min(b as $s) as $t),
                    Action::MaxS => update(|old, b| (old as $s).max(b as $s) as $t),
                    Action::Inc => update(|old, b| if old >= b { 0 } else { old + 1 }),
                    Action::Dec => update(|old, b| if old == 0 || old > b { b } else { old - 1 }),
                    Action::CompareSwap => match word.compare_exchange(b, c, order, order) {
                        Ok(old) | Err(old) => old,
                    },
                }
            }
        }
    };
}
word!(u32, i32, AtomicU32);
word!(u64, i64, AtomicU64);

/// An atomic operation [`Action`] `imm & 0xff` at the address in `a` plus `e`, with `b` (and `c`); the old value goes to
/// `d` unless bit 8 of `imm` says that nobody wants it.
pub(crate) struct Atomic<S, W>(PhantomData<(S, W)>);

impl<S: Space, W: Word> Handle for Atomic<S, W> {
    const HOT: bool = false;

    #[inline(always)]
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op {
        // SAFETY: as the trait says.
        unsafe { run::<S, W>(warp, op) }
    }
}

/// # Safety
/// As [`Handle::run`].
unsafe fn run<S: Space, W: Word>(warp: &mut Warp, op: &Op) -> *const Op {
    let action = Action::ALL[(op.imm & 0xff) as usize];
    // SAFETY: the decoder gave the op registers of these kinds.
    let (addresses, b) = unsafe { (all::<S::Addr>(warp, op.a), all::<W>(warp, op.b)) };
    // SAFETY: as above; only a compare-and-swap has a third operand.
    let c = if action == Action::CompareSwap { unsafe { all::<W>(warp, op.c) } } else { [W::default(); 32] };
    let mut left = warp.mask;
    while left != 0 {
        let lane = left.trailing_zeros();
        left &= left - 1;
        let i = lane as usize;
        let address = addresses[i].plus(i64::from(op.e as i32) as u64).wide();
        let place = match resolve::<S>(warp, op, lane, address, size_of::<W>() as u32, true) {
            Ok(place) => place,
            Err(leave) => return leave,
        };
        // SAFETY: `resolve` checked bounds and alignment within memory whose start is aligned; `d` is a register of `W`.
        unsafe {
            let old = W::apply(place, action, b[i], c[i]);
            if op.imm & 0x100 == 0 {
                warp.frame.add(op.d as usize).cast::<W>().add(i).write(old);
            }
        }
    }
    op.next()
}
